"""The scheduler of SGLang, compiled; the rules are those of ``reference/sglang.py``."""

from __future__ import annotations

from tonnage.simulator.kernel.blocks import blocks_of, grow_all, growth_of_all, held, too_long, windows_of
from tonnage.simulator.kernel.decoding import leave_decoding
from tonnage.simulator.kernel.inlined import part, small
from tonnage.simulator.kernel.memory import NEVER
from tonnage.simulator.kernel.prompts import add_decoding, add_prompt, enter, first_in_line
from tonnage.simulator.ratio import MOST_NEW, RATIO, RATIO_DECAY, RATIO_LEAST, RETRACT_STEPS

GROWS, BUDGETED, GUESSES = True, False, True


@small()
def never_fits(cfg, isl, osl):
    """Also one that leaves no token beside itself and a block: it would not be admitted to an idle engine."""
    longest = isl + osl + cfg.drafted
    return too_long(cfg, isl, osl) or longest + cfg.block_tokens >= (cfg.kv_blocks - windows_of(cfg, longest)) * cfg.block_tokens


@part()
def schedule(m):
    """A step of prompts if any can be admitted, else one of decodes."""
    s = m.state
    if s.filling > 0 or s.decoding == 0:
        s.full = 0
    if s.full == 0 and (s.filling > 0 or (s.head < s.tail and s.running < m.cfg.slots)):
        admit(m)
    m.step.alone = s.filling > 0
    if s.filling == 0:
        decode(m)
        add_decoding(m)


@small()
def still_to_come(m):
    """What the decoding requests may still make, each up to MOST_NEW tokens."""
    total = 0
    for i in range(m.state.running):
        r = m.lists.running[i]
        if m.rows.until[r] < NEVER:
            total += min(m.rows.osl[r] - (m.state.round - m.rows.base[r]), MOST_NEW)
    return total


@part()
def admit(m):
    """One pass of admission: the prompt that was cut, then waiting ones; memory in tokens times RATIO."""
    s, rows, size, chunks = m.state, m.rows, m.cfg.block_tokens, m.cfg.chunked == 1
    budget = max(size, m.cfg.max_tokens - m.cfg.max_tokens % size) if chunks else m.cfg.max_tokens
    left = s.free * size * RATIO - s.ratio * still_to_come(m)
    decodes = 1 if s.decoding > 0 else 0
    if s.filling > 0:
        r = m.lists.filling[0]
        lacks = rows.isl[r] + rows.generated[r] - rows.computed[r]
        new = min(lacks, budget)
        paged = take_prompt(m, 0, r, new)
        budget -= paged
        left -= (paged + size + (min(rows.osl[r], MOST_NEW) if new == lacks else 0)) * RATIO
    while s.head < s.tail and budget > 0 and s.running < m.cfg.slots:
        r = first_in_line(m)
        tokens, windows = rows.isl[r] + rows.generated[r], rows.windows[r] * size
        if (tokens + min(rows.osl[r] - rows.generated[r], MOST_NEW) + size + windows) * RATIO >= left:
            s.full = decodes
            break
        paged = blocks_of(tokens, size) * size
        if not chunks and s.filling > 0 and paged >= budget:
            break
        new = budget if chunks and paged > budget else tokens
        s.head += 1
        i = s.filling
        enter(m, r)
        paged = take_prompt(m, i, r, new)
        budget -= paged
        left -= (paged + size + windows + (min(rows.osl[r], MOST_NEW) if new == tokens else 0)) * RATIO
        if left <= 0:
            s.full = decodes
            break


@small()
def take_prompt(m, i, r, new):
    """Allocate for the next ``new`` tokens of a filling request and count them into the step; their whole blocks in tokens."""
    rows, size = m.rows, m.cfg.block_tokens
    more = blocks_of(rows.computed[r] + new, size) + rows.windows[r] - rows.blocks[r]
    m.state.free -= more
    rows.blocks[r] += more
    m.lists.take[i] = new
    add_prompt(m, r, new)
    return blocks_of(new, size) * size


@part()
def decode(m):
    """Blocks for the next round, after as many retractions as it takes; and the ratio."""
    s = m.state
    needed = growth_of_all(m)
    if needed <= s.free:
        s.ratio = max(s.ratio - RATIO_DECAY, RATIO_LEAST)
    else:
        while s.decoding > 1 and needed > s.free:
            retract(m)
            needed = growth_of_all(m)
        made, most = 0, 0
        for i in range(s.running):
            made += s.round - m.rows.base[m.lists.running[i]]
            most += m.rows.osl[m.lists.running[i]]
        s.ratio = min((made + RETRACT_STEPS * s.decoding) * RATIO // (most + 1), RATIO)
    s.free -= needed
    grow_all(m)


@part()
def retract(m):
    """Send the request with the fewest output tokens, the longest prompt, the last that entered, to the end of the queue."""
    s, rows, running, queue = m.state, m.rows, m.lists.running, m.lists.queue
    least = 0
    for i in range(1, s.running):
        r, best = running[i], running[least]
        fewer = rows.base[r] - rows.base[best]
        if fewer > 0 or (fewer == 0 and rows.isl[r] >= rows.isl[best]):
            least = i
    r = running[least]
    s.running -= 1
    for i in range(least, s.running):
        running[i] = running[i + 1]
    leave_decoding(m, r)
    rows.last[r] = max(rows.last[r], s.decoded if s.paused > 0 else s.seen)
    s.free += held(m, r, rows.generated[r])
    rows.blocks[r] = 0
    rows.computed[r] = 0
    rows.preemptions[r] += 1
    queue[s.tail & (queue.size - 1)] = r
    s.tail += 1
    s.full = 0
