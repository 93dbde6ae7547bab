"""What a step costs and what comes of it, compiled: tokens, gaps, and who leaves.

The other half of the rules on arrays; see ``rules.py``.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit
from numba.extending import register_jitable

from tonnage.perf import step
from tonnage.results.requests import COMPLETED, POSITION_BUCKETS
from tonnage.simulator.layout import (
    ALONE,
    BASE,
    BELOW,
    BLOCK_TOKENS,
    BLOCKS,
    BUCKET,
    COMPUTED,
    CONCURRENCY,
    CONTEXT,
    DECODED,
    DECODING,
    DRAFTED,
    FILLING,
    FIRST,
    FIRST_STEP,
    FREE,
    FULL,
    GENERATED,
    HEAD,
    LAST,
    LAST_BIN,
    LAST_STEP,
    NEVER,
    NEXT_EVENT,
    PASSES,
    PAUSED,
    ROUND,
    RUNNING,
    SCHEDULER,
    SEED,
    SEEN,
    SGLANG,
    STACK,
    STATUS,
    STREAM,
    TAIL,
    TENSORRT_LLM,
    UNTIL,
    VLLM,
)
from tonnage.simulator.rules import called, held, leave_decoding, send_next
from tonnage.simulator.steps import (
    CONTEXT_TOKENS,
    DECODE_SEQUENCES,
    DURATION,
    IN_ENGINE,
    PAIRS_2,
    PREFILL_SEQUENCES,
    PREFILL_TOKENS,
    START,
    STEP_COLUMNS,
    WAITING,
)
from tonnage.units import PS_PER_NS, PS_PER_S

tabulated_seconds: Any = register_jitable(step.tabulated_seconds)
batch_seconds: Any = register_jitable(step.batch_seconds)
context_seconds: Any = register_jitable(step.context_seconds)
launched: Any = register_jitable(step.launched)
step_seconds: Any = register_jitable(step.step_seconds)
verify_seconds: Any = register_jitable(step.verify_seconds)
drafted_batch_seconds: Any = register_jitable(step.drafted_batch_seconds)
drafted_context_seconds: Any = register_jitable(step.drafted_context_seconds)
drafted_step_seconds: Any = register_jitable(step.drafted_step_seconds)


@njit(inline="always")
def whole_ps(seconds):
    """Seconds as whole picoseconds, half to even."""
    return np.int64(np.rint(seconds * float(PS_PER_S)))


@njit(inline="always")
def price(cfg, c, draft, line_a, line_c, made):
    """Picoseconds of a step: the decode line when nothing is prefilled, else priced and rounded once."""
    b = made[DECODE_SEQUENCES]
    if made[PREFILL_TOKENS] == 0:
        if line_a[b] < 0:
            if cfg[DRAFTED] > 0:
                line_a[b] = whole_ps(drafted_batch_seconds(c, draft, float(cfg[DRAFTED]), float(cfg[PASSES]), float(b)))
                line_c[b] = whole_ps(drafted_context_seconds(c, draft, float(cfg[PASSES]), float(b)))
            else:
                line_a[b] = whole_ps(batch_seconds(c, float(b), float(b)))
                line_c[b] = whole_ps(context_seconds(c, float(b)))
        return line_a[b] + line_c[b] * made[CONTEXT_TOKENS]
    p, n, pairs, context = float(made[PREFILL_TOKENS]), float(made[PREFILL_SEQUENCES]), float(made[PAIRS_2]), float(made[CONTEXT_TOKENS])
    if cfg[DRAFTED] > 0:
        return whole_ps(drafted_step_seconds(c, draft, float(cfg[DRAFTED]), float(cfg[PASSES]), p, n, float(b), pairs, context))
    return whole_ps(step_seconds(c, p, n, float(b), pairs, context))


@njit(inline="always")
def bucket_of(position):
    """Bucket of the gap after that output token, counted from 1."""
    return min(math.frexp(float(position))[1] - 1, POSITION_BUCKETS - 1)


@njit(inline="always")
def bin_of(edges, gap_ps):
    """Bin of a gap."""
    return np.searchsorted(edges, gap_ps // PS_PER_NS, side="right") - 1


@njit(inline="always")
def join_decoding(cfg, state, table, isl, osl, r, generated, positions, phases):
    """A request that has its next token out of the computation of its prompt decodes from now on."""
    table[BASE, r] = state[ROUND] - generated
    table[BUCKET, r] = bucket_of(generated)
    table[UNTIL, r] = table[BASE, r] + min(osl[r], 2 << table[BUCKET, r]) if generated < osl[r] else state[ROUND]
    state[NEXT_EVENT] = min(state[NEXT_EVENT], table[UNTIL, r])
    state[DECODING] += 1
    state[CONTEXT] += isl[r] + generated
    positions[table[BUCKET, r]] += 1
    phases[(isl[r] - 1 - table[BASE, r]) % cfg[BLOCK_TOKENS]] += 1


@njit(inline="always")
def streamed(cfg, state, table, isl, filling, take, ends):
    """When clients have the tokens of a step that ends at ``ends``, and all before them; in one of SGLang's prompts nobody decodes."""
    sequences = 0
    if cfg[STREAM] > 0:
        if cfg[SCHEDULER] != SGLANG or state[FILLING] == 0:
            sequences = state[DECODING]
        for i in range(state[FILLING]):
            r = filling[i]
            if table[COMPUTED, r] + take[i] == isl[r] + table[GENERATED, r]:
                sequences += 1
    return max(state[SEEN], ends) + sequences * cfg[STREAM]


