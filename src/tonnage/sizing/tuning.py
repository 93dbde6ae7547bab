"""The knobs that matter: token budget, batch size, chunked prefill.

For the best few deployments every setting is searched that differs from the engine's own in one knob. The search of a
setting ends with the first run that shows that it carries no more than the best so far.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tonnage.errors import InputError
from tonnage.plan.note import KnobChange
from tonnage.sizing.bounds import MARGIN, Carried
from tonnage.sizing.capacity import STABLE, open_capacity, scan_of
from tonnage.sizing.instance import Instance
from tonnage.sizing.load_scan import SURE, place_of
from tonnage.sizing.question import MOVES
from tonnage.sizing.token_budget import TOKENS

if TYPE_CHECKING:
    from tonnage.sizing.capacity import Capacity
    from tonnage.sizing.search_space import Ready
    from tonnage.spec.deployment import EngineKnobs

BATCH = (8, 4_096)
"""Range of the batch size."""


def tuned(carried: Carried, moves: Sequence[str] = MOVES, rival: float = 0.0) -> Carried:
    """The deployment with the knobs that carry most; as it is where none carries more, or no more than a rival does.

    Args:
        carried: the deployment, and what it carries by long runs.
        moves: the knobs that may be set.
        rival: requests per second and GPU that other knobs must exceed to count.
    """
    ready, best, least = carried.ready, carried, rival * carried.ready.trial.deployment.parallelism.gpus
    for knobs in _settings(ready, moves):
        if knobs == ready.trial.deployment.knobs:
            continue
        try:
            instance = Instance(replace(ready.trial.deployment, knobs=knobs), ready.instance.asked)
        except InputError:
            continue
        above = max(least, best.capacity.rate)
        if _may_carry_more(instance, best, above):
            best = _with_knobs(carried, instance, open_capacity(instance, above, SURE), above) or best
    return best


def changes(carried: Carried, default: EngineKnobs) -> tuple[KnobChange, ...]:
    """The knobs that differ from the engine's own."""
    knobs = carried.ready.trial.deployment.knobs
    pairs = ((name, getattr(default, name), getattr(knobs, name)) for name in ("max_num_tokens", "max_batch_size", "chunked_prefill"))
    return tuple(KnobChange(knob=name, default=own, chosen=chosen) for name, own, chosen in pairs if own != chosen)


def _settings(ready: Ready, moves: Sequence[str]) -> Iterator[EngineKnobs]:
    """The knobs that the search began with, and those that differ from them in one.

    They do not depend on the limits, so that a looser limit has the same to choose from.
    """
    first = ready.first.deployment.knobs
    batch, slots = first.max_batch_size, ready.instance.batch == ready.instance.knobs.max_batch_size
    yield first
    if "tokens" in moves:
        yield from (replace(first, max_num_tokens=tokens) for tokens in TOKENS if tokens != first.max_num_tokens)
    if "batch" in moves:
        sizes = (batch // 2, batch // 4, *((2 * batch,) if slots else ()))
        yield from (replace(first, max_batch_size=size) for size in sizes if BATCH[0] <= size <= BATCH[1])
    if "chunk" in moves:
        yield replace(first, chunked_prefill=not first.chunked_prefill)


def _may_carry_more(instance: Instance, best: Carried, above: float) -> bool:
    """Whether an instance with other knobs needs a search: it is not the same at the load, and breaks no limit above it."""
    slo = instance.asked.slo
    if above >= STABLE * MARGIN * instance.saturation_estimate():
        return False
    scan, other, place = scan_of(instance), scan_of(best.ready.instance), place_of(above)
    if slo and place < min(scan.last, other.last) and scan.summary(place, 0) == other.summary(place, 0):
        return False
    return scan.no_higher(slo, above, SURE) is None and scan.most > above


def _with_knobs(carried: Carried, instance: Instance, capacity: Capacity, above: float) -> Carried | None:
    """The deployment as that instance; None where it carries no more than ``above`` requests per second."""
    if capacity.reason is not None or capacity.rate <= above:
        return None
    trial = replace(carried.ready.trial, deployment=instance.deployment)
    return Carried(ready=replace(carried.ready, trial=trial, instance=instance), capacity=capacity)
