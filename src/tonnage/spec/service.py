"""A service of models that are not LLMs: how long a batch takes, how requests are batched, and which models a request passes through.

The names of the settings are those of Triton's model configuration, so that what is in a ``config.pbtxt`` can be written here.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import Literal

from tonnage.spec.deployment import Slo
from tonnage.spec.typed_values import strict

TimeoutAction = Literal["REJECT", "DELAY"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceTime:
    """Seconds that a batch takes on an otherwise idle GPU, by its size in items."""

    sizes: tuple[int, ...]  # batch sizes in rising order, the first of which is 1 or more
    # of each; between two sizes the time is on the line between them, below the first it is that of the first, and beyond the last it goes
    # on along the last line
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
    """Triton's ModelQueuePolicy of one priority level, as its configuration writes it; 0 for none."""

    timeout_action: TimeoutAction = "REJECT"  # REJECT ends a request that has waited too long; DELAY puts it behind the others of its level
    default_timeout_microseconds: int = 0  # how long a request may wait
    allow_timeout_override: bool = False  # whether a request may bring a shorter timeout
    max_queue_size: int = 0  # requests that wait at once; a further one is rejected; 0 for any number


@strict
class DynamicBatching:
    """Triton's ModelDynamicBatching, as its configuration writes it."""

    preferred_batch_size: tuple[int, ...] = ()  # in items; without any, the maximum batch size is the only one
    max_queue_delay_microseconds: int = 0  # how long a request may wait for others to fill a batch
    preserve_ordering: bool = False  # whether answers leave in the order in which requests came
    priority_levels: int = 0  # of which 1 is served first; 0 for a single queue
    default_priority_level: int = 0  # of requests that bring none
    default_queue_policy: QueuePolicy = field(default_factory=QueuePolicy)  # of every level that ``priority_queue_policy`` does not name
    priority_queue_policy: dict[int, QueuePolicy] = field(default_factory=dict)  # by level

    @property
    def policies(self) -> tuple[QueuePolicy, ...]:
        """Every policy that a request may meet."""
        return self.default_queue_policy, *self.priority_queue_policy.values()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """An input or output of a model, by the names of the v2 protocol; ``dims`` of one item, -1 for any length."""

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
    batching: DynamicBatching | None  # dynamic batching; None where every request is computed by itself
    choices: Choices = field(default_factory=Choices)  # settings that the sizing may change
    backend: str = ""  # Triton's name of what runs it, for ``deploy``
    # inputs, outputs: its tensors, for ``deploy``; empty where the backend reads them from the model's file
    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One step of a pipeline (Triton's ensemble, or a script of its business logic)."""

    model: str  # that computes it
    after: tuple[int, ...]  # places of the stages that must have ended before it begins; it begins at once without any
    share: float = 1.0  # of the requests that come to it, how many take it; the others pass it by in no time
    again: float = 0.0  # after each pass, the share that goes through it once more
    instead_of: tuple[int, ...] = ()  # places of the stages of which a request that takes this one takes none


def passes(stages: tuple[Stage, ...]) -> tuple[float, ...]:
    """How often a request goes through each stage on average: the sum over every outcome of the draws."""
    drawn = [place for place, stage in enumerate(stages) if stage.share < 1]
    means = [0.0] * len(stages)
    for outcome in product((True, False), repeat=len(drawn)):
        yes = dict(zip(drawn, outcome, strict=True))
        weight = prod(stages[place].share if yes[place] else 1 - stages[place].share for place in drawn)
        for place, taken in enumerate(taken_stages(stages, yes)):
            means[place] += weight * taken / (1 - stages[place].again)
    return tuple(means)


def taken_stages(stages: tuple[Stage, ...], drawn: Mapping[int, bool]) -> list[bool]:
    """Which stages a request takes, by the draws of those with a share below 1."""
    taken: list[bool] = []
    for place, stage in enumerate(stages):
        taken.append(not any(taken[other] for other in stage.instead_of) and drawn.get(place, True))
    return taken


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """Requests of one kind."""

    name: str  # of the model or pipeline that they are sent to
    stages: tuple[Stage, ...]  # the way that each takes; a model by itself is one stage
    rate: float = 0.0  # requests per second of an open loop with Poisson arrivals; 0 in a closed loop
    concurrency: int = 0  # clients of a closed loop, each with one request in flight; 0 in an open loop
    items: int = 1  # items of one request, such as images
    level: int = 0  # priority level; 0 for the default one
    timeout_s: float = 0.0  # that requests bring; 0 for none
    turnaround_s: float = 0.0  # from an answer to the client's next request, in a closed loop


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """Models on the GPUs of one server, and the limits of their latencies."""

    title: str  # in a few words
    gpus: int  # of the server; its models share one queue each over all of them
    # how much batches on one GPU gain from one another: k at once work at 1 + overlap·(k − 1) times the speed of one alone, in equal
    # shares; 0 where they take turns, 1 where none slows another
    overlap: float
    models: dict[str, ServedModel]  # by name
    streams: tuple[Stream, ...]  # the requests
    limits: Slo = ()  # on the time from request to answer
