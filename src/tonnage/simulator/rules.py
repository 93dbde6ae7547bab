"""The engines' rules on arrays, compiled: what arrives, who enters, and what a step computes.

``reference.py`` and ``batchers.py`` say the same in plain objects and are the place to read them; the two
agree to the last bit under property tests. Each function becomes part of the one loop of ``kernel.py``.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from numba import njit

from tonnage.results.requests import REJECTED, UNFINISHED
from tonnage.simulator.layout import (
    BASE,
    BATCH,
    BLOCK_TOKENS,
    BLOCKS,
    BUCKET,
    CHUNKED,
    COMPUTED,
    CONCURRENCY,
    CONTEXT,
    DECODING,
    DRAFTED,
    FILLING,
    FIRST,
    FIRST_STEP,
    FREE,
    FRONTEND,
    GENERATED,
    HEAD,
    KV_BLOCKS,
    LAST,
    LAST_STEP,
    LONGEST,
    MAX_CONTEXT,
    MAX_TOKENS,
    NEVER,
    NEXT_ARRIVAL,
    NEXT_SEND,
    PREEMPTIONS,
    PROGRAM_FREE,
    ROUND,
    RUNNING,
    SCHEDULER,
    SEEN,
    SENT,
    SGLANG,
    SLOTS,
    STACK,
    STATUS,
    TAIL,
    TENSORRT_LLM,
    TURNAROUND,
    UNHEARD,
    UNTIL,
    VLLM,
    WAIT_STEPS,
    WAIT_TOKENS,
    WAITED,
    WINDOW_BLOCKS,
    WINDOW_TOKENS,
    WINDOWS,
)
from tonnage.simulator.steps import (
    CONTEXT_TOKENS,
    DECODE_SEQUENCES,
    PAIRS_2,
    PREFILL_SEQUENCES,
    PREFILL_TOKENS,
)

called: Any = partial(njit, _nrt=False)
"""For what is called and not made part of the loop; as that, it allocates nothing (``kernel.py``)."""


@njit(inline="always")
def blocks_of(tokens, block):
    """KV blocks that hold so many tokens."""
    return (tokens + block - 1) // block


@njit(inline="always")
def windows_of(cfg, tokens):
    """KV blocks that a sequence which grows to so many tokens holds for its sliding windows."""
    if tokens >= cfg[WINDOW_TOKENS]:
        return cfg[WINDOW_BLOCKS]
    return blocks_of(cfg[WINDOW_BLOCKS] * tokens, cfg[WINDOW_TOKENS])


@njit(inline="always")
def never_fits(cfg, isl, osl):
    """Whether a request could not be served even by an idle engine."""
    windows = windows_of(cfg, isl + osl + cfg[DRAFTED])
    if blocks_of(isl + osl + cfg[DRAFTED], cfg[BLOCK_TOKENS]) + windows > cfg[KV_BLOCKS]:
        return True
    if cfg[MAX_CONTEXT] > 0 and isl + osl > cfg[MAX_CONTEXT]:
        return True
    if cfg[SCHEDULER] == TENSORRT_LLM:
        return isl > cfg[MAX_TOKENS] and (cfg[CHUNKED] == 0 or cfg[MAX_TOKENS] < cfg[BLOCK_TOKENS])
    if cfg[SCHEDULER] == VLLM:
        return isl + osl > cfg[MAX_TOKENS] and cfg[CHUNKED] == 0
    if cfg[SCHEDULER] == SGLANG:
        return isl + osl + cfg[DRAFTED] + cfg[BLOCK_TOKENS] >= (cfg[KV_BLOCKS] - windows) * cfg[BLOCK_TOKENS]
    return False


@njit(inline="always")
def send_next(cfg, state, table, free_at):
    """A client that became free at ``free_at`` sends the next request of the closed loop, if there is one."""
    r = state[NEXT_SEND]
    if r == table.shape[1]:
        return
    sent = max(free_at, state[PROGRAM_FREE]) + cfg[TURNAROUND]
    state[PROGRAM_FREE] = sent
    state[NEXT_SEND] = r + 1
    start_row(table, r, sent)


@njit(inline="always")
def start_row(table, r, sent):
    """A request that is sent, with nothing done."""
    table[:, r] = 0
    table[SENT, r] = sent
    table[FIRST, r] = -1
    table[LAST, r] = -1
    table[STATUS, r] = UNFINISHED
    table[FIRST_STEP, r] = -1
    table[LAST_STEP, r] = -1


@njit(inline="always")
def begin(cfg, state, table, due):
    """Send what is sent whatever happens: all of an open loop, one request per client of a closed one."""
    count = table.shape[1]
    if cfg[CONCURRENCY] > 0:
        for _ in range(min(cfg[CONCURRENCY], count)):
            send_next(cfg, state, table, 0)
        return
    state[NEXT_SEND] = count
    for r in range(count):
        start_row(table, r, due[r])


@njit(inline="always")
def take_arrivals(cfg, state, table, isl, osl, queue, until):
    """Queue what reaches the engine up to and including ``until``, and reject what never fits; not between two looks."""
    while state[UNHEARD] == 0 and state[NEXT_ARRIVAL] < state[NEXT_SEND]:
        r = state[NEXT_ARRIVAL]
        arrival = table[SENT, r] + cfg[FRONTEND]
        if arrival > until:
            return
        state[NEXT_ARRIVAL] = r + 1
        if never_fits(cfg, isl[r], osl[r]):
            table[STATUS, r] = REJECTED
            if cfg[CONCURRENCY] > 0:
                send_next(cfg, state, table, arrival)
        else:
            table[WINDOWS, r] = windows_of(cfg, isl[r] + osl[r] + cfg[DRAFTED])
            queue[state[TAIL] % queue.size] = r
            state[TAIL] += 1


@njit(inline="always")
def enter(state, table, running, filling, r):
    """Append a request to the running ones, and to those of them whose prompt is not computed yet."""
    table[UNTIL, r] = NEVER
    running[state[RUNNING]] = r
    state[RUNNING] += 1
    filling[state[FILLING]] = r
    state[FILLING] += 1


@njit(inline="always")
def schedule_static(cfg, state, table, isl, osl, queue, running, filling, take, made):
    """A whole new batch when the last one is gone, else one more padded decode step of all its slots."""
    if state[RUNNING] > 0:
        made[DECODE_SEQUENCES] = state[BATCH]
        made[CONTEXT_TOKENS] = state[BATCH] * (state[LONGEST] + state[ROUND] - table[BASE, running[0]])
        return
    prompt, output = 0, 0
    while state[HEAD] < state[TAIL] and state[RUNNING] < cfg[SLOTS]:
        r = queue[state[HEAD]]
        longer_prompt, longer_output = max(prompt, isl[r]), max(output, osl[r])
        longest = longer_prompt + longer_output
        if (state[RUNNING] + 1) * (blocks_of(longest, cfg[BLOCK_TOKENS]) + windows_of(cfg, longest)) > cfg[KV_BLOCKS]:
            break
        prompt, output = longer_prompt, longer_output
        state[HEAD] += 1
        take[state[FILLING]] = isl[r]
        enter(state, table, running, filling, r)
    n = state[RUNNING]
    state[BATCH] = n
    state[LONGEST] = prompt
    made[PREFILL_TOKENS] = n * prompt
    made[PREFILL_SEQUENCES] = n
    made[PAIRS_2] = n * prompt * prompt


@njit(inline="always")
def add_decoding(state, made):
    """Count the decoding requests into a step, one token each."""
    made[DECODE_SEQUENCES] = state[DECODING]
    made[CONTEXT_TOKENS] = state[CONTEXT]


@njit(inline="always")
def add_filling(table, isl, made, r, new):
    """Count the next ``new`` tokens of a filling request into a step; a last token computed again is a decode."""
    past, tokens = table[COMPUTED, r], isl[r] + table[GENERATED, r]
    if table[GENERATED, r] > 0 and past == tokens - 1:
        made[DECODE_SEQUENCES] += 1
        made[CONTEXT_TOKENS] += tokens
    else:
        made[PREFILL_TOKENS] += new
        made[PREFILL_SEQUENCES] += 1
        made[PAIRS_2] += new * (2 * past + new)


@njit(inline="always")
def schedule_tensorrt_llm(cfg, state, table, isl, osl, queue, running, filling, take, made):
    """Admit in order while slots and blocks to completion last; decodes first, then contexts."""
    while state[HEAD] < state[TAIL] and state[RUNNING] < cfg[SLOTS]:
        r = queue[state[HEAD]]
        need = blocks_of(isl[r] + osl[r] + cfg[DRAFTED], cfg[BLOCK_TOKENS]) + table[WINDOWS, r]
        if need > state[FREE]:
            break
        state[HEAD] += 1
        state[FREE] -= need
        table[BLOCKS, r] = need
        enter(state, table, running, filling, r)
    add_decoding(state, made)
    budget = cfg[MAX_TOKENS] - state[DECODING] * (cfg[DRAFTED] + 1)
    stopped = False
    tokens = cfg[MAX_TOKENS] - budget
    for i in range(state[FILLING]):
        r = filling[i]
        new = isl[r] - table[COMPUTED, r]
        if new > budget:
            stopped = stopped or cfg[CHUNKED] == 0
            new = budget - budget % cfg[BLOCK_TOKENS]
        take[i] = 0 if stopped else new
        if take[i] > 0:
            budget -= new
            tokens += isl[r]
            add_filling(table, isl, made, r, new)
    if made[PREFILL_TOKENS] > 0:
        wait_for_more(cfg, state, take, made, tokens)


@njit(inline="always")
def wait_for_more(cfg, state, take, made, tokens):
    """Take a step's prompts out again while they wait beside decodes to be batched with others."""
    if state[DECODING] == 0 or tokens >= cfg[WAIT_TOKENS] or state[WAITED] >= cfg[WAIT_STEPS]:
        state[WAITED] = 0
        return
    state[WAITED] += 1
    for i in range(state[FILLING]):
        take[i] = 0
    made[PREFILL_TOKENS] = 0
    made[PREFILL_SEQUENCES] = 0
    made[PAIRS_2] = 0


