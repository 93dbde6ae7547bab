"""Autoscaling: how many instances serve, decided again and again from what a controller sees.

At every look, ``interval`` apart, the controller asks for load / target instances, rounded up,
where the load is the requests that are outstanding at the serving instances, or the requests that
came in a second. A load within a tenth of what the serving instances are meant for changes nothing.
More are requested at once, fewer only when no look within ``hold`` asked for more. These are the
rules and defaults of Kubernetes' HorizontalPodAutoscaler
(kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale, read 2026-11-22: a look every 15
s, a tolerance of 0.1, a stabilization window of 300 s downwards), without its limit of pods per
period.

In addition to requested ones, ``warm`` instances are kept started: they take no requests until the
controller puts them into service, at once. A new instance takes ``start`` until it can. One that is
not needed any more takes no new requests and is released when its last one has ended; until then it
is held, and counts against the most that there may be. At a look the lowest numbers start and enter
service first, and the highest leave it first.

An instance is in a place of its number. Where a place breaks (``failures.py``), what was there is
gone: it is neither held nor paid for, and nothing is started there until the place works again. The
controller is not notified of failures; at its next look it sees fewer that serve, and starts others
in places that are free. A place that works again is empty until an instance is started there.

``look`` reads and writes by index alone: one source for plain Python and, compiled, for the loop of
a fleet, as the routers.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from tonnage.errors import InputError

Metric = Literal["outstanding", "rate"]
METRICS: dict[str, int] = {name: code for code, name in enumerate(get_args(Metric))}

OFF, STARTING, STANDBY, SERVING, LEAVING = range(5)
"""Phases of an instance: not held, started and not ready, ready without requests, taking requests,
ending its last ones."""

TOLERANCE = 0.1
PER_S = 1_000_000_000_000
NO_LOOK = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Autoscale:
    """The rules by which a fleet is scaled."""

    metric: Metric  # "outstanding" requests of an instance, or their "rate" in requests per second
    target: float  # of the metric for one instance, above 0
    # least, most: instances that serve
    least: int
    most: int
    start_s: float  # seconds from the decision until an instance is ready
    hold_s: float = 300.0  # seconds for which the highest number asked for is kept
    interval_s: float = 15.0  # seconds between two looks
    warm: int = 0  # further instances that are kept started
    first: int = 0  # instances that serve at the beginning; 0 for ``least``

    def __post_init__(self) -> None:
        numbers = (
            self.target > 0
            and self.start_s >= 0
            and self.hold_s >= 0
            and self.interval_s > 0
            and self.warm >= 0
        )
        counts = 1 <= self.least <= self.most and (
            self.first == 0 or self.least <= self.first <= self.most
        )
        if not (numbers and self.metric in METRICS and counts):
            raise InputError(
                "autoscale: target and interval are above 0, start, hold and warm are 0 or more,"
                " and 1 ≤ min ≤ max"
            )

    @property
    def begins(self) -> int:
        """Instances that serve at the beginning."""
        return self.first or self.least

    @property
    def instances(self) -> int:
        """The largest number of instances that are held at once."""
        return self.most + self.warm


class Scaler(NamedTuple):
    """The observations and the state of a controller."""

    # int64: code of the metric, least, most, warm, and in picoseconds start, hold and interval
    rule: Sequence[int]
    target: Sequence[float]  # float64, in an array of one
    phase: MutableSequence[int]  # int64, of each instance
    ready: MutableSequence[int]  # int64, the instant at which a starting one is ready
    # int64, a ring of the numbers asked for at the last looks within ``hold``
    asked: MutableSequence[int]
    counts: MutableSequence[int]  # int64: number of looks; requests that came since the last one
    # int32 of shape (looks, 2): instances that serve, and that are held, after each look
    held: MutableSequence[MutableSequence[int]]
    released: MutableSequence[int]  # int64, 1 for instances released at this look
    broken: MutableSequence[int]  # int64, 1 for places in which nothing can be started


def scaler_of(rule: Autoscale | None, until: int) -> Scaler:
    """A controller at time 0, in arrays, which looks until an instant in picoseconds; of no
    instances where there is no rule.
    """
    import numpy as np

    none = np.zeros(0, np.int64)
    if rule is None:
        return Scaler(
            none,  # type: ignore[arg-type]
            np.zeros(0),  # type: ignore[arg-type]
            none,  # type: ignore[arg-type]
            none,  # type: ignore[arg-type]
            none,  # type: ignore[arg-type]
            none,  # type: ignore[arg-type]
            np.zeros((0, 2), np.int32),  # type: ignore[arg-type]
            none,  # type: ignore[arg-type]
            none,  # type: ignore[arg-type]
        )
    start, hold, interval = (
        max(round(s * PER_S), 0) for s in (rule.start_s, rule.hold_s, rule.interval_s)
    )
    interval = max(interval, 1)
    phase = np.full(rule.instances, OFF)
    phase[: rule.begins], phase[rule.begins : rule.begins + rule.warm] = SERVING, STANDBY
    columns = (
        np.array([METRICS[rule.metric], rule.least, rule.most, rule.warm, start, hold, interval]),
        np.array([rule.target], np.float64),
        phase,
        np.zeros(rule.instances, np.int64),
        np.full(hold // interval + 1, rule.least),
        np.zeros(2, np.int64),
        np.zeros((until // interval, 2), np.int32),
        np.zeros(rule.instances, np.int64),
        np.zeros(rule.instances, np.int64),
    )
    return Scaler(*columns)  # type: ignore[arg-type]


def next_look(s: Scaler) -> int:
    """The instant of the next look in picoseconds; ``NO_LOOK`` where none comes."""
    if len(s.phase) == 0 or s.counts[0] >= len(s.held):
        return NO_LOOK
    return (s.counts[0] + 1) * s.rule[6]


def place_fails(s: Scaler, i: int) -> int:
    """Remove the instance in the ``i``-th place; 1 where there was one."""
    in_use = 0 if s.phase[i] == OFF else 1
    s.phase[i] = OFF
    s.broken[i] = 1
    return in_use


def look(s: Scaler, requests: Sequence[int], available: MutableSequence[int], at: int) -> None:
    """Decide at an instant (picoseconds), by the requests outstanding at each instance, who serves,
    starts and is released.

    ``available`` is written: 1 where an instance takes requests.
    """
    serving = wake_and_release(s, requests, at)
    needed = asked_for(s, requests, serving)
    scale_up(s, needed, at)
    scale_down(s, needed, requests)
    serving, in_use = 0, 0
    for i in range(len(s.phase)):
        available[i] = 1 if s.phase[i] == SERVING else 0
        serving += available[i]
        in_use += 1 if s.phase[i] != OFF else 0
    s.held[s.counts[0]][0] = serving
    s.held[s.counts[0]][1] = in_use
    s.counts[0] += 1
    s.counts[1] = 0


def wake_and_release(s: Scaler, requests: Sequence[int], at: int) -> int:
    """Put ready instances on standby and release those without requests; how many serve."""
    serving = 0
    for i in range(len(s.phase)):
        if s.phase[i] == STARTING and s.ready[i] <= at:
            s.phase[i] = STANDBY
        elif s.phase[i] == LEAVING and requests[i] == 0:
            s.phase[i] = OFF
            s.released[i] = 1
        elif s.phase[i] == SERVING:
            serving += 1
    return serving


def asked_for(s: Scaler, requests: Sequence[int], serving: int) -> int:
    """The number that is to serve: what the load asks for, or the highest of the last looks where
    that is fewer than now.
    """
    load, target = 0.0, s.target[0]
    if s.rule[0] == 0:
        for i in range(len(s.phase)):
            if s.phase[i] == SERVING:
                load += requests[i]
    else:
        load = s.counts[1] * 1.0 * PER_S / s.rule[6]
    needed = int(load / target)
    if needed * target < load:
        needed += 1
    if abs(load - serving * target) <= TOLERANCE * serving * target:
        needed = serving
    needed = min(max(needed, s.rule[1]), s.rule[2])
    s.asked[s.counts[0] % len(s.asked)] = needed
    if needed >= serving:
        return needed
    highest = needed
    for i in range(len(s.asked)):
        highest = max(highest, s.asked[i])
    return min(highest, serving)


def scale_up(s: Scaler, target: int, at: int) -> None:
    """Start what is missing, the lowest free numbers first, and put ready instances into
    service.
    """
    active, serving = 0, 0
    for i in range(len(s.phase)):
        active += 1 if s.phase[i] in (STARTING, STANDBY, SERVING) else 0
        serving += 1 if s.phase[i] == SERVING else 0
    for i in range(len(s.phase)):
        if s.phase[i] == STANDBY and serving < target:
            s.phase[i] = SERVING
            serving += 1
        elif s.phase[i] == OFF and s.broken[i] == 0 and active < target + s.rule[3]:
            s.phase[i] = STARTING
            s.ready[i] = at + s.rule[4]
            active += 1


def scale_down(s: Scaler, target: int, requests: Sequence[int]) -> None:
    """Take what is too much out of service, the highest numbers first; then give up what is started
    beyond the warm ones.
    """
    active, serving = 0, 0
    for i in range(len(s.phase)):
        active += 1 if s.phase[i] in (STARTING, STANDBY, SERVING) else 0
        serving += 1 if s.phase[i] == SERVING else 0
    for i in range(len(s.phase) - 1, -1, -1):
        if s.phase[i] == SERVING and serving > target:
            s.phase[i] = STANDBY
            serving -= 1
    for phase in (STARTING, STANDBY):
        for i in range(len(s.phase) - 1, -1, -1):
            if s.phase[i] == phase and active > target + s.rule[3]:
                s.phase[i] = LEAVING if requests[i] > 0 else OFF
                s.released[i] = 0 if requests[i] > 0 else 1
                active -= 1


def held_seconds(s: Scaler, rule: Autoscale, until: int) -> dict[int, float]:
    """The seconds for which each number of instances was held, over the time from 0 to an instant
    in picoseconds.
    """
    seconds, interval = until / PER_S, s.rule[6] / PER_S
    counts = [rule.begins + rule.warm, *(int(row[1]) for row in s.held)]
    last = max(seconds - (len(counts) - 1) * interval, 0.0)
    seconds_by_count: dict[int, float] = {}
    for place, count in enumerate(counts):
        seconds_by_count[count] = seconds_by_count.get(count, 0.0) + (
            interval if place < len(counts) - 1 else last
        )
    return seconds_by_count
