"""Autoscaling: by which rule a controller scales the fleet over its hours, and what that saves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tonnage.report.blocks import section
from tonnage.report.document import Section, Table, Text
from tonnage.report.numbers import ABSENT, counted, dollars, number, percent, plain, sentence_of, span, whole
from tonnage.report.plans.latencies import limit_text

if TYPE_CHECKING:
    from tonnage.plan.autoscaling import Autoscaling, OverHours, Proposal, WhyNot
    from tonnage.plan.plan import Plan

WHY_NOT: dict[WhyNot, str] = {
    "one-instance": "one instance serves the peak, so that there is nothing to release",
    "attention-ranks": "none is proposed, because a controller is not simulated over data-parallel attention ranks",
    "no-rule": "none is proposed, because no rule that was tried holds the limits in every hour and saves instance-hours",
}

METRICS = {"outstanding": "requests in flight", "rate": "requests/s"}
"""What a controller looks at, of one instance."""


def autoscaling_text(found: Autoscaling) -> str:
    """Such as "1 to 3 instances at 4.79 requests/s each: 41.3 instance-hours of 72.0 in 24 hours, 43 % fewer; …"."""
    best = found.best
    if best is None or found.fixed is None:
        return "" if found.reason is None else WHY_NOT[found.reason]
    saved = f"{number(best.run.instance_hours)} instance-hours of {number(found.fixed.instance_hours)} in {hours_text(found)}"
    cost = "" if found.cost is None else f"; {_rent(found)}"
    kept = "".join(f"; {text}" for text in broken_texts(best.run))
    return f"{bounds_text(best)}: {saved}, {percent(found.saved_share)} fewer{kept}{cost}"


def hours_text(found: Autoscaling) -> str:
    """Such as "24 hours"."""
    return f"{plain(round(found.hours, 2))} hour{'' if found.hours == 1 else 's'}"


def bounds_text(one: Proposal) -> str:
    """Such as "1 to 3 instances at 26.5 requests in flight each"."""
    warm = f" and {one.warm} warm" if one.warm else ""
    return f"{one.least} to {one.most} instances{warm} at {number(one.target)} {METRICS[one.metric]} each"


def broken_texts(run: OverHours) -> Iterator[str]:
    """Such as "TTFT p95 ≤ 500 ms exceeded by 1.8 % of the requests, 3.5 % in the worst hour"."""
    for one in run.limits:
        worst = f", {_share(one.worst_share)} in the worst hour" if one.hours > 1 else ""
        broken = f", and broken in {counted(one.broken_hours, 'hour')} of {one.hours}" if one.broken_hours else ""
        yield f"{limit_text(one.limit)} exceeded by {_share(one.share)} of the requests{worst}{broken}"


def times_text(one: Proposal) -> str:
    """Such as "a look every 15 s, a start of 118 s, fewer after 300 s"."""
    return f"a look every {span(one.interval_s)}, a start of {span(one.start_s)}, fewer after {span(one.hold_s)}"


def cost_text(found: Autoscaling) -> str:
    """What a year on cloud GPUs costs with the first rule and without; "" where it is not known."""
    return "" if found.cost is None else f"{_rent(found)} ({found.cost.offer})"


def _rent(found: Autoscaling) -> str:
    cost = found.cost
    if cost is None:
        return ""
    scaled, fixed = cost.scaled_usd_per_year, cost.fixed_usd_per_year
    if fixed - scaled < 1:
        return f"cloud GPUs for {dollars(fixed)} USD a year with and without it, as machines are rented whole"
    return f"cloud GPUs for {dollars(scaled)} USD a year in place of {dollars(fixed)}, {dollars(fixed - scaled)} less"


def _share(share: float) -> str:
    """A share of requests in per cent, with two digits."""
    return f"{100 * share:.2g}%"


def autoscaling_section(plan: Plan) -> Section:
    """The section; empty where no autoscaling was asked for."""
    found = plan.autoscaling
    if found is None:
        return section("autoscaling", "Autoscaling")
    if found.reason is not None or found.fixed is None:
        why = "" if found.reason is None else WHY_NOT[found.reason]
        return section("autoscaling", "Autoscaling", Text(text=sentence_of(why)))
    return section("autoscaling", "Autoscaling", _table(found, found.fixed), Text(text=_reading(found)))


def _table(found: Autoscaling, fixed: OverHours) -> Table:
    rows = [("all the time", f"{found.instances}", ABSENT, number(fixed.instance_hours), "; ".join(broken_texts(fixed)))]
    for one in found.proposals:
        served = f"{one.least} to {one.most}" + (f", {one.warm} warm" if one.warm else "")
        rule = f"{number(one.target)} {METRICS[one.metric]}"
        rows.append((rule, served, times_text(one), number(one.run.instance_hours), "; ".join(broken_texts(one.run))))
    return Table(
        caption=f"Rules of a controller over {hours_text(found)}",
        header=("target of an instance", "instances", "times", "instance-hours", "limits"),
        rows=tuple(rows),
        chosen=1,
    )


def _reading(found: Autoscaling) -> str:
    part = ""
    if found.simulated_instances < found.instances:
        part = f" {found.simulated_instances} of {found.instances} instances were simulated, with their share of the load."
    cost = cost_text(found)
    return (
        f"Each rule was simulated over {whole(found.requests)} requests, with steps as slow as the plan's confidence allows for, after "
        f"{counted(found.tried, 'run')} of a search.{part}{' ' + sentence_of(cost) if cost else ''}"
    )
