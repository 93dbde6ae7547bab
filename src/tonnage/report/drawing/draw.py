"""Figures as inline SVG: small, sharp on paper, and alive without a library.

Every figure is drawn twice, for a wide and for a narrow page; the style sheet shows the one that fits. Colours are
classes of the style sheet, so that light, dark and print each have their own.
"""

from __future__ import annotations

from tonnage.report.drawing.figure import Bars, Figure, Plot, Tornado
from tonnage.report.drawing.svg import Page, coordinate, element
from tonnage.report.drawing.svg_bars import draw_bars, draw_tornado
from tonnage.report.drawing.svg_plot import draw_plot

WIDE = Page(width=900, name="wide")
NARROW = Page(width=350, name="narrow")


def draw(figure: Figure) -> str:
    """Both drawings of a figure, safe to put into a page."""
    return "".join(_drawing(figure, page) for page in (WIDE, NARROW))


def _drawing(figure: Figure, page: Page) -> str:
    if isinstance(figure, Plot):
        height, inside = draw_plot(figure, page)
    elif isinstance(figure, Bars):
        height, inside = draw_bars(figure, page)
    else:
        height, inside = draw_tornado(figure, page)
    label = f"{figure.title}. {_keys(figure)}The numbers are in the table below the figure."
    return element(
        "svg",
        inside,
        viewBox=f"0 0 {coordinate(page.width)} {coordinate(height)}",
        class_=f"figure {page.name}",
        role="group",
        tabindex="0",
        aria_label=label,
    )


def _keys(figure: Figure) -> str:
    return "Arrow keys step from mark to mark. " if not isinstance(figure, Tornado) or figure.swings else ""
