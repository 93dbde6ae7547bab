"""The requests of sessions: when each session begins, and which turns of it a run has."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from tonnage.errors import InputError, option
from tonnage.spec.sessions import Drawn, Sessions, contents_of, draw
from tonnage.spec.workload import FAR_PS, ClosedLoop, OpenLoop, Trace, Workload, unit_gaps
from tonnage.units import LONGEST_S, PS_PER_S, to_ps

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_ROWS = 20_000_000
"""Requests that are drawn at most for the sessions of a run."""


def session_trace(workload: Workload, asked: Sessions, seed: int) -> Trace:
    """The requests of a workload's sessions.

    In an open loop sessions begin at a rate that makes all their turns together the requested rate, and have done so before the
    run begins, so that its first request may be a later turn, whose beginning no cache has yet. The run has the requests that would come
    first if every answer took no time. In a closed loop each client holds one session after another.

    Raises:
        InputError: pauses so long that the sessions which are under way at once are too many to draw, or recorded arrivals.
    """
    streams = [np.random.default_rng(s) for s in np.random.SeedSequence([seed, 2]).spawn(7)]
    if isinstance(workload.arrivals, OpenLoop):
        found, due = _open(workload, workload.arrivals, asked, streams)
        clients, turnaround_ps = 0, 0
    elif isinstance(workload.arrivals, ClosedLoop):
        count = math.ceil(1.2 * workload.requests / asked.requests) + 20
        found = draw(asked, count, workload.isl, workload.osl, streams)
        found = found.rows(np.arange(min(workload.requests, len(found.isl))))
        due = np.full(len(found.isl), -1)
        clients, turnaround_ps = workload.arrivals.concurrency, to_ps(workload.arrivals.turnaround_s)
    else:
        raise InputError(f"{option('turns')}, {option('shared_prefix')}: a recorded trace has its own; leave them out")
    contents = contents_of(found, asked.prefix_tokens)
    isl, osl, pauses = found.isl, found.osl, None if asked.single else found.pause_ps
    return Trace(
        due_ps=due, isl=isl, osl=osl, concurrency=clients, turnaround_ps=turnaround_ps, seed=seed, contents=contents, pause_ps=pauses
    )


def _open(workload: Workload, arrivals: OpenLoop, asked: Sessions, streams: list[np.random.Generator]) -> tuple[Drawn, NDArray[np.int64]]:
    """The requests of an open loop, and when first turns are due."""
    each, turns = asked.requests, max(asked.turns.longest, 1)
    longest_pause = (4 if asked.think.exponential else 1) * asked.think.mean_s
    lasts = turns * longest_pause + turns * asked.tool_calls * (4 if asked.tool.exponential else 1) * asked.tool.mean_s
    under_way = lasts * arrivals.rate / each
    count = math.ceil(1.2 * workload.requests / each + min(under_way, MOST_ROWS)) + 20
    if not count * each <= MOST_ROWS:
        said = f"{under_way:,.0f} sessions are under way at once; ask for a lower rate, fewer turns or shorter pauses"
        raise InputError(f"{option('think_time')}: at {arrivals.rate:g} requests a second {said}")
    found = draw(asked, count, workload.isl, workload.osl, streams)
    begins = (unit_gaps(arrivals, count, streams[6]) * min(PS_PER_S * each / arrivals.rate, FAR_PS)).cumsum() - lasts * PS_PER_S
    pauses, first = np.maximum(found.pause_ps, 0).astype(np.float64).cumsum(), found.pause_ps < 0
    due = np.rint(begins[found.session] + pauses - pauses[first][found.session])
    coming = np.flatnonzero(due >= 0)
    chosen = np.sort(coming[np.argsort(due[coming], kind="stable")][: workload.requests])
    if len(chosen) and due[chosen].max() > LONGEST_S * PS_PER_S:
        raise workload.too_long(arrivals.rate)
    found, due = found.rows(chosen), due[chosen]
    places = np.flatnonzero(found.pause_ps < 0)
    order = np.argsort(np.repeat(due[places], np.diff(np.append(places, len(due)))), kind="stable")
    ordered = Drawn(*(column[order] for column in found))
    return ordered, np.where(ordered.pause_ps < 0, due[order], -1).astype(np.int64)
