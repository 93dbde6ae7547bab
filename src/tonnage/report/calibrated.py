"""What a calibration found, as a document: errors before and after, the factor of every term, and the verdict."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tonnage.report.blocks import items, section
from tonnage.report.document import Document, Table, Text
from tonnage.report.metric_names import METRICS
from tonnage.report.numbers import number, percent, sentence_of

if TYPE_CHECKING:
    from tonnage.calibration.calibrate import CalibrationReport


def calibrated(report: CalibrationReport, output: Path | None = None) -> Document:
    """The calibration; ``output`` is the file that it was written to, if it was."""
    aside = f"; {report.not_steady} set aside because they are not steady" if report.not_steady else ""
    c = report.calibration
    return Document(
        title=f"{c.data}: {c.preset} on {c.gpu}{aside}",
        subtitle="",
        sections=(
            section("errors", "", _errors(report)),
            section("terms", "", _terms(report)),
            section("verdict", "", items(tuple(map(sentence_of, report.verdict())), "note")),
            section("remarks", "", items(report.remarks, "note")),
            section("written", "", Text(text=f"Written to {output}") if output is not None else None),
        ),
    )


def _errors(report: CalibrationReport) -> Table:
    rows = tuple(
        (
            METRICS.get(name, name),
            *map(number, (value, report.after[name], report.left_out_before[name], report.left_out[name])),
        )
        for name, value in report.before.items()
    )
    before, after = ("transferred", "fitted") if report.own else ("shipped", "calibrated")
    header = ("MAPE %", before, after, f"left out, {before}", f"left out, {after}")
    return Table(caption="", header=header, rows=rows)


def _terms(report: CalibrationReport) -> Table:
    rows = tuple((name, _value(report, name), percent(width)) for name, width in report.shrinkage.items())
    note = "width left: how much of the prior's width the measurements leave; 100% where they say nothing of the term"
    return Table(caption="", header=("term", "value" if report.own else "factor", "width left"), rows=rows, note=note)


def _value(report: CalibrationReport, name: str) -> str:
    return report.shown(name) if report.own else f"×{report.factors[name]:.3f}"
