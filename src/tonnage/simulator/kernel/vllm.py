"""The scheduler of vLLM V1, compiled; the rules are those of ``reference/vllm.py``."""

from __future__ import annotations

from tonnage.simulator.kernel.blocks import (
    blocks_of,
    grow_all,
    growth,
    growth_of_all,
    held,
    too_long,
    windows_of,
)
from tonnage.simulator.kernel.compiler import part, two_forms
from tonnage.simulator.kernel.decoding import add_decoding, add_filling, chunk, cut, leave_decoding
from tonnage.simulator.kernel.memory import NEVER
from tonnage.simulator.kernel.prefix_cache import SCHEDULED
from tonnage.simulator.kernel.queue import enter, lose, received
from tonnage.simulator.kernel.ranks import goes_first, queue_again, ranked
from tonnage.simulator.kernel.shared import (
    catch_up,
    catch_up_before,
    compute,
    find,
    found_blocks,
    hold,
    no_longer_free,
    note_blocked,
    released,
    still_blocked,
)

# vLLM's pre-emption by class or deadline, compiled; the rules are those of ``reference/vllm.py``,
# without a prefix cache and guesses. A request that the step leaves out because one before it was
# the last in rank, and had to go, waits a step for its next token. In the kernel all who decode
# have a token in every round; so it counts as one that computes the last token of a prompt until it
# has it.


@part()
def continue_by_rank(m):
    """Allocate for the running requests one by one where blocks run out; True, because someone is
    pre-empted.
    """
    s, lists, granted, k, budget = m.state, m.lists, m.ranks.given, 0, m.cfg.max_tokens
    while k < s.running and budget > 0:
        slot, decodes, stays = m.slots[lists.running[k]], lists.ends[k] < NEVER, True
        if decodes:
            new, more = 1, growth(m, slot)
        else:
            new, more = chunk(m, lists.running[k], budget)
        while more > s.free and stays:
            last = last_in_rank(m)
            stays = last != k
            if last < k:
                budget += granted[last]
                k -= 1
                preempt(m, last, 1)
            else:
                preempt(m, last, 0)
        if not stays:
            break
        s.free -= more
        if not decodes:
            slot.blocks += more
        granted[k] = new
        budget -= new
        k += 1
    list_filling(m, k)
    return True


@part()
def last_in_rank(m):
    """The running request that goes first: the lowest class or the latest deadline, and of these
    the last one sent.
    """
    last, running = 0, m.lists.running
    for k in range(1, m.state.running):
        if goes_first(m, m.slots[running[last]].row, m.slots[running[k]].row):
            last = k
    return last


@part()
def preempt(m, k, served):
    """Free all blocks of the ``k``-th running request, with the block of its next token if it is
    ``served``; the request waits again at its rank.
    """
    s, lists, i = m.state, m.lists, m.lists.running[k]
    slot = m.slots[i]
    last = slot.last
    if lists.ends[k] < NEVER:
        leave_decoding(m, k)
        s.free += held(m, slot, slot.generated + served)
        last = s.seen
    else:
        s.free += slot.blocks
    s.running -= 1
    for j in range(k, s.running):
        lists.running[j] = lists.running[j + 1]
        lists.ends[j] = lists.ends[j + 1]
        lists.crosses[j] = lists.crosses[j + 1]
        m.ranks.given[j] = m.ranks.given[j + 1]
    queue_again(m, lose(m, i, last))


@part()
def list_filling(m, served):
    """Who computes a prompt in the step, with how many tokens; those from the place ``served`` on
    have none, also if they decode.
    """
    s, lists = m.state, m.lists
    s.filling = 0
    for k in range(s.running):
        i = lists.running[k]
        if k >= served and lists.ends[k] < NEVER:
            leave_decoding(m, k)
            slot = m.slots[i]
            slot.computed = slot.isl + slot.generated - 1
            slot.blocks = held(m, slot, slot.generated)
            slot.last = s.seen
            # what ``settle`` notes of decoding requests
            m.rows.generated[slot.row] = slot.generated
            lists.ends[k] = NEVER
            lists.crosses[k] = NEVER
        if lists.ends[k] == NEVER:
            lists.filling[s.filling] = i
            lists.take[s.filling] = m.ranks.given[k] if k < served else 0
            s.filling += 1


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
        needed = blocks_of(tokens, cfg.block_tokens) + windows_of(
            cfg, rows.isl[r] + rows.osl[r] + cfg.drafted
        )
        if still_blocked(m, r, needed):
            break
        lacks = cut(m, tokens - received(m, r) - find(m, r, tokens))
        if cfg.chunked == 0 and lacks > budget:
            break
        if needed - found_blocks(m) + no_longer_free(m) > s.free:
            note_blocked(m, r)
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
    """Allocate blocks for the running requests; True where one was preempted.

    anyone who runs had a place in the budget when the next one entered, and needs no more of it
    since: so decoding requests have their token whatever the prompts before them take, and only the
    last prompt may be cut short by the budget.
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
        slot.blocks = max(
            slot.blocks, blocks_of(slot.computed + lists.take[f], block) + slot.windows
        )
    return False


@part()
def continue_in_turn(m):
    """Allocate blocks one request at a time, where they run out; True where one was preempted."""
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


continue_with_less = two_forms(
    "ranks",
    lambda m: continue_in_turn(m),
    lambda m: continue_by_rank(m) if ranked(m) else continue_in_turn(m),
)
"""The same where blocks run out; whether anyone was pre-empted."""


@part()
def preempt_last(m, scheduled):
    """Free all blocks of the last running request, when the first ones are scheduled; it waits
    again in front of all, or where it ranks.
    """
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
