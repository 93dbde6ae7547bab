"""What a run of several instances says beside its metrics: failures, instance-hours, limits that were broken."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tonnage.results.metrics import Violation, violations
from tonnage.results.requests import FAILED

if TYPE_CHECKING:
    from tonnage.simulator.changes import Routed
    from tonnage.spec.deployment import Slo

S_PER_HOUR = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetFacts:
    """Of a run behind a router.

    Attributes:
        failures: of instances, up to the arrival of the last request.
        restarts: of instances between seasons.
        retried: times that a request in flight was sent to another instance.
        lost: requests that failed with their instance, or for which none was available.
        availability: share of the instances' time in which they worked.
        instance_hours: held, from the first instant to the arrival of the last request.
        serving_mean, serving_most: instances that took requests, at the looks of the controller; None without one.
        violations: of the limits.
    """

    failures: int
    restarts: int
    retried: int
    lost: int
    availability: float
    instance_hours: float
    serving_mean: float | None
    serving_most: int | None
    violations: tuple[Violation, ...]

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self) | {"violations": [asdict(one) for one in self.violations]}


def facts_of(routed: Routed, limits: Slo) -> FleetFacts:
    """The facts of a run."""
    changed, served = routed.changed, routed.changed.served
    return FleetFacts(
        failures=changed.failures,
        restarts=changed.restarts,
        retried=changed.retried,
        lost=int((routed.requests.status == FAILED).sum()),
        availability=changed.availability,
        instance_hours=changed.instance_seconds / S_PER_HOUR,
        serving_mean=float(served[:, 0].mean()) if len(served) else None,
        serving_most=int(served[:, 0].max()) if len(served) else None,
        violations=violations(routed.requests, limits),
    )
