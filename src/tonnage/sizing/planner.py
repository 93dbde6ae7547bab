"""The whole search: a question, every deployment that could answer it, and the plan."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tonnage.plan.pareto import pareto
from tonnage.plan.plan import Plan
from tonnage.sizing.confidence import confidence_of, confidences
from tonnage.sizing.curve import load_curve
from tonnage.sizing.demand import carried_by_existing
from tonnage.sizing.existing import existing
from tonnage.sizing.explain import explained
from tonnage.sizing.notes import notes, provenance, understood
from tonnage.sizing.offline import job_done
from tonnage.sizing.percentile import percentile_answer
from tonnage.sizing.question import Question
from tonnage.sizing.reachable import reachable
from tonnage.sizing.search import Answer, Progress, answer, no_progress, ranked
from tonnage.sizing.search_space import prepare
from tonnage.sizing.sensitivity import sensitivity
from tonnage.sizing.trace_capacity import replayed_at
from tonnage.sizing.warnings import warnings

if TYPE_CHECKING:
    from tonnage.plan.candidate import Candidate
    from tonnage.plan.confidence import Confidence

__all__ = ["Progress", "no_progress", "size"]


def size(question: Question, *, progress: Progress = no_progress, workers: int | None = None) -> Plan:
    """Answer the question.

    Args:
        question: what is asked.
        progress: called after each deployment.
        workers: threads to simulate on; the answer does not depend on it.

    Raises:
        InputError: the question contradicts itself.
    """
    question.check()
    prepared = prepare(question)
    found = answer(question, prepared, progress=progress, workers=workers)
    have = existing(question, found) if question.have else None
    if have is not None and question.demand.of_existing and have.requests_per_second > 0:
        question = replace(question, demand=carried_by_existing(have.requests_per_second))
        found = ranked(question, found.carried, found.rejected)
    deep = _deepened(question, found, workers) if question.deepen and found.candidates else {}
    sure = confidence_of(question, found, workers) if question.deepen and found.candidates else None
    return Plan(
        scenario=understood(question),
        demand=question.demand,
        candidates=_with_confidence(question, found, sure),
        rejected=found.rejected,
        reachable=None if found.candidates else reachable(question, prepared, found.rejected),
        notes=notes(question, found),
        percentile_answer=percentile_answer(question, found),
        provenance=provenance(question, found.candidates),
        pareto=() if question.offline else pareto(found.candidates),
        fleet_check=found.check,
        job=job_done(question, found.carried[0].ready.instance, found.candidates[0].instances) if found.candidates else None,
        existing=have,
        **deep,
    )


def _with_confidence(question: Question, found: Answer, chosen: Confidence | None) -> tuple[Candidate, ...]:
    """Every candidate with the confidence in its number of systems; that of the choice was simulated."""
    each = list(confidences(question, found))
    if chosen is not None:
        each[0] = chosen
    return tuple(replace(candidate, confidence=sure) for candidate, sure in zip(found.candidates, each, strict=True))


def _deepened(question: Question, found: Answer, workers: int | None) -> dict[str, Any]:
    """What is said of the choice alone, and what would change it."""
    best, chosen = found.candidates[0], found.carried[0]
    deep: dict[str, Any] = {"warnings": warnings(question, found), "sensitivity": sensitivity(question, found, workers)}
    if not question.offline:
        deep["explain"] = explained(chosen)
    if question.load == "open" and not question.offline:
        peak = question.demand.sizing_requests_per_second / best.instances
        replayed = replayed_at(question, chosen, best.instances) if question.recording is not None else None
        deep["curve"] = load_curve(chosen.ready.instance, chosen.capacity, peak, replayed)
    return deep
