"""Figures as inline SVG: small, sharp on paper, and alive without a library.

Every figure is drawn twice, for a wide and for a narrow page; the style sheet shows the one that
fits. Colours are classes of the style sheet, so that light, dark and print each have their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape
from itertools import pairwise
from typing import Any

from tonnage.report.drawing.figure import (
    CHARACTER,
    TONES,
    Axis,
    Bar,
    Bars,
    Box,
    Boxes,
    Cell,
    Cloud,
    Figure,
    Gantt,
    HeatMap,
    Lane,
    Page,
    Plot,
    Scale,
    Scatter,
    Series,
    Span,
    Tornado,
    coordinate,
    element,
    fitted,
    legend,
    line,
    log_ticks,
    mark,
    nice_ticks,
    shape,
    text,
)
from tonnage.report.numbers import short

ROW = 30.0
THICK = 18.0
BOLD = 7.3  # mean width of a character of a bold label, in pixels
HALF = 12.0  # height of one of the two bars of a tornado's row, in pixels


def draw_bars(bars: Bars, page: Page) -> tuple[float, str]:
    """The height and the markup of a chart of bars."""
    tones = dict.fromkeys((s.name, s.tone) for bar in bars.bars for s in bar.segments)
    stacks = any(len(bar.segments) > 1 for bar in bars.bars)
    used, names = (
        legend([(_swatch(tone), name) for name, tone in tones], page, 4, 0) if stacks else (0.0, "")
    )
    longest = max([len(bar.name) for bar in bars.bars], default=0) * BOLD
    stacked = page.narrow or longest > 240
    left_x = 6.0 if stacked else longest + 16
    row = ROW + 18 if stacked else ROW
    room = max([len(bar.total) for bar in bars.bars], default=0) * BOLD + 12
    top, bottom = used + 6, used + 6 + row * len(bars.bars)
    ends = [sum(s.size for s in bar.segments) for bar in bars.bars]
    ticks = nice_ticks(
        0.0, min(max([*ends, 0.0]), bars.cut or math.inf) or 1.0, 4 if page.narrow else 7
    )
    x = Scale(ticks=ticks, start=left_x, end=page.width - 14 - (0 if stacked else room))
    parts = [names, *(_tick(x, t, top, bottom) for t in ticks)]
    for i, bar in enumerate(bars.bars):
        parts.append(_bar(bar, x, top + i * row, left_x, stacked))
    parts.append(
        text(
            (x.start + x.end) / 2,
            bottom + 38,
            fitted(bars.axis.title, page.width - 8),
            "middle",
            "axis",
        )
    )
    return bottom + 46, "".join(parts)


def _swatch(tone: int) -> str:
    return element("rect", x=-8, y=-6, width=16, height=12, class_=f"bar fill{tone % TONES}")


def _tick(x: Scale, tick: float, top: float, bottom: float) -> str:
    anchor = (
        "start"
        if tick == x.ticks[0] and x.start < 20
        else "end"
        if tick == x.ticks[-1]
        else "middle"
    )
    return line(x(tick), top, x(tick), bottom, "grid") + text(
        x(tick), bottom + 18, short(tick), anchor, "tick"
    )


def _bar(bar: Bar, x: Scale, top: float, margin: float, stacked: bool) -> str:
    weight = "label strong" if bar.chosen else "label"
    y = top + (22 if stacked else (ROW - THICK) / 2)
    parts, at = [], 0.0
    for segment in bar.segments:
        begin, end = x(at), x(at + segment.size)
        width = max(end - begin, 1.0 if segment.size else 0.0)
        parts.append(
            element(
                "rect",
                x=begin,
                y=y,
                width=width,
                height=THICK,
                class_=f"bar fill{segment.tone % TONES}",
            )
        )
        at += segment.size
    if at > x.ticks[-1]:
        end = x.end - 16
        parts.append(
            element(
                "path",
                d=f"M{coordinate(end)} {coordinate(y - 3)}l6 12l-6 12h7l6-12l-6-12z",
                class_="break",
            )
        )
    if stacked:
        words = text(
            margin,
            top + 15,
            fitted(bar.name, x.end - margin - len(bar.total) * CHARACTER - 12),
            class_=weight,
        )
        words += text(x.end, top + 15, bar.total, "end", weight)
    else:
        words = text(margin - 8, y + 13, bar.name, "end", weight) + text(
            x(at) + 7, y + 13, bar.total, class_=weight
        )
    return mark("".join(parts) + words, bar.tip)


def draw_tornado(tornado: Tornado, page: Page) -> tuple[float, str]:
    """The height and the markup of a tornado: two bars a row, above for the lower input, below for
    the higher.
    """
    stacked = page.narrow
    longest = max([len(s.name) for s in tornado.swings], default=0) * CHARACTER
    left_x = 40.0 if stacked else longest + 60
    row = ROW + 24 if stacked else ROW + 6
    entries = [(_swatch(5), "input lower"), (_swatch(0), "input higher")]
    used, names = legend(entries, page, 4, 0)
    top = used + 24
    bottom = top + row * len(tornado.swings)
    values = [v for s in tornado.swings for v in (s.low, s.high)] + [tornado.base]
    low, high = min(values), max(values)
    pad = max((high - low) * 0.04, 0.02 * abs(high) or 0.1)
    ticks = nice_ticks(max(0.0, low - pad), high + pad, 4 if page.narrow else 8)
    x = Scale(ticks=ticks, start=left_x, end=page.width - 52)
    parts = [names, *(_tick(x, t, top, bottom) for t in ticks)]
    for i, swing in enumerate(tornado.swings):
        y = top + i * row + (22 if stacked else (row - 2 * HALF) / 2)
        inside = _side(x, y, (tornado.base, swing.low), swing.low_label, 5)
        inside += _side(x, y + HALF, (tornado.base, swing.high), swing.high_label, 0)
        name = (
            text(6, y - 7, fitted(swing.name, page.width - 12))
            if stacked
            else text(left_x - 48, y + HALF + 4, swing.name, "end")
        )
        parts.append(mark(inside + name, swing.tip))
    base = x(tornado.base)
    parts.append(
        line(base, top - 4, base, bottom, "limit neutral")
        + text(base, top - 9, tornado.base_label, "middle", "limit-label")
    )
    parts.append(
        text(
            (x.start + x.end) / 2,
            bottom + 38,
            fitted(tornado.axis.title, page.width - 8),
            "middle",
            "axis",
        )
    )
    return bottom + 46, "".join(parts)


def _side(x: Scale, y: float, ends: tuple[float, float], label: str, tone: int) -> str:
    """Draw one of the two bars of a row, from the base to the value."""
    base, value = ends
    begin, end = sorted((x(base), x(value)))
    side = -1 if value < base else 1
    words = text(x(value) + side * 5, y + 9.5, label, "end" if side < 0 else "start", "tick")
    return (
        element(
            "rect",
            x=begin,
            y=y,
            width=max(end - begin, 1.5),
            height=HALF - 1,
            class_=f"bar fill{tone}",
        )
        + words
    )


BOX_ROW = 34.0


def draw_boxes(boxes: Boxes, page: Page) -> tuple[float, str]:
    """The height and the markup of box plots."""
    longest = max((len(box.name) for box in boxes.boxes), default=0) * CHARACTER
    stacked = page.narrow or longest > 240
    left_x = 14.0 if stacked else longest + 24
    row = BOX_ROW + 16 if stacked else BOX_ROW
    top, bottom = 6.0, 6.0 + row * len(boxes.boxes)
    x = Scale(
        ticks=_ticks(boxes, 4 if page.narrow else 8),
        start=left_x,
        end=page.width - 18,
        log=boxes.axis.log,
    )
    parts = [
        line(x(t), top, x(t), bottom, "grid") + text(x(t), bottom + 18, short(t), "middle", "tick")
        for t in x.ticks
    ]
    parts += [_box(box, x, top + i * row, left_x, stacked) for i, box in enumerate(boxes.boxes)]
    parts.append(
        text(
            (x.start + x.end) / 2,
            bottom + 38,
            fitted(boxes.axis.title, page.width - 8),
            "middle",
            "axis",
        )
    )
    return bottom + 46, "".join(parts)


def _ticks(boxes: Boxes, number: int) -> tuple[float, ...]:
    high = max((max(box.p99, box.mean) for box in boxes.boxes), default=1.0)
    low = min((box.p1 for box in boxes.boxes), default=0.0)
    return (
        log_ticks(low, high, number)
        if boxes.axis.log and low > 0
        else nice_ticks(0.0, high or 1.0, number)
    )


def _box(box: Box, x: Scale, top: float, margin: float, stacked: bool) -> str:
    y = top + (20 if stacked else (BOX_ROW - THICK) / 2)
    middle = y + THICK / 2
    name = (
        text(6, top + 14, fitted(box.name, x.end - 12))
        if stacked
        else text(margin - 14, middle + 4, box.name, "end")
    )
    parts = [name, line(x(box.p1), middle, x(box.p99), middle, "whisker")]
    parts += [line(x(end), y + 4, x(end), y + THICK - 4, "whisker") for end in (box.p1, box.p99)]
    parts.append(
        element(
            "rect",
            x=x(box.p25),
            y=y,
            width=max(x(box.p75) - x(box.p25), 1.5),
            height=THICK,
            class_="bar fill0",
        )
    )
    parts.append(line(x(box.p50), y - 1, x(box.p50), y + THICK + 1, "median"))
    parts.append(shape(x(box.mean), middle, 3, radius=3.5))
    return mark("".join(parts), box.tip)


LANE = 7.0  # height of one request, in pixels
NAMED = 10  # every tenth request is named
FEW = 16  # lanes that are tall, and have a name each
TALL = 20.0  # height of one of them, in pixels


def draw_gantt(gantt: Gantt, page: Page) -> tuple[float, str]:
    """The height and the markup of a Gantt chart."""
    tall, named = (TALL, 1) if len(gantt.lanes) <= FEW else (LANE, NAMED)
    kinds = dict.fromkeys((span.name, _tone(span)) for lane in gantt.lanes for span in lane.spans)
    used, names = legend(
        [(_swatch(0).replace("fill0", tone), name) for name, tone in kinds], page, 4, 0
    )
    longest = max((len(lane.name) for lane in gantt.lanes[::named]), default=0) * CHARACTER
    left_x, top = longest + 14, used + 6
    bottom = top + tall * len(gantt.lanes)
    end = max((span.end for lane in gantt.lanes for span in lane.spans), default=gantt.start)
    ticks = nice_ticks(gantt.start, max(end, gantt.start + 1e-6), 4 if page.narrow else 8)
    x = Scale(ticks=ticks, start=left_x, end=page.width - 20)
    parts = [
        names,
        *(
            line(x(t), top, x(t), bottom, "grid")
            + text(x(t), bottom + 17, short(t), "middle", "tick")
            for t in ticks
        ),
    ]
    for place, lane in enumerate(gantt.lanes):
        y = top + place * tall
        parts.append(
            _lane(lane, x, y, tall, " bar" if tall == TALL and not page.narrow else "")
            if lane.spans
            else ""
        )
        if place % named == 0:
            parts.append(text(left_x - 8, y + tall / 2 + 4.5, lane.name, "end", "tick"))
    parts.append(
        text(
            (x.start + x.end) / 2,
            bottom + 37,
            fitted(gantt.axis.title, page.width - 8),
            "middle",
            "axis",
        )
    )
    return bottom + 46, "".join(parts)


def _tone(span: Span) -> str:
    return f"fill{span.tone % TONES}{' faint' if span.faint else ''}"


def _lane(lane: Lane, x: Scale, y: float, tall: float, apart: str) -> str:
    """The spans of a tone as one path, since a slot has hundreds; ``apart`` is the class that keeps
    steps apart where there is room.
    """
    paths: dict[str, list[str]] = {}
    height = coordinate(tall - (1.5 if tall == LANE else 4))
    for span in lane.spans:
        begin, width = x(span.start), coordinate(max(x(span.end) - x(span.start), 0.6))
        paths.setdefault(_tone(span), []).append(
            f"M{coordinate(begin)} {coordinate(y + 0.5)}h{width}v{height}h-{width}z"
        )
    return mark(
        "".join(
            element("path", d="".join(d), class_=f"span{apart} {tone}") for tone, d in paths.items()
        ),
        lane.tip,
    )


FAINTEST = 0.14  # opacity of a cell that holds next to nothing


def draw_heat_map(heat: HeatMap, page: Page) -> tuple[float, str]:
    """The height and the markup of a heat map; its cells are of one size, whatever their edges."""
    left_x, right_x, top = 56.0, page.width - 20, 26.0
    across, down = len(heat.columns) - 1, len(heat.rows) - 1
    tall = min(28.0, 300 / max(down, 1))
    bottom, wide = top + tall * down, (right_x - left_x) / max(across, 1)
    parts = [text(4, 12, fitted(heat.y.title, page.width - 8), class_="axis")]
    highest_count = max((cell.count for cell in heat.cells), default=1)
    for cell in heat.cells:
        parts.append(
            _cell(
                cell,
                left_x + cell.column * wide,
                bottom - (cell.row + 1) * tall,
                (wide, tall),
                highest_count,
            )
        )
    parts += [
        line(left_x, top, left_x, bottom, "grid"),
        line(left_x, bottom, right_x, bottom, "grid"),
    ]
    longest = max(len(short(edge)) for edge in heat.columns) * CHARACTER + 8
    for i in range(0, len(heat.columns), max(1, math.ceil(longest / wide))):
        parts.append(text(left_x + i * wide, bottom + 17, short(heat.columns[i]), "middle", "tick"))
    for i in range(0, down + 1, math.ceil(14 / tall)):
        parts.append(text(left_x - 6, bottom - i * tall + 4, short(heat.rows[i]), "end", "tick"))
    parts.append(
        text(
            (left_x + right_x) / 2,
            bottom + 37,
            fitted(heat.x.title, page.width - 8),
            "middle",
            "axis",
        )
    )
    return bottom + 46, "".join(parts)


def _cell(cell: Cell, x: float, y: float, size: tuple[float, float], characters: int) -> str:
    wide, tall = size
    strength = FAINTEST + (1 - FAINTEST) * math.sqrt(cell.count / characters)
    drawn = element(
        "rect",
        x=x,
        y=y,
        width=wide,
        height=tall,
        class_="bar fill0",
        fill_opacity=f"{strength:.2f}",
    )
    count = short(cell.count)
    if tall >= 14 and wide >= len(count) * CHARACTER + 8:
        drawn += text(x + wide / 2, y + tall / 2 + 4, count, "middle", "limit-label")
    return mark(drawn, cell.tip)


def draw_plot(plot: Plot, page: Page) -> tuple[float, str]:
    """The height and the markup of a plot."""
    left_x, right_x = 50.0, page.width - 14
    used, names = legend(_entries(plot), page, 4, 0)
    columns = sum(rule.along == "x" for rule in plot.rules)
    top = used + 22 + 16 * columns
    bottom = top + (250 if page.narrow else 300)
    x = Scale(
        ticks=_plot_ticks(plot, "x", 4 if page.narrow else 8),
        start=left_x,
        end=right_x,
        log=plot.x.log,
    )
    y = Scale(ticks=_plot_ticks(plot, "y", 9), start=bottom, end=top, log=plot.y.log)
    scale = element(
        "g",
        class_="scale",
        data_low=f"{y.ticks[0]:g}",
        data_high=f"{y.ticks[-1]:g}",
        data_top=top,
        data_bottom=bottom,
    )
    parts = [
        scale if plot.y.log else "",
        names,
        text(4, used + 12, fitted(plot.y.title, page.width - 8), class_="axis"),
    ]
    parts += [
        line(left_x, y(t), right_x, y(t), "grid")
        + text(left_x - 6, y(t) + 4, short(t), "end", "tick")
        for t in y.ticks
    ]
    parts += [
        line(x(t), top, x(t), bottom, "grid") + text(x(t), bottom + 17, short(t), "middle", "tick")
        for t in x.ticks
    ]
    parts.append(
        text(
            (left_x + right_x) / 2,
            bottom + 37,
            fitted(plot.x.title, page.width - 8),
            "middle",
            "axis",
        )
    )
    parts += _rules(plot, x, y)
    parts += [_dots(cloud, x, y) for cloud in _clouds(plot)]
    for series in plot.series:
        if series.line:
            points = " ".join(f"{coordinate(x(p.x))},{coordinate(y(p.y))}" for p in series.points)
            parts.append(
                element("polyline", points=points, class_=f"curve stroke{series.tone % TONES}")
            )
    parts += [_points(series, x, y) for series in plot.series if series.marks]
    return bottom + 46, "".join(parts)


def _entries(plot: Plot) -> list[tuple[str, str]]:
    entries = [
        (shape(0, 0, 0, radius=2.5).replace("fill0", f"fill{cloud.tone % TONES}"), cloud.name)
        for cloud in _clouds(plot)
    ]
    for series in plot.series:
        stroke = line(-9, 0, 9, 0, f"curve stroke{series.tone % TONES}") if series.line else ""
        entries.append((stroke + (shape(0, 0, series.tone) if series.marks else ""), series.name))
    if any(point.chosen for series in plot.series for point in series.points):
        entries.append((element("circle", cx=2, cy=0, r=6.5, class_="chosen"), "chosen"))
    return entries


def _plot_ticks(plot: Plot, along: str, number: int) -> tuple[float, ...]:
    axis: Axis = plot.x if along == "x" else plot.y
    if axis.ticks:
        return axis.ticks
    values = [p.x if along == "x" else p.y for series in plot.series for p in series.points]
    values += [dot[0 if along == "x" else 1] for cloud in _clouds(plot) for dot in cloud.dots]
    values += [rule.value for rule in plot.rules if rule.along == along]
    if axis.log:
        positive = [v for v in values if v > 0] or [1.0, 10.0]
        return log_ticks(min(positive), max(positive), number)
    return nice_ticks(0.0, max([*values, 0.0]) or 1.0, number)


def _clouds(plot: Plot) -> tuple[Cloud, ...]:
    return plot.clouds if isinstance(plot, Scatter) else ()


def _dots(cloud: Cloud, x: Scale, y: Scale) -> str:
    """All dots as one path of strokes without length, which round ends make visible: twelve bytes a
    dot.
    """
    places = dict.fromkeys(f"{coordinate(x(a))} {coordinate(y(b))}" for a, b in cloud.dots)
    return element(
        "path",
        d="".join(f"M{place}h0" for place in places),
        class_=f"dots stroke{cloud.tone % TONES}",
        aria_hidden="true",
    )


def _points(series: Series, x: Scale, y: Scale) -> str:
    parts = []
    for point in series.points:
        px, py = x(point.x), y(point.y)
        ring = element("circle", cx=px, cy=py, r=10, class_="chosen") if point.chosen else ""
        target = element("circle", cx=px, cy=py, r=12, class_="target")
        parts.append(mark(ring + target + shape(px, py, series.tone), point.tip))
    return "".join(parts)


def _rules(plot: Plot, x: Scale, y: Scale) -> list[str]:
    """Limits and marked loads: a dashed line each, with its words where there is room."""
    lines, labels, columns = [], [], 0
    left_x, right_x, top, bottom = x.start, x.end, y.end, y.start
    drawn = _drawn(plot, x, y)
    for rule in plot.rules:
        tone = "neutral" if rule.tone is None else f"stroke{rule.tone % TONES}"
        words = fitted(rule.label, right_x - left_x)
        if rule.along == "y":
            place = y(rule.value)
            begin, end, base = _free(len(words) * BOLD, place, (left_x, right_x, top), drawn)
            drawn += [(begin + part * (end - begin) / 9, base - 5) for part in range(10)]
            lines.append(line(left_x, place, right_x, place, f"limit {tone}"))
            labels.append(
                text(begin, base, words, class_="limit-label")
                if begin == left_x + 6
                else text(end, base, words, "end", "limit-label")
            )
            continue
        place = x(rule.value)
        row = top - 6 - 16 * columns
        fits = place + 5 + len(words) * CHARACTER <= right_x
        at = place + 5 if fits else max(place - 5, left_x + len(words) * CHARACTER)
        lines.append(line(place, row - 10, place, bottom, f"limit {tone}"))
        labels.append(text(at, row, words, "start" if fits else "end", "limit-label"))
        columns += 1
    return lines + labels


def _drawn(plot: Plot, x: Scale, y: Scale) -> list[tuple[float, float]]:
    """The places that marks and curves take; a curve has so many that no label fits between two of
    them.
    """
    places = []
    for series in plot.series:
        points = [(x(point.x), y(point.y)) for point in series.points]
        places += points
        for (a, b), (c, d) in pairwise(points) if series.line else ():
            parts = math.ceil(math.dist((a, b), (c, d)) / 6)
            places += [(a + (c - a) * i / parts, b + (d - b) * i / parts) for i in range(1, parts)]
    return places


def _free(
    wide: float, place: float, edges: tuple[float, float, float], drawn: list[tuple[float, float]]
) -> tuple[float, float, float]:
    """Start, end and base line of a horizontal line's label: at its left or right end, above or
    below, wherever it covers least.
    """
    left_x, right_x, top = edges
    spots = [
        (begin, begin + wide, base)
        for base in (place - 5, place + 13)
        for begin in (left_x + 6, right_x - 6 - wide)
        if base - 11 > top or base > place
    ]

    def covered(spot: tuple[float, float, float]) -> int:
        begin, end, base = spot
        return sum(begin - 6 < a < end + 6 and base - 15 < b < base + 7 for a, b in drawn)

    return min(spots, key=covered)


WIDE = Page(width=900, name="wide")
NARROW = Page(width=350, name="narrow")


def draw(figure: Figure) -> str:
    """Draw a figure for wide and narrow pages, safe to put into a page."""
    return "".join(_drawing(figure, page) for page in (WIDE, NARROW))


def picture(title: str, figures: Sequence[Figure], style: str) -> str:
    """The wide drawings of figures under one another as an SVG by itself, with the style of our
    pages.
    """
    parts, top = [text(4, 20, fitted(title, WIDE.width - 8), class_="axis")], 44.0
    for figure in figures:
        height, inside = DRAWN[type(figure)](figure, WIDE)
        drawing = element("g", inside, transform="translate(0 8)")
        parts.append(
            element(
                "g", text(4, 0, figure.title) + drawing, transform=f"translate(0 {coordinate(top)})"
            )
        )
        top += height + 30
    paper = element("rect", width="100%", height="100%", style="fill: var(--paper)")
    whole = f"<style>{escape(style, quote=False)}</style>{paper}{''.join(parts)}"
    font = "font: 12px system-ui, sans-serif"
    box = f"0 0 {coordinate(WIDE.width)} {coordinate(top)}"
    return (
        element(
            "svg",
            whole,
            xmlns="http://www.w3.org/2000/svg",
            viewBox=box,
            role="img",
            aria_label=title,
            style=font,
        )
        + "\n"
    )


DRAWN: dict[type, Callable[[Any, Page], tuple[float, str]]] = {
    Plot: draw_plot,
    Scatter: draw_plot,
    Bars: draw_bars,
    Boxes: draw_boxes,
    HeatMap: draw_heat_map,
    Gantt: draw_gantt,
    Tornado: draw_tornado,
}


def _drawing(figure: Figure, page: Page) -> str:
    height, inside = DRAWN[type(figure)](figure, page)
    marks = (
        figure.swings
        if isinstance(figure, Tornado)
        else figure.series
        if isinstance(figure, Plot)
        else (figure,)
    )
    keys = "Arrow keys step from mark to mark. " if marks else ""
    label = f"{figure.title}. {keys}The numbers are in a table of this page."
    box = f"0 0 {coordinate(page.width)} {coordinate(height)}"
    return element(
        "svg",
        inside,
        viewBox=box,
        class_=f"figure {page.name}",
        role="group",
        tabindex="0",
        aria_label=label,
    )
