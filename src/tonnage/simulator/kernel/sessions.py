"""Requests of which one follows from the other, compiled: a heap of those on their way, by the time
at which they are sent.
"""

from __future__ import annotations

from tonnage.simulator.kernel.compiler import called, part
from tonnage.simulator.kernel.front_end import reaches
from tonnage.simulator.kernel.memory import NEVER


@called()
def push(m, r):
    """Add the row, of which it is known when it is sent, to those on their way; ``state.coming``
    does not count it yet.
    """
    at, row, sent, i = m.cache.at, m.cache.row, m.rows.sent[r], m.state.coming
    while i > 0:
        above = (i - 1) // 2
        if at[above] < sent or (at[above] == sent and row[above] < r):
            break
        at[i], row[i] = at[above], row[above]
        i = above
    at[i], row[i] = sent, r
    m.state.next_arrival = reaches(m, row[0])


@called()
def pop(m):
    """Take the first one off the heap, which has one entry more than ``state.coming`` says; the row
    of the next.
    """
    at, row, last, i = m.cache.at, m.cache.row, m.state.coming, 0
    sent, r = at[last], row[last]
    while 2 * i + 1 < last:
        child = 2 * i + 1
        if child + 1 < last and (
            at[child + 1] < at[child]
            or (at[child + 1] == at[child] and row[child + 1] < row[child])
        ):
            child += 1
        if sent < at[child] or (sent == at[child] and r < row[child]):
            break
        at[i], row[i] = at[child], row[child]
        i = child
    at[i], row[i] = sent, r
    return row[0]


@part()
def follow(m, r, free_at):
    """Send the requests that waited for this one alone, or for it last, their pauses after its end;
    True where its session is over.
    """
    c = m.cache
    for k in range(c.followers[r], c.followers[r + 1]):
        row = c.waiting[k]
        c.waits[row] -= 1
        c.ready[row] = max(c.ready[row], free_at)
        if c.waits[row] == 0:
            m.rows.sent[row] = c.ready[row] + c.pause[row]
            push(m, row)
            m.state.coming += 1
    session = c.session[r]
    c.left[session] -= 1
    return c.left[session] == 0


@part()
def next_row(m):
    """The first turn that a client of a closed loop sends next."""
    note, firsts = m.cache.note, m.cache.firsts
    if note.begun == firsts.size:
        return NEVER
    note.begun += 1
    return firsts[note.begun - 1]