@njit(inline="always")
def end_filling(cfg, state, table, isl, osl, filling, take, gaps, edges, positions, phases, seen):
    """Count what was computed of prompts; those complete have their first token, or the next one after a pre-emption."""
    kept = 0
    for i in range(state[FILLING]):
        r = filling[i]
        table[COMPUTED, r] += take[i]
        generated = table[GENERATED, r]
        if table[COMPUTED, r] < isl[r] + generated:
            filling[kept] = r
            kept += 1
            continue
        if generated == 0:
            table[FIRST, r] = seen
            table[FIRST_STEP, r] = state[ROUND] + state[ALONE] - 1
        else:
            gaps[bucket_of(generated), bin_of(edges, seen - table[LAST, r])] += 1
        table[LAST, r] = seen
        join_decoding(cfg, state, table, isl, osl, r, generated + 1, positions, phases)
    state[FILLING] = kept


@njit(inline="always")
def end_events(cfg, state, table, isl, osl, running, positions, phases, seen):
    """Requests with their last token leave and their clients go on; others enter the next bucket of positions."""
    kept, soonest = 0, NEVER
    for i in range(state[RUNNING]):
        r = running[i]
        if table[UNTIL, r] <= state[ROUND]:
            generated = state[ROUND] - table[BASE, r]
            if generated == osl[r]:
                leave_decoding(cfg, state, table, isl, r, positions, phases)
                table[LAST, r] = seen
                table[LAST_STEP, r] = state[ROUND] + state[ALONE] - 1
                table[STATUS, r] = COMPLETED
                if cfg[SCHEDULER] == TENSORRT_LLM:
                    state[FREE] += table[BLOCKS, r]
                elif cfg[SCHEDULER] == VLLM or cfg[SCHEDULER] == SGLANG:
                    state[FULL] = 0
                    state[FREE] += held(cfg, table, isl, r, osl[r])
                if cfg[CONCURRENCY] > 0:
                    send_next(cfg, state, table, seen)
                continue
            positions[table[BUCKET, r]] -= 1
            table[BUCKET, r] = bucket_of(generated)
            positions[table[BUCKET, r]] += 1
            table[UNTIL, r] = table[BASE, r] + min(osl[r], 2 << table[BUCKET, r])
        soonest = min(soonest, table[UNTIL, r])
        running[kept] = r
        kept += 1
    state[RUNNING] = kept
    state[NEXT_EVENT] = soonest


@njit(inline="always")
def end_pause(state, table, running, gaps, edges, seen):
    """Count the gaps that end with the first round after steps of prompts: since the last round, or since its first token."""
    for i in range(state[RUNNING]):
        r = running[i]
        if table[UNTIL, r] < NEVER:
            gaps[table[BUCKET, r], bin_of(edges, seen - max(table[LAST, r], state[DECODED]))] += 1


