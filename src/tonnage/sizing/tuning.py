"""The knobs that matter: token budget, batch size, chunked prefill.

For the best few deployments they are searched one after another. One short run at ``GAIN`` above the load carried
so far decides whether a setting is worth a search of its own; a setting is kept where that search finds more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tonnage.errors import InputError
from tonnage.plan.limit import SATURATION
from tonnage.plan.note import KnobChange
from tonnage.sizing.bounds import Carried
from tonnage.sizing.capacity import STABLE, capacity_above, saturation
from tonnage.sizing.instance import Instance
from tonnage.sizing.limits import strain
from tonnage.sizing.question import MOVES
from tonnage.sizing.token_budget import TOKENS

if TYPE_CHECKING:
    from tonnage.spec.deployment import EngineKnobs

GAIN = 1.03
"""A setting is kept only if it carries this many times as much: a smaller gain may come from the random numbers of a run."""

BATCH = (8, 4_096)
"""Range of the batch size."""


def tuned(carried: Carried, moves: Sequence[str] = MOVES) -> Carried:
    """The deployment with the best knobs found; itself where they are as good already."""
    best = carried
    for move in moves:
        settings = [found for knobs in _moved(best, move) if (found := _screened(best, knobs)) is not None]
        if settings:
            better = _searched(best, min(settings, key=lambda setting: setting[0])[1])
            best = best if better is None else better
    return best


def changes(carried: Carried, default: EngineKnobs) -> tuple[KnobChange, ...]:
    """The knobs that differ from the engine's own."""
    knobs = carried.ready.trial.deployment.knobs
    pairs = ((name, getattr(default, name), getattr(knobs, name)) for name in ("max_num_tokens", "max_batch_size", "chunked_prefill"))
    return tuple(KnobChange(knob=name, default=own, chosen=chosen) for name, own, chosen in pairs if own != chosen)


def _moved(carried: Carried, move: str) -> Iterator[EngineKnobs]:
    """The other settings of one knob; those that turn requests away are refused when their memory is estimated."""
    knobs, instance = carried.ready.trial.deployment.knobs, carried.ready.instance
    tokens, batch = knobs.max_num_tokens, knobs.max_batch_size
    if move == "tokens":
        yield from (replace(knobs, max_num_tokens=t) for t in TOKENS if t != tokens)
    elif move == "batch":
        more = instance.batch == instance.knobs.max_batch_size
        for size in (batch // 2, batch // 4, *((2 * batch,) if more else ())):
            if BATCH[0] <= size <= BATCH[1]:
                yield replace(knobs, max_batch_size=size)
    else:
        yield replace(knobs, chunked_prefill=not knobs.chunked_prefill)


def _screened(carried: Carried, knobs: EngineKnobs) -> tuple[float, Instance] | None:
    """Under other knobs, the strain on the limits at ``GAIN`` times the load carried so far; None where one breaks."""
    wanted = GAIN * carried.capacity.rate
    try:
        instance = Instance(replace(carried.ready.trial.deployment, knobs=knobs), carried.ready.instance.asked)
    except InputError:
        return None
    if wanted > STABLE * instance.saturation_estimate():
        return None
    found = strain(instance.measured(wanted), instance.asked.slo)
    if found > 1.0:
        return None
    if carried.capacity.binds == SATURATION:
        saturated = STABLE * saturation(instance)
        return (wanted / saturated, instance) if saturated >= wanted else None
    return found, instance


def _searched(carried: Carried, instance: Instance) -> Carried | None:
    """The deployment under the instance's knobs, where it carries ``GAIN`` more."""
    wanted = GAIN * carried.capacity.rate
    capacity = capacity_above(instance, wanted)
    if capacity.reason is not None or capacity.rate < wanted:
        return None
    trial = replace(carried.ready.trial, deployment=instance.deployment)
    return Carried(ready=replace(carried.ready, trial=trial, instance=instance), capacity=capacity)
