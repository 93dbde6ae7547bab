"""How many servers a service of models that are not LLMs needs: the least number on which every limit holds, found by simulation.

Servers are alike, and each gets a random share of every open stream, which is again Poisson. A closed form throws out what cannot work:
the items of a second, each at the cost that it has in the best batch, must take less than the GPUs have. From there on the number is
doubled until the limits hold, and then halved between. The limits are held against the second half of a run alone, so that a queue that
grows shows, and the empty start does not count.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tonnage.errors import InputError
from tonnage.simulator.services import ServiceRun, run_service

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tonnage.spec.deployment import Limit
    from tonnage.spec.service import ServedModel, Service

MOST_SERVERS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Met:
    """One limit on one stream, and what requests saw.

    Attributes:
        stream: name of the model or pipeline.
        limit: what was asked.
        seconds: what the statistic is; infinite where so many requests were not answered.
    """

    stream: str
    limit: Limit
    seconds: float

    @property
    def holds(self) -> bool:
        """Whether the limit holds."""
        return self.seconds <= self.limit.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceAnswer:
    """How many servers, and the evidence.

    Attributes:
        service: on one of them, with its share of the traffic.
        servers: how many; 0 where no number meets the limits.
        run: of one of them.
        met: the limits there.
        one_fewer: the limits with one server less; empty where there would be none, or where the closed form says that it cannot work.
        least: servers that the closed form asks for.
        looked: numbers of servers that were simulated.
    """

    service: Service
    servers: int
    run: ServiceRun
    met: tuple[Met, ...]
    one_fewer: tuple[Met, ...]
    least: int
    looked: tuple[int, ...]

    @property
    def gpus(self) -> int:
        """GPUs of all servers."""
        return self.servers * self.service.gpus


def size_service(service: Service, *, requests: int, seed: int, progress: Callable[[str], None] | None = None) -> ServiceAnswer:
    """The least number of servers on which every limit holds for every stream.

    Args:
        service: one server, and the traffic of all.
        requests: of one simulation.
        seed: of the arrivals.
        progress: is told what is looked at.

    Raises:
        InputError: no limits, or clients of a closed loop, whose number says nothing about the traffic.
    """
    if not service.limits:
        raise InputError("latency: missing; write for example latency: p99<=50ms")
    if any(stream.concurrency for stream in service.streams):
        raise InputError("traffic: give rates; clients of a closed loop wait for their answers, so that they fit any number of servers")
    seen: dict[int, tuple[Service, ServiceRun, tuple[Met, ...]]] = {}

    def holds(servers: int) -> bool:
        if servers not in seen:
            if progress is not None:
                progress(f"{servers} servers")
            share = shared(service, servers)
            run = run_service(share, requests=requests, seed=seed)
            seen[servers] = (share, run, limits_met(share, run))
        return all(one.holds for one in seen[servers][2])

    least = math.floor(load(service)) + 1
    low, high = least - 1, least
    while not holds(high):
        low, high = high, high * 2
        if low * service.gpus > MOST_SERVERS or _empty(service, seed, holds, low):
            return _answer(seen, 0, low, least)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return _answer(seen, high, high, least)


def _empty(service: Service, seed: int, holds: Callable[[int], bool], servers: int) -> bool:
    """Whether servers that are all but idle miss a limit too: then no number helps."""
    return servers < MOST_SERVERS and load(shared(service, servers)) < 0.01 and not holds(servers)


def _answer(seen: dict[int, tuple[Service, ServiceRun, tuple[Met, ...]]], servers: int, shown: int, least: int) -> ServiceAnswer:
    share, run, met = seen[shown]
    fewer = seen[servers - 1][2] if servers - 1 in seen else ()
    return ServiceAnswer(service=share, servers=servers, run=run, met=met, one_fewer=fewer, least=least, looked=tuple(sorted(seen)))


def shared(service: Service, servers: int) -> Service:
    """One of so many servers, with its share of the traffic."""
    return replace(service, streams=tuple(replace(stream, rate=stream.rate / servers) for stream in service.streams))


def load(service: Service) -> float:
    """Share of a server's GPUs that the open streams take at least, each item at the cost that it has in the best batch."""
    by_model = {
        name: sum(stream.rate * stream.items * sum(stage.model == name for stage in stream.stages) for stream in service.streams)
        for name in service.models
    }
    needed = sum(by_model[name] * best_item_s(model) for name, model in service.models.items())
    copies = max((sum(model.instances for model in service.models.values()), 1))
    speed = service.gpus * (1.0 + service.overlap * (copies - 1))
    alone = [by_model[name] * best_item_s(model) / (len(model.gpus) * model.instances) for name, model in service.models.items()]
    return max(needed / speed, *alone)


def best_item_s(model: ServedModel) -> float:
    """Seconds of an item in the batch size in which it takes the least."""
    if model.batching is None:
        return model.time.of(model.max_batch_size) / model.max_batch_size
    return min(model.time.of(size) / size for size in range(1, model.max_batch_size + 1))


def limits_met(service: Service, run: ServiceRun) -> tuple[Met, ...]:
    """Every limit on every stream, over the second half of its requests."""
    late = [(seconds := run.latencies_s(place))[len(seconds) // 2 :] for place in range(len(service.streams))]
    return tuple(
        Met(stream=stream.name, limit=limit, seconds=statistic_s(late[place], limit.statistic))
        for place, stream in enumerate(service.streams)
        for limit in service.limits
    )


def statistic_s(seconds: NDArray[np.float64], statistic: str) -> float:
    """One statistic of latencies of which some may be infinite; infinite without any."""
    if not seconds.size:
        return math.inf
    if statistic == "mean":
        return float(seconds.mean())
    share = float(statistic.removeprefix("p"))
    finite = bool(np.isfinite(seconds).all())
    return float(np.percentile(seconds, share, method="linear" if finite else "higher"))