@njit(inline="always")
def held(cfg, table, isl, r, generated):
    """Blocks of a request that decodes: those of its context and its windows, and those once taken for guesses."""
    if cfg[DRAFTED] > 0:
        return table[BLOCKS, r]
    return blocks_of(isl[r] + generated - 1, cfg[BLOCK_TOKENS]) + table[WINDOWS, r]


@njit(inline="always")
def growth(cfg, state, table, isl, r):
    """Blocks that a decoding request needs for its next token and guesses."""
    context = isl[r] + state[ROUND] - table[BASE, r]
    if cfg[DRAFTED] > 0:
        return blocks_of(context + cfg[DRAFTED], cfg[BLOCK_TOKENS]) + table[WINDOWS, r] - table[BLOCKS, r]
    return 1 if (context - 1) % cfg[BLOCK_TOKENS] == 0 else 0


@njit(inline="always")
def growth_of_all(cfg, state, table, isl, running, phases):
    """The same of all decoding requests together."""
    if cfg[DRAFTED] == 0:
        return phases[-state[ROUND] % cfg[BLOCK_TOKENS]]
    total = 0
    for i in range(state[RUNNING]):
        if table[UNTIL, running[i]] < NEVER:
            total += growth(cfg, state, table, isl, running[i])
    return total


