"""One deployment of a plan: what it carries and how many of it are needed, or why it is not possible."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tonnage.spec.deployment import EngineKnobs, Parallelism

if TYPE_CHECKING:
    from tonnage.sizing.confidence import Confidence

Statistics = dict[str, float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One deployment that can carry the load, and how many of it are needed.

    Attributes:
        gpu, system: catalog ids.
        gpus_per_system: GPUs in that system.
        precision, tp, pp, dp, ep, engine, knobs: the deployment; engine_preset is the range of versions that was simulated.
        requests_per_second_per_instance: highest load of one instance inside the limits.
        saturation_requests_per_second_per_instance: what it completes when always busy.
        concurrency_per_instance: requests in flight at the highest load.
        instances: instances on the systems, spare ones included.
        systems: whole systems, spare ones included; systems_exact is without rounding and spare.
        utilisation: load at the peak over what the systems carry inside the limits.
        headroom_to_saturation: how much more than the peak they complete when always busy, as a share.
        ttft_ms, itl_ms, tpot_ms, e2e_ms: metrics at the highest load, in milliseconds; None where not measured.
        binds: the limit, or saturation, that ends the load.
        load: what the load is, in words.
        marks: which parts of the prediction rest on something else than measurements of this GPU and engine.
        memory: where the memory goes, in one line.
        accuracy_impact, calibration: what is published of the number format: "very low" to "high", and how long; "" where nothing is.
        confidence: how sure the number of systems is; None where nothing was simulated for it.
    """

    gpu: str
    system: str
    gpus_per_system: int
    precision: str
    tp: int
    pp: int
    engine: str
    knobs: EngineKnobs | None
    instances: int
    systems: int
    systems_exact: float
    requests_per_second_per_instance: float
    requests_per_second_per_gpu: float
    requests_per_second_per_8_gpus: float
    output_tokens_per_second_per_8_gpus: float | None
    saturation_requests_per_second_per_instance: float
    concurrency_per_instance: float
    utilisation: float
    headroom_to_saturation: float
    ttft_ms: Statistics
    itl_ms: Statistics
    tpot_ms: Statistics
    e2e_ms: Statistics
    binds: str
    load: str
    marks: tuple[str, ...]
    memory: str
    engine_preset: str = ""
    accuracy_impact: str = ""
    calibration: str = ""
    confidence: Confidence | None = None
    dp: int = 1
    ep: int = 1

    @property
    def parallelism(self) -> Parallelism:
        """How an instance is split."""
        return Parallelism(tp=self.tp, pp=self.pp, dp=self.dp, ep=self.ep)

    @property
    def gpus(self) -> int:
        """GPUs bought."""
        return self.systems * self.gpus_per_system

    def to_json(self) -> dict[str, Any]:
        """The candidate as JSON values."""
        return without_ones(asdict(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """A deployment that cannot carry the load, and the numbers that say so."""

    gpu: str
    precision: str
    tp: int
    pp: int
    engine: str
    reason: str
    dp: int = 1
    ep: int = 1

    @property
    def parallelism(self) -> Parallelism:
        """How an instance would be split."""
        return Parallelism(tp=self.tp, pp=self.pp, dp=self.dp, ep=self.ep)

    def to_json(self) -> dict[str, Any]:
        """The deployment and the reason as JSON values."""
        return without_ones(asdict(self))


def without_ones(values: dict[str, Any]) -> dict[str, Any]:
    """JSON values of a deployment; what only a mixture of experts has is left out where it is 1."""
    return {name: value for name, value in values.items() if name not in ("dp", "ep") or value > 1}


def mean_latency(candidate: Candidate) -> float:
    """Mean E2E in milliseconds, mean TTFT where E2E was not measured, infinite where neither was."""
    value = candidate.e2e_ms.get("mean")
    value = candidate.ttft_ms.get("mean") if value is None else value
    return math.inf if value is None else value


def by_gpus_needed(candidate: Candidate) -> tuple[float, float, float]:
    """Sort key: fewest whole GPUs, then fewest exactly, then lowest latency."""
    return (candidate.gpus, candidate.systems_exact * candidate.gpus_per_system, mean_latency(candidate))
