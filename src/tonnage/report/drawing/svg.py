"""Pieces of inline SVG that every figure is drawn with: elements, labels, marks, ticks and scales."""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape

CHARACTER = 6.5  # mean width of a character of a label, in pixels
TONES = 7  # colours, shapes and dashes that differ; an eighth series looks like the first


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """How wide a figure is, in pixels."""

    width: float
    name: str

    @property
    def narrow(self) -> bool:
        """Whether it is for a telephone."""
        return self.width < 500


def element(tag: str, inside: str = "", **attributes: str | float) -> str:
    """An element whose attributes are escaped; ``inside`` is markup already."""
    names = ((name.rstrip("_").replace("_", "-") if name != "viewBox" else name, value) for name, value in attributes.items())
    written = "".join(f' {name}="{escape(value if isinstance(value, str) else coordinate(value))}"' for name, value in names)
    return f"<{tag}{written}>{inside}</{tag}>" if inside else f"<{tag}{written}/>"


def text(x: float, y: float, words: str, anchor: str = "start", class_: str = "label") -> str:
    """Words at a place."""
    return element("text", escape(words), x=x, y=y, text_anchor=anchor, class_=class_)


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> str:
    """A straight line."""
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def mark(inside: str, tip: str, class_: str = "mark") -> str:
    """Something that says more under the pointer, or when the arrow keys reach it."""
    return element("g", element("title", escape(tip)) + inside, class_=class_, role="img", aria_label=tip.replace("\n", "; "))


def coordinate(value: float) -> str:
    """A number of pixels with at most one decimal, the same on every machine."""
    rounded = f"{value:.1f}"
    return rounded.removesuffix(".0")


def fitted(words: str, width: float) -> str:
    """The words, cut with an ellipsis where they would be wider than so many pixels."""
    most = max(4, int(width / CHARACTER))
    return words if len(words) <= most else words[: most - 1].rstrip() + "…"


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
    return element("polygon", points=" ".join(f"{coordinate(x + r * a)},{coordinate(y + r * b)}" for a, b in corners), class_=class_)


def legend(entries: list[tuple[str, str]], page: Page, left: float, top: float) -> tuple[float, str]:
    """Swatches (drawn around (0, 0), 18 pixels wide) with names in as many rows as needed; returns the height taken and the markup."""
    x, y, parts = left, top + 12, []
    for swatch, name in entries:
        label = fitted(name, page.width - left - 40)
        width = 26 + len(label) * CHARACTER + 14
        if x > left and x + width > page.width:
            x, y = left, y + 18
        parts.append(element("g", swatch, transform=f"translate({coordinate(x + 9)} {coordinate(y - 4)})") + text(x + 23, y, label))
        x += width
    return y - top + 10, element("g", "".join(parts), aria_hidden="true")


def nice_ticks(low: float, high: float, most: int) -> tuple[float, ...]:
    """Round numbers from at or below ``low`` to at or above ``high``, about ``most`` of them."""
    span = high - low if high > low else max(abs(high), 1.0)
    raw = span / max(1, most)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return tuple(i * step for i in range(first, max(last, first + 1) + 1))


def log_ticks(low: float, high: float, most: int) -> tuple[float, ...]:
    """1, 2 and 5 of every decade from at or below ``low`` to at or above ``high``; decades alone where there are many."""
    exponents = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
    for factors in ((1, 2, 5), (1, 3), (1,)):
        ticks = [factor * 10.0**e for e in exponents for factor in factors]
        below = [t for t in ticks if t <= low * (1 + 1e-9)][-1]
        above = next(t for t in ticks if t >= high * (1 - 1e-9) and t > below)
        chosen = tuple(t for t in ticks if below <= t <= above)
        if len(chosen) <= most:
            break
    return chosen


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """From values to pixels, linear or logarithmic."""

    ticks: tuple[float, ...]
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """The place of a value; values outside are held at the edge."""
        low, high = self.ticks[0], self.ticks[-1]
        held = min(max(value, low), high)
        share = math.log(held / low) / math.log(high / low) if self.log else (held - low) / (high - low)
        return self.start + share * (self.end - self.start)
