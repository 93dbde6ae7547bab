"""Reads a CSV of measurements into checked cells; every error names the file, the line and the column."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tonnage.csv_file import csv_rows, read_text
from tonnage.errors import InputError
from tonnage.results.columns import Column, find_column, shown

MAX_COUNT = 10**9
_NUMBER = re.compile(r"^[+-]?(?:(?:\d+|\d{1,3}(?:,\d{3})+)(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,4})?$", re.ASCII)


def parse_number(text: str, where: str) -> float:
    """A finite number, with or without thousands separators.

    Raises:
        InputError: anything else, NaN and infinity included.
    """
    if not _NUMBER.match(text.strip()):
        raise InputError(f"{where}: '{shown(text)}' is not a number; write digits such as 12.5, or leave the cell empty")
    value = float(text.replace(",", ""))
    if not math.isfinite(value):
        raise InputError(f"{where}: '{shown(text)}' is not finite; write a number, or leave the cell empty")
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of a table: its number in the file, counted from 1, and its values by column name."""

    number: int
    values: dict[str, str | int | float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The lines of a file whose headers are known.

    Attributes:
        path: the file, for messages.
        headers: the file's own header of each canonical column.
        soft: columns that hold a measured mean where the nominal value is absent.
        lines: values by canonical name; an empty cell is absent. Latencies are in milliseconds.
    """

    path: Path
    headers: dict[str, str]
    soft: frozenset[str]
    lines: tuple[Line, ...]


def measured_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Line numbers and cells of a CSV of measurements.

    Raises:
        InputError: the file cannot be read, or is empty.
    """
    return csv_rows(filled_text(path), str(path))


def filled_text(path: Path) -> str:
    """The text of a file of measurements, which is not empty.

    Raises:
        InputError: the file cannot be read, or is empty.
    """
    text = read_text(path)
    if not text.strip():
        raise InputError(f"{path}: is empty; it needs a header line and one line per measured point")
    return text


def read_table(path: Path) -> Table:
    """Read a table of measurements with one header line.

    Raises:
        InputError: see the module; the message is one line.
    """
    rows = measured_rows(path)
    number, header = next(rows, (1, []))
    if not header:
        raise InputError(f"{path}: has no header; its first line must name the columns")
    columns = _columns(path, number, header)
    lines = []
    for number, row in rows:
        if len(row) != len(header):
            raise InputError(f"{path}, line {number}: {len(row)} cells, but the header has {len(header)}; every line needs the same number")
        lines.append(Line(number=number, values=_values(path, number, row, header, columns)))
    if not lines:
        raise InputError(f"{path}: has a header but no line below it; it needs one line per measured point")
    headers = {c.name: header[i] for i, c in columns.items()}
    return Table(path=path, headers=headers, soft=frozenset(c.name for c in columns.values() if c.soft), lines=tuple(lines))


def _columns(path: Path, number: int, header: list[str]) -> dict[int, Column]:
    """Known columns by position; a soft one gives way to its canonical name."""
    found: dict[str, tuple[int, Column]] = {}
    seen: dict[str, int] = {}
    for index, name in enumerate(header):
        if name.strip() and seen.setdefault(name.strip().lower(), index) != index:
            raise InputError(f"{path}, line {number}: the column '{shown(name)}' stands twice; give each column its own name")
        try:
            column = find_column(name)
        except InputError as error:
            raise InputError(f"{path}, line {number}: {error}") from None
        if column is None:
            continue
        earlier = found.get(column.name)
        if earlier and earlier[1].soft == column.soft:
            both = f"'{shown(header[earlier[0]])}' and '{shown(name)}'"
            raise InputError(f"{path}, line {number}: the columns {both} both mean {column.name}; keep one of them")
        if earlier is None or earlier[1].soft:
            found[column.name] = (index, column)
    return dict(found.values())


def _values(path: Path, number: int, row: list[str], header: list[str], columns: dict[int, Column]) -> dict[str, str | int | float]:
    values: dict[str, str | int | float] = {}
    for index, column in columns.items():
        cell = row[index].strip()
        if not cell:
            continue
        if column.kind == "text":
            values[column.name] = cell
            continue
        where = f"{path}, line {number}, column '{shown(header[index])}'"
        value = parse_number(cell, where)
        if column.kind == "count":
            values[column.name] = checked_count(value, where, rounded=column.soft)
        else:
            values[column.name] = checked_measure(value * column.scale, where)
    return values


def checked_count(value: float, where: str, *, rounded: bool = False) -> int:
    """A whole number of at least 1.

    Raises:
        InputError: below 1, above 10⁹, or not whole (unless it is to be rounded, as a measured mean).
    """
    whole = round(value)
    if not 1 <= whole <= MAX_COUNT or value < 0.5:
        raise InputError(f"{where}: {value:g} is out of range; write a whole number from 1 to {MAX_COUNT:,}")
    if whole != value and not rounded:
        raise InputError(f"{where}: {value:g} is not whole; write a whole number from 1")
    return whole


def checked_measure(value: float, where: str) -> float:
    """A positive measured number.

    Raises:
        InputError: zero, negative, or no longer finite in its unit.
    """
    if not value > 0 or not math.isfinite(value):
        raise InputError(f"{where}: {value:g} is not a measurement; write a number above 0, or leave the cell empty if it was not measured")
    return value
