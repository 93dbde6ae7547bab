"""SGLang's rules on arrays, compiled; ``sglang.py`` says the same in plain objects. See ``rules.py``.

Its step is called, not made part of the loop: the loop compiles in less time and is no slower for other engines.
"""

from __future__ import annotations

from numba import njit

from tonnage.simulator.layout import (
    BASE,
    BLOCK_TOKENS,
    BLOCKS,
    CHUNKED,
    COMPUTED,
    DECODED,
    DECODING,
    FILLING,
    FREE,
    FULL,
    GENERATED,
    HEAD,
    LAST,
    MAX_TOKENS,
    NEVER,
    PREEMPTIONS,
    RATIO,
    ROUND,
    RUNNING,
    SLOTS,
    TAIL,
    UNTIL,
    WINDOWS,
)
from tonnage.simulator.rules import add_decoding, blocks_of, called, enter, grow_all, growth_of_all, held, leave_decoding
from tonnage.simulator.sglang import MOST_NEW, RATIO_DECAY, RATIO_LEAST, RETRACT_STEPS
from tonnage.simulator.sglang import RATIO as UNITS
from tonnage.simulator.steps import PAIRS_2, PREFILL_SEQUENCES, PREFILL_TOKENS


@called()
def schedule_sglang(cfg, state, table, isl, osl, queue, running, filling, take, made, positions, phases):
    """A step of prompts if any can be admitted, else one of decodes."""
    if state[FILLING] > 0 or state[DECODING] == 0:
        state[FULL] = 0
    if state[FULL] == 0 and (state[FILLING] > 0 or (state[HEAD] < state[TAIL] and state[RUNNING] < cfg[SLOTS])):
        admit_sglang(cfg, state, table, isl, osl, queue, running, filling, take, made)
    if state[FILLING] == 0:
        decode_sglang(cfg, state, table, isl, osl, queue, running, positions, phases)
        add_decoding(state, made)


@njit(inline="always")
def still_to_come(state, table, osl, running):
    """What the decoding requests may still make, each up to MOST_NEW tokens."""
    total = 0
    for i in range(state[RUNNING]):
        r = running[i]
        if table[UNTIL, r] < NEVER:
            total += min(osl[r] - (state[ROUND] - table[BASE, r]), MOST_NEW)
    return total


@njit(inline="always")
def admit_sglang(cfg, state, table, isl, osl, queue, running, filling, take, made):
    """One pass of admission: the prompt that was cut, then waiting ones; memory in tokens times UNITS."""
    size, chunks = cfg[BLOCK_TOKENS], cfg[CHUNKED] == 1
    budget = max(size, cfg[MAX_TOKENS] - cfg[MAX_TOKENS] % size) if chunks else cfg[MAX_TOKENS]
    left = state[FREE] * size * UNITS - state[RATIO] * still_to_come(state, table, osl, running)
    decodes = 1 if state[DECODING] > 0 else 0
    if state[FILLING] > 0:
        r = filling[0]
        lacks = isl[r] + table[GENERATED, r] - table[COMPUTED, r]
        new = min(lacks, budget)
        paged = take_prompt(cfg, state, table, take, made, 0, r, new)
        budget -= paged
        left -= (paged + size + (min(osl[r], MOST_NEW) if new == lacks else 0)) * UNITS
    while state[HEAD] < state[TAIL] and budget > 0 and state[RUNNING] < cfg[SLOTS]:
        r = queue[state[HEAD] % queue.size]
        tokens, windows = isl[r] + table[GENERATED, r], table[WINDOWS, r] * size
        if (tokens + min(osl[r] - table[GENERATED, r], MOST_NEW) + size + windows) * UNITS >= left:
            state[FULL] = decodes
            break
        paged = blocks_of(tokens, size) * size
        if not chunks and state[FILLING] > 0 and paged >= budget:
            break
        new = budget if chunks and paged > budget else tokens
        state[HEAD] += 1
        i = state[FILLING]
        enter(state, table, running, filling, r)
        paged = take_prompt(cfg, state, table, take, made, i, r, new)
        budget -= paged
        left -= (paged + size + windows + (min(osl[r], MOST_NEW) if new == tokens else 0)) * UNITS
        if left <= 0:
            state[FULL] = decodes
            break


@njit(inline="always")
def take_prompt(cfg, state, table, take, made, i, r, new):
    """Allocate for the next ``new`` tokens of a filling request and count them into the step; their whole blocks in tokens."""
    past = table[COMPUTED, r]
    more = blocks_of(past + new, cfg[BLOCK_TOKENS]) + table[WINDOWS, r] - table[BLOCKS, r]
    state[FREE] -= more
    table[BLOCKS, r] += more
    take[i] = new
    made[PREFILL_TOKENS] += new
    made[PREFILL_SEQUENCES] += 1
    made[PAIRS_2] += new * (2 * past + new)
    return blocks_of(new, cfg[BLOCK_TOKENS]) * cfg[BLOCK_TOKENS]


@njit(inline="always")
def decode_sglang(cfg, state, table, isl, osl, queue, running, positions, phases):
    """Blocks for the next round, after as many retractions as it takes; and the ratio."""
    needed = growth_of_all(cfg, state, table, isl, running, phases)
    if needed <= state[FREE]:
        state[RATIO] = max(state[RATIO] - RATIO_DECAY, RATIO_LEAST)
    else:
        while state[DECODING] > 1 and needed > state[FREE]:
            retract(cfg, state, table, isl, queue, running, positions, phases)
            needed = growth_of_all(cfg, state, table, isl, running, phases)
        made, most = 0, 0
        for i in range(state[RUNNING]):
            made += state[ROUND] - table[BASE, running[i]]
            most += osl[running[i]]
        state[RATIO] = min((made + RETRACT_STEPS * state[DECODING]) * UNITS // (most + 1), UNITS)
    state[FREE] -= needed
    grow_all(cfg, state, table, isl, running)


@njit(inline="always")
def retract(cfg, state, table, isl, queue, running, positions, phases):
    """Send the request with the fewest output tokens, the longest prompt, the last that entered, to the end of the queue."""
    least = 0
    for i in range(1, state[RUNNING]):
        r, best = running[i], running[least]
        fewer = table[BASE, r] - table[BASE, best]
        if fewer > 0 or (fewer == 0 and isl[r] >= isl[best]):
            least = i
    r = running[least]
    state[RUNNING] -= 1
    for i in range(least, state[RUNNING]):
        running[i] = running[i + 1]
    leave_decoding(cfg, state, table, isl, r, positions, phases)
    table[LAST, r] = max(table[LAST, r], state[DECODED])
    state[FREE] += held(cfg, table, isl, r, table[GENERATED, r])
    table[BLOCKS, r] = 0
    table[COMPUTED, r] = 0
    table[PREEMPTIONS, r] += 1
    queue[state[TAIL] % queue.size] = r
    state[TAIL] += 1
    state[FULL] = 0
