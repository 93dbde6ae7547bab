"""How many servers a service of models that are not LLMs needs: the least number on which every
limit holds, found by simulation.

Servers are alike, and each gets a random share of every open stream, which is again Poisson. A
closed form throws out what cannot work: the items of a second, each at the cost that it has in the
best batch, must take less than the GPUs have. From there on the number is doubled until the limits
hold, and then halved between. The limits are held against the second half of a run alone, so that a
queue that grows shows, and the empty start does not count.

Where the file names settings to choose among, every combination is sized so, the most promising by
the closed form first, and given up as soon as it is known to need more servers than the best one
yet. The answer is that of all combinations sized to the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from tonnage.errors import InputError, option
from tonnage.simulator.services import ServiceRun, run_service
from tonnage.spec.service import ServedModel, Service, passes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tonnage.spec.deployment import Limit

MOST_SERVERS = 10_000
MOST_SETTINGS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Met:
    """One limit on one stream, and the latency that requests had.

    Attributes:
        stream: name of the model or pipeline.
        limit: the limit of the question.
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
    """The number of servers, and the evidence.

    Attributes:
        service: on one of them, with its share of the traffic.
        servers: how many; 0 where no number meets the limits.
        run: of one of them.
        met: the limits there.
        one_fewer: the limits with one server less; empty where there would be none, or where the
            closed form says that it cannot work.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """One combination of settings.

    Attributes:
        service: with these settings.
        least: servers that the closed form asks for.
        servers: that it needs; 0 where none help, -1 where it was given up because it needs more
            than another.
        use: the largest share of a limit that requests see; infinite where none hold, or it was
            given up.
    """

    service: Service
    least: int
    servers: int
    use: float


def choose_settings(
    service: Service, *, requests: int, seed: int, progress: Callable[[str], None] | None = None
) -> tuple[ServiceAnswer, tuple[Tried, ...]]:
    """The settings that need the fewest servers, of these the ones that use the least of their
    limits, and all that were tried.

    Raises InputError: as ``size_service``, or too many combinations.
    """
    services, order = settings_of(service), []
    best: ServiceAnswer | None = None
    for place, candidate in sorted(enumerate(services), key=lambda pair: load(pair[1])):
        least = math.floor(load(candidate)) + 1
        bound = best.servers if best is not None and best.servers else None
        answer = None
        if bound is None or least <= bound:
            if progress is not None and len(services) > 1:
                progress(f"settings {place + 1} of {len(services)}")
            answer = size_service(
                candidate, requests=requests, seed=seed, progress=progress, most_servers=bound
            )
        order.append(
            (
                place,
                Tried(
                    service=candidate,
                    least=least,
                    servers=-1 if answer is None else answer.servers,
                    use=_use(answer),
                ),
            )
        )
        if answer is not None and (best is None or _rank(answer) < _rank(best)):
            best = answer
    if best is None:
        raise InputError("latency: no settings were simulated")
    return best, tuple(tried for _, tried in sorted(order, key=lambda pair: pair[0]))


def settings_of(service: Service) -> tuple[Service, ...]:
    """The service with each combination of the settings that its models may choose among.

    Raises:
        InputError: there are more than ``MOST_SETTINGS``.
    """
    models = [tuple(_settings(model)) for model in service.models.values()]
    count = math.prod(map(len, models))
    if count > MOST_SETTINGS:
        raise InputError(
            f"service.models: {count:,} combinations of settings are more than {MOST_SETTINGS};"
            " name fewer in search"
        )
    return tuple(
        replace(service, models=dict(zip(service.models, chosen, strict=True)))
        for chosen in product(*models)
    )


def _settings(model: ServedModel) -> Iterator[ServedModel]:
    choices, batching = model.choices, model.batching
    delays = choices.max_queue_delay_microseconds or (
        0 if batching is None else batching.max_queue_delay_microseconds,
    )
    for instances, size, delay in product(
        choices.instances or (model.instances,),
        choices.max_batch_size or (model.max_batch_size,),
        delays,
    ):
        changed = (
            None if batching is None else replace(batching, max_queue_delay_microseconds=delay)
        )
        yield replace(model, instances=instances, max_batch_size=size, batching=changed)


def _rank(answer: ServiceAnswer) -> tuple[float, float]:
    return (answer.servers or math.inf, _use(answer))


def _use(answer: ServiceAnswer | None) -> float:
    return (
        max((met.seconds / met.limit.seconds for met in answer.met), default=math.inf)
        if answer is not None
        else math.inf
    )


def size_service(
    service: Service,
    *,
    requests: int,
    seed: int,
    progress: Callable[[str], None] | None = None,
    most_servers: int | None = None,
) -> ServiceAnswer | None:
    """The least number of servers on which every limit holds for every stream; None where it is
    above ``most_servers``.

    Raises InputError: no limits, or clients of a closed loop, whose number says nothing about the
    traffic.
    """
    if not service.limits:
        raise InputError("latency: missing; write for example latency: p99<=50ms")
    if any(stream.concurrency for stream in service.streams):
        raise InputError(
            "traffic: give rates; clients of a closed loop wait for their answers, so that they fit"
            " any number of servers"
        )
    results: dict[int, tuple[Service, ServiceRun, tuple[Met, ...]]] = {}

    def holds(servers: int) -> bool:
        if servers not in results:
            if progress is not None:
                progress(f"{servers} servers")
            share = shared(service, servers)
            run = run_service(share, requests=requests, seed=seed)
            results[servers] = (share, run, limits_met(share, run))
        return all(met.holds for met in results[servers][2])

    least = math.floor(load(service)) + 1
    low, high = least - 1, least
    while not holds(high):
        low, high = high, high * 2
        if most_servers is not None and low >= most_servers:
            return None
        if low * service.gpus > MOST_SERVERS or _empty(service, seed, holds, low):
            return _answer(results, 0, low, least)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
        if most_servers is not None and low >= most_servers:
            return None
    return _answer(results, high, high, least)


def _empty(service: Service, seed: int, holds: Callable[[int], bool], servers: int) -> bool:
    """Whether servers that are all but idle miss a limit too: then no number helps."""
    return servers < MOST_SERVERS and load(shared(service, servers)) < 0.01 and not holds(servers)


def _answer(
    answers: dict[int, tuple[Service, ServiceRun, tuple[Met, ...]]],
    servers: int,
    shown: int,
    least: int,
) -> ServiceAnswer:
    share, run, met = answers[shown]
    fewer = answers[servers - 1][2] if servers - 1 in answers else ()
    return ServiceAnswer(
        service=share,
        servers=servers,
        run=run,
        met=met,
        one_fewer=fewer,
        least=least,
        looked=tuple(sorted(answers)),
    )


def shared(service: Service, servers: int) -> Service:
    """The traffic of one of so many servers."""
    return replace(
        service,
        streams=tuple(replace(stream, rate=stream.rate / servers) for stream in service.streams),
    )


def with_rate(service: Service, rate: float) -> Service:
    """The service with open streams of ``rate`` requests per second together, in their proportions.

    Raises:
        InputError: it has closed streams.
    """
    if any(stream.concurrency for stream in service.streams):
        raise InputError(
            f"{option('request_rate')}: the file's traffic has clients of a closed loop; write"
            " rates there"
        )
    whole = sum(stream.rate for stream in service.streams)
    return replace(
        service,
        streams=tuple(
            replace(stream, rate=stream.rate * rate / whole) for stream in service.streams
        ),
    )


def with_clients(service: Service, clients: float) -> Service:
    """The service with ``clients`` of a closed loop. Raises InputError: it has several streams."""
    if len(service.streams) > 1:
        raise InputError(
            f"{option('concurrency')}: the file has {len(service.streams)} kinds of traffic; leave"
            " one, or give a rate"
        )
    return replace(
        service, streams=(replace(service.streams[0], rate=0.0, concurrency=int(clients)),)
    )


def load(service: Service) -> float:
    """Share of a server's GPUs that the open streams take at least, each item at the cost that it
    has in the best batch.
    """
    by_model = {
        name: sum(
            stream.rate * stream.items * times
            for stream in service.streams
            for stage, times in zip(stream.stages, passes(stream.stages), strict=True)
            if stage.model == name
        )
        for name in service.models
    }
    needed = sum(by_model[name] * best_item_s(model) for name, model in service.models.items())
    copies = max((sum(model.instances for model in service.models.values()), 1))
    speed = service.gpus * (1.0 + service.overlap * (copies - 1))
    alone = [
        by_model[name] * best_item_s(model) / (len(model.gpus) * model.instances)
        for name, model in service.models.items()
    ]
    return max(needed / speed, *alone)


def best_item_s(model: ServedModel) -> float:
    """Seconds of an item in the batch size in which it takes the least."""
    if model.batching is None:
        return model.time.of(model.max_batch_size) / model.max_batch_size
    return min(model.time.of(size) / size for size in range(1, model.max_batch_size + 1))


def limits_met(service: Service, run: ServiceRun) -> tuple[Met, ...]:
    """Every limit on every stream, over the second half of its requests."""
    late = [
        (seconds := run.latencies_s(place))[len(seconds) // 2 :]
        for place in range(len(service.streams))
    ]
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
