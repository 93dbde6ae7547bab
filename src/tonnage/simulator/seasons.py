"""Engines whose limits change with the hour of the day: each instance is drained and started again with other settings.

At the hour at which a season begins, the instances are restarted a quarter of them at a time, as Kubernetes rolls a Deployment
(maxUnavailable 25 %). One that is restarted takes no new requests for ``drain_s`` and ends those that it has; what is still in
flight then is taken from it, and sent again or lost by the rule of failures (``failures.py``). After ``start_s`` more it serves with the
settings of the season, empty.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tonnage.errors import InputError
from tonnage.simulator.failures import DRAINS, FAILS, RETURNS, Outages
from tonnage.units import PS_PER_S

HOUR_S = 3600.0
HOURS_PER_DAY = 24
PARTS = 4
"""Parts of the fleet that restart one after another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restarts:
    """How long a restart takes.

    Attributes:
        drain_s: seconds for requests in flight to end.
        start_s: seconds from then until the instance serves again.
    """

    drain_s: float
    start_s: float

    @property
    def all_s(self) -> float:
        """Seconds in which the whole fleet has restarted."""
        return PARTS * (self.drain_s + self.start_s)


def restarts_of(by_hour: Sequence[int], instances: int, until: int, asked: Restarts) -> Outages:
    """The restarts of a fleet up to an instant. The engine of the ``i``-th instance in the season ``s`` is ``s * instances + i``.

    Args:
        by_hour: season of each hour of the day, 24 of them, from 0 on; a run begins at midnight.
        instances: of the fleet.
        until: picoseconds.
        asked: how long a restart takes.

    Raises:
        InputError: a season ends before the fleet has restarted for it.
    """
    import numpy as np

    now, began, hour = by_hour[0], 0, 1
    idle = [season for season in range(max(by_hour) + 1) if season != now]
    found = [(0, season * instances + i, DRAINS) for season in idle for i in range(instances)]
    while hour * HOUR_S * PS_PER_S <= until:
        season = by_hour[hour % HOURS_PER_DAY]
        if season != now:
            if began and (hour - began) * HOUR_S < asked.all_s:
                raise InputError(
                    f"seasons: one of {hour - began} h ends before all instances have restarted, which takes {asked.all_s:g} s"
                )
            found += _restart(now, season, hour * HOUR_S, instances, asked)
            now, began = season, hour
        hour += 1
    found.sort(key=lambda each: each[0])
    columns = np.array(found, np.int64).reshape(-1, 3).T
    return Outages(at=columns[0].copy(), instance=columns[1].copy(), back=columns[2].copy())


def _restart(now: int, season: int, at_s: float, instances: int, asked: Restarts) -> list[tuple[int, int, int]]:
    """Every instance once, from the settings of one season to those of another."""
    found, part = [], math.ceil(instances / PARTS)
    for i in range(instances):
        begins = at_s + (i // part) * (asked.drain_s + asked.start_s)
        moments = (begins, now * instances + i, DRAINS), (begins + asked.drain_s, now * instances + i, FAILS)
        back = (begins + asked.drain_s + asked.start_s, season * instances + i, RETURNS)
        found += [(round(seconds * PS_PER_S), place, what) for seconds, place, what in (*moments, back)]
    return found
