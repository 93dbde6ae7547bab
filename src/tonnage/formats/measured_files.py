"""Reads every format of measured files that ``size --benchmarks``, ``score`` and ``calibrate``
take.

A table of points, a report of GenAI-Perf or AIPerf or a folder of them, a result of ``vllm bench``
or a folder of those, a GuideLLM report, those of any other tool of this folder, a run folder of
Tonnage or a folder of those. What a file does not say comes from the caller. Definitions differ
between tools (the inter token latency of GenAI-Perf and AIPerf is our TPOT: one value per request);
what a column is taken for is written in ``columns``. ``read_measured`` makes of it what is scored
and ``points`` what is sized from.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from os.path import isdir
from pathlib import Path
from typing import Any

from tonnage.errors import InputError, option
from tonnage.formats.genai_perf import REPORTS, find_reports, is_report, read_report
from tonnage.formats.invalid_runs import InvalidRuns
from tonnage.formats.table import (
    CACHED,
    DRAWN,
    FAILED,
    KNOBS,
    LATENCIES,
    LATENCY_COLUMNS,
    NONE_COMPLETED,
    RATIO,
    REFUSED,
    REMARK,
    SENT,
    STATISTICS,
    NoneCompleted,
    Table,
    files_below,
    latency_column,
    load_documents,
    load_json,
    read_table,
    shown,
)
from tonnage.formats.tool_format import Points, as_written, holds_requests, not_read, points_of
from tonnage.results.metrics import reported_rates
from tonnage.results.requests import COMPLETED, Requests
from tonnage.results.store import Run, read_run
from tonnage.spec.catalog import find_gpu
from tonnage.spec.deployment import LimitMetric, Statistic
from tonnage.spec.hardware import is_hardware_file

Value = str | int | float
Values = Mapping[str, Value]
IN_FLIGHT = "in_flight"
REQUIRED = ("model", "gpu", "precision", "tp", "isl", "osl")
LENGTHS = frozenset(("isl", "osl"))
LOADS = ("batch", "concurrency", "request_rate")
MEASURED = (
    *LATENCY_COLUMNS,
    "requests_s",
    "output_tok_s",
    "peak_gpu_memory_gb",
    "joules_per_token",
)
KEYS = (
    *REQUIRED,
    "layout",
    *LOADS,
    "burstiness",
    IN_FLIGHT,
    *DRAWN.values(),
    RATIO,
    *KNOBS,
    CACHED,
    "engine",
    "source",
    "run",
    "requests",
    "window_s",
    *MEASURED,
)
NO_STREAM = 0.001  # Share of E2E after the first token below which the answer came at once
LINES = ".jsonl"  # A file with a JSON document in each line
NEAR = 0.05  # A measured mean length this near to the nominal one requested counts as it


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One measured point as its file says it."""

    # by canonical column name (``columns``); what was not measured is absent. Latencies are in
    # milliseconds.
    values: Values
    where: str  # the file and the line or benchmark, for messages
    line: int  # the line in the file, or the place of the point in its source, from 1
    # columns that hold a measured mean where the nominal value is missing
    soft: frozenset[str] = frozenset()
    whole_run: bool = False  # whether the source is the report of one run, not a line of a table

    def completed(self, defaults: Values) -> dict[str, Any]:
        """The values, with what was given where the file says nothing, and in place of a measured
        mean length within 5 %.

        Raises InputError: neither says the deployment and the lengths, or the load is not exactly
        one.
        """
        loads = {name for name in LOADS if name in self.values}
        merged: dict[str, Any] = {
            name: value for name, value in defaults.items() if not (loads and name in LOADS)
        }
        merged |= self.values
        if {"request_rate", "concurrency"} <= merged.keys():
            merged[IN_FLIGHT] = merged.pop("concurrency")
        for name in self.soft & defaults.keys() & self.values.keys():
            if abs(merged[name] - int(defaults[name])) <= NEAR * int(defaults[name]):
                merged[name] = defaults[name]
        for name in REQUIRED:
            if name not in merged:
                column = "" if self.whole_run else f"add a column {name}, or "
                raise InputError(
                    f"{self.where}: does not say the {name}; {column}give {option(name)}"
                )
        load_columns = [name for name in LOADS if name in merged]
        if len(load_columns) != 1:
            what = " and ".join(load_columns) if load_columns else "no load"
            give = (
                f", so score and calibrate take {option('concurrency')} or {option('request_rate')}"
                if self.whole_run
                else ""
            )
            raise InputError(
                f"{self.where}: has {what}; it needs exactly one of batch, concurrency and"
                f" request_rate{give}"
            )
        return merged


