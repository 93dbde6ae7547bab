"""The queue of an engine, compiled: requests that wait, linked by ``Rows.next``, and slots for
running requests.
"""

from __future__ import annotations

from tonnage.simulator.kernel.blocks import windows_of
from tonnage.simulator.kernel.compiler import part, two_forms
from tonnage.simulator.kernel.memory import NEVER
from tonnage.units import PS_PER_NS


@part()
def push_back(m, r):
    """Put a request at the end of the queue."""
    s = m.state
    if s.queued == 0:
        s.head = r
    else:
        m.rows.next[s.tail] = r
    s.tail = r
    s.queued += 1


@part()
def push_sorted(m, r):
    """Put a request in front of the first with a longer prompt that has never lost its blocks."""
    s, rows = m.state, m.rows
    before, at, remaining = -1, s.head, s.queued
    while remaining > 0 and (rows.preemptions[at] > 0 or rows.isl[at] <= rows.isl[r]):
        before, at, remaining = at, rows.next[at], remaining - 1
    if remaining == 0:
        push_back(m, r)
        return
    rows.next[r] = at
    if before < 0:
        s.head = r
    else:
        rows.next[before] = r
    s.queued += 1


@part()
def push(m, r):
    """Put a request that arrives into the queue of an engine that looks at neither classes nor
    deadlines.
    """
    if m.cfg.shortest > 0:
        push_sorted(m, r)
    else:
        push_back(m, r)


@part()
def push_front(m, r):
    """Put a request in front of the queue."""
    s = m.state
    if s.queued == 0:
        s.tail = r
    else:
        m.rows.next[r] = s.head
    s.head = r
    s.queued += 1


@part()
def pop_front(m):
    """Take the first request out of the queue."""
    s = m.state
    s.queued -= 1
    if s.queued > 0:
        s.head = m.rows.next[s.head]


@part()
def leave_queue(m, r):
    """Take a request out of the queue, wherever it is."""
    s, following = m.state, m.rows.next
    if s.head == r:
        pop_front(m)
        return
    before = s.head
    while following[before] != r:
        before = following[before]
    s.queued -= 1
    if s.tail == r:
        s.tail = before
    else:
        following[before] = following[r]


@part()
def received(m, r):
    """Tokens of a waiting request that came with their KV cache: its prompt, if another engine
    computed it and it was never lost.
    """
    return m.rows.isl[r] if m.rows.generated[r] > 0 and m.rows.preemptions[r] == 0 else 0


@part()
def wait_no_more(m, r):
    """Note that a request has left a queue that goes by rank."""
    m.ranks.waits[r] = 0


entered = two_forms("ranks", lambda m, r: None, lambda m, r: wait_no_more(m, r))
"""``wait_no_more`` of an engine that looks at classes or deadlines."""


@part()
def enter(m):
    """Give the first request of the queue a slot, in which it computes its prompt, and return the
    slot.
    """
    s, rows, lists = m.state, m.rows, m.lists
    r = s.head
    pop_front(m)
    entered(m, r)
    s.spare -= 1
    i = lists.spare[s.spare]
    slot = m.slots[i]
    if rows.preemptions[r] == 0:
        rows.admitted[r] = s.now // PS_PER_NS
    slot.row = r
    slot.isl = rows.isl[r]
    slot.osl = rows.osl[r]
    slot.generated = rows.generated[r]
    slot.told = rows.generated[r]
    slot.last = rows.last[r]
    slot.computed = received(m, r)
    slot.blocks = 0
    slot.windows = windows_of(m.cfg, slot.isl + slot.osl + m.cfg.drafted)
    lists.running[s.running] = i
    lists.ends[s.running] = NEVER
    lists.crosses[s.running] = NEVER
    s.running += 1
    lists.filling[s.filling] = i
    s.filling += 1
    return i


@part()
def give_back(m, i):
    """Nobody has the slot any more."""
    m.lists.spare[m.state.spare] = i
    m.state.spare += 1


@part()
def lose(m, i, last):
    """A request that runs loses slot and cache; what it has made is kept in its row, and its place
    in the lists is left to others.
    """
    rows, slot = m.rows, m.slots[i]
    r = slot.row
    rows.generated[r] = slot.generated
    rows.last[r] = last
    rows.preemptions[r] += 1
    give_back(m, i)
    return r
