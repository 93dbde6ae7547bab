"""What the prefix caches of a choice find, behind its router and behind another, and what the deployment would carry without them.

Random choice, round robin and the hashing of sessions do not depend on the state of an engine, so that the requests of every instance are
known beforehand and each is simulated by the compiled loop. A router that looks at the load shares conversations out as random choice
does; one that looks at prompts keeps conversations together as hashing does (``shared_load.owners``).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tonnage.plan.prefix_cache import PrefixCache
from tonnage.sizing.loads.bounds import Carried
from tonnage.sizing.loads.fleet_check import Replayed, fleet_record, simulated_of
from tonnage.sizing.loads.instance import Instance
from tonnage.sizing.loads.shared_load import hit_rate, shared_out_as
from tonnage.sizing.search.candidate import candidate
from tonnage.sizing.search.search import measure
from tonnage.sizing.sharing import AFFINE

if TYPE_CHECKING:
    from tonnage.plan.candidate import Candidate
    from tonnage.sizing.question import Question
    from tonnage.sizing.search.search import Answer


def prefix_cache(question: Question, found: Answer) -> PrefixCache | None:
    """Of the choice of an answer; None where prompts share nothing, nothing was chosen, or the choice keeps nothing."""
    if question.sharing is None or not found.candidates:
        return None
    choice, carried = found.candidates[0], found.carried[0]
    if not carried.ready.instance.knobs.prefix_caching:
        return None
    instance, count = carried.ready.instance, choice.pool.fleet.of(choice.systems - question.spare).instances
    rate = question.demand.sizing_requests_per_second
    alone = hit_rate(instance.open(carried.capacity.rate, instance.count(carried.capacity.rate), question.seed))
    hits, shown = _in_fleet(question, instance, rate, count, question.router)
    other = _other(question, count)
    without = without_cache(question, carried)
    return PrefixCache(
        shares=said_of(question),
        hit_rate=hits,
        router=question.router,
        shared_out_as=shared_out_as(question.sharing, question.router) if count > 1 else question.router,
        instances=count,
        simulated_instances=shown,
        one_instance=alone,
        other_router=other,
        other_hit_rate=_in_fleet(question, instance, rate, count, other)[0] if other else None,
        without_systems=None if without is None else without.systems,
        without_requests_per_second_per_instance=None if without is None else without.requests_per_second_per_instance,
    )


def said_of(question: Question) -> str:
    """What prompts share, in words: "1000 shared tokens", or the blocks of a trace; "" for nothing."""
    sharing = question.sharing
    if sharing is None:
        return ""
    return str(sharing.sessions) if sharing.sessions is not None else "the blocks of the trace"


def without_cache(question: Question, carried: Carried) -> Candidate | None:
    """The deployment without a prefix cache under the same prompts; None where no load is inside the limits."""
    trial = carried.ready.trial
    deployment = replace(trial.deployment, knobs=replace(trial.deployment.knobs, prefix_caching=False))
    instance = Instance(deployment, carried.ready.instance.asked)
    ready = replace(carried.ready, trial=replace(trial, deployment=deployment), instance=instance)
    capacity = measure(question, ready, care=carried.capacity.care)
    return None if capacity.reason is not None else candidate(question, Carried(ready=ready, capacity=capacity))


def _other(question: Question, instances: int) -> str:
    """A router that does the opposite: keeps together what belongs together, or does not."""
    sharing = question.sharing
    if instances == 1 or sharing is None or question.offline or question.load != "open":
        return ""
    if sharing.recording is not None:
        return "random" if question.router in AFFINE else "prefix-aware"
    if not sharing.follows:
        return ""
    return "random" if question.router in AFFINE else "session"


def _in_fleet(question: Question, instance: Instance, rate: float, instances: int, router: str) -> tuple[float, int]:
    """The hit rate of a fleet, and how many of its instances were simulated."""
    whole = None if question.recording is None else Replayed(recording=question.recording, lengths=True)
    shown = instances if whole is not None else simulated_of(instance, instances, rate)
    return hit_rate(fleet_record(instance, rate, instances, router, whole)[0]), shown