def measurements(
    path: Path | str, defaults: Values | None = None, invalid: InvalidRuns | None = None
) -> Iterator[Measurement]:
    """Every measured point of a file or folder, whatever its format.

    Args:
        defaults: what the caller knows: any of model, gpu, precision, tp, pp, isl, osl, engine and
            a load.
        invalid: decides on points that are not to be believed or not simulated, and remembers them;
            they are left out without it.

    Raises:
        InputError: naming file, line or key, and what would be right.
    """
    path, invalid = Path(path), invalid or InvalidRuns()
    if not _is_folder(path) and path.suffix.lower() not in (".json", LINES) and not is_report(path):
        yield from _table(read_table(path), defaults or {}, invalid)
        return
    for number, (where, values) in enumerate(_runs(path, invalid), start=1):
        if _fits(where, values, invalid):
            yield Measurement(
                values=_streamed(where, values, invalid),
                where=where,
                line=number,
                soft=LENGTHS,
                whole_run=True,
            )


def _fits(where: str, values: Values, invalid: InvalidRuns) -> bool:
    """Whether a point counts: its load can be simulated, and few enough of its requests failed."""
    if remark := values.get(REMARK):
        invalid.remark(where, str(remark))
    if why := values.get(REFUSED):
        invalid.leave_out(where, str(why))
        return False
    return invalid.takes_errors(where, int(values.get(FAILED, 0)), int(values.get(SENT, 0)))


def _streamed(where: str, values: Values, invalid: InvalidRuns) -> Values:
    """The values without TTFT and times of tokens where the report of a run has no moment of a
    first token.
    """
    ttft, whole = values.get("ttft_ms"), values.get("e2e_ms")
    decoded = [name for name in values if name.startswith(("tpot", "itl")) and name.endswith("_ms")]
    at_once = (
        ttft is not None
        and whole is not None
        and int(values.get("osl", 1)) > 1
        and float(whole) - float(ttft) <= NO_STREAM * float(whole)
    )
    if whole is None or not (at_once or (ttft is None and decoded)):
        return values
    invalid.remark(
        where,
        "has no moment of a first token, as it was not streamed: TTFT and the times of tokens are"
        " left out",
    )
    return {
        name: value
        for name, value in values.items()
        if not name.startswith(("ttft", "tpot", "itl"))
    }


def _is_folder(path: Path) -> bool:
    """Whether it is a folder."""
    try:
        return isdir(path)
    except OSError as error:
        raise InputError(
            f"{shown(str(path))}: cannot be read ({error.strerror}); give the path of a file or a"
            " folder"
        ) from None


def _table(table: Table, defaults: Values, invalid: InvalidRuns) -> Iterator[Measurement]:
    """The lines of a table whose load can be simulated, once its columns are enough."""
    missing = [name for name in REQUIRED if name not in table.headers and name not in defaults]
    if missing:
        present_columns = ", ".join(table.headers) or "none that is known"
        raise InputError(
            f"{table.path}: missing column{'s' if len(missing) > 1 else ''} {', '.join(missing)};"
            f" it has {present_columns}; add it, or give"
            f" {', '.join(option(name) for name in missing)}"
        )
    if not any(load in table.headers or load in defaults for load in LOADS):
        raise InputError(
            f"{table.path}: no column says the load; it needs batch, concurrency or request_rate"
        )
    if not any(name in table.headers for name in MEASURED):
        raise InputError(
            f"{table.path}: no measured column; it needs one such as ttft_ms, itl_ms, e2e_ms,"
            " requests_s or output_tok_s"
        )
    for line in table.lines:
        where = f"{table.path}, line {line.number}"
        for name in REQUIRED:
            if name in table.headers and name not in line.values and name not in defaults:
                raise InputError(
                    f"{where}, column '{table.headers[name]}': is empty; every line needs it"
                )
        values = _settled(
            line.values, str(line.values.get("engine") or defaults.get("engine") or "")
        )
        if why := values.get(REFUSED):
            invalid.leave_out(where, str(why))
        else:
            yield Measurement(values=values, where=where, line=line.number, soft=table.soft)


