"""What a service of models that are not LLMs did, simulated or sized, as values to show and to
save.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from tonnage.results.metrics import Latencies


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamResult:
    """The latencies of the requests of one stream."""

    name: str  # of the model or pipeline
    asked: str  # the traffic in words
    answered_per_second: float  # answers over the time from the first request to the last answer
    items_per_second: float  # the same in items, such as images: inferences per second
    latencies: Latencies  # from request to answer, in milliseconds, of answered requests
    # requests, rejected, expired: how many came, found a full queue, or waited too long
    requests: int
    rejected: int
    expired: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelResult:
    """The work of one model: batches by size in items, and the mean time in its queue."""

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
        """Convert to JSON values."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSweep:
    """A service under several loads, one after another."""

    unit: str  # what the loads count: "clients" or "requests/s"
    loads: tuple[float, ...]  # one for each point
    points: tuple[ServiceResult, ...]  # the result at each

    def to_json(self) -> dict[str, Any]:
        """Convert to JSON values."""
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
    """One combination of settings, and the servers that it needs."""

    settings: tuple[ModelSettings, ...]  # of each model
    # how many; 0 where no number helps, None where it needs more than the answer
    servers: int | None
    least: int  # servers by arithmetic alone
    use: float | None  # largest share of a limit that requests see; None where the number is
    chosen: bool  # whether it is the answer


@dataclass(frozen=True, slots=True, kw_only=True)
class SizedService:
    """A sized service: its number of servers, what each of them does, the limits in words, and the
    settings that were compared.
    """

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
        """Convert to JSON values."""
        return asdict(self)
