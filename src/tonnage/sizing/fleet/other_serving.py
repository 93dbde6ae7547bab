"""Whether the other way of serving would need fewer GPUs: prefill and decode in pools of their own, or instances that do both.

Both ways are questions to the one search. For two pools it is asked only where closed forms, and then a run at the load that fewer GPUs
would have to carry, say that these could do. What a plan says of two pools is what ``--disaggregated`` answers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tonnage.plan.plan import OtherServing
from tonnage.simulator.pools import COUNTING
from tonnage.sizing.loads.instance import QUICK
from tonnage.sizing.loads.ready import Ready
from tonnage.sizing.question import Pools
from tonnage.sizing.search.aims import FewestGpus
from tonnage.sizing.search.contender import HAIR
from tonnage.sizing.search.pooled import contenders_of, poolable
from tonnage.sizing.search.search_space import prepare, system_for
from tonnage.sizing.sensitivity import again

if TYPE_CHECKING:
    from tonnage.sizing.question import Question
    from tonnage.sizing.search.contender import Contender, Sized
    from tonnage.sizing.search.search import Search


def together_instead(search: Search, best: Sized) -> OtherServing | None:
    """The best deployment whose instances do both; None where none meets the limits at the confidence of the choice."""
    if not isinstance(search.aim, FewestGpus):
        return None
    found = again(search, replace(search.question, pools=None)).best
    return None if found is None or found.level != best.level else _told(found, best)


def pools_instead(search: Search, best: Sized) -> OtherServing | None:
    """The best deployment in two pools, where it needs fewer GPUs than the choice; None where none does, or none was looked for."""
    question = search.question
    if not _comparable(question) or best.instances < 2 or best.level != question.confidence:
        return None
    gpus = tuple(gpu for gpu in question.gpus if (1 + question.spare) * system_for(question, gpu).gpus < best.gpus)
    asked = replace(question, pools=Pools(), have=(), growth_per_month=None)
    if not gpus or not any(_saves(one, best) for one in _contenders(search, replace(asked, gpus=gpus))):
        return None
    found = again(search, asked).best
    if found is None or found.level != best.level or found.gpus >= best.gpus:
        return None
    return _told(found, best)


def _comparable(question: Question) -> bool:
    """Whether two pools can be sized for a question that fewer GPUs answer better."""
    drawn = question.load == "open" and not question.offline and question.recording is None and question.sharing is None
    return drawn and question.speculation is None and question.router in COUNTING and question.objective == "gpus"


def _contenders(search: Search, question: Question) -> list[Contender]:
    """The deployments of a question in two pools, those first that closed forms allow most."""
    ready = [one for one in poolable(question, prepare(question, search.runs)) if isinstance(one, Ready)]
    found = contenders_of(question, ready, search.runs)
    return sorted(found, key=lambda one: -one.bound(one.as_asked) / one.instance.deployment.parallelism.gpus)


def _saves(one: Contender, best: Sized) -> bool:
    """Whether a deployment could carry the load on fewer GPUs than the choice has: by closed forms, then by short runs at that load."""
    rate = FewestGpus().rate_to_save(one, best)
    if one.bound(one.as_asked) <= rate:
        return False
    slowdown, instances = one.slowdown(one.question.confidence), round(one.load / rate)
    return one.bound(slowdown) > rate and one.capacity(instances, slowdown, above=rate * HAIR, care=QUICK).reason is None


def _told(found: Sized, best: Sized) -> OtherServing:
    """The best deployment of the other way, beside the choice."""
    contender = found.contender
    need = contender.layout.of(found.systems + contender.question.spare)
    roles = contender.roles(need.instances)
    return OtherServing(
        deployment=found.ready.trial.identity,
        ratio=":".join(str(count) for _, count in roles) if len(roles) > 1 else "",
        instances=need.instances,
        system=found.ready.trial.system.name,
        systems=need.systems,
        gpus=found.gpus,
        systems_exact=found.gpus_exact / found.ready.trial.system.gpus,
        saved=best.gpus - found.gpus,
    )
