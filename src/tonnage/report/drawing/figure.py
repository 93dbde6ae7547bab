"""What a figure shows, before anything is drawn: plain values that a test can compare; and the
pieces of SVG that draw them.

A figure is drawn by ``draw.draw``; its numbers also are in a table under it, so no drawing is the
only source of a number.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape

from tonnage.notebook import Displayed


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis: its name with the unit, whether it is logarithmic, and its marks where they are
    fixed, as those of a day are.
    """

    title: str
    log: bool = False
    ticks: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Point:
    """One point."""

    # x, y: in the units of the axes
    x: float
    y: float
    tip: str  # the whole configuration or reading, one fact per line
    chosen: bool = False  # whether it is the plan's answer, and is marked so


@dataclass(frozen=True, slots=True)
class Series:
    """Points that belong together; ``tone`` picks colour, shape and dash, so colour alone tells
    nothing.
    """

    name: str
    points: tuple[Point, ...]
    tone: int
    line: bool = False
    marks: bool = True


@dataclass(frozen=True, slots=True)
class Rule:
    """A straight line across the plot: a limit, the chosen load, the load at the peak."""

    along: str  # "y" for a horizontal line at that value of y, "x" for a vertical one
    value: float
    label: str
    tone: int | None = None  # of the series that it limits; None for a neutral line


@dataclass(frozen=True, slots=True)
class Cloud:
    """Many dots, of which none says more than its place; ``tone`` as in Series."""

    name: str
    dots: tuple[tuple[float, float], ...]
    tone: int


@dataclass(frozen=True, slots=True)
class Plot(Displayed):
    """Points and lines over two axes."""

    key: str
    title: str
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    rules: tuple[Rule, ...] = ()


@dataclass(frozen=True, slots=True)
class Scatter(Plot):
    """A plot with dots behind its points and lines."""

    clouds: tuple[Cloud, ...] = ()


@dataclass(frozen=True, slots=True)
class Segment:
    """Part of a bar, of ``size`` in the unit of the axis."""

    name: str
    size: float
    tone: int


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar of segments laid end to end; ``total`` is written at its end."""

    name: str
    segments: tuple[Segment, ...]
    total: str
    tip: str
    chosen: bool = False


@dataclass(frozen=True, slots=True)
class Bars(Displayed):
    """Horizontal bars from zero; one longer than ``cut`` is broken off there, so that the others
    can be seen.
    """

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


@dataclass(frozen=True, slots=True)
class Tornado(Displayed):
    """How far the answer moves from ``base`` with each input, widest first."""

    key: str
    title: str
    axis: Axis
    base: float
    base_label: str
    swings: tuple[Swing, ...]


@dataclass(frozen=True, slots=True)
class Box:
    """How values are spread: the box from p25 to p75, a line at p50, whiskers from p1 to p99, a
    diamond at the mean.
    """

    name: str
    p1: float
    p25: float
    p50: float
    p75: float
    p99: float
    mean: float
    tip: str


@dataclass(frozen=True, slots=True)
class Boxes(Displayed):
    """Horizontal box plots under one another."""

    key: str
    title: str
    axis: Axis
    boxes: tuple[Box, ...]


@dataclass(frozen=True, slots=True)
class Cell:
    """How many are between two edges of either axis, counted from the lowest; ``tip`` says it in
    words.
    """

    column: int
    row: int
    count: int
    tip: str


@dataclass(frozen=True, slots=True)
class HeatMap(Displayed):
    """Counts over two axes, darker where there are more."""

    key: str
    title: str
    x: Axis
    y: Axis
    # columns, rows: the edges of the cells along x and y, ascending, one more than there are cells
    columns: tuple[float, ...]
    rows: tuple[float, ...]
    cells: tuple[Cell, ...]  # the non-empty ones


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of time from ``start`` to ``end``, in the unit of the axis; ``name`` says what was
    going on.
    """

    name: str
    start: float
    end: float
    tone: int
    faint: bool = False  # whether it is drawn paler than the tone


@dataclass(frozen=True, slots=True)
class Lane:
    """What happened to one request or in one slot, from left to right; a lane without a name keeps
    others apart.
    """

    name: str
    spans: tuple[Span, ...]
    tip: str


@dataclass(frozen=True, slots=True)
class Gantt(Displayed):
    """Requests or slots under one another over a common axis of time, which begins at ``start``."""

    key: str
    title: str
    axis: Axis
    start: float
    lanes: tuple[Lane, ...]


Figure = Plot | Bars | Tornado | Boxes | HeatMap | Gantt


