"""Instances that fail and come back: when, and what becomes of the requests that they had.

Each instance works for a time that is exponential with mean ``mtbf_s``, fails, is repaired for a time that is exponential with mean
``repair_s``, and works again. With fewer crews than instances the broken ones wait for a crew, first come, first served: the machine
repairman's model. The draws know nothing of the load.

A failure takes an engine's queue, batch and KV cache; tokens that it had handed to its front end still reach their clients. The router
notices at once. What was in flight is sent to another instance at the same instant, or lost, by ``Retry``; a request is lost too where
no instance is available. An instance that comes back is empty. Nothing fails after the last request has come. Under a controller
(``autoscaler.py``) it is places that fail and return, and an instance that is started there takes its start beside the repair.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from tonnage.errors import InputError
from tonnage.units import PS_PER_S

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FAILS, RETURNS, DRAINS = range(3)

Retry = Literal["none", "unanswered", "all"]
"""Which requests in flight are sent again, from their beginning: none, those without a token (the rule of the gateway), or all."""

RETRIES: dict[str, int] = {name: code for code, name in enumerate(get_args(Retry))}


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """How often instances fail, and for how long.

    Attributes:
        mtbf_s: mean seconds from a return to the next failure, above 0.
        repair_s: mean seconds of a repair, 0 or more; restarting and loading the weights are part of it.
        crews: repairs that go on at once; 0 for as many as there are broken instances.
        retry: what becomes of requests in flight.
    """

    mtbf_s: float
    repair_s: float
    crews: int = 0
    retry: Retry = "unanswered"

    def __post_init__(self) -> None:
        if not (self.mtbf_s > 0 and self.repair_s >= 0 and self.crews >= 0 and self.retry in RETRIES):
            raise InputError("failures: mtbf is above 0, repair and crews are 0 or more, and retry is none, unanswered or all")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outages:
    """Failures and returns in the order of time; among those of one instant, of one instance the failure comes first.

    Attributes:
        at: int64, picoseconds.
        instance: int64.
        back: int64, ``RETURNS``, ``FAILS``, or ``DRAINS`` where it takes no new requests any more and ends those that it has.
    """

    at: NDArray[np.int64]
    instance: NDArray[np.int64]
    back: NDArray[np.int64]

    def failures(self, until: int) -> int:
        """How many lie at or before an instant."""
        return int(((self.back == 0) & (self.at <= until)).sum())

    def availability(self, instances: int, until: int) -> float:
        """Share of the instances' time from 0 to ``until``, in picoseconds, in which they work; 1 where there is no time."""
        import numpy as np

        if until <= 0:
            return 1.0
        seconds = np.minimum(self.at, until) / PS_PER_S
        down = float(np.where(self.back == 1, seconds, -seconds).sum())
        down += (self.failures(1 << 62) - int(self.back.sum())) * until / PS_PER_S
        return 1.0 - down / (instances * until / PS_PER_S)


def outages_of(failures: Failures, instances: int, until: int, seed: int) -> Outages:
    """The failures of so many instances up to an instant, and the returns from them.

    Args:
        failures: how often and how long.
        instances: which all work at time 0.
        until: picoseconds; no instance fails later.
        seed: of the draws; those of an instance do not depend on how many there are, but for the wait for a crew.
    """
    import numpy as np

    draws = [np.random.default_rng([seed, place]) for place in range(instances)]

    def after(place: int, mean_s: float) -> int:
        return max(round(draws[place].exponential(mean_s) * PS_PER_S), 1)

    crews, found, broken = failures.crews or instances, [], []
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
        found.append((at, back, place))
        while crews and broken:
            crews, next_one = crews - 1, broken.pop(0)
            heapq.heappush(coming, (at + after(next_one, failures.repair_s), 1, next_one))
    columns = np.array(found, np.int64).reshape(-1, 3).T
    return Outages(at=columns[0].copy(), instance=columns[2].copy(), back=columns[1].copy())
