"""Figures as inline SVG: small, sharp on paper, and alive without a library.

Every figure is drawn twice, for a wide and for a narrow page; the style sheet shows the one that fits. Colours are
classes of the style sheet, so that light, dark and print each have their own.
"""

from __future__ import annotations

from tonnage.report.drawing.figure import Bars, Boxes, Figure, Gantt, HeatMap, Plot, Tornado
from tonnage.report.drawing.svg import Page, coordinate, element
from tonnage.report.drawing.svg_bars import draw_bars, draw_tornado
from tonnage.report.drawing.svg_boxes import draw_boxes
from tonnage.report.drawing.svg_gantt import draw_gantt
from tonnage.report.drawing.svg_heat_map import draw_heat_map
from tonnage.report.drawing.svg_plot import draw_plot

WIDE = Page(width=900, name="wide")
NARROW = Page(width=350, name="narrow")


def draw(figure: Figure) -> str:
    """Both drawings of a figure, safe to put into a page."""
    return "".join(_drawing(figure, page) for page in (WIDE, NARROW))


def _inside(figure: Figure, page: Page) -> tuple[float, str]:
    """The height of a figure and its markup."""
    if isinstance(figure, Plot):
        return draw_plot(figure, page)
    if isinstance(figure, Bars):
        return draw_bars(figure, page)
    if isinstance(figure, Boxes):
        return draw_boxes(figure, page)
    if isinstance(figure, HeatMap):
        return draw_heat_map(figure, page)
    return draw_gantt(figure, page) if isinstance(figure, Gantt) else draw_tornado(figure, page)


def _drawing(figure: Figure, page: Page) -> str:
    height, inside = _inside(figure, page)
    label = f"{figure.title}. {_keys(figure)}The numbers are in a table of this page."
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
    marks = figure.swings if isinstance(figure, Tornado) else figure.series if isinstance(figure, Plot) else (figure,)
    return "Arrow keys step from mark to mark. " if marks else ""
