"""The engines of a fleet side by side: each array has a row for every engine, and a machine is made
of the rows of one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from numba import njit

from tonnage.simulator.kernel.compiler import by_reference, part, two_forms, whole, write_at
from tonnage.simulator.kernel.memory import (
    CLOSELY,
    Group,
    Lists,
    Log,
    Machine,
    Prices,
    Rows,
    Tallies,
    Watch,
)
from tonnage.simulator.kernel.ranks import Ranks

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Fleet(NamedTuple):
    """Engines behind a router."""

    # cfg, state, step, slots: records, one or a row of them for each engine
    cfg: Any
    state: Any
    step: Any
    slots: Any
    rows: Rows  # the requests of all
    lists: Lists  # arrays of two dimensions, a row for each engine
    prices: Prices  # a row for each kind of engine, which is ``cfg.kind``
    # ``positions``, ``moved`` and ``phases`` have a row for each engine; the histogram of gaps is
    # that of all
    tallies: Tallies
    log: Log  # without entries
    watch: Watch  # what the router sees
    # a tournament of instants. Entry 1 is the earliest, the winner of 2k and 2k + 1 is k, and the
    # second half has the instant for each engine before which no request ends there.
    events: NDArray[np.int64]
    place: NDArray[np.int64]  # the row of the request that comes next, in an array of one
    idle: Any  # the state of each engine at time 0; without entries where none fails or is released
    # room for the rows that an engine had when it failed; without entries likewise
    again: NDArray[np.int64]
    stop: NDArray[np.int64]  # as that of a ``Machine``
    loop: int  # address of the compiled loop of one engine, or of attention ranks in lockstep
    # the attention ranks of each instance, which are engines one after another; None where an
    # engine is an instance
    groups: Any = None
    # a ``Ranks`` whose ``note``, ``newest`` and ``given`` have a row for each engine; None where
    # requests are alike
    ranks: Any = None


class Groups(NamedTuple):
    """The attention ranks of instances: an array of one ``GROUP`` and a row of addresses for each
    instance, as in ``memory.Group``.
    """

    note: Any
    at: NDArray[np.int64]
    room: NDArray[np.int64]


@njit(inline="always")
def _group_of(f, i):
    """The group of the ``i``-th engine."""
    groups = f.groups
    instance = i // groups.at.shape[1]
    return Group(groups.note[instance], groups.at[instance], groups.room)


group_of = two_forms("groups", lambda f, i: None, lambda f, i: _group_of(f, i))
first_of = two_forms("groups", lambda f, i: i, lambda f, i: i - i % f.groups.at.shape[1])
"""The engine under which the events of an instance are noted: the first of its attention ranks."""


@njit(inline="always")
def _ranks_of(f, i):
    """The classes of the requests of the ``i``-th engine."""
    ranks = f.ranks
    return Ranks(
        ranks.note[i],
        ranks.priority,
        ranks.ttft,
        ranks.key,
        ranks.latest,
        ranks.waits,
        ranks.newest[i],
        ranks.given[i],
    )


ranks_of = two_forms("ranks", lambda f, i: None, lambda f, i: _ranks_of(f, i))


@part()
def _write_ranks(f):
    """Write all engines where the loop of their group finds them."""
    for i in range(f.cfg.size):
        write_at(f.groups.at[i // f.groups.at.shape[1], i % f.groups.at.shape[1]], member(f, i))


write_ranks = two_forms("groups", lambda f: None, lambda f: _write_ranks(f))


@njit(inline="always")
def member(f, i):
    """The ``i``-th engine."""
    lists, prices, tallies, kind = f.lists, f.prices, f.tallies, f.cfg[i].kind
    machine = Machine(
        f.cfg[i],
        f.state[i],
        f.step[i],
        f.slots[i],
        whole(f.rows),
        Lists(
            lists.running[i],
            lists.ends[i],
            lists.crosses[i],
            lists.filling[i],
            lists.take[i],
            lists.spare[i],
        ),
        Prices(prices.model[kind], prices.drafter[kind], prices.a[kind], prices.c[kind]),
        Tallies(
            tallies.gaps,
            tallies.edges,
            tallies.coarse,
            tallies.positions[i],
            tallies.moved[i],
            tallies.phases[i],
            tallies.steps,
        ),
        whole(f.log),
        whole(f.watch),
        f.stop,
        None,
        ranks_of(f, i),
        group_of(f, i),
    )
    return by_reference(machine)


@part()
def put_event(f, i, at):
    """Set the instant of the ``i``-th engine's next event."""
    events = f.events
    place = events.size // 2 + i
    events[place] = at
    while place > 1:
        place //= 2
        earliest = min(events[2 * place], events[2 * place + 1])
        if events[place] == earliest:
            break
        events[place] = earliest


@part()
def first_engine(f):
    """The engine of the earliest event."""
    events, place = f.events, 1
    while place < events.size // 2:
        place = 2 * place if events[2 * place] == events[place] else 2 * place + 1
    return place - events.size // 2


# What a router sees of its engines, compiled: what has come back, and a heap of what is on its way
# from the front ends to clients.


@part()
def book(m):
    """Take off what the last step ended and returned: now if clients have it already, else when
    they will.

    Tokens are kept up only where a router looks at them.
    """
    s, step, watch, place = m.state, m.step, m.watch, m.cfg.place
    if step.ended > 0 or (step.returned > 0 and m.cfg.routed == CLOSELY):
        if s.seen <= s.watched:
            watch.requests[place] -= step.ended
            watch.tokens[place] -= step.returned
        else:
            push(watch, s.seen, place, step.ended, step.returned)


@part()
def push(watch, at, place, ended, returned):
    """Add an entry to the heap."""
    late, i = watch.late, watch.under_way[0]
    watch.under_way[0] += 1
    while i > 0 and late[(i - 1) // 2, 0] > at:
        for j in range(4):
            late[i, j] = late[(i - 1) // 2, j]
        i = (i - 1) // 2
    late[i, 0], late[i, 1], late[i, 2], late[i, 3] = at, place, ended, returned


@part()
def pop(watch):
    """Take the first entry off the heap."""
    late = watch.late
    watch.under_way[0] -= 1
    last, i = watch.under_way[0], 0
    while 2 * i + 1 < last:
        child = 2 * i + 1
        if child + 1 < last and late[child + 1, 0] < late[child, 0]:
            child += 1
        if late[child, 0] >= late[last, 0]:
            break
        for j in range(4):
            late[i, j] = late[child, j]
        i = child
    for j in range(4):
        late[i, j] = late[last, j]


@part()
def deliver(watch, until):
    """Take off what clients have by now."""
    while watch.under_way[0] > 0 and watch.late[0, 0] <= until:
        place = watch.late[0, 1]
        watch.requests[place] -= watch.late[0, 2]
        watch.tokens[place] -= watch.late[0, 3]
        pop(watch)
