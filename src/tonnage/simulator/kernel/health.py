"""An engine that fails or is released, compiled: what it had is taken from it, and it is empty as at time 0."""

from __future__ import annotations

from tonnage.simulator.kernel.compiler import advance_at, called
from tonnage.simulator.kernel.members import member, push, put_event
from tonnage.simulator.kernel.memory import NEVER, NOBODY


@called()
def take_away(f, i, at):
    """Advance the engine to an instant step by step, and note in ``Fleet.again`` who has not ended; how many.

    First running requests, in the order in which they entered, then the queue, then those on their way.
    """
    m = member(f, i)
    leaps = m.cfg.leaps
    m.cfg.leaps = 0
    m.state.watched = at
    advance_at(f.loop, m, at, NOBODY)
    m.cfg.leaps = leaps
    s, count = m.state, 0
    for k in range(s.running):
        f.again[count] = m.slots[m.lists.running[k]].row
        count += 1
    r = s.head
    for _ in range(s.queued):
        f.again[count] = r
        count += 1
        r = f.rows.next[r]
    r = s.arrived
    for _ in range(s.coming):
        f.again[count] = r
        count += 1
        r = f.rows.next[r]
    return count


@called()
def clear(f, i):
    """The engine is as at time 0, and the router has forgotten what it had sent there."""
    f.state[i] = f.idle[i]
    for k in range(f.cfg[i].slots):
        f.lists.spare[i, k] = f.cfg[i].slots - 1 - k
    tallies, watch = f.tallies, f.watch
    tallies.positions[i, :] = 0
    tallies.moved[i, :] = 0
    tallies.phases[i, :] = 0
    watch.requests[i] = 0
    watch.tokens[i] = 0
    entries = watch.under_way[0]
    watch.under_way[0] = 0
    for k in range(entries):
        if watch.late[k, 1] != i:
            push(watch, watch.late[k, 0], watch.late[k, 1], watch.late[k, 2], watch.late[k, 3])
    put_event(f, i, NEVER)
