"""Points and lines over two axes."""

from __future__ import annotations

from tonnage.report.drawing.figure import Axis, Cloud, Plot, Rule, Scatter, Series
from tonnage.report.drawing.svg import (
    CHARACTER,
    TONES,
    Page,
    Scale,
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


def draw_plot(plot: Plot, page: Page) -> tuple[float, str]:
    """The height and the markup of a plot."""
    left, right = 50.0, page.width - 14
    used, names = legend(_entries(plot), page, 4, 0)
    columns = sum(rule.along == "x" for rule in plot.rules)
    top = used + 22 + 16 * columns
    bottom = top + (250 if page.narrow else 300)
    x = Scale(ticks=_ticks(plot, "x", 4 if page.narrow else 8), start=left, end=right, log=plot.x.log)
    y = Scale(ticks=_ticks(plot, "y", 9), start=bottom, end=top, log=plot.y.log)
    parts = [names, text(4, used + 12, fitted(plot.y.title, page.width - 8), class_="axis")]
    parts += [line(left, y(t), right, y(t), "grid") + text(left - 6, y(t) + 4, short(t), "end", "tick") for t in y.ticks]
    parts += [line(x(t), top, x(t), bottom, "grid") + text(x(t), bottom + 17, short(t), "middle", "tick") for t in x.ticks]
    parts.append(text((left + right) / 2, bottom + 37, fitted(plot.x.title, page.width - 8), "middle", "axis"))
    parts += _rules(plot.rules, x, y)
    parts += [_dots(cloud, x, y) for cloud in _clouds(plot)]
    parts += [_curve(series, x, y) for series in plot.series if series.line]
    parts += [_points(series, x, y) for series in plot.series if series.marks]
    return bottom + 46, "".join(parts)


def _entries(plot: Plot) -> list[tuple[str, str]]:
    entries = [(shape(0, 0, 0, radius=2.5).replace("fill0", f"fill{cloud.tone % TONES}"), cloud.name) for cloud in _clouds(plot)]
    for series in plot.series:
        stroke = line(-9, 0, 9, 0, f"curve stroke{series.tone % TONES}") if series.line else ""
        entries.append((stroke + (shape(0, 0, series.tone) if series.marks else ""), series.name))
    if any(point.chosen for series in plot.series for point in series.points):
        entries.append((element("circle", cx=2, cy=0, r=6.5, class_="chosen"), "chosen"))
    return entries


def _ticks(plot: Plot, along: str, most: int) -> tuple[float, ...]:
    axis: Axis = plot.x if along == "x" else plot.y
    if axis.ticks:
        return axis.ticks
    values = [p.x if along == "x" else p.y for series in plot.series for p in series.points]
    values += [dot[0 if along == "x" else 1] for cloud in _clouds(plot) for dot in cloud.dots]
    values += [rule.value for rule in plot.rules if rule.along == along]
    if axis.log:
        positive = [v for v in values if v > 0] or [1.0, 10.0]
        return log_ticks(min(positive), max(positive), most)
    return nice_ticks(0.0, max([*values, 0.0]) or 1.0, most)


def _clouds(plot: Plot) -> tuple[Cloud, ...]:
    return plot.clouds if isinstance(plot, Scatter) else ()


def _dots(cloud: Cloud, x: Scale, y: Scale) -> str:
    """All dots as one path of strokes without length, which round ends make visible: twelve bytes a dot."""
    places = dict.fromkeys(f"{coordinate(x(a))} {coordinate(y(b))}" for a, b in cloud.dots)
    return element("path", d="".join(f"M{place}h0" for place in places), class_=f"dots stroke{cloud.tone % TONES}", aria_hidden="true")


def _curve(series: Series, x: Scale, y: Scale) -> str:
    points = " ".join(f"{coordinate(x(p.x))},{coordinate(y(p.y))}" for p in series.points)
    return element("polyline", points=points, class_=f"curve stroke{series.tone % TONES}")


def _points(series: Series, x: Scale, y: Scale) -> str:
    parts = []
    for point in series.points:
        px, py = x(point.x), y(point.y)
        ring = element("circle", cx=px, cy=py, r=10, class_="chosen") if point.chosen else ""
        target = element("circle", cx=px, cy=py, r=12, class_="target")
        parts.append(mark(ring + target + shape(px, py, series.tone), point.tip))
    return "".join(parts)


def _rules(rules: tuple[Rule, ...], x: Scale, y: Scale) -> list[str]:
    """Limits and marked loads: a dashed line each, with its words where there is room."""
    lines, labels, columns = [], [], 0
    left, right, top, bottom = x.start, x.end, y.end, y.start
    taken: list[float] = []
    for rule in rules:
        tone = "neutral" if rule.tone is None else f"stroke{rule.tone % TONES}"
        if rule.along == "y":
            place = y(rule.value)
            above = place - 5 if all(abs(place - 5 - other) > 13 for other in taken) and place - 16 > top else place + 13
            taken.append(above)
            words = fitted(rule.label, right - left)
            lines.append(line(left, place, right, place, f"limit {tone}"))
            labels.append(text(left + 6, above, words, class_="limit-label"))
            continue
        place = x(rule.value)
        words = fitted(rule.label, right - left)
        row = top - 6 - 16 * columns
        fits = place + 5 + len(words) * CHARACTER <= right
        at = place + 5 if fits else max(place - 5, left + len(words) * CHARACTER)
        lines.append(line(place, row - 10, place, bottom, f"limit {tone}"))
        labels.append(text(at, row, words, "start" if fits else "end", "limit-label"))
        columns += 1
    return lines + labels
