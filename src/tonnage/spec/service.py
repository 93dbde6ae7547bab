"""A service of models that are not LLMs: how long a batch takes, how requests are batched, and
which models a request passes through.

The names of the settings are those of Triton's model configuration, so that what is in a
``config.pbtxt`` can be written here.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise, product
from math import prod
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
    """Seconds that a batch takes on an otherwise idle GPU, by its size in items."""

    sizes: tuple[int, ...]  # batch sizes in rising order, the first of which is 1 or more
    # of each; between two sizes the time is on the line between them, below the first it is that of
    # the first, and beyond the last it goes on along the last line
    seconds: tuple[float, ...]

    def of(self, items: int) -> float:
        """Seconds of a batch of so many items."""
        sizes, seconds = self.sizes, self.seconds
        if items <= sizes[0] or len(sizes) == 1:
            return seconds[0]
        right = min(bisect_left(sizes, items), len(sizes) - 1)
        share = (items - sizes[right - 1]) / (sizes[right] - sizes[right - 1])
        return seconds[right - 1] + share * (seconds[right] - seconds[right - 1])


@strict
class QueuePolicy:
    """Triton's ModelQueuePolicy of one priority level, as its configuration writes it; 0 for
    none.
    """

    # REJECT ends a request that has waited too long; DELAY puts it behind the others of its level
    timeout_action: TimeoutAction = "REJECT"
    default_timeout_microseconds: int = 0  # how long a request may wait
    allow_timeout_override: bool = False  # whether a request may bring a shorter timeout
    # requests that wait at once; a further one is rejected; 0 for any number
    max_queue_size: int = 0


@strict
class DynamicBatching:
    """Triton's ModelDynamicBatching, as its configuration writes it."""

    # in items; without any, the maximum batch size is the only one
    preferred_batch_size: tuple[int, ...] = ()
    max_queue_delay_microseconds: int = 0  # how long a request may wait for others to fill a batch
    preserve_ordering: bool = False  # whether answers leave in the order in which requests came
    priority_levels: int = 0  # of which 1 is served first; 0 for a single queue
    default_priority_level: int = 0  # of requests that bring none
    # of every level that ``priority_queue_policy`` does not name
    default_queue_policy: QueuePolicy = field(default_factory=QueuePolicy)
    priority_queue_policy: dict[int, QueuePolicy] = field(default_factory=dict)  # by level

    @property
    def policies(self) -> tuple[QueuePolicy, ...]:
        """Every policy that a request may meet."""
        return self.default_queue_policy, *self.priority_queue_policy.values()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """An input or output of a model, by the names of the v2 protocol; ``dims`` of one item, -1 for
    any length.
    """

    name: str
    data_type: str
    dims: tuple[int, ...]


