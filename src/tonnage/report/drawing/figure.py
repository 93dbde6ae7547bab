"""What a figure shows, before anything is drawn: plain values that a test can compare.

A figure is drawn by ``svg.draw``; its numbers also stand in a table under it, so nothing is told by a drawing alone.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One axis: its name with the unit, and whether it is logarithmic."""

    title: str
    log: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One point.

    Attributes:
        x, y: in the units of the axes.
        tip: the whole configuration or reading, one fact per line.
        chosen: whether it is the plan's answer, and is marked so.
    """

    x: float
    y: float
    tip: str
    chosen: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Points that belong together; ``tone`` picks colour, shape and dash, so colour alone tells nothing."""

    name: str
    points: tuple[Point, ...]
    tone: int
    line: bool = False
    marks: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A straight line across the plot: a limit, the chosen load, the load at the peak.

    Attributes:
        along: "y" for a horizontal line at that value of y, "x" for a vertical one.
        tone: of the series that it limits; None for a neutral line.
    """

    along: str
    value: float
    label: str
    tone: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """Points and lines over two axes."""

    key: str
    title: str
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    rules: tuple[Rule, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Part of a bar, of ``size`` in the unit of the axis."""

    name: str
    size: float
    tone: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One bar of segments laid end to end; ``total`` is written at its end."""

    name: str
    segments: tuple[Segment, ...]
    total: str
    tip: str
    chosen: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """Horizontal bars from zero; one longer than ``cut`` is broken off there, so that the others can be seen."""

    key: str
    title: str
    axis: Axis
    bars: tuple[Bar, ...]
    cut: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Swing:
    """One row of a tornado: the answer when an input is lower and when it is higher."""

    name: str
    low: float
    high: float
    low_label: str
    high_label: str
    tip: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tornado:
    """How far the answer moves from ``base`` with each input, widest first."""

    key: str
    title: str
    axis: Axis
    base: float
    base_label: str
    swings: tuple[Swing, ...]


Figure = Plot | Bars | Tornado
