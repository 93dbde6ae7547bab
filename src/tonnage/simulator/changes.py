"""What changes in a fleet while it runs: instances fail and return, or are started and released;
and what a run says of it.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from tonnage.errors import InputError
from tonnage.simulator.autoscaler import Autoscale, Scaler, held_seconds
from tonnage.units import PS_PER_S

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tonnage.results.requests import Requests
    from tonnage.spec.workload import Trace


# Instances that fail and come back: when, and what becomes of the requests that they had. Each
# instance works for a time that is exponential with mean ``mtbf_s``, fails, is repaired for a time
# that is exponential with mean ``repair_s``, and works again. With fewer crews than instances the
# broken ones wait for a crew, first come, first served: the machine repairman's model. The draws
# know nothing of the load. A failure takes an engine's queue, batch and KV cache; tokens that it
# had handed to its front end still reach their clients. The router notices at once. What was in
# flight is sent to another instance at the same instant, or lost, by ``Retry``; a request is lost
# too where no instance is available. An instance that comes back is empty. Nothing fails after the
# last request has come. Under a controller (``autoscaler.py``) it is places that fail and return,
# and an instance that is started there takes its start next to the repair.


FAILS, RETURNS, DRAINS = range(3)

Retry = Literal["none", "unanswered", "all"]
"""Which requests in flight are sent again, from their beginning: none, those without a token (the
rule of the gateway), or all."""

RETRIES: dict[str, int] = {name: code for code, name in enumerate(get_args(Retry))}


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """The frequency and the length of instances' failures."""

    mtbf_s: float  # mean seconds from a return to the next failure, above 0
    # mean seconds of a repair, 0 or more; restarting and loading the weights are part of it
    repair_s: float
    crews: int = 0  # repairs that go on at once; 0 for as many as there are broken instances
    retry: Retry = "unanswered"  # what becomes of requests in flight

    def __post_init__(self) -> None:
        if not (
            self.mtbf_s > 0 and self.repair_s >= 0 and self.crews >= 0 and self.retry in RETRIES
        ):
            raise InputError(
                "failures: mtbf is above 0, repair and crews are 0 or more, and retry is none,"
                " unanswered or all"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Outages:
    """Failures and returns in the order of time; among those of one instant, of one instance the
    failure comes first.
    """

    at: NDArray[np.int64]  # picoseconds
    instance: NDArray[np.int64]
    # ``RETURNS``, ``FAILS``, or ``DRAINS`` where it takes no new requests any more and finishes its
    # own
    back: NDArray[np.int64]

    def failures(self, until: int) -> int:
        """The number of failures at or before an instant."""
        return int(((self.back == 0) & (self.at <= until)).sum())

    def availability(self, instances: int, until: int) -> float:
        """Share of the instances' time from 0 to ``until``, in picoseconds, in which they work; 1
        where there is no time.
        """
        import numpy as np

        if until <= 0:
            return 1.0
        seconds = np.minimum(self.at, until) / PS_PER_S
        down = float(np.where(self.back == 1, seconds, -seconds).sum())
        down += (self.failures(1 << 62) - int(self.back.sum())) * until / PS_PER_S
        return 1.0 - down / (instances * until / PS_PER_S)


def outages_of(failures: Failures, instances: int, until: int, seed: int) -> Outages:
    """The failures of ``instances``, which all work at time 0, up to an instant in picoseconds, and
    the returns from them.

    The draws of an instance do not depend on how many there are, but for the wait for a crew.
    """
    import numpy as np

    draws = [np.random.default_rng([seed, place]) for place in range(instances)]

    def after(place: int, mean_s: float) -> int:
        return max(round(draws[place].exponential(mean_s) * PS_PER_S), 1)

    crews, events, broken = failures.crews or instances, [], []
    coming = [(after(place, failures.mtbf_s), 0, place) for place in range(instances)]
    heapq.heapify(coming)
    while coming:
        at, back, place = heapq.heappop(coming)
        if back:
            crews += 1
            heapq.heappush(coming, (at + after(place, failures.mtbf_s), 0, place))
        elif at > until:
            continue
        else:
            broken.append(place)
        events.append((at, back, place))
        while crews and broken:
            crews, next_one = crews - 1, broken.pop(0)
            heapq.heappush(coming, (at + after(next_one, failures.repair_s), 1, next_one))
    columns = np.array(events, np.int64).reshape(-1, 3).T
    return Outages(at=columns[0].copy(), instance=columns[2].copy(), back=columns[1].copy())


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """The effect of failures and of the controller, from time 0 to the last arrival."""

    failures: int  # of instances; with a controller, of held instances
    restarts: int  # of instances between seasons
    retried: int  # times that a request in flight was sent to another instance
    # share of the instances' time in which they worked; with a controller, of the time of their
    # places
    availability: float
    # for how many seconds so many instances were held; broken ones too, but under a controller,
    # which holds others in their stead
    held_seconds: Mapping[int, float]
    # int32 of shape (looks, 2): instances that serve, and that are held, after each look of the
    # controller; empty without one
    served: NDArray[np.int32]

    @property
    def instance_seconds(self) -> float:
        """Held instances times seconds."""
        return sum(count * seconds for count, seconds in self.held_seconds.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Routed:
    """The result of a fleet's run."""

    # the record in the order of the trace; ``instance`` says who served each, the last one where a
    # request was sent again. A request that was lost has failed.
    requests: Requests
    # the instance that the router chose for each request; -1 where none was available
    chosen: NDArray[np.int64]
    changed: Changed  # what failures and the controller did


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """The changes of a fleet while it runs."""

    outages: Outages | None = None  # failures and returns; None where nothing fails
    retry: Retry = "unanswered"  # what becomes of requests in flight at a failure
    # how the fleet is scaled; None where all instances serve all the time
    autoscale: Autoscale | None = None
    # kinds of engines that take turns in each instance, one after the other among the engines of
    # the fleet; ``outages`` are then their restarts
    seasons: int = 1

    @property
    def some(self) -> bool:
        """Whether anything changes."""
        return self.outages is not None or self.autoscale is not None

    def check(self, instances: int) -> None:
        """Refuse what the engines of a fleet cannot do. Raises InputError: other numbers of
        instances than there are engines.
        """
        if self.autoscale is not None and self.autoscale.instances != instances:
            raise InputError(
                f"a fleet: autoscaling holds up to {self.autoscale.instances} instances, and there"
                f" are {instances} engines"
            )
        if (
            self.outages is not None
            and len(self.outages.instance)
            and int(self.outages.instance.max()) >= instances
        ):
            raise InputError("a fleet: an instance fails that is not there")

    def last(self, trace: Trace) -> int:
        """When the last request comes, in picoseconds."""
        return int(trace.due_ps[-1]) if len(trace) else 0

    def available(self, instances: int) -> list[int]:
        """The instances that take requests at time 0."""
        serve = instances if self.autoscale is None else self.autoscale.begins
        return [1] * serve + [0] * (instances - serve)

    def changed(
        self, instances: int, last: int, retried: int, failed: int, scaler: Scaler
    ) -> Changed:
        """The effect of the changes, with the requests that were sent again and the instances that
        failed.
        """
        import numpy as np

        scaled, restarting = self.autoscale is not None, self.seasons > 1
        seconds_held = (
            {instances // self.seasons: last / PS_PER_S}
            if self.autoscale is None
            else held_seconds(scaler, self.autoscale, last)
        )
        return Changed(
            failures=0 if restarting else failed,
            restarts=failed if restarting else 0,
            retried=retried,
            availability=(
                1.0
                if self.outages is None or restarting
                else self.outages.availability(instances, last)
            ),
            held_seconds=seconds_held,
            served=np.array(scaler.held) if scaled else np.zeros((0, 2), np.int32),
        )


NO_CHANGES = Changes()


# Engines whose limits change with the hour of the day: each instance is drained and started again
# with other settings. At the hour at which a season begins, the instances are restarted a quarter
# of them at a time, as Kubernetes rolls a Deployment (maxUnavailable 25 %). One that is restarted
# takes no new requests for ``drain_s`` and finishes its own; requests still in flight then are
# taken from it, and sent again or lost by the rule of failures. After ``start_s`` more it serves
# with the settings of the season, empty.


HOUR_S = 3600.0
HOURS_PER_DAY = 24
PARTS = 4
"""Parts of the fleet that restart one after another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restarts:
    """The duration of a restart."""

    drain_s: float  # seconds for requests in flight to end
    start_s: float  # seconds from then until the instance serves again

    @property
    def all_s(self) -> float:
        """Seconds in which the whole fleet has restarted."""
        return PARTS * (self.drain_s + self.start_s)


def restarts_of(by_hour: Sequence[int], instances: int, until: int, restarts: Restarts) -> Outages:
    """The restarts of a fleet up to an instant. The engine of the ``i``-th instance in the season
    ``s`` is ``s * instances + i``.

    ``by_hour`` has the season of each hour of the day, 24 of them, from 0 on; a run begins at
    midnight.

    Raises InputError: a season ends before the fleet has restarted for it.
    """
    import numpy as np

    now, began, hour = by_hour[0], 0, 1
    idle = [season for season in range(max(by_hour) + 1) if season != now]
    events = [(0, season * instances + i, DRAINS) for season in idle for i in range(instances)]
    while hour * HOUR_S * PS_PER_S <= until:
        season = by_hour[hour % HOURS_PER_DAY]
        if season != now:
            if began and (hour - began) * HOUR_S < restarts.all_s:
                raise InputError(
                    f"seasons: one of {hour - began} h ends before all instances have restarted,"
                    f" which takes {restarts.all_s:g} s"
                )
            events += _restart(now, season, hour * HOUR_S, instances, restarts)
            now, began = season, hour
        hour += 1
    events.sort(key=lambda event: event[0])
    columns = np.array(events, np.int64).reshape(-1, 3).T
    return Outages(at=columns[0].copy(), instance=columns[1].copy(), back=columns[2].copy())


def _restart(
    now: int, season: int, at_s: float, instances: int, restarts: Restarts
) -> list[tuple[int, int, int]]:
    """Every instance once, from the settings of one season to those of another."""
    events, part = [], math.ceil(instances / PARTS)
    for i in range(instances):
        begins = at_s + (i // part) * (restarts.drain_s + restarts.start_s)
        moments = (
            (begins, now * instances + i, DRAINS),
            (begins + restarts.drain_s, now * instances + i, FAILS),
        )
        back = (begins + restarts.drain_s + restarts.start_s, season * instances + i, RETURNS)
        events += [
            (round(seconds * PS_PER_S), place, what) for seconds, place, what in (*moments, back)
        ]
    return events
