"""A whole trace on several engines behind one router, compiled: the records are those of
``simulator/fleet.py`` to the last bit.

An engine is advanced when one of its requests could end or is sent to it, and not at every arrival:
between two such instants a router that counts requests sees the same. Routers by tokens or KV cache
see every step, so that every engine is advanced at every arrival.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numba import typeof, types

from tonnage.errors import InputError, option
from tonnage.results.requests import GAP_BINS, POSITION_BUCKETS
from tonnage.simulator.autoscaler import Scaler, scaler_of
from tonnage.simulator.changes import NO_CHANGES, RETRIES, Changes, Routed
from tonnage.simulator.kernel.build import (
    COARSE,
    EDGES,
    NO_LOG,
    NO_WATCH,
    idle,
    plain,
    ring_size,
    rows_for,
)
from tonnage.simulator.kernel.driven import drive, drive_fleet, loop_of, note_of, room_for
from tonnage.simulator.kernel.members import Fleet, Groups
from tonnage.simulator.kernel.memory import (
    CLOSELY,
    NEVER,
    ROUTED,
    SLOT,
    STATE,
    STEP,
    Group,
    Lists,
    Machine,
    Prices,
    Tallies,
)
from tonnage.simulator.kernel.ranks import Ranks
from tonnage.simulator.kernel.routing import CODES, SEES_TOKENS
from tonnage.simulator.kernel.run import check_trace, ranks_of, requests_of
from tonnage.simulator.request import STEP_COLUMNS
from tonnage.simulator.router import Memory, View, check_fleet, folded
from tonnage.units import PS_PER_NS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tonnage.spec.deployment import EngineKnobs
    from tonnage.spec.workload import Trace

AT_ONCE = 100_000
"""Requests after which an interrupt is noticed."""

FRONT_END = ("stream", "stream_step", "enter", "enter_token")
"""Settings of a front end by each of which clients have tokens later than the step's end."""


class Down(NamedTuple):
    """``Outages`` in arrays."""

    at: NDArray[np.int64]
    instance: NDArray[np.int64]
    back: NDArray[np.int64]


class Asked(NamedTuple):
    """A router's inputs and its answer.

    Attributes:
        code: of the router.
        closely: whether it must see every step.
        retry: code of what becomes of requests in flight at a failure.
        sessions: of the requests, or none.
        chosen: the instance of each request; -1 where none was available.
        outages: failures and returns.
        scaler: the controller.
        told: outages that have happened, requests that were sent again, and instances that failed.
    """

    code: int
    closely: int
    retry: int
    sessions: NDArray[np.int64]
    chosen: NDArray[np.int64]
    outages: Down
    scaler: Scaler
    told: NDArray[np.int64]


def run_fleet(
    trace: Trace,
    engines: Sequence[Machine],
    router: str,
    *,
    seed: int = 0,
    weight: Sequence[float] | None = None,
    sessions: NDArray[np.int64] | None = None,
    changes: Changes = NO_CHANGES,
    ranks: int = 1,
    knobs: EngineKnobs | None = None,
) -> Routed:
    """Simulate the requests of an open loop on several engines.

    Args:
        trace: an open loop; ``due_ps`` in order.
        engines: machines at time 0; their settings and prices are taken, and they stay as they are.
        router, seed, weight, sessions, changes: as in ``simulate_fleet``.
        ranks: attention ranks of an instance, in lockstep; each is one of the engines, and an
            endpoint to the router.
        knobs: those of the engines, where they have attention ranks, or go by the classes of the
            requests.

    Raises:
        InputError: a closed loop, no engine, an unknown router, due times out of order, lengths
            below one token, more instances in ``changes`` than there are engines, changes of
            attention ranks in lockstep, or changes and shedding with classes.
    """
    check_fleet(trace, engines, router)
    if ranks > 1 and changes.some:
        raise InputError(
            "attention ranks: failures and autoscaling are simulated for engines of one rank only;"
            " leave one of the two out"
        )
    check_trace(trace)
    changes.check(len(engines))
    count, last = len(engines), changes.last(trace)
    by_class = knobs is not None and knobs.ranks
    if knobs is not None and by_class and (changes.some or knobs.shed):
        whose = ", ".join(map(option, ("fail", "autoscale", "shed")))
        raise InputError(
            f"{whose}: not simulated for several instances with classes of traffic; leave them out"
        )
    loop = loop_of(ranks=by_class, grouped=ranks > 1)
    fleet, view, memory, routing = arguments(
        trace, engines, router, seed, weight, sessions, changes, loop.address, ranks, knobs
    )
    for until in range(0, len(trace) + AT_ONCE, AT_ONCE):
        drive_fleet(fleet, view, memory, routing, min(until, len(trace)))
    record = requests_of(fleet.rows, len(trace), fleet.tallies.gaps)
    served = np.where(record.instance < 0, -1, routing.chosen).astype(np.int32)
    due = trace.due_ps // PS_PER_NS if changes.some else record.due_ns
    return Routed(
        requests=replace(record, instance=served, due_ns=due),
        chosen=routing.chosen,
        changed=changes.changed(
            count, last, int(routing.told[1]), int(routing.told[2]), routing.scaler
        ),
    )