@njit(inline="always")
def grow_all(cfg, state, table, isl, running):
    """Note who has the blocks for guesses; without guesses the context tells."""
    if cfg[DRAFTED] > 0:
        for i in range(state[RUNNING]):
            if table[UNTIL, running[i]] < NEVER:
                table[BLOCKS, running[i]] += growth(cfg, state, table, isl, running[i])


@njit(inline="always")
def leave_decoding(cfg, state, table, isl, r, positions, phases):
    """A request decodes no more; its GENERATED is kept."""
    table[GENERATED, r] = state[ROUND] - table[BASE, r]
    table[UNTIL, r] = NEVER
    state[DECODING] -= 1
    state[CONTEXT] -= isl[r] + table[GENERATED, r]
    positions[table[BUCKET, r]] -= 1
    phases[(isl[r] - 1 - table[BASE, r]) % cfg[BLOCK_TOKENS]] -= 1


@njit(inline="always")
def preempt_last(cfg, state, table, isl, running, stack, positions, phases):
    """Free all blocks of the last running request and put it at the front of the waiting ones."""
    state[RUNNING] -= 1
    r = running[state[RUNNING]]
    if table[UNTIL, r] < NEVER:
        leave_decoding(cfg, state, table, isl, r, positions, phases)
        table[LAST, r] = state[SEEN]
        state[FREE] += held(cfg, table, isl, r, table[GENERATED, r])
    else:
        state[FILLING] -= 1
        state[FREE] += table[BLOCKS, r]
    table[BLOCKS, r] = 0
    table[COMPUTED, r] = 0
    table[PREEMPTIONS, r] += 1
    stack[state[STACK]] = r
    state[STACK] += 1


