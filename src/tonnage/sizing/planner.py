"""The whole answer: a question, every deployment that could answer it, and the plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tonnage.plan.candidate import Candidate
from tonnage.plan.demand import Existing
from tonnage.plan.plan import Plan
from tonnage.plan.sensitivity import pareto
from tonnage.sizing.explain import explained, load_curve
from tonnage.sizing.extrapolation import beyond
from tonnage.sizing.fleet.existing import existing
from tonnage.sizing.fleet.routers import (
    behind_routers,
    pools_instead,
    prefix_cache,
    together_instead,
)
from tonnage.sizing.loads.capacity import job_done
from tonnage.sizing.loads.runs import Runs
from tonnage.sizing.loads.trial import Ready
from tonnage.sizing.notes import notes, percentile_answer, provenance, understood, warnings
from tonnage.sizing.progress import Progress, Steps, no_progress, parallel
from tonnage.sizing.question import Question
from tonnage.sizing.search.candidate import candidate, reachable
from tonnage.sizing.search.deployment_capacity import Sized
from tonnage.sizing.search.search import Search
from tonnage.sizing.sensitivity import narrow_cache, narrowable, sensitivity, unreached
from tonnage.sizing.session_tiers import held_sessions, session_tiers

__all__ = ["Progress", "Runs", "no_progress", "size"]


def size(
    question: Question,
    *,
    progress: Progress = no_progress,
    workers: int | None = None,
    prune: bool = True,
    rows: bool = True,
    runs: Runs | None = None,
    decided: Callable[[Plan], None] | None = None,
) -> Plan:
    """Answer the question.

    Args:
        question: load, limits and what may be bought.
        progress: called after each deployment that was tried, and after each part about the choice.
        workers: threads to simulate on; the answer does not depend on it.
        prune: as for ``search.Search``; the choice does not depend on it.
        rows: whether deployments next to the choice are sized and told too.
        runs: the memory of an earlier question, whose runs are not made again.
        decided: called with the plan as soon as the choice is made, without the parts about the
            choice alone (``_parts``).

    Raises:
        InputError: the question contradicts itself.
    """
    question.check()
    runs, steps = Runs() if runs is None else runs, Steps(progress)
    runs.keep_requests(question.slo)
    have: Existing | None = None
    seeds: tuple[Ready, ...] = ()
    if question.have:
        have, question, seeds = existing(question, runs, steps, workers)
    search = Search(
        question=question,
        runs=runs,
        steps=steps,
        workers=workers,
        prune=prune,
        rows=rows,
        seeds=seeds,
    )
    answer = search.answer()
    candidates = _candidates(answer.found if rows else answer.found[:1], workers)
    best = answer.best
    plan = Plan(
        scenario=understood(question),
        demand=question.demand,
        candidates=candidates,
        rejected=answer.rejected,
        reachable=None
        if candidates
        else reachable(question, runs, answer.prepared, answer.rejected),
        notes=notes(question, best, candidates),
        percentile_answer=None if best is None else percentile_answer(best, candidates[0]),
        provenance=provenance(question, candidates),
        pareto=() if question.offline else pareto(candidates),
        fleet_check=answer.check,
        job=None
        if best is None
        else job_done(question, best.ready.instance, candidates[0].instances),
        existing=have,
        beyond=() if best is None else beyond(best, candidates[0]),
    )
    if best is None or not question.deepen:
        return plan
    if decided is not None:
        decided(plan)
    deep = _side_by_side(
        _parts(replace(search, learned=answer.learned), best),
        steps,
        workers if question.recording is None else 1,
    )
    return replace(plan, warnings=warnings(best, deep.get("sensitivity")), **deep)


def _candidates(deployments: Sequence[Sized], workers: int | None) -> tuple[Candidate, ...]:
    """What the plan says of deployments that meet the limits, the choice first."""
    candidates_by_place = dict(
        parallel(
            lambda place: candidate(deployments[place], chosen=place == 0),
            range(len(deployments)),
            workers,
        )
    )
    return tuple(candidates_by_place[place] for place in range(len(deployments)))


Parts = dict[str, Callable[[], Any]]


def _parts(search: Search, best: Sized) -> Parts:
    """The plan's parts about the choice alone, and what would change it."""
    question = search.question
    if question.sharing is not None and question.sharing.recorded is not None:
        held: Parts = {"session_tiers": lambda: session_tiers(best)}
        return {
            "explain": lambda: explained(best),
            "curve": lambda: load_curve(best),
            "sessions": lambda: held_sessions(best),
            **(held if question.session_tiers else {}),
        }
    parts: Parts = {"narrow_cache": lambda: narrow_cache(search, best)} if narrowable(best) else {}
    parts |= {
        "sensitivity": lambda: sensitivity(search, best),
        "prefix_cache": lambda: prefix_cache(best),
    }
    if not question.offline:
        parts |= {
            "explain": lambda: explained(best),
            "routers": lambda: behind_routers(best),
            "tail": lambda: unreached(search, best),
        }
    if question.load == "open" and not question.offline:
        parts["curve"] = lambda: load_curve(best)
        parts |= (
            {"pools_instead": lambda: pools_instead(search, best)} if question.pools is None else {}
        )
    if question.pools is not None:
        parts["together_instead"] = lambda: together_instead(search, best)
    return parts


def _side_by_side(parts: Parts, steps: Steps, workers: int | None) -> dict[str, Any]:
    """The parts, side by side, each told when it is done."""
    values: dict[str, Any] = {}
    steps.expect(len(parts))
    for name, value in parallel(lambda name: parts[name](), list(parts), workers):
        values[name] = value
        steps.done(NAMES[name])
    return values


NAMES = {
    "sensitivity": "what would change the answer",
    "narrow_cache": "a KV cache in FP8",
    "prefix_cache": "prefix caches",
    "explain": "where time goes",
    "routers": "other routers",
    "tail": "higher confidence",
    "curve": "latency against load",
    "sessions": "the sessions at the limit",
    "session_tiers": "sessions at other limits",
    "pools_instead": "prefill and decode apart",
    "together_instead": "instances that do both",
}
"""What the progress calls each part."""
