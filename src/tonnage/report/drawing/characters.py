"""A plot of characters, for a terminal: one letter for each series, dashes for limits, a bar for a load."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from tonnage.report.numbers import short

if TYPE_CHECKING:
    from tonnage.report.drawing.figure import Axis, Plot

LETTERS = "abcdefgh"
WIDTH, HEIGHT = 64, 16
"""Columns and lines inside the axes, at most and always."""
MARGIN = 8
"""Columns of the numbers next to the axis."""
NARROWEST = 24
SEVERAL = "#"
"""Where two series share a place."""


def plot_text(plot: Plot, columns: int) -> str:
    """The plot in so many columns, with a line for each letter below it; "" where no series has two points."""
    series = [one for one in plot.series if len(one.points) > 1][: len(LETTERS)]
    if not series:
        return ""
    width = max(NARROWEST, min(WIDTH, columns - MARGIN - 2))
    xs = [point.x for one in series for point in one.points] + [rule.value for rule in plot.rules if rule.along == "x"]
    ys = [point.y for one in series for point in one.points] + [rule.value for rule in plot.rules if rule.along == "y"]
    across, up = _Scale(plot.x, xs, width), _Scale(plot.y, ys, HEIGHT)
    cells = [[" "] * width for _ in range(HEIGHT)]
    for rule in plot.rules:
        if rule.along == "y":
            for column in range(0, width, 2):
                cells[up.at(rule.value)][column] = "-"
        else:
            for row in range(HEIGHT):
                cells[row][across.at(rule.value)] = "|"
    for letter, one in zip(LETTERS, series, strict=False):
        for column, row in _drawn([(across.at(point.x), up.at(point.y)) for point in one.points]):
            cells[row][column] = letter if cells[row][column] in (" ", "-", "|", letter) else SEVERAL
    lines = [f"{_number(up, row):>{MARGIN}} ┤{''.join(cells[row]).rstrip()}" for row in reversed(range(HEIGHT))]
    lines.append(" " * MARGIN + " └" + "─" * width)
    left, right = short(across.low), short(across.high)
    lines.append(" " * (MARGIN + 2) + left + right.rjust(width - len(left)))
    names = [f"{letter} {one.name}" for letter, one in zip(LETTERS, series, strict=False)]
    lines.append(" " * (MARGIN + 2) + plot.x.title)
    lines += [f"  {name}, {plot.y.title}" for name in names]
    lines += [f"  {'- -' if rule.along == 'y' else '|'} {rule.label}" for rule in plot.rules]
    return "\n".join(lines)


class _Scale:
    """Where a value is along an axis of so many cells."""

    def __init__(self, axis: Axis, values: Sequence[float], cells: int) -> None:
        positive = [value for value in values if value > 0] or [1.0]
        self.log, self.cells = axis.log, cells
        self.low, self.high = (min(positive), max(positive)) if axis.log else (min(0.0, *values), max(values))
        self.high = self.high if self.high > self.low else self.low + 1.0

    def at(self, value: float) -> int:
        share = (
            math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
            if self.log
            else (value - self.low) / (self.high - self.low)
        )
        return min(self.cells - 1, max(0, round(share * (self.cells - 1))))

    def value(self, cell: int) -> float:
        share = cell / (self.cells - 1)
        return self.low * (self.high / self.low) ** share if self.log else self.low + share * (self.high - self.low)


def _number(scale: _Scale, row: int) -> str:
    """The value beside every third line."""
    return short(scale.value(row)) if row % 3 == 0 else ""


def _drawn(places: Sequence[tuple[int, int]]) -> Sequence[tuple[int, int]]:
    """The cells of the points, and of straight lines between them."""
    found = []
    for (x0, y0), (x1, y1) in pairwise(places):
        steps = max(abs(x1 - x0), abs(y1 - y0), 1)
        found += [(x0 + round(i * (x1 - x0) / steps), y0 + round(i * (y1 - y0) / steps)) for i in range(steps + 1)]
    return list(dict.fromkeys(found))
