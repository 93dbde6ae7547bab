"""Measured points of any source as the rows of ``exchange.read_rows``, for what fits and scores.

A table of points, a report of GenAI-Perf or AIPerf or a folder of them, a result of ``vllm bench``, a GuideLLM report,
a run folder of Tonnage or a folder of those. What a source does not say comes from the caller's flags; a length
measured as a mean counts as the given one when within 5 %.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tonnage.errors import InputError, option
from tonnage.results.exchange import LOADS, NEAR, ROW_MEASURES, read_rows
from tonnage.results.importers.genai_perf import find_reports, is_report, read_report
from tonnage.results.importers.guidellm import guidellm_values, is_guidellm
from tonnage.results.importers.vllm_bench import is_vllm, vllm_values
from tonnage.results.json_values import load_json
from tonnage.results.requests import COMPLETED, Requests
from tonnage.results.store import read_run
from tonnage.results.table import read_table

Values = Mapping[str, str | int | float]
REQUIRED = ("model", "gpu", "precision", "tp", "isl", "osl")
LENGTHS = ("isl", "osl")


def read_measured(path: Path | str, given: Values | None = None) -> list[dict[str, Any]]:
    """The points of a file or folder, each with the keys that ``read_rows`` gives; ``line`` counts from 1 where there are no lines.

    ``itl_ms`` is the mean time per output token wherever a source tells it apart from single gaps.

    Args:
        path: the file or folder.
        given: model, gpu, precision, tp, pp, isl, osl, engine where the source does not say them.

    Raises:
        InputError: naming file, line or key, and what would be right.
    """
    path, known = Path(path), dict(given or {})
    if not path.is_dir() and path.suffix.lower() != ".json" and not is_report(path):
        table = read_table(path)
        if all(name in table.headers for name in REQUIRED):
            return read_rows(path)
        return [_row(line.values, known, f"{path}, line {line.number}", line.number) for line in table.lines]
    return [_row(values, known, where, number) for number, (where, values) in enumerate(_points(path), start=1)]


def _points(path: Path) -> Iterator[tuple[str, Values]]:
    """Where each point stands, and what it says."""
    if path.is_dir():
        yield from _folder(path)
        return
    document = load_json(path) if path.suffix.lower() == ".json" else None
    if is_vllm(document):
        yield str(path), vllm_values(document, path)
    elif is_guidellm(document):
        for number, values in enumerate(guidellm_values(document, path), start=1):
            yield f"{path}, benchmark {number}", values
    else:
        yield str(path), read_report(path).values


def _folder(path: Path) -> Iterator[tuple[str, Values]]:
    runs = sorted(file.parent for file in path.rglob("requests.parquet"))
    for run in runs:
        yield str(run), _run_values(run)
    if runs:
        return
    results = [file for file in sorted(path.glob("*.json")) if is_vllm(load_json(file))]
    for file in results:
        yield from _points(file)
    if not results:
        for report in find_reports(path):
            yield str(report), read_report(report).values


def _run_values(folder: Path) -> Values:
    """The scenario and summary of a run folder: lengths by their means."""
    run = read_run(folder)
    scenario, summary = run.scenario, run.summary
    try:
        arrivals = scenario["arrivals"]
        values: dict[str, Any] = {name: scenario[name] for name in ("model", "gpu", "precision", "tp", "engine", "requests")}
        values |= _counted(run.requests)
        load = "concurrency" if "concurrency" in arrivals else "request_rate"
        values[load] = arrivals["concurrency"] if load == "concurrency" else arrivals["rate"]
        if run.requests.window_ns >= 0:
            values["window_s"] = run.requests.window_ns / 1e9
        for metric in ("ttft", "itl", "tpot", "e2e"):
            values |= {f"{metric}{'' if s == 'mean' else f'_{s}'}_ms": v for s, v in summary[f"{metric}_ms"].items()}
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InputError(f"{folder}: its scenario or summary lacks {error}; simulate or measure it again") from None
    return {name: value for name, value in values.items() if value is not None}


def _counted(requests: Requests) -> dict[str, int | float]:
    """Mean lengths of the completed requests, and their rates up to the last of them, as a benchmark reports them.

    Raises:
        ValueError: none was completed.
    """
    ends = requests.last_token_ns
    done = (requests.status == COMPLETED) & ((ends <= requests.window_ns) | (requests.window_ns < 0))
    if not done.any():
        raise ValueError("any completed request")
    seconds = (int(ends[done].max()) - max(int(requests.due_ns[done].min()), 0)) / 1e9
    tokens = requests.osl[done]
    rates = {"requests_s": int(done.sum()) / seconds, "output_tok_s": int(tokens.sum()) / seconds}
    lengths = {"isl": requests.isl[done], "osl": tokens}
    return {**rates, **{name: max(round(float(values.mean())), 1) for name, values in lengths.items()}}


def _row(values: Values, given: Values, where: str, number: int) -> dict[str, Any]:
    merged: dict[str, Any] = {**given, **values}
    if "model" in given:
        merged["model"] = given["model"]
    for name in LENGTHS:
        if name in given and name in values and abs(float(values[name]) - int(given[name])) <= NEAR * int(given[name]):
            merged[name] = given[name]
    for name in REQUIRED:
        if name not in merged:
            raise InputError(f"{where}: does not say the {name}; give {option(name)}")
    loads = [name for name in LOADS if name in merged]
    if len(loads) != 1:
        what = " and ".join(loads) if loads else "no load"
        raise InputError(f"{where}: has {what}; it needs exactly one of batch, concurrency and request_rate")
    names = (*REQUIRED, *LOADS, "engine", "source", "requests", "window_s", *ROW_MEASURES)
    row: dict[str, Any] = {"line": number, **{name: merged.get(name) for name in names}}
    row |= {name: merged.get(name, 1) for name in ("pp", "ep", "dp")}
    row["itl_ms"] = row["tpot_ms"] if row["tpot_ms"] is not None else row["itl_ms"]
    if all(row[name] is None for name in ROW_MEASURES):
        raise InputError(f"{where}: nothing that was measured; it needs one such as ttft_ms, tpot_ms, e2e_ms or requests_s")
    return row
