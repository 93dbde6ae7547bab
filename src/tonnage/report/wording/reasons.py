"""Why a deployment cannot be the answer, in words."""

from __future__ import annotations

from typing import assert_never

from tonnage.plan import reason as why
from tonnage.report.numbers import counted, dollars, number, percent, plain
from tonnage.report.wording.deployments import deployment_text, measured_load_text
from tonnage.report.wording.limits import breach_text
from tonnage.units import format_duration


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