@strict
class Choices:
    """Values of a model's settings to choose among; an empty tuple keeps the setting as it is."""

    instances: tuple[int, ...] = ()  # copies on each of its GPUs
    max_batch_size: tuple[int, ...] = ()  # items of one batch
    max_queue_delay_microseconds: tuple[int, ...] = ()  # of dynamic batching


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """One model of a service."""

    name: str
    time: ServiceTime  # seconds by batch size
    max_batch_size: int  # items of one batch
    instances: int  # copies on each of its GPUs, each of which computes one batch at a time
    gpus: tuple[int, ...]  # numbers of the GPUs that it is on, from 0
    # dynamic batching; None where every request is computed by itself
    batching: DynamicBatching | None
    choices: Choices = field(default_factory=Choices)  # settings that the sizing may change
    backend: str = ""  # Triton's name of what runs it, for ``deploy``
    # inputs, outputs: its tensors, for ``deploy``; empty where the backend reads them from the
    # model's file
    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One step of a pipeline (Triton's ensemble, or a script of its business logic)."""

    model: str  # that computes it
    # places of the stages that must have ended before it begins; it begins at once without any
    after: tuple[int, ...]
    # of the requests that come to it, how many take it; the others pass it by in no time
    share: float = 1.0
    again: float = 0.0  # after each pass, the share that goes through it once more
    # places of the stages of which a request that takes this one takes none
    instead_of: tuple[int, ...] = ()


def passes(stages: tuple[Stage, ...]) -> tuple[float, ...]:
    """How often a request goes through each stage on average: the sum over every outcome of the
    draws.
    """
    drawn = [place for place, stage in enumerate(stages) if stage.share < 1]
    means = [0.0] * len(stages)
    for outcome in product((True, False), repeat=len(drawn)):
        yes = dict(zip(drawn, outcome, strict=True))
        weight = prod(
            stages[place].share if yes[place] else 1 - stages[place].share for place in drawn
        )
        for place, passed in enumerate(taken_stages(stages, yes)):
            means[place] += weight * passed / (1 - stages[place].again)
    return tuple(means)


def taken_stages(stages: tuple[Stage, ...], drawn: Mapping[int, bool]) -> list[bool]:
    """The stages that a request takes, by the draws of those with a share below 1."""
    reached: list[bool] = []
    for place, stage in enumerate(stages):
        reached.append(
            not any(reached[alternative] for alternative in stage.instead_of)
            and drawn.get(place, True)
        )
    return reached


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """Requests of one kind."""

    name: str  # of the model or pipeline that they are sent to
    stages: tuple[Stage, ...]  # the way that each takes; a model by itself is one stage
    # requests per second of an open loop with Poisson arrivals; 0 in a closed loop
    rate: float = 0.0
    # clients of a closed loop, each with one request in flight; 0 in an open loop
    concurrency: int = 0
    items: int = 1  # items of one request, such as images
    level: int = 0  # priority level; 0 for the default one
    timeout_s: float = 0.0  # that requests bring; 0 for none
    turnaround_s: float = 0.0  # from an answer to the client's next request, in a closed loop


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """Models on the GPUs of one server, and the limits of their latencies."""

    title: str  # in a few words
    gpus: int  # of the server; its models share one queue each over all of them
    # how much batches on one GPU gain from one another: k at once work at 1 + overlap·(k − 1) times
    # the speed of one alone, in equal shares; 0 where they take turns, 1 where none slows another
    overlap: float
    models: dict[str, ServedModel]  # by name
    streams: tuple[Stream, ...]  # the requests
    limits: Slo = ()  # on the time from request to answer


# Reads a service from a YAML or JSON file; every fault is reported at once, each with its place.


MOST_BRANCHES = 10
MOST_GPUS = 64
MOST_INSTANCES = 64


@strict
class _Model:
    time: dict[str, str]
    max_batch_size: int = 1
    instances: int = 1
    gpus: tuple[int, ...] | None = None
    dynamic_batching: DynamicBatching | None = None
    search: Choices = field(default_factory=Choices)
    backend: str = ""
    inputs: dict[str, str] = field(default_factory=dict)
    outputs: dict[str, str] = field(default_factory=dict)


@strict
class _Step:
    model: str
    after: tuple[str, ...] | None = None
    share: float = 1.0
    again: float = 0.0
    instead_of: str | tuple[str, ...] = ()


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
    """Whether a file holds a service of models that are not LLMs: it has the key ``service``; one
    that is not there holds none.

    Raises InputError: neither YAML nor JSON.
    """
    if not os.path.exists(path):
        return False
    document = parse_yaml(read_text(str(path), "scenario"), str(path))
    return isinstance(document, dict) and "service" in document


def read_service(path: Path | str) -> Service:
    """The service of a file. Raises InputErrors: everything in it that cannot be used."""
    where = str(path)
    return service_of(parse_yaml(read_text(where, "service"), where), where)


def service_of(document: Mapping[str, Any], where: str) -> Service:
    """Read a service from nested values. Raises InputErrors: all in it that cannot be used."""
    file = read_as(_File, document, where, InputErrors)
    faults = [f"{where}: {fault}" for fault in _faults(file)]
    InputErrors.raise_if(faults)
    server = file.service
    limits = (file.latency,) if isinstance(file.latency, str) else file.latency
    ways = {name: _stages(steps) for name, steps in server.pipelines.items()}
    return Service(
        title=file.title,
        gpus=server.gpus,
        overlap=server.overlap,
        models={name: _model(name, model, server.gpus) for name, model in server.models.items()},
        streams=tuple(_stream(traffic, ways) for traffic in file.traffic),
        limits=tuple(parse_limit("e2e", text) for text in limits),
    )


NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,62}", re.ASCII)
"""Names of models and pipelines: those of folders, of Kubernetes' objects and of words of a
shell."""

