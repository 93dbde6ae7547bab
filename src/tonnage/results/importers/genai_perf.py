"""Report files of one GenAI-Perf or AIPerf run: ``*_genai_perf.csv``, ``*_genai_perf.json`` and AIPerf's own.

A report is read into the same canonical names as a table. Their "inter token latency" is one value
per request, our TPOT. A report does not say what it ran on: GPU, precision and parallelism come
from the caller. Format: GenAI-Perf 0.0.16 and AIPerf 0.13, as their exporters write it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tonnage.errors import InputError
from tonnage.results.folder_files import files_below
from tonnage.results.table import Column, checked_count, checked_measure, filled_text, find_column, measured_rows, parse_number, shown

REPORTS = ("*_genai_perf.json", "profile_export_aiperf.json", "*_genai_perf.csv", "profile_export_aiperf.csv")
_CONCURRENCY = re.compile(r"concurrency[_-]?(\d{1,6})(?!\d)", re.IGNORECASE)
_CONFIG_DEPTH = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What one report file says, by canonical column name."""

    path: Path
    values: dict[str, str | int | float]


def is_report(path: Path) -> bool:
    """Whether the file is a report of one run, not a table of points: JSON, or CSV that begins with "Metric,"."""
    if path.suffix.lower() == ".json":
        return True
    first = next(measured_rows(path), (1, [""]))[1][0]
    return first.strip().lower() == "metric"


def find_reports(folder: Path) -> list[Path]:
    """The report of every run below a folder of artifacts, one per sub-folder, JSON before CSV.

    Raises:
        InputError: there is none.
    """
    chosen: dict[Path, Path] = {}
    for path in files_below(folder, *REPORTS):
        chosen.setdefault(path.parent, path)
    if not chosen:
        raise InputError(f"{folder}: holds no report of GenAI-Perf or AIPerf; give a folder with {' or '.join(REPORTS[:2])} below it")
    return [chosen[parent] for parent in sorted(chosen)]


def read_report(path: Path) -> Report:
    """Read one report.

    Raises:
        InputError: naming the file, the line or key, and what would be right.
    """
    cells = _json_cells(path) if path.suffix.lower() == ".json" else _csv_cells(path)
    values: dict[str, str | int | float] = {}
    for column, value, where in cells:
        if column.kind == "count":
            values[column.name] = checked_count(value, where, rounded=True)
        elif column.kind == "measure":
            values[column.name] = checked_measure(value * column.scale, where)
    if "requests_s" not in values:
        raise InputError(f"{path}: has no request throughput; give a report of GenAI-Perf or AIPerf, or a table of points")
    if path.suffix.lower() == ".json":
        values.update(_config_values(path))
    clients = _CONCURRENCY.findall(str(path))
    if clients and "concurrency" not in values and "request_rate" not in values:
        values["concurrency"] = checked_count(float(clients[-1]), f"{path}, its name")
    return Report(path=path, values=values)


def _column(path: Path, name: str, statistic: str) -> Column | None:
    try:
        return find_column(name if statistic == "value" else f"{name} {statistic}")
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _csv_cells(path: Path) -> Iterator[tuple[Column, float, str]]:
    """Sections of "Metric,avg,…" and "Metric,Value"; lines of quantities that are not known are left alone."""
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
                f"{path}, line {number}: {len(row)} cells, but its header has {len(statistics) + 1}; every line needs the same number"
            )
        for statistic, column in used:
            where = f"{path}, line {number}, column '{shown(statistic)}'"
            cell = row[statistics.index(statistic) + 1]
            if cell.strip():
                yield column, parse_number(cell, where), where


def _load(path: Path) -> dict[str, Any]:
    def refuse(word: str) -> Any:
        raise InputError(f"{path}: holds {word}, which is not a number; write the number, or leave it out")

    try:
        document = json.loads(filled_text(path), parse_constant=refuse)
    except json.JSONDecodeError as error:
        raise InputError(f"{path}, line {error.lineno}: not JSON ({error.msg}); give the file as the tool wrote it") from None
    except (RecursionError, ValueError):
        raise InputError(f"{path}: not a report (nested too deep, or a number too long); give the file as the tool wrote it") from None
    if not isinstance(document, dict):
        raise InputError(f"{path}: not a report; it must be one JSON object, as GenAI-Perf and AIPerf write it")
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
                raise InputError(f"{where}: {shown(json.dumps(value))} is not a number; give the file as the tool wrote it")
            yield column, float(value), where


def _config_values(path: Path) -> dict[str, str | int | float]:
    """Model and load from the report's own record of how it was run."""
    config = _load(path).get("input_config")
    values: dict[str, str | int | float] = {}
    config = _of_phases(config)
    model = _find(config, ("model_names", "model", "formatted_model_name"))
    if isinstance(model, str) and model.strip():
        values["model"] = shown(model)
    where = f"{path}, input_config"
    clients, rate = _find(config, ("concurrency",)), _find(config, ("request_rate",))
    if isinstance(clients, int):
        values["concurrency"] = checked_count(clients, f"{where}.concurrency")
    elif isinstance(rate, int | float):
        values["request_rate"] = checked_measure(rate, f"{where}.request_rate")
    return values


def _of_phases(config: Any) -> Any:
    """What AIPerf 0.13 writes, in the shape of its earlier versions: models as items, and the load in the phase that is profiled."""
    if not isinstance(config, dict) or not isinstance(config.get("phases"), list):
        return config
    phases = [phase for phase in config["phases"] if isinstance(phase, dict)]
    profiled = next((phase for phase in phases if phase.get("kind", phase.get("name")) == "profiling"), {})
    models = config.get("models")
    items = models.get("items") if isinstance(models, dict) else None
    named = items[0].get("name") if isinstance(items, list) and items and isinstance(items[0], dict) else None
    rate = profiled.get("request_rate", profiled.get("rate"))
    return {"model": named, "concurrency": profiled.get("concurrency"), "request_rate": rate}


def _find(config: Any, names: tuple[str, ...]) -> str | int | float | None:
    """The first plain value under one of the names, outermost first; a list of one counts as its item."""
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
