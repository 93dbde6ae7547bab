"""What a figure shows, before anything is drawn: plain values that a test can compare.

A figure is drawn by ``svg.draw``; its numbers also are in a table under it, so nothing is told by a drawing alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from tonnage.notebook import Displayed


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One axis: its name with the unit, whether it is logarithmic, and its marks where they are fixed, as those of a day are."""

    title: str
    log: bool = False
    ticks: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One point."""

    # x, y: in the units of the axes
    x: float
    y: float
    tip: str  # the whole configuration or reading, one fact per line
    chosen: bool = False  # whether it is the plan's answer, and is marked so


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
    """A straight line across the plot: a limit, the chosen load, the load at the peak."""

    along: str  # "y" for a horizontal line at that value of y, "x" for a vertical one
    value: float
    label: str
    tone: int | None = None  # of the series that it limits; None for a neutral line


@dataclass(frozen=True, slots=True, kw_only=True)
class Cloud:
    """Many dots, of which none says more than its place; ``tone`` as in Series."""

    name: str
    dots: tuple[tuple[float, float], ...]
    tone: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot(Displayed):
    """Points and lines over two axes."""

    key: str
    title: str
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    rules: tuple[Rule, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scatter(Plot):
    """A plot with dots behind its points and lines."""

    clouds: tuple[Cloud, ...] = ()


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
class Bars(Displayed):
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
class Tornado(Displayed):
    """How far the answer moves from ``base`` with each input, widest first."""

    key: str
    title: str
    axis: Axis
    base: float
    base_label: str
    swings: tuple[Swing, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """How values are spread: the box from p25 to p75, a line at p50, whiskers from p1 to p99, a diamond at the mean."""

    name: str
    p1: float
    p25: float
    p50: float
    p75: float
    p99: float
    mean: float
    tip: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Boxes(Displayed):
    """Horizontal box plots under one another."""

    key: str
    title: str
    axis: Axis
    boxes: tuple[Box, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """How many are between two edges of either axis, counted from the lowest; ``tip`` says it in words."""

    column: int
    row: int
    count: int
    tip: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatMap(Displayed):
    """Counts over two axes, darker where there are more."""

    key: str
    title: str
    x: Axis
    y: Axis
    # columns, rows: the edges of the cells along x and y, ascending, one more than there are cells
    columns: tuple[float, ...]
    rows: tuple[float, ...]
    cells: tuple[Cell, ...]  # those that hold anything


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A stretch of time from ``start`` to ``end``, in the unit of the axis; ``name`` says what was going on."""

    name: str
    start: float
    end: float
    tone: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """What happened to one request, from left to right."""

    name: str
    spans: tuple[Span, ...]
    tip: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Gantt(Displayed):
    """Requests under one another over a common axis of time, which begins at ``start``."""

    key: str
    title: str
    axis: Axis
    start: float
    lanes: tuple[Lane, ...]


Figure = Plot | Bars | Tornado | Boxes | HeatMap | Gantt