NO_NAME = (
    "is no name; write letters, digits, hyphens, underscores and dots, at most 63, a letter or"
    " digit first"
)

TENSOR_NAME = re.compile(r"[\w./:-]{1,200}", re.ASCII)


def _faults(file: _File) -> list[str]:
    server = file.service
    faults = []
    if not 1 <= server.gpus <= MOST_GPUS:
        faults.append(
            f"service.gpus: {server.gpus} is not possible; write a number from 1 to {MOST_GPUS}"
        )
    if not 0 <= server.overlap <= 1:
        faults.append(
            f"service.overlap: {server.overlap:g} is not possible; write 0 where batches on a GPU"
            " take turns, up to 1"
        )
    if not file.traffic:
        faults.append("traffic: is empty; write for example [{to: MODEL, rate: 100}]")
    for kind, names in (("models", server.models), ("pipelines", server.pipelines)):
        faults += [
            f"service.{kind}: {name[:40]!r} {NO_NAME}"
            for name in names
            if NAME.fullmatch(name) is None
        ]
    for name, model in server.models.items():
        faults += [f"service.models.{name}.{fault}" for fault in _model_faults(model, server.gpus)]
    for name, steps in server.pipelines.items():
        faults += [
            f"service.pipelines.{name}: {fault}" for fault in _pipeline_faults(name, steps, server)
        ]
    for place, traffic in enumerate(file.traffic, 1):
        faults += [f"traffic[{place}].{fault}" for fault in _traffic_faults(traffic, server)]
    return faults


def _model_faults(model: _Model, gpus: int) -> list[str]:
    faults = []
    if not 1 <= model.instances <= MOST_INSTANCES:
        faults.append(
            f"instances: {model.instances} is not possible; write a number from 1 to"
            f" {MOST_INSTANCES}"
        )
    if model.max_batch_size < 1:
        faults.append(f"max_batch_size: {model.max_batch_size} is not possible; write 1 or more")
    if model.gpus is not None and (
        not model.gpus or any(not 0 <= gpu < gpus for gpu in model.gpus)
    ):
        faults.append(f"gpus: {list(model.gpus)} are not on a server of {gpus}; count them from 0")
    try:
        _time(model.time)
    except InputError as error:
        faults.append(f"time: {error.marked}")
    if model.dynamic_batching is not None:
        faults += [
            f"dynamic_batching.{fault}"
            for fault in _batching_faults(model.dynamic_batching, model.max_batch_size)
        ]
    faults += _search_faults(model)
    for kind, tensors in (("inputs", model.inputs), ("outputs", model.outputs)):
        faults += [
            f"{kind}.{name}: '{text}' is no tensor; write its type and the dimensions of one item,"
            " such as FP32[3,224,224]"
            for name, text in tensors.items()
            if read_tensor(name, text) is None
        ]
        faults += [
            f"{kind}: {name[:40]!r} is no name of a tensor"
            for name in tensors
            if TENSOR_NAME.fullmatch(name) is None
        ]
    return faults


def _search_faults(model: _Model) -> list[str]:
    search, batching = model.search, model.dynamic_batching
    faults = []
    if any(not 1 <= count <= MOST_INSTANCES for count in search.instances):
        faults.append(
            f"search.instances: {list(search.instances)} are not possible; write numbers from 1 to"
            f" {MOST_INSTANCES}"
        )
    least = max((1, *(batching.preferred_batch_size if batching is not None else ())))
    if any(size < least for size in search.max_batch_size):
        faults.append(
            f"search.max_batch_size: {list(search.max_batch_size)} must be {least} or more, as"
            " preferred_batch_size is"
        )
    if search.max_queue_delay_microseconds and batching is None:
        faults.append(
            "search.max_queue_delay_microseconds: needs dynamic_batching; add dynamic_batching: {}"
        )
    if any(delay < 0 for delay in search.max_queue_delay_microseconds):
        faults.append("search.max_queue_delay_microseconds: delays are 0 or more")
    return faults


