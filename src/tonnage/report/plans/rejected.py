"""Deployments that cannot be the answer, with the reason of each, and how near the best of them come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, assert_never

from tonnage.plan import reason as why
from tonnage.report.blocks import section
from tonnage.report.document import Section, Table, Text
from tonnage.report.numbers import counted, dollars, number, percent, plain
from tonnage.report.plans.deployments import deployment_text, measured_load_text, split
from tonnage.report.plans.latencies import breach_text, limit_text
from tonnage.units import format_duration

if TYPE_CHECKING:
    from tonnage.plan.limit import Breach
    from tonnage.plan.plan import Plan
    from tonnage.plan.reason import Reachable, Reached, Rejected

OPEN = 12
"""Rows up to which a page shows the table open."""
NEVER = (why.VendorUnsupported, why.PrecisionUnsupported, why.WiderThanSystem, why.TooManyStages, why.DoesNotDivide)
"""Reasons that no limit and no memory would change: told only where there is no other."""


def rejected_section(plan: Plan) -> Section:
    """Deployments on one GPU that fail for one reason share a row, each with its own number."""
    groups: dict[tuple[str, str], dict[str, list[str]]] = {}
    for one in plan.rejected:
        why_not, own = _grouped(one.reason)
        degrees = split(one, " × ").removeprefix("TP ") + (f" ({own})" if own else "")
        groups.setdefault((one.gpu, why_not), {}).setdefault(f"{one.precision} {one.engine}", []).append(degrees)
    if not groups:
        return section("rejected", "Rejected, and why")
    rows = tuple(
        (gpu, why_not, "; ".join(f"{kind} TP {', '.join(each)}" for kind, each in kinds.items()))
        for (gpu, why_not), kinds in groups.items()
    )
    table = Table(
        caption=f"{counted(len(plan.rejected), 'deployment')} that cannot carry the load, or that another one outdoes",
        header=("GPU", "reason", "deployments"),
        rows=rows,
        folded=len(rows) > OPEN,
    )
    left = left_out_texts(plan)
    nearest = Text(text=f"Left out, with the reason that comes nearest: {'; '.join(left)}.") if left else None
    return section("rejected", "Rejected, and why", nearest, table)


def _grouped(reason: why.Reason) -> tuple[str, str]:
    """The part of a reason that several deployments share, and the number that each has of its own; "" where all of it is shared."""
    match reason:
        case why.CannotRun():
            needs, misfit, _ = reason.error.partition(" do not fit ")
            return ("does not fit the memory of its GPUs", needs) if misfit else (reason.error, "")
        case why.Outdone():
            needed = f"{number(reason.needed_per_gpu)} are needed to take fewer GPUs than {deployment_text(reason.other)}"
            return f"at most so many requests/s per GPU by closed form, and {needed}", number(reason.at_most_per_gpu)
        case why.Behind():
            needed = (
                f"{number(reason.per_gpu)} requests/s per GPU, which are needed to take fewer GPUs than {deployment_text(reason.other)}"
            )
            return f"breaks a limit at {needed}", breach_text(reason.breach)
        case why.NeedsMoreGpus():
            own = f"{counted(reason.gpus, 'GPU')}, {number(reason.systems_exact)} systems exactly"
            return f"takes no fewer GPUs than {deployment_text(reason.other)}, {counted(reason.other_gpus, 'GPU')}", own
        case why.BrokenAtAnyLoad(lowest=None):
            return f"breaks {limit_text(reason.breach.limit)} at any load", _value_text(reason.breach)
        case why.NotSure():
            slower = f"where steps take {number(reason.step_factor)} times as long as predicted"
            return f"breaks {limit_text(reason.breach.limit)} at any load {slower}", _value_text(reason.breach)
        case why.AboveSaturation():
            return f"saturates below the {number(reason.requests_per_second)} requests/s that it has to carry", number(reason.most)
        case _:
            return reason_text(reason), ""


def _value_text(breach: Breach) -> str:
    return "not measured" if breach.value_ms is None else format_duration(breach.value_ms / 1e3)


def nearest_table(plan: Plan, most: int) -> Table | None:
    """The nearest deployment of each GPU that is not among the answers, and what it breaks.

    None where every GPU is, or where the line of what is reachable says the same of the only one.
    """
    found = _left_out(plan)
    reached = set() if plan.reachable is None else {one.deployment for one in plan.reachable.best}
    if len(found) == 1 and isinstance(found[0].reason, why.BrokenAtAnyLoad) and reached == {found[0].identity}:
        return None
    rows = tuple((one.gpu, _name(one), reason_text(one.reason)) for one in found[:most])
    more = f"… and {counted(len(found) - most, 'more GPU')}" if len(found) > most else ""
    header = ("GPU", "nearest deployment", "why it fails")
    return Table(caption="The nearest deployment of each GPU", header=header, rows=rows, note=more) if rows else None


def left_out_texts(plan: Plan) -> tuple[str, ...]:
    """Such as "l40s: TTFT p95 612 ms > 500 ms at any load (fp8 TP 8 vllm-0.32)"."""
    return tuple(f"{one.gpu}: {reason_text(one.reason)}{f' ({name})' if (name := _name(one)) else ''}" for one in _left_out(plan))


def _left_out(plan: Plan) -> tuple[Rejected, ...]:
    """The nearest rejected deployment of every GPU that was asked for and is not among the answers."""
    inside = {pool.gpu for candidate in plan.candidates for pool in candidate.pools}
    refused = ([one for one in plan.rejected if one.gpu == gpu] for gpu in plan.scenario.gpus if gpu not in inside)
    return tuple(min(each, key=_far) for each in refused if each)


def _name(one: Rejected) -> str:
    """A deployment without its GPU; "" where the reason is that of the GPU or the engine as such."""
    return "" if isinstance(one.reason, NEVER) else deployment_text(one).removeprefix(one.gpu).strip()


def _far(refused: Rejected) -> tuple[int, float]:
    """How far a deployment is from an answer: what it costs or takes first, limits by their factor, then memory, then what never works."""
    reason = refused.reason
    if isinstance(reason, why.OverBudget | why.OverPower | why.OverRacks):
        return -1, 0.0
    if isinstance(reason, NEVER):
        return 2, 0.0
    if isinstance(reason, why.CannotRun):
        return 1, 0.0
    breach = getattr(reason, "breach", None)
    value = None if breach is None else breach.value_ms
    return 0, float("inf") if breach is None or value is None else value / breach.limit.milliseconds


def reachable_text(found: Reachable) -> str:
    """The best values, and by which deployment each is reached; then the deployment that comes nearest to all limits, if it is another."""
    best = "; ".join(map(_each, _by_deployment(found.best)))
    who = {one.deployment for one in found.best}
    nearest = "" if who == {found.nearest[0].deployment} else f"; nearest to all limits: {_each(found.nearest)}"
    inside = all(one.value_ms <= one.asked_ms for one in found.nearest)
    alone = ", so the limits hold with one request at a time, and at no load above that" if inside else ""
    return best + nearest + alone


def _by_deployment(values: Sequence[Reached]) -> list[list[Reached]]:
    found: dict[object, list[Reached]] = {}
    for one in values:
        found.setdefault(one.deployment, []).append(one)
    return list(found.values())


def _each(values: Sequence[Reached]) -> str:
    """Such as "TTFT p95 35.2 ms (asked: 1 ms) by h100-sxm-80gb fp8 TP 8 vllm-0.32"."""
    return f"{', '.join(map(_value, values))} by {deployment_text(values[0].deployment)}"


def _value(one: Reached) -> str:
    name = "one request" if one.limit is None else f"{one.limit.metric.upper()} {one.limit.statistic}"
    return f"{name} {format_duration(one.value_ms / 1e3)} (asked: {format_duration(one.asked_ms / 1e3)})"


def reason_text(reason: why.Reason) -> str:
    """The reason with its numbers, as one clause."""
    if isinstance(reason, Impossible):
        return _impossible(reason)
    if isinstance(reason, Measured):
        return _measured(reason)
    if isinstance(reason, TooMuch):
        return _too_much(reason)
    return _simulated(reason)


TooMuch = why.OverBudget | why.OverPower | why.OverRacks


def _too_much(reason: TooMuch) -> str:
    """What is too much, and what the most that is allowed would carry."""
    carry = f"; {most_text(reason)}" if reason.most_requests_per_second else ""
    return _exceeded(reason) + carry


def most_text(reason: TooMuch) -> str:
    """What the most that is allowed is good for, such as "400,000 USD buy 1 × dgx-h100, which carries 140 requests/s"."""
    systems, rate = reason.most_systems or 0, reason.most_requests_per_second or 0.0
    match reason:
        case why.OverBudget():
            if reason.budget_of == "year":
                return f"{dollars(reason.budget_usd)} USD a year pay for {f'{number(rate)} requests/s' if rate else 'no instance'}"
            given = f"{dollars(reason.budget_usd)} USD buy"
        case why.OverPower():
            given = f"{plain(reason.most_kw)} kW feed"
        case why.OverRacks():
            given = f"{counted(reason.most_racks, 'rack')} of {plain(reason.rack_kw)} kW {'holds' if reason.most_racks == 1 else 'hold'}"
        case _:
            assert_never(reason)
    if not systems:
        return f"{given} no system"
    carry = "carries" if systems == 1 else "carry"
    return f"{given} {systems:,} × {reason.system}, which {carry} {f'{number(rate)} requests/s' if rate else 'no load'}"


def taken_text(reason: TooMuch) -> str:
    """What the whole load takes, such as "930,000 USD to buy"; "" where it is not known."""
    match reason:
        case why.OverBudget():
            return "" if reason.usd is None else f"{dollars(reason.usd)} USD {'to buy' if reason.budget_of == 'purchase' else 'a year'}"
        case why.OverPower():
            return "" if reason.kw is None else f"{number(reason.kw)} kW"
        case why.OverRacks():
            return "" if reason.racks is None else counted(reason.racks, "rack")
        case _:
            assert_never(reason)


def _exceeded(reason: TooMuch) -> str:
    taken = taken_text(reason)
    match reason:
        case why.OverBudget():
            most = f"the budget of {dollars(reason.budget_usd)} USD"
            return f"{taken}, over {most}" if taken else f"it has no price that could be held against {most}"
        case why.OverPower():
            drawn = f"its systems draw {taken}" if taken else "the power of its systems is not known"
            return f"{drawn}, {plain(reason.most_kw)} kW are allowed"
        case why.OverRacks():
            racks = f"its systems take {taken}" if taken else "the power of its systems is not known"
            return f"{racks}, {reason.most_racks:,} of {plain(reason.rack_kw)} kW are allowed"
        case _:
            assert_never(reason)


Impossible = why.VendorUnsupported | why.PrecisionUnsupported | why.WiderThanSystem | why.TooManyStages | why.CannotRun

Measured = why.DoesNotDivide | why.ThroughputNotMeasured | why.StatisticNotMeasured | why.NoMeasuredLoadHolds


def _impossible(reason: Impossible) -> str:
    match reason:
        case why.VendorUnsupported():
            return f"{reason.engine} does not run on {reason.vendor} accelerators"
        case why.PrecisionUnsupported():
            return f"{reason.subject} has {reason.lacks}"
        case why.WiderThanSystem():
            which = f"TP {reason.tp}{f' × DP {reason.dp}' if reason.dp > 1 else ''}"
            return f"{which} needs more GPUs than the {reason.system_gpus} of one {reason.system}"
        case why.TooManyStages():
            return f"PP {reason.pp} has more stages than {reason.model} has layers, {reason.layers}"
        case why.CannotRun():
            return reason.error
        case _:
            assert_never(reason)


def _measured(reason: Measured) -> str:
    match reason:
        case why.DoesNotDivide():
            return f"an instance of {reason.gpus} GPUs does not divide the {reason.system_gpus} of one {reason.system}"
        case why.ThroughputNotMeasured():
            return "its requests/s were not measured"
        case why.StatisticNotMeasured():
            return f"{reason.metric.upper()} {reason.statistic} was not measured"
        case why.NoMeasuredLoadHolds():
            broken = [f"{breach_text(each.breach)} ({measured_load_text(each.load)})" for each in reason.breaches]
            return f"no load measured meets every limit: {', '.join(broken)}"
        case _:
            assert_never(reason)


def _simulated(reason: why.Reason) -> str:
    if isinstance(reason, Impossible | Measured | TooMuch):
        raise TypeError(reason.code)
    match reason:
        case why.Outdone():
            return (
                f"at most {number(reason.at_most_per_gpu)} requests/s per GPU by closed form; with fewer than "
                f"{number(reason.needed_per_gpu)} it needs no fewer GPUs than {deployment_text(reason.other)}"
            )
        case why.Behind():
            return (
                f"{breach_text(reason.breach)} at {number(reason.requests_per_second)} requests/s, {number(reason.per_gpu)} per GPU; "
                f"with fewer it needs no fewer GPUs than {deployment_text(reason.other)}"
            )
        case why.NeedsMoreGpus():
            return (
                f"it takes {counted(reason.gpus, 'GPU')} ({number(reason.systems_exact)} systems exactly), "
                f"{deployment_text(reason.other)} {counted(reason.other_gpus, 'GPU')}"
            )
        case why.NotSure():
            return f"{breach_text(reason.breach)} at any load where steps take {number(reason.step_factor)} times as long as predicted"
        case why.AboveSaturation():
            return f"{number(reason.requests_per_second)} requests/s exceed the {number(reason.most)} of saturation"
        case why.TooSlowForJob():
            return f"one request takes {format_duration(reason.seconds)} > {format_duration(reason.allowed)}"
        case why.NothingMeetsLimits():
            return "no deployment meets the limits"
        case _:
            return f"{breach_text(reason.breach)} {_where_broken(reason)}"


Broken = why.BrokenAtAnyLoad | why.BrokenEarly | why.BrokenInVerification | why.BrokenOnManyInstances


def _where_broken(reason: Broken) -> str:
    """At which load the limit breaks."""
    match reason:
        case why.BrokenAtAnyLoad():
            return "at any load" if reason.lowest is None else f"at every load measured (lowest: {measured_load_text(reason.lowest)})"
        case why.BrokenEarly():
            return f"already at {number(reason.requests_per_second)} requests/s, {percent(reason.share_of_saturation)} of saturation"
        case why.BrokenInVerification():
            return f"at {number(reason.requests_per_second)} requests/s in the verifying run"
        case why.BrokenOnManyInstances():
            return f"even with {counted(reason.instances, 'instance')}"
        case _:
            assert_never(reason)
