"""Classes and deadlines, compiled: where a request that comes, or has lost its blocks, goes in the
queue.

The loop has this for machines with ``Machine.ranks`` alone. Rows are in the order in which requests
are sent, so that of two requests of one class, or with one deadline, the lower row goes first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tonnage.simulator.kernel.compiler import part, two_forms
from tonnage.simulator.kernel.memory import NEVER, record_of
from tonnage.simulator.kernel.price import drafted_step_seconds, step_seconds, whole_ps
from tonnage.simulator.kernel.queue import push, push_back, push_front

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

BY_TIME, BY_CLASS, BY_DEADLINE = range(3)
"""Orders of a queue: as without ranks, by class, or by deadline."""

NOTE = record_of(
    "order",  # BY_TIME, BY_CLASS or BY_DEADLINE
    "shed",  # whether a request is rejected whose first token cannot come in time any more
    "sorted",  # whether the queue is always in order: SGLang puts retracted requests last
    "soonest",  # the lowest of ``Ranks.latest`` of waiting requests without a token, or less
)


class Ranks(NamedTuple):
    """The class and priority of an engine's requests, by row, in whole numbers of 64 bits."""

    note: Any  # an array of one record of the type ``NOTE``
    priority: NDArray[np.int64]  # the class, counted from 0; the lower, the sooner
    ttft: NDArray[np.int64]  # the limit on the time to first token in picoseconds, -1 for none
    # what orders the queue: the class or the deadline; known from the arrival on
    key: NDArray[np.int64]
    # the last instant at which a step of its prompt alone would be in time, NEVER without a limit;
    # likewise
    latest: NDArray[np.int64]
    waits: NDArray[np.int8]  # whether it is in the queue, in 8 bits
    # by class, the last that arrived, -1 at first: the next one of its class goes a little behind
    # it
    newest: NDArray[np.int64]
    # new tokens of each that runs, in the order in which they entered, while a step is put together
    # again
    given: NDArray[np.int64]


@part()
def ranked(m):
    """Whether requests go by class or deadline."""
    return m.ranks.note[0].order > BY_TIME


@part()
def goes_first(m, r, rival):
    """Whether a request ranks before another one."""
    key = m.ranks.key
    return key[r] < key[rival] or (key[r] == key[rival] and r < rival)


@part()
def price_alone(m, isl):
    """Picoseconds of a step that computes a prompt alone and whole."""
    model, drafter, cfg, tokens, pairs = (
        m.prices.model,
        m.prices.drafter,
        m.cfg,
        float(isl),
        float(isl * isl),
    )
    if cfg.drafted > 0:
        return whole_ps(
            drafted_step_seconds(
                model, drafter, float(cfg.drafted), float(cfg.passes), tokens, 1.0, 0.0, pairs, 0.0
            )
        )
    return whole_ps(step_seconds(model, tokens, 1.0, 0.0, pairs, 0.0))


@part()
def queue_new(m, r):
    """A request arrives: its rank and its limit are known from now on, and it waits."""
    ranks, note = m.ranks, m.ranks.note[0]
    deadline = NEVER if ranks.ttft[r] < 0 else m.rows.sent[r] + ranks.ttft[r]
    ranks.key[r] = deadline if note.order == BY_DEADLINE else ranks.priority[r]
    ranks.latest[r] = NEVER
    if note.shed > 0 and deadline < NEVER:
        ranks.latest[r] = (
            deadline - price_alone(m, m.rows.isl[r]) - m.cfg.stream_step - m.cfg.stream
        )
        note.soonest = min(note.soonest, ranks.latest[r])
    if ranked(m):
        push_by_rank(m, r, ranks.newest[ranks.priority[r]])
        ranks.newest[ranks.priority[r]] = r
    else:
        push(m, r)


@part()
def queue_lost(m, r):
    """Queue a preempted request again."""
    if m.rows.generated[r] == 0:
        m.ranks.note[0].soonest = min(m.ranks.note[0].soonest, m.ranks.latest[r])
    if ranked(m):
        push_by_rank(m, r, -1)
    else:
        push_front(m, r)


@part()
def push_by_rank(m, r, near):
    """Put a request in front of the first that ranks behind it.

    In a queue that is in order, that one is looked for from ``near`` on, if ``near`` waits and goes
    first: else each request that comes would pass all of a class that waits long.
    """
    s, following, ranks = m.state, m.rows.next, m.ranks
    ranks.waits[r] = 1
    if s.queued == 0 or (ranks.note[0].sorted > 0 and goes_first(m, s.tail, r)):
        push_back(m, r)
        return
    before, at = -1, s.head
    if ranks.note[0].sorted > 0 and near >= 0 and ranks.waits[near] > 0 and goes_first(m, near, r):
        before, at = near, following[near]
    while at != s.tail and goes_first(m, at, r):
        before, at = at, following[at]
    if goes_first(m, at, r):
        push_back(m, r)
        return
    following[r] = at
    if before < 0:
        s.head = r
    else:
        following[before] = r
    s.queued += 1


queue = two_forms("ranks", lambda m, r: push(m, r), lambda m, r: queue_new(m, r))
"""A request that arrives waits."""

queue_again = two_forms("ranks", lambda m, r: push_front(m, r), lambda m, r: queue_lost(m, r))
"""A request that has lost its blocks waits in front of all, or where it ranks."""