def _settled(line: Values, engine: str) -> Values:
    """The values of a line with its load as it is simulated, or why it is not."""
    values = dict(line)
    ramp, eager = (
        str(values.pop(name, "")).strip().lower() for name in ("ramp_up_strategy", "eager")
    )
    if ramp not in ("", "none", "no", "false", "null"):
        return {REFUSED: f"its rate rose (ramp_up_strategy {shown(ramp)}), which is not simulated"}
    if eager in ("yes", "true", "1", "y"):
        return {REFUSED: "its engine ran without CUDA graphs (eager), which is not simulated"}
    if values.get("request_rate") == math.inf:
        del values["request_rate"]
        values.pop("burstiness", None)
        values.setdefault("concurrency", values.get("requests", 0))
        if not values["concurrency"]:
            return {
                REFUSED: (
                    "a request_rate of inf sends all requests at once, and no column requests says"
                    " how many"
                )
            }
    if values.get(RATIO) == 0:
        del values[RATIO]
        if engine.startswith("sglang"):
            values |= {
                DRAWN[name]: f"1-{values[name]}"
                for name in LENGTHS
                if name in values and DRAWN[name] not in values
            }
        elif not engine.startswith("vllm"):
            return {
                REFUSED: (
                    f"a {RATIO} of 0 is equal lengths in vllm bench and lengths from 1 in SGLang;"
                    " write isl as 1000 or 1-1000"
                )
            }
    return values


def _runs(path: Path, invalid: InvalidRuns) -> Iterator[tuple[str, Values]]:
    """Where each run of a report or folder is, and what it says."""
    if isdir(path):
        yield from _folder(path, invalid)
        return
    if path.suffix.lower() not in (".json", LINES):
        yield str(path), read_report(path)
        return
    documents = load_documents(path)
    for where, document in documents:
        reader = points_of(document)
        if reader:
            with as_written(where):
                points = _points(reader, document, where)
            yield from points
        elif (
            len(documents) == 1 and path.suffix.lower() == ".json" and not holds_requests(document)
        ):
            yield where, read_report(path)
        else:
            raise InputError(f"{where}: {not_read(document)}")


def _points(reader: Points, document: Any, where: str) -> list[tuple[str, Values]]:
    """The points of a document; a refused one where it measured nothing."""
    try:
        return list(reader.read(document, where))
    except NoneCompleted:
        return [(where, {REFUSED: NONE_COMPLETED})]


def _folder(path: Path, invalid: InvalidRuns) -> Iterator[tuple[str, Values]]:
    runs = sorted(file.parent for file in files_below(path, "requests.parquet"))
    for folder in runs:
        run = read_run(folder)
        if invalid.takes(folder, run.summary):
            yield str(folder), _run_values(folder, run)
    if runs:
        return
    for reports in (sorted(path.glob("*.json")), files_below(path, "*.json")):
        results = [file for file in reports if _holds_points(file)]
        for file in results:
            yield from _runs(file, invalid)
        if results:
            return
        if any(files_below(path, *REPORTS)):
            break
    for report in find_reports(path):
        yield str(report), read_report(report)


def _holds_points(file: Path) -> bool:
    """Whether a file is a result of a tool, and no list of results that are files as well."""
    return points_of(load_json(file)) is not None


