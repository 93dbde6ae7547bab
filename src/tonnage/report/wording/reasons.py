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
    match reason:
        case why.OverBudget():
            what = "to buy" if reason.budget_of == "purchase" else "a year"
            if reason.usd is None:
                return f"it has no price that could be held against the budget of {dollars(reason.budget_usd)} USD"
            text = f"{dollars(reason.usd)} USD {what}, over the budget of {dollars(reason.budget_usd)} USD"
            if reason.most_systems and reason.most_requests_per_second:
                carry = f"{counted(reason.most_systems, 'system')}, good for {number(reason.most_requests_per_second)} requests/s"
                return f"{text}, which buys {carry}"
            return text
        case why.OverPower():
            drawn = "the power of its systems is not known" if reason.kw is None else f"its systems draw {number(reason.kw)} kW"
            return f"{drawn}, {plain(reason.most_kw)} kW are allowed"
        case why.OverRacks():
            racks = "the power of its systems is not known" if reason.racks is None else f"its systems take {counted(reason.racks, 'rack')}"
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