def compile_for(
    trace: Trace, engines: Sequence[Machine], ranks: int = 1, knobs: EngineKnobs | None = None
) -> None:
    """Compile the loop of fleets, or load it, without that of one engine, which it calls; nothing
    is simulated. Arguments as in ``run_fleet``.
    """
    loop_arguments = arguments(
        trace, engines, "round-robin", 0, None, None, NO_CHANGES, drive.expected, ranks, knobs
    )
    drive_fleet.compile((*map(typeof, loop_arguments), types.int64))


def arguments(
    trace: Trace,
    engines: Sequence[Machine],
    router: str,
    seed: int,
    weight: Sequence[float] | None,
    sessions: NDArray[np.int64] | None,
    changes: Changes,
    address: Callable[[Machine], int],
    ranks: int = 1,
    knobs: EngineKnobs | None = None,
) -> tuple[Fleet, View, Memory, Asked]:
    """What the loop of fleets takes before the number of requests; ``address`` says where the loop
    of one engine is.
    """
    closely, count = router in SEES_TOKENS, len(engines)
    classes = None if knobs is None or not knobs.ranks else _classes(trace, engines, knobs)
    first = engines[0] if classes is None else engines[0]._replace(ranks=_of_first(classes))
    groups = None if knobs is None or ranks == 1 else _groups(first, len(engines), ranks, knobs)
    example = (
        first
        if groups is None
        else first._replace(group=Group(groups.note[0], groups.at[0], groups.room))
    )
    fleet = _fleet(trace, engines, closely, changes.some, address(example), groups)._replace(
        ranks=classes
    )
    none, down = np.zeros(0, np.int64), changes.outages
    routing = Asked(
        code=CODES[router],
        closely=int(closely),
        retry=RETRIES[changes.retry],
        sessions=none if sessions is None else plain(sessions, np.int64),
        chosen=np.empty(len(trace), np.int64),
        outages=(
            Down(none, none, none)
            if down is None
            else Down(*(plain(column, np.int64) for column in (down.at, down.instance, down.back)))
        ),
        scaler=scaler_of(changes.autoscale, changes.last(trace)),
        told=np.zeros(3, np.int64),
    )
    return fleet, _view(fleet, weight, changes.available(count)), _memory(count, seed), routing


def _classes(trace: Trace, engines: Sequence[Machine], knobs: EngineKnobs) -> Ranks:
    """The classes of the requests, and for each engine what it knows of them."""
    count, slot_count = len(engines), max(len(m.slots) for m in engines)
    drafted = any(m.cfg["drafted"] > 0 for m in engines)
    of_one = ranks_of(trace, knobs, slot_count, drafted=drafted)
    rows = {
        "note": np.tile(of_one.note, (count, 1)),
        "newest": np.tile(of_one.newest, (count, 1)),
        "given": np.zeros((count, slot_count), np.int64),
    }
    return of_one._replace(**rows)


def _of_first(classes: Ranks) -> Ranks:
    """The first engine's copy of the requests' classes."""
    return classes._replace(note=classes.note[0], newest=classes.newest[0], given=classes.given[0])