@njit(inline="always")
def mixed(bits):
    """``acceptance.mixed`` on 64 bits that wrap by themselves."""
    bits += np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


@njit(inline="always")
def accepted(cfg, r, generated, most):
    """How many of at most so many guesses after ``generated`` tokens are right before the first wrong one."""
    stream = mixed(np.uint64(cfg[SEED]) ^ np.uint64(r))
    count = 0
    while count < most and np.int64(mixed(stream ^ np.uint64(generated + count + 1)) >> np.uint64(11)) < cfg[BELOW]:
        count += 1
    return count


@called()
def end_guesses(cfg, state, table, isl, osl, running, gaps, edges, seen, gap):
    """Hand out the right guesses of a round, ahead of the token that every request gets; gaps after the first token are 0."""
    for i in range(state[RUNNING]):
        r = running[i]
        if table[UNTIL, r] == NEVER:
            continue
        generated = state[ROUND] - table[BASE, r]
        since = seen - max(table[LAST, r], state[DECODED]) if state[PAUSED] > 0 else gap
        gaps[bucket_of(generated), bin_of(edges, since)] += 1
        right = accepted(cfg, r, generated, min(cfg[DRAFTED], osl[r] - generated - 1))
        for position in range(generated + 1, generated + right + 1):
            gaps[bucket_of(position), 0] += 1
        table[BASE, r] -= right
        table[UNTIL, r] -= right
        state[CONTEXT] += right
        state[NEXT_EVENT] = min(state[NEXT_EVENT], table[UNTIL, r])


@njit(inline="always")
def end_round(cfg, state, table, isl, osl, running, gaps, edges, positions, seen, gap):
    """A token for everyone who decodes, and the gap before it; with guesses also the right ones of these."""
    if cfg[DRAFTED] > 0:
        end_guesses(cfg, state, table, isl, osl, running, gaps, edges, seen, gap)
    elif state[PAUSED] > 0:
        end_pause(state, table, running, gaps, edges, seen)
    elif state[DECODING] > 0:
        place, ns = state[LAST_BIN], gap // PS_PER_NS
        if ns < edges[place] or (place + 1 < edges.size and ns >= edges[place + 1]):
            place = bin_of(edges, gap)
            state[LAST_BIN] = place
        left, b = state[DECODING], 0
        while left > 0:
            gaps[b, place] += positions[b]
            left -= positions[b]
            b += 1
    state[ROUND] += 1
    state[CONTEXT] += state[DECODING]
    if cfg[SCHEDULER] == SGLANG:
        state[PAUSED] = 0
        state[DECODED] = seen


@njit(inline="always")
def end_step(cfg, state, table, isl, osl, running, filling, take, gaps, edges, positions, phases, seen):
    """Hand out the tokens of a step, which clients have at ``seen``; in one of SGLang's prompts nobody decodes."""
    gap = seen - state[SEEN]
    state[SEEN] = seen
    if cfg[SCHEDULER] == SGLANG and state[FILLING] > 0:
        state[ALONE] += 1
        state[PAUSED] = 1
    else:
        end_round(cfg, state, table, isl, osl, running, gaps, edges, positions, seen, gap)
    if state[FILLING] > 0:
        end_filling(cfg, state, table, isl, osl, filling, take, gaps, edges, positions, phases, seen)
    if state[NEXT_EVENT] <= state[ROUND]:
        end_events(cfg, state, table, isl, osl, running, positions, phases, seen)


@njit(inline="always")
def record(state, made, steps, now, lasts):
    """Keep a step that is about to begin, if there is room."""
    row = state[ROUND] + state[ALONE]
    if row < steps.shape[0]:
        made[START] = now
        made[DURATION] = lasts
        made[IN_ENGINE] = state[RUNNING]
        made[WAITING] = state[TAIL] - state[HEAD] + state[STACK]
        for k in range(STEP_COLUMNS):
            steps[row, k] = made[k]
