"""A heat map: how many lie in each cell of a grid, darker where there are more."""

from __future__ import annotations

import math

from tonnage.report.drawing.figure import Cell, HeatMap
from tonnage.report.drawing.svg import CHARACTER, Page, element, fitted, line, mark, text
from tonnage.report.numbers import short

FAINTEST = 0.14
"""Opacity of a cell that holds next to nothing."""


def draw_heat_map(heat: HeatMap, page: Page) -> tuple[float, str]:
    """The height and the markup of a heat map; its cells are of one size, whatever their edges."""
    left, right, top = 56.0, page.width - 20, 26.0
    across, down = len(heat.columns) - 1, len(heat.rows) - 1
    tall = min(28.0, 300 / max(down, 1))
    bottom, wide = top + tall * down, (right - left) / max(across, 1)
    parts = [text(4, 12, fitted(heat.y.title, page.width - 8), class_="axis")]
    most = max((cell.count for cell in heat.cells), default=1)
    for cell in heat.cells:
        parts.append(_cell(cell, left + cell.column * wide, bottom - (cell.row + 1) * tall, (wide, tall), most))
    parts += [line(left, top, left, bottom, "grid"), line(left, bottom, right, bottom, "grid")]
    for i in _labelled(heat.columns, wide):
        parts.append(text(left + i * wide, bottom + 17, short(heat.columns[i]), "middle", "tick"))
    for i in range(0, down + 1, math.ceil(14 / tall)):
        parts.append(text(left - 6, bottom - i * tall + 4, short(heat.rows[i]), "end", "tick"))
    parts.append(text((left + right) / 2, bottom + 37, fitted(heat.x.title, page.width - 8), "middle", "axis"))
    return bottom + 46, "".join(parts)


def _labelled(edges: tuple[float, ...], wide: float) -> range:
    """Which edges have room for their number."""
    longest = max(len(short(edge)) for edge in edges) * CHARACTER + 8
    return range(0, len(edges), max(1, math.ceil(longest / wide)))


def _cell(cell: Cell, x: float, y: float, size: tuple[float, float], most: int) -> str:
    """One cell, with its count where that has room."""
    wide, tall = size
    strength = FAINTEST + (1 - FAINTEST) * math.sqrt(cell.count / most)
    drawn = element("rect", x=x, y=y, width=wide, height=tall, class_="bar fill0", fill_opacity=f"{strength:.2f}")
    count = short(cell.count)
    if tall >= 14 and wide >= len(count) * CHARACTER + 8:
        drawn += text(x + wide / 2, y + tall / 2 + 4, count, "middle", "limit-label")
    return mark(drawn, cell.tip)
