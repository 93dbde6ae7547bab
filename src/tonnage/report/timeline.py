"""The two panels of NVIDIA's course, as a page: the slots over time, and below them the queue and the KV cache."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tonnage.report.document import Document, Lines, Table, Text, drawing, section
from tonnage.report.drawing.figure import Axis, Gantt, Lane, Plot, Point, Series, Span
from tonnage.report.numbers import ABSENT, counted, number, percent
from tonnage.results.timeline import DECODE, PREFILL, WAITING, Timeline, TimelineStep

if TYPE_CHECKING:
    from tonnage.simulator.lesson import LessonResult


TONES = {PREFILL: 1, DECODE: 0, WAITING: 2}
MOST_LANES, MOST_STEPS, MOST_POINTS = 64, 2_000, 400
"""What a picture holds: beyond that nobody sees a slot or a step any more."""


def timeline_page(timeline: Timeline, title: str) -> Document:
    """The picture of the first steps, and how often what bound a step."""
    steps = timeline.steps[:MOST_STEPS]
    left = timeline.left + len(timeline.steps) - len(steps)
    shown = f"The first {len(steps):,} steps; {left:,} more are not drawn." if left else f"All {counted(len(steps), 'step')}."
    axis = Axis(title="seconds" if timeline.unit == "s" else "ticks")
    return Document(
        title=title,
        subtitle="",
        sections=(
            section("slots", "Slots", Text(text=shown), drawing(_slots(steps, axis), "A lane for each slot.", _bounds(steps))),
            section("queue", "Queue and KV cache", drawing(_queue(steps, axis), "At the beginning of each step.", _numbers(steps))),
        ),
    )


def _slots(steps: tuple[TimelineStep, ...], axis: Axis) -> Gantt:
    spans: dict[int, list[Span]] = {}
    told: dict[int, list[str]] = {}
    for step in steps:
        end = step.start + step.duration
        for held in step.held:
            lane = spans.setdefault(held.slot, [])
            if lane and lane[-1].name == held.state and abs(lane[-1].end - step.start) < 1e-12 and told[held.slot][-1] == str(held.request):
                lane[-1] = Span(name=held.state, start=lane[-1].start, end=end, tone=TONES[held.state])
            else:
                lane.append(Span(name=held.state, start=step.start, end=end, tone=TONES[held.state]))
                told.setdefault(held.slot, []).append(str(held.request))
    lanes = tuple(
        Lane(
            name=f"slot {slot + 1}", spans=tuple(spans[slot]), tip=f"slot {slot + 1}\nrequests {', '.join(dict.fromkeys(told[slot]))[:80]}"
        )
        for slot in sorted(spans)[:MOST_LANES]
    )
    return Gantt(key="slots", title="Which slot did what", axis=axis, start=steps[0].start if steps else 0.0, lanes=lanes)


def _queue(steps: tuple[TimelineStep, ...], axis: Axis) -> Plot:
    every = max(len(steps) // MOST_POINTS, 1)
    taken = steps[::every]
    queue = tuple(Point(x=step.start, y=float(step.queued), tip=f"{step.queued} wait") for step in taken)
    cache = tuple(Point(x=step.start, y=100 * step.kv_used, tip=f"{percent(step.kv_used)} of the KV cache") for step in taken)
    series = [Series(name="requests in the queue", points=queue, tone=0, line=True, marks=False)]
    if any(step.kv_used for step in taken):
        series.append(Series(name="KV cache in use, %", points=cache, tone=1, line=True, marks=False))
    return Plot(key="queue", title="Queue and KV cache over time", x=axis, y=Axis(title="requests, %"), series=tuple(series))


def _bounds(steps: tuple[TimelineStep, ...]) -> Table:
    counts = Counter(step.bound for step in steps)
    rows = tuple((bound, f"{count:,}", percent(count / len(steps))) for bound, count in counts.most_common())
    return Table(caption="What kept more from being in a step", header=("bound", "steps", "share"), rows=rows)


def _numbers(steps: tuple[TimelineStep, ...]) -> Table:
    every = max(len(steps) // 20, 1)
    rows = tuple(
        (number(step.start), number(step.duration), f"{len(step.held)}", f"{step.queued}", percent(step.kv_used), step.bound)
        for step in steps[::every]
    )
    return Table(caption="Some of the steps", header=("start", "duration", "slots", "queue", "KV", "bound"), rows=rows, folded=True)


# The lesson in ticks as a document: its figures, and the slots over time.


NAMES = {
    "e2e": "E2E",
    "ttft": "TTFT",
    "itl": "ITL",
    "requests_per_1k_ticks": "requests per 1,000 ticks",
    "tokens_per_1k_ticks": "tokens per 1,000 ticks",
    "final_queue": "queue at the end",
}


def lesson(result: LessonResult) -> Document:
    """The six figures of the course, then a row of letters for each slot."""
    rows = tuple((NAMES[name], ABSENT if value is None else f"{value:g}") for name, value in result.to_json().items())
    table = Table(caption="", header=("in ticks", "value"), rows=rows)
    return Document(title="", subtitle="", sections=(section("figures", "", table), section("slots", "", Lines(text=result.slots_text()))))
