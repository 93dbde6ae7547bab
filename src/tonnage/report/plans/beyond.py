"""Where a question leaves what was measured, in one line."""

from __future__ import annotations

from collections.abc import Sequence

from tonnage.plan.provenance import Beyond, ClosedLoopNearSaturation, OpenLoopNearSaturation, OutOfRange, Unmeasured
from tonnage.report.numbers import counted, number, percent, whole

MOST = 199
"""Letters of the line at most."""

MANY = 10
"""The largest factor that is written as a number: beyond it the queue grows as long as the load lasts."""

PARTS = {
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
    """Such as "not measured: kimi-k3 (nearest: kimi-k2.5), prompts of 100,000 tokens (up to 8,192)"; "" where there is no item.

    It has ``MOST`` letters at most: what was measured instead is left out first, and then the last things that were not.
    """
    absent = [one for one in items if isinstance(one, Unmeasured | OutOfRange)]
    busy = next((_busy(one) for one in items if isinstance(one, OpenLoopNearSaturation | ClosedLoopNearSaturation)), "")
    lines = [_absents(absent, len(absent), brief=False)]
    lines += [_absents(absent, count, brief=True) for count in range(len(absent), -1, -1)]
    joined = ("; ".join(filter(None, (line, busy))) for line in lines)
    return next(line for line in joined if len(line) <= MOST)


def _absents(items: Sequence[Unmeasured | OutOfRange], count: int, *, brief: bool) -> str:
    """The first so many items, and how many more there are; "" where there is none."""
    left_out = len(items) - count
    named = [_absent(one, brief=brief) for one in items[:count]]
    more = [f"and {left_out} more" if named else f"{left_out} things"] if left_out else []
    return "not measured: " + ", ".join((*named, *more)) if items else ""


def _absent(one: Unmeasured | OutOfRange, *, brief: bool) -> str:
    """One item, with what is nearest unless it must be ``brief``."""
    if isinstance(one, OutOfRange):
        what, nearest = _range(one)
    else:
        what, nearest = _name(one), ", ".join(filter(None, (_rows(one), one.nearest and f"nearest: {one.nearest}")))
    return what if brief or not nearest else f"{what} ({nearest})"


def _name(one: Unmeasured) -> str:
    if one.code == "engine" and one.on:
        return f"{one.name} on {one.on}"
    return PARTS[one.code].format(one.name, one.on) + ("" if one.bits is None else f" in {one.bits} bits")


def _rows(one: Unmeasured) -> str:
    """The few rows that there are; of a GPU without any near it, that its whole generation has none."""
    if one.code == "gpu" and not one.nearest and not one.rows:
        return "nor any of its generation"
    return "" if not one.rows else f"only {counted(one.rows, 'row')}"


def _range(one: OutOfRange) -> tuple[str, str]:
    value = f"{one.value:,.0f}"
    what = f"1 in 20 {TAILS[one.code]} above {value} tokens" if one.tail and one.code in TAILS else RANGES[one.code].format(value)
    shorter = one.least is not None and one.value < one.least
    return what, f"from {whole(one.least)} on" if shorter else f"up to {whole(one.most)}"


def _busy(one: OpenLoopNearSaturation | ClosedLoopNearSaturation) -> str:
    """What a typical error does, or how large errors are, so near saturation."""
    at, below = f"at {percent(one.share)} of saturation", percent(one.below)
    if isinstance(one, OpenLoopNearSaturation):
        times = number(one.times, 2) if one.times <= MANY else f"more than {MANY}"
        return f"{at} a typical error of step times multiplies p95 TTFT by {times} (by {number(one.times_below, 2)} at {below})"
    return f"{at} errors of p95 TTFT are {number(one.times, 2)} × those below {below}"
