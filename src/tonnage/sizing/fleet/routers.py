"""What the router of a plan is worth: its deployment behind the router, behind random choice and
behind round robin.

Random choice is what a plain Kubernetes service amounts to, and round robin what DNS does.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tonnage.plan.fleet import BehindRouter
from tonnage.plan.plan import OtherServing
from tonnage.plan.sensitivity import PrefixCache
from tonnage.simulator.pools import COUNTING
from tonnage.sizing.loads.fleet_check import Replayed, fleet_record, simulated_of
from tonnage.sizing.loads.instance import QUICK
from tonnage.sizing.loads.shared_load import hit_rate, shared_out_as
from tonnage.sizing.loads.trial import Ready
from tonnage.sizing.question import AFFINE, Pools, Question
from tonnage.sizing.search.deployment_capacity import HAIR, Contender, Sized
from tonnage.sizing.search.disaggregated import contenders_of, poolable
from tonnage.sizing.search.objectives import FewestGpus
from tonnage.sizing.search.search_space import prepare, system_for
from tonnage.sizing.sensitivity import again

if TYPE_CHECKING:
    from tonnage.sizing.search.search import Search


OTHERS = ("random", "round-robin", "least-outstanding")
"""The first two other than the plan's own are compared with it."""


def behind_routers(best: Sized) -> tuple[BehindRouter, ...]:
    """The choice of an answer behind the requested router, and behind two of ``OTHERS``.

    Empty where one instance serves, or the load is no open one.
    """
    question = best.contender.question
    if question.load != "open" or question.offline or best.instances == 1:
        return ()
    peak = best.contender.at_peak()
    rows = []
    for router in list(dict.fromkeys((question.router, *_routers_to_compare(question))))[:3]:
        summary = peak.seen(best.systems, router).summary
        systems = (
            best.systems
            if router == question.router
            else best.contender.settled(best.slowdown, router=router)
        )
        rows.append(
            BehindRouter(
                router=router,
                systems=systems,
                ttft_ms=summary.ttft_ms,
                itl_ms=summary.itl_ms,
                tpot_ms=summary.tpot_ms,
                e2e_ms=summary.e2e_ms,
            )
        )
    return tuple(rows)


def _routers_to_compare(question: Question) -> tuple[str, ...]:
    """The routers to compare with; where prompts share something, one that treats what belongs
    together the other way.
    """
    sharing = question.sharing
    if sharing is None:
        return OTHERS
    if sharing.recording is not None:
        return ("random", "prefix-aware", "round-robin")
    return ("random", "session", "round-robin") if sharing.follows else OTHERS


# What the prefix caches of a choice find, behind its router and behind another, and what the
# deployment would carry without them.


def prefix_cache(best: Sized) -> PrefixCache | None:
    """The prefix cache of an answer's choice; None where prompts share nothing, or the choice keeps
    nothing.
    """
    contender, question = best.contender, best.contender.question
    if question.sharing is None or not contender.instance.knobs.prefix_caching:
        return None
    instance, count, rate = contender.instance, best.instances, best.as_predicted.rate
    alone = hit_rate(instance.open(rate, instance.requests_of(rate, QUICK), question.seed))
    hits, shown = _in_fleet(contender, count, question.router)
    other_router = _opposite_router(question, count)
    without = without_cache(best)
    return PrefixCache(
        shares=shared_in_words(question),
        hit_rate=hits,
        router=question.router,
        shared_out_as=_rule(question, count),
        instances=count,
        simulated_instances=shown,
        one_instance=alone,
        other_router=other_router,
        other_hit_rate=_in_fleet(contender, count, other_router)[0] if other_router else None,
        without_systems=None if without is None else without[0] + question.spare,
        without_requests_per_second_per_instance=None if without is None else without[1],
    )


def shared_in_words(question: Question) -> str:
    """What prompts share: "1000 shared tokens", or the blocks of a trace; "" for nothing."""
    sharing = question.sharing
    if sharing is None:
        return ""
    if sharing.recorded is not None:
        return f"sessions as recorded ({len(sharing.recorded)} of them, drawn again and again)"
    return str(sharing.sessions) if sharing.sessions is not None else "the blocks of the trace"


def without_cache(best: Sized) -> tuple[int, float] | None:
    """Systems of the deployment without a prefix cache under the same prompts, and requests per
    second of one of their instances.

    None where no load is inside the limits.
    """
    ready = best.ready
    deployment = replace(
        ready.trial.deployment, knobs=replace(ready.trial.deployment.knobs, prefix_caching=False)
    )
    instance = best.contender.runs.instance(deployment, ready.instance.traffic)
    plain = replace(
        best.contender,
        ready=replace(ready, trial=replace(ready.trial, deployment=deployment), instance=instance),
    )
    needed = plain.needed(best.slowdown, care=best.care)
    return (
        (needed[0], plain.capacity(plain.layout.of(needed[0]).instances, care=QUICK).rate)
        if isinstance(needed, tuple)
        else None
    )


