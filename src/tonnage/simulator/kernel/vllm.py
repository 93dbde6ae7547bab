"""The scheduler of vLLM V1, compiled; the rules are those of ``reference/vllm.py``."""

from __future__ import annotations

from tonnage.simulator.kernel.blocks import blocks_of, grow_all, growth, growth_of_all, held, too_long
from tonnage.simulator.kernel.decoding import leave_decoding
from tonnage.simulator.kernel.inlined import part, small
from tonnage.simulator.kernel.memory import NEVER
from tonnage.simulator.kernel.prompts import add_decoding, add_filling, enter, first_in_line

GROWS, BUDGETED, GUESSES = True, True, True


@small()
def never_fits(cfg, isl, osl):
    """Also, without chunks, prompt and output beyond the budget."""
    return too_long(cfg, isl, osl) or (isl + osl > cfg.max_tokens and cfg.chunked == 0)


@part()
def schedule(m):
    """Running ones in order while the budget lasts, then waiting ones if nobody lost its blocks."""
    cfg, s, rows, take = m.cfg, m.state, m.rows, m.lists.take
    preempted = continue_running(m)
    add_decoding(m)
    budget = cfg.max_tokens - s.decoding * (cfg.drafted + 1)
    if s.filling > 0 and take[0] > 0:
        add_filling(m, m.lists.filling[0], take[0])
        budget -= take[0]
    while not preempted and budget > 0 and s.running < cfg.slots:
        if s.stacked > 0:
            r = m.lists.stack[s.stacked - 1]
        elif s.head < s.tail:
            r = first_in_line(m)
        else:
            break
        tokens = rows.isl[r] + rows.generated[r]
        if cfg.chunked == 0 and tokens > budget:
            break
        if blocks_of(tokens, cfg.block_tokens) + rows.windows[r] > s.free:
            break
        if s.stacked > 0:
            s.stacked -= 1
        else:
            s.head += 1
        new = min(tokens, budget)
        rows.blocks[r] = blocks_of(new, cfg.block_tokens) + rows.windows[r]
        s.free -= rows.blocks[r]
        take[s.filling] = new
        enter(m, r)
        budget -= new
        add_filling(m, r, new)


@part()
def continue_running(m):
    """Allocate for the running requests, all decoding but for one at most, the last; whether anyone was pre-empted."""
    s, rows, filling = m.state, m.rows, m.lists.filling
    needed = growth_of_all(m)
    if s.filling > 0:
        new, more = chunk(m, filling[0])
        m.lists.take[0] = new
        needed += more
    if needed > s.free:
        return continue_with_less(m)
    s.free -= needed
    grow_all(m)
    if s.filling > 0:
        rows.blocks[filling[0]] += more
    return False


@part()
def continue_with_less(m):
    """The same one by one where blocks run out; whether anyone was pre-empted."""
    s, rows, running = m.state, m.rows, m.lists.running
    i = 0
    while i < s.running:
        r = running[i]
        if rows.until[r] < NEVER:
            more = growth(m, r)
        else:
            m.lists.take[0], more = chunk(m, r)
        while more > s.free and i < s.running:
            preempt_last(m)
        if i == s.running:
            break
        s.free -= more
        if rows.until[r] == NEVER or m.cfg.drafted > 0:
            rows.blocks[r] += more
        i += 1
    return True


@part()
def chunk(m, r):
    """New tokens of a filling request in a step, and the blocks that they need."""
    cfg, rows = m.cfg, m.rows
    new = min(rows.isl[r] + rows.generated[r] - rows.computed[r], cfg.max_tokens - m.state.decoding * (cfg.drafted + 1))
    return new, max(blocks_of(rows.computed[r] + new, cfg.block_tokens) + rows.windows[r] - rows.blocks[r], 0)


@part()
def preempt_last(m):
    """Free all blocks of the last running request and put it at the front of the waiting ones."""
    s, rows = m.state, m.rows
    s.running -= 1
    r = m.lists.running[s.running]
    if rows.until[r] < NEVER:
        leave_decoding(m, r)
        rows.last[r] = s.seen
        s.free += held(m, r, rows.generated[r])
    else:
        s.filling -= 1
        s.free += rows.blocks[r]
    rows.blocks[r] = 0
    rows.computed[r] = 0
    rows.preemptions[r] += 1
    m.lists.stack[s.stacked] = r
    s.stacked += 1
