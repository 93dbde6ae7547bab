"""GenAI-Perf's files (0.0.16): the report of a run, read and written, and the raw export of its
requests, read.

``*_genai_perf.csv``, ``*_genai_perf.json`` and AIPerf's own report (0.13) are read into the same
canonical names as a table. Their "inter token latency" is one value per request, our TPOT. A report
does not say what it ran on: GPU, precision and parallelism come from the caller.

``profile_export.json``, written by perf_analyzer, holds the text of every request and response with
stamps in nanoseconds, and no counts of tokens: those are the server's, where it sent usage; else
those of a tokenizer, where one is given; else an event with output counts as one token, and a
prompt has none. A response that holds several events is one moment, as GenAI-Perf takes it. A run
of ours is not written as one, since it keeps no texts.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tonnage.errors import InputError
from tonnage.formats.finished_run import FinishedRun, statistics
from tonnage.formats.table import (
    DRAWN,
    FAILED,
    NONE_COMPLETED,
    REFUSED,
    SENT,
    VARIES,
    Column,
    checked_count,
    checked_measure,
    files_below,
    find_column,
    load_json,
    measured_rows,
    number_at,
    parse_number,
    shown,
)
from tonnage.formats.tool_format import (
    ImportedRequest,
    ImportedRun,
    Reading,
    Requests,
    ToolFormat,
    finite_number,
)
from tonnage.results.store import write_json

REPORTS = (
    "*_genai_perf.json",
    "profile_export_aiperf.json",
    "*_genai_perf.csv",
    "profile_export_aiperf.csv",
)
_CONCURRENCY = re.compile(r"concurrency[_-]?(\d{1,6})(?!\d)", re.IGNORECASE)
_CONFIG_DEPTH = 6


def is_report(path: Path) -> bool:
    """Whether the file is a report of one run, not a table of points: JSON, or CSV that begins with
    "Metric,".
    """
    if path.suffix.lower() == ".json":
        return True
    first = next(measured_rows(path), (1, [""]))[1][0]
    return first.strip().lower() == "metric"


def find_reports(folder: Path) -> list[Path]:
    """The report of every run below a folder of artifacts, one per sub-folder, JSON before CSV.
    Raises InputError: there is none.
    """
    chosen: dict[Path, Path] = {}
    for path in files_below(folder, *REPORTS):
        chosen.setdefault(path.parent, path)
    if not chosen:
        raise InputError(
            f"{folder}: holds no report of GenAI-Perf or AIPerf; give a folder with"
            f" {' or '.join(REPORTS[:2])} below it"
        )
    return [chosen[parent] for parent in sorted(chosen)]


def read_report(path: Path) -> dict[str, str | int | float]:
    """What one report says, by canonical column name. Raises InputError: naming the file, the line
    or key, and what would be right.
    """
    cells = _json_cells(path) if path.suffix.lower() == ".json" else _csv_cells(path)
    values: dict[str, str | int | float] = {}
    for column, value, where in cells:
        if column.kind == "count":
            values[column.name] = checked_count(value, where, rounded=True)
        elif column.kind == "measure" and value:  # 0 where all of an answer came at once
            values[column.name] = checked_measure(value * column.scale, where)
    counts = _failed(path) if path.suffix.lower() == ".json" else {}
    if "requests_s" not in values and counts.get(SENT, 0) and counts[SENT] == counts[FAILED]:
        return {REFUSED: NONE_COMPLETED}
    if "requests_s" not in values:
        raise InputError(
            f"{path}: has no request throughput; give a report of GenAI-Perf or AIPerf, or a table"
            " of points"
        )
    if path.suffix.lower() == ".json":
        values.update(_config_values(path) | _varied(path) | counts)
    clients = _CONCURRENCY.findall(str(path))
    if clients and "concurrency" not in values and "request_rate" not in values:
        values["concurrency"] = checked_count(float(clients[-1]), f"{path}, its name")
    return values


def _column(path: Path, name: str, statistic: str) -> Column | None:
    try:
        return find_column(name if statistic == "value" else f"{name} {statistic}")
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _csv_cells(path: Path) -> Iterator[tuple[Column, float, str]]:
    """Sections of "Metric,avg,…" and "Metric,Value"; lines of quantities that are not known are
    left alone.
    """
    statistics: list[str] = []
    for number, row in measured_rows(path):
        name = row[0].strip()
        if name.lower() == "metric":
            statistics = [cell.strip().lower() for cell in row[1:]]
            continue
        used = [(s, c) for s in statistics if (c := _column(path, name, s)) is not None]
        if not used:
            continue
        if len(row) != len(statistics) + 1:
            raise InputError(
                f"{path}, line {number}: {len(row)} cells, but its header has"
                f" {len(statistics) + 1}; every line needs the same number"
            )
        for statistic, column in used:
            where = f"{path}, line {number}, column '{shown(statistic)}'"
            cell = row[statistics.index(statistic) + 1]
            if cell.strip():
                yield column, parse_number(cell, where), where


def _load(path: Path) -> dict[str, Any]:
    def refuse(word: str) -> Any:
        raise InputError(
            f"{path}: holds {word}, which is not a number; write the number, or leave it out"
        )

    document = load_json(path, refuse)
    if not isinstance(document, dict):
        raise InputError(
            f"{path}: not a report; it must be one JSON object, as GenAI-Perf and AIPerf write it"
        )
    return document


def _json_cells(path: Path) -> Iterator[tuple[Column, float, str]]:
    for key, entry in _load(path).items():
        if not isinstance(entry, dict) or not isinstance(entry.get("unit", ""), str):
            continue
        name = f"{key} ({entry['unit']})" if entry.get("unit") else key
        for statistic, value in entry.items():
            if statistic == "unit" or (column := _column(path, name, statistic)) is None:
                continue
            where = f"{path}, {shown(key)}.{shown(statistic)}"
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > 1e300:
                raise InputError(
                    f"{where}: {shown(json.dumps(value))} is not a number; give the file as the"
                    " tool wrote it"
                )
            yield column, float(value), where


def _config_values(path: Path) -> dict[str, str | int | float]:
    """Model and load from the report's own record of how it was run."""
    config = _load(path).get("input_config")
    values: dict[str, str | int | float] = {}
    phased = isinstance(config, dict) and isinstance(config.get("phases"), list)
    config = _of_phases(config)
    model = _find(config, ("model_names", "model", "formatted_model_name"))
    if isinstance(model, str) and model.strip():
        values["model"] = shown(model)
    where = f"{path}, input_config"
    clients, rate, kind = (
        _find(config, (name,))
        for name in ("concurrency", "request_rate", "type" if phased else "request_rate_mode")
    )
    if isinstance(rate, int | float) and 0 < rate < 1e300:
        values["request_rate"] = checked_measure(rate, f"{where}.request_rate")
        smoothness = _find(config, ("arrival_smoothness", "smoothness"))
        if _find(config, ("rate_ramp", "request_rate_ramp_duration")):
            values[REFUSED] = "its rate rose (a ramp of the request rate), which is not simulated"
        elif kind in ("constant", "gamma"):
            values["burstiness"] = (
                math.inf
                if kind == "constant" or not isinstance(smoothness, int | float)
                else float(smoothness)
            )
        elif kind not in (None, "poisson"):
            values[REFUSED] = f"its arrivals ({shown(str(kind))}) are not simulated"
    if isinstance(clients, int):
        values["concurrency"] = checked_count(clients, f"{where}.concurrency")
    return values


