"""Simulated points as a document: one in full or a sweep in a table, with the definition of every
metric.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tonnage.errors import option
from tonnage.report.document import (
    Document,
    Drawing,
    Facts,
    Lines,
    Table,
    Text,
    document,
    drawing,
    facts_known,
    items,
    section,
)
from tonnage.report.drawing.figure import (
    Axis,
    Bar,
    Bars,
    Figure,
    Gantt,
    Lane,
    Plot,
    Point,
    Segment,
    Series,
    Span,
)
from tonnage.report.numbers import (
    ABSENT,
    STATISTICS,
    between,
    counted,
    number,
    percent,
    sentence_of,
    statistics,
)
from tonnage.report.plans.question import attained_text, in_tokens
from tonnage.report.writers.terminal import plot_text
from tonnage.results.timeline import DECODE, PREFILL, WAITING, Timeline, TimelineStep
from tonnage.spec.workload import ClosedLoop, HourlyArrivals, ModulatedArrivals, OpenLoop
from tonnage.spec.written_numbers import number_of

if TYPE_CHECKING:
    from tonnage.simulator.lesson import LessonResult
    from tonnage.simulator.simulated_run import FleetFacts, SimulatedSweep
    from tonnage.simulator.simulated_run import SimulatedRun as Run


DEFINED = (
    ("TTFT", "ttft_ms"),
    ("ITL", "itl_ms"),
    ("TPOT", "tpot_ms"),
    ("E2E", "e2e_ms"),
    ("requests/s", "requests_per_second"),
    ("tokens/s", "output_tokens_per_second"),
)
GAIN = (
    "what speculative decoding brings: in a closed loop the output tokens/s with it over those"
    " without it; in an open loop the mean E2E without it over that with it"
)
HIT_RATE = (
    "prompt tokens found in the prefix cache when a request first enters, over all prompt tokens"
)
EXPECTED = "80 % interval of the mean"
SWEPT = (
    "load",
    "requests/s",
    "tokens/s",
    "TTFT ms",
    "TTFT p95",
    "ITL p99",
    "TPOT ms",
    "E2E ms",
    "E2E p95",
)
BY_CLASS = (
    "class",
    "requests",
    "rejected",
    "TTFT p50",
    "TTFT p95",
    "TPOT ms",
    "E2E ms",
    "limit ms",
    "within",
)
SPARED = ("E2E p95", "TTFT p95", "tokens/s")


def simulated(runs: SimulatedSweep, *, drawn: bool = False) -> Document:
    """One point in full, or one line for each point of a sweep; ``drawn`` adds the sweep's
    figures.
    """
    from tonnage.results.metrics import DEFINITIONS

    further = (
        ("gain", "" if runs[0].gain is None else GAIN),
        ("hit rate", "" if runs[0].hit_rate is None else HIT_RATE),
    )
    definitions = facts_known((*((label, DEFINITIONS[name]) for label, name in DEFINED), *further))
    blocks = _point(runs[0]) if len(runs) == 1 else (_sweep(runs),)
    changed = tuple(
        Text(line)
        for run in runs
        for line in (*_attained(run, several=len(runs) > 1), *fleet_lines(run.fleet))
    )
    left_out = tuple(
        f"left out: {_settings(settings)}: {reason}" for settings, reason in runs.left_out
    )
    figures = sweep_figures(runs) if drawn else ()
    return document(
        section(
            "result",
            "",
            *blocks,
            *map(_groups, runs),
            _classes(runs),
            *changed,
            items(left_out, "note"),
        ),
        section(
            "figures",
            "Figures" if drawn else "",
            *(Drawing(figure, "", None) for figure in figures),
        ),
        section("equal-lengths", "", items(tuple(_in_step(runs)), "warning")),
        section(
            "marks",
            "",
            items(tuple(dict.fromkeys(mark for run in runs for mark in run.marks)), "note"),
        ),
        section("definitions", "", definitions),
        title=title_of(runs),
    )


def _settings(settings: Mapping[str, str]) -> str:
    """Such as "TP 2, precision fp8"."""
    return ", ".join(f"{_word(name)} {value}" for name, value in settings.items())


def _word(name: str) -> str:
    """Write the name of a setting, such as "TP" or "router"."""
    return name.upper() if len(name) <= len("isl") else name.replace("_", " ")


def _groups(run: Run) -> Table | None:
    if not run.unlike:
        return None
    rows = tuple(
        (str(group), percent(share), *map(number, (ttft.mean, ttft.p95, e2e.mean, e2e.p95)))
        for group, share, ttft, e2e in run.by_group
    )
    return Table(
        caption=_point_name(run),
        header=("instances", "requests", "TTFT ms", "TTFT p95", "E2E ms", "E2E p95"),
        rows=rows,
    )


def _classes(runs: SimulatedSweep) -> Table | None:
    if not runs[0].workload.classes:
        return None
    rows, several = [], len(runs) > 1
    for run in runs:
        for traffic_class in run.classes:
            limit = None if traffic_class.ttft_limit_s is None else 1e3 * traffic_class.ttft_limit_s
            figures = map(
                number,
                (
                    traffic_class.ttft_ms.p50,
                    traffic_class.ttft_ms.p95,
                    traffic_class.tpot_ms.mean,
                    traffic_class.e2e_ms.mean,
                    limit,
                ),
            )
            within = ABSENT if traffic_class.within is None else f"{traffic_class.within:.1%}"
            rows.append(
                (
                    *([_point_name(run)] if several else ()),
                    traffic_class.name,
                    f"{traffic_class.requests:,}",
                    f"{traffic_class.rejected:,}",
                    *figures,
                    within,
                )
            )
    return Table(
        header=(*(("load",) if several else ()), *BY_CLASS),
        rows=tuple(rows),
        spare=("TTFT p50", "E2E ms"),
    )


def title_of(runs: SimulatedSweep) -> str:
    """The simulated deployment; where points differ, all values of a part, such as "FP16/FP8 on 1/2
    × h100-sxm-80gb".

    A part that begins with a comma is there only where it is that of all points.
    """
    parts = [
        [value for value in dict.fromkeys(column) if value]
        for column in zip(*map(_title, runs), strict=True)
    ]
    return "".join(
        "/".join(values)
        for values in parts
        if len(values) == 1 or not any(value.startswith(", ") for value in values)
    )


def _title(run: Run) -> tuple[str, ...]:
    """The parts of a title, which together are that of a single run."""
    d, w = run.deployment, run.workload
    several = run.router and run.instances > 1
    split = f", {d.parallelism}" if len(d.parallelism.degrees) > 1 else ""
    read = f" ({d.model.reading})" if d.model.reading else ""
    read += f" (answers for {d.newer_engine}, newer than every preset)" if d.newer_engine else ""
    where: tuple[str, ...] = (
        " ",
        d.precision.name.upper(),
        " on ",
        f"{d.parallelism.gpus}",
        " × ",
        d.gpu.name,
        split,
        ", ",
        d.engine,
    )
    if run.unlike:
        where = (" on ", " + ".join(map(str, run.unlike)), *("",) * (len(where) - 2))
    return (
        *(d.model.name, *where, read, f", {d.speculation}" if d.speculation is not None else ""),
        *(", ", in_tokens(str(w.isl), w.isl.mean), " tokens in, "),
        *(in_tokens(str(w.osl), w.osl.mean), " out"),
        f"; {w.sessions}" if w.sessions is not None else "",
        *(("; ", f"{run.instances}", " instances, ", run.router) if several else ("",) * 4),
    )


def _load(run: Run) -> str:
    arrivals = run.workload.arrivals
    if isinstance(arrivals, ClosedLoop):
        return counted(arrivals.concurrency, "client")
    if isinstance(arrivals, OpenLoop):
        cap = f", at most {arrivals.in_flight:,} in flight" if arrivals.in_flight else ""
        return f"{arrivals.rate:g}/s, {arrivals.process.replace('poisson', 'Poisson')}{cap}"
    if isinstance(arrivals, ModulatedArrivals):
        return f"{arrivals.rate:.3g}/s on average, of two states"
    if isinstance(arrivals, HourlyArrivals):
        return f"{counted(len(arrivals.hours), 'hour')} at {arrivals.rate:.3g}/s on average"
    return "recorded arrivals"


def _point_name(run: Run) -> str:
    """A point among others: its settings and its load."""
    return ", ".join(filter(None, (_settings(run.settings), _load(run))))


def _point(run: Run) -> tuple[Text, Table]:
    s, expected = run.summary, run.intervals
    rate = f" ({between(expected['requests_s'])})" if "requests_s" in expected else ""
    words = (
        f"{_load(run)}: {number(s.requests_per_second)}{rate} requests/s,"
        f" {number(s.output_tokens_per_second)} output tokens/s"
    )
    gain = "" if run.gain is None else f"; gain {run.gain:.2f}"
    rows = tuple(
        (
            f"{name.upper()} ms",
            *statistics(getattr(s, f"{name}_ms")),
            between(expected.get(f"{name}_ms")),
        )
        for name in ("ttft", "itl", "tpot", "e2e")
    )
    table = Table(header=("", *STATISTICS, EXPECTED), rows=rows, spare=("p90", "p50"))
    cache_words = (
        ""
        if run.hit_rate is None
        else (
            f"; prefix cache: {run.hit_rate:.1%} of the prompt tokens found,"
            f" {run.saved_prompt_tokens:,}"
        )
    )
    refused = s.requests["rejected"]
    why = (
        "as no first token could come in time"
        if run.deployment.knobs.shed
        else "as they exceed the KV cache or the context"
    )
    refusals = (
        f"; {refused:,} of {sum(s.requests.values()):,} requests were rejected, {why}"
        if refused
        else ""
    )
    return Text(words + gain + cache_words + refusals), table


def _sweep(runs: SimulatedSweep) -> Table:
    gain = ("gain",) if runs[0].gain is not None else ()
    gain = gain if runs[0].hit_rate is None else (*gain, "hit rate")
    return Table(
        header=(*map(_word, runs[0].settings), *SWEPT, *gain),
        rows=tuple(map(_swept, runs)),
        spare=SPARED,
    )


def _swept(run: Run) -> tuple[str, ...]:
    s = run.summary
    values = (
        *(
            s.requests_per_second,
            s.output_tokens_per_second,
            s.ttft_ms.mean,
            s.ttft_ms.p95,
            s.itl_ms.p99,
        ),
        *(s.tpot_ms.mean, s.e2e_ms.mean, s.e2e_ms.p95),
    )
    hit_rate = [] if run.hit_rate is None else [f"{run.hit_rate:.1%}"]
    gain = [] if run.gain is None else [f"{run.gain:.2f}"]
    return (*run.settings.values(), _load(run), *map(number, values), *gain, *hit_rate)


PICTURED: Mapping[str, tuple[str, Callable[[Run], float]]] = {
    "Mean TTFT": ("ms", lambda run: run.summary.statistic_ms("ttft", "mean")),
    "Mean TPOT": ("ms", lambda run: run.summary.statistic_ms("tpot", "mean")),
    "Throughput": ("requests/s", lambda run: run.summary.requests_per_second),
    "Throughput per GPU": (
        "requests/s per GPU",
        lambda run: run.summary.requests_per_second / run.gpus,
    ),
}
"""What the figures of a sweep show: title, unit and value."""
WIDE_RANGE = 8.0  # ratio of values from which an axis is logarithmic


def sweep_figures(runs: SimulatedSweep) -> tuple[Figure, ...]:
    """A figure of each of ``PICTURED``: lines over the load, else over the first setting that is a
    number, else bars.
    """
    return tuple(_figure_of(runs, title, unit, value) for title, (unit, value) in PICTURED.items())


def _figure_of(
    runs: SimulatedSweep, title: str, unit: str, value: Callable[[Run], float]
) -> Figure:

    key, along = title.lower().replace(" ", "-"), _along(runs)
    if along is None:
        named = ((_settings(run.settings), value(run)) for run in runs)
        bars = (
            Bar(
                name,
                (Segment(title, high, 0),),
                number(high),
                f"{name}\n{title} {number(high)} {unit}",
            )
            for name, high in named
        )
        return Bars(key, title, Axis(unit), tuple(bars))
    words, place = along
    lines: dict[str, list[Point]] = {}
    for run in sorted(runs, key=place):
        name = (
            _settings({name: text for name, text in run.settings.items() if _word(name) != words})
            or title
        )
        tip = f"{name}\n{words} {place(run):g}\n{title} {number(value(run))} {unit}"
        lines.setdefault(name, []).append(Point(place(run), value(run), tip))
    series = tuple(
        Series(name, tuple(points), tone=tone, line=True)
        for tone, (name, points) in enumerate(lines.items())
    )
    ticks = tuple(sorted({place(run) for run in runs}))
    heights = [value(run) for run in runs]
    x = Axis(
        words,
        log=ticks[-1] / ticks[0] >= WIDE_RANGE,
        ticks=ticks if len(ticks) <= MOST_TICKS else (),
    )
    return Plot(
        key,
        title,
        x,
        Axis(unit, log=min(heights) > 0 and max(heights) / min(heights) >= WIDE_RANGE),
        series,
    )


MOST_TICKS = 8  # values of an axis that are its ticks


def _along(runs: SimulatedSweep) -> tuple[str, Callable[[Run], float]] | None:
    """What a line goes along: the load, where it differs, else the first setting whose values are
    numbers; None where none are.
    """
    if len({_load(run) for run in runs}) > 1:
        closed = isinstance(runs[0].workload.arrivals, ClosedLoop)
        return "clients" if closed else "requests/s sent", _sent
    for name in runs[0].settings:
        values = {
            text: number_of(text) for text in dict.fromkeys(run.settings[name] for run in runs)
        }
        numbers = {text: value for text, value in values.items() if value is not None}
        if len(numbers) == len(values) > 1:
            return _word(name), partial(_numbered, name, numbers)
    return None


def _numbered(name: str, numbers: Mapping[str, float], run: Run) -> float:
    return numbers[run.settings[name]]


def _sent(run: Run) -> float:
    """The clients of a closed loop, or the requests per second of an open one."""
    arrivals = run.workload.arrivals
    return arrivals.concurrency if isinstance(arrivals, ClosedLoop) else arrivals.rate


def _attained(run: Run, *, several: bool) -> Iterator[str]:
    """A line of goodput inside the limits, and one for each joint attainment, of the classes
    too.
    """
    load = f"{_point_name(run)}: " if several else ""
    yield from (f"{load}{attained_text(attainment)}" for attainment in run.attained)
    yield from (
        f"{load}{traffic_class.name}, {attained_text(attainment)}"
        for traffic_class in run.classes
        for attainment in traffic_class.attained
    )


def _in_step(runs: SimulatedSweep) -> Iterator[str]:
    """A remark on each point whose p95 TTFT is decided by equal lengths."""
    for run in runs:
        equal_lengths, w = run.equal_lengths, run.workload
        if equal_lengths is None:
            continue
        within, load = (
            f"±{100 * equal_lengths.share:g} %",
            f"{_point_name(run)}: " if len(runs) > 1 else "",
        )
        typed = " ".join(
            f"{option(name)} {lengths.within(equal_lengths.share)}"
            for name, lengths in (("isl", w.isl), ("osl", w.osl))
        )
        first = (
            f" of the first {equal_lengths.requests:,} requests"
            if equal_lengths.requests < w.requests
            else ""
        )
        yield sentence_of(
            f"{load}requests of equal length fall into step: with lengths within {within} ({typed})"
            f" TTFT p95{first} is {number(equal_lengths.varied_ttft_p95_ms)} ms in place of"
            f" {number(equal_lengths.ttft_p95_ms)} ms"
        )


def fleet_lines(facts: FleetFacts | None) -> Iterator[str]:
    """A line on failures, one on instance-hours, and one for each limit."""
    if facts is None:
        return
    if facts.failures or facts.availability < 1:
        yield (
            f"{counted(facts.failures, 'failure')}: instances worked {100 * facts.availability:.3f}"
            f" % of the time; {counted(facts.retried, 'request')} sent again, {facts.lost:,} lost"
        )
    if facts.restarts:
        yield (
            f"{counted(facts.restarts, 'restart')} between seasons:"
            f" {counted(facts.retried, 'request')} sent again, {facts.lost:,} lost"
        )
    if facts.serving_mean is not None and facts.serving_most is not None:
        yield (
            f"{number(facts.instance_hours)} instance-hours; {facts.serving_mean:.2f} instances"
            f" served on average, at most {facts.serving_most:,}"
        )
    for violation in facts.violations:
        hours = (
            f"broken in {violation.broken_hours:,} of {counted(violation.hours, 'hour')}"
            if violation.hours > 1
            else "broken"
            if violation.broken_hours
            else "held"
        )
        yield (
            f"{violation.limit}: {hours}; {100 * violation.share:.3g} % of the requests took longer"
            " or were lost"
        )


def swept(points: int, done: int, left_out: Mapping[str, str], folder: Path) -> Document:
    """Count the points and the newly simulated ones, and name the impossible ones."""
    words = (
        f"{counted(points, 'point')} in {folder}: {done} simulated now, {points - done} were there."
    )
    lines = items(tuple(f"left out: {name}: {reason}" for name, reason in left_out.items()), "note")
    return document(section("sweep", "", Text(words), lines))


TONES = {PREFILL: 1, DECODE: 0, WAITING: 2}
# what a picture holds: beyond that nobody sees a slot or a step any more
MOST_LANES, MOST_STEPS, MOST_POINTS = 64, 2_000, 400


def timeline_page(timeline: Timeline, title: str) -> Document:
    """The picture of the first steps, and how often what bound a step."""
    steps = timeline.steps[:MOST_STEPS]
    undrawn = timeline.left + len(timeline.steps) - len(steps)
    shown = (
        f"The first {len(steps):,} steps; {undrawn:,} more are not drawn."
        if undrawn
        else f"All {counted(len(steps), 'step')}."
    )
    axis = Axis("seconds" if timeline.unit == "s" else "ticks")
    return document(
        section(
            "slots",
            "Slots",
            Text(shown),
            drawing(_slots(steps, axis), "A lane for each slot.", _bounds(steps)),
        ),
        section(
            "queue",
            "Queue and KV cache",
            drawing(_queue(steps, axis), "At the beginning of each step.", _numbers(steps)),
        ),
        title=title,
    )


def _slots(steps: tuple[TimelineStep, ...], axis: Axis) -> Gantt:

    spans: dict[int, list[Span]] = {}
    requests_by_slot: dict[int, list[str]] = {}
    for step in steps:
        end = step.start + step.duration
        for occupant in step.held:
            lane = spans.setdefault(occupant.slot, [])
            if (
                lane
                and lane[-1].name == occupant.state
                and abs(lane[-1].end - step.start) < 1e-12
                and requests_by_slot[occupant.slot][-1] == str(occupant.request)
            ):
                lane[-1] = Span(occupant.state, lane[-1].start, end, TONES[occupant.state])
            else:
                lane.append(Span(occupant.state, step.start, end, TONES[occupant.state]))
                requests_by_slot.setdefault(occupant.slot, []).append(str(occupant.request))
    lanes = tuple(
        Lane(
            f"slot {slot + 1}",
            tuple(spans[slot]),
            f"slot {slot + 1}\nrequests {', '.join(dict.fromkeys(requests_by_slot[slot]))[:80]}",
        )
        for slot in sorted(spans)[:MOST_LANES]
    )
    return Gantt(
        "slots", "Which slot did what", axis, start=steps[0].start if steps else 0.0, lanes=lanes
    )


def _queue(steps: tuple[TimelineStep, ...], axis: Axis) -> Plot:

    stride = max(len(steps) // MOST_POINTS, 1)
    timeline_steps = steps[::stride]
    queue = tuple(
        Point(step.start, float(step.queued), f"{step.queued} wait") for step in timeline_steps
    )
    cache = tuple(
        Point(step.start, 100 * step.kv_used, f"{percent(step.kv_used)} of the KV cache")
        for step in timeline_steps
    )
    series = [Series("requests in the queue", queue, tone=0, line=True, marks=False)]
    if any(step.kv_used for step in timeline_steps):
        series.append(Series("KV cache in use, %", cache, tone=1, line=True, marks=False))
    return Plot("queue", "Queue and KV cache over time", axis, Axis("requests, %"), tuple(series))


def _bounds(steps: tuple[TimelineStep, ...]) -> Table:
    counts = Counter(step.bound for step in steps)
    rows = tuple(
        (bound, f"{count:,}", percent(count / len(steps))) for bound, count in counts.most_common()
    )
    return Table(
        caption="What kept more from being in a step", header=("bound", "steps", "share"), rows=rows
    )


def _numbers(steps: tuple[TimelineStep, ...]) -> Table:
    stride = max(len(steps) // 20, 1)
    rows = tuple(
        (
            number(step.start),
            number(step.duration),
            f"{len(step.held)}",
            f"{step.queued}",
            percent(step.kv_used),
            step.bound,
        )
        for step in steps[::stride]
    )
    return Table(
        caption="Some of the steps",
        header=("start", "duration", "slots", "queue", "KV", "bound"),
        rows=rows,
        folded=True,
    )


NAMES = {
    "e2e": "E2E",
    "ttft": "TTFT",
    "itl": "ITL",
    "requests_per_1k_ticks": "requests per 1,000 ticks",
    "tokens_per_1k_ticks": "tokens per 1,000 ticks",
    "final_queue": "queue at the end",
    "busy_slots": "busy slots",
    "useful_work": "useful work",
}
SHARES = ("busy_slots", "useful_work")
TICKS = dict.fromkeys(("e2e", "ttft", "itl"), ", mean ticks")


def lesson(result: LessonResult) -> Document:
    """The six figures of the course, then a row of letters for each slot."""
    rows = tuple((NAMES[name], _figure(name, value)) for name, value in result.to_json().items())
    table = Table(header=("in ticks", "value"), rows=rows)
    return document(section("figures", "", table), section("slots", "", Lines(result.slots_text())))


MOST_TICKS = 100  # of a lesson that are drawn: more are too narrow to see
READ_SLOTS = (
    "A lane for each slot: a step lasts as long as the prefills in it, and a decode next to them"
    " waits for its end."
)


def lesson_page(result: LessonResult) -> Document:
    """Report the lesson for a page that has room: the figures in tiles, the slots drawn."""
    rows = tuple(
        (f"{NAMES[name]}{TICKS.get(name, '')}", _figure(name, value))
        for name, value in result.to_json().items()
    )
    return document(
        section("figures", "", Facts(rows, big=True)),
        section("slots", "Slots over ticks", Drawing(lesson_slots({"": result}), READ_SLOTS, None)),
        section("letters", "The same in letters", Lines(result.slots_text())),
    )


def lesson_slots(results: Mapping[str, LessonResult]) -> Gantt:
    """The slots of lessons over the same ticks, the lessons one above the other, each under its
    name.
    """
    lanes: list[Lane] = []
    for name, result in results.items():
        lanes += [Lane("", (), "")] if lanes else []
        for slot in range(min(len(result.steps[0].slots), MOST_LANES)):
            title = f"{name or 'slot'} {slot + 1}"
            lanes.append(
                Lane(
                    title,
                    tuple(_stays(result, slot)),
                    f"{title}\n{percent(result.busy_slots)} of all slots busy",
                )
            )
    return Gantt("slots", "Which slot did what", Axis("ticks"), start=0.0, lanes=tuple(lanes))


def _stays(result: LessonResult, slot: int) -> Iterator[Span]:
    """What a slot did in each step; of a long one that decodes the first tick, and then the wait
    for its end.
    """
    for step in result.steps:
        end = min(step.start + step.duration, MOST_TICKS)
        decoded = min(step.start + 1, end)
        if step.start >= MOST_TICKS:
            return
        if step.slots[slot] == "P":
            yield Span("prefill", step.start, end, 1)
        elif step.slots[slot] == ".":
            yield Span("empty", step.start, end, 5, faint=True)
        else:
            yield Span("decode, a token", step.start, decoded, 0)
            if end > decoded:
                yield Span("decode, held up by a longer step", decoded, end, 0, faint=True)


def _figure(name: str, value: float | int | None) -> str:
    return ABSENT if value is None else percent(value) if name in SHARES else f"{value:g}"


def lesson_sweep(
    setting: str, values: Sequence[float], results: Sequence[LessonResult], *, drawn: bool = False
) -> Document:
    """A row of figures for each value of a setting, and two plots over it: of characters, or
    ``drawn``.
    """
    words = setting.replace("_", " ")
    rows = tuple(
        (f"{value:g}", *(_figure(name, figure) for name, figure in lesson_result.to_json().items()))
        for value, lesson_result in zip(values, results, strict=True)
    )
    header = (
        words,
        "E2E",
        "TTFT",
        "ITL",
        "requests/1k",
        "tokens/1k",
        "queue",
        "busy slots",
        "useful work",
    )
    plots = [
        _over(words, values, results, title, names)
        for title, names in (
            ("ticks", ("e2e", "ttft", "itl")),
            ("per 1,000 ticks", ("requests_per_1k_ticks",)),
        )
    ]
    shown = [Drawing(plot, "", None) if drawn else Lines(plot_text(plot, 80)) for plot in plots]
    return document(
        section("figures", "", Table(header=header, rows=rows), *shown),
        title=f"The lesson over {words}" if drawn else "",
    )


def _over(
    words: str,
    values: Sequence[float],
    results: Sequence[LessonResult],
    title: str,
    names: Sequence[str],
) -> Plot:

    series = []
    for tone, name in enumerate(names):
        figures = [
            (value, lesson_result.to_json()[name])
            for value, lesson_result in zip(values, results, strict=True)
        ]
        points = tuple(
            Point(value, float(figure), "") for value, figure in figures if figure is not None
        )
        series.append(Series(NAMES[name], points, tone=tone, line=True))
    return Plot(title, title, Axis(words), Axis(title), tuple(series))
