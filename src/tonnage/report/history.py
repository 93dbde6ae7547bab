"""A history of a deployment as a document: its week, its lengths, its growth; and what changed since its plan, with a verdict."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tonnage.report.document import Command, Document, Drawing, Section, Table, Text, items, section
from tonnage.report.drawing.figure import Axis, Plot, Point, Series
from tonnage.report.numbers import ABSENT, counted, number, whole
from tonnage.spec.scenario import Scenario

if TYPE_CHECKING:
    from datetime import datetime

    from tonnage.watch.drift import Drift, Today
    from tonnage.workload.history_fit import Growth, HistoryFit

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
NAMES = {
    "load": "busiest hour, requests/s",
    "prompts": "prompts, tokens",
    "outputs": "outputs, tokens",
    "speed": "time per output token, ms",
}
VERBS = {
    "load": ("The load grew", "The load fell"),
    "prompts": ("Prompts grew", "Prompts shrank"),
    "outputs": ("Outputs grew", "Outputs shrank"),
    "speed": ("Steps got slower by", "Steps got faster by"),
}


def fitted_history(found: HistoryFit, output: Path | None, plan: Path | None, beside: Today | None, *, figures: bool) -> Document:
    """What a history says, what it does not, the systems that it takes, and how to go on."""
    files = sorted(found.files)
    written = None
    if output is not None:
        with_files = f", with {', '.join(files)}" if files else ""
        written = items((f"Written: {output}{with_files}.",))
    command = Command(text=f"tonnage size {output}{_open_flags(found.scenario)}") if output is not None else None
    points = f"{output.stem}.hours.csv" if output is not None else ""
    calibrate = (
        Command(text=f"tonnage calibrate {points} --plan {plan} --output calibrated.json")
        if output is not None and plan is not None
        else None
    )
    return Document(
        title=f"Traffic: {found.history.source}" if figures else "",
        subtitle="",
        sections=(
            *_history(found, figures=figures),
            *(() if beside is None else _beside(beside)),
            section("fit", "Scenario" if figures else "", written, command, calibrate),
        ),
    )


def drifted(found: Today, *, figures: bool) -> Document:
    """What changed since a plan, the verdict first."""
    history = _history(found.fit, figures=figures) if figures else (section("gaps", "", items(found.fit.gaps, "note")),)
    pool = found.plan.candidates[0].pool
    title = f"{pool.model} {pool.precision} on {pool.gpu}, {pool.engine}: {_day(found.fit.history.at(0))} to {_day(found.fit.ends)}"
    return Document(title=title, subtitle="", sections=(*_beside(found), *history))


def _open_flags(scenario: Scenario) -> str:
    model = "" if scenario.model else " --model llama-3.1-8b"
    return f'{model} --ttft "p95<=500ms"'


def _history(found: HistoryFit, *, figures: bool) -> tuple[Section, ...]:
    h = found.history
    first = (
        f"{whole(float(h.requests[h.seen].sum()))} requests in {counted(int(h.seen.sum()), 'hour')} from {h.at(0):%Y-%m-%d %H:%M} to "
        f"{found.ends:%Y-%m-%d %H:%M} UTC, {number(found.mean_rps)}/s on average."
    )
    rows = tuple(
        (name, number(one.mean), ABSENT if one.p95 is None else f"{whole(one.p95[0])}–{whole(one.p95[1])}", one.written)
        for name, one in (("ISL, tokens", found.isl), ("OSL, tokens", found.osl))
    )
    peak = (
        f"The busiest hour has {number(found.peak_rps)} requests/s; one second in a thousand of it has {whole(found.peak_second)} or more."
    )
    watts, running, waiting = (None if one is None else float(one[h.seen].mean()) for one in (h.watts, h.running, h.waiting))
    queue = "" if running is None or waiting is None else f"{number(running)} requests run and {number(waiting)} wait, on average."
    lines = (peak, _growth_text(found.growth), queue, f"The GPUs draw {number(watts)} W on average." if watts else "")
    return (
        section("traffic", "Traffic" if figures else "", Text(text=first, tone="answer"), items(lines)),
        section(
            "lengths", "Lengths" if figures else "", Table(caption="", header=("", "mean", "p95 between", "in the scenario"), rows=rows)
        ),
        section("week", "The week", _week(found)) if figures and found.profile else section("week", ""),
        section(
            "gaps", "Not seen" if figures else "", items(tuple(f"Not seen: {line[0].lower()}{line[1:]}" for line in found.gaps), "note")
        ),
    )


def _growth_text(growth: Growth | None) -> str:
    if growth is None:
        return ""
    low, middle, high = (_percent(growth.months(one)) for one in (growth.low, growth.per_day, growth.high))
    if not growth.significant:
        return f"No growth is seen in {growth.days} days: between {low} and {high} a month."
    return f"Requests change by {middle} a month ({low} to {high}), by {growth.days} days."


def _week(found: HistoryFit) -> Drawing:
    hours = len(found.profile)
    points = tuple(
        Point(x=float(i), y=one, tip=f"{DAYS[i // 24] if hours > 24 else ''} {i % 24}:00: {number(one)}/s")
        for i, one in enumerate(found.profile)
    )
    rows = tuple((f"{DAYS[i // 24]} {i % 24}:00" if hours > 24 else f"{i}:00", number(one)) for i, one in enumerate(found.profile))
    return Drawing(
        figure=Plot(
            key="week",
            title="Requests per second by the hour, UTC",
            x=Axis(title="hour of the week, from Monday" if hours > 24 else "hour of the day"),
            y=Axis(title="requests/s"),
            series=(Series(name="requests/s", points=points, tone=0, line=True, marks=False),),
        ),
        reading="The mean of the weeks that were seen, at the level of the last one.",
        numbers=Table(caption="Requests per second by the hour", header=("hour", "requests/s"), rows=rows, folded=True),
    )


def _beside(found: Today) -> tuple[Section, ...]:
    rows = tuple(
        (NAMES[one.what], number(one.planned), number(one.now), _percent(one.change), f"{one.systems:+d}".replace("-", "−"))
        for one in found.drifts
    )
    table = Table(
        caption="", header=("", "plan", "now", "change", "systems"), rows=rows, note="Systems: how many more each change takes by itself."
    )
    tone = "warning" if found.needed > found.systems or any(one.drifted for one in found.drifts) else "answer"
    return (
        section("verdict", "", Text(text=verdict(found), tone=tone)),
        section("drift", "", table),
        section("ahead", "", items(tuple(_ahead(found)))),
    )


def verdict(found: Today) -> str:
    """Such as "Prompts grew 31 % since the plan: one system fewer of headroom, breaks on 12 March 2027"."""
    changed = [_drift_text(one) for one in found.drifts if one.drifted]
    said = (
        ", ".join([changed[0], *(one[0].lower() + one[1:] for one in changed[1:])]) + " since the plan"
        if changed
        else "Nothing drifted since the plan"
    )
    room = (
        "as much headroom"
        if not found.lost
        else f"{counted(abs(found.lost), 'system')} {'fewer' if found.lost > 0 else 'more'} of headroom"
    )
    if found.needed > found.systems:
        return f"{said}: {room}, and {found.systems} do not carry today's load inside the limits; {found.needed} would."
    return f"{said}: {room}, {found.needed} of {found.systems} needed{_breaks(found)}."


def _breaks(found: Today) -> str:
    if found.breaks is None or found.breaks[0] is None:
        return ""
    middle, early, late = found.breaks
    between = "" if early is None else f" ({_day(early)} to {_day(late)})" if late is not None else f" (from {_day(early)} on, or never)"
    return f", breaks on {_day(middle)}{between}"


def _drift_text(one: Drift) -> str:
    grew, shrank = VERBS[one.what]
    return f"{grew if one.change > 0 else shrank} {abs(one.change):.0%}".replace("%", " %")


def _ahead(found: Today) -> Iterator[str]:
    yield f"The systems carry {number(found.carried)} requests/s inside the limits, with the lengths and the speed of today."
    if found.ahead is not None:
        middle, low, high = found.ahead.requests_per_second
        need, least, most = found.ahead.systems
        yield (
            f"On {_day(found.ahead.date)} the busiest hour has {number(middle)} requests/s ({number(low)} to {number(high)}): "
            f"{counted(need, 'system')} ({least} to {most})."
        )


def _day(moment: datetime | None) -> str:
    return ABSENT if moment is None else f"{moment.day} {moment:%B %Y}"


def _percent(share: float) -> str:
    return ABSENT if not math.isfinite(share) else f"{share:+.1%}".replace("%", " %").replace("-", "−")
