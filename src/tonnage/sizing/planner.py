"""The whole search: a question, every deployment that could answer it, and the plan."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tonnage.plan.pareto import pareto
from tonnage.plan.plan import Plan
from tonnage.sizing.demand import carried_by_existing
from tonnage.sizing.explain import explained
from tonnage.sizing.fleet.at_peak import at_peaks
from tonnage.sizing.fleet.existing import existing
from tonnage.sizing.fleet.prefix_cache import prefix_cache
from tonnage.sizing.fleet.routers import behind_routers
from tonnage.sizing.loads.confidence import at_confidence
from tonnage.sizing.loads.curve import load_curve
from tonnage.sizing.loads.offline import job_done
from tonnage.sizing.loads.trace_capacity import replayed_at
from tonnage.sizing.notes import notes, provenance, understood
from tonnage.sizing.parallel import parallel
from tonnage.sizing.percentile import percentile_answer
from tonnage.sizing.question import Question
from tonnage.sizing.search.reachable import reachable
from tonnage.sizing.search.search import Answer, Progress, answer, no_progress, ranked
from tonnage.sizing.search.search_space import prepare
from tonnage.sizing.sensitivity import sensitivity
from tonnage.sizing.warnings import warnings

if TYPE_CHECKING:
    from collections.abc import Callable

    from tonnage.plan.at_peak import AtPeak
    from tonnage.plan.curve import CurvePoint
    from tonnage.plan.existing import Existing

LOWER, LOWERED = 0.98, 10
"""What the load of existing systems is lowered by, and how often at most, until the systems that are sized for it are no more than they."""

__all__ = ["Progress", "no_progress", "size"]


def size(question: Question, *, progress: Progress = no_progress, workers: int | None = None, prune: bool = True) -> Plan:
    """Answer the question.

    Args:
        question: what is asked.
        progress: called after each deployment.
        workers: threads to simulate on; the answer does not depend on it.
        prune: as for ``search.answer``; the choice does not depend on it.

    Raises:
        InputError: the question contradicts itself.
    """
    question.check()
    prepared = prepare(question)
    found = answer(question, prepared, progress=progress, workers=workers, prune=prune)
    have = existing(question, _at_confidence(question, found)) if question.have else None
    if have is not None and question.demand.of_existing and have.requests_per_second > 0:
        question, have, found = _for_what_they_carry(question, have, found)
    found = _with_peaks(question, found, workers) if question.deepen else found
    deep = _deepened(question, found, workers) if question.deepen and found.candidates else {}
    return Plan(
        scenario=understood(question),
        demand=question.demand,
        candidates=found.candidates,
        rejected=found.rejected,
        reachable=None if found.candidates else reachable(question, prepared, found.rejected),
        notes=notes(question, found),
        percentile_answer=percentile_answer(question, found),
        provenance=provenance(question, found.candidates),
        pareto=() if question.offline else pareto(found.candidates),
        fleet_check=found.check,
        prefix_cache=prefix_cache(question, found),
        job=job_done(question, found.carried[0].ready.instance, found.candidates[0].instances) if found.candidates else None,
        existing=have,
        **deep,
    )


def _for_what_they_carry(question: Question, have: Existing, found: Answer) -> tuple[Question, Existing, Answer]:
    """The plan for the load that existing systems carry, where none was asked for.

    The load of their fleet and the systems that are sized for it come from different runs. Where these ask for a system more than
    there is, the load is lowered until they do not: what is told was seen to hold both ways.
    """
    owned = question.have[0].count if len(question.have) == 1 else None
    for lowered in range(LOWERED + 1):
        asked = replace(question, demand=carried_by_existing(have.requests_per_second * LOWER**lowered))
        again = ranked(asked, found.carried, found.rejected)
        if owned is None or again.candidates[0].systems - question.spare <= owned:
            break
    rate = LOWER**lowered
    groups = tuple(replace(group, requests_per_second=group.requests_per_second * rate) for group in have.groups)
    return asked, replace(have, groups=groups, requests_per_second=have.requests_per_second * rate), again


def _with_peaks(question: Question, found: Answer, workers: int | None) -> Answer:
    """Every candidate with what its requests see at the peak."""
    peaks = at_peaks(question, found, workers)
    return replace(found, candidates=tuple(replace(each, at_peak=peak) for each, peak in zip(found.candidates, peaks, strict=True)))


def _at_confidence(question: Question, found: Answer) -> Answer:
    """The answer with steps as slow as the asked confidence allows for: what systems that exist carry is as sure as what is bought."""
    return replace(found, carried=tuple(at_confidence(question, carried) for carried in found.carried))


def _deepened(question: Question, found: Answer, workers: int | None) -> dict[str, Any]:
    """What is said of the choice alone, and what would change it; side by side, but for a recording, whose runs are noted in order."""
    parts: dict[str, Callable[[], Any]] = {
        "sensitivity": lambda: sensitivity(question, found, workers),
        "routers": lambda: behind_routers(question, found),
    }
    if not question.offline:
        parts["explain"] = lambda: explained(found.carried[0])
    if question.load == "open" and not question.offline:
        parts["curve"] = lambda: _curve(question, found)
    deep = dict(parallel(lambda name: parts[name](), list(parts), workers if question.recording is None else 1))
    return {**deep, "warnings": warnings(question, found, deep["sensitivity"])}


def _curve(question: Question, found: Answer) -> tuple[CurvePoint, ...]:
    """The latencies of the choice at every load."""
    best, chosen = found.candidates[0], found.carried[0]
    serving = best.pool.fleet.of(best.systems - question.spare).instances
    peak = question.demand.sizing_requests_per_second / serving
    replayed = replayed_at(question, chosen, serving) if question.recording is not None else None
    curve = load_curve(chosen.ready.instance, chosen.capacity, peak, replayed)
    return tuple(_as_the_fleet(point, best.at_peak) for point in curve)


def _as_the_fleet(point: CurvePoint, peak: AtPeak | None) -> CurvePoint:
    """The point at the peak with the latencies of the whole fleet, which the plan names; the others as they are."""
    if peak is None or point.mark != "peak":
        return point
    return replace(point, ttft_ms=peak.ttft_ms, itl_ms=peak.itl_ms, tpot_ms=peak.tpot_ms, e2e_ms=peak.e2e_ms)
