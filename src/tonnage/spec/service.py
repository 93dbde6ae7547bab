"""A service of models that are not LLMs: how long a batch takes, how requests are batched, and which models a request passes through.

The names of the settings are those of Triton's model configuration, so that what is in a ``config.pbtxt`` can be written here.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from tonnage.csv_file import read_text
from tonnage.errors import InputError, InputErrors
from tonnage.spec.deployment import Slo, parse_limit
from tonnage.spec.typed_values import parse_yaml, read_as, strict
from tonnage.units import parse_duration

TimeoutAction = Literal["REJECT", "DELAY"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceTime:
    """Seconds that a batch takes on an otherwise idle GPU, by its size in items.

    Attributes:
        sizes: batch sizes in rising order, the first of which is 1 or more.
        seconds: of each; between two sizes the time is on the line between them, below the first it is that of the first, and beyond
            the last it goes on along the last line.
    """

    sizes: tuple[int, ...]
    seconds: tuple[float, ...]

    def of(self, items: int) -> float:
        """Seconds of a batch of so many items."""
        sizes, seconds = self.sizes, self.seconds
        if items <= sizes[0] or len(sizes) == 1:
            return seconds[0]
        right = min(bisect_left(sizes, items), len(sizes) - 1)
        share = (items - sizes[right - 1]) / (sizes[right] - sizes[right - 1])
        return seconds[right - 1] + share * (seconds[right] - seconds[right - 1])


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePolicy:
    """Triton's ModelQueuePolicy of one priority level; times in seconds, 0 for none.

    Attributes:
        timeout_action: REJECT ends a request that has waited too long; DELAY puts it behind the others of its level.
        timeout_s: how long a request may wait.
        allow_timeout_override: whether a request may bring a shorter timeout of its own.
        max_queue_size: requests that wait at once; a further one is rejected; 0 for any number.
    """

    timeout_action: TimeoutAction = "REJECT"
    timeout_s: float = 0.0
    allow_timeout_override: bool = False
    max_queue_size: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamicBatching:
    """Triton's ModelDynamicBatching.

    Attributes:
        preferred: preferred batch sizes in items; without any, the maximum batch size is the only one.
        delay_s: how long a request may wait for others to fill a batch (``max_queue_delay_microseconds``).
        preserve_ordering: whether answers leave in the order in which requests came.
        levels: priority levels, of which 1 is served first; 0 for a single queue.
        default_level: of requests that bring none.
        policy: of every level that ``policies`` does not name.
        policies: by level.
    """

    preferred: tuple[int, ...] = ()
    delay_s: float = 0.0
    preserve_ordering: bool = False
    levels: int = 0
    default_level: int = 0
    policy: QueuePolicy = field(default_factory=QueuePolicy)
    policies: dict[int, QueuePolicy] = field(default_factory=dict)

    def policy_of(self, level: int) -> QueuePolicy:
        """The policy of one level."""
        return self.policies.get(level, self.policy)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """One model of a service.

    Attributes:
        time: seconds by batch size.
        max_batch_size: items of one batch.
        instances: copies on each of its GPUs, each of which computes one batch at a time.
        gpus: numbers of the GPUs that it is on, from 0.
        batching: dynamic batching; None where every request is computed by itself.
    """

    name: str
    time: ServiceTime
    max_batch_size: int
    instances: int
    gpus: tuple[int, ...]
    batching: DynamicBatching | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One step of a pipeline (Triton's ensemble): it begins when the stages of ``after`` have ended, at once without any."""

    model: str
    after: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """Requests of one kind.

    Attributes:
        name: of the model or pipeline that they are sent to.
        stages: the way that each takes; a model by itself is one stage.
        rate: requests per second of an open loop with Poisson arrivals; 0 in a closed loop.
        concurrency: clients of a closed loop, each with one request in flight; 0 in an open loop.
        items: items of one request, such as images.
        level: priority level; 0 for the default one.
        timeout_s: that requests bring; 0 for none.
        turnaround_s: from an answer to the client's next request, in a closed loop.
    """

    name: str
    stages: tuple[Stage, ...]
    rate: float = 0.0
    concurrency: int = 0
    items: int = 1
    level: int = 0
    timeout_s: float = 0.0
    turnaround_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """Models on the GPUs of one server, and what is asked of them.

    Attributes:
        title: in a few words.
        gpus: of the server; its models share one queue each over all of them.
        overlap: how much batches on one GPU gain from one another: k at once work at 1 + overlap·(k − 1) times the speed of one
            alone, in equal shares; 0 where they take turns, 1 where none slows another.
        models: by name.
        streams: the requests.
        limits: on the time from request to answer.
    """

    title: str
    gpus: int
    overlap: float
    models: dict[str, ServedModel]
    streams: tuple[Stream, ...]
    limits: Slo = ()


