"""The routers of ``simulator/router.py`` and the controller of ``autoscaler.py``, compiled
unchanged, and the one loop of a fleet.

Ties at one instant: what ends in engines, then failures and returns, then the controller's look,
then requests.
"""

from __future__ import annotations

from typing import Any

from tonnage.results.requests import FAILED
from tonnage.simulator import autoscaler, router
from tonnage.simulator.autoscaler import NO_LOOK, look, next_look, place_fails
from tonnage.simulator.changes import DRAINS
from tonnage.simulator.kernel.arrivals import submit_routed
from tonnage.simulator.kernel.compiler import advance_at, called, jitable, part
from tonnage.simulator.kernel.lockstep import next_event, watch
from tonnage.simulator.kernel.members import (
    deliver,
    first_engine,
    first_of,
    member,
    push,
    put_event,
    write_ranks,
)
from tonnage.simulator.kernel.memory import IN_A_FLEET, NEVER, NOBODY
from tonnage.simulator.router import ROUTERS, Request

# An engine that fails or is released, compiled: what it had is taken from it, and it is empty as at
# time 0.


@called()
def take_away(f, i, at):
    """Advance the engine to an instant step by step, and note in ``Fleet.again`` who has not ended;
    how many.

    First running requests, in the order in which they entered, then the queue, then those on their
    way.
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


_controller = [
    autoscaler.wake_and_release,
    autoscaler.asked_for,
    autoscaler.scale_up,
    autoscaler.scale_down,
    look,
    next_look,
    place_fails,
]
_functions: list[Any] = [
    router.mixed,
    router.draw,
    router.nth_available,
    router.least,
    *ROUTERS.values(),
    *_controller,
]
for _function in _functions:
    jitable()(_function)

CODES = {name: code for code, name in enumerate(ROUTERS)}
SEES_TOKENS = frozenset({"least-tokens", "least-kv"})
"""Routers by what changes with every step of an engine; the others see requests, which come and
end."""


def _one_of(code: int, this: Any, rest: Any) -> Any:
    """Put one more router before the others."""

    @part()
    def choose(router, view, request, memory):
        if router == code:
            return this(view, request, memory)
        return rest(router, view, request, memory)

    return choose


@part()
def _none(router, view, request, memory):
    return -1


choose = _none
for _code, _router in reversed(list(enumerate(ROUTERS.values()))):
    choose = _one_of(_code, _router, choose)


@called()
def go_on(f, i, until):
    """Advance the ``i``-th engine, as far as a router can tell, and note its next event."""
    m = member(f, i)
    watch(m, until)
    advance_at(f.loop, m, until, IN_A_FLEET)
    put_event(f, first_of(f, i), next_event(m, until))


@part()
def send(f, i, r):
    """Send the request of a row to the ``i``-th engine."""
    submit_routed(member(f, i), r)
    f.watch.requests[i] += 1
    f.watch.tokens[i] += f.rows.isl[r] + f.rows.osl[r]


@part()
def see_all(f, view, at):
    """Advance every engine, step by step, to see its tokens and blocks."""
    for i in range(f.cfg.size):
        go_on(f, i, at)
        view.kv_used[i] = (f.cfg[i].kv_blocks - f.state[i].free) / max(f.cfg[i].kv_blocks, 1)


@called()
def go_to(f, view, router, at):
    """Advance the engines to an instant as far as the router can tell."""
    while f.events[1] <= at:
        go_on(f, first_engine(f), at)
    if router.closely > 0:
        see_all(f, view, at)
    deliver(f.watch, at)


@called()
def route_one(f, view, memory, router, r, at):
    """Route the request of a row at an instant; it is lost where no instance is available."""
    rows = f.rows
    go_to(f, view, router, at)
    i = choose(
        router.code,
        view,
        Request(r, router.sessions[r] if router.sessions.size > 0 else -1, rows.isl[r]),
        memory,
    )
    router.chosen[r] = i
    if i < 0:
        rows.status[r] = FAILED
        return
    rows.sent[r] = at
    send(f, i, r)
    go_on(f, i, at)


@called()
def happen(f, view, memory, router, until):
    """Failures, returns and looks of the controller up to an instant, in the order of time."""
    outages, counters = router.outages, router.told
    while True:
        outage = outages.at[counters[0]] if counters[0] < outages.at.size else NEVER
        looks = next_look(router.scaler)
        if looks == NO_LOOK or outage <= looks:
            if outage > until:
                break
            fail_or_return(f, view, memory, router, outage)
        elif looks > until:
            break
        else:
            go_to(f, view, router, looks)
            look(router.scaler, f.watch.requests, view.available, looks)
            for i in range(f.cfg.size):
                if router.scaler.released[i] > 0:
                    router.scaler.released[i] = 0
                    take_away(f, i, looks)
                    clear(f, i)


@called()
def fail_or_return(f, view, memory, router, at):
    """Let the next instance fail, and settle its requests in flight, or let the next one return."""
    counters, outages, status = router.told, router.outages, f.rows.status
    i = outages.instance[counters[0]]
    back = outages.back[counters[0]]
    counters[0] += 1
    if back == DRAINS:
        view.available[i] = 0
        return
    if back > 0:
        if router.scaler.counts.size > 0:
            router.scaler.broken[i] = 0
        else:
            view.available[i] = 1
        return
    counters[2] += place_fails(router.scaler, i) if router.scaler.counts.size > 0 else 1
    go_to(f, view, router, at)
    view.available[i] = 0
    count = take_away(f, i, at)
    clear(f, i)
    for k in range(count):
        r = f.again[k]
        if router.retry == 2 or (router.retry == 1 and f.rows.generated[r] == 0):
            counters[1] += 1
            f.rows.generated[r] = 0
            f.rows.first[r] = -1
            f.rows.preemptions[r] = 0
            route_one(f, view, memory, router, r, at)
        else:
            status[r] = FAILED


@part()
def route(f, view, memory, router, until):
    """Route the requests up to that row: ``router`` has the router's code, whether it sees every
    step, and sessions; who got which.
    """
    if f.place[0] == 0:
        write_ranks(f)
    while f.place[0] < until and f.stop[0] == 0:
        r = f.place[0]
        at = f.rows.sent[r]
        happen(f, view, memory, router, at)
        if router.scaler.counts.size > 0:
            router.scaler.counts[1] += 1
        route_one(f, view, memory, router, r, at)
        f.place[0] += 1


@part()
def drain(f):
    """Run until every request has ended, with no more arrivals."""
    for i in range(f.cfg.size):
        m = member(f, i)
        watch(m, NEVER)
        advance_at(f.loop, m, NEVER, NOBODY)
