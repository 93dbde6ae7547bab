"""A running deployment next to its plan, as a document: load and headroom, latencies with their limits, what to do."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tonnage.report.document import Document, Lines, Table, items, section
from tonnage.report.numbers import ABSENT, between, number, percent

if TYPE_CHECKING:
    from tonnage.watch.watched import AttainedBounds, Latency, Watched

LEGEND = (
    "Measured is what the engine publishes: its clock starts when a request reaches it, and a percentile is read off a histogram, evenly "
    "within its bucket. At this load: the plan's deployment simulated under the present rate and mean lengths, with the 80 % interval of "
    "the prediction (docs/intervals.md)."
)


def watched(found: Watched) -> Document:
    """One look."""
    advice = () if found.advice is None else (found.advice.text,)
    commands = () if found.advice is None else found.advice.commands
    return Document(
        title=f"{_instance(found)}, over {found.present.seconds:.3g} s",
        subtitle="",
        sections=(
            section("load", "", _load(found)),
            section("latencies", "", _latencies(found)),
            section("attained", "", items(tuple(map(_attained, found.attained)), "note")),
            section("verdict", "", items(tuple(_verdict(found)), "warning"), items(advice, "warning")),
            section("commands", "", Lines(text="\n".join(f"  {line}" for line in commands)) if commands else None),
            section("notes", "", items((LEGEND,), "note")),
        ),
    )


def _instance(found: Watched) -> str:
    pool = found.plan.candidates[0].pool
    return f"{pool.model} {pool.precision} on {pool.gpu}, {pool.engine}"


def _load(found: Watched) -> Table:
    """Rate, queue and use next to the plan's."""
    p, choice = found.present, found.plan.candidates[0]
    scenario = found.plan.scenario
    counted = choice.sized_rate * choice.instances
    told = f"peak {number(found.plan.demand.sizing_requests_per_second)}, counts on {number(counted)} of {choice.instances}"
    most = choice.concurrency_per_instance
    rows = [
        ("instances that answer", f"{p.answering} of {p.asked}", str(choice.instances)),
        ("requests/s", number(p.requests_per_second), told),
        ("output tokens/s", number(p.output_tokens_per_second), ""),
        (
            "mean prompt, output tokens",
            f"{number(p.mean_isl)}, {number(p.mean_osl)}",
            f"{number(scenario.mean_isl)}, {number(scenario.mean_osl)}",
        ),
        ("requests running", number(p.running), f"up to {number(most * found.instances)} inside the limits" if most else ""),
        ("requests waiting", number(p.waiting), ""),
        ("KV cache in use", percent(p.kv_used), ""),
        ("failed requests", _share(p.error_share), ""),
        ("GPUs at work", percent(p.gpu_use), ""),
        ("power of the GPUs W", number(p.gpu_watts), ""),
    ]
    return Table(caption="", header=("", "measured", "plan"), rows=(*rows, *_headroom(found)))


def _headroom(found: Watched) -> Iterator[tuple[str, str, str]]:
    """What is left, by simulation."""
    told = f"{number(found.expected.isl)} in and {number(found.expected.osl)} out, inside the limits"
    yield "carried by them, simulated", f"{number(found.capacity)} requests/s", told
    left = found.headroom
    yield "headroom", ABSENT if left is None else f"{left:+.0%}".replace("%", " %").replace("-", "−"), "of the present load"
    if found.at_measured_speed is not None:
        yield "carried at the measured speed", f"{number(found.at_measured_speed * found.instances)} requests/s", "every step as measured"


def _latencies(found: Watched) -> Table:
    header = ("ms", "measured", "at this load", "80 % interval", "limit", "slower", "")
    return Table(caption="", header=header, rows=tuple(map(_row, found.latencies)))


def _row(one: Latency) -> tuple[str, ...]:
    said = [one.place] if one.place else []
    if not math.isnan(one.limit) and one.enough:
        said.append("BROKEN" if one.broken else "holds")
    return (
        f"{one.metric.upper()} {one.statistic}",
        number(one.measured),
        number(one.predicted),
        between(None if math.isnan(one.expected[0]) else one.expected),
        number(one.limit),
        _share(None if math.isnan(one.slower) else one.slower),
        ", ".join(said) or ABSENT,
    )


def _attained(one: AttainedBounds) -> str:
    """Such as "95%: TTFT ≤ 500 ms & TPOT ≤ 50 ms: met by 93.1 to 97.0% of the requests"."""
    return f"{one.limits}: met by {100 * one.low:.1f} to {100 * one.high:.1f}% of the requests; histograms of single metrics say no more."


def _verdict(found: Watched) -> Iterator[str]:
    for one in found.broken:
        yield f"{one.metric.upper()} {one.statistic} is {number(one.measured)} ms, and its limit {number(one.limit)} ms."
    for joint in found.missed:
        yield f"{joint.limits}: at most {joint.high:.1%} of the requests can have met them all."
    if found.uneven:
        even = f"the plan counts on {found.plan.scenario.router}, which shares them evenly among {len(found.present.by_instance)}"
        yield f"{', '.join(found.uneven)}; {even}. Look at the router in front."
    missing = found.present.asked - found.present.answering
    if missing:
        yield f"{missing} of {found.present.asked} instances do not answer."
    if found.headroom is not None and found.headroom < 0:
        yield f"The load is above what {found.instances} instances carry inside the limits."
    if not found.present.requests:
        yield "No request ended in this time."


def _share(value: float | None) -> str:
    return ABSENT if value is None else f"{value:.2%}"
