"""What would change the answer: the systems at other inputs, and the cheapest limit to relax.

Every figure is the search run again with the changed input, on the same seeds, fleet check and all. Only ``KEPT``
deployments take part, those that carried most per GPU, and the chosen one; their knobs stay as they were found.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tonnage.plan.limit import limit_of
from tonnage.plan.reason import NothingMeetsLimits
from tonnage.plan.sensitivity import Changed, Input, Relaxed, Sensitivity, Swing
from tonnage.sizing.loads.ready import Ready
from tonnage.sizing.parallel import parallel
from tonnage.sizing.search.decisive import decided
from tonnage.sizing.search.search import answer, fleet_under, ranked
from tonnage.sizing.search.search_space import prepared_trial
from tonnage.spec.lengths import Lengths

if TYPE_CHECKING:
    from tonnage.plan.candidate import Candidate
    from tonnage.sizing.loads.ready import Trial
    from tonnage.sizing.question import Question
    from tonnage.sizing.search.search import Answer

CHANGE = 0.2
"""How far every input is moved, down and up."""

KEPT = 3
"""Deployments that take part when an input is changed."""

ROUNDED = (1.01, 1.04, 1.08)
"""A relaxed limit over the value that the fleet needs, before it is rounded up; the first of these that saves a system is taken."""

Move = tuple[Input, float]
"""An input, and the share by which it is moved."""

SETTLED = 0.95
"""Share of saturation above which no limit is offered for relaxing: latencies there are those of a queue that hardly settles."""


def sensitivity(question: Question, found: Answer, workers: int | None = None) -> Sensitivity:
    """The swings of every input and the cheapest relaxed limit, around an answer with at least one candidate."""
    inputs: list[Input] = ["isl", "osl", "rate", "step_time"] if question.recording is None else ["rate", "step_time"]
    best, changed = found.candidates[0], {}

    def moved(moves: Sequence[Move]) -> dict[Move, Changed]:
        return {(name, change): _bounded(_changed(question, found, name, change), best) for name, change in moves}

    for _, outcomes in parallel(moved, _apart(inputs), workers):
        changed.update(outcomes)
    swings = [Swing(input=name, low=changed[name, -CHANGE], high=changed[name, CHANGE]) for name in inputs]
    return Sensitivity(
        systems=best.systems, systems_exact=best.systems_exact, swings=tuple(swings), relaxed=cheapest_relaxed(question, found, workers)
    )


def _apart(inputs: Sequence[Input]) -> list[tuple[Move, ...]]:
    """The moves that may be made side by side: both of the rate run on the instances that were found, one after the other."""
    moves = {name: ((name, -CHANGE), (name, CHANGE)) for name in inputs}
    return [moves["rate"], *((move,) for name, pair in moves.items() if name != "rate" for move in pair)]


def changed_question(question: Question, name: Input, change: float) -> Question:
    """The question with one input times 1 + ``change``."""
    factor = 1 + change
    if name == "rate":
        demand = question.demand
        scaled = replace(
            demand,
            peak_requests_per_second=demand.peak_requests_per_second * factor,
            sizing_requests_per_second=demand.sizing_requests_per_second * factor,
            offline_requests=None if demand.offline_requests is None else round(demand.offline_requests * factor),
        )
        recording = question.recording
        stretched = None if recording is None else recording.at_mean(recording.mean_rps * factor)
        return replace(question, demand=scaled, recording=stretched)
    if name == "step_time":
        return replace(question, step_factor=question.step_factor * factor)
    if question.sharing is not None:
        sharing = question.sharing.scaled(factor) if name == "isl" else question.sharing
        osl = question.osl.scaled(factor) if name == "osl" else question.osl
        return replace(question, isl=sharing.best(osl).isl, osl=osl, sharing=sharing)
    lengths: Lengths = getattr(question, name)
    pairs = None if question.pairs is None else question.pairs.scaled(**{name: factor})
    return replace(question, **{name: lengths.scaled(factor)}, pairs=pairs)  # type: ignore[arg-type]


def _changed(question: Question, found: Answer, name: Input, change: float) -> Changed:
    """The answer with one input changed, no harder than the plan where less is asked and no easier where more is.

    What carries the whole load carries less of it: where the runs of the two answers say otherwise, they differ by their noise.
    """
    asked = changed_question(question, name, change)
    if name == "rate" and question.recording is None and not question.offline:
        again = ranked(asked, found.carried, (), workers=1)
    else:
        again = _again(asked, found, workers=1)
    mine = _as_changed(change, found)
    if not again.candidates:
        reason = again.rejected[0].reason if again.rejected else NothingMeetsLimits()
        return mine if change < 0 else Changed(change=change, systems=None, systems_exact=None, deployment=None, reason=reason)
    theirs, harder = _as_changed(change, again), max if change > 0 else min
    systems, exact = harder(_figures(mine), _figures(theirs))
    return theirs if _figures(theirs) == (systems, exact) else mine


def _as_changed(change: float, found: Answer) -> Changed:
    """An answer as what a changed input leads to."""
    best, identity = found.candidates[0], found.carried[0].ready.trial.identity
    return Changed(change=change, systems=best.systems, systems_exact=best.systems_exact, deployment=identity, reason=None)


def _figures(changed: Changed) -> tuple[int, float]:
    """Systems, and exactly how many."""
    return changed.systems or 0, changed.systems_exact or 0.0


def _bounded(changed: Changed, best: Candidate) -> Changed:
    """No more than the answer asks for where an input is lower, and no fewer where it is higher.

    Shorter outputs, for one, have fewer gaps over which a prompt of somebody else is spread, and so a higher TPOT at the same rate. Who
    has them may still run what longer ones would need.
    """
    if changed.systems is None or changed.systems_exact is None:
        return changed
    bound = min if changed.change < 0 else max
    return replace(changed, systems=bound(changed.systems, best.systems), systems_exact=bound(changed.systems_exact, best.systems_exact))


def _again(asked: Question, found: Answer, workers: int | None) -> Answer:
    """The search run again among the deployments that take part, with the knobs that were found for them."""
    asked = replace(asked, tune=False, deepen=False)
    kept = _kept(found)
    prepared = {trial: prepared_trial(asked, trial, place) for place, trial in enumerate(sorted(kept, key=lambda trial: kept[trial]))}
    ready = [one for trial in kept if isinstance(one := prepared[trial], Ready)]
    if asked.load == "open" and not asked.offline and asked.recording is None and len(ready) == len(kept):
        known = decided(asked, ready)
        if known is not None:
            return ranked(asked, sorted(known, key=lambda one: one.ready.place), (), workers)
    return answer(asked, list(prepared.values()), workers=workers, far=1.0)


def _kept(found: Answer) -> dict[Trial, int]:
    """The deployments that take part, as they were tuned, with their places in the search: the chosen one, then those that carry most."""
    best = sorted(found.carried, key=lambda c: (-c.rate_per_gpu, c.ready.place))[:KEPT]
    return {c.ready.trial: c.ready.place for c in (found.carried[0], *best)}


def cheapest_relaxed(question: Question, found: Answer, workers: int | None = None) -> Relaxed | None:
    """The one limit that breaks with a system fewer, relaxed to what it would have to be; a search again shows that it saves one.

    It counts as broken where it breaks behind the router or behind random choice, which is how one instance was found to be full.
    """
    best, limits = found.candidates[0], question.limits
    if found.check is None or not limits:
        return None
    fleet = fleet_under(question, found.carried[0])
    fewer = found.check.systems - fleet.span
    if fewer < fleet.span or not fleet.could_carry(fewer, SETTLED):
        return None
    runs = [fleet.latencies_s(fleet.summary(fewer, router)[0]) for router in dict.fromkeys((question.router, "random"))]
    latencies = [(pairs[0][0], max(seconds for _, seconds in pairs)) for pairs in zip(*runs, strict=True)]
    broken = [(limit, seconds) for limit, seconds in latencies if seconds > limit.seconds]
    if len(broken) != 1:
        return None
    limit, value = broken[0]
    for factor in ROUNDED:
        seconds = _rounded_up(factor * value)
        looser = replace(limit, seconds=seconds)
        slo = tuple(looser if each == limit else each for each in question.slo)
        again = _again(replace(question, slo=slo), found, workers)
        if again.candidates and again.candidates[0].systems < best.systems:
            systems = again.candidates[0].systems
            return Relaxed(limit=limit_of(limit), to_ms=1e3 * seconds, systems=systems, saved=best.systems - systems)
    return None


def _rounded_up(seconds: float) -> float:
    """Rounded up to two digits, or to three where the first is 1 or 2."""
    exponent = math.floor(math.log10(seconds))
    digits = 2 if seconds / 10**exponent < 3 else 1
    unit = 10.0 ** (exponent - digits)
    return float(f"{math.ceil(seconds / unit - 1e-9) * unit:.12g}")
