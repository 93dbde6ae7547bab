"""What changes in a fleet while it runs: instances fail and return, or are started and released; and what a run says of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tonnage.errors import InputError
from tonnage.simulator.autoscaler import Autoscale, Scaler, held_seconds
from tonnage.simulator.failures import Outages, Retry
from tonnage.units import PS_PER_S

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tonnage.results.requests import Requests
    from tonnage.spec.workload import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """What failures and the controller did, from time 0 to the arrival of the last request.

    Attributes:
        failures: of instances; with a controller, of those that were held.
        restarts: of instances between seasons.
        retried: times that a request in flight was sent to another instance.
        availability: share of the instances' time in which they worked; with a controller, of the time of their places.
        held_seconds: for how many seconds so many instances were held; broken ones too, but under a controller, which holds others in
            their stead.
        served: int32 of shape (looks, 2): instances that serve, and that are held, after each look of the controller; empty without one.
    """

    failures: int
    restarts: int
    retried: int
    availability: float
    held_seconds: Mapping[int, float]
    served: NDArray[np.int32]

    @property
    def instance_seconds(self) -> float:
        """Held instances times seconds."""
        return sum(count * seconds for count, seconds in self.held_seconds.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Routed:
    """What a fleet's run leaves behind.

    Attributes:
        requests: the record in the order of the trace; ``instance`` says who served each, the last one where a request was sent again.
            A request that was lost has failed.
        chosen: int64, the instance that the router chose for each request; -1 where none was available.
        changed: what failures and the controller did.
    """

    requests: Requests
    chosen: NDArray[np.int64]
    changed: Changed


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What changes while a fleet runs.

    Attributes:
        outages: failures and returns; None where nothing fails.
        retry: what becomes of requests in flight at a failure.
        autoscale: how the fleet is scaled; None where all instances serve all the time.
        seasons: kinds of engines that take turns in each instance, one after the other among the engines of the fleet; ``outages`` are
            then their restarts.
    """

    outages: Outages | None = None
    retry: Retry = "unanswered"
    autoscale: Autoscale | None = None
    seasons: int = 1

    @property
    def some(self) -> bool:
        """Whether anything changes."""
        return self.outages is not None or self.autoscale is not None

    def check(self, instances: int) -> None:
        """Refuse what the engines of a fleet cannot do.

        Raises:
            InputError: other numbers of instances than there are engines.
        """
        if self.autoscale is not None and self.autoscale.instances != instances:
            raise InputError(f"a fleet: autoscaling holds up to {self.autoscale.instances} instances, and there are {instances} engines")
        if self.outages is not None and len(self.outages.instance) and int(self.outages.instance.max()) >= instances:
            raise InputError("a fleet: an instance fails that is not there")

    def last(self, trace: Trace) -> int:
        """When the last request comes, in picoseconds."""
        return int(trace.due_ps[-1]) if len(trace) else 0

    def available(self, instances: int) -> list[int]:
        """Which instances take requests at time 0."""
        serve = instances if self.autoscale is None else self.autoscale.begins
        return [1] * serve + [0] * (instances - serve)

    def changed(self, instances: int, last: int, retried: int, failed: int, scaler: Scaler) -> Changed:
        """What came of it, with the requests that were sent again and the instances that failed."""
        import numpy as np

        scaled, restarting = self.autoscale is not None, self.seasons > 1
        held = {instances // self.seasons: last / PS_PER_S} if self.autoscale is None else held_seconds(scaler, self.autoscale, last)
        return Changed(
            failures=0 if restarting else failed,
            restarts=failed if restarting else 0,
            retried=retried,
            availability=1.0 if self.outages is None or restarting else self.outages.availability(instances, last),
            held_seconds=held,
            served=np.array(scaler.held) if scaled else np.zeros((0, 2), np.int32),
        )


NO_CHANGES = Changes()