def _failed(path: Path) -> dict[str, str | int | float]:
    """How many requests were sent and failed, as AIPerf counts them."""
    document = _load(path)
    completed, failed = (
        number_at(document, str(path), f"{name}request_count", "avg") or 0
        for name in ("", "error_")
    )
    listed = document.get("error_summary")
    summed = (
        sum(entry.get("count") or 0 for entry in listed if isinstance(entry, dict))
        if isinstance(listed, list)
        else 0
    )
    lost = round(max(failed, summed))
    return {SENT: round(completed) + lost, FAILED: lost}


def _varied(path: Path) -> dict[str, str | int | float]:
    """How lengths vary, by their mean and standard deviation."""
    document = _load(path)
    distributions: dict[str, str | int | float] = {}
    for name, key in (("isl", "input_sequence_length"), ("osl", "output_sequence_length")):
        entry = document.get(key)
        mean, std = (
            entry.get(which) if isinstance(entry, dict) else None for which in ("avg", "std")
        )
        if (
            isinstance(mean, int | float)
            and isinstance(std, int | float)
            and mean >= 1
            and VARIES * mean < std < 1e6
        ):
            distributions[DRAWN[name]] = f"normal:{mean:.9g},{std:.9g}"
    return distributions


def _of_phases(config: Any) -> Any:
    """What AIPerf 0.13 writes, in the shape of its earlier versions: models as items, and the load
    in the phase that is profiled.
    """
    if not isinstance(config, dict) or not isinstance(config.get("phases"), list):
        return config
    phases = [phase for phase in config["phases"] if isinstance(phase, dict)]
    profiled = next(
        (phase for phase in phases if phase.get("kind", phase.get("name")) == "profiling"), {}
    )
    models = config.get("models")
    items = models.get("items") if isinstance(models, dict) else None
    named = (
        items[0].get("name")
        if isinstance(items, list) and items and isinstance(items[0], dict)
        else None
    )
    rate = profiled.get("request_rate", profiled.get("rate"))
    further = {name: profiled.get(name) for name in ("type", "arrival_smoothness", "smoothness")}
    further["rate_ramp"] = "a ramp" if profiled.get("rate_ramp") else None
    return {
        "model": named,
        "concurrency": profiled.get("concurrency"),
        "request_rate": rate,
        **further,
    }


