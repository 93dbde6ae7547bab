"""Why a prediction may be off, in words that follow from the row's own numbers: what decides it,
and which of its terms were not fitted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tonnage.errors import InputError
from tonnage.perf.memory import memory_plan
from tonnage.perf.pipeline import MARK
from tonnage.perf.ranges import marks
from tonnage.perf.terms import step_model
from tonnage.plan.plan import TERMS
from tonnage.simulator.request import (
    CONTEXT_TOKENS,
    DECODE_SEQUENCES,
    PAIRS_2,
    PREFILL_SEQUENCES,
    PREFILL_TOKENS,
    STEP_COLUMNS,
)
from tonnage.sizing.explain import step_terms

if TYPE_CHECKING:
    from tonnage.evidence.predict import Point


HOLDS, QUEUES = "holds all clients", "clients queue"
"""The groups of closed loops: whether or not the KV cache holds the longest request of every client
at once."""


def cache_group(point: Point) -> str:
    """The group of a closed loop; empty for other loads, and where the model does not fit."""
    point = point.of_rank
    if point.concurrency is None:
        return ""
    try:
        tokens = point.instance.memory.tokens
    except InputError:
        return ""
    return HOLDS if point.concurrency * (point.isl + point.osl) <= tokens else QUEUES


def reason(point: Point, metric: str, *, steady: bool) -> str:
    """What decides a metric of a row and which of its terms were not fitted, with semicolons
    between the parts.
    """
    point = point.of_rank
    parts = [] if steady else ["the run was not steady"]
    parts += _waiting(point) if not metric.startswith("itl") else []
    parts += [mark.partition(";")[0] for mark in marks(point.deployment)]
    parts += [MARK] if point.deployment.parallelism.pp > 1 else []
    if metric == "peak_gpu_memory_gb":
        weights = memory_plan(point.deployment).weight_bytes
        return "; ".join(
            [*parts, f"{weights / 1e9:.0f} GB of it are weights, the rest cache and workspace"]
        )
    return "; ".join([*parts, _term(point, prefill=metric.startswith("ttft"))])


def _waiting(point: Point) -> list[str]:
    """Why clients of a closed loop wait for each other."""
    clients = point.concurrency
    if clients is None:
        return []
    reasons, instance = [], point.instance
    slots = instance.knobs.max_batch_size
    if cache_group(point) == QUEUES:
        cached_clients = instance.memory.tokens // (point.isl + point.osl)
        reasons.append(
            f"the KV cache holds {cached_clients:,} of {clients:,} clients, so the queue decides"
        )
    if slots < clients:
        reasons.append(f"{clients:,} clients share {slots:,} slots, so the queue decides")
    return reasons


def _term(point: Point, *, prefill: bool) -> str:
    """The part that takes most of the step."""
    # a static batch is priced even where our memory plan has no room for it
    loaded = point.batch is None
    step = (point.instance.step if loaded else step_model(point.deployment)).coefficients
    sequences = point.batch or min(point.concurrency or 1, point.instance.knobs.max_batch_size)
    row = np.zeros((1, STEP_COLUMNS), np.int64)
    decodes = sequences if not prefill else 0 if point.batch is not None else sequences - 1
    prompts = 0 if not prefill else sequences if point.batch is not None else 1
    row[0, [PREFILL_TOKENS, PREFILL_SEQUENCES, DECODE_SEQUENCES]] = (
        prompts * point.isl,
        prompts,
        decodes,
    )
    row[0, [PAIRS_2, CONTEXT_TOKENS]] = (
        prompts * point.isl**2,
        decodes * (point.isl + point.osl // 2),
    )
    terms = step_terms(step, row)
    values = {name: float(value[0]) for name, value in terms.items()}
    largest = max(values, key=lambda name: values[name])
    what = "a step with a prompt" if prefill else "a decode step"
    return f"{100 * values[largest] / sum(values.values()):.0f} % of {what} is {TERMS[largest]}"
