"""Box plots: horizontal, one under the other, over one axis."""

from __future__ import annotations

from tonnage.report.drawing.figure import Box, Boxes
from tonnage.report.drawing.svg import CHARACTER, Page, Scale, element, fitted, line, log_ticks, mark, nice_ticks, shape, text
from tonnage.report.numbers import short

ROW = 34.0
THICK = 18.0


def draw_boxes(boxes: Boxes, page: Page) -> tuple[float, str]:
    """The height and the markup of box plots."""
    longest = max((len(box.name) for box in boxes.boxes), default=0) * CHARACTER
    stacked = page.narrow or longest > 240
    left = 14.0 if stacked else longest + 24
    row = ROW + 16 if stacked else ROW
    top, bottom = 6.0, 6.0 + row * len(boxes.boxes)
    x = Scale(ticks=_ticks(boxes, 4 if page.narrow else 8), start=left, end=page.width - 18, log=boxes.axis.log)
    parts = [line(x(t), top, x(t), bottom, "grid") + text(x(t), bottom + 18, short(t), "middle", "tick") for t in x.ticks]
    parts += [_box(box, x, top + i * row, left, stacked) for i, box in enumerate(boxes.boxes)]
    parts.append(text((x.start + x.end) / 2, bottom + 38, fitted(boxes.axis.title, page.width - 8), "middle", "axis"))
    return bottom + 46, "".join(parts)


def _ticks(boxes: Boxes, most: int) -> tuple[float, ...]:
    high = max((max(box.p99, box.mean) for box in boxes.boxes), default=1.0)
    low = min((box.p1 for box in boxes.boxes), default=0.0)
    return log_ticks(low, high, most) if boxes.axis.log and low > 0 else nice_ticks(0.0, high or 1.0, most)


def _box(box: Box, x: Scale, top: float, left: float, stacked: bool) -> str:
    """The name, the whiskers, the box, the median and the mean of one row."""
    y = top + (20 if stacked else (ROW - THICK) / 2)
    middle = y + THICK / 2
    name = text(6, top + 14, fitted(box.name, x.end - 12)) if stacked else text(left - 14, middle + 4, box.name, "end")
    parts = [name, line(x(box.p1), middle, x(box.p99), middle, "whisker")]
    parts += [line(x(end), y + 4, x(end), y + THICK - 4, "whisker") for end in (box.p1, box.p99)]
    parts.append(element("rect", x=x(box.p25), y=y, width=max(x(box.p75) - x(box.p25), 1.5), height=THICK, class_="bar fill0"))
    parts.append(line(x(box.p50), y - 1, x(box.p50), y + THICK + 1, "median"))
    parts.append(shape(x(box.mean), middle, 3, radius=3.5))
    return mark("".join(parts), box.tip)