@njit(inline="always")
def chunk_vllm(cfg, state, table, isl, r):
    """New tokens of a filling request in a step, and the blocks that they need."""
    new = min(isl[r] + table[GENERATED, r] - table[COMPUTED, r], cfg[MAX_TOKENS] - state[DECODING] * (cfg[DRAFTED] + 1))
    return new, max(blocks_of(table[COMPUTED, r] + new, cfg[BLOCK_TOKENS]) + table[WINDOWS, r] - table[BLOCKS, r], 0)


@njit(inline="always")
def continue_vllm(cfg, state, table, isl, stack, running, filling, take, positions, phases):
    """Allocate for the running requests, all decoding but for one at most, the last; whether anyone was pre-empted."""
    needed = growth_of_all(cfg, state, table, isl, running, phases)
    if state[FILLING] > 0:
        new, more = chunk_vllm(cfg, state, table, isl, filling[0])
        take[0] = new
        needed += more
    if needed <= state[FREE]:
        state[FREE] -= needed
        grow_all(cfg, state, table, isl, running)
        if state[FILLING] > 0:
            table[BLOCKS, filling[0]] += more
        return False
    i = 0
    while i < state[RUNNING]:
        r = running[i]
        if table[UNTIL, r] < NEVER:
            more = growth(cfg, state, table, isl, r)
        else:
            take[0], more = chunk_vllm(cfg, state, table, isl, r)
        while more > state[FREE] and i < state[RUNNING]:
            preempt_last(cfg, state, table, isl, running, stack, positions, phases)
        if i == state[RUNNING]:
            break
        state[FREE] -= more
        if table[UNTIL, r] == NEVER or cfg[DRAFTED] > 0:
            table[BLOCKS, r] += more
        i += 1
    return True


@njit(inline="always")
def schedule_vllm(cfg, state, table, isl, queue, stack, running, filling, take, made, positions, phases):
    """Running ones in order while the budget lasts, then waiting ones if nobody lost its blocks."""
    preempted = continue_vllm(cfg, state, table, isl, stack, running, filling, take, positions, phases)
    add_decoding(state, made)
    budget = cfg[MAX_TOKENS] - state[DECODING] * (cfg[DRAFTED] + 1)
    if state[FILLING] > 0 and take[0] > 0:
        add_filling(table, isl, made, filling[0], take[0])
        budget -= take[0]
    while not preempted and budget > 0 and state[RUNNING] < cfg[SLOTS]:
        if state[STACK] > 0:
            r = stack[state[STACK] - 1]
        elif state[HEAD] < state[TAIL]:
            r = queue[state[HEAD]]
        else:
            break
        tokens = isl[r] + table[GENERATED, r]
        if cfg[CHUNKED] == 0 and tokens > budget:
            break
        if blocks_of(tokens, cfg[BLOCK_TOKENS]) + table[WINDOWS, r] > state[FREE]:
            break
        if state[STACK] > 0:
            state[STACK] -= 1
        else:
            state[HEAD] += 1
        new = min(tokens, budget)
        table[BLOCKS, r] = blocks_of(new, cfg[BLOCK_TOKENS]) + table[WINDOWS, r]
        state[FREE] -= table[BLOCKS, r]
        take[state[FILLING]] = new
        enter(state, table, running, filling, r)
        budget -= new
        add_filling(table, isl, made, r, new)
