"""How far a calibration's factors may go and how well it then predicts, both learned from groups
that the fit had not seen.

The widths are found by empirical Bayes over the NIM groups. Terms are fitted without a group, and
factors on these terms to all of the group's rows. The width of a factor is the root of its mean
square over the groups, with its own uncertainty, and the whole is repeated until it stands still
(EM). One more group of ``START_WIDTH`` keeps four groups from claiming that a term never differs.

For the errors of calibrated predictions each curve of a group calibrates the group's other curves.
The terms are fitted without the group, and the widths are learned from the other groups alone, with
terms that had not seen those either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tonnage.evidence.calibrate import FEWEST, calibrate
from tonnage.evidence.predict import read_point
from tonnage.evidence.rows import LoadedRows, Terms, errors
from tonnage.evidence.sample import START_WIDTH, Sample, fit_sample
from tonnage.perf.terms_file import overlaid
from tonnage.spec.calibration import MULTIPLIERS
from tonnage.spec.catalog import find_engine
from tools.fit.processes import Processes
from tools.fit.residuals import HeldOut, held_out_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

Row = dict[str, Any]
Group = tuple[Any, ...]

ITERATIONS = 4

FEWEST_GROUPS = 3
"""The number of groups that is needed: one is left out, and then each of the others in turn."""

START_GROUPS = 1.0
"""The number of groups for which ``START_WIDTH`` counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """What was learned from the groups.

    Attributes:
        widths: the width of the logarithm of each factor.
        errors: the held-out errors of calibrated predictions.
        scores: their MAPE in percent by group and metric, without the calibration ("shipped") and
            with it ("calibrated").
    """

    widths: dict[str, float]
    errors: tuple[HeldOut, ...]
    scores: dict[str, dict[str, dict[str, float]]]


def learned(
    groups: Mapping[Group, list[Row]],
    without: Mapping[tuple[Group, ...], Terms],
    processes: Processes,
) -> Learned | None:
    """Learn the widths from all groups, and the errors of calibrating on each curve with widths
    from the other groups.

    Args:
        groups: measured rows under load, by group.
        without: the terms of fits that have not seen some groups, for each group and for each
            sorted pair.
        processes: where the curves of each group are calibrated.

    Returns:
        None where there are fewer than three groups, or one of them has no curve to calibrate on.
    """
    if len(groups) < FEWEST_GROUPS or not all(curves(rows) for rows in groups.values()):
        return None
    everything = learned_widths([(without[group,], rows) for group, rows in groups.items()])
    tasks = []
    for group, rows in groups.items():
        pairs = [tuple(sorted((group, other))) for other in groups if other != group]
        others = [
            (without[pair], groups[other]) for pair in pairs for other in pair if other != group
        ]
        tasks.append(_OneGroup(rows=rows, terms=without[group,], others=others))
    found: list[HeldOut] = []
    scores: dict[str, dict[str, dict[str, float]]] = {"shipped": {}, "calibrated": {}}
    for group, (errors_of_group, figures) in zip(
        groups, processes.map(_of_group, tasks, lambda place: None), strict=True
    ):
        found += errors_of_group
        for kind, each in figures.items():
            scores[kind][" ".join(map(str, group))] = each
    return Learned(widths=everything, errors=tuple(found), scores=scores)


@dataclass(frozen=True, slots=True, kw_only=True)
class _OneGroup:
    """The rows of a group, terms without it, and each other group's rows with terms that have seen
    neither.
    """

    rows: list[Row]
    terms: Terms
    others: list[tuple[Terms, list[Row]]]


def _of_group(group: _OneGroup) -> tuple[list[HeldOut], dict[str, dict[str, float]]]:
    """The errors of calibrating on each of a group's curves, and their mean MAPE without and with
    the calibration.
    """
    widths = learned_widths(group.others)
    found: list[HeldOut] = []
    before, after = [], []
    for curve in curves(group.rows):
        errors_of_curve, plain, with_it = _one_curve(curve, group.rows, group.terms, widths)
        found += errors_of_curve
        before.append(plain)
        after.append(with_it)
    figures = {
        kind: {
            metric: round(float(np.mean([one[metric] for one in each])), 2) for metric in each[0]
        }
        for kind, each in (("shipped", before), ("calibrated", after))
    }
    return found, figures


def _one_curve(
    curve: list[Row], rows: list[Row], terms: Terms, widths: Mapping[str, float]
) -> tuple[list[HeldOut], dict[str, float], dict[str, float]]:
    """The errors of a group's other rows after calibrating on a curve, and their MAPE without and
    with the calibration.
    """
    report = calibrate(curve, terms=terms, widths=widths, data="a curve")
    rest = [row for row in rows if row not in curve]
    loaded = LoadedRows(rest)
    plain = errors(loaded, terms)
    found = errors(loaded, overlaid(terms, report.calibration, report.calibration.gpu))
    held: list[HeldOut] = []
    if report.kept:  # else predictions keep the intervals of those that are not calibrated
        points = [
            replace(point, deployment=replace(point.deployment, calibration=report.calibration))
            for point in loaded.points
        ]
        held = [
            replace(row, regime=replace(row.regime, own=()))
            for row in held_out_rows(points, found, unseen_gpu=False)
        ]
    before, after = (
        {name: float(100 * np.nanmean(np.abs(values))) for name, values in e.items()}
        for e in (plain, found)
    )
    return held, before, after


def curves(rows: Sequence[Row]) -> list[list[Row]]:
    """The rows of equal lengths, where there are enough to calibrate on."""
    found: dict[tuple[int, int], list[Row]] = {}
    for row in rows:
        found.setdefault((row["isl"], row["osl"]), []).append(row)
    return [curve for curve in found.values() if len(curve) >= FEWEST]


def learned_widths(cases: Sequence[tuple[Terms, list[Row]]]) -> dict[str, float]:
    """The width of the logarithm of each factor over some groups of rows, each with terms that have
    not seen it.
    """
    widths = dict.fromkeys(MULTIPLIERS, START_WIDTH)
    samples = []
    for terms, rows in cases:
        deployment = read_point(rows[0]).deployment
        preset = find_engine(deployment.engine).coefficients
        samples.append(Sample(rows, terms, preset=preset, gpu=deployment.gpu.name, widths=widths))
    start: list[Floats | None] = [None] * len(samples)
    for number in range(ITERATIONS):
        squares = {name: [START_GROUPS * START_WIDTH**2] for name in MULTIPLIERS}
        for i, sample in enumerate(samples):
            sample.widths = np.array([widths[name] for name in sample.names])
            fitted = fit_sample(
                sample,
                np.ones(len(sample.rows), dtype=bool),
                rounds=1 if number else 2,
                start=start[i],
            )
            start[i] = fitted.x
            spread = fitted.shrinkage * sample.widths
            for name, square in zip(fitted.names, (fitted.x**2 + spread**2).tolist(), strict=True):
                squares[name].append(square)
        widths = {
            name: float(np.sqrt(sum(found) / (len(found) - 1 + START_GROUPS)))
            for name, found in squares.items()
        }
    return {name: round(width, 4) for name, width in widths.items()}
