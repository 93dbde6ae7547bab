"""Recorded sessions on instances: so many of them at once on each, another one for each that is
over.

The load of an instance is a number of sessions; its rate is that number times the requests per
second of a session while it lasts, as recorded (``RecordedSessions.pace``). So a load of sessions
is one of the lattice, and what carries it is searched as for any other load. Sessions stay at their
instance, which is therefore simulated by itself. A run begins in the midst of sessions; its first
part, in which caches fill, does not count.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from tonnage.results.requests import COMPLETED, Requests, Turns
from tonnage.simulator.kernel import run_instance
from tonnage.simulator.spec import EngineSpec, pooled
from tonnage.units import PS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tonnage.spec.recorded_sessions import RecordedSessions
    from tonnage.spec.workload import Trace

FEWEST_SESSIONS = (1_500, 3_000, 9_000)
"""Fewest requests of a run of each length."""

ANSWERS = (30, 60, 150)
"""The same for each session that is held at once: about half a session of a coding agent, one, and
more than two."""

WARM = 0.2
"""Share of a run, in requests, that is left out before its middle part is taken."""

MOST_TOGETHER = 8
"""Most instances that are simulated of a fleet: each has its own sessions, and does what the others
do."""


def clients_at(recorded: RecordedSessions, rate: float) -> int:
    """Sessions at once that a rate stands for."""
    return max(1, round(rate / recorded.pace))


def session_requests(recorded: RecordedSessions, rate: float, length: int) -> int:
    """Requests of a run at a rate, one of few numbers so that runs share their draws."""
    least = max(FEWEST_SESSIONS[length], ANSWERS[length] * clients_at(recorded, rate))
    return FEWEST_SESSIONS[0] << max(0, math.ceil(math.log2(least / FEWEST_SESSIONS[0])))


def session_run(
    spec: EngineSpec,
    recorded: RecordedSessions,
    clients: int,
    requests: int,
    *,
    seed: int,
    alone_ns: NDArray[np.int64],
) -> Requests:
    """What happens to the requests of so many sessions at once on one instance, from when its
    caches are warm.
    """
    traces, rows, window_ps = session_traces(spec, recorded, clients, requests, seed)
    record = run_instance(spec, traces, window_ps=window_ps)[0]
    record = with_turns(record, traces, rows, recorded, alone_ns)
    return record.some(slice(int(WARM * len(record)), None))


def session_traces(
    spec: EngineSpec, recorded: RecordedSessions, clients: int, requests: int, seed: int
) -> tuple[list[Trace], list[NDArray[np.int64]], int]:
    """The sessions of each attention rank, the recorded row of each request, and when the run ends,
    in picoseconds.
    """
    ranks = min(spec.ranks, clients)
    further = math.ceil(1.3 * requests / recorded.requests / ranks) + 4
    shares = [clients // ranks + (rank < clients % ranks) for rank in range(ranks)]
    under_way = [
        recorded.under_way(share, further, seed * ranks + rank) for rank, share in enumerate(shares)
    ]
    return (
        [trace for trace, _ in under_way],
        [rows for _, rows in under_way],
        round(requests / (clients * recorded.pace) * PS_PER_S),
    )


def with_turns(
    record: Requests,
    traces: list[Trace],
    rows: list[NDArray[np.int64]],
    recorded: RecordedSessions,
    alone_ns: NDArray[np.int64],
) -> Requests:
    """The record with whose session each request is of; what a session under way sent first has a
    cold cache, and does not compare.
    """
    from dataclasses import replace

    if record.row is None:
        raise ValueError("sessions: a record without the rows of its trace")
    rank = np.maximum(record.instance, 0)
    whose, alone, first = (np.zeros(len(record), kind) for kind in (np.int64, np.int64, bool))
    begin = 0
    for number, (trace, rank_rows) in enumerate(zip(traces, rows, strict=True)):
        mine = np.flatnonzero(rank == number)
        places = record.row[mine]
        session, begins = trace.session(), np.zeros(len(trace), bool)
        begins[trace.firsts()] = True
        whole = begins & np.isin(rank_rows, recorded.starts)
        whose[mine], first[mine] = session[places] + begin, whole[places]
        alone[mine] = np.where((begins & ~whole)[places], -1, alone_ns[rank_rows[places]])
        begin += int(session[-1]) + 1
    done = record.status == COMPLETED
    return replace(
        record, turns=Turns(session=whose, first=first, alone_ns=np.where(done, alone, -1))
    )


def alone_run(spec: EngineSpec, recorded: RecordedSessions) -> Requests:
    """All sessions one after another: what no load can beat."""
    trace = recorded.chosen(np.arange(len(recorded)), concurrency=1)
    record = run_instance(spec, [trace])[0]
    if record.row is None:
        raise ValueError("sessions: a record without the rows of its trace")
    alone = np.zeros(len(recorded.isl), np.int64)
    alone[record.row] = np.maximum(record.last_token_ns - record.due_ns, 1)
    return with_turns(record, [trace], [np.arange(len(trace))], recorded, alone)


def session_fleet(
    run: Callable[[int, int], Requests], recorded: RecordedSessions, rate: float, instances: int
) -> tuple[Requests, int]:
    """The sessions of a whole fleet, shared out evenly; and how many requests were simulated.

    Of the simulated instances at least the share of the fleet's that has one session more than the
    others has one more.

    Args:
        run: what happens on one instance with so many sessions, for a draw of them.
        recorded: the sessions.
        rate: requests per second in all.
        instances: of the fleet.
    """
    clients = max(instances, clients_at(recorded, rate))
    shown, share, more = min(instances, MOST_TOGETHER), clients // instances, clients % instances
    fuller = math.ceil(shown * more / instances)
    parts = [run(share + (place < fuller), place) for place in range(shown)]
    record = pooled(parts) if shown > 1 else parts[0]
    return record, len(record)
