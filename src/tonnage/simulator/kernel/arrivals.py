"""How requests come to an engine, compiled: sent, received, rejected; and the clients of a closed loop, who answer its ends.

The engine knows of its clients only that it calls ``answer`` when a request has ended. With none (``concurrency`` 0) whoever drives
the engine submits requests from outside.
"""

from __future__ import annotations

from tonnage.results.requests import COMPLETED, REJECTED, UNFINISHED
from tonnage.simulator.kernel.blocks import windows_of
from tonnage.simulator.kernel.inlined import part, small
from tonnage.simulator.kernel.memory import NEVER
from tonnage.simulator.kernel.schedulers import never_fits


@small()
def submit(m, sent):
    """Put the next request on its way to the engine; rows are sent in the order of their times."""
    s = m.state
    if s.arrived == s.submitted:
        s.next_arrival = sent + m.cfg.frontend
    m.rows.sent[s.submitted] = sent
    s.submitted += 1


@small()
def answer(m, free_at):
    """A client that became free at ``free_at`` sends the next request of the closed loop, if there is one."""
    clients = m.clients
    if clients.concurrency > 0 and m.state.submitted < m.rows.sent.size:
        clients.program_free = max(free_at, clients.program_free) + clients.turnaround
        submit(m, clients.program_free)


@small()
def receive(m, r):
    """A request with nothing done."""
    rows = m.rows
    rows.status[r] = UNFINISHED
    rows.first[r] = -1
    rows.last[r] = -1
    rows.first_step[r] = -1
    rows.last_step[r] = -1
    rows.preemptions[r] = 0
    rows.generated[r] = 0
    rows.computed[r] = 0
    rows.blocks[r] = 0
    rows.windows[r] = windows_of(m.cfg, rows.isl[r] + rows.osl[r] + m.cfg.drafted)


@part()
def take_arrivals(m, until):
    """Queue what reaches the engine up to and including ``until``, and reject what never fits; not between two looks."""
    s, rows, queue = m.state, m.rows, m.lists.queue
    while s.next_arrival <= until and s.unheard == 0:
        r, arrival = s.arrived, s.next_arrival
        s.arrived += 1
        s.next_arrival = rows.sent[s.arrived] + m.cfg.frontend if s.arrived < s.submitted else NEVER
        receive(m, r)
        if never_fits(m.cfg, rows.isl[r], rows.osl[r]):
            rows.status[r] = REJECTED
            if m.cfg.reporting > 0:
                tell(m, r, 0, REJECTED)
            answer(m, arrival)
        else:
            queue[s.tail & (queue.size - 1)] = r
            s.tail += 1


@small()
def tell(m, r, tokens, status):
    """Write to the log what happened to a request now: so many tokens, and the status after them."""
    i = m.state.logged
    m.log.row[i] = r
    m.log.at[i] = m.state.now if tokens == 0 else m.state.seen
    m.log.tokens[i] = tokens
    m.log.status[i] = status
    m.state.logged += 1


@part()
def tell_tokens(m):
    """Write to the log who has how many tokens of the step that ended, in the order in which they entered."""
    rows = m.rows
    for i in range(m.state.running):
        r = m.lists.running[i]
        if rows.until[r] < NEVER:
            new = m.state.round - rows.base[r] - rows.told[r]
            if new > 0:
                rows.told[r] += new
                tell(m, r, new, COMPLETED if rows.told[r] == rows.osl[r] else UNFINISHED)