def _batching_faults(batching: DynamicBatching, largest_batch: int) -> list[str]:
    faults = []
    if any(not 1 <= size <= largest_batch for size in batching.preferred_batch_size):
        faults.append(
            f"preferred_batch_size: {list(batching.preferred_batch_size)} must lie between 1 and"
            f" max_batch_size, {largest_batch}"
        )
    times = [
        batching.max_queue_delay_microseconds,
        *(policy.default_timeout_microseconds for policy in batching.policies),
    ]
    if min(times) < 0 or any(policy.max_queue_size < 0 for policy in batching.policies):
        faults.append(
            "max_queue_delay_microseconds, default_timeout_microseconds and max_queue_size: are 0"
            " or more"
        )
    levels = batching.priority_levels
    if levels > 0 and not 1 <= batching.default_priority_level <= levels:
        faults.append(
            f"default_priority_level: {batching.default_priority_level} is none of the {levels}"
            f" levels; write 1 to {levels}"
        )
    if any(not 1 <= level <= levels for level in batching.priority_queue_policy):
        faults.append(
            f"priority_queue_policy: {sorted(batching.priority_queue_policy)} are not among the"
            f" {levels} priority_levels"
        )
    return faults


def _pipeline_faults(name: str, steps: tuple[str | _Step, ...], server: _Server) -> list[str]:
    faults = (
        [f"'{name}' is a model too; give the pipeline another name"]
        if name in server.models
        else []
    )
    if not steps:
        faults.append("is empty; write the names of its models in order")
    if sum(isinstance(step, _Step) and step.share < 1 for step in steps) > MOST_BRANCHES:
        faults.append(
            f"has more than {MOST_BRANCHES} steps with a share; split it into several pipelines"
        )
    before: set[str] = set()
    for step in steps:
        model = step if isinstance(step, str) else step.model
        after = () if isinstance(step, str) else step.after or ()
        if model not in server.models:
            faults.append(f"'{model}' is none of {', '.join(server.models)}")
        faults += [
            f"'{model}' comes after '{earlier}', which is no earlier step"
            for earlier in after
            if earlier not in before
        ]
        if isinstance(step, _Step):
            faults += _chance_faults(step, before)
        before.add(model)
    return faults


def _chance_faults(step: _Step, before: set[str]) -> list[str]:
    faults = []
    if not 0 < step.share <= 1:
        faults.append(
            f"'{step.model}' has the share {step.share:g}; write a number above 0, and 1 where"
            " every request takes it"
        )
    if not 0 <= step.again < 1:
        faults.append(
            f"'{step.model}' has again: {step.again:g}; write the share that goes through it once"
            " more, 0 or more and below 1"
        )
    faults += [
        f"'{step.model}' is instead of '{name}', which is no earlier step"
        for name in _names(step.instead_of)
        if name not in before
    ]
    return faults


def _names(written: str | tuple[str, ...]) -> tuple[str, ...]:
    return (written,) if isinstance(written, str) else written


def _traffic_faults(traffic: _Traffic, server: _Server) -> list[str]:
    faults = []
    if traffic.to not in server.models and traffic.to not in server.pipelines:
        faults.append(
            f"to: '{traffic.to}' is none of {', '.join((*server.models, *server.pipelines))}"
        )
        return faults
    if (traffic.rate is None) == (traffic.concurrency is None):
        faults.append(
            "rate, concurrency: give one of the two, requests per second or clients of a closed"
            " loop"
        )
    if traffic.rate is not None and not traffic.rate > 0:
        faults.append(f"rate: {traffic.rate:g} is not a rate; write requests per second above 0")
    if traffic.concurrency is not None and traffic.concurrency < 1:
        faults.append(
            f"concurrency: {traffic.concurrency} is not a number of clients; write 1 or more"
        )
    if min(traffic.timeout_microseconds, traffic.turnaround_microseconds) < 0:
        faults.append("timeout_microseconds, turnaround_microseconds: are 0 or more")
    steps = server.pipelines.get(traffic.to, (traffic.to,))
    models = [
        server.models[name]
        for step in steps
        if (name := step if isinstance(step, str) else step.model) in server.models
    ]
    least = min(
        (
            size
            for model in models
            for size in model.search.max_batch_size or (model.max_batch_size,)
        ),
        default=1,
    )
    if not 1 <= traffic.items <= least:
        faults.append(
            f"items: {traffic.items} do not fit a batch; write 1 to {least}, the least"
            " max_batch_size on the way"
        )
    levels = [
        model.dynamic_batching.priority_levels
        for model in models
        if model.dynamic_batching is not None
    ]
    if traffic.priority and not 1 <= traffic.priority <= min(levels, default=0):
        faults.append(
            f"priority: {traffic.priority} is no priority level of every model on the way"
            f" ({min(levels, default=0)} levels)"
        )
    return faults


