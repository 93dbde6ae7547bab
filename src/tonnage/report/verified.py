"""Running deployments compared with their plan: settings, load and latencies, weeks of traffic,
rehearsals.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tonnage.report.document import (
    Block,
    Command,
    Document,
    Drawing,
    Lines,
    Section,
    Table,
    Text,
    charted,
    document,
    items,
    section,
)
from tonnage.report.drawing.figure import Axis, Plot, Point, Series
from tonnage.report.numbers import ABSENT, between, counted, number, percent, whole

if TYPE_CHECKING:
    from datetime import datetime

    from tonnage.deploy.verify import Folder
    from tonnage.plan.plan import Plan
    from tonnage.watch.deployment_status import AttainedBounds, Latency, Watched
    from tonnage.watch.drift import Today
    from tonnage.watch.settings import Instance, Value
    from tonnage.workload.history_fit import Growth, HistoryFit

LATENCIES = ("ms", "measured", "at this load", "80 % interval", "limit", "slower", "")
WATCHED_LEGEND = (
    "Measured is what the engine publishes: its clock starts when a request reaches it, and a"
    " percentile is read off a histogram, evenly within its bucket. At this load: the plan's"
    " deployment simulated under the present rate and mean lengths, with the 80 % interval of the"
    " prediction (docs/intervals.md)."
)


def watched(look: Watched) -> Document:
    """Report one look at a deployment."""
    advice = () if look.advice is None else (look.advice.text,)
    commands = () if look.advice is None else look.advice.commands
    return document(
        section("load", "", _load(look)),
        section("latencies", "", Table(header=LATENCIES, rows=tuple(map(_row, look.latencies)))),
        section("ttft", "", _ttft(look)),
        section("attained", "", items(tuple(map(_attained, look.attained)), "note")),
        section("verdict", "", items(tuple(_verdict(look)), "warning"), items(advice, "warning")),
        section(
            "commands", "", Lines("\n".join(f"  {line}" for line in commands)) if commands else None
        ),
        section("notes", "", items((WATCHED_LEGEND,), "note")),
        title=f"{_instance(look.plan)}, over {look.present.seconds:.3g} s",
    )


def _instance(plan: Plan) -> str:
    pool = plan.candidates[0].pool
    return f"{pool.model} {pool.precision} on {pool.gpu}, {pool.engine}"


def _load(look: Watched) -> Table:
    p, choice = look.present, look.plan.candidates[0]
    scenario = look.plan.scenario
    counted = choice.sized_rate * choice.instances
    planned = (
        f"peak {number(look.plan.demand.sizing_requests_per_second)}, counts on {number(counted)}"
        f" of {choice.instances}"
    )
    concurrency = choice.concurrency_per_instance
    rows = [
        ("instances that answer", f"{p.answering} of {p.asked}", str(choice.instances)),
        ("requests/s", number(p.requests_per_second), planned),
        ("output tokens/s", number(p.output_tokens_per_second), ""),
        (
            "mean prompt, output tokens",
            f"{number(p.mean_isl)}, {number(p.mean_osl)}",
            f"{number(scenario.mean_isl)}, {number(scenario.mean_osl)}",
        ),
        (
            "requests running",
            number(p.running),
            f"up to {number(concurrency * look.instances)} inside the limits"
            if concurrency
            else "",
        ),
        ("requests waiting", number(p.waiting), ""),
        ("KV cache in use", percent(p.kv_used), ""),
        ("failed requests", _share(p.error_share), ""),
        ("GPUs at work", percent(p.gpu_use), ""),
        ("power of the GPUs W", number(p.gpu_watts), ""),
    ]
    return Table(header=("", "measured", "plan"), rows=(*rows, *_headroom(look)))


def _headroom(look: Watched) -> Iterator[tuple[str, str, str]]:
    lengths = (
        f"{number(look.expected.isl)} in and {number(look.expected.osl)} out, inside the limits"
    )
    yield "carried by them, simulated", f"{number(look.capacity)} requests/s", lengths
    headroom = look.headroom
    yield (
        "headroom",
        ABSENT if headroom is None else f"{headroom:+.0%}".replace("%", " %").replace("-", "−"),
        "of the present load",
    )
    if look.at_measured_speed is not None:
        yield (
            "carried at the measured speed",
            f"{number(look.at_measured_speed * look.instances)} requests/s",
            "every step as measured",
        )


def _row(latency: Latency) -> tuple[str, ...]:
    verdicts = [latency.place] if latency.place else []
    if not math.isnan(latency.limit) and latency.enough:
        verdicts.append("BROKEN" if latency.broken else "holds")
    return (
        f"{latency.metric.upper()} {latency.statistic}",
        number(latency.measured),
        number(latency.predicted),
        between(None if math.isnan(latency.expected[0]) else latency.expected),
        number(latency.limit),
        _share(None if math.isnan(latency.slower) else latency.slower),
        ", ".join(verdicts) or ABSENT,
    )


def _ttft(look: Watched) -> Table | None:
    """Divide the mean TTFT into its parts."""
    rows = tuple(
        (
            part.part,
            number(part.measured_ms),
            number(part.predicted_ms),
            "off" if part.off else "inside",
        )
        for part in look.ttft
    )
    return (
        Table(header=("of the mean TTFT, ms", "measured", "at this load", ""), rows=rows)
        if rows
        else None
    )


def _attained(attained_bounds: AttainedBounds) -> str:
    """Such as "95%: TTFT ≤ 500 ms & TPOT ≤ 50 ms: met by 93.1 to 97.0% of the requests"."""
    return (
        f"{attained_bounds.limits}: met by {100 * attained_bounds.low:.1f} to"
        f" {100 * attained_bounds.high:.1f}% of the requests;"
        " histograms of single metrics say no more."
    )


def _verdict(look: Watched) -> Iterator[str]:
    for latency in look.broken:
        yield (
            f"{latency.metric.upper()} {latency.statistic} is {number(latency.measured)} ms, and"
            f" its limit {number(latency.limit)} ms."
        )
    yield from (
        ttft_part.text[0].upper() + ttft_part.text[1:] for ttft_part in look.ttft if ttft_part.off
    )
    for joint in look.missed:
        yield f"{joint.limits}: at most {joint.high:.1%} of the requests can have met them all."
    if look.uneven:
        even = (
            f"the plan counts on {look.plan.scenario.router}, which shares them evenly among"
            f" {len(look.present.by_instance)}"
        )
        yield f"{', '.join(look.uneven)}; {even}. Look at the router in front."
    missing = look.present.asked - look.present.answering
    if missing:
        yield f"{missing} of {look.present.asked} instances do not answer."
    if look.headroom is not None and look.headroom < 0:
        yield f"The load is above what {look.instances} instances carry inside the limits."
    if not look.present.requests:
        yield "No request ended in this time."


def _share(value: float | None) -> str:
    return ABSENT if value is None else f"{value:.2%}"


LEGEND = (
    "– is not published. vLLM publishes slots, step tokens, chunked prefill, degrees and the number"
    " format where it was started with VLLM_SERVER_DEV_MODE=1; TensorRT-LLM publishes none of its"
    " settings."
)


def verified(
    instances: Sequence[Instance], findings: Sequence[str], load: Watched | None
) -> Document:
    """The settings of every instance, what was measured under load, and the verdict."""
    measured: tuple[Section, ...] = () if load is None else watched(load).sections
    verdict = items(tuple(findings), "warning") if findings else items(("As planned.",), "note")
    return document(
        section("settings", "", _settings(instances), items((LEGEND,), "note")),
        *(section for section in measured if section.key in ("load", "latencies")),
        section("verdict", "", verdict),
        title="Not as planned" if findings else "As planned",
    )


def _settings(instances: Sequence[Instance]) -> Table:
    columns = {
        tuple(
            _shown(instance_setting.running) for instance_setting in instance.settings
        ): instance.url
        for instance in reversed(instances)
    }
    rows = []
    for place, setting in enumerate(instances[0].settings):
        verdict = (
            "DIFFERS" if any(instance.settings[place].off for instance in instances) else ABSENT
        )
        rows.append(
            (setting.name, _shown(setting.planned), *(column[place] for column in columns), verdict)
        )
    names = ("running",) if len(columns) == 1 else tuple(columns.values())
    return Table(header=("setting", "plan", *names, "verdict"), rows=tuple(rows))


def _shown(value: Value) -> str:
    if value is None:
        return ABSENT
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def verified_folder(folder: Folder) -> Document:
    """The parts of a written folder with the source that each was read against, the Secrets that it
    needs, and the verdict.
    """
    rows = tuple((part.file, part.name or ABSENT, part.against) for part in folder.parts)
    needs = items(
        tuple(f"The cluster needs the Secret {secret}." for secret in folder.needs), "note"
    )
    verdict = (
        items(folder.faults, "warning")
        if folder.faults
        else items(("No fault was found.",), "note")
    )
    return document(
        section("files", "", Table(header=("file", "holds", "read against"), rows=rows), needs),
        section("verdict", "", verdict),
        title="Faults in the files" if folder.faults else "The files are in order",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """What happened under load while one instance was killed and stayed down."""

    instances: int  # that were started
    # sent, completed: requests of the whole run
    sent: int
    completed: int
    # failed requests that were in flight when the instance was killed, which had been sent to it
    lost: int
    # failed requests that were sent later: the gateway gave them to an instance that was gone
    lost_after: int
    # each limit of the plan in words, with its value in milliseconds before the kill; None where
    # nothing completed
    limits: tuple[tuple[str, float | None], ...]
    within: bool  # whether every limit held before the kill
    # whether the written rule on missing instances fires for what was seen; None without promtool
    fired: bool | None
    # why the load client's figures cannot be believed; empty where they can
    invalid: tuple[str, ...]

    @property
    def as_planned(self) -> bool:
        """Whether nothing was lost but what ran in the killed instance, the limits held, and the
        alert fires where it could be tried.
        """
        return not self.lost_after and self.within and self.fired is not False and not self.invalid


def rehearsed(rehearsal: Rehearsal) -> Document:
    """Report a rehearsal, with the verdict."""
    limits = tuple(
        (name, ABSENT if value is None else f"{value:,.1f} ms") for name, value in rehearsal.limits
    )
    alert = {
        True: "fires",
        False: "does not fire",
        None: "was not tried: promtool is not installed",
    }[rehearsal.fired]
    facts = (
        f"{rehearsal.instances} instances, one of them killed in the middle of the run.",
        f"{rehearsal.sent:,} requests were sent and {rehearsal.completed:,} completed.",
        (
            f"{rehearsal.lost:,} were lost in the killed instance, and {rehearsal.lost_after:,}"
            " that were sent later."
        ),
        f"The alert on missing instances {alert}.",
    )
    return document(
        section(
            "run",
            "",
            items(facts),
            items(tuple(f"The load client: {reason}" for reason in rehearsal.invalid), "warning"),
        ),
        section("limits", "", Table(header=("limit", "before the kill"), rows=limits)),
        title="As planned" if rehearsal.as_planned else "Not as planned",
    )


DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
NAMES = {
    "load": "busiest hour, requests/s",
    "prompts": "prompts, tokens",
    "outputs": "outputs, tokens",
    "speed": "time per output token, ms",
}
VERBS = {  # where it rose, and where it fell
    "load": ("The load grew", "The load fell"),
    "prompts": ("Prompts grew", "Prompts shrank"),
    "outputs": ("Outputs grew", "Outputs shrank"),
    "speed": ("Steps got slower by", "Steps got faster by"),
}


def fitted_history(
    history_fit: HistoryFit,
    output: Path | None,
    plan: Path | None,
    beside: Today | None,
    *,
    figures: bool,
) -> Document:
    """Report a history: what it says and does not, the systems that it takes, and how to go on."""
    fit: list[Block | None] = []
    if output is not None:
        with_files = f", with {', '.join(sorted(history_fit.files))}" if history_fit.files else ""
        model = "" if history_fit.scenario.model else " --model llama-3.1-8b"
        fit = [
            items((f"Written: {output}{with_files}.",)),
            Command(f'tonnage size {output}{model} --ttft "p95<=500ms"'),
        ]
        if plan is not None:
            fit.append(
                Command(
                    f"tonnage calibrate {output.stem}.hours.csv --plan {plan} --output"
                    " calibrated.json"
                )
            )
    today = () if beside is None else _beside(beside)
    sections = (
        *_history(history_fit, figures=figures),
        *today,
        section("fit", "Scenario" if figures else "", *fit),
    )
    return Document(
        title=f"Traffic: {history_fit.history.source}" if figures else "", sections=sections
    )


def drifted(today: Today, *, figures: bool) -> Document:
    """Report what has changed since a plan, the verdict first."""
    history = (
        _history(today.fit, figures=figures)
        if figures
        else (section("gaps", "", items(today.fit.gaps, "note")),)
    )
    title = f"{_instance(today.plan)}: {_day(today.fit.history.at(0))} to {_day(today.fit.ends)}"
    return document(*_beside(today), *history, title=title)


def _history(history_fit: HistoryFit, *, figures: bool) -> tuple[Section, ...]:
    h = history_fit.history
    first = (
        f"{whole(float(h.requests[h.seen].sum()))} requests in {counted(int(h.seen.sum()), 'hour')}"
        f" from {h.at(0):%Y-%m-%d %H:%M} to {history_fit.ends:%Y-%m-%d %H:%M} UTC,"
        f" {number(history_fit.mean_rps)}/s on average."
    )
    rows = tuple(
        (
            name,
            number(lengths.mean),
            ABSENT if lengths.p95 is None else f"{whole(lengths.p95[0])}–{whole(lengths.p95[1])}",
            lengths.written,
        )
        for name, lengths in (("ISL, tokens", history_fit.isl), ("OSL, tokens", history_fit.osl))
    )
    peak = (
        f"The busiest hour has {number(history_fit.peak_rps)} requests/s; one second in a thousand"
        f" of it has {whole(history_fit.peak_second)} or more."
    )
    watts, running, waiting = (
        None if gauge is None else float(gauge[h.seen].mean())
        for gauge in (h.watts, h.running, h.waiting)
    )
    queue = (
        ""
        if running is None or waiting is None
        else f"{number(running)} requests run and {number(waiting)} wait, on average."
    )
    lines = (
        peak,
        _growth_text(history_fit.growth),
        queue,
        f"The GPUs draw {number(watts)} W on average." if watts else "",
    )
    gaps = tuple(f"Not seen: {line[0].lower()}{line[1:]}" for line in history_fit.gaps)
    return (
        section(
            "traffic",
            "Traffic" if figures else "",
            Text(first, tone="answer"),
            items(h.remarks, "warning"),
            items(lines),
        ),
        section(
            "lengths",
            "Lengths" if figures else "",
            Table(header=("", "mean", "p95 between", "in the scenario"), rows=rows),
        ),
        (
            section("week", "The week", _week(history_fit))
            if figures and history_fit.profile
            else section("week", "")
        ),
        section("gaps", "Not seen" if figures else "", items(gaps, "note")),
    )


def _growth_text(growth: Growth | None) -> str:
    if growth is None:
        return ""
    low, middle, high = (
        _percent(growth.months(rate)) for rate in (growth.low, growth.per_day, growth.high)
    )
    if not growth.significant:
        return f"No growth is seen in {growth.days} days: between {low} and {high} a month."
    return f"Requests change by {middle} a month ({low} to {high}), by {growth.days} days."


def _week(history_fit: HistoryFit) -> Drawing:
    hours = len(history_fit.profile)
    days = [f"{DAYS[i // 24]} " if hours > 24 else " " for i in range(hours)]
    points = tuple(
        Point(float(i), rate, f"{days[i]}{i % 24}:00: {number(rate)}/s")
        for i, rate in enumerate(history_fit.profile)
    )
    rows = (
        (f"{days[i].lstrip()}{i % 24}:00", number(rate))
        for i, rate in enumerate(history_fit.profile)
    )
    x, line = (
        Axis("hour of the week, from Monday" if hours > 24 else "hour of the day"),
        Series("requests/s", points, 0, line=True, marks=False),
    )
    plot = Plot("week", "Requests per second by the hour, UTC", x, Axis("requests/s"), (line,))
    reading = "The mean of the weeks that were seen, at the level of the last one."
    return charted(plot, reading, "Requests per second by the hour", ("hour", "requests/s"), rows)


def _beside(today: Today) -> tuple[Section, ...]:
    rows = tuple(
        (
            NAMES[drift.what],
            number(drift.planned),
            number(drift.now),
            _percent(drift.change),
            f"{drift.systems:+d}".replace("-", "−"),
        )
        for drift in today.drifts
    )
    note = "Systems: how many more each change takes by itself."
    table = Table(header=("", "plan", "now", "change", "systems"), rows=rows, note=note)
    tone = (
        "warning"
        if today.needed > today.systems or any(drift.drifted for drift in today.drifts)
        else "answer"
    )
    return (
        section("verdict", "", Text(verdict(today), tone=tone)),
        section("drift", "", table),
        section("ahead", "", items(tuple(_ahead(today)))),
    )


def verdict(today: Today) -> str:
    """Such as "Prompts grew 31 % since the plan: one system fewer of headroom, breaks on 12 March
    2027".
    """
    changed = [
        f"{VERBS[drift.what][drift.change <= 0]} {abs(drift.change):.0%}".replace("%", " %")
        for drift in today.drifts
        if drift.drifted
    ] or ["Nothing drifted"]
    drifts = (
        ", ".join([changed[0], *(clause[0].lower() + clause[1:] for clause in changed[1:])])
        + " since the plan"
    )
    fewer = (
        f"{counted(abs(today.lost), 'system')} {'fewer' if today.lost > 0 else 'more'} of headroom"
    )
    room = fewer if today.lost else "as much headroom"
    if today.needed > today.systems:
        return (
            f"{drifts}: {room}, and {today.systems} do not carry today's load inside the limits;"
            f" {today.needed} would."
        )
    return f"{drifts}: {room}, {today.needed} of {today.systems} needed{_breaks(today)}."


def _breaks(today: Today) -> str:
    if today.breaks is None or today.breaks[0] is None:
        return ""
    middle, early, late = today.breaks
    between = (
        ""
        if early is None
        else (
            f" ({_day(early)} to {_day(late)})"
            if late is not None
            else f" (from {_day(early)} on, or never)"
        )
    )
    return f", breaks on {_day(middle)}{between}"


def _ahead(today: Today) -> Iterator[str]:
    yield (
        f"The systems carry {number(today.carried)} requests/s inside the limits, with the lengths"
        " and the speed of today."
    )
    if today.ahead is not None:
        middle, low, high = today.ahead.requests_per_second
        need, least, greatest = today.ahead.systems
        yield (
            f"On {_day(today.ahead.date)} the busiest hour has {number(middle)} requests/s"
            f" ({number(low)} to {number(high)}): {counted(need, 'system')} ({least} to"
            f" {greatest})."
        )


def _day(moment: datetime | None) -> str:
    return ABSENT if moment is None else f"{moment.day} {moment:%B %Y}"


def _percent(share: float) -> str:
    return (
        ABSENT if not math.isfinite(share) else f"{share:+.1%}".replace("%", " %").replace("-", "−")
    )
