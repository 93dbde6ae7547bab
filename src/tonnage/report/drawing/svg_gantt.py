"""A Gantt chart: what happened to each request, under one another over one axis of time."""

from __future__ import annotations

from tonnage.report.drawing.figure import Gantt, Lane
from tonnage.report.drawing.svg import CHARACTER, TONES, Page, Scale, element, fitted, legend, line, mark, nice_ticks, text
from tonnage.report.numbers import short

LANE = 7.0
"""Height of one request, in pixels."""
NAMED = 10
"""Every tenth request is named."""


def draw_gantt(gantt: Gantt, page: Page) -> tuple[float, str]:
    """The height and the markup of a Gantt chart."""
    tones = dict.fromkeys((span.name, span.tone) for lane in gantt.lanes for span in lane.spans)
    used, names = legend([(_swatch(tone), name) for name, tone in tones], page, 4, 0)
    longest = max((len(lane.name) for lane in gantt.lanes[::NAMED]), default=0) * CHARACTER
    left, top = longest + 14, used + 6
    bottom = top + LANE * len(gantt.lanes)
    end = max((span.end for lane in gantt.lanes for span in lane.spans), default=gantt.start)
    ticks = nice_ticks(gantt.start, max(end, gantt.start + 1e-6), 4 if page.narrow else 8)
    x = Scale(ticks=ticks, start=left, end=page.width - 20)
    parts = [names, *(line(x(t), top, x(t), bottom, "grid") + text(x(t), bottom + 17, short(t), "middle", "tick") for t in ticks)]
    for place, lane in enumerate(gantt.lanes):
        y = top + place * LANE
        parts.append(_lane(lane, x, y))
        if place % NAMED == 0:
            parts.append(text(left - 8, y + LANE + 1, lane.name, "end", "tick"))
    parts.append(text((x.start + x.end) / 2, bottom + 37, fitted(gantt.axis.title, page.width - 8), "middle", "axis"))
    return bottom + 46, "".join(parts)


def _swatch(tone: int) -> str:
    return element("rect", x=-8, y=-6, width=16, height=12, class_=f"bar fill{tone % TONES}")


def _lane(lane: Lane, x: Scale, y: float) -> str:
    parts = []
    for span in lane.spans:
        begin, end = x(span.start), x(span.end)
        width = max(end - begin, 0.6)
        parts.append(element("rect", x=begin, y=y + 0.5, width=width, height=LANE - 1.5, class_=f"span fill{span.tone % TONES}"))
    return mark("".join(parts), lane.tip)
