"""The routers of ``simulator/router.py``, compiled as they stand, and the one loop of a fleet behind one of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.extending import register_jitable

from tonnage.simulator import router
from tonnage.simulator.kernel.arrivals import submit_routed
from tonnage.simulator.kernel.driven import drive
from tonnage.simulator.kernel.inlined import called, small
from tonnage.simulator.kernel.members import first_engine, member, next_event, put_event
from tonnage.simulator.kernel.memory import IN_A_FLEET, NEVER, NOBODY
from tonnage.simulator.kernel.watch import deliver
from tonnage.simulator.router import ROUTERS, Request

_functions: list[Any] = [router.mixed, router.draw, router.nth_available, router.least, *ROUTERS.values()]
for _function in _functions:
    register_jitable(_function)

CODES = {name: code for code, name in enumerate(ROUTERS)}
SEES_TOKENS = frozenset({"least-tokens", "least-kv"})
"""Routers by what changes with every step of an engine; the others see requests, which come and end."""


def _one_of(code: int, this: Any, others: Any) -> Any:
    """One more router before the others."""

    @small()
    def choose(asked, view, request, memory):
        if asked == code:
            return this(view, request, memory)
        return others(asked, view, request, memory)

    return choose


@small()
def _none(asked, view, request, memory):
    return -1


choose = _none
for _code, _router in reversed(list(enumerate(ROUTERS.values()))):
    choose = _one_of(_code, _router, choose)


@called()
def go_on(f, i, until):
    """Advance the ``i``-th engine, as far as a router can tell, and note its next event."""
    m = member(f, i)
    m.state.watched = until
    drive(m, until, np.int64(IN_A_FLEET))
    put_event(f, i, next_event(m, until))


@small()
def send(f, i, r):
    """Send the request of a row to the ``i``-th engine."""
    submit_routed(member(f, i), r)
    f.watch.requests[i] += 1
    f.watch.tokens[i] += f.rows.isl[r] + f.rows.osl[r]


@small()
def see_all(f, view, at):
    """Advance every engine, step by step, to see its tokens and blocks."""
    for i in range(f.cfg.size):
        go_on(f, i, at)
        view.kv_used[i] = (f.cfg[i].kv_blocks - f.state[i].free) / max(f.cfg[i].kv_blocks, 1)


@small()
def route(f, view, memory, asked, until):
    """Route the requests up to that row: ``asked`` has the router's code, whether it sees every step, and sessions; who got which.

    False where no instance was available.
    """
    rows = f.rows
    while f.place[0] < until and f.stop[0] == 0:
        r = f.place[0]
        at = rows.sent[r]
        while f.events[1] <= at:
            go_on(f, first_engine(f), at)
        if asked.closely > 0:
            see_all(f, view, at)
        deliver(f.watch, at)
        i = choose(asked.code, view, Request(r, asked.sessions[r] if asked.sessions.size > 0 else -1, rows.isl[r]), memory)
        if i < 0:
            return False
        send(f, i, r)
        go_on(f, i, at)
        asked.chosen[r] = i
        f.place[0] += 1
    return True


@small()
def drain(f):
    """All that is left to do, with nobody coming any more."""
    for i in range(f.cfg.size):
        m = member(f, i)
        m.state.watched = NEVER
        drive(m, np.int64(NEVER), np.int64(NOBODY))