def _run_values(folder: Path, run: Run) -> Values:
    """The scenario and summary of a run folder: lengths by their means."""
    scenario, summary = run.scenario, run.summary
    try:
        arrivals = scenario["arrivals"]
        values: dict[str, Any] = {
            name: scenario[name]
            for name in ("model", "gpu", "precision", "tp", "engine", "requests")
        }
        values |= {"run": str(folder), **_counted(run.requests)}
        load = "concurrency" if "concurrency" in arrivals else "request_rate"
        values[load] = arrivals["concurrency"] if load == "concurrency" else arrivals["rate"]
        if arrivals.get("in_flight"):
            values["concurrency"] = arrivals["in_flight"]
        if run.requests.window_ns >= 0:
            values["window_s"] = run.requests.window_ns / 1e9
        values["joules_per_token"] = summary.get("energy", {}).get("joules_per_output_token")
        for metric in ("ttft", "itl", "tpot", "e2e"):
            values |= {
                latency_column(metric, statistic): v
                for statistic, v in summary[f"{metric}_ms"].items()
            }
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InputError(
            f"{folder}: its scenario or summary lacks {error}; simulate or measure it again"
        ) from None
    return {name: value for name, value in values.items() if value is not None}


def _counted(requests: Requests) -> dict[str, int | float]:
    """Mean lengths of the completed requests, and their rates up to the last of them, as a
    benchmark reports them.
    """
    ends = requests.last_token_ns
    done = (requests.status == COMPLETED) & (
        (ends <= requests.window_ns) | (requests.window_ns < 0)
    )
    if not done.any():
        raise ValueError("any completed request")
    rates = dict(zip(("requests_s", "output_tok_s"), reported_rates(requests), strict=True))
    lengths = {"isl": requests.isl[done], "osl": requests.osl[done]}
    return {
        **rates,
        **{name: max(round(float(values.mean())), 1) for name, values in lengths.items()},
    }


def read_measured(
    path: Path | str, known_values: Values | None = None, invalid: InvalidRuns | None = None
) -> list[dict[str, Any]]:
    """Read the points of a file or folder of any format: one dictionary each, with every key in
    every one of them.

    Keys and types, ``None`` where nothing was given:

    - ``line`` (int): in the file, from 1; where there are no lines, the number of the point;
    - ``model, gpu, precision`` (str, as written); ``tp, isl, osl`` (int): never None;
    - ``pp, ep, dp`` (int, 1 where absent); ``engine, source, layout`` (str or None; the layout is
      the one in ``known_values``);
    - exactly one of ``batch`` (int, static), ``concurrency`` (int, closed loop), ``request_rate``
      (float, Poisson) is not None;
    - ``burstiness`` (float or None) and ``in_flight`` (int or None): of a rate, the shape of its
      gamma arrivals, and the client's cap, which the concurrency of a row with both is;
    - ``isl_drawn, osl_drawn`` (str or None): how lengths vary, in a form of ``parse_lengths``, and
      ``range_ratio`` (float or None);
    - ``max_batch_size, max_num_tokens, graph_tokens`` (int or None), ``memory_share`` (float or
      None): settings of the engine, where they are not its preset's; ``cached_share`` (float or
      None): the share of every prompt that its prefix cache had;
    - ``run`` (str or None): the run folder, where the row is of one;
    - ``requests`` (int or None), ``window_s`` (float or None);
    - measured (float above 0 or None): ``ttft_ms``, ``ttft_p50_ms`` … ``ttft_p99_ms``, the same for
      ``itl``, ``tpot`` and ``e2e``; ``requests_s``, ``output_tok_s``, ``peak_gpu_memory_gb``.
      ``itl_ms`` is the mean TPOT where the report of a run tells it apart from single gaps, or a
      table has no other (they are one number at a fixed output length).

    Names of models and GPUs are not looked up here. Columns that are not known are left alone.

    Args:
        path: the file or folder.
        known_values: model, gpu, precision, tp, pp, isl, osl, engine where the source does not say
            them; the model is in place of the name that the report of one run gives, which often is
            a path, and a file that describes hardware in place of its name.
        invalid: as in ``measurements``.

    Raises:
        InputError: naming file, line or key, and what would be right.
    """
    defaults, decides = dict(known_values or {}), invalid or InvalidRuns()
    rows = [_row(measurement, defaults) for measurement in measurements(path, defaults, decides)]
    if invalid is None:
        decides.check(rows)
    return rows


