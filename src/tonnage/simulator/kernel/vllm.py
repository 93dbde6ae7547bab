"""The scheduler of vLLM V1, compiled; the rules are those of ``reference/vllm.py``."""

from __future__ import annotations

from tonnage.simulator.kernel.blocks import blocks_of, grow_all, growth, growth_of_all, held, too_long, windows_of
from tonnage.simulator.kernel.decoding import leave_decoding
from tonnage.simulator.kernel.inlined import part, small
from tonnage.simulator.kernel.memory import NEVER
from tonnage.simulator.kernel.prefix_cache import SCHEDULED
from tonnage.simulator.kernel.prompts import add_decoding, add_filling
from tonnage.simulator.kernel.queue import enter, lose, push_front, received
from tonnage.simulator.kernel.shared import catch_up, compute, find, found_blocks, hold, no_longer_free, released

GROWS, BUDGETED, GUESSES, NAMES, PARTIAL = True, True, True, SCHEDULED, False


@small()
def never_fits(cfg, isl, osl):
    """Also, without chunks, prompt and output beyond the budget."""
    return too_long(cfg, isl, osl) or (isl + osl > cfg.max_tokens and cfg.chunked == 0)


@part()
def schedule(m):
    """Running ones in order while the budget lasts, then waiting ones if nobody lost its blocks."""
    cfg, s, rows, take = m.cfg, m.state, m.rows, m.lists.take
    preempted = continue_running(m)
    s.steady = 0 if preempted else 1
    add_decoding(m)
    budget = cfg.max_tokens - s.decoding * (cfg.drafted + 1)
    if s.filling > 0 or (s.queued > 0 and not preempted):
        catch_up(m, 1)
    if s.filling > 0 and take[0] > 0:
        i = m.lists.filling[0]
        compute(m, i, m.slots[i].computed + take[0])
        add_filling(m, m.slots[i], take[0])
        budget -= take[0]
    while not preempted and s.queued > 0 and budget > 0 and s.running < cfg.slots:
        r = s.head
        tokens = rows.isl[r] + rows.generated[r]
        lacks = tokens - received(m, r) - find(m, r, tokens)
        if cfg.chunked == 0 and lacks > budget:
            break
        needed = blocks_of(tokens, cfg.block_tokens) + windows_of(cfg, rows.isl[r] + rows.osl[r] + cfg.drafted)
        if needed - found_blocks(m) + no_longer_free(m) > s.free:
            break
        new = min(lacks, budget)
        take[s.filling] = new
        i = enter(m)
        hold(m, i)
        slot = m.slots[i]
        blocks = blocks_of(slot.computed + new, cfg.block_tokens) + slot.windows
        s.free -= blocks - slot.blocks
        slot.blocks = blocks
        compute(m, i, slot.computed + new)
        budget -= new
        add_filling(m, slot, new)


@part()
def continue_running(m):
    """Allocate for the running requests, all decoding but for one at most, the last; whether anyone was pre-empted."""
    s, filling = m.state, m.lists.filling
    needed, more = growth_of_all(m), 0
    if s.filling > 0:
        new, more = chunk(m, filling[0])
        m.lists.take[0] = new
        needed += more
    if needed > s.free:
        return continue_with_less(m)
    s.free -= needed
    grow_all(m)
    if s.filling > 0:
        m.slots[filling[0]].blocks += more
    return False


@part()
def continue_with_less(m):
    """The same one by one where blocks run out; whether anyone was pre-empted."""
    s, lists = m.state, m.lists
    k = 0
    while k < s.running:
        i, decodes = lists.running[k], lists.ends[k] < NEVER
        if decodes:
            more = growth(m, m.slots[i])
        else:
            lists.take[0], more = chunk(m, i)
        while more > s.free and k < s.running:
            preempt_last(m)
        if k == s.running:
            break
        s.free -= more
        if not decodes or m.cfg.drafted > 0:
            m.slots[i].blocks += more
        k += 1
    return True


@part()
def chunk(m, i):
    """New tokens of a filling request in a step, and the blocks that they need."""
    cfg, slot = m.cfg, m.slots[i]
    new = min(slot.isl + slot.generated - slot.computed, cfg.max_tokens - m.state.decoding * (cfg.drafted + 1))
    return new, max(blocks_of(slot.computed + new, cfg.block_tokens) + slot.windows - slot.blocks, 0)


@part()
def preempt_last(m):
    """Free all blocks of the last running request and put it at the front of the waiting ones."""
    s = m.state
    k = s.running - 1
    i = m.lists.running[k]
    if m.lists.ends[k] < NEVER:
        leave_decoding(m, k)
        slot = m.slots[i]
        s.free += released(m, i, held(m, slot, slot.generated), slot.isl + slot.generated - 1, 0)
        last = s.seen
    else:
        s.filling -= 1
        s.free += released(m, i, m.slots[i].blocks, m.slots[i].computed, 0)
        last = m.slots[i].last
    s.running = k
    push_front(m, lose(m, i, last))
