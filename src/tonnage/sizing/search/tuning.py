"""The knobs that matter: token budget, batch size, chunked prefill.

The settings of a deployment are the engine's own, and every change of one knob. They compete as
deployments do. A setting is tried where it can help: a smaller batch where a time per token ends
the load; a larger budget or batch, or whole prompts, where the first token or throughput does; and
a smaller budget always, as prompts then interrupt others for a shorter time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tonnage.errors import InputError
from tonnage.perf.memory import startable
from tonnage.plan.notes import KnobChange
from tonnage.plan.reason import Behind, Reason
from tonnage.sizing.loads.instance import LOADED, Instance
from tonnage.spec.catalog import find_engine

if TYPE_CHECKING:
    from tonnage.sizing.loads.trial import Ready
    from tonnage.sizing.search.deployment_capacity import Contender, Sized
    from tonnage.spec.deployment import EngineKnobs, Slo


# The token budget where single gaps are limited, set before anything is simulated. By closed form:
# the largest with which a step full of prompt tokens still keeps the limit.


TOKENS = (8_192, 4_096, 2_048, 1_024, 512, 16_384, 32_768)
"""Token budgets that are tried: below, prefill starves; above, no engine is run."""

BESIDE = 32
"""Decode sequences that are assumed to share the step with the prompt tokens when the budget is set
by closed form."""

KEPT_SHARE = 0.95
"""Share of a limit on single gaps that such a step may take: their percentiles are known to 1 %,
and batches vary."""


def fitted(instance: Instance, slo: Slo) -> EngineKnobs:
    """The knobs with a token budget whose full step keeps every limit on high percentiles of single
    gaps.

    The engine's own where they keep it, where prompts cannot be chunked, or where no budget does.
    """
    knobs = instance.deployment.knobs
    limits = [
        limit.seconds
        for limit in slo
        if limit.metric == "itl" and limit.statistic in ("p90", "p95", "p99")
    ]
    if not limits or not knobs.chunked_prefill:
        return knobs
    limit_s = KEPT_SHARE * min(limits)
    for tokens in sorted(
        {knobs.max_num_tokens, *(t for t in TOKENS if t < knobs.max_num_tokens)}, reverse=True
    ):
        if _full_step_s(instance, tokens) <= limit_s:
            return replace(knobs, max_num_tokens=tokens)
    return knobs


def _full_step_s(instance: Instance, tokens: int) -> float:
    """Seconds of a step that a prompt fills up to the token budget, with ``BESIDE`` decoding
    sequences.
    """
    isl = round(instance.traffic.isl.mean)
    decodes = min(BESIDE, instance.batch)
    new = min(isl, max(1, tokens - decodes))
    context = round(decodes * (isl + instance.traffic.osl.mean / 2))
    return instance.step.seconds(new, 1, decodes, new * (2 * isl - new), context)


BATCH = (8, 4_096)
"""Range of the batch size."""

FRONT_END_BUSY = 0.5
"""Share of its time that a front end works at the highest load of the closed form, from which
several are tried."""

FRONT_ENDS = (2, 4, 8)
"""Times as many front ends as the engine's own that are tried."""

PER_TOKEN = ("tpot", "itl")
"""Metrics of the time from one token to the next."""


def tries_front_ends(contender: Contender, rate: float) -> bool:
    """Whether several front ends are tried, because one is busy for much of its time at a rate."""
    busy = contender.instance.front_end_busy(rate)
    return "front_ends" in contender.question.free_moves and busy > FRONT_END_BUSY


def variants(
    contender: Contender, outcome: Sized | Reason, *, everything: bool = False
) -> list[list[Ready]]:
    """The deployment with other knobs that may carry more, by the ways that lead further and
    further from its own.

    ``everything`` for all settings, whatever ends its load.
    """
    bound = _ends(outcome)
    smaller, larger = everything or bound in PER_TOKEN, everything or bound not in PER_TOKEN
    rate = contender.bound(contender.as_asked)
    in_flight = math.inf if everything else LOADED * rate * contender.instance.alone_e2e_s
    moves = [
        move
        for move in contender.question.free_moves
        if move != "front_ends" or tries_front_ends(contender, rate)
    ]
    ways = []
    for settings in _ways(contender.ready, moves, smaller=smaller, larger=larger):
        way = []
        for knobs in settings:
            deployment = replace(contender.ready.trial.deployment, knobs=knobs)
            if (
                knobs.max_batch_size < contender.ready.trial.deployment.knobs.max_batch_size
                and knobs.max_batch_size > in_flight
            ):
                continue  # so many requests are never there at once
            try:
                instance = contender.runs.instance(deployment, contender.instance.traffic)
            except InputError:
                continue
            way.append(
                replace(
                    contender.ready,
                    trial=replace(contender.ready.trial, deployment=deployment),
                    instance=instance,
                )
            )
        ways.append(way)
    return ways


def _ends(outcome: Sized | Reason) -> str:
    """The metric of the limit that ends the load of a deployment; "" where that is saturation."""
    if isinstance(outcome, Behind):
        return outcome.breach.limit.metric
    capacity = getattr(outcome, "capacity", None)
    return (
        ""
        if capacity is None or capacity.binds is None or capacity.binds.limit is None
        else str(capacity.binds.limit.metric)
    )


def changes(ready: Ready, default: EngineKnobs) -> tuple[KnobChange, ...]:
    """The knobs that differ from the engine's own."""
    knobs = ready.trial.deployment.knobs
    pairs = (
        (name, getattr(default, name), getattr(knobs, name))
        for name in ("max_num_tokens", "max_batch_size", "chunked_prefill")
    )
    return tuple(
        KnobChange(knob=name, default=usual, chosen=chosen)
        for name, usual, chosen in pairs
        if usual != chosen
    )


def _ways(
    ready: Ready, moves: Sequence[str], *, smaller: bool, larger: bool
) -> Iterator[list[EngineKnobs]]:
    """The knobs that differ in one from the first, nearest first: no limit's value changes them, so
    looser limits choose from the same.
    """
    first, engine_knobs = ready.first.deployment.knobs, ready.trial.deployment.knobs
    batch, slots = first.max_batch_size, ready.instance.batch == ready.instance.knobs.max_batch_size
    ways: list[list[EngineKnobs]] = [[first]]
    if "tokens" in moves:
        down = sorted((tokens for tokens in TOKENS if tokens < first.max_num_tokens), reverse=True)
        up = sorted(tokens for tokens in TOKENS if tokens > first.max_num_tokens) if larger else []
        ways += [[replace(first, max_num_tokens=tokens) for tokens in way] for way in (down, up)]
    if "batch" in moves:
        down, up = (
            [batch // 2, batch // 4] if smaller else [],
            [2 * batch] if slots and larger else [],
        )
        ways += [
            [replace(first, max_batch_size=size) for size in way if BATCH[0] <= size <= BATCH[1]]
            for way in (down, up)
        ]
    if "chunk" in moves and larger:
        ways.append([replace(first, chunked_prefill=not first.chunked_prefill)])
    launch = find_engine(ready.first.deployment.engine).launch
    if "front_ends" in moves and launch is not None and launch.flag("front_ends"):
        ways.append([replace(first, front_ends=times * first.front_ends) for times in FRONT_ENDS])
    for way in ways:
        settings = [startable(ready.instance.memory, knobs) for knobs in way]
        if further := [knobs for knobs in settings if knobs != engine_knobs]:
            yield further
