"""A request that nobody wants any more, compiled: it gives up its place in a list, its slot and its blocks at once."""

from __future__ import annotations

from tonnage.simulator.happened import CANCELLED
from tonnage.simulator.kernel.blocks import held
from tonnage.simulator.kernel.decoding import leave_decoding
from tonnage.simulator.kernel.inlined import called, part
from tonnage.simulator.kernel.memory import NEVER, UNDER_WAY


@called()
def cancel(m, r):
    """Let go of a request that the engine has received and that has not ended; a step that is under way lasts as long as before."""
    s, rows, lists = m.state, m.rows, m.lists
    if removed(lists.running, s.running, r):
        s.running -= 1
        s.full = 0
        if rows.until[r] < NEVER:
            leave_decoding(m, r)
            grown = 1 if s.phase == UNDER_WAY and m.step.alone == 0 else 0
            s.free += held(m, r, rows.generated[r] + grown)
        else:
            stop_filling(m, r)
            s.free += rows.blocks[r]
    elif removed(lists.stack, s.stacked, r):
        s.stacked -= 1
    else:
        leave_queue(m, r)
    rows.blocks[r] = 0
    rows.status[r] = CANCELLED


@part()
def removed(entries, count, r):
    """Whether the request was among the first so many, and is not any more."""
    kept = 0
    for i in range(count):
        if entries[i] != r:
            entries[kept] = entries[i]
            kept += 1
    return kept < count


@part()
def stop_filling(m, r):
    """Take a request from those that compute their prompts."""
    s, filling, take = m.state, m.lists.filling, m.lists.take
    kept = 0
    for i in range(s.filling):
        if filling[i] != r:
            filling[kept], take[kept] = filling[i], take[i]
            kept += 1
    s.filling = kept


@part()
def leave_queue(m, r):
    """Take a request from the queue."""
    s, queue = m.state, m.lists.queue
    kept, mask = s.head, queue.size - 1
    for i in range(s.head, s.tail):
        if queue[i & mask] != r:
            queue[kept & mask] = queue[i & mask]
            kept += 1
    s.tail = kept
