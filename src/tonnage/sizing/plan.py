"""The answer of a sizing: what was chosen, what else was possible, and why the rest was not.

A plan is one JSON object; later commands read it and nothing else carries a decision.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tonnage.sizing.demand import Demand
from tonnage.spec.deployment import EngineKnobs, Parallelism

if TYPE_CHECKING:
    from tonnage.sizing.advice import Warned
    from tonnage.sizing.confidence import Confidence
    from tonnage.sizing.curve import CurvePoint
    from tonnage.sizing.existing import Existing
    from tonnage.sizing.explain import Explanation
    from tonnage.sizing.pareto import ParetoPoint
    from tonnage.sizing.sensitivity import Sensitivity
    from tonnage.sizing.whole_fleet import FleetCheck

SCHEMA = "tonnage-plan/1"

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The whole answer.

    Attributes:
        scenario: the question as JSON values.
        demand: where the peak came from.
        candidates: every deployment inside the limits, best first.
        rejected: every other one.
        notes: what a reader must know about the numbers, one sentence each.
        percentile_answer: the course's percentile sizing beside the simulated one; None unless asked.
        provenance: version, coefficients, data, seed, command.
        curve: what the choice does at every load up to saturation; empty where nothing was chosen or simulated.
        pareto: every candidate as GPUs and cost against latency.
        explain: why the choice is where it is.
        sensitivity: what would change the answer.
        warnings: rules of thumb that the answer runs against.
        fleet_check: the whole fleet simulated at its peak.
        existing: what systems that exist carry; None unless asked.
        confidence: how sure the number of systems of the choice is; None where nothing was chosen or simulated.
    """

    scenario: dict[str, Any]
    demand: Demand
    candidates: tuple[Candidate, ...]
    rejected: tuple[Rejected, ...]
    notes: tuple[str, ...]
    percentile_answer: dict[str, Any] | None
    provenance: dict[str, Any]
    curve: tuple[CurvePoint, ...] = ()
    pareto: tuple[ParetoPoint, ...] = ()
    explain: Explanation | None = None
    sensitivity: Sensitivity | None = None
    warnings: tuple[Warned, ...] = ()
    fleet_check: FleetCheck | None = None
    existing: Existing | None = None
    confidence: Confidence | None = None

    @property
    def choice(self) -> Candidate | None:
        """The candidate that needs the fewest GPUs; None when nothing meets the limits."""
        return self.candidates[0] if self.candidates else None

    @property
    def throughput_optimal(self) -> Candidate | None:
        """The candidate with the most requests per second per GPU."""
        return max(self.candidates, key=lambda c: c.requests_per_second_per_gpu, default=None)

    @property
    def latency_optimal(self) -> Candidate | None:
        """The candidate with the lowest mean E2E at its highest load (mean TTFT where E2E was not measured)."""
        return min(self.candidates, key=_latency, default=None)

    def to_json(self) -> dict[str, Any]:
        """The plan as one JSON object."""

        def one(candidate: Candidate | None) -> dict[str, Any] | None:
            return None if candidate is None else candidate.to_json()

        return {
            "schema": SCHEMA,
            "scenario": self.scenario,
            "demand": asdict(self.demand),
            "choice": one(self.choice),
            "choices": {"latency_optimal": one(self.latency_optimal), "throughput_optimal": one(self.throughput_optimal)},
            "candidates": [c.to_json() for c in self.candidates],
            "rejected": [r.to_json() for r in self.rejected],
            "notes": list(self.notes),
            "percentile_answer": self.percentile_answer,
            "provenance": self.provenance,
            "curve": [asdict(p) for p in self.curve],
            "pareto": [without_ones(asdict(p)) for p in self.pareto],
            "explain": None if self.explain is None else asdict(self.explain),
            "sensitivity": None if self.sensitivity is None else asdict(self.sensitivity),
            "warnings": [asdict(w) for w in self.warnings],
            "fleet_check": None if self.fleet_check is None else asdict(self.fleet_check),
            "existing": None if self.existing is None else asdict(self.existing),
            "confidence": None if self.confidence is None else self.confidence.to_json(),
        }


def _latency(candidate: Candidate) -> float:
    value = candidate.e2e_ms.get("mean")
    value = candidate.ttft_ms.get("mean") if value is None else value
    return math.inf if value is None else value


def by_gpus_needed(candidate: Candidate) -> tuple[float, float, float]:
    """Sort key: fewest whole GPUs, then fewest exactly, then lowest latency."""
    return (candidate.gpus, candidate.systems_exact * candidate.gpus_per_system, _latency(candidate))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """How many systems a load needs: the one rule for predicted and measured capacities.

    Attributes:
        instances, systems: whole, spare systems included.
        systems_exact: load over what one system carries, without spare.
        utilisation: load over what all systems carry inside the limits.
    """

    instances: int
    systems: int
    systems_exact: float
    utilisation: float


def fleet(peak: float, rate_per_instance: float, gpus_per_instance: int, gpus_per_system: int, spare: int) -> Fleet:
    """Systems for ``peak`` requests/s: "instances × TP = GPUs of the system", fully populated.

    An instance wider than a system takes whole systems.
    """
    each, span = instances_per_system(gpus_per_instance, gpus_per_system)
    exact = peak / rate_per_instance / each * span
    systems = max(1, math.ceil(round(peak / (rate_per_instance * each), 9))) * span + spare
    return fleet_of(systems, exact, peak, rate_per_instance, gpus_per_instance, gpus_per_system)


def fleet_of(systems: int, exact: float, peak: float, rate_per_instance: float, gpus_per_instance: int, gpus_per_system: int) -> Fleet:  # noqa: PLR0917
    """A number of systems that was decided elsewhere, fully populated."""
    each, span = instances_per_system(gpus_per_instance, gpus_per_system)
    instances = systems // span * each
    return Fleet(instances=instances, systems=systems, systems_exact=exact, utilisation=peak / (rate_per_instance * instances))


def instances_per_system(gpus_per_instance: int, gpus_per_system: int) -> tuple[int, int]:
    """Instances in a system, and systems that one instance spans; one of the two is 1."""
    if gpus_per_instance <= gpus_per_system:
        return gpus_per_system // gpus_per_instance, 1
    return 1, math.ceil(gpus_per_instance / gpus_per_system)
