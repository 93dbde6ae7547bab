"""``silicon_sample.csv`` as a measured table that can be scored: which of its rows, and with which knobs and lengths.

Dense models come first, then mixtures of experts, each by the rules of the file that fits them; decode pools of disaggregated
deployments, of which only the time per token is predicted, stand apart.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tonnage.errors import InputError
from tonnage.perf.external.aiconfigurator import PACKAGE
from tonnage.validation.load import Load
from tonnage.validation.measured_table import MeasuredTable
from tonnage.validation.point import Point, read_point
from tonnage.validation.predict import decoding, predict
from tools.fit.silicon.decode_pools import select_decode_pools
from tools.fit.silicon.dense_rows import select
from tools.fit.silicon.moe_rows import select_moe
from tools.fit.silicon.sample import FILE, Selection, installed_sample
from tools.fit.silicon.silicon_rows import SiliconRows


def sample_file(path: Path) -> Path:
    """The file itself, or that of the installed wheel where only its name is given and no such file is here.

    Raises:
        InputError: only the name is given, and the wheel is not installed.
    """
    if path.exists() or str(path) != FILE:
        return path
    found = installed_sample()
    if found is None:
        raise InputError(f"{FILE} comes with {PACKAGE}, which is not installed; install that wheel, or give the file's path")
    return found


def silicon_table(path: Path) -> MeasuredTable:
    """The usable rows of the file.

    Raises:
        InputError: it cannot be read, or has other columns.
    """
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
    """Disaggregated deployments, as far as their decode workers alone can be predicted."""
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
