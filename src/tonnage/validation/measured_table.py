"""Rows of measured benchmarks as points that can be predicted: tables of our columns, and ``silicon_sample.csv``.

The latter is a file of the wheel aiconfigurator-core with columns of its own; which of its rows can be used, and with which
knobs and lengths they were measured, is said by ``fitting/silicon/dense_rows.py``. Asked for by its name alone, it is
the one of the installed wheel.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tonnage.errors import InputError
from tonnage.perf.external.aiconfigurator import PACKAGE
from tonnage.results.exchange import read_rows
from tonnage.validation.predict import Load, Point, decoding, predict, read_point

if TYPE_CHECKING:
    from tools.fit.silicon.dense_rows import Selection

SILICON_COLUMN = "silicon_ttft_ms"
"""Only ``silicon_sample.csv`` has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredTable:
    """The rows of a file.

    Attributes:
        rows: as ``results.exchange.read_rows`` gives them, or with the same keys as far as they are known.
        point: looks row ``i`` up.
        predict: the metrics of row ``i`` at a point that ``point`` gave, as ``sizing.predict.predict`` names them.
        remarks: what of the file was left out, one sentence each.
        apart: rows of the file that are of another kind, by the name of the kind; their errors are not among those of the others.
    """

    rows: list[dict[str, Any]]
    point: Callable[[int], Point]
    predict: Callable[[int, Point], dict[str, float]]
    remarks: tuple[str, ...] = ()
    apart: Mapping[str, MeasuredTable] = field(default_factory=dict)


def measured_table(table: Path | str | Sequence[Mapping[str, Any]]) -> MeasuredTable:
    """The rows of a file, or rows that were read before.

    Raises:
        InputError: the file cannot be read as such a table.
    """
    if isinstance(table, Path | str):
        silicon = _silicon_file(Path(table))
        if silicon is not None:
            return _silicon_table(silicon)
    rows = read_rows(table) if isinstance(table, Path | str) else [dict(row) for row in table]
    return MeasuredTable(rows=rows, point=lambda i: read_point(rows[i]), predict=lambda _, point: predict(point))


def _silicon_file(path: Path) -> Path | None:
    """The file, if it is ``silicon_sample.csv``; that of the installed wheel where only its name is given.

    Raises:
        InputError: only its name is given, and the wheel is not installed.
    """
    from tools.fit.silicon.dense_rows import FILE, installed_sample

    if not path.exists() and str(path) == FILE:
        found = installed_sample()
        if found is None:
            raise InputError(
                f"{FILE} comes with {PACKAGE}, which is not installed; pip install 'tonnage[aiconfigurator]', or give its path"
            )
        return found
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            header = next(csv.reader(stream), [])
    except (OSError, ValueError, csv.Error):
        return None
    return path if SILICON_COLUMN in header else None


def _silicon_table(path: Path) -> MeasuredTable:
    """Dense models first, then mixtures of experts; each by the rules of the file that fits them."""
    from tools.fit.silicon.dense_rows import SiliconRows, select
    from tools.fit.silicon.moe_rows import select_moe

    places: list[tuple[SiliconRows, int]] = []
    rows: list[dict[str, Any]] = []
    remarks = []
    for what, chosen in (("dense models", select(path)), ("mixtures of experts", select_moe(path))):
        parts = SiliconRows(chosen.rows)
        places += [(parts, i) for i in range(len(chosen.rows))]
        rows += chosen.rows
        remarks.append(_remark(path, what, chosen))

    def point(place: int) -> Point:
        parts, i = places[place]
        return parts.point(parts.rows[i])

    def load(place: int) -> Load:
        parts, i = places[place]
        return lambda step, turnaround_s: parts.workload(i, step, turnaround_s=turnaround_s)

    return MeasuredTable(
        rows=rows,
        point=point,
        predict=lambda place, at: predict(at, load(place)),
        remarks=tuple(remarks),
        apart={"decode pools": _decode_pools(path)},
    )


def _decode_pools(path: Path) -> MeasuredTable:
    """Disaggregated deployments, as far as their decode workers alone are predicted."""
    from tools.fit.silicon.decode_pools import select_decode_pools

    chosen = select_decode_pools(path)
    return MeasuredTable(
        rows=chosen.rows,
        point=lambda i: read_point(chosen.rows[i]),
        predict=lambda _, point: decoding(point),
        remarks=(_remark(path, "decode pools of disaggregated deployments, in no fit", chosen),),
    )


def _remark(path: Path, what: str, chosen: Selection) -> str:
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in chosen.left_out.items())
    return f"{path.name}, {what}: {len(chosen.rows):,} rows are used; other lines: {reasons or 'none'}."
