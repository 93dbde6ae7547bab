"""How sure a number of systems is, in words: the probability, what no number of systems reaches,
and the fleet that was simulated.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence

from tonnage.plan.candidate import Candidate, Confidence, percent_key
from tonnage.plan.fleet import FleetCheck
from tonnage.plan.limit import Limit
from tonnage.plan.plan import Plan
from tonnage.plan.sensitivity import (
    CALIBRATED,
    PLAN,
    Beyond,
    ClosedLoopNearSaturation,
    Measurement,
    OpenLoopNearSaturation,
    OutOfRange,
    Unmeasured,
    Unreached,
)
from tonnage.report.document import Command, Section, Table, Text, section
from tonnage.report.numbers import ABSENT, counted, dollars, number, percent, span, whole
from tonnage.report.plans.deployments import unlike
from tonnage.report.plans.question import alone_text, breach_text, value_text

# beyond these a chance is not written as a number: held-out errors do not know that much
SUREST, LEAST_SURE = 0.99, 0.01


def chance_text(share: float | None) -> str:
    """A probability in whole per cent, never rounded up: "94%", "over 99%"; "–" where it was not
    looked for.
    """
    if share is None:
        return ABSENT
    if share > SUREST:
        return "over 99%"
    return f"{math.floor(100 * share + 1e-6)}%" if share >= LEAST_SURE else "under 1%"


def confidence_text(plan: Plan) -> str:
    """The probability that the chosen systems meet the limits, and how many each confidence takes;
    "" where nothing was predicted.
    """
    best = plan.choice
    if best is None or best.confidence is None:
        return ""
    sure, tail = best.confidence, plan.tail
    text = (
        f"{chance_text(sure.meets)} probability of meeting the limits ({_share(sure.asked)} asked)"
    )
    if tail is None or not sure.reached:
        return f"{text}; systems for {by_confidence(sure)}"
    return (
        f"{text}; systems for {by_confidence(sure, below=tail.confidence)}; no number of them"
        f" reaches {_tail_text(best, tail)}"
    )


def by_confidence(confidence: Confidence, below: float = 1.0) -> str:
    """The systems at each confidence under ``below``: "50%: 2, 80%: 2, 95%: 3"."""
    counts = [
        (name, count) for name, count in confidence.systems.items() if float(name) < 100 * below
    ]
    return ", ".join(
        f"{name}%: {'none' if count is None else f'{count:,}'}" for name, count in counts
    )


def counted_text(best: Candidate) -> str:
    """How sure the load that the answer counts on makes it: ", to be 80% sure"; "" where nothing
    was predicted, or nothing is reached.
    """
    counted = None if best.confidence is None else best.confidence.counted
    return "" if counted is None else f", to be {_share(counted)} sure"


def not_sure_text(plan: Plan) -> str:
    """That no deployment reaches the asked confidence, and what would; "" where the choice does, or
    nothing was predicted.
    """
    best = plan.choice
    if best is None or best.confidence is None or best.confidence.reached:
        return ""
    if plan.tail is None:
        return f"Nothing that was asked for reaches {_share(best.confidence.asked)}"
    who = "Nothing that was asked for" if plan.tail.other is None else "No number of these systems"
    return f"{who} reaches {_tail_text(best, plan.tail)}"


def _tail_text(best: Candidate, tail: Unreached) -> str:
    """The confidence, why it is not reached, and what reaches it: "95%: with steps 38% slower, TPOT
    p95 61.2 ms > 50 ms at any load; …".
    """
    other_systems, relaxed, alone = tail.other, tail.relaxed, tail.alone
    text = f"{_share(tail.confidence)}: with steps {percent(tail.step_factor - 1)} slower"
    if alone is not None:
        text += f", {alone_text(alone)}"
    would = []
    if other_systems is not None:
        name = unlike(best, other_systems.deployment)
        would.append(
            f"{name} reaches it with {other_systems.systems:,} × {other_systems.system}"
            f" ({counted(other_systems.gpus, 'GPU')})"
        )
    if relaxed is not None:
        to, reaches = (
            _looser(relaxed.limit, relaxed.to_ms, "a limit of"),
            "" if would else " reaches it",
        )
        would.append(
            f"{to}{reaches} with {relaxed.systems:,} × {relaxed.system}"
            f" ({counted(relaxed.gpus, 'GPU')})"
        )
    if not would and alone is not None and alone.broken and alone.value_ms is not None:
        would.append(f"it takes {_looser(alone.limit, alone.value_ms, 'a limit above')}")
    return text + "".join(
        f"{joint}{remedy}" for joint, remedy in zip(("; ", ", "), would, strict=False)
    )


def _looser(limit: Limit, value_ms: float, metric: str) -> str:
    """Such as "a limit of 612 ms", or of joint attainment "limits 1.2 times as long"."""
    return (
        f"{metric} {value_text(limit, value_ms)}"
        if limit.share is None
        else f"limits {number(value_ms / 1e3)} times as long"
    )


def _share(share: float) -> str:
    return f"{100 * share:.4g}%"


def fleet_check_text(check: FleetCheck) -> str:
    """The verdict, such as "4 instances on 2 systems, simulated together, meet every limit"."""
    first, systems = check.runs[0], check.systems
    shown = (
        f"{first.simulated_instances:,} of " if first.instances > first.simulated_instances else ""
    )
    alone = first.instances == 1
    fleet = (
        f"{shown}{counted(first.instances, 'instance')} on {counted(first.systems, 'system')},"
        f" simulated{'' if alone else ' together'}"
    )
    meets, breaks = ("meets", "breaks") if alone else ("meet", "break")
    if systems > check.by_division:
        broken = "" if first.worst is None else breach_text(first.worst)
        return (
            f"{fleet}, {breaks} a limit ({broken}); {counted(systems, 'system')} meet all of them,"
            " and the plan takes these"
        )
    return f"{fleet}, {meets} every limit"


MOST = 199  # letters of the line at most

# the largest factor that is written as a number: beyond it the queue grows as long as the load
# lasts
MANY = 10

PARTS = {
    "architecture": "the layout of {}",
    "model": "{}",
    "gpu": "{}",
    "engine": "{}",
    "layers": "{} in {}",
    "ranks": "{} in {}",
    "format": "{} weights",
    "step-times": "the step times of {}",
    "pipeline": "pipelines ({})",
    "speculation": "speculative decoding",
    "prefix-caching": "prompts from a cache",
    "adapters": "LoRA adapters",
    "images": "images",
}
RANGES = {
    "isl": "prompts of {} tokens",
    "osl": "answers of {} tokens",
    "context": "prompts with answers of {} tokens",
    "in-flight": "{} requests in flight",
    "gpus": "instances of {} GPUs",
}
TAILS = {"isl": "prompts", "osl": "answers"}


def beyond_text(items: Sequence[Beyond]) -> str:
    """Such as "not measured: kimi-k3 (nearest: kimi-k2.5), prompts of 100,000 tokens (up to
    8,192)"; "" where there is no item.

    It has ``MOST`` letters at most: the measured kinds are left out first, and then the last things
    that were not.
    """
    absent = [item for item in items if isinstance(item, Unmeasured | OutOfRange)]
    busy = next(
        (
            _busy(item)
            for item in items
            if isinstance(item, OpenLoopNearSaturation | ClosedLoopNearSaturation)
        ),
        "",
    )
    lines = [_absents(absent, len(absent), brief=False)]
    lines += [_absents(absent, count, brief=True) for count in range(len(absent), -1, -1)]
    joined = ("; ".join(filter(None, (line, busy))) for line in lines)
    return next(line for line in joined if len(line) <= MOST)


def _absents(items: Sequence[Unmeasured | OutOfRange], count: int, *, brief: bool) -> str:
    """The first so many items, and how many more there are; "" where there is none."""
    left_out = len(items) - count
    named = [_absent(item, brief=brief) for item in items[:count]]
    more = [f"and {left_out} more" if named else f"{left_out} things"] if left_out else []
    return "not measured: " + ", ".join((*named, *more)) if items else ""


def _absent(reason: Unmeasured | OutOfRange, *, brief: bool) -> str:
    """One item, with what is nearest unless it must be ``brief``."""
    if isinstance(reason, OutOfRange):
        value, shorter = (
            f"{reason.value:,.0f}",
            reason.least is not None and reason.value < reason.least,
        )
        what = (
            f"1 in 20 {TAILS[reason.code]} above {value} tokens"
            if reason.tail and reason.code in TAILS
            else RANGES[reason.code].format(value)
        )
        nearest = f"from {whole(reason.least)} on" if shorter else f"up to {whole(reason.most)}"
    else:
        on = (
            f"{reason.name} on {reason.on}"
            if reason.code == "engine" and reason.on
            else PARTS[reason.code].format(reason.name, reason.on)
        )
        what = on + ("" if reason.bits is None else f" in {reason.bits} bits")
        rows = f"only {counted(reason.rows, 'row')}" if reason.rows else ""
        none = (
            "nor any of its generation"
            if reason.code == "gpu" and not reason.nearest and not reason.rows
            else ""
        )
        nearest = ", ".join(
            filter(None, (rows, none, reason.nearest and f"nearest: {reason.nearest}"))
        )
    return what if brief or not nearest else f"{what} ({nearest})"


def _busy(load: OpenLoopNearSaturation | ClosedLoopNearSaturation) -> str:
    """State what a typical error does, or how large errors are, so near saturation."""
    at, below = f"at {percent(load.share)} of saturation", percent(load.below)
    if isinstance(load, OpenLoopNearSaturation):
        times = number(load.times, 2) if load.times <= MANY else f"more than {MANY}"
        return (
            f"{at} a typical error of step times multiplies p95 TTFT by {times} (by"
            f" {number(load.times_below, 2)} at {below})"
        )
    return f"{at} errors of p95 TTFT are {number(load.times, 2)} × those below {below}"


TITLE = "What a measurement would buy"


def measurement_text(measurement: Measurement | None) -> str:
    """The number of systems with its interval, before and after, and what that saves; "" where a
    measurement would not narrow it.

    Such as "10 points (20 min of one system) would narrow 10 systems (9 to 11) to 9 (9 to 10); on
    average 0.6 fewer, 89,300 USD a year".
    """
    if measurement is None or not measurement.narrows:
        return ""
    minutes = _whole_minutes(measurement.seconds)
    effort = f"{measurement.points} points ({span(minutes)} of one system) would narrow"
    now, after = (
        _interval(measurement.systems, measurement.confidence),
        _interval(measurement.after, measurement.confidence),
    )
    year = (
        ""
        if measurement.saved_usd_per_year is None
        else f", {dollars(measurement.saved_usd_per_year)} USD a year"
    )
    saved = (
        f"; on average {number(measurement.saved_systems, 2)} fewer{year}"
        if measurement.gains
        else ""
    )
    return f"{effort} {now} to {after.replace(' systems', '').replace(' system', '')}{saved}"


def _interval(systems: dict[str, int | None], confidence: float) -> str:
    """Such as "10 systems (9 to 11)": at the asked confidence, and from 50 to 95 %."""
    low, count, high = (systems.get(key) for key in ("50", percent_key(confidence), "95"))
    ends = f"{'none' if low is None else f'{low:,}'} to {'…' if high is None else f'{high:,}'}"
    return f"{'no number' if count is None else counted(count, 'system')} ({ends})"


def _whole_minutes(seconds: float) -> float:
    return round(seconds / 60) * 60.0


def measurement_section(plan: Plan) -> Section:
    """The numbers at each confidence before and after, and the commands; empty where a measurement
    would not narrow them.
    """
    measurement = plan.measurement
    if measurement is None or not measurement.narrows:
        return section("measurement", TITLE)
    rows = tuple(
        (
            f"{level} %",
            *(
                ABSENT if count is None else f"{count:,}"
                for count in (measurement.systems[level], measurement.after[level])
            ),
        )
        for level in measurement.systems
    )
    caption = (
        "Systems for each confidence, now and after the calibration if steps take as long as"
        " predicted"
    )
    paid = "" if measurement.usd is None else f" That costs {dollars(measurement.usd)} USD."
    mean = measurement.expected_systems
    counted_on = (
        "" if mean is None else f" On average over what it may find the answer is {number(mean)}."
    )
    words = (
        f"The {measurement.points} loads below were chosen one by one, each as the one that tells"
        " most about the deciding prediction. One system takes"
        f" {span(_whole_minutes(measurement.seconds))} for them.{paid}{counted_on} Start one"
        " instance of the choice as the plan says, measure, calibrate, and size again with"
        f" --coefficients {CALIBRATED}; {PLAN} is this plan."
    )
    commands = (Command(shlex.join(argv)) for argv in (*measurement.bench, measurement.calibrate))
    return section(
        "measurement",
        TITLE,
        Table(caption=caption, header=("confidence", "now", "after"), rows=rows),
        Text(words),
        *commands,
    )
