"""Where the time to a first token goes, read off the record of a simulated run.

A request is in the front end, waits in the queue until a step has its prompt, and is in steps until
that is computed. Those would take less if it were alone; the difference is what other requests in
its steps, and steps between its chunks, cost it.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

import numpy as np

from tonnage.perf.vectorised_step import Steps, drafted_step_seconds, step_seconds
from tonnage.results.metrics import TtftParts, counted_rows
from tonnage.units import PS_PER_NS, to_ps

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tonnage.perf.step import StepModel
    from tonnage.results.requests import Requests
    from tonnage.simulator.spec import EngineSpec

    Ints = NDArray[np.int64]

PARTS = tuple(part.name for part in fields(TtftParts) if part.name != "statistic")

NEAR = 0.01
"""Requests whose TTFT is within this share of all of them from the 95th percentile, either way,
stand for it."""


def ttft_parts(record: Requests, spec: EngineSpec) -> tuple[TtftParts, ...]:
    """The mean TTFT of the completed requests in its parts, and the p95; empty where none
    completed.

    ``spec`` is the engine, of two pools that of the prefill pool.
    """
    record = record.some(counted_rows(record))
    if not len(record):
        return ()
    parts = request_parts(record, spec) / 1e6
    ttft = parts[:-1].sum(axis=0)
    places, p95 = np.argsort(ttft, kind="stable"), float(np.percentile(ttft, 95))
    low, high = (
        int(np.floor((0.95 - NEAR) * (len(ttft) - 1))),
        int(np.ceil((0.95 + NEAR) * (len(ttft) - 1))),
    )
    near = parts[:, places[low : high + 1]].mean(axis=1)
    near *= p95 / near[:-1].sum()
    mean, p95_parts = (
        dict(zip(PARTS, values.tolist(), strict=True)) for values in (parts.mean(axis=1), near)
    )
    return TtftParts(statistic="mean", **mean), TtftParts(statistic="p95", **p95_parts)


def request_parts(record: Requests, spec: EngineSpec) -> Ints:
    """The parts of each request that had a first token, int64 of shape (``PARTS``, requests), in
    nanoseconds.

    All but the last sum to the TTFT, to the nanosecond.
    """
    if record.admitted_ns is None:
        raise ValueError("a measured run, which does not say when prompts began to be computed")
    streamed = (to_ps(spec.step.stream_step_s) + to_ps(spec.step.stream_s)) // PS_PER_NS
    front = np.minimum(_entering_ns(record, spec.step), record.admitted_ns - record.due_ns)
    computed = record.first_token_ns if record.prefilled_ns is None else record.prefilled_ns
    inside = computed - record.admitted_ns
    alone = alone_ns(record.isl, record.cached_tokens, spec)
    prefill = np.minimum(alone, inside)
    streaming = np.minimum(inside - prefill, streamed)
    return np.array(
        [
            front + streaming,
            record.admitted_ns - record.due_ns - front,
            prefill,
            inside - prefill - streaming,
            record.first_token_ns - computed,
            alone_ns(record.isl, 0 * record.isl, spec) - alone,
        ]
    )


def _entering_ns(record: Requests, step: StepModel) -> Ints:
    """Nanoseconds from sending each request until its engine has it, without those for which
    streamed tokens put it off.
    """
    busy = (to_ps(step.enter_s) + record.isl * to_ps(step.enter_token_s)) // PS_PER_NS
    waits = np.zeros_like(busy)
    for instance in np.unique(record.instance):
        rows = np.flatnonzero(record.instance == instance)
        rows = rows[np.argsort(record.due_ns[rows], kind="stable")]
        before = np.cumsum(busy[rows]) - busy[rows]
        waits[rows] = (
            np.maximum.accumulate(record.due_ns[rows] - before) + before - record.due_ns[rows]
        )
    return waits + np.maximum(busy, to_ps(step.frontend_s) // PS_PER_NS)


def alone_ns(isl: Ints, cached: Ints, spec: EngineSpec) -> Ints:
    """Nanoseconds of the steps that compute each prompt on an idle instance, less what a prefix
    cache has of it.
    """
    pairs, inverse = np.unique(np.array([isl, cached]), axis=1, return_inverse=True)
    whole, done = pairs[0], pairs[1].copy()
    knobs, seconds = spec.knobs, np.zeros(pairs.shape[1])
    budget = knobs.max_num_tokens
    if knobs.scheduler != "vllm":  # the others cut at the end of a block
        budget = max(budget // knobs.tokens_per_block, 1) * knobs.tokens_per_block
    while (rest := np.flatnonzero(done < whole)).size:
        chunk = (
            np.minimum(whole[rest] - done[rest], budget)
            if knobs.chunked_prefill
            else whole[rest] - done[rest]
        )
        seconds[rest] += _prompt_seconds(chunk, done[rest], spec)
        done[rest] += chunk
    return np.asarray((seconds * 1e9).astype(np.int64)[inverse.ravel()])


def _prompt_seconds(chunk: Ints, done: Ints, spec: EngineSpec) -> NDArray[np.float64]:
    """Seconds of a step with a chunk of one prompt, of which ``done`` tokens were computed before,
    in one attention rank.
    """
    none = np.zeros(len(chunk))
    steps = Steps(
        prefill_tokens=chunk.astype(float),
        prefill_sequences=none + 1,
        decode_sequences=none,
        attention_pairs_2=(chunk * (2 * done + chunk)).astype(float),
        context_tokens=none,
        share=1 / spec.ranks,
    )
    c, drafting = spec.step.coefficients, spec.step.drafting
    return step_seconds(c, steps) if drafting is None else drafted_step_seconds(c, steps, drafting)
