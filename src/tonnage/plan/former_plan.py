"""The answer of a sizing: what was chosen, what else was possible, and why the rest was not.

A plan is one JSON object; later commands read it and nothing else carries a decision.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tonnage.plan.former_candidate import Candidate, Rejected, mean_latency, without_ones
from tonnage.sizing.demand import Demand

if TYPE_CHECKING:
    from tonnage.sizing.confidence import Confidence
    from tonnage.sizing.curve import CurvePoint
    from tonnage.sizing.existing import Existing
    from tonnage.sizing.explain import Explanation
    from tonnage.sizing.fleet_check import FleetCheck
    from tonnage.sizing.pareto import ParetoPoint
    from tonnage.sizing.sensitivity import Sensitivity
    from tonnage.sizing.warnings import Warned

SCHEMA = "tonnage-plan/1"


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
        return min(self.candidates, key=mean_latency, default=None)

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
