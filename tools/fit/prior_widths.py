"""How far a calibration's factors may go, and how well it then predicts: both learned from groups that the fit had not seen.

Empirical Bayes over the NIM groups: terms are fitted without a group, factors on them to all of that group's rows, and the
width of each factor is the root of its mean square over the groups, its own uncertainty included, repeated until it
stands still (EM). One more group with ``START_WIDTH`` keeps four groups from claiming that a term never differs.

The errors of calibrated predictions are those of every curve of a group calibrating the group's other curves, with terms
fitted without the group and widths learned from the other groups alone, by terms that had not seen these either.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tonnage.calibration.calibrate import FEWEST, calibrate
from tonnage.calibration.loaded_rows import LoadedRows
from tonnage.calibration.residuals import Terms
from tonnage.calibration.rows import errors
from tonnage.calibration.sample import START_WIDTH, Sample, fit_sample
from tonnage.perf.calibrated_terms import overlaid
from tonnage.spec.calibration import MULTIPLIERS
from tonnage.spec.catalog import find_engine
from tonnage.validation.point import read_point
from tools.fit.residuals import HeldOut, held_out_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

Row = dict[str, Any]
Group = tuple[Any, ...]

ITERATIONS = 4

FEWEST_GROUPS = 3
"""One is left out, and of the others each in turn."""

START_GROUPS = 1.0
"""Groups that ``START_WIDTH`` counts for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """What the groups taught.

    Attributes:
        widths: of the logarithm of each factor.
        errors: held-out errors of calibrated predictions.
        scores: MAPE in percent of these by group and metric, without and with the calibration.
    """

    widths: dict[str, float]
    errors: tuple[HeldOut, ...]
    scores: dict[str, dict[str, dict[str, float]]]


def learned(groups: Mapping[Group, list[Row]], terms_without: Callable[[tuple[Group, ...]], Terms]) -> Learned | None:
    """Widths from all groups, and the held-out errors of calibrating each of their curves with those of the other groups.

    Args:
        groups: measured rows under load, by group.
        terms_without: the terms of a fit that has not seen these groups; asked for each group and each pair.

    Returns:
        None where the rows are too few for that: less than three groups, or a group without a curve to calibrate on.
    """
    if len(groups) < FEWEST_GROUPS or not all(curves(rows) for rows in groups.values()):
        return None
    everything = learned_widths([(terms_without((group,)), rows) for group, rows in groups.items()])
    found: list[HeldOut] = []
    scores: dict[str, dict[str, dict[str, float]]] = {"shipped": {}, "calibrated": {}}
    for group, rows in groups.items():
        order = list(groups)
        pairs = [tuple(sorted((group, other), key=order.index)) for other in groups if other != group]
        widths = learned_widths([(terms_without(pair), groups[other]) for pair in pairs for other in pair if other != group])
        terms, name = terms_without((group,)), " ".join(map(str, group))
        before, after = [], []
        for curve in curves(rows):
            errors_of_curve, plain, with_it = _one_curve(curve, rows, terms, widths)
            found += errors_of_curve
            before.append(plain)
            after.append(with_it)
        for kind, each in (("shipped", before), ("calibrated", after)):
            scores[kind][name] = {metric: round(float(np.mean([one[metric] for one in each])), 2) for metric in each[0]}
    return Learned(widths=everything, errors=tuple(found), scores=scores)


def _one_curve(
    curve: list[Row], rows: list[Row], terms: Terms, widths: Mapping[str, float]
) -> tuple[list[HeldOut], dict[str, float], dict[str, float]]:
    """Errors of the other rows of a group when calibrated on a curve, and the MAPE of these without and with it."""
    report = calibrate(curve, terms=terms, widths=widths, data="a curve")
    rest = [row for row in rows if row not in curve]
    loaded = LoadedRows(rest)
    plain = errors(loaded, terms)
    found = errors(loaded, overlaid(terms, report.calibration, report.calibration.gpu))
    held: list[HeldOut] = []
    if report.kept:  # else predictions keep the intervals of those that are not calibrated
        points = [replace(point, deployment=replace(point.deployment, calibration=report.calibration)) for point in loaded.points]
        held = [replace(row, regime=replace(row.regime, own=())) for row in held_out_rows(points, found, unseen_gpu=False)]
    before, after = ({name: float(100 * np.nanmean(np.abs(values))) for name, values in e.items()} for e in (plain, found))
    return held, before, after


def curves(rows: Sequence[Row]) -> list[list[Row]]:
    """Rows of equal lengths together, where they are enough to calibrate on."""
    found: dict[tuple[int, int], list[Row]] = {}
    for row in rows:
        found.setdefault((row["isl"], row["osl"]), []).append(row)
    return [curve for curve in found.values() if len(curve) >= FEWEST]


def learned_widths(cases: Sequence[tuple[Terms, list[Row]]]) -> dict[str, float]:
    """The width of each factor's logarithm over groups of rows, each with terms that have not seen it."""
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
            fitted = fit_sample(sample, np.ones(len(sample.rows), dtype=bool), rounds=1 if number else 2, start=start[i])
            start[i] = fitted.x
            spread = fitted.shrinkage * sample.widths
            for name, square in zip(fitted.names, (fitted.x**2 + spread**2).tolist(), strict=True):
                squares[name].append(square)
        widths = {name: float(np.sqrt(sum(found) / (len(found) - 1 + START_GROUPS))) for name, found in squares.items()}
    return {name: round(width, 4) for name, width in widths.items()}
