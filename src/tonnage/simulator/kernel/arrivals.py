"""How requests come to an engine, compiled: sent, received, rejected; and the clients of a closed
loop, who answer its ends.

The engine knows of its clients only that it calls ``answer`` when a request has ended. With none
(``concurrency`` 0) anyone who drives the engine submits requests from outside.
"""

from __future__ import annotations

from tonnage.results.requests import COMPLETED, REJECTED, UNFINISHED
from tonnage.simulator.kernel.compiler import part, two_forms
from tonnage.simulator.kernel.front_end import enter, reaches
from tonnage.simulator.kernel.memory import NEVER
from tonnage.simulator.kernel.ranks import queue
from tonnage.simulator.kernel.schedulers import never_fits
from tonnage.simulator.kernel.shared import first_of, follow, next_row, put_on_its_way, take_first


@part()
def submit(m, r, sent):
    """Put the request of a row on its way to the engine; without sessions rows are sent in the
    order of their times.
    """
    s = m.state
    m.rows.sent[r] = sent
    if s.coming == 0:
        s.next_arrival = reaches(m, r)
    put_on_its_way(m, r)
    s.coming += 1


@part()
def submit_routed(m, r):
    """Put the request of that row on its way to the engine, behind earlier requests of the
    router.
    """
    s = m.state
    if s.coming == 0:
        s.arrived = r
        s.next_arrival = reaches(m, r)
    else:
        m.rows.next[s.last_coming] = r
    s.last_coming = r
    s.coming += 1


@part()
def answer(m, r, free_at):
    """The client of a request that became free at ``free_at`` sends the next one of its session or
    of the loop, not before it is due.
    """
    s = m.state
    if follow(m, r, free_at) and m.cfg.concurrency > 0:
        following = next_row(m)
        if following < m.rows.sent.size:
            s.program_free = max(free_at, s.program_free) + m.cfg.turnaround
            submit(m, following, max(s.program_free, m.rows.sent[following]))


@part()
def take_coming(m):
    """Take the first request on its way, and return its row."""
    s = m.state
    r = first_of(m)
    enter(m, r)
    s.coming -= 1
    s.arrived = take_first(m, r)
    s.next_arrival = NEVER
    if s.coming > 0:
        s.next_arrival = reaches(m, s.arrived)
    return r


@part()
def take_arrivals(m, until):
    """Queue what reaches the engine up to and including ``until``, and reject what never fits; not
    between two looks.
    """
    s, rows = m.state, m.rows
    while s.next_arrival <= until and s.unheard == 0:
        arrival = s.next_arrival
        r = take_coming(m)
        if never_fits(m.cfg, rows.isl[r], rows.osl[r]):
            rows.status[r] = REJECTED
            if m.cfg.routed > 0:
                m.watch.requests[m.cfg.place] -= 1
                m.watch.tokens[m.cfg.place] -= rows.isl[r] + rows.osl[r]
            if m.cfg.reporting > 0:
                tell(m, r, 0, REJECTED)
            answer(m, r, arrival)
        else:
            queue(m, r)


@part()
def tell(m, r, tokens, status):
    """Log what happened to a request now: its ``tokens``, and the ``status`` after them."""
    i = m.state.logged
    m.log.row[i] = r
    m.log.at[i] = m.state.now if tokens == 0 else m.state.seen
    m.log.tokens[i] = tokens
    m.log.status[i] = status
    m.state.logged += 1


@part()
def tell_tokens(m):
    """Write to the log who has how many tokens of the step that ended, in the order in which they
    entered.
    """
    for k in range(m.state.running):
        if m.lists.ends[k] < NEVER:
            slot = m.slots[m.lists.running[k]]
            new = m.state.round - slot.base - slot.told
            if new > 0:
                slot.told += new
                tell(m, slot.row, new, COMPLETED if slot.told == slot.osl else UNFINISHED)


# Requests that cannot have their first token in time any more, compiled: they are rejected before a
# step is put together.


@part()
def shed_late(m):
    """Reject who waits, has had no token, and would have its first one too late in a step with its
    prompt alone that began now.
    """
    s, rows, ranks = m.state, m.rows, m.ranks
    if ranks.note[0].shed == 0 or s.now <= ranks.note[0].soonest:
        return
    before, r, remaining, soonest = -1, s.head, s.queued, NEVER
    while remaining > 0:
        following = rows.next[r]
        remaining -= 1
        if rows.generated[r] == 0 and s.now > ranks.latest[r]:
            if before < 0:
                s.head = following
            else:
                rows.next[before] = following
            if remaining == 0:
                s.tail = before
            s.queued -= 1
            rows.status[r] = REJECTED
            ranks.waits[r] = 0
            answer(m, r, s.now)
        else:
            if rows.generated[r] == 0:
                soonest = min(soonest, ranks.latest[r])
            before = r
        r = following
    ranks.note[0].soonest = soonest


shed = two_forms("ranks", lambda m: None, lambda m: shed_late(m))
"""``shed_late`` of an engine that looks at limits."""
