"""vLLM's pre-emption by class or deadline, compiled; the rules are those of ``reference/vllm.py``, without a prefix cache and guesses.

Whoever the step leaves out because one before it was the last in rank, and had to go, waits a step for its next token. In the kernel
all who decode have a token in every round; so it counts as one that computes the last token of a prompt until it has it.
"""

from __future__ import annotations

from tonnage.simulator.kernel.blocks import growth, held
from tonnage.simulator.kernel.decoding import leave_decoding
from tonnage.simulator.kernel.inlined import part
from tonnage.simulator.kernel.memory import NEVER
from tonnage.simulator.kernel.prompts import chunk
from tonnage.simulator.kernel.queue import lose
from tonnage.simulator.kernel.ranks import goes_first, queue_again


@part()
def continue_by_rank(m):
    """Allocate for the running requests one by one where blocks run out; True, because someone is pre-empted."""
    s, lists, given, k, budget = m.state, m.lists, m.ranks.given, 0, m.cfg.max_tokens
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
                budget += given[last]
                k -= 1
                preempt(m, last, 1)
            else:
                preempt(m, last, 0)
        if not stays:
            break
        s.free -= more
        if not decodes:
            slot.blocks += more
        given[k] = new
        budget -= new
        k += 1
    list_filling(m, k)
    return True


@part()
def last_in_rank(m):
    """The place of the one that goes first of those that run: the lowest class or the latest deadline, and of these who was sent last."""
    last, running = 0, m.lists.running
    for k in range(1, m.state.running):
        if goes_first(m, m.slots[running[last]].row, m.slots[running[k]].row):
            last = k
    return last


@part()
def preempt(m, k, served):
    """Free all blocks of the ``k``-th that runs, with the one for its next token if it is ``served``; it waits again where it ranks."""
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
    """Who computes a prompt in the step, with how many tokens; those from the place ``served`` on have none, also if they decode."""
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
            m.rows.generated[slot.row] = slot.generated  # what ``settle`` notes of those who decode
            lists.ends[k] = NEVER
            lists.crosses[k] = NEVER
        if lists.ends[k] == NEVER:
            lists.filling[s.filling] = i
            lists.take[s.filling] = m.ranks.given[k] if k < served else 0
            s.filling += 1