def _row(measurement: Measurement, defaults: Values) -> dict[str, Any]:
    merged = measurement.completed(defaults)
    if measurement.whole_run and "model" in defaults:
        merged["model"] = defaults["model"]
    if (
        measurement.whole_run
        and is_hardware_file(file := str(defaults.get("gpu", "")))
        and find_gpu(file).name == merged["gpu"]
    ):
        merged["gpu"] = file
    row: dict[str, Any] = {"line": measurement.line, **{name: merged.get(name) for name in KEYS}}
    row |= {name: merged.get(name, 1) for name in ("pp", "ep", "dp")}
    first, second = ("tpot_ms", "itl_ms") if measurement.whole_run else ("itl_ms", "tpot_ms")
    row["itl_ms"] = row[second] if row[first] is None else row[first]
    if measurement.whole_run and all(row[name] is None for name in MEASURED):
        raise InputError(
            f"{measurement.where}: nothing that was measured; it needs one such as ttft_ms,"
            " tpot_ms, e2e_ms or requests_s"
        )
    return row


# A measured point is a deployment under one load, with its metrics; sizing from measurements
# chooses among them.


STEADY = 0.95  # Requests/s × mean E2E over clients from which a closed loop counts as steady


def steadiness(
    clients: float | None, requests_s: float | None, e2e_ms: float | None
) -> float | None:
    """Requests/s × mean E2E over the clients of a closed loop: 1 when they were always waiting for
    an answer (Little's law).

    Below ``STEADY`` a run was not steady: it still ramped up, or drained. None where it cannot be
    told, as of an open loop.
    """
    return (
        None
        if clients is None or requests_s is None or e2e_ms is None
        else requests_s * e2e_ms / 1e3 / clients
    )


def is_steady(row: Mapping[str, Any]) -> bool:
    """Whether a row of our columns is steady; a row that cannot tell counts as steady."""
    share = steadiness(row.get("concurrency"), row.get("requests_s"), row.get("e2e_ms"))
    return share is None or bool(share >= STEADY)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPoint:
    """One measured point."""

    # model, gpu, precision, engine: as the file writes them
    model: str
    gpu: str
    precision: str
    engine: str
    # tp, pp: parallel degrees; the instance that was measured has tp × pp GPUs
    tp: int
    pp: int
    # isl, osl: prompt and output lengths in tokens
    isl: int
    osl: int
    concurrency: int | None  # clients of the closed loop; None where the load was a rate
    request_rate: float | None  # requests per second sent; None where the load was a closed loop
    # by metric ("ttft", "itl", "tpot", "e2e") and statistic ("mean", "p50", … "p99"), in
    # milliseconds; what was not measured is absent
    latencies_ms: Mapping[str, Mapping[str, float]]
    # completed requests per second; None where neither it nor the tokens were measured
    requests_s: float | None
    output_tok_s: float | None  # output tokens per second; None where it was not measured
    source: str  # where the point comes from: the file's own word for it, or file and line

    @property
    def load(self) -> str:
        """The load in words, such as "closed loop of 10 clients"."""
        if self.concurrency is None:
            return f"open loop at {self.request_rate:g} requests/s"
        return f"closed loop of {self.concurrency} client{'s' if self.concurrency > 1 else ''}"

    @property
    def load_size(self) -> float:
        """What the points of one curve are in order of: clients, or requests per second."""
        return float(self.concurrency if self.concurrency is not None else self.request_rate or 0.0)

    def statistic_ms(self, metric: LimitMetric, statistic: Statistic) -> float | None:
        """One statistic in milliseconds, or None where it was not measured."""
        return self.latencies_ms.get(metric, {}).get(statistic)

    @property
    def steadiness(self) -> float | None:
        """Requests/s × mean E2E over the clients; None where it cannot be told."""
        return steadiness(self.concurrency, self.requests_s, self.statistic_ms("e2e", "mean"))

    @property
    def steady(self) -> bool:
        """Whether the point is steady; a point that cannot tell counts as steady."""
        return self.steadiness is None or self.steadiness >= STEADY