def _find(config: Any, names: tuple[str, ...]) -> str | int | float | None:
    """The first plain value under one of the names, outermost first; a list of one counts as its
    item.
    """
    level = [config]
    for _ in range(_CONFIG_DEPTH):
        dictionaries = [d for d in level if isinstance(d, dict)]
        for name in names:
            for dictionary in dictionaries:
                value = dictionary.get(name)
                if isinstance(value, list) and len(value) == 1:
                    value = value[0]
                if isinstance(value, str | int | float) and not isinstance(value, bool):
                    return value
        level = [value for d in dictionaries for value in d.values()]
    return None


KINDS = {
    "v1/chat/completions": "chat",
    "v1/completions": "completions",
    "v1/responses": "responses",
}
"""Our kind of endpoint by the end of the path that GenAI-Perf writes; others are taken for chat
where they look like it."""


def is_genai_perf(document: Any) -> bool:
    """Whether a parsed file is GenAI-Perf's raw export."""
    return (
        isinstance(document, dict)
        and isinstance(document.get("experiments"), list)
        and "service_kind" in document
    )


def genai_perf_runs(path: Path, document: dict[str, Any], reading: Reading) -> list[ImportedRun]:
    """One run for each experiment of the file. Raises InputError: a service that is not OpenAI's
    API, or a request that is damaged.
    """
    if document["service_kind"] != "openai":
        raise InputError(
            f"{path}: holds requests to '{document['service_kind']}'; only those to OpenAI's API"
            " are read"
        )
    kind = next(
        (
            ours
            for theirs, ours in KINDS.items()
            if str(document.get("endpoint") or "").endswith(theirs)
        ),
        "chat",
    )
    runs = []
    for at, experiment in enumerate(document["experiments"], start=1):
        where = f"{path}, experiment {at}"
        try:
            load, requests = experiment["experiment"], experiment["requests"]
            parsed_requests = [
                _request(entry, kind, reading, f"{where}, request {n}")
                for n, entry in enumerate(requests, start=1)
            ]
            value = float(load["value"])
            clients, rate = (int(value), 0.0) if load["mode"] == "concurrency" else (0, value)
            model = next((name for _, name in parsed_requests if name), "")
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"{where}: is not as GenAI-Perf writes it ({' '.join(str(error).split())[:80]})"
            ) from None
        sent = sorted(
            (request for request, _ in parsed_requests), key=lambda request: request.sent_ns
        )
        runs.append(
            ImportedRun(
                tool="genai-perf", model=model, concurrency=clients, rate=rate, requests=tuple(sent)
            )
        )
    return runs


def _request(
    entry: dict[str, Any], kind: str, reading: Reading, where: str
) -> tuple[ImportedRequest, str]:
    """A request, and the model that it named."""
    payload = json.loads(entry["request_inputs"]["payload"])
    sent = round(finite_number(entry["timestamp"], f"{where}, timestamp"))
    model = str(payload.get("model") or "")
    stamps, outputs = entry["response_timestamps"], entry["response_outputs"]
    responses = [
        (stamp, str(output["response"]).encode("utf-8", "replace"))
        for stamp, output in zip(stamps, outputs, strict=True)
    ]
    answer = reading.answer(kind, bool(payload.get("stream")), responses)
    if answer.error or not answer.moments:
        why = " ".join((answer.error or "no output").split())[:60] or "failed"
        return (
            ImportedRequest(due_ns=sent, sent_ns=sent, events_ns=(), isl=0, osl=0, outcome=why),
            model,
        )
    isl, osl, count = answer.prompt, answer.tokens, reading.count
    if isl < 0:
        isl = count(_prompt(payload)) if count is not None else 0
    if osl < 0:
        osl = count(answer.text) if count is not None else len(answer.moments)
    return (
        ImportedRequest(
            due_ns=sent, sent_ns=sent, events_ns=tuple(answer.moments), isl=isl, osl=osl
        ),
        model,
    )


