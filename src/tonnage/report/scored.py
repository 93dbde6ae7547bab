"""How far predictions are from measurements, as a document: overall, by group, and row by row for
the worst.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tonnage.report.document import Document, Section, Table, Text, document, items, section
from tonnage.report.measured import METRIC_TITLES
from tonnage.report.numbers import ABSENT, between, counted, number, percent, sentence_of

if TYPE_CHECKING:
    from tonnage.evidence.calibrate import CalibrationReport
    from tonnage.evidence.compare import ModelScores
    from tonnage.evidence.score import ErrorOf, ScoredRow, ScoreReport


GROUPS_SHOWN = ("family", "model", "gpu", "precision", "tp", "engine", "regime", "cache")
SKIPPED_SHOWN = 10
LEGEND = (
    "MAPE is the mean of |predicted − measured| / measured, bias the mean of (predicted − measured)"
    " / measured, both in percent; inside is the share of the measured values that lie in the 80 %"
    " interval of their prediction (docs/intervals.md)."
)
MODELS_LEGEND = (
    "MAPE is the mean of |predicted − measured| / measured, bias the mean of (predicted − measured)"
    " / measured, both in percent; scheduler, memory plan and client are the same for all step"
    " models (docs/step-models.md)."
)


def scored(report: ScoreReport) -> Document:
    """The errors of the predictions of one file."""
    apart = (
        part
        for kind, part_report in report.apart.items()
        for part in _report(part_report, f"Apart: {kind}")
    )
    return document(*_report(report, ""), *apart, section("legend", "", Text(LEGEND, tone="note")))


def _report(report: ScoreReport, title: str) -> tuple[Section, ...]:
    groups = (
        _group(kind, report.groups[kind])
        for kind in GROUPS_SHOWN
        if len(report.groups.get(kind, {})) > 1
    )
    return (
        section(
            "overall",
            title,
            Text(f"{report.predicted} of {counted(report.rows, 'row')} predicted"),
            _overall(report),
        ),
        *_not_predicted(report),
        section("attained", "", *_attained(report)),
        section("groups", "", *groups),
        *_worst(report.worst),
        section("remarks", "", items(report.remarks, "note")),
    )


def _overall(report: ScoreReport) -> Table:
    kinds = [("all rows", report.overall)]
    if report.not_steady:
        kinds += [("steady rows", report.steady), ("rows that are not steady", report.not_steady)]
    within = report.steady if report.not_steady else report.overall
    rows = []
    for kind, errors in kinds:
        for metric, e in errors.items():
            inside = report.coverage.get(metric) if errors is within else None
            rows.append(
                (
                    f"{METRIC_TITLES.get(metric, metric)}, {kind}",
                    *map(number, (e.mape, e.median_ape, e.bias, inside)),
                    str(e.n),
                )
            )
    return Table(
        header=("metric", "MAPE %", "median %", "bias %", "inside %", "n"),
        rows=tuple(rows),
        spare=("median %",),
    )


def _attained(report: ScoreReport) -> Iterator[Table]:
    """Joint attainment of the rows with single requests."""
    rows = tuple(
        (
            limit_errors.limits,
            *(f"{100 * share:.3g}" for share in (limit_errors.measured, limit_errors.predicted)),
            *map(
                number,
                (
                    limit_errors.off,
                    limit_errors.inside,
                    None if limit_errors.goodput is None else limit_errors.goodput.mape,
                ),
            ),
            str(limit_errors.n),
        )
        for limit_errors in report.attained
    )
    header = (
        "attainment",
        "measured %",
        "predicted %",
        "off, points",
        "inside %",
        "goodput MAPE %",
        "n",
    )
    if rows:
        yield Table(header=header, rows=rows)


def _not_predicted(report: ScoreReport) -> tuple[Section, ...]:
    if not report.unknown and not report.skipped:
        return ()
    unknown = tuple(
        f"The {kind} '{name}' is not known: {counted(count, 'row')}."
        for kind, names in report.unknown.items()
        for name, count in names.items()
    )
    skipped = tuple(
        f"Line {skipped_row.line}: {skipped_row.reason}"
        for skipped_row in report.skipped[:SKIPPED_SHOWN]
    )
    unshown = len(report.skipped) - SKIPPED_SHOWN
    more = (
        (f"… and {counted(unshown, 'line')} more; --json prints all of them",)
        if unshown > 0
        else ()
    )
    return (section("skipped", "Not predicted", items((*unknown, *skipped, *more))),)


def _measured(errors: Iterable[Mapping[str, ErrorOf]]) -> list[str]:
    """The metrics that any of these have, in the order of the names."""
    metrics = {metric for row_errors in errors for metric in row_errors}
    return [metric for metric in METRIC_TITLES if metric in metrics]


def _group(kind: str, groups: Mapping[str, Mapping[str, ErrorOf]]) -> Table:
    metrics = _measured(groups.values())
    rows = tuple(
        (
            name,
            *(number(errors[m].mape) if m in errors else ABSENT for m in metrics),
            str(max(e.n for e in errors.values())),
        )
        for name, errors in groups.items()
    )
    return Table(
        caption=f"MAPE in % by {kind}",
        header=(kind, *(METRIC_TITLES[m] for m in metrics), "n"),
        rows=rows,
    )


def _worst(rows: tuple[ScoredRow, ...]) -> tuple[Section, ...]:
    if not rows:
        return ()
    header = ("line", "row", "metric", "measured", "predicted", "80 % interval", "error")
    table = Table(header=header, rows=tuple(map(_worst_row, rows)), spare=("80 % interval",))
    reasons = tuple(f"Line {row.line}: {row.reason}" for row in rows if row.worst_metric)
    return (section("worst", "Worst rows", table, items(reasons, "note")),)


def _worst_row(row: ScoredRow) -> tuple[str, ...]:
    metric, error = max(row.errors.items(), key=lambda item: abs(item[1]))
    load = (
        f"{row.group['load']}"
        f" {row.point.batch or row.point.concurrency or row.point.request_rate:g}"
    )
    return (
        str(row.line),
        f"{row.group['deployment']}, {row.group['lengths']}, {load}",
        METRIC_TITLES.get(metric, metric),
        number(row.measured[metric]),
        number(row.predicted[metric]),
        between(row.intervals.get(metric)),
        f"{error:+.0f} %",
    )


def scored_models(scores: ModelScores) -> Document:
    """Several step models side by side over the rows that all of them predicted, and how far they
    are apart.
    """
    apart = (
        part
        for kind, part_scores in scores.apart.items()
        for part in _models(part_scores, f"Apart: {kind}")
    )
    return document(
        *_models(scores, ""), *apart, section("legend", "", Text(MODELS_LEGEND, tone="note"))
    )


def _models(scores: ModelScores, title: str) -> tuple[Section, ...]:
    predicted = ", ".join(
        f"{name} {report.predicted} of {report.rows}" for name, report in scores.reports.items()
    )
    common = (
        _side_by_side(scores) if scores.common else Text("No row was predicted by all of them.")
    )
    blocks = (
        Text(f"Rows predicted: {predicted}"),
        common,
        _disagreement(scores) if scores.disagreement else None,
    )
    remarks = dict.fromkeys(
        (
            *scores.remarks,
            *(remark for report in scores.reports.values() for remark in report.remarks),
        )
    )
    return (
        section("errors", title, *blocks),
        *_reasons(scores),
        section("remarks", "", items(tuple(remarks), "note")),
    )


def _side_by_side(scores: ModelScores) -> Table:
    rows = []
    for metric in _measured(scores.errors.values()):
        metric_errors = [errors.get(metric) for errors in scores.errors.values()]
        cells = [
            ABSENT if e is None else f"{number(e.mape)} ({e.bias:+.1f})" for e in metric_errors
        ]
        rows.append(
            (METRIC_TITLES[metric], *cells, str(max(e.n for e in metric_errors if e is not None)))
        )
    caption = f"Errors over the {counted(scores.common, 'row')} that all of them predicted"
    return Table(caption=caption, header=("MAPE % (bias)", *scores.errors, "n"), rows=tuple(rows))


def _disagreement(scores: ModelScores) -> Table:
    metrics = [
        metric
        for metric in METRIC_TITLES
        if any(metric in disagreement for disagreement in scores.disagreement.values())
    ]
    rows = tuple(
        (name, *(number(disagreement.get(m)) for m in metrics))
        for name, disagreement in scores.disagreement.items()
    )
    header = ("models", *(METRIC_TITLES[m] for m in metrics))
    return Table(
        caption="Disagreement: mean of |second / first − 1|, in %", header=header, rows=rows
    )


def _reasons(scores: ModelScores) -> Sequence[Section]:
    """Why rows were not predicted, by step model and reason."""
    lines = []
    for name, report in scores.reports.items():
        reasons = Counter(skipped.reason for skipped in report.skipped)
        lines += [
            f"{name}, {counted(count, 'row')}: {reason}" for reason, count in reasons.most_common(5)
        ]
    return (section("skipped", "Not predicted", items(tuple(lines))),) if lines else ()


def calibrated(report: CalibrationReport, output: Path | None = None) -> Document:
    """The calibration; ``output`` is the file that it was written to, if it was."""
    aside = (
        f"; {report.not_steady} set aside because they are not steady" if report.not_steady else ""
    )
    c = report.calibration
    return document(
        section("errors", "", _errors(report)),
        section("terms", "", _terms(report)),
        section("verdict", "", items(tuple(map(sentence_of, report.verdict())), "note")),
        section("remarks", "", items(report.remarks, "note")),
        section("written", "", Text(f"Written to {output}") if output is not None else None),
        title=f"{c.data}: {c.preset} on {c.gpu}{aside}",
    )


def _errors(report: CalibrationReport) -> Table:
    rows = tuple(
        (
            METRIC_TITLES.get(name, name),
            *map(
                number,
                (value, report.after[name], report.left_out_before[name], report.left_out[name]),
            ),
        )
        for name, value in report.before.items()
    )
    before, after = ("transferred", "fitted") if report.own else ("shipped", "calibrated")
    header = ("MAPE %", before, after, f"left out, {before}", f"left out, {after}")
    return Table(header=header, rows=rows)


def _terms(report: CalibrationReport) -> Table:
    value = report.shown if report.own else lambda name: f"×{report.factors[name]:.3f}"
    rows = tuple((name, value(name), percent(width)) for name, width in report.shrinkage.items())
    note = (
        "width left: how much of the prior's width the measurements leave; 100% where they say"
        " nothing of the term"
    )
    return Table(
        header=("term", "value" if report.own else "factor", "width left"), rows=rows, note=note
    )