def _groups(example: Machine, engines: int, ranks: int, knobs: EngineKnobs) -> Groups:
    """The attention ranks of each instance, with room for machines that are like an example."""
    note = note_of(knobs, (engines // ranks, 1))
    at = np.zeros((engines // ranks, ranks), np.int64)
    room = room_for(example._replace(group=Group(note[0], at[0], np.zeros((0, 0), np.int64))), at)
    return Groups(note=note, at=at, room=room)


def _view(fleet: Fleet, weight: Sequence[float] | None, available: list[int]) -> View:
    """The router's view of the engines, in arrays that the loop writes."""
    count, watch = len(fleet.cfg), fleet.watch
    weights = np.ones(count) if weight is None else np.array(weight, np.float64)
    columns: Any = (
        np.array(available, np.int64),
        watch.requests,
        watch.tokens,
        np.zeros(count),
        np.zeros(count, np.int64),
        weights,
    )
    return View(*columns)


def _memory(count: int, seed: int) -> Memory:
    """A router's memory before its first request, in arrays."""
    columns: Any = (np.array([count - 1]), np.zeros(count), np.array([folded(seed)]))
    return Memory(*columns)


def _fleet(
    trace: Trace,
    engines: Sequence[Machine],
    closely: bool,
    changing: bool,
    loop: int,
    groups: Groups | None,
) -> Fleet:
    """The engines of a fleet, idle at time 0, and the rows of the trace; whether engines may fail
    or be released; their loop's address.
    """
    count, slot_count = len(engines), max(len(m.slots) for m in engines)
    due, isl, osl = (plain(column, np.int64) for column in (trace.due_ps, trace.isl, trace.osl))
    cfg, kinds = _settings(engines, closely)
    due = due.copy() if changing else due
    alike, which = _alike(engines)
    state = np.array([idle(cfg[which.index(i)]) for i in range(len(alike))], STATE)[which]
    running, ends, crosses, filling, take = np.empty((5, count, slot_count), np.int64)
    spare = np.maximum(cfg["slots"][:, None] - 1 - np.arange(slot_count), 0)
    line_a, line_c = np.full((2, len(kinds), slot_count + 1), -1)
    size = ring_size(max(count, 2))
    late = (
        (int(trace.osl.sum()) if closely else 0) + len(trace)
        if any(cfg[name].any() for name in FRONT_END)
        else 0
    )
    return Fleet(
        cfg=cfg,
        state=state,
        step=np.zeros(count, STEP),
        slots=np.zeros((count, slot_count), SLOT),
        rows=rows_for(
            isl, osl, np.arange(len(trace)) if bool((cfg["drafted"] > 0).any()) else isl, due
        ),
        lists=Lists(running, ends, crosses, filling, take, spare),
        prices=Prices(
            np.array([m.prices.model for m in kinds]),
            np.array([m.prices.drafter for m in kinds]),
            line_a,
            line_c,
        ),
        tallies=Tallies(
            gaps=np.zeros((POSITION_BUCKETS, GAP_BINS), np.int64),
            edges=EDGES,
            coarse=COARSE,
            positions=np.zeros((count, POSITION_BUCKETS), np.int64),
            moved=np.zeros((count, POSITION_BUCKETS), np.int64),
            phases=np.zeros((count, int(cfg["block_tokens"].max())), np.int64),
            steps=np.zeros((0, STEP_COLUMNS), np.int64),
        ),
        log=NO_LOG,
        watch=NO_WATCH._replace(
            requests=np.zeros(count, np.int64),
            tokens=np.zeros(count, np.int64),
            late=np.empty((late, 4), np.int64),
            under_way=np.zeros(1, np.int64),
        ),
        events=np.full(2 * size, NEVER),
        place=np.zeros(1, np.int64),
        idle=state.copy() if changing else np.zeros(0, STATE),
        again=np.zeros(len(trace) if changing else 0, np.int64),
        stop=np.zeros(1, np.int64),
        loop=loop,
        groups=groups,
    )


def _alike(engines: Sequence[Machine]) -> tuple[list[Machine], list[int]]:
    """The engines without repetitions, and the place among them of each."""
    places: dict[int, int] = {}
    which = [places.setdefault(id(m), len(places)) for m in engines]
    return [engines[which.index(i)] for i in range(len(places))], which


def _settings(engines: Sequence[Machine], closely: bool) -> tuple[Any, list[Machine]]:
    """The settings of each engine, and one engine of each kind of prices."""
    alike, which = _alike(engines)
    distinct = np.array([m.cfg for m in alike])
    kinds: dict[bytes, int] = {}
    examples: list[Machine] = []
    for i, m in enumerate(alike):
        prices = b"".join(
            [
                *(part.tobytes() for part in m.prices[:2]),
                m.cfg["drafted"].tobytes(),
                m.cfg["passes"].tobytes(),
            ]
        )
        if prices not in kinds:
            kinds[prices] = len(examples)
            examples.append(m)
        distinct[i]["kind"] = kinds[prices]
    if len({m.prices.model.size for m in examples}) > 1:
        raise InputError(
            "a fleet: step times of one instance come from a table and those of another do not;"
            " simulate them apart"
        )
    cfg = distinct[which]
    cfg["place"], cfg["routed"], cfg["reporting"] = (
        np.arange(len(engines)),
        CLOSELY if closely else ROUTED,
        0,
    )
    cfg["leaps"] = 0 if closely else cfg["drafted"] == 0
    return cfg, examples
