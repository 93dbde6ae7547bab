"""Why a plan chose what it did: what its time and memory go to, and what every other kind of GPU and format would have taken."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tonnage.plan.plan import TERMS
from tonnage.report.document import Block, Document, Facts, Section, Table, items, section
from tonnage.report.numbers import ABSENT, counted, number, percent, usd
from tonnage.report.plans.answer import answer_text
from tonnage.report.plans.candidates import rejected_section, yearly_costs
from tonnage.report.plans.confidence import counted_text, not_sure_text
from tonnage.report.plans.deployments import MEMORY, deployments
from tonnage.report.plans.question import bound_text, first_text, limit_text, question_rows
from tonnage.report.plans.sensitivity import risk_text, sensitivity_section

if TYPE_CHECKING:
    from tonnage.plan.candidate import Candidate
    from tonnage.plan.plan import Explanation, Plan

FRONT_END_FELT = 0.3
"""Share of its time from which a busy front end is mentioned."""
FRONT_END_LIMITS = 0.85
"""Share of its time from which a busy front end is said to limit."""
TITLE = "Where time and memory go"
BESIDE = ("deployment", "systems", "GPUs", "requests/s per GPU", "USD a year", "in place of the choice")


def explained_section(plan: Plan) -> Section:
    """The section in numbers; empty where nothing was taken apart."""
    return section("explain", TITLE, explained_items(plan), step_table(plan), limits_table(plan), memory_table(plan))


def explained_items(plan: Plan) -> Block | None:
    """What a mean step holds, what takes most of it, and how busy the front end is."""
    return None if plan.explain is None else items(_sentences(plan.explain, len(plan.choice.pools) if plan.choice else 1))


def _sentences(explained: Explanation, pools: int) -> tuple[str, ...]:
    where = "" if pools == 1 else f"of a {'decode' if explained.decode_sequences else 'prefill'} instance, whose pool ends the load, "
    most = next((term for term in explained.terms if term.term == explained.binds), None)
    contents = (explained.prefill_tokens, "prompt tokens"), (explained.decode_sequences, "requests that decode")
    lines = [
        f"At the highest load inside the limits, a mean step {where}takes {number(explained.step_seconds * 1e3)} ms for "
        f"{' and '.join(f'{number(count)} {name}' for count, name in contents if count or not where)}."
    ]
    if most is not None:
        lines.append(f"Its largest part, {percent(most.share)}, is this: {TERMS.get(most.term, most.term)}.")
    busy = explained.front_end_busy
    if busy >= FRONT_END_LIMITS:
        lines.append(
            f"The front end streams tokens {percent(busy)} of the time, which limits: a larger stream interval, or a further API server, "
            "relieves it."
        )
    elif busy >= FRONT_END_FELT:
        lines.append(f"The front end streams tokens {percent(busy)} of the time.")
    return tuple(lines)


def step_table(plan: Plan) -> Table | None:
    """Milliseconds of a mean step by what takes them, the largest first."""
    if plan.explain is None or not plan.explain.terms:
        return None
    rows = tuple((TERMS.get(t.term, t.term), number(t.seconds * 1e3), percent(t.share)) for t in plan.explain.terms if t.seconds)
    return Table(caption="A mean step by what takes its time", header=("part", "ms", "share"), rows=rows, folded=True)


def limits_table(plan: Plan) -> Table | None:
    """How far each limit is used at the highest load inside them."""
    if plan.explain is None or not plan.explain.limits:
        return None
    rows = tuple(
        (
            limit_text(use.limit),
            number(use.value_ms) if use.limit.share is None else ABSENT,
            ABSENT if use.used is None else percent(use.used),
        )
        for use in plan.explain.limits
    )
    return Table(caption="The limits at that load", header=("limit", "ms", "used"), rows=rows)


def memory_table(plan: Plan) -> Table | None:
    """Gigabytes of one GPU by use; None where they are not known."""
    if plan.choice is None or len(plan.choice.pools) != 1 or not plan.choice.memory:
        return None
    rows = tuple((MEMORY[part.part], number(part.bytes_per_gpu / 1e9), percent(part.share)) for part in plan.choice.memory)
    return Table(caption="Memory of one GPU", header=("part", "GB", "share"), rows=rows, folded=True)


def why_text(plans: Sequence[Plan]) -> Document:
    """The reasons of one plan, or of several one after the other."""
    return Document(title="", subtitle="", sections=tuple(one for plan in plans for one in _sections(plan) if one.blocks))


def _sections(plan: Plan) -> tuple[Section, ...]:
    return (
        section("question", "", Facts(rows=question_rows(plan))),
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
        yield f"Nothing was chosen: {answer_text(plan)}; the reasons are below."
        return
    yield f"Chosen for the {first_text(plan.aim)}: {answer_text(plan)}."
    load, rate = plan.demand.sizing_requests_per_second, best.sized_rate
    counted_on = f"{number(rate)}{counted_text(best)}"
    of_system = counted(best.pools[0].fleet.instances_per_system, "instance")
    yield (
        f"The load is {number(load)} requests/s, and one instance is counted with {counted_on}: {number(load / rate)} instances, "
        f"which is {number(best.systems_exact)} systems of {of_system} each."
    )
    yield f"One instance carries no more because of {bound_text(best.binds)}."
    check = plan.fleet_check
    if check is not None and check.systems != check.by_division:
        yield f"The division asks for {check.by_division} systems; the whole fleet, simulated, holds the limits on {check.systems}."
    risk, unsure = risk_text(plan, best), not_sure_text(plan)
    if unsure:
        yield f"{unsure}."
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
