"""What it would take to be surer than asked, where no number of the chosen systems that anybody would buy does."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tonnage.plan.candidate import MOST_TIMES
from tonnage.plan.limit import limit_of
from tonnage.plan.provenance import OtherSystems, RelaxedLimit, Unreached
from tonnage.sizing.loads.confidence import levels
from tonnage.sizing.sensitivity import again, rounded_up

if TYPE_CHECKING:
    from tonnage.sizing.search.contender import Sized
    from tonnage.sizing.search.search import Search


def unreached(search: Search, best: Sized) -> Unreached | None:
    """The lowest confidence that a plan names and that the choice does not reach; None where it reaches all of them."""
    contender, question = best.contender, search.question
    for level in (level for level in levels(question.confidence) if best.level is None or level > best.level):
        found = contender.settled(contender.slowdown(level))
        if found is not None and found <= MOST_TIMES * best.systems:
            continue
        slowdown = contender.slowdown(level)
        alone = contender.alone_at(slowdown) if question.limits else None
        return Unreached(
            confidence=level,
            step_factor=slowdown.steps / contender.as_asked.steps,
            alone=alone,
            other=_other(search, best, level),
            relaxed=None if alone is None else _relaxed(search, best, level),
        )
    return None


def _other(search: Search, best: Sized, level: float) -> OtherSystems | None:
    """What carries the load with that confidence instead."""
    found = again(search, replace(search.question, confidence=level), best).best
    if found is None or found.level != level or found.ready.trial.deployment == best.ready.trial.deployment:
        return None
    trial, systems = found.ready.trial, found.systems + search.question.spare
    return OtherSystems(deployment=trial.identity, system=trial.system.name, systems=systems, gpus=found.gpus)


def _relaxed(search: Search, best: Sized, level: float) -> RelaxedLimit | None:
    """The limit that ends the load, as much longer as the confidence asks latencies to be: it then leaves what the asked one leaves."""
    contender, question = best.contender, search.question
    binds = contender.alone_at(contender.slowdown(level)).limit
    limit = next(each for each in question.limits if limit_of(each) == binds)
    looser = replace(limit, seconds=rounded_up(limit.seconds * contender.slowdown(level).of(limit) / best.slowdown.of(limit)))
    asked = replace(question, confidence=level, slo=tuple(looser if each == limit else each for each in question.slo))
    found = again(search, asked, best).best
    if found is None or found.level != level:
        return None
    system, systems = found.ready.trial.system.name, found.systems + question.spare
    return RelaxedLimit(limit=limit_of(limit), to_ms=1e3 * looser.seconds, system=system, systems=systems, gpus=found.gpus)