# Reads a service of models that are not LLMs from a YAML or JSON file; every fault is reported at once, each with its place.


MOST_GPUS = 64
MOST_INSTANCES = 64


@strict
class _Policy:
    timeout_action: TimeoutAction = "REJECT"
    default_timeout_microseconds: int = 0
    allow_timeout_override: bool = False
    max_queue_size: int = 0


@strict
class _Batching:
    preferred_batch_size: tuple[int, ...] = ()
    max_queue_delay_microseconds: int = 0
    preserve_ordering: bool = False
    priority_levels: int = 0
    default_priority_level: int = 0
    default_queue_policy: _Policy = field(default_factory=_Policy)
    priority_queue_policy: dict[int, _Policy] = field(default_factory=dict)


@strict
class _Model:
    time: dict[str, str]
    max_batch_size: int = 1
    instances: int = 1
    gpus: tuple[int, ...] | None = None
    dynamic_batching: _Batching | None = None


@strict
class _Step:
    model: str
    after: tuple[str, ...] | None = None


@strict
class _Traffic:
    to: str
    rate: float | None = None
    concurrency: int | None = None
    items: int = 1
    priority: int = 0
    timeout_microseconds: int = 0
    turnaround_microseconds: int = 0


@strict
class _Server:
    models: dict[str, _Model]
    pipelines: dict[str, tuple[str | _Step, ...]] = field(default_factory=dict)
    gpus: int = 1
    overlap: float = 0.0


@strict
class _File:
    service: _Server
    traffic: tuple[_Traffic, ...]
    title: str = ""
    latency: str | tuple[str, ...] = ()


def is_service(path: Path | str) -> bool:
    """Whether a file holds a service of models that are not LLMs: it has the key ``service``; one that is not there holds none.

    Raises:
        InputError: neither YAML nor JSON.
    """
    if not os.path.exists(path):
        return False
    document = parse_yaml(read_text(str(path), "scenario"), str(path))
    return isinstance(document, dict) and "service" in document


def read_service(path: Path | str) -> Service:
    """The service of a file.

    Raises:
        InputErrors: everything in it that cannot be used.
    """
    where = str(path)
    return service_of(parse_yaml(read_text(where, "service"), where), where)


def service_of(document: Mapping[str, Any], where: str) -> Service:
    """The same from nested values.

    Args:
        document: as a file holds it.
        where: the file, for messages.

    Raises:
        InputErrors: everything in it that cannot be used.
    """
    asked = read_as(_File, document, where, InputErrors)
    faults = [f"{where}: {fault}" for fault in _faults(asked)]
    InputErrors.raise_if(faults)
    server = asked.service
    limits = (asked.latency,) if isinstance(asked.latency, str) else asked.latency
    ways = {name: _stages(steps) for name, steps in server.pipelines.items()}
    return Service(
        title=asked.title,
        gpus=server.gpus,
        overlap=server.overlap,
        models={name: _model(name, model, server.gpus) for name, model in server.models.items()},
        streams=tuple(_stream(one, ways) for one in asked.traffic),
        limits=tuple(parse_limit("e2e", text) for text in limits),
    )


