"""Horizontal bars: laid end to end, and the two-sided bars of a tornado."""

from __future__ import annotations

import math

from tonnage.report.drawing.figure import Bar, Bars, Tornado
from tonnage.report.drawing.svg import CHARACTER, TONES, Page, Scale, coordinate, element, fitted, legend, line, mark, nice_ticks, text
from tonnage.report.numbers import short

ROW = 30.0
THICK = 18.0
BOLD = 7.3
"""Mean width of a character of a bold label, in pixels."""
HALF = 12.0
"""Height of one of the two bars of a tornado's row, in pixels."""


def draw_bars(bars: Bars, page: Page) -> tuple[float, str]:
    """The height and the markup of a chart of bars."""
    tones = dict.fromkeys((s.name, s.tone) for bar in bars.bars for s in bar.segments)
    stacks = any(len(bar.segments) > 1 for bar in bars.bars)
    used, names = legend([(_swatch(tone), name) for name, tone in tones], page, 4, 0) if stacks else (0.0, "")
    longest = max([len(bar.name) for bar in bars.bars], default=0) * BOLD
    stacked = page.narrow or longest > 240
    left = 6.0 if stacked else longest + 16
    row = ROW + 18 if stacked else ROW
    room = max([len(bar.total) for bar in bars.bars], default=0) * BOLD + 12
    top, bottom = used + 6, used + 6 + row * len(bars.bars)
    ends = [sum(s.size for s in bar.segments) for bar in bars.bars]
    ticks = nice_ticks(0.0, min(max([*ends, 0.0]), bars.cut or math.inf) or 1.0, 4 if page.narrow else 7)
    x = Scale(ticks=ticks, start=left, end=page.width - 14 - (0 if stacked else room))
    parts = [names, *(_tick(x, t, top, bottom) for t in ticks)]
    for i, bar in enumerate(bars.bars):
        parts.append(_bar(bar, x, top + i * row, left, stacked))
    parts.append(text((x.start + x.end) / 2, bottom + 38, fitted(bars.axis.title, page.width - 8), "middle", "axis"))
    return bottom + 46, "".join(parts)


def _swatch(tone: int) -> str:
    return element("rect", x=-8, y=-6, width=16, height=12, class_=f"bar fill{tone % TONES}")


def _tick(x: Scale, tick: float, top: float, bottom: float) -> str:
    anchor = "start" if tick == x.ticks[0] and x.start < 20 else "end" if tick == x.ticks[-1] else "middle"
    return line(x(tick), top, x(tick), bottom, "grid") + text(x(tick), bottom + 18, short(tick), anchor, "tick")


def _bar(bar: Bar, x: Scale, top: float, left: float, stacked: bool) -> str:
    """The name, the segments and the total of one bar."""
    weight = "label strong" if bar.chosen else "label"
    y = top + (22 if stacked else (ROW - THICK) / 2)
    parts, at = [], 0.0
    for segment in bar.segments:
        begin, end = x(at), x(at + segment.size)
        width = max(end - begin, 1.0 if segment.size else 0.0)
        parts.append(element("rect", x=begin, y=y, width=width, height=THICK, class_=f"bar fill{segment.tone % TONES}"))
        at += segment.size
    if at > x.ticks[-1]:
        end = x.end - 16
        parts.append(element("path", d=f"M{coordinate(end)} {coordinate(y - 3)}l6 12l-6 12h7l6-12l-6-12z", class_="break"))
    if stacked:
        words = text(left, top + 15, fitted(bar.name, x.end - left - len(bar.total) * CHARACTER - 12), class_=weight)
        words += text(x.end, top + 15, bar.total, "end", weight)
    else:
        words = text(left - 8, y + 13, bar.name, "end", weight) + text(x(at) + 7, y + 13, bar.total, class_=weight)
    return mark("".join(parts) + words, bar.tip)


def draw_tornado(tornado: Tornado, page: Page) -> tuple[float, str]:
    """The height and the markup of a tornado: two bars a row, above for the lower input, below for the higher."""
    stacked = page.narrow
    longest = max([len(s.name) for s in tornado.swings], default=0) * CHARACTER
    left = 40.0 if stacked else longest + 60
    row = ROW + 24 if stacked else ROW + 6
    entries = [(_swatch(5), "input lower"), (_swatch(0), "input higher")]
    used, names = legend(entries, page, 4, 0)
    top = used + 24
    bottom = top + row * len(tornado.swings)
    values = [v for s in tornado.swings for v in (s.low, s.high)] + [tornado.base]
    low, high = min(values), max(values)
    pad = max((high - low) * 0.04, 0.02 * abs(high) or 0.1)
    ticks = nice_ticks(max(0.0, low - pad), high + pad, 4 if page.narrow else 8)
    x = Scale(ticks=ticks, start=left, end=page.width - 52)
    parts = [names, *(_tick(x, t, top, bottom) for t in ticks)]
    for i, swing in enumerate(tornado.swings):
        y = top + i * row + (22 if stacked else (row - 2 * HALF) / 2)
        inside = _side(x, y, (tornado.base, swing.low), swing.low_label, 5)
        inside += _side(x, y + HALF, (tornado.base, swing.high), swing.high_label, 0)
        name = text(6, y - 7, fitted(swing.name, page.width - 12)) if stacked else text(left - 48, y + HALF + 4, swing.name, "end")
        parts.append(mark(inside + name, swing.tip))
    base = x(tornado.base)
    parts.append(line(base, top - 4, base, bottom, "limit neutral") + text(base, top - 9, tornado.base_label, "middle", "limit-label"))
    parts.append(text((x.start + x.end) / 2, bottom + 38, fitted(tornado.axis.title, page.width - 8), "middle", "axis"))
    return bottom + 46, "".join(parts)


def _side(x: Scale, y: float, ends: tuple[float, float], label: str, tone: int) -> str:
    """One of the two bars of a row, from the base to the value."""
    base, value = ends
    begin, end = sorted((x(base), x(value)))
    side = -1 if value < base else 1
    words = text(x(value) + side * 5, y + 9.5, label, "end" if side < 0 else "start", "tick")
    return element("rect", x=begin, y=y, width=max(end - begin, 1.5), height=HALF - 1, class_=f"bar fill{tone}") + words
