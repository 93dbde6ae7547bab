"""Why a plan chose what it did: what its time and memory go to, and what every other kind of GPU and format would have taken."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tonnage.report.blocks import items, section
from tonnage.report.document import Document, Section, Table
from tonnage.report.numbers import ABSENT, counted, number, percent, usd
from tonnage.report.plans.candidates import rejected_section, yearly_costs
from tonnage.report.plans.deployments import deployments
from tonnage.report.plans.explained import explained_section
from tonnage.report.plans.headline import answer_text, risk_text
from tonnage.report.plans.sensitivity import sensitivity_section
from tonnage.report.plans.summary import no_answer, question_lines
from tonnage.report.wording.aim import first_text
from tonnage.report.wording.limits import bound_text

if TYPE_CHECKING:
    from tonnage.plan.candidate import Candidate
    from tonnage.plan.plan import Plan

BESIDE = ("deployment", "systems", "GPUs", "requests/s per GPU", "USD a year", "in place of the choice")


def why_text(plans: Sequence[Plan]) -> Document:
    """The reasons of one plan, or of several one after the other."""
    return Document(title="", subtitle="", sections=tuple(one for plan in plans for one in _sections(plan) if one.blocks))


def _sections(plan: Plan) -> tuple[Section, ...]:
    return (
        section("question", "", question_lines(plan)),
        section("answer", "Why this answer", items(tuple(_reasons(plan)))),
        section("beside", "Why not another", _others(plan)),
        explained_section(plan),
        sensitivity_section(plan),
        rejected_section(plan),
    )


def _reasons(plan: Plan) -> Iterator[str]:
    """What decided, sentence by sentence."""
    best = plan.choice
    if best is None:
        yield f"Nothing was chosen: {no_answer(plan)}; the reasons are below."
        return
    yield f"Chosen for the {first_text(plan.aim)}: {answer_text(plan, best)}."
    load, rate = plan.demand.sizing_requests_per_second, best.sized_rate
    sure = "" if plan.scenario.confidence is None else f", to be {percent(plan.scenario.confidence)} sure"
    of_system = counted(best.pools[0].fleet.instances_per_system, "instance")
    yield (
        f"The load is {number(load)} requests/s, and one instance is counted with {number(rate)}{sure}: {number(load / rate)} instances, "
        f"which is {number(best.systems_exact)} systems of {of_system} each."
    )
    yield f"One instance carries no more because of {bound_text(best.binds)}."
    check = plan.fleet_check
    if check is not None and check.systems != check.by_division:
        yield f"The division asks for {check.by_division} systems; the whole fleet, simulated, holds the limits on {check.systems}."
    risk = risk_text(plan, best)
    if risk:
        yield f"What is most likely to make it wrong: {risk}."


def _others(plan: Plan) -> Table | None:
    """The best candidate of every other GPU, format and engine, with what it would take more."""
    if plan.choice is None:
        return None
    costs = yearly_costs(plan)
    own = costs[0]
    seen, rows = {_kind(plan.choice)}, []
    for candidate, usd_per_year in zip(plan.candidates[1:], costs[1:], strict=True):
        if _kind(candidate) in seen:
            continue
        seen.add(_kind(candidate))
        more = f"{candidate.gpus - plan.choice.gpus:+,} GPUs".replace("-", "−")
        dearer = "" if own is None or usd_per_year is None else f", {usd_per_year - own:+,.0f} USD a year".replace("-", "−")
        cells = (f"{candidate.systems:,}", f"{candidate.gpus:,}", number(candidate.requests_per_second_per_gpu))
        rows.append((deployments(candidate), *cells, ABSENT if usd_per_year is None else usd(usd_per_year), more + dearer))
    return Table(caption="The best of every other kind inside the limits", header=BESIDE, rows=tuple(rows)) if rows else None


def _kind(candidate: Candidate) -> tuple[str, ...]:
    return tuple(f"{pool.gpu} {pool.precision} {pool.engine}" for pool in candidate.pools)