def _faults(asked: _File) -> list[str]:
    server = asked.service
    found = []
    if not 1 <= server.gpus <= MOST_GPUS:
        found.append(f"service.gpus: {server.gpus} is not possible; write a number from 1 to {MOST_GPUS}")
    if not 0 <= server.overlap <= 1:
        found.append(f"service.overlap: {server.overlap:g} is not possible; write 0 where batches on a GPU take turns, up to 1")
    if not asked.traffic:
        found.append("traffic: is empty; write for example [{to: MODEL, rate: 100}]")
    for name, model in server.models.items():
        found += [f"service.models.{name}.{fault}" for fault in _model_faults(model, server.gpus)]
    for name, steps in server.pipelines.items():
        found += [f"service.pipelines.{name}: {fault}" for fault in _pipeline_faults(name, steps, server)]
    for place, one in enumerate(asked.traffic, 1):
        found += [f"traffic[{place}].{fault}" for fault in _traffic_faults(one, server)]
    return found


def _model_faults(model: _Model, gpus: int) -> list[str]:
    found = []
    if not 1 <= model.instances <= MOST_INSTANCES:
        found.append(f"instances: {model.instances} is not possible; write a number from 1 to {MOST_INSTANCES}")
    if model.max_batch_size < 1:
        found.append(f"max_batch_size: {model.max_batch_size} is not possible; write 1 or more")
    if model.gpus is not None and (not model.gpus or any(not 0 <= gpu < gpus for gpu in model.gpus)):
        found.append(f"gpus: {list(model.gpus)} are not on a server of {gpus}; count them from 0")
    try:
        _time(model.time)
    except InputError as error:
        found.append(f"time: {error.marked}")
    if model.dynamic_batching is not None:
        found += [f"dynamic_batching.{fault}" for fault in _batching_faults(model.dynamic_batching, model.max_batch_size)]
    return found


def _batching_faults(batching: _Batching, most: int) -> list[str]:
    found = []
    if any(not 1 <= size <= most for size in batching.preferred_batch_size):
        found.append(f"preferred_batch_size: {list(batching.preferred_batch_size)} must lie between 1 and max_batch_size, {most}")
    policies = (batching.default_queue_policy, *batching.priority_queue_policy.values())
    times = [batching.max_queue_delay_microseconds, *(policy.default_timeout_microseconds for policy in policies)]
    if min(times) < 0 or any(policy.max_queue_size < 0 for policy in policies):
        found.append("max_queue_delay_microseconds, default_timeout_microseconds and max_queue_size: are 0 or more")
    levels = batching.priority_levels
    if levels > 0 and not 1 <= batching.default_priority_level <= levels:
        found.append(f"default_priority_level: {batching.default_priority_level} is none of the {levels} levels; write 1 to {levels}")
    if any(not 1 <= level <= levels for level in batching.priority_queue_policy):
        found.append(f"priority_queue_policy: {sorted(batching.priority_queue_policy)} are not among the {levels} priority_levels")
    return found


def _pipeline_faults(name: str, steps: tuple[str | _Step, ...], server: _Server) -> list[str]:
    found = [f"'{name}' is a model too; give the pipeline another name"] if name in server.models else []
    if not steps:
        found.append("is empty; write the names of its models in order")
    before: set[str] = set()
    for step in steps:
        model = step if isinstance(step, str) else step.model
        after = () if isinstance(step, str) else step.after or ()
        if model not in server.models:
            found.append(f"'{model}' is none of {', '.join(server.models)}")
        found += [f"'{model}' comes after '{one}', which is no earlier step" for one in after if one not in before]
        before.add(model)
    return found


def _traffic_faults(one: _Traffic, server: _Server) -> list[str]:
    found = []
    if one.to not in server.models and one.to not in server.pipelines:
        found.append(f"to: '{one.to}' is none of {', '.join((*server.models, *server.pipelines))}")
        return found
    if (one.rate is None) == (one.concurrency is None):
        found.append("rate, concurrency: give one of the two, requests per second or clients of a closed loop")
    if one.rate is not None and not one.rate > 0:
        found.append(f"rate: {one.rate:g} is not a rate; write requests per second above 0")
    if one.concurrency is not None and one.concurrency < 1:
        found.append(f"concurrency: {one.concurrency} is not a number of clients; write 1 or more")
    if min(one.timeout_microseconds, one.turnaround_microseconds) < 0:
        found.append("timeout_microseconds, turnaround_microseconds: are 0 or more")
    steps = server.pipelines.get(one.to, (one.to,))
    models = [server.models[name] for step in steps if (name := step if isinstance(step, str) else step.model) in server.models]
    least = min((model.max_batch_size for model in models), default=1)
    if not 1 <= one.items <= least:
        found.append(f"items: {one.items} do not fit a batch; write 1 to {least}, the least max_batch_size on the way")
    levels = [model.dynamic_batching.priority_levels for model in models if model.dynamic_batching is not None]
    if one.priority and not 1 <= one.priority <= min(levels, default=0):
        found.append(f"priority: {one.priority} is no priority level of every model on the way ({min(levels, default=0)} levels)")
    return found