def _prompt(payload: dict[str, Any]) -> str:
    """The text of a request's prompt: GenAI-Perf joins the messages with blanks before it
    counts.
    """
    if isinstance(payload.get("messages"), list):
        return " ".join(str(message.get("content", "")) for message in payload["messages"])
    return str(payload.get("prompt", payload.get("input", "")))


_CSV = ("avg", "min", "max", "p99", "p95", "p90", "p75", "p50", "p25", "p10", "p5", "p1")
_NAMES = {
    "time_to_first_token": "Time To First Token (ms)",
    "time_to_second_token": "Time To Second Token (ms)",
    "request_latency": "Request Latency (ms)",
    "inter_token_latency": "Inter Token Latency (ms)",
    "output_token_throughput_per_user": "Output Token Throughput Per User (tokens/sec/user)",
    "output_sequence_length": "Output Sequence Length (tokens)",
    "input_sequence_length": "Input Sequence Length (tokens)",
}


def metrics(run: FinishedRun, *, counted: bool = False) -> dict[str, Any]:
    """Every metric over the completed requests, latencies from the moment of sending."""
    import numpy as np

    second = (
        np.array(
            [run.tokens(row)[1] - run.tokens(row)[0] for row in run.rows if run.lengths[row] > 1]
        )
        / 1e6
    )
    decode = run.decode_ms
    per_user = 1e3 / decode[decode > 0]
    return {
        "request_throughput": {"unit": "requests/sec", "avg": len(run.rows) / run.seconds},
        "request_latency": statistics(run.latency_ms, "ms", counted=counted),
        "request_count": {
            "unit": "count" if not counted else "requests",
            "avg": float(len(run.rows)),
        },
        "time_to_first_token": statistics(run.ttft_ms, "ms", counted=counted),
        "time_to_second_token": statistics(second, "ms", counted=counted),
        "inter_token_latency": statistics(decode, "ms", counted=counted),
        "output_token_throughput": {
            "unit": "tokens/sec",
            "avg": float(run.osl.sum()) / run.seconds,
        },
        "output_token_throughput_per_user": statistics(
            per_user, "tokens/sec/user", counted=counted
        ),
        "output_sequence_length": statistics(run.osl, "tokens", counted=counted),
        "input_sequence_length": statistics(run.isl, "tokens", counted=counted),
    }


def write_genai_perf(run: FinishedRun, folder: Path) -> list[Path]:
    """Write both files; their paths."""
    run_metrics = metrics(run)
    load = run.run["load"]
    stimulus = (
        {"concurrency": load["concurrency"]}
        if load["concurrency"]
        else {"request_rate": load["request_rate"]}
    )
    config = {
        "model_names": [run.run["endpoint"]["model"]],
        "endpoint": {
            "type": run.run["endpoint"]["type"],
            "streaming": run.run["endpoint"]["streaming"],
        },
        "perf_analyzer": {"stimulus": stimulus},
    }
    paths = [folder / "profile_export_genai_perf.json", folder / "profile_export_genai_perf.csv"]
    write_json(paths[0], {**run_metrics, "input_config": config})
    with paths[1].open("w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file)
        lines.writerow(["Metric", *_CSV])
        for key, name in _NAMES.items():
            lines.writerow(
                [
                    name,
                    *(f"{run_metrics[key][s]:.2f}" if s in run_metrics[key] else "" for s in _CSV),
                ]
            )
        lines.writerow([])
        lines.writerow(["Metric", "Value"])
        lines.writerow(
            [
                "Output Token Throughput (tokens/sec)",
                f"{run_metrics['output_token_throughput']['avg']:.2f}",
            ]
        )
        lines.writerow(
            ["Request Throughput (per sec)", f"{run_metrics['request_throughput']['avg']:.2f}"]
        )
        lines.writerow(["Request Count (count)", f"{run_metrics['request_count']['avg']:.2f}"])
    return paths


FORMAT = ToolFormat(
    name="genai-perf",
    tool="GenAI-Perf",
    requests=Requests(recognises=is_genai_perf, read=genai_perf_runs, file="profile_export.json"),
    write=write_genai_perf,
)
