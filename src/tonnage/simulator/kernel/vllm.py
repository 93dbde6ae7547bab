"""The scheduler of vLLM V1, compiled; the rules are those of ``reference/vllm.py``."""

from __future__ import annotations

from tonnage.simulator.kernel.blocks import blocks_of, grow_all, growth, growth_of_all, held, too_long, windows_of
from tonnage.simulator.kernel.decoding import leave_decoding
from tonnage.simulator.kernel.forms import two_forms
from tonnage.simulator.kernel.inlined import part
from tonnage.simulator.kernel.memory import NEVER
from tonnage.simulator.kernel.prefix_cache import SCHEDULED
from tonnage.simulator.kernel.prompts import add_decoding, add_filling, chunk, cut
from tonnage.simulator.kernel.queue import enter, lose, received
from tonnage.simulator.kernel.ranked_pre_emption import continue_by_rank
from tonnage.simulator.kernel.ranks import queue_again, ranked
from tonnage.simulator.kernel.shared import catch_up, catch_up_before, compute, find, found_blocks, hold, no_longer_free, released

GROWS, BUDGETED, GUESSES, NAMES, PARTIAL = True, True, True, SCHEDULED, False


@part()
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
    for f in range(s.filling):
        if take[f] > 0:
            i = m.lists.filling[f]
            compute(m, i, m.slots[i].computed + take[f])
            add_filling(m, m.slots[i], take[f])
            budget -= take[f]
    while not preempted and s.queued > 0 and budget > 0 and s.running < cfg.slots:
        r = s.head
        tokens = rows.isl[r] + rows.generated[r]
        lacks = cut(m, tokens - received(m, r) - find(m, r, tokens))
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
    """Allocate for the running requests; whether anyone was pre-empted.

    Whoever runs had a place in the budget when the next one entered, and needs no more of it since: so those who decode have their token
    whatever the prompts before them take, and only the last prompt may be cut short by the budget.
    """
    s, lists, block = m.state, m.lists, m.cfg.block_tokens
    needed, budget = growth_of_all(m), m.cfg.max_tokens - s.decoding * (m.cfg.drafted + 1)
    for f in range(s.filling):
        lists.take[f], more = chunk(m, lists.filling[f], budget)
        budget -= lists.take[f]
        needed += more
    if needed > s.free:
        return continue_with_less(m)
    s.free -= needed
    grow_all(m)
    for f in range(s.filling):
        slot = m.slots[lists.filling[f]]
        slot.blocks = max(slot.blocks, blocks_of(slot.computed + lists.take[f], block) + slot.windows)
    return False


@part()
def continue_in_turn(m):
    """The same one by one where blocks run out; whether anyone was pre-empted."""
    s, lists, drafted = m.state, m.lists, m.cfg.drafted
    k, f, budget = 0, 0, m.cfg.max_tokens
    while k < s.running:
        i, decodes = lists.running[k], lists.ends[k] < NEVER
        if decodes:
            new, more = drafted + 1, growth(m, m.slots[i])
        else:
            new, more = chunk(m, i, budget)
            lists.take[f] = new
            f += 1
        while more > s.free and k < s.running:
            preempt_last(m, k)
        if k == s.running:
            break
        s.free -= more
        budget -= new
        if not decodes or drafted > 0:
            m.slots[i].blocks += more
        k += 1
    return True


continue_with_less = two_forms("ranks", lambda m: continue_in_turn(m), lambda m: continue_by_rank(m) if ranked(m) else continue_in_turn(m))
"""The same where blocks run out; whether anyone was pre-empted."""


@part()
def preempt_last(m, scheduled):
    """Free all blocks of the last running request, when the first ones are scheduled; it waits again in front of all, or where it ranks."""
    catch_up_before(m, scheduled)
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
    queue_again(m, lose(m, i, last))