CHARACTER = 6.5  # mean width of a character of a label, in pixels
TONES = 7  # colours, shapes and dashes that differ; an eighth series looks like the first


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The width of a figure, in pixels."""

    width: float
    name: str

    @property
    def narrow(self) -> bool:
        """Whether it is for a telephone."""
        return self.width < 500


def element(tag: str, inside: str = "", **attributes: str | float) -> str:
    """An element whose attributes are escaped; ``inside`` is markup already."""
    names = (
        (name.rstrip("_").replace("_", "-") if name != "viewBox" else name, value)
        for name, value in attributes.items()
    )
    written = "".join(
        f' {name}="{escape(value if isinstance(value, str) else coordinate(value))}"'
        for name, value in names
    )
    return f"<{tag}{written}>{inside}</{tag}>" if inside else f"<{tag}{written}/>"


def text(x: float, y: float, words: str, anchor: str = "start", class_: str = "label") -> str:
    """Words at a place."""
    return element("text", escape(words), x=x, y=y, text_anchor=anchor, class_=class_)


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> str:
    """A straight line."""
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def mark(inside: str, tip: str, class_: str = "mark") -> str:
    """Draw a shape with a text under the pointer, or when the arrow keys reach it."""
    return element(
        "g",
        element("title", escape(tip)) + inside,
        class_=class_,
        role="img",
        aria_label=tip.replace("\n", "; "),
    )


def coordinate(value: float) -> str:
    """A number of pixels with at most one decimal, the same on every machine."""
    rounded = f"{value:.1f}"
    return rounded.removesuffix(".0")


def fitted(words: str, width: float) -> str:
    """The words, cut with an ellipsis where they would be wider than ``width`` pixels."""
    max_length = max(4, int(width / CHARACTER))
    return words if len(words) <= max_length else words[: max_length - 1].rstrip() + "…"


def shape(x: float, y: float, tone: int, radius: float = 4.5) -> str:
    """The mark of a tone: circle, square, triangle, diamond, cross, ring, triangle on its tip."""
    r, kind = radius, tone % TONES
    class_ = f"fill{kind}"
    if kind == 0:
        return element("circle", cx=x, cy=y, r=r, class_=class_)
    if kind == 5:
        return element("circle", cx=x, cy=y, r=r - 1, class_=f"ring stroke{kind}")
    corners = {
        1: ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),
        2: ((0, -1.15), (1.1, 0.85), (-1.1, 0.85)),
        6: ((0, 1.15), (1.1, -0.85), (-1.1, -0.85)),
        3: ((0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)),
        4: (
            *((-1.2, -0.4), (-0.4, -0.4), (-0.4, -1.2), (0.4, -1.2), (0.4, -0.4), (1.2, -0.4)),
            *((1.2, 0.4), (0.4, 0.4), (0.4, 1.2), (-0.4, 1.2), (-0.4, 0.4), (-1.2, 0.4)),
        ),
    }[kind]
    return element(
        "polygon",
        points=" ".join(f"{coordinate(x + r * a)},{coordinate(y + r * b)}" for a, b in corners),
        class_=class_,
    )


def legend(
    entries: list[tuple[str, str]], page: Page, margin: float, top: float
) -> tuple[float, str]:
    """Swatches (drawn around (0, 0), 18 pixels wide) with names in as many rows as needed; returns
    the height taken and the markup.
    """
    x, y, parts = margin, top + 12, []
    for swatch, name in entries:
        label = fitted(name, page.width - margin - 40)
        width = 26 + len(label) * CHARACTER + 14
        if x > margin and x + width > page.width:
            x, y = margin, y + 18
        parts.append(
            element("g", swatch, transform=f"translate({coordinate(x + 9)} {coordinate(y - 4)})")
            + text(x + 23, y, label)
        )
        x += width
    return y - top + 10, element("g", "".join(parts), aria_hidden="true")


def nice_ticks(low: float, high: float, number: int) -> tuple[float, ...]:
    """Round numbers from at or below ``low`` to at or above ``high``, about ``number`` of them."""
    span = high - low if high > low else max(abs(high), 1.0)
    raw = span / max(1, number)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(
        factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw * (1 - 1e-9)
    )
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return tuple(i * step for i in range(first, max(last, first + 1) + 1))


def log_ticks(low: float, high: float, number: int) -> tuple[float, ...]:
    """1, 2 and 5 of every decade from at or below ``low`` to at or above ``high``; decades alone
    where there are many.
    """
    exponents = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
    for factors in ((1, 2, 5), (1, 3), (1,)):
        ticks = [factor * 10.0**e for e in exponents for factor in factors]
        below = [t for t in ticks if t <= low * (1 + 1e-9)][-1]
        above = next(t for t in ticks if t >= high * (1 - 1e-9) and t > below)
        chosen = tuple(t for t in ticks if below <= t <= above)
        if len(chosen) <= number:
            break
    return chosen


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Maps values to pixels, linearly or logarithmically."""

    ticks: tuple[float, ...]
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """The place of a value; values outside are held at the edge."""
        low, high = self.ticks[0], self.ticks[-1]
        clamped = min(max(value, low), high)
        share = (
            math.log(clamped / low) / math.log(high / low)
            if self.log
            else (clamped - low) / (high - low)
        )
        return self.start + share * (self.end - self.start)
