"""Reads a CSV of measurements into checked cells; every error names the file, the line and the
column.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Literal

from tonnage.csv_file import csv_rows, read_text
from tonnage.errors import InputError
from tonnage.spec.lengths import parse_lengths

# Knows the column names that people and tools give to measured benchmarks, and what each of them
# means. A header is read as a quantity, a statistic and a unit in any order and spelling:
# ``ttft_p95_ms``, "Time To First Token (ms) p95" and "p95 TTFT [s]" name one column. A latency
# without a unit is refused, a name that is not known here is left alone. Sources: the shared tables
# of this project; GenAI-Perf 0.0.16 and AIPerf 0.13 report files.


Kind = Literal["text", "count", "measure", "share"]

TEXTS = ("model", "gpu", "precision", "engine", "source", "eager", "ramp_up_strategy")
KNOBS = {
    "max_batch_size": "max_batch_size",
    "max_num_tokens": "max_num_tokens",
    "memory_share": "kv_fraction",
    "graph_tokens": "graph_tokens",
}
"""Columns for what was set on the engine, and the knob that each sets."""
COUNTS = (
    *("tp", "pp", "ep", "dp", "isl", "osl", "batch", "concurrency", "requests"),
    *("max_batch_size", "max_num_tokens", "graph_tokens"),
)
LENGTHS = ("isl", "osl")
DRAWN = {name: f"{name}_drawn" for name in LENGTHS}
"""Where a length that varies between requests is kept as it was written; the column itself has its
mean."""

# Lengths whose standard deviation is less than this share of their mean count as equal
VARIES = 0.01

CACHED = "cached_share"  # Share of every prompt that the engine found in its prefix cache
INFINITE = ("inf", "infinity")  # As a rate: all requests at once; as a burstiness: a constant rate

# Lengths are uniform from this share of the stated one up to it, as InferenceX and SGLang's
# bench_serving draw them
RATIO = "range_ratio"

SENT, FAILED, REFUSED, REMARK = "sent", "failed", "refused", "remark"
"""What a reader says of a point next to its columns: how many requests were sent and failed, why
its load is not simulated, and what a user must know of it."""

LATENCIES = ("ttft", "itl", "tpot", "e2e")
STATISTICS = ("mean", "p50", "p90", "p95", "p99")


def shown(text: str) -> str:
    """A name or cell of a file as it is in a message: one line, printable, at most 40
    characters.
    """
    line = "".join(
        c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in " ".join(text.split())
    )
    return line if len(line) <= 40 else line[:39] + "…"


def latency_column(metric: str, statistic: str) -> str:
    """The canonical column of a latency: ``ttft_ms`` for the mean, ``ttft_p95_ms`` for a
    percentile.
    """
    return f"{metric}_ms" if statistic == "mean" else f"{metric}_{statistic}_ms"


LATENCY_COLUMNS = tuple(latency_column(m, s) for m in LATENCIES for s in STATISTICS)
MEASURES = (
    "request_rate",
    "burstiness",
    "window_s",
    *LATENCY_COLUMNS,
    "requests_s",
    "output_tok_s",
    "peak_gpu_memory_gb",
    "joules_per_token",
)


def _spelled(**names: tuple[str, ...]) -> dict[str, str]:
    """The name by each of its spellings."""
    return {spelling: name for name, spellings in names.items() for spelling in spellings}


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """What a header means."""

    name: str  # canonical name, one of ``TEXTS``, ``COUNTS`` or ``MEASURES``, or ``RATIO``
    scale: float = 1.0  # factor from the file's unit to the canonical one
    # whether it gives way to a column that carries the canonical name: a measured mean length where
    # the nominal one is absent
    soft: bool = False

    @property
    def kind(self) -> Kind:
        """Whether its cells are text, whole numbers, measured numbers, or a share of at most 1."""
        if self.name in TEXTS:
            return "text"
        if self.name in SHARES:
            return "share"
        return "count" if self.name in COUNTS else "measure"


SHARES = (RATIO, CACHED, "memory_share")

_PLAIN = {
    name.replace("_", " "): name for name in (*TEXTS, *COUNTS, *MEASURES, *SHARES)
} | _spelled(
    model=("model name", "model id"),
    gpu=("gpu type", "gpu name", "hardware"),
    precision=("data type", "dtype", "quantization"),
    tp=("tensor parallelism", "tensor parallel", "tensor parallel size", "tp size"),
    pp=("pipeline parallelism", "pp size"),
    ep=("expert parallelism", "ep size"),
    dp=("attention data parallelism", "attention dp", "attention dp size"),
    isl=("input length", "input len", "input tokens"),
    osl=("output length", "output len", "output tokens"),
    batch=("batch size",),
    concurrency=("max concurrency", "concurrent requests", "concurrency level", "clients"),
    requests=("request count", "num requests", "num prompts"),
    request_rate=("rate",),
    engine=("backend",),
    max_batch_size=("slots", "max num seqs", "max running requests"),
    max_num_tokens=("token budget", "max num batched tokens", "chunked prefill size"),
    graph_tokens=("graph size", "max cudagraph capture size", "cuda graph max bs"),
    memory_share=(
        "gpu memory utilization",
        "mem fraction static",
        "free gpu memory fraction",
        "kv cache free gpu mem fraction",
    ),
    eager=("enforce eager", "disable cuda graph"),
    cached_share=("cache hit rate", "prefix cache hit rate", "cached"),
    ramp_up_strategy=("ramp up",),
    range_ratio=("random range ratio",),
)
_SOFT = {"input sequence length": "isl", "output sequence length": "osl"}
_LATENCY = _spelled(
    ttft=("ttft", "time to first token", "first token latency", "ftl"),
    itl=("itl", "inter chunk latency"),
    tpot=("inter token latency", "intertoken latency", "tpot", "time per output token"),
    e2e=(
        "e2e",
        "e2e latency",
        "e2el",
        "end to end latency",
        "request latency",
        "time to last token",
        "ttlt",
    ),
)
_RATE = _spelled(
    requests_s=(
        *(
            "request throughput",
            "requests",
            "requests per second",
            "requests per sec",
            "requests/s",
            "requests/sec",
            "req/s",
            "rps",
        ),
        *(
            "requests/s per instance",
            "requests per second per instance",
            "request throughput per instance",
        ),
    ),
    output_tok_s=(
        *(
            "output token throughput",
            "output throughput",
            "output tokens per second",
            "output tokens/s",
            "output tokens/sec",
        ),
    ),
)
_STATISTIC = {
    "avg": "mean",
    "average": "mean",
    "mean": "mean",
    "median": "p50",
    **{s: s for s in STATISTICS[1:]},
}
_OTHER_STATISTIC = re.compile(r"^(min|max|std|stddev|sum|count|p\d+)$")
_TIME_UNIT = {
    "ns": 1e-6,
    "us": 1e-3,
    "µs": 1e-3,
    "ms": 1.0,
    "msec": 1.0,
    "s": 1e3,
    "sec": 1e3,
    "seconds": 1e3,
}
_RATE_UNIT = {
    "",
    "per sec",
    "per second",
    "/s",
    "req/s",
    "requests/s",
    "requests/sec",
    "tokens/s",
    "tokens/sec",
    "tok/s",
    "s",
}
_WORD = re.compile(r"[^\W_]+(?:/[^\W_]+)?")
_UNIT = re.compile(r"[(\[]([^)\]]*)[)\]]")


def find_column(header: str) -> Column | None:
    """What a header of a measured table means, or None for a column that is not used.

    Raises InputError: a latency without a unit, or a rate in a unit other than per second.
    """
    text = header.strip().lower()
    unit = " ".join(u.strip() for u in _UNIT.findall(text))
    words = _WORD.findall(_UNIT.sub(" ", text))
    plain = " ".join(words)
    if plain in _PLAIN and unit in ("", "tokens", "count", "requests"):
        return Column(name=_PLAIN[plain])
    statistics = [w for w in words if w in _STATISTIC]
    rest = [w for w in words if w not in _STATISTIC]
    if len(statistics) > 1 or any(_OTHER_STATISTIC.match(w) for w in rest):
        return None
    statistic = _STATISTIC[statistics[0]] if statistics else "mean"
    if not unit and len(rest) > 1 and rest[-1] in _TIME_UNIT:
        unit = rest.pop()
    return _measured(header, " ".join(rest), statistic, unit)


def _measured(header: str, quantity: str, statistic: str, unit: str) -> Column | None:
    """The column of a quantity in a unit; see ``find_column``."""
    if quantity in _SOFT:
        return Column(name=_SOFT[quantity], soft=True) if statistic == "mean" else None
    if quantity in _LATENCY:
        name = latency_column(_LATENCY[quantity], statistic)
        if unit not in _TIME_UNIT:
            what = f"has the unit '{unit}'" if unit else "has no unit"
            raise InputError(
                f"column '{shown(header)}' {what}; a latency is in ms or s: name it {name}"
            )
        return Column(name=name, scale=_TIME_UNIT[unit])
    if quantity in _RATE and statistic == "mean":
        if unit not in _RATE_UNIT:
            raise InputError(
                f"column '{shown(header)}' has the unit '{unit}'; a rate is per second: name it"
                f" {_RATE[quantity]}"
            )
        return Column(name=_RATE[quantity])
    return None


MAX_COUNT = 10**9
_NUMBER = re.compile(
    r"^[+-]?(?:(?:\d+|\d{1,3}(?:,\d{3})+)(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,4})?$", re.ASCII
)


def parse_number(text: str, where: str) -> float:
    """A finite number, with or without thousands separators. Raises InputError: anything else, NaN
    and infinity included.
    """
    if not _NUMBER.match(text.strip()):
        raise InputError(
            f"{where}: '{shown(text)}' is not a number; write digits such as 12.5, or leave the"
            " cell empty"
        )
    value = float(text.replace(",", ""))
    if not math.isfinite(value):
        raise InputError(
            f"{where}: '{shown(text)}' is not finite; write a number, or leave the cell empty"
        )
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of a table: its number in the file, counted from 1, and its values by column
    name.
    """

    number: int
    values: dict[str, str | int | float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The lines of a file whose headers are known."""

    path: Path  # the file, for messages
    headers: dict[str, str]  # the file's own header of each canonical column
    soft: frozenset[str]  # columns that hold a measured mean where the nominal value is absent
    # values by canonical name; an empty cell is absent. Latencies are in milliseconds.
    lines: tuple[Line, ...]


def measured_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Line numbers and cells of a CSV of measurements. Raises InputError: the file cannot be read,
    or is empty.
    """
    return csv_rows(filled_text(path), str(path))


def filled_text(path: Path) -> str:
    """The text of a file of measurements, which is not empty. Raises InputError: the file cannot be
    read, or is empty.
    """
    text = read_text(path)
    if not text.strip():
        raise InputError(
            f"{path}: is empty; it needs a header line and one line per measured point"
        )
    return text


def read_table(path: Path) -> Table:
    """Read a table of measurements with one header line. Raises InputError: see the module; the
    message is one line.
    """
    rows = measured_rows(path)
    number, header = next(rows, (1, []))
    if not header:
        raise InputError(f"{path}: has no header; its first line must name the columns")
    columns = _columns(path, number, header)
    lines = []
    for number, row in rows:
        if len(row) != len(header):
            raise InputError(
                f"{path}, line {number}: {len(row)} cells, but the header has {len(header)}; every"
                " line needs the same number"
            )
        lines.append(Line(number=number, values=_values(path, number, row, header, columns)))
    if not lines:
        raise InputError(
            f"{path}: has a header but no line below it; it needs one line per measured point"
        )
    headers = {c.name: header[i] for i, c in columns.items()}
    return Table(
        path=path,
        headers=headers,
        soft=frozenset(c.name for c in columns.values() if c.soft),
        lines=tuple(lines),
    )


def _columns(path: Path, number: int, header: list[str]) -> dict[int, Column]:
    """Known columns by position; a soft one gives way to its canonical name."""
    columns: dict[str, tuple[int, Column]] = {}
    positions: dict[str, int] = {}
    for index, name in enumerate(header):
        if name.strip() and positions.setdefault(name.strip().lower(), index) != index:
            raise InputError(
                f"{path}, line {number}: the column '{shown(name)}' stands twice; give each column"
                " its own name"
            )
        try:
            column = find_column(name)
        except InputError as error:
            raise InputError(f"{path}, line {number}: {error}") from None
        if column is None:
            continue
        earlier = columns.get(column.name)
        if earlier and earlier[1].soft == column.soft:
            both = f"'{shown(header[earlier[0]])}' and '{shown(name)}'"
            raise InputError(
                f"{path}, line {number}: the columns {both} both mean {column.name}; keep one of"
                " them"
            )
        if earlier is None or earlier[1].soft:
            columns[column.name] = (index, column)
    return dict(columns.values())


def _values(
    path: Path, number: int, row: list[str], header: list[str], columns: dict[int, Column]
) -> dict[str, str | int | float]:
    values: dict[str, str | int | float] = {}
    for index, column in columns.items():
        cell = row[index].strip()
        if not cell:
            continue
        if column.kind == "text":
            values[column.name] = cell
            continue
        where = f"{path}, line {number}, column '{shown(header[index])}'"
        if column.name in ("request_rate", "burstiness") and cell.lower() in INFINITE:
            values[column.name] = math.inf
            continue
        if column.name in LENGTHS and not _NUMBER.match(cell):
            values |= _drawn(column.name, cell, where)
            continue
        value = parse_number(cell, where)
        if column.kind == "share":
            if not (0 if column.name in (RATIO, CACHED) else 1e-9) <= value <= 1:
                raise InputError(
                    f"{where}: {value:g} is no share; write a number from 0 to 1; a {RATIO} of 1 is"
                    " of equal lengths"
                )
            values[column.name] = value
        elif column.kind == "count":
            values[column.name] = checked_count(value, where, rounded=column.soft)
        else:
            values[column.name] = checked_measure(value * column.scale, where)
    return values


def _drawn(name: str, cell: str, where: str) -> dict[str, str | int]:
    """A length in a form of ``parse_lengths``: its mean, and how it varies. Raises InputError: not
    one of these forms.
    """
    lengths = parse_lengths(cell, where)
    values: dict[str, str | int] = {name: max(round(lengths.mean), 1)}
    return values if lengths.kind == "fixed" and not lengths.exact else values | {DRAWN[name]: cell}


def checked_count(value: float, where: str, *, rounded: bool = False) -> int:
    """A whole number of at least 1.

    Raises InputError: below 1, above 10⁹, or not whole (unless it is to be rounded, as a measured
    mean).
    """
    whole = round(value)
    if not 1 <= whole <= MAX_COUNT or value < 0.5:
        raise InputError(
            f"{where}: {value:g} is out of range; write a whole number from 1 to {MAX_COUNT:,}"
        )
    if whole != value and not rounded:
        raise InputError(f"{where}: {value:g} is not whole; write a whole number from 1")
    return whole


def checked_measure(value: float, where: str) -> float:
    """A positive measured number. Raises InputError: zero, negative, or no longer finite in its
    unit.
    """
    if not value > 0 or not math.isfinite(value):
        raise InputError(
            f"{where}: {value:g} is not a measurement; write a number above 0, or leave the cell"
            " empty if it was not measured"
        )
    return value


# Reads JSON that another program wrote: the files below a folder, and values by their path; every
# error names the file and the key.


MOST_FILES = 50_000  # Most files that are looked at: some thousands of runs, or a second


def files_below(folder: Path, *patterns: str) -> list[Path]:
    """The files at any depth below a folder whose names fit one of the patterns: those of the first
    pattern, then of the next.

    Links to folders are not followed, and folders that may not be read are left out.

    Raises:
        InputError: more than ``MOST_FILES`` files are below the folder, such as those of a whole
            disk.
    """
    paths_by_pattern: dict[str, list[Path]] = {pattern: [] for pattern in patterns}
    looked = 0
    for place, folders, names in os.walk(folder):
        folders.sort()
        looked += len(names)
        if looked > MOST_FILES:
            raise InputError(
                f"{folder}: more than {MOST_FILES:,} files lie below it; give the folder that holds"
                " the runs"
            )
        for pattern in patterns:
            paths_by_pattern[pattern] += [
                Path(place, name) for name in names if fnmatch(name, pattern)
            ]
    return [path for pattern in patterns for path in sorted(paths_by_pattern[pattern])]


def load_json(path: Path, constant: Callable[[str], Any] = lambda word: None) -> Any:
    """The document of a JSON file; NaN and infinities, which such programs write for what they did
    not measure, are as ``constant`` says.

    Raises InputError: the file cannot be read, or is not JSON.
    """
    try:
        return json.loads(filled_text(path), parse_constant=constant)
    except json.JSONDecodeError as error:
        raise InputError(
            f"{path}, line {error.lineno}: not JSON ({error.msg}); give the file as the tool"
            " wrote it"
        ) from None
    except (RecursionError, ValueError):
        raise InputError(
            f"{path}: not a report (nested too deep, or a number too long); give the file as the"
            " tool wrote it"
        ) from None


def load_documents(path: Path) -> list[tuple[str, Any]]:
    """Where each document of a JSON file is, and the document: the whole file, every object of a
    list, or one in each line.

    Raises InputError: the file cannot be read, or a line is not JSON.
    """
    lines = [
        (number, line)
        for number, line in enumerate(filled_text(path).splitlines(), start=1)
        if line.strip()
    ]
    if len(lines) > 1 and lines[0][1].startswith("{") and lines[0][1].rstrip().endswith("}"):
        documents = []
        for number, line in lines:
            try:
                documents.append(
                    (f"{path}, line {number}", json.loads(line, parse_constant=lambda word: None))
                )
            except (RecursionError, ValueError):
                raise InputError(
                    f"{path}, line {number}: not JSON; give the file as the tool wrote it"
                ) from None
        return documents
    document = load_json(path)
    if (
        isinstance(document, list)
        and document
        and all(isinstance(entry, dict) for entry in document)
    ):
        return [
            (f"{path}, entry {number}", entry) for number, entry in enumerate(document, start=1)
        ]
    return [(str(path), document)]


def inside(document: Any, *keys: str) -> Any:
    """The value at the end of the keys, or None where one of them is missing."""
    for key in keys:
        document = document.get(key) if isinstance(document, dict) else None
    return document


def number_at(document: Any, where: str, *keys: str) -> float | None:
    """A finite number, or None where there is none. Raises InputError: something else is there."""
    value = inside(document, *keys)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > 1e300:
        raise InputError(
            f"{where}, {'.'.join(keys)}: {shown(json.dumps(value))} is not a number; give the file"
            " as the tool wrote it"
        )
    return float(value)


def measure_at(document: Any, where: str, *keys: str, scale: float = 1.0) -> float | None:
    """A number above 0 in its unit times ``scale``, or None where it is absent or 0: nothing was
    measured.

    Raises InputError: it is no number, or negative.
    """
    value = number_at(document, where, *keys)
    return None if not value else checked_measure(value * scale, f"{where}, {'.'.join(keys)}")


def count_at(document: Any, where: str, *keys: str, rounded: bool = False) -> int | None:
    """A whole number of at least 1, or None where there is none; a measured mean is ``rounded``.

    Raises InputError: it is something else.
    """
    value = number_at(document, where, *keys)
    return (
        None
        if value is None
        else checked_count(value, f"{where}, {'.'.join(keys)}", rounded=rounded)
    )


# Ending of our column by the benchmarks' statistic
SERVED = {"mean": "", "median": "_p50", "p90": "_p90", "p95": "_p95", "p99": "_p99"}


def with_keys(*keys: str) -> Callable[[Any], bool]:
    """Recognises a JSON object that has all these keys."""
    return lambda document: isinstance(document, dict) and document.keys() >= {*keys}


NONE_COMPLETED = "none of its requests was completed"


class NoneCompleted(InputError):
    """A run measured nothing, as none of its requests was completed; other runs of its file
    count.
    """


def completed_requests(document: Any, where: str, *keys: str) -> int:
    """How many requests of a run were completed, by the path of the number.

    Raises:
        NoneCompleted: none was.
        InputError: no number is there.
    """
    value = number_at(document, where, *keys)
    if value is None:
        raise InputError(
            f"{where}: does not say how many requests were completed; give the file as the tool"
            " wrote it"
        )
    if value == 0:
        raise NoneCompleted(f"{where}: {NONE_COMPLETED}; give a run that measured something")
    return checked_count(value, f"{where}, {'.'.join(keys)}")


def served_values(
    document: Any, where: str, latencies: Mapping[str, str], completed: int
) -> dict[str, str | int | float | None]:
    """What vLLM's and SGLang's benchmarks write alike: ``latencies`` such as ``mean_ttft_ms``,
    rates, and mean lengths of the completed.
    """
    names = {
        f"{statistic}_{theirs}_ms": f"{ours}{suffix}_ms"
        for theirs, ours in latencies.items()
        for statistic, suffix in SERVED.items()
    }
    names |= {"request_throughput": "requests_s", "output_throughput": "output_tok_s"}
    values: dict[str, str | int | float | None] = {
        ours: measure_at(document, where, theirs) for theirs, ours in names.items()
    }
    for ours, theirs in (("isl", "total_input_tokens"), ("osl", "total_output_tokens")):
        total = count_at(document, where, theirs)
        values[ours] = None if total is None else max(round(total / completed), 1)
    return values


def failures(
    completed: int, sent: int | None, failed: float | None, errors: object = None
) -> dict[str, str | int | float | None]:
    """How many requests were sent and how many failed, by the tool's count, its list of errors, or
    what was sent and did not complete.
    """
    listed = sum(bool(error) for error in errors) if isinstance(errors, list) else 0
    lost = max(round(failed or 0), listed, (sent or 0) - completed)
    return {SENT: completed + lost, FAILED: lost}


def name_at(document: Any, *keys: str) -> str | None:
    """A name at the end of the keys, as messages show it; None where there is none."""
    text = inside(document, *keys)
    return shown(text) if isinstance(text, str) and text.strip() else None