def _time(written: dict[str, str]) -> ServiceTime:
    """A table of durations by batch size, or ``fixed`` and ``each``.

    Raises:
        InputError: neither of the two, or a batch that would take no time.
    """
    if set(written) == {"fixed", "each"}:
        fixed, each = (parse_duration(written[name], name) for name in ("fixed", "each"))
        rows = [(1, fixed + each), (2, fixed + 2 * each)]
    else:
        if not written or any(not size.isdecimal() or int(size) < 1 for size in written):
            raise InputError("write durations by batch size, such as {1: 3ms, 8: 9ms}, or {fixed: 2ms, each: 1ms}")
        rows = sorted((int(size), parse_duration(text, size)) for size, text in written.items())
    sizes, seconds = tuple(size for size, _ in rows), tuple(time for _, time in rows)
    if min(seconds) <= 0 or any(later < sooner for sooner, later in pairwise(seconds)):
        raise InputError("batch times must be above 0 s and must not decrease as the batch grows")
    return ServiceTime(sizes=sizes, seconds=seconds)


def _model(name: str, asked: _Model, gpus: int) -> ServedModel:
    return ServedModel(
        name=name,
        time=_time(asked.time),
        max_batch_size=asked.max_batch_size,
        instances=asked.instances,
        gpus=tuple(range(gpus)) if asked.gpus is None else asked.gpus,
        batching=None if asked.dynamic_batching is None else _batching(asked.dynamic_batching),
    )


def _batching(asked: _Batching) -> DynamicBatching:
    return DynamicBatching(
        preferred=tuple(sorted(set(asked.preferred_batch_size))),
        delay_s=asked.max_queue_delay_microseconds / 1e6,
        preserve_ordering=asked.preserve_ordering,
        levels=asked.priority_levels,
        default_level=asked.default_priority_level,
        policy=_policy(asked.default_queue_policy),
        policies={level: _policy(policy) for level, policy in asked.priority_queue_policy.items()},
    )


def _policy(asked: _Policy) -> QueuePolicy:
    return QueuePolicy(
        timeout_action=asked.timeout_action,
        timeout_s=asked.default_timeout_microseconds / 1e6,
        allow_timeout_override=asked.allow_timeout_override,
        max_queue_size=asked.max_queue_size,
    )


def _stages(steps: tuple[str | _Step, ...]) -> tuple[Stage, ...]:
    """The steps with the places of those that they wait for: the one before, unless a step says which."""
    found: list[Stage] = []
    places: dict[str, int] = {}
    for place, step in enumerate(steps):
        if isinstance(step, str) or step.after is None:
            after: tuple[int, ...] = (place - 1,) if place else ()
        else:
            after = tuple(places[name] for name in step.after)
        model = step if isinstance(step, str) else step.model
        places[model] = place
        found.append(Stage(model=model, after=after))
    return tuple(found)


def _stream(asked: _Traffic, ways: dict[str, tuple[Stage, ...]]) -> Stream:
    return Stream(
        name=asked.to,
        stages=ways.get(asked.to, (Stage(model=asked.to, after=()),)),
        rate=asked.rate or 0.0,
        concurrency=asked.concurrency or 0,
        items=asked.items,
        level=asked.priority,
        timeout_s=asked.timeout_microseconds / 1e6,
        turnaround_s=asked.turnaround_microseconds / 1e6,
    )
