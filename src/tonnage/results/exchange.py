"""Measured benchmarks in and out: tables of points, and the report files of GenAI-Perf.

Definitions differ between tools (`Inter Token Latency` of GenAI-Perf and AIPerf is our TPOT: one
value per request); what a column is taken for is written in ``columns``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tonnage.errors import InputError, option
from tonnage.results.columns import LATENCIES, LATENCY_COLUMNS, STATISTICS, latency_column, shown
from tonnage.results.importers.genai_perf import find_reports, is_report, read_report
from tonnage.results.points import MeasuredPoint
from tonnage.results.table import Line, Table, read_table

LOADS = ("batch", "concurrency", "request_rate")
ROW_MEASURES = (*LATENCY_COLUMNS, "requests_s", "output_tok_s", "peak_gpu_memory_gb")
NEAR = 0.05
"""A measured mean length this near to the nominal one that was asked for counts as it."""

_REQUIRED = ("model", "gpu", "precision", "tp", "isl", "osl")


def read_rows(path: Path | str) -> list[dict[str, Any]]:
    """Read a table of measured points, one dictionary per line, every key in every one of them.

    Keys and types, ``None`` where the cell is empty or the column absent:

    - ``line`` (int, in the file, from 1); ``model, gpu, precision`` (str, as written); ``tp, isl, osl`` (int): never None;
    - ``pp, ep`` (int, 1 where absent); ``engine, source`` (str or None);
    - exactly one of ``batch`` (int, static), ``concurrency`` (int, closed loop), ``request_rate`` (float, Poisson) is not None;
    - ``requests`` (int or None), ``window_s`` (float or None);
    - measured (float above 0 or None): ``ttft_ms``, ``ttft_p50_ms`` … ``ttft_p99_ms``, the same for ``itl``, ``tpot`` and
      ``e2e``; ``requests_s``, ``output_tok_s``, ``peak_gpu_memory_gb``. Where a file has a TPOT but no ITL, ``itl_ms`` is its mean TPOT
      (they are one number at a fixed output length).

    Names of models and GPUs are not looked up here. Columns that are not known are left alone.

    Raises:
        InputError: naming file, line and column, and what would be right.
    """
    table = read_table(Path(path))
    _require(table, _REQUIRED)
    if not any(load in table.headers for load in LOADS):
        raise InputError(f"{table.path}: no column says the load; it needs batch, concurrency or request_rate")
    if not any(name in table.headers for name in ROW_MEASURES):
        raise InputError(f"{table.path}: no measured column; it needs one such as ttft_ms, itl_ms, e2e_ms, requests_s or output_tok_s")
    return [_row(table, line) for line in table.lines]


def _require(table: Table, names: tuple[str, ...]) -> None:
    missing = [name for name in names if name not in table.headers]
    if missing:
        known = ", ".join(table.headers) or "none that is known"
        raise InputError(f"{table.path}: missing column{'s' if len(missing) > 1 else ''} {', '.join(missing)}; it has {known}")


def _row(table: Table, line: Line) -> dict[str, Any]:
    values = line.values
    for name in _REQUIRED:
        if name not in values:
            raise InputError(f"{table.path}, line {line.number}, column '{shown(table.headers[name])}': is empty; every line needs it")
    loads = [load for load in LOADS if load in values]
    if len(loads) != 1:
        what = " and ".join(loads) if loads else "no load"
        raise InputError(f"{table.path}, line {line.number}: has {what}; give exactly one of batch, concurrency and request_rate")
    row: dict[str, Any] = {"line": line.number}
    row.update({name: values.get(name) for name in (*_REQUIRED, *LOADS, "engine", "source", "requests", "window_s", *ROW_MEASURES)})
    row["pp"], row["ep"], row["dp"] = (values.get(name, 1) for name in ("pp", "ep", "dp"))
    if row["itl_ms"] is None:
        row["itl_ms"] = row["tpot_ms"]
    return row


def read_points(path: Path | str, given: Mapping[str, str | int] | None = None) -> list[MeasuredPoint]:
    """Read measured points: a table, one report file of GenAI-Perf or AIPerf, or a folder of their artifacts.

    What a plain column ``itl_…`` holds is taken for single gaps, what GenAI-Perf calls "inter token
    latency" for a TPOT; where a point has one of the two, the mean stands for both (they are one number at
    a fixed output length). Requests/s that were not measured follow from tokens/s at that length.

    Args:
        path: the file or folder.
        given: values for what the file does not say: any of model, gpu, precision, tp, pp, isl, osl, engine,
            concurrency. A length measured as a mean counts as the given one when within 5 %.

    Raises:
        InputError: naming file, line and column, and what would be right.
    """
    path = Path(path)
    known = dict(given or {})
    if path.is_dir():
        return [_report_point(report, known) for report in find_reports(path)]
    if is_report(path):
        return [_report_point(path, known)]
    table = read_table(path)
    if not any(name in table.headers for name in ("requests_s", "output_tok_s")):
        raise InputError(f"{path}: missing column requests_s; sizing from measurements needs the requests per second of each point")
    return [_point(line.values, table.soft, known, f"{path}, line {line.number}") for line in table.lines]


def _report_point(path: Path, given: dict[str, str | int]) -> MeasuredPoint:
    return _point(read_report(path).values, frozenset(("isl", "osl")), given, str(path))


def _point(values: Mapping[str, str | int | float], soft: frozenset[str], given: Mapping[str, str | int], where: str) -> MeasuredPoint:
    merged: dict[str, Any] = {**given, **values}
    for name in soft & given.keys() & values.keys():
        if abs(merged[name] - int(given[name])) <= NEAR * int(given[name]):
            merged[name] = given[name]
    for name in _REQUIRED:
        if name not in merged:
            raise InputError(f"{where}: does not say the {name}; add a column {name}, or give {option(name)}")
    if "concurrency" not in merged and "request_rate" not in merged:
        raise InputError(f"{where}: has no load; add a column concurrency (clients of the closed loop) or request_rate")
    if "concurrency" in values and "request_rate" in values:
        raise InputError(f"{where}: has concurrency and request_rate; give exactly one of them")
    latencies = _latencies(values)
    requests_s = merged.get("requests_s")
    tokens_s = merged.get("output_tok_s")
    return MeasuredPoint(
        model=str(merged["model"]),
        gpu=str(merged["gpu"]),
        precision=str(merged["precision"]).lower(),
        engine=str(merged.get("engine", "not stated")),
        tp=merged["tp"],
        pp=merged.get("pp", 1),
        isl=merged["isl"],
        osl=merged["osl"],
        concurrency=None if "request_rate" in values else merged.get("concurrency"),
        request_rate=merged.get("request_rate"),
        latencies_ms=latencies,
        requests_s=requests_s if requests_s is not None or tokens_s is None else tokens_s / merged["osl"],
        output_tok_s=tokens_s,
        source=str(merged.get("source", where)),
    )


def _latencies(values: Mapping[str, str | int | float]) -> dict[str, dict[str, float]]:
    """What was measured, by metric and statistic; one of ITL and TPOT lends the other its mean."""
    measured = {m: {s: float(values[c]) for s in STATISTICS if (c := latency_column(m, s)) in values} for m in LATENCIES}
    for one, other in (("itl", "tpot"), ("tpot", "itl")):
        if not measured[one] and "mean" in measured[other]:
            measured[one] = {"mean": measured[other]["mean"]}
    return measured
