"""What a service of models that are not LLMs did, simulated or sized, as values to show and to save."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from tonnage.results.metrics import Latencies


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamResult:
    """What the requests of one stream saw.

    Attributes:
        name: of the model or pipeline.
        asked: the traffic in words.
        answered_per_second: answers over the time from the first request to the last answer.
        items_per_second: the same in items, such as images: inferences per second.
        latencies: from request to answer, in milliseconds, of those that were answered.
        requests, rejected, expired: how many came, found a full queue, or waited too long.
    """

    name: str
    asked: str
    answered_per_second: float
    items_per_second: float
    latencies: Latencies
    requests: int
    rejected: int
    expired: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelResult:
    """What one model did: batches by size in items, and the mean time in its queue."""

    name: str
    batches: dict[int, int]
    mean_batch: float
    waited_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceResult:
    """A simulated service."""

    title: str
    streams: tuple[StreamResult, ...]
    models: tuple[ModelResult, ...]
    busy: tuple[float, ...]

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSweep:
    """A service under several loads, one after another.

    Attributes:
        unit: what the loads count: "clients" or "requests/s".
        loads: one for each point.
        points: the result at each.
    """

    unit: str
    loads: tuple[float, ...]
    points: tuple[ServiceResult, ...]

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """The settings of one model that a sizing may choose."""

    model: str
    instances: int
    max_batch_size: int
    max_queue_delay_microseconds: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedSettings:
    """One combination of settings, and the servers that it needs.

    Attributes:
        settings: of each model.
        servers: how many; 0 where no number helps, None where it needs more than the answer.
        least: servers by arithmetic alone.
        use: largest share of a limit that requests see; None where the number is.
        chosen: whether it is the answer.
    """

    settings: tuple[ModelSettings, ...]
    servers: int | None
    least: int
    use: float | None
    chosen: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SizedService:
    """A sized service: so many servers, what one of them does, the limits in words, and the settings that were compared."""

    run: ServiceResult
    servers: int
    gpus: int
    gpus_each: int
    least: int
    met: tuple[str, ...]
    one_fewer: tuple[str, ...]
    looked: tuple[int, ...]
    tried: tuple[TriedSettings, ...] = ()
    curve: ServiceSweep | None = None

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)