def _rule(question: Question, instances: int) -> str:
    """The router by whose rule requests were shared out in the simulation."""
    sharing = question.sharing
    if (
        sharing is None
        or instances == 1
        or (sharing.balanced(question.router) and not sharing.follows)
    ):
        return question.router
    return shared_out_as(sharing, question.router)


def _opposite_router(question: Question, instances: int) -> str:
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
    whole = (
        None if question.recording is None else Replayed(recording=question.recording, lengths=True)
    )
    shown = instances if whole is not None else simulated_of(instance, instances, rate)
    record = contender.runs.once(
        (instance, "shared", rate, instances, router),
        lambda: fleet_record(instance, rate, instances, router, replayed=whole)[0],
    )
    return hit_rate(record), shown


# Whether the other way of serving would need fewer GPUs: prefill and decode in their own pools, or
# instances that do both. Both ways are questions to the one search. For two pools it is asked only
# where closed forms, and then a run at the load that fewer GPUs would have to carry, say that these
# could do. What a plan says of two pools is what ``--disaggregated`` answers.


def together_instead(search: Search, best: Sized) -> OtherServing | None:
    """The best deployment whose instances do both; None where none meets the limits at the
    confidence of the choice.
    """
    if not isinstance(search.aim, FewestGpus):
        return None
    alternative = again(search, replace(search.question, pools=None)).best
    return (
        None
        if alternative is None or alternative.level != best.level
        else _beside_choice(alternative, best)
    )


def pools_instead(search: Search, best: Sized) -> OtherServing | None:
    """The best deployment in two pools, where it needs fewer GPUs than the choice; None where none
    does, or none was looked for.
    """
    question = search.question
    if not _comparable(question) or best.instances < 2 or best.level != question.confidence:
        return None
    gpus = tuple(
        gpu
        for gpu in question.gpus
        if (1 + question.spare) * system_for(question, gpu).gpus < best.gpus
    )
    pooled_question = replace(question, pools=Pools(), have=(), growth_per_month=None)
    if not gpus or not any(
        _saves(contender, best)
        for contender in _contenders(search, replace(pooled_question, gpus=gpus))
    ):
        return None
    alternative = again(search, pooled_question).best
    if alternative is None or alternative.level != best.level or alternative.gpus >= best.gpus:
        return None
    return _beside_choice(alternative, best)


def _comparable(question: Question) -> bool:
    """Whether two pools can be sized for a question that fewer GPUs answer better."""
    alone = question.drawn and question.sharing is None
    return (
        alone
        and question.speculation is None
        and question.router in COUNTING
        and question.objective == "gpus"
    )


def _contenders(search: Search, question: Question) -> list[Contender]:
    """The deployments of a question in two pools, those first that closed forms allow most."""
    ready = [
        candidate
        for candidate in poolable(question, prepare(question, search.runs))
        if isinstance(candidate, Ready)
    ]
    contenders = contenders_of(question, ready, search.runs)
    return sorted(
        contenders,
        key=lambda contender: (
            -contender.bound(contender.as_asked) / contender.instance.deployment.parallelism.gpus
        ),
    )


def _saves(contender: Contender, best: Sized) -> bool:
    """Whether a deployment could carry the load on fewer GPUs than the choice has: by closed forms,
    then by short runs at that load.
    """
    rate = FewestGpus().rate_to_save(contender, best)
    if contender.bound(contender.as_asked) <= rate:
        return False
    slowdown, instances = (
        contender.slowdown(contender.question.confidence),
        round(contender.load / rate),
    )
    return (
        contender.bound(slowdown) > rate
        and contender.capacity(instances, slowdown, above=rate * HAIR, care=QUICK).reason is None
    )


def _beside_choice(sized: Sized, best: Sized) -> OtherServing:
    """The best deployment of the other way, next to the choice."""
    contender = sized.contender
    need = contender.layout.of(sized.systems + contender.question.spare)
    roles = contender.roles(need.instances)
    return OtherServing(
        deployment=sized.ready.trial.identity,
        ratio=":".join(str(count) for _, count in roles) if len(roles) > 1 else "",
        instances=need.instances,
        system=sized.ready.trial.system.name,
        systems=need.systems,
        gpus=sized.gpus,
        systems_exact=sized.gpus_exact / sized.ready.trial.system.gpus,
        saved=best.gpus - sized.gpus,
    )
