"""The knobs that matter: token budget, batch size, chunked prefill.

For the best few deployments every setting is searched that differs from the engine's own in one knob. They are compared with steps as
slow as the asked confidence allows for, which decide the number of systems. The search of a setting ends with the first run that shows
that it carries no more than the best so far.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from tonnage.errors import InputError
from tonnage.plan.note import KnobChange
from tonnage.sizing.loads.bounds import MARGIN, Carried
from tonnage.sizing.loads.capacity import STABLE, open_capacity, scan_of
from tonnage.sizing.loads.instance import Instance
from tonnage.sizing.loads.load_scan import SURE, place_of
from tonnage.sizing.loads.slower_steps import AS_PREDICTED, Slowdown
from tonnage.sizing.parallel import parallel
from tonnage.sizing.question import MOVES
from tonnage.sizing.search.token_budget import TOKENS

if TYPE_CHECKING:
    from tonnage.sizing.loads.ready import Ready
    from tonnage.spec.deployment import EngineKnobs, Slo

WAVE = 4
"""Settings that are searched side by side, before the next are compared with the best of them."""

BATCH = (8, 4_096)
"""Range of the batch size."""


def tuned(
    carried: Carried,
    moves: Sequence[str] = MOVES,
    slowdown: Slowdown = AS_PREDICTED,
    rival: float = 0.0,
    *,
    workers: int | None = None,
    prune: bool = True,
) -> Carried:
    """The deployment with the knobs that carry most; as it is where none carries more, or no more than a rival does.

    Args:
        carried: the deployment, and what it carries by long runs.
        moves: the knobs that may be set.
        slowdown: by how much longer times than predicted the knobs are compared: those that decide the number of systems.
        rival: requests per second and GPU with such times that other knobs must exceed to count.
        workers: threads to simulate on; the knobs found do not depend on it.
        prune: False to search every setting in full, which finds the same.
    """
    ready, slo = carried.ready, slowdown.tightened(carried.ready.instance.asked.slo)
    best, most = ready.instance, scan_of(ready.instance).rate_within(slo)
    if most <= 0.0:
        return carried
    others = [instance for knobs in _settings(ready, moves) if (instance := _with(ready, knobs)) is not None]
    for start in range(0, len(others), WAVE):
        above = max(most, rival * slowdown.steps * ready.trial.deployment.parallelism.gpus)
        more = partial(_more, best=best, above=above, slo=slo) if prune else partial(_in_full, slo=slo)
        rates = dict(parallel(more, others[start : start + WAVE], workers))
        winner = max(others[start : start + WAVE], key=rates.__getitem__)
        if rates[winner] > above:
            best, most = winner, rates[winner]
    return carried if best is ready.instance else _with_knobs(carried, best)


def decisive_rate_per_gpu(carried: Carried, slowdown: Slowdown) -> float:
    """Requests per second and GPU inside the limits where times are so much longer."""
    instance = carried.ready.instance
    rate = scan_of(instance).rate_within(slowdown.tightened(instance.asked.slo))
    return rate / slowdown.steps / carried.ready.trial.deployment.parallelism.gpus


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


def _with(ready: Ready, knobs: EngineKnobs) -> Instance | None:
    """The deployment with other knobs; None for its own, and for those that it cannot have."""
    if knobs == ready.trial.deployment.knobs:
        return None
    try:
        return Instance(replace(ready.trial.deployment, knobs=knobs), ready.instance.asked)
    except InputError:
        return None


def _more(instance: Instance, best: Instance, above: float, slo: Slo) -> float:
    """Requests per second that the instance carries; 0 where that is no more than ``above``."""
    return scan_of(instance).rate_within(slo, above) if _may_carry_more(instance, best, above, slo) else 0.0


def _in_full(instance: Instance, slo: Slo) -> float:
    """Requests per second that the instance carries."""
    return scan_of(instance).rate_within(slo)


def _may_carry_more(instance: Instance, best: Instance, above: float, slo: Slo) -> bool:
    """Whether an instance with other knobs needs a search: it is not the same at the load, and breaks no limit above it."""
    if above >= STABLE * MARGIN * min(instance.saturation_estimate(), instance.budget_estimate()):
        return False
    scan, other, place = scan_of(instance), scan_of(best), place_of(above)
    if slo and place < other.last and scan.probe(place, 0) == other.summary(place, 0):
        return False
    if scan.surely_no_higher(slo, above):
        return False
    return scan.no_higher(slo, above, SURE) is None and scan.most > above


def _with_knobs(carried: Carried, instance: Instance) -> Carried:
    """The deployment as that instance; as it is where the limits turn out to hold at no load."""
    capacity = open_capacity(instance, care=SURE)
    if capacity.reason is not None:
        return carried
    trial = replace(carried.ready.trial, deployment=instance.deployment)
    return Carried(ready=replace(carried.ready, trial=trial, instance=instance), capacity=capacity)
