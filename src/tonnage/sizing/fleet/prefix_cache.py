"""What the prefix caches of a choice find, behind its router and behind another, and what the deployment would carry without them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tonnage.plan.sensitivity import PrefixCache
from tonnage.sizing.loads.fleet_check import Replayed, fleet_record, simulated_of
from tonnage.sizing.loads.instance import QUICK
from tonnage.sizing.loads.shared_load import hit_rate, shared_out_as
from tonnage.sizing.sharing import AFFINE

if TYPE_CHECKING:
    from tonnage.sizing.question import Question
    from tonnage.sizing.search.contender import Contender, Sized


def prefix_cache(best: Sized) -> PrefixCache | None:
    """Of the choice of an answer; None where prompts share nothing, or the choice keeps nothing."""
    contender, question = best.contender, best.contender.question
    if question.sharing is None or not contender.instance.knobs.prefix_caching:
        return None
    instance, count, rate = contender.instance, best.instances, best.as_predicted.rate
    alone = hit_rate(instance.open(rate, instance.requests_of(rate, QUICK), question.seed))
    hits, shown = _in_fleet(contender, count, question.router)
    other = _other(question, count)
    without = without_cache(best)
    return PrefixCache(
        shares=shared_in_words(question),
        hit_rate=hits,
        router=question.router,
        shared_out_as=_rule(question, count),
        instances=count,
        simulated_instances=shown,
        one_instance=alone,
        other_router=other,
        other_hit_rate=_in_fleet(contender, count, other)[0] if other else None,
        without_systems=None if without is None else without[0] + question.spare,
        without_requests_per_second_per_instance=None if without is None else without[1],
    )


def shared_in_words(question: Question) -> str:
    """What prompts share: "1000 shared tokens", or the blocks of a trace; "" for nothing."""
    sharing = question.sharing
    if sharing is None:
        return ""
    return str(sharing.sessions) if sharing.sessions is not None else "the blocks of the trace"


def without_cache(best: Sized) -> tuple[int, float] | None:
    """Systems of the deployment without a prefix cache under the same prompts, and requests per second of one of their instances.

    None where no load is inside the limits.
    """
    ready = best.ready
    deployment = replace(ready.trial.deployment, knobs=replace(ready.trial.deployment.knobs, prefix_caching=False))
    instance = best.contender.runs.instance(deployment, ready.instance.traffic)
    plain = replace(best.contender, ready=replace(ready, trial=replace(ready.trial, deployment=deployment), instance=instance))
    found = plain.needed(best.slowdown, care=best.care)
    return (found[0], plain.capacity(plain.layout.of(found[0]).instances, care=QUICK).rate) if isinstance(found, tuple) else None


def _rule(question: Question, instances: int) -> str:
    """The router by whose rule requests were shared out in the simulation."""
    sharing = question.sharing
    if sharing is None or instances == 1 or (sharing.balanced(question.router) and not sharing.follows):
        return question.router
    return shared_out_as(sharing, question.router)


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


def _in_fleet(contender: Contender, instances: int, router: str) -> tuple[float, int]:
    """The hit rate of a fleet, and how many of its instances were simulated."""
    question, instance, rate = contender.question, contender.instance, contender.load
    whole = None if question.recording is None else Replayed(recording=question.recording, lengths=True)
    shown = instances if whole is not None else simulated_of(instance, instances, rate)
    record = contender.runs.once(
        (instance, "shared", rate, instances, router), lambda: fleet_record(instance, rate, instances, router, replayed=whole)[0]
    )
    return hit_rate(record), shown
