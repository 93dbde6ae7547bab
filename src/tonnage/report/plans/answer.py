"""The answer of a plan in sentences that a manager can read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tonnage.plan.cost import YearlyCost
from tonnage.report.numbers import counted, dollars, plain, sentence_of, span, usd
from tonnage.report.plans.costs import SAID, owned_and_cheapest, priced, ways, yearly
from tonnage.report.plans.deployments import systems
from tonnage.report.plans.existing import existing_sentence, existing_title, running
from tonnage.report.plans.summary import no_answer
from tonnage.report.wording.at_peak import used_share
from tonnage.report.wording.confidence import by_confidence, chance_text
from tonnage.report.wording.cost import no_cost_text
from tonnage.report.wording.reachable import reachable_text
from tonnage.report.wording.reasons import TooMuch
from tonnage.report.wording.standby import standby_text

if TYPE_CHECKING:
    from tonnage.plan.candidate import Candidate
    from tonnage.plan.confidence import Confidence
    from tonnage.plan.plan import Plan


def title(plan: Plan) -> str:
    """Such as "5 × dgx-h100 for llama-3-8b"."""
    if plan.existing is not None:
        return existing_title(plan)
    if plan.choice is None:
        over = any(isinstance(one.reason, TooMuch) for one in plan.rejected)
        return f"No deployment of {plan.scenario.model} {'stays within what is allowed' if over else 'meets the limits'}"
    return f"{systems(plan.choice)} for {plan.scenario.model}"


def sentence(plan: Plan) -> str:
    """What exists and how long it lasts where that was asked; what to buy, what it carries, how full it is, what it costs."""
    exists = existing_sentence(plan)
    if plan.choice is None and any(isinstance(one.reason, TooMuch) for one in plan.rejected):
        return f"{exists} {sentence_of(no_answer(plan))}".strip()
    if plan.choice is None:
        return exists or (
            f"None of the {counted(len(plan.rejected), 'deployment')} that were tried meets the limits at any load. {_reached(plan)}"
        )
    if plan.existing is not None and plan.demand.of_existing:
        return f"{exists} They run {sentence_of(running(plan.existing))}"
    bought = _bought(plan, plan.choice)
    return f"{exists} Bought anew for this load: {bought}" if exists else bought


def _reached(plan: Plan) -> str:
    """What can be reached instead."""
    if plan.reachable is None:
        return "The reasons are below; the limit named most often is the one to relax."
    return f"The best that can be reached: {sentence_of(reachable_text(plan.reachable)).removesuffix('.')}. The reasons are below."


def _bought(plan: Plan, choice: Candidate) -> str:
    spare = plan.scenario.spare_systems + (0 if choice.standby is None else choice.standby.extra_systems)
    kept = f", {counted(spare, 'spare system')} included" if spare else ""
    bought = f"{_systems(choice)} ({counted(choice.gpus, 'GPU')}{kept})"
    one = choice.systems == 1
    load, demand, model = float(f"{plan.demand.sizing_requests_per_second:.4g}"), plan.demand, plan.scenario.model
    full = used_share(choice.utilisation)
    if demand.offline_requests is not None and demand.offline_seconds is not None:
        job = f"{plain(demand.offline_requests)} requests of {model} within {plain(demand.offline_seconds / 3600)} hours"
        done = "" if plan.job is None else f" {sentence_of(f'the job is done after {span(plan.job.finish_seconds)}')}"
        return f"{bought} {'completes' if one else 'complete'} {job}.{done} That takes {full} of what the fleet can do.{_price(plan)}"
    room = f" The fleet is then at {full} of its capacity." if choice.utilisation <= 1 else ""
    sure = "" if choice.confidence is None else f" {_sure(choice.confidence)}"
    sure += "" if choice.standby is None else f" {sentence_of(standby_text(choice.standby))}"
    verb = "carries" if one else "carry"
    return f"{bought} {verb} {plain(load)} requests per second of {model} inside every limit.{sure}{room}{_price(plan)}"


def _sure(confidence: Confidence) -> str:
    """How sure that is, and how many systems other confidences take."""
    chance = f"The probability that every limit holds is {chance_text(confidence.meets)}"
    return f"{chance}; the systems for each confidence are {by_confidence(confidence)}."


def _systems(choice: Candidate) -> str:
    """Such as "5 dgx-h100 systems"."""
    if len({pool.system for pool in choice.pools}) == 1:
        return f"{choice.systems} {choice.system} system{'' if choice.systems == 1 else 's'}"
    return systems(choice)


def _price(plan: Plan) -> str:
    cost = yearly(plan)
    if cost is None:
        return ""
    words = ""
    for way in owned_and_cheapest(cost):
        each = "" if way.usd_per_1000_requests is None else f", {usd(way.usd_per_1000_requests)} USD per 1,000 requests"
        words += f" {SAID[way.where]} it costs {dollars(way.total_usd_per_year)} USD a year{each}{_cheapest(cost, way.where)}."
    missing = next((way.reason for way in ways(cost) if way.where == "on-prem" and way.reason is not None), None)
    return words if missing is None else f"{words} What owning it costs is not known: {no_cost_text(missing)}."


def _cheapest(cost: YearlyCost, where: str) -> str:
    """Whether a way is the cheapest, and of how many; nothing where only one has a price."""
    known = len(priced(cost))
    if where != cost.cheapest or known < 2:
        return ""
    return f", the cheapest way{' of those with a price' if known < len(cost.ways) else ''}"


FASTEST = "lowest latency on ≤ 2 × the GPUs"


def others(plan: Plan) -> tuple[tuple[str, Candidate], ...]:
    """The chosen deployment, and the best by latency and by throughput where they are not the same."""
    if plan.choice is None:
        return ()
    found = [("chosen", plan.choice)]
    for name, other in ((FASTEST, plan.latency_optimal), ("most requests per GPU", plan.throughput_optimal)):
        if other is not None and all(other.pools != candidate.pools for _, candidate in found):
            found.append((name, other))
    return tuple(found)
