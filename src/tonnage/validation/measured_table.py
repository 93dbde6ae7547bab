"""The rows of a measured file as points that can be predicted, each with its own way to be predicted.

A plain table of our columns is read by ``results.measured_rows``. Files with columns and rules of their own are turned into a
``MeasuredTable`` by whoever knows those rules, such as ``tools/fit`` for ``silicon_sample.csv``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tonnage.errors import InputError
from tonnage.results.invalid_runs import InvalidRuns
from tonnage.results.measured_rows import read_measured
from tonnage.validation.point import Point, read_point
from tonnage.validation.predict import predict

FOREIGN = "silicon_sample.csv"
"""A measured file that many have, with columns of its own: the fit's command reads it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredTable:
    """The rows of a measured file.

    Attributes:
        rows: as ``results.measured_rows.read_measured`` gives them, or with the same keys as far as they are known.
        point: looks row ``i`` up in the catalogs.
        predict: gives the metrics of row ``i`` at a point that ``point`` gave, by the names that ``validation.predict`` uses.
        remarks: what was left out of the file, one sentence each.
        apart: rows of the file that are of another kind, by the name of that kind; their errors are not among those of the others.
    """

    rows: list[dict[str, Any]]
    point: Callable[[int], Point]
    predict: Callable[[int, Point], dict[str, float]]
    remarks: tuple[str, ...] = ()
    apart: Mapping[str, MeasuredTable] = field(default_factory=dict)


Measured = MeasuredTable | Path | str | Sequence[Mapping[str, Any]]
"""What can be scored: a table, a file or folder of measurements, or rows that were read before."""


def measured_table(measured: Measured, given: Mapping[str, str | int] | None = None, *, include_invalid: bool = False) -> MeasuredTable:
    """The table of a file or folder, or of rows that were read before; a table is returned as it is.

    Args:
        measured: what was measured.
        given: model, gpu, precision, tp, engine, isl and osl, where a file does not say them.
        include_invalid: whether run folders that their own client called INVALID count; they are left out if not, and a remark names them.

    Raises:
        InputError: the file cannot be read as measurements.
    """
    if isinstance(measured, MeasuredTable):
        return measured
    invalid = InvalidRuns(include=include_invalid)
    rows = _read(Path(measured), given, invalid) if isinstance(measured, Path | str) else [dict(row) for row in measured]
    invalid.check(rows)
    return MeasuredTable(rows=rows, point=lambda i: read_point(rows[i]), predict=lambda _, point: predict(point), remarks=invalid.sentences)


def _read(path: Path, given: Mapping[str, str | int] | None, invalid: InvalidRuns) -> list[dict[str, Any]]:
    try:
        return read_measured(path, given, invalid)
    except InputError:
        if path.name != FOREIGN:
            raise
    raise InputError(f"{path}: has columns of its own, which the fit's command knows: ./fit score {path}, in a checkout of Tonnage")
