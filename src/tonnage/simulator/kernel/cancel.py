"""A request that nobody wants any more, compiled: it gives up its place in a list, its slot and its blocks at once."""

from __future__ import annotations

from tonnage.simulator.kernel.blocks import held
from tonnage.simulator.kernel.compiler import part
from tonnage.simulator.kernel.decoding import leave_decoding
from tonnage.simulator.kernel.memory import NEVER, UNDER_WAY
from tonnage.simulator.kernel.queue import give_back, leave_queue
from tonnage.simulator.request import CANCELLED


@part()
def cancel(m, r):
    """Let go of a request that the engine has received and that has not ended; a step that is under way lasts as long as before."""
    s, lists = m.state, m.lists
    k = 0
    while k < s.running and m.slots[lists.running[k]].row != r:
        k += 1
    if k == s.running:
        leave_queue(m, r)
    else:
        i = lists.running[k]
        slot = m.slots[i]
        if lists.ends[k] < NEVER:
            leave_decoding(m, k)
            grown = 1 if s.phase == UNDER_WAY and m.step.alone == 0 else 0
            s.free += held(m, slot, slot.generated + grown)
        else:
            stop_filling(m, i)
            s.free += slot.blocks
        m.rows.generated[r] = slot.generated
        s.running -= 1
        for j in range(k, s.running):
            lists.running[j] = lists.running[j + 1]
            lists.ends[j] = lists.ends[j + 1]
            lists.crosses[j] = lists.crosses[j + 1]
        give_back(m, i)
        s.full = 0
    m.rows.status[r] = CANCELLED


@part()
def stop_filling(m, i):
    """Take a request from those that compute their prompts."""
    s, filling, take = m.state, m.lists.filling, m.lists.take
    kept = 0
    for f in range(s.filling):
        if filling[f] != i:
            filling[kept], take[kept] = filling[f], take[f]
            kept += 1
    s.filling = kept
