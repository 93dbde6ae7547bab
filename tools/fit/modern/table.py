"""``agg.csv.gz`` as a measured table that can be scored."""

from __future__ import annotations

from pathlib import Path

from tonnage.evidence.predict import Load, MeasuredTable, Point, predict
from tools.fit.modern.rows import ModernRows, select_modern


def modern_table(path: Path) -> MeasuredTable:
    """The usable points of the file.

    Raises:
        InputError: it cannot be read, or has other columns.
    """
    chosen = select_modern(path)
    parts = ModernRows(chosen.rows)

    def point(place: int) -> Point:
        return parts.point(parts.rows[place])

    def load(place: int) -> Load:
        return lambda step, turnaround_s: parts.workload(place, step, turnaround_s=turnaround_s)

    reasons = ", ".join(f"{count:,} {reason}" for reason, count in chosen.left_out.items())
    classes = ", ".join(f"{count:,} {evidence}" for evidence, count in chosen.evidence.items())
    by_evidence = f" By evidence: {classes}." if classes else ""
    return MeasuredTable(
        rows=chosen.rows,
        point=point,
        predict=lambda place, at: predict(at, load(place)),
        remarks=(
            (
                f"{path.name}: {len(chosen.rows):,} points are used; other lines:"
                f" {reasons or 'none'}.{by_evidence}"
            ),
        ),
    )
