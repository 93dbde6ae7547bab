"""What stands first, one line each: the answer, how sure it is, the peak, the cost, the main risk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tonnage.plan.cost import JobCost
from tonnage.plan.warning import BurstyTrace
from tonnage.report.numbers import dollars, number
from tonnage.report.plans.costs import NAMES, owned_and_cheapest, priced, spread, ways, yearly
from tonnage.report.plans.deployments import deployments, systems
from tonnage.report.plans.existing import running
from tonnage.report.plans.measurement import measurement_text
from tonnage.report.wording.at_peak import at_peak_text, peak_values
from tonnage.report.wording.autoscaling import autoscaling_text
from tonnage.report.wording.confidence import chance_text, confidence_text
from tonnage.report.wording.cost import no_cost_text
from tonnage.report.wording.fleet_check import fleet_check_text
from tonnage.report.wording.growth import growth_text
from tonnage.report.wording.job import finish_text
from tonnage.report.wording.prefix_cache import prefix_cache_text
from tonnage.report.wording.routers import routers_text
from tonnage.report.wording.sensitivity import riskiest_text
from tonnage.report.wording.standby import standby_text
from tonnage.report.wording.warnings import warning_text

if TYPE_CHECKING:
    from tonnage.plan.candidate import Candidate
    from tonnage.plan.cost import WayCost
    from tonnage.plan.plan import Plan


def headline_rows(plan: Plan, best: Candidate) -> tuple[tuple[str, str], ...]:
    """Name and text of each line; a text is "" where the plan does not hold what it says."""
    serving = best.systems - plan.scenario.spare_systems - (0 if best.standby is None else best.standby.extra_systems)
    return (
        ("Answer", answer_text(plan, best)),
        ("Confidence", "" if best.confidence is None else confidence_text(best.confidence)),
        ("Standby", "" if best.standby is None else standby_text(best.standby)),
        ("Growth", "" if plan.growth is None else growth_text(plan.growth, best.systems)),
        ("Finish", "" if plan.job is None else finish_text(plan.job)),
        ("At the peak", "" if best.at_peak is None else at_peak_text(best.at_peak, plan.scenario.limits_that_count)),
        ("Cost", cost_text(plan)),
        ("Autoscaling", "" if plan.autoscaling is None else autoscaling_text(plan.autoscaling)),
        ("Risk", risk_text(plan, best)),
        ("Measuring", measurement_text(plan.measurement)),
        ("Prefix cache", prefix_cache_text(plan.prefix_cache, best.systems)),
        ("Router", routers_text(plan.routers, plan.scenario.limits_that_count, serving)),
    )


def answer_text(plan: Plan, best: Candidate) -> str:
    """Such as "2 × dgx-h200 (1.75 exactly): 16 instances of FP8, TP 1, vllm-0.32 on h200-sxm-141gb"."""
    if plan.existing is not None and plan.demand.of_existing:
        return running(plan.existing)
    spare = plan.scenario.spare_systems + (0 if best.standby is None else best.standby.extra_systems)
    whole = f"{number(best.systems_exact)} exactly{f', {spare} spare' if spare else ''}"
    return f"{systems(best)} ({whole}): {deployments(best)}"


def cost_text(plan: Plan) -> str:
    """What it costs in the cheapest way, and owned; why nothing is known where no way has a price."""
    job, cost = plan.cost, yearly(plan)
    if isinstance(job, JobCost):
        each = (("on cloud GPUs", job.cloud_usd_per_job), ("through an API", job.api_usd_per_job))
        known = [f"{dollars(value)} USD a job {name}" for name, value in each if value is not None]
        if job.owned.total_usd_per_year is not None:
            known.append(f"owned {dollars(job.owned.total_usd_per_year)} USD a year")
        return "; ".join(known) or "no price is known"
    if cost is None:
        return ""
    shown, count = owned_and_cheapest(cost), len(priced(cost))
    if not shown:
        reason = next((way.reason for way in ways(cost) if way.reason is not None), None)
        return "no price is known" + ("" if reason is None else f": {no_cost_text(reason)}")
    if count == 1:
        return f"{_way(shown[0])}, the only way with a price"
    first, *rest = sorted(shown, key=lambda way: way.where != cost.cheapest)
    others = "".join(f"; {NAMES[way.where]} {dollars(way.total_usd_per_year)} USD" for way in rest)
    return f"{_way(first)}, cheapest of {count} priced ways{others}"


def _way(way: WayCost) -> str:
    ends = spread(way)
    between = "" if ends is None else f" ({dollars(ends[0])} to {dollars(ends[1])})"
    return f"{NAMES[way.where]} {dollars(way.total_usd_per_year)} USD a year{between}"


def risk_text(plan: Plan, best: Candidate) -> str:
    """What is most likely to make the answer wrong; "" where nothing is known of it."""
    sure, check = best.confidence, plan.fleet_check
    if sure is not None and not sure.reached:
        return "the limits are too close to what a single request takes for any number of systems to be that sure"
    if check is not None and not check.holds:
        return fleet_check_text(check)
    bursts = next((one for one in plan.warnings if isinstance(one, BurstyTrace)), None)
    if bursts is not None:
        return warning_text(bursts)
    if plan.sensitivity is not None and plan.sensitivity.swings:
        return riskiest_text(plan.sensitivity)
    if plan.warnings:
        return warning_text(plan.warnings[0])
    return f"rests in part on {best.marks[0]}" if best.marks else ""


def glance_rows(plan: Plan, best: Candidate) -> tuple[tuple[str, str], ...]:
    """What the first page shows large: how sure the answer is, the systems at each confidence, the latencies at the peak."""
    sure, peak, rows = best.confidence, best.at_peak, []
    if sure is not None:
        counts = " / ".join("none" if count is None else f"{count:,}" for count in sure.systems.values())
        rows += [("probability that every limit holds", chance_text(sure.meets)), (f"systems for {' / '.join(sure.systems)} %", counts)]
    if peak is not None:
        rows += [(f"ms {name} at the peak", value) for name, value, _ in peak_values(peak, plan.scenario.limits_that_count)]
    return tuple(rows)