def _time(written: dict[str, str]) -> ServiceTime:
    """A table of durations by batch size, or ``fixed`` and ``each``."""
    if set(written) == {"fixed", "each"}:
        fixed, per_item = (parse_duration(written[name], name) for name in ("fixed", "each"))
        rows = [(1, fixed + per_item), (2, fixed + 2 * per_item)]
    else:
        if not written or any(re.fullmatch(r"0*[1-9]\d{0,8}", size) is None for size in written):
            raise InputError(
                "write durations by batch size, such as {1: 3ms, 8: 9ms}, or {fixed: 2ms, each:"
                " 1ms}"
            )
        rows = sorted((int(size), parse_duration(text, size)) for size, text in written.items())
    sizes, seconds = tuple(size for size, _ in rows), tuple(time for _, time in rows)
    if min(seconds) <= 0 or any(later < sooner for sooner, later in pairwise(seconds)):
        raise InputError("batch times must be above 0 s and must not decrease as the batch grows")
    return ServiceTime(sizes=sizes, seconds=seconds)


def _model(name: str, model: _Model, gpus: int) -> ServedModel:
    return ServedModel(
        name=name,
        time=_time(model.time),
        max_batch_size=model.max_batch_size,
        instances=model.instances,
        gpus=tuple(range(gpus)) if model.gpus is None else model.gpus,
        batching=model.dynamic_batching,
        choices=model.search,
        backend=model.backend,
        inputs=_tensors(model.inputs),
        outputs=_tensors(model.outputs),
    )


TENSOR = re.compile(
    r"(BOOL|U?INT(?:8|16|32|64)|FP(?:16|32|64)|BF16|BYTES)\[(-?\d{1,18}(?:,-?\d{1,18})*)\]"
)
"""A tensor of the v2 protocol: its type, and the dimensions of one item."""


def read_tensor(name: str, written: str) -> Tensor | None:
    """A tensor such as "FP32[3,224,224]"; None where it is none."""
    match = TENSOR.fullmatch(written.replace(" ", ""))
    return (
        None
        if match is None
        else Tensor(name=name, data_type=match[1], dims=tuple(map(int, match[2].split(","))))
    )


def _tensors(written: dict[str, str]) -> tuple[Tensor, ...]:
    return tuple(
        tensor for name, text in written.items() if (tensor := read_tensor(name, text)) is not None
    )


def _stages(steps: tuple[str | _Step, ...]) -> tuple[Stage, ...]:
    """The steps with the places of the steps that they wait for: the one before, unless a step says
    which.
    """
    stages: list[Stage] = []
    places: dict[str, int] = {}
    for place, step in enumerate(steps):
        if isinstance(step, str) or step.after is None:
            after: tuple[int, ...] = (place - 1,) if place else ()
        else:
            after = tuple(places[name] for name in step.after)
        if isinstance(step, str):
            stages.append(Stage(model=step, after=after))
        else:
            instead = tuple(places[name] for name in _names(step.instead_of))
            stages.append(
                Stage(
                    model=step.model,
                    after=after,
                    share=step.share,
                    again=step.again,
                    instead_of=instead,
                )
            )
        places[stages[-1].model] = place
    return tuple(stages)


def _stream(traffic: _Traffic, ways: dict[str, tuple[Stage, ...]]) -> Stream:
    return Stream(
        name=traffic.to,
        stages=ways.get(traffic.to, (Stage(model=traffic.to, after=()),)),
        rate=traffic.rate or 0.0,
        concurrency=traffic.concurrency or 0,
        items=traffic.items,
        level=traffic.priority,
        timeout_s=traffic.timeout_microseconds / 1e6,
        turnaround_s=traffic.turnaround_microseconds / 1e6,
    )