def read_points(
    path: Path | str, known_values: Values | None = None, invalid: InvalidRuns | None = None
) -> list[MeasuredPoint]:
    """The measured points of a file or folder of any format that ``measured_files`` knows.

    What a plain column ``itl_…`` holds is taken for single gaps, what GenAI-Perf calls "inter token
    latency" for a TPOT; where a point has one of the two, the mean stands for both (they are one
    number at a fixed output length). Requests/s that were not measured follow from tokens/s at that
    length.

    Args:
        known_values: values for what the file does not say: any of model, gpu, precision, tp, pp,
            isl, osl, engine, concurrency. A length measured as a mean counts as the given one when
            within 5 %.
        invalid: as in ``measurements``; where every run is INVALID and left out, that is an error.

    Raises:
        InputError: naming file, line and column, and what would be right.
    """
    defaults = dict(known_values or {})
    invalid = invalid or InvalidRuns()
    measured_points = list(measurements(path, defaults, invalid))
    invalid.check(measured_points)
    if not any(
        name in measurement.values
        for measurement in measured_points
        for name in ("requests_s", "output_tok_s")
    ):
        raise InputError(
            f"{path}: missing column requests_s; sizing from measurements needs the requests per"
            " second of each point"
        )
    return [
        _point(measurement, defaults)
        for measurement in measured_points
        if not _held_back(measurement, invalid)
    ]


def _held_back(measurement: Measurement, invalid: InvalidRuns) -> bool:
    """Whether the cap of a rate held requests back: the client's queue is in none of the latencies.
    Such a point is left out.
    """
    values = measurement.values
    cap = values.get("concurrency") if "request_rate" in values else None
    whole, rate = values.get("e2e_ms"), values.get("requests_s")
    if (
        cap is None
        or whole is None
        or rate is None
        or float(rate) * float(whole) / 1e3 < STEADY * float(cap)
    ):
        return False
    invalid.leave_out(
        measurement.where,
        f"{cap} requests were in flight, its cap, so that others waited at the client",
    )
    return True


def _point(measurement: Measurement, defaults: Values) -> MeasuredPoint:
    merged = measurement.completed(defaults)
    if "batch" in merged:
        raise InputError(
            f"{measurement.where}: has a static batch; sizing needs concurrency (clients of a"
            " closed loop) or request_rate"
        )
    requests_s, tokens_s = merged.get("requests_s"), merged.get("output_tok_s")
    return MeasuredPoint(
        model=str(merged["model"]),
        gpu=str(merged["gpu"]),
        precision=str(merged["precision"]).lower(),
        engine=str(merged.get("engine", "not stated")),
        tp=merged["tp"],
        pp=merged.get("pp", 1),
        isl=merged["isl"],
        osl=merged["osl"],
        concurrency=merged.get("concurrency"),
        request_rate=merged.get("request_rate"),
        latencies_ms=_latencies(measurement.values),
        requests_s=(
            requests_s if requests_s is not None or tokens_s is None else tokens_s / merged["osl"]
        ),
        output_tok_s=tokens_s,
        source=str(merged.get("source", measurement.where)),
    )


def _latencies(values: Values) -> dict[str, dict[str, float]]:
    """What was measured, by metric and statistic; one of ITL and TPOT lends the other its mean."""
    measured = {
        m: {s: float(values[c]) for s in STATISTICS if (c := latency_column(m, s)) in values}
        for m in LATENCIES
    }
    for metric, other_metric in (("itl", "tpot"), ("tpot", "itl")):
        if not measured[metric] and "mean" in measured[other_metric]:
            measured[metric] = {"mean": measured[other_metric]["mean"]}
    return measured
