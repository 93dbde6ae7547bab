"""What a tool's files look like: how they are recognised, the points and requests that they hold,
and how a run is written as one.

A tool is a module of this folder with a ``FORMAT``; no other file names it. ``size --benchmarks``,
``score`` and ``calibrate`` read its points, ``import`` and ``--trace`` its requests, and ``bench
--export`` writes its files.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import itertools
import json
import pkgutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from os.path import isdir
from pathlib import Path
from typing import Any

from tonnage.csv_file import column_names, csv_rows, read_text
from tonnage.errors import InputError, UnknownName
from tonnage.formats.finished_run import FinishedRun, read_finished
from tonnage.formats.table import shown

MAX_BYTES = 4_000_000_000  # Size of a file with single requests; a larger one is refused

Point = tuple[str, Mapping[str, str | int | float]]
"""Where a measured point is, for messages, and what it says by canonical column name
(``table``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedRequest:
    """One request of another tool's file, before it becomes a row of the record; times in
    nanoseconds of any one clock.
    """

    due_ns: int  # when it was due; the moment of sending where the tool keeps no schedule
    sent_ns: int  # when it was sent
    # when each event with output came; of a tool that keeps no single events the first and the last
    events_ns: tuple[int, ...]
    # isl, osl: tokens
    isl: int
    osl: int
    outcome: str = ""  # "" where it completed, "cancelled", or why it failed
    single: bool = True  # whether every event is there, so that there are gaps between tokens
    # whether the first event is the first token; where not, there are no TTFT and no TPOT
    streamed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedRun:
    """The run that a file describes."""

    tool: str  # who wrote it
    model: str  # the model's name; "" where it does not say
    # concurrency, rate: the load; 0 where it does not say
    concurrency: int
    rate: float
    requests: tuple[ImportedRequest, ...]  # every request that was sent, in the order of sending
    # lines of the file that are no requests, by what they lack
    left_out: Counter[str] = field(default_factory=Counter)
    remarks: list[str] = field(default_factory=list)  # how the file was read, a sentence each


@dataclass(slots=True)
class Answer:
    """What the responses to one request hold together, read by the client that knows the
    endpoint.
    """

    moments: list[int]  # the stamp of each response with output, in nanoseconds
    text: str = ""  # the output
    # tokens, prompt: the server's counts; -1 where it did not send any
    tokens: int = -1
    prompt: int = -1
    error: str = ""  # why the request failed; "" where it did not


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a file that holds raw responses needs to be read."""

    # reads the responses to one request, from the kind of endpoint ("chat", "completions",
    # "responses"), whether it streams, and each response with its stamp
    answer: Callable[[str, bool, Sequence[tuple[float, bytes]]], Answer]
    # counts the tokens of a text where the server did not; None where nothing can
    count: Callable[[str], int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """Files of a tool that hold single requests."""

    # whether a parsed document is one; of a file with one document a line, its first
    recognises: Callable[[Any], bool]
    # the runs of such a file, from its path, its document (its text, where it has one document a
    # line) and the reading. Raises an ``InputError`` that names the place.
    read: Callable[[Path, Any, Reading], list[ImportedRun]]
    file: str = ""  # its name in a folder of that tool; "" where it has no own name
    lines: bool = False  # whether each line is a document


@dataclass(frozen=True, slots=True, kw_only=True)
class Points:
    """JSON files of a tool that hold measured points."""

    recognises: Callable[[Any], bool]  # whether a parsed document is one
    # the points of such a document; its second argument says where the document is. Raises an
    # ``InputError`` that names the place and the key.
    read: Callable[[Any, str], Iterator[Point]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFormat:
    """The files of one tool."""

    name: str  # as ``bench --export`` and the record of an imported run spell it
    tool: str  # as messages name it
    # points, requests: what is read; None where the tool writes no such file
    points: Points | None = None
    requests: Requests | None = None
    # writes a run into a folder as the tool's files, and gives their paths; None where nothing is
    # written
    write: Callable[[FinishedRun, Path], list[Path]] | None = None


@functools.cache
def tool_formats() -> tuple[ToolFormat, ...]:
    """The format of every module of this folder that has one, in the order of their names."""
    names = sorted(
        module.name
        for module in pkgutil.iter_modules(importlib.import_module("tonnage.formats").__path__)
    )
    formats = (
        getattr(importlib.import_module(f"tonnage.formats.{name}"), "FORMAT", None)
        for name in names
    )
    return tuple(tool_format for tool_format in formats if isinstance(tool_format, ToolFormat))


def points_of(document: Any) -> Points | None:
    """What reads the points of a parsed document; None where no tool is known to write such
    ones.
    """
    return next(
        (
            tool_format.points
            for tool_format in tool_formats()
            if tool_format.points and tool_format.points.recognises(document)
        ),
        None,
    )


def holds_requests(document: Any) -> bool:
    """Whether a parsed document comes from a file with single requests; of a file with a document
    in each line, the first is looked at.
    """
    return any(
        tool_format.requests and tool_format.requests.recognises(document)
        for tool_format in tool_formats()
    )


def request_file(folder: Path) -> Path | None:
    """The file with single requests in a folder of artifacts; None where there is none."""
    names = (
        tool_format.requests.file
        for tool_format in tool_formats()
        if tool_format.requests and tool_format.requests.file
    )
    return next((folder / name for name in names if (folder / name).is_file()), None)


def read_requests(path: Path, reading: Reading) -> list[ImportedRun]:
    """The runs of a file with single requests. Raises InputError: none of these, or damaged; one
    line says where.
    """
    source = (request_file(path) or path) if isdir(path) else path
    text = read_text(source, give="a file with single requests", most_bytes=MAX_BYTES)
    if source.suffix.lower() == ".csv":
        text = csv_lines(text, str(source))
    return _runs(source, text, lines=source.suffix.lower() in (".jsonl", ".csv"), reading=reading)


def csv_lines(text: str, place: str) -> str:
    """The rows of a CSV as a JSON object in each line."""
    rows = csv_rows(text, place)
    _, header = next(rows, (0, []))
    column_names(header, place)
    return "\n".join(
        json.dumps({name: cell for name, cell in zip(header, row, strict=False) if cell})
        for _, row in rows
    )


def _runs(source: Path, text: str, *, lines: bool, reading: Reading) -> list[ImportedRun]:
    """The runs in the text of such a file."""
    document = first_document(text)
    if (rows := listed_rows(document)) is not None:
        text, document = "\n".join(map(json.dumps, rows)), rows[0]
    readers = [
        (tool_format.tool, tool_format.requests)
        for tool_format in tool_formats()
        if tool_format.requests
    ]
    reader = next((requests for _, requests in readers if requests.recognises(document)), None)
    # which of its lines is damaged, a reader of lines says
    if reader is None and lines and (document is None or "metadata" in document):
        reader = next(requests for _, requests in readers if requests.lines)
    if reader is None:
        raise InputError(f"{source}: {not_read(document, requests=True)}")
    with as_written(str(source)):
        if reader.lines:
            runs = reader.read(source, text, reading)
        else:
            runs = [
                run
                for part in _documents(text, document)
                for run in reader.read(source, part, reading)
            ]
    if not all(run.requests for run in runs):
        raise InputError(f"{source}: holds no request; give a run that sent something")
    return runs


@contextlib.contextmanager
def as_written(where: str) -> Iterator[None]:
    """Refuse a document that has something in place of what its tool writes there, which its reader
    stumbles over. Raises InputError.
    """
    try:
        yield
    except (TypeError, KeyError, ValueError, AttributeError, IndexError, OverflowError) as error:
        why = " ".join(f"{type(error).__name__} {error}".split())[:80]
        raise InputError(
            f"{where}: is not as the tool writes it ({why}); give the file as the tool wrote it"
        ) from None


def _documents(text: str, first: Any) -> list[Any]:
    """All documents of a text whose first one is known: one in each line, or one in all."""
    try:
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    except (ValueError, RecursionError):
        return [first]


def not_read(document: Any, *, requests: bool = False) -> str:
    """Why a document is not read, and what to give: the tool that wrote it, where its keys tell,
    and what of it is missing.
    """
    if document is None:
        return "is not JSON; give the file as the tool wrote it"
    parts = [
        (tool_format.tool, tool_format.requests if requests else tool_format.points)
        for tool_format in tool_formats()
    ]
    tools = ", ".join(tool for tool, part in parts if part)
    tool = next(
        (
            tool_format.tool
            for tool_format in tool_formats()
            if any(
                part and part.recognises(document)
                for part in (tool_format.points, tool_format.requests)
            )
        ),
        "",
    )
    if tool:
        missing = (
            "no single requests"
            if requests
            else "single requests and no measured points: run tonnage import on it first"
        )
        return (
            f"recognised as {tool}, with {missing};"
            f" {'save it with all of them, or ' if requests else ''}give one of {tools}"
        )
    keys = ", ".join(map(shown, [*document][:5])) if isinstance(document, dict) else ""
    what = "no file with single requests" if requests else "not a known file"
    return f"{what}{f' (its keys are {keys})' if keys else ''}; give one of {tools}"


def first_document(text: str) -> Any:
    """The JSON value of a text, or of its first line that is not empty; None where neither is
    JSON.
    """
    first = next((line for line in text.splitlines() if line.strip()), "")
    for part in (first, text):
        try:
            return json.loads(part)
        except (ValueError, RecursionError):
            continue
    return None


def listed_rows(document: Any) -> list[Any] | None:
    """The rows of a document that is a list, or has one under ``data``, as the answers of APIs do;
    None where it is neither.
    """
    rows = document.get("data") if isinstance(document, dict) and len(document) <= 3 else document
    return rows if isinstance(rows, list) and rows and isinstance(rows[0], dict) else None


def check_export(name: str) -> str:
    """The name of a format that runs are written in. Raises UnknownName: no format of that name."""
    names = [tool_format.name for tool_format in tool_formats() if tool_format.write]
    if name not in names:
        raise UnknownName("export", name, names)
    return name


def export(directory: Path, name: str) -> list[Path]:
    """Write a run folder's export into ``export-NAME`` inside it; the files that were written.

    Raises UnknownName: no format of that name; InputError: a folder without the moments of single
    tokens.
    """
    write = next(
        tool_format.write
        for tool_format in tool_formats()
        if tool_format.name == check_export(name)
    )
    target = directory / f"export-{name}"
    finished = read_finished(directory)
    target.mkdir(exist_ok=True)
    return write(finished, target) if write else []


def moments(start_ns: int, first: float, gaps: list[float], scale: float) -> tuple[int, ...]:
    """The moment of each event, from the first one and the gaps after it; ``scale`` is nanoseconds
    per unit of these.
    """
    return tuple(start_ns + round(after * scale) for after in itertools.accumulate([first, *gaps]))


def finite_number(value: Any, where: str) -> float:
    """A finite number that is not below 0. Raises InputError: anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e300:
        raise InputError(
            f"{where}: '{shown(str(value))}' is not a number from 0; give the file as the tool"
            " wrote it"
        )
    return float(value)
