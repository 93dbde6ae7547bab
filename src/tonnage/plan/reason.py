"""Why a deployment cannot be the answer: a code, and the numbers that say so."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Literal

from tonnage.plan.candidate import Identity
from tonnage.plan.document import Tagged
from tonnage.plan.limit import Breach, BudgetOf, Limit, Load
from tonnage.spec.deployment import LimitMetric, Statistic
from tonnage.spec.typed_values import strict


@strict
class VendorUnsupported:
    """The engine does not run on accelerators of this maker, or of a generation of its."""

    engine: str
    vendor: str
    generation: str = ""  # the one that is too old for it; empty where it runs on none of the maker
    code: Literal["vendor-unsupported"] = "vendor-unsupported"


@strict
class PrecisionUnsupported:
    """Hardware or engine cannot compute in the number format; ``lacks`` names what is missing, such
    as "no FP8 matrix units".
    """

    subject: str
    lacks: str
    code: Literal["precision-unsupported"] = "precision-unsupported"


@strict
class TargetLacks:
    """The deployment target does not run it; ``lacks`` says why, as a clause."""

    lacks: str
    code: Literal["target-lacks"] = "target-lacks"


@strict
class WiderThanSystem:
    """A pipeline stage needs more GPUs than one system has."""

    tp: int
    dp: int
    system: str
    system_gpus: int
    code: Literal["wider-than-system"] = "wider-than-system"


@strict
class TooManyStages:
    """The pipeline has more stages than the model has layers."""

    pp: int
    model: str
    layers: int
    code: Literal["too-many-stages"] = "too-many-stages"


@strict
class CannotRun:
    """The deployment was refused before any simulation: it does not fit the memory, or the model
    cannot be split so.
    """

    error: str  # the message of the refusal, with its arithmetic
    code: Literal["cannot-run"] = "cannot-run"


@strict
class Outdone:
    """The closed form's upper limit of its requests/s per GPU is below what it would need in order
    to beat another candidate.

    ``needed_per_gpu`` is None where no load would be enough, as its answers take longer at any.
    """

    at_most_per_gpu: float
    other: Identity
    needed_per_gpu: float | None
    code: Literal["outdone"] = "outdone"


@strict
class Behind:
    """A limit breaks at a load that it would have to carry, to need fewer GPUs than another
    deployment.
    """

    breach: Breach
    requests_per_second: float
    per_gpu: float
    other: Identity
    code: Literal["behind"] = "behind"


@strict
class NeedsMoreGpus:
    """It meets the limits, on more GPUs than another deployment on the same GPU type; in whole
    systems.
    """

    gpus: int
    systems_exact: float
    other: Identity
    other_gpus: int
    code: Literal["needs-more-gpus"] = "needs-more-gpus"


@strict
class NotSure:
    """A single client meets the limits as predicted, but not with steps that are
    longer by the factor of the requested confidence.
    """

    breach: Breach
    step_factor: float
    code: Literal["not-sure"] = "not-sure"


@strict
class BrokenAtAnyLoad:
    """A limit breaks for a single client already, or in every measured load; ``lowest`` is then the
    measured load nearest to it.
    """

    breach: Breach
    lowest: Load | None = None
    code: Literal["broken-at-any-load"] = "broken-at-any-load"


@strict
class AboveSaturation:
    """The wanted rate exceeds the rate at which the instance saturates."""

    requests_per_second: float
    most: float
    code: Literal["above-saturation"] = "above-saturation"


@strict
class BrokenEarly:
    """A limit breaks at the lowest load that the search tried, which is this share of
    saturation.
    """

    breach: Breach
    requests_per_second: float
    share_of_saturation: float
    code: Literal["broken-early"] = "broken-early"


@strict
class BrokenInVerification:
    """The longer, independent run broke a limit at every load down to this one."""

    breach: Breach
    requests_per_second: float
    code: Literal["broken-in-verification"] = "broken-in-verification"


@strict
class BrokenOnManyInstances:
    """A limit of a recording breaks even when its requests are split over ``instances``."""

    breach: Breach
    instances: int
    code: Literal["broken-on-many-instances"] = "broken-on-many-instances"


@strict
class TooSlowForJob:
    """A single request of the job takes longer than the whole job may; both in seconds."""

    seconds: float
    allowed: float
    code: Literal["too-slow-for-job"] = "too-slow-for-job"


@strict
class DoesNotDivide:
    """A measured instance has a number of GPUs that does not divide a system."""

    gpus: int
    system: str
    system_gpus: int
    code: Literal["does-not-divide"] = "does-not-divide"


@strict
class ThroughputNotMeasured:
    """The benchmark does not hold the requests/s of the deployment."""

    code: Literal["throughput-not-measured"] = "throughput-not-measured"


@strict
class StatisticNotMeasured:
    """The benchmark does not hold the limited statistic of the deployment."""

    metric: LimitMetric
    statistic: Statistic
    code: Literal["statistic-not-measured"] = "statistic-not-measured"


@strict
class MeasuredBreach:
    """The limit that one measured load breaks most."""

    breach: Breach
    load: Load


@strict
class NoMeasuredLoadHolds:
    """No measured load meets every limit: what the lowest and the highest of them break."""

    breaches: tuple[MeasuredBreach, ...]
    code: Literal["no-measured-load-holds"] = "no-measured-load-holds"


@strict
class NothingMeetsLimits:
    """None of several deployments meets the limits."""

    code: Literal["nothing-meets-limits"] = "nothing-meets-limits"


@strict
class Most:
    """The load that a deployment would carry on the most that is allowed, which is too little."""

    system: str = ""  # what its systems are; "" where it is not known
    # how many are allowed, or hold what a year's budget pays for; None where that is not known
    most_systems: int | None = None
    # what these, or the instances that are paid for, carry inside the limits
    most_requests_per_second: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OverBudget(Most):
    """Its systems cost more than may be spent, to buy or in a year; ``usd`` is None where no price
    of it is known.
    """

    usd: float | None
    budget_usd: float
    budget_of: BudgetOf
    code: Literal["over-budget"] = "over-budget"


@dataclass(frozen=True, slots=True, kw_only=True)
class OverPower(Most):
    """The systems of the deployment draw more than is allowed; ``kw`` is None where their power is
    not known.
    """

    kw: float | None
    most_kw: float
    code: Literal["over-power"] = "over-power"


@dataclass(frozen=True, slots=True, kw_only=True)
class OverRacks(Most):
    """Its systems take more racks than are allowed; ``racks`` is None where their power is not
    known.
    """

    racks: int | None
    most_racks: int
    rack_kw: float
    code: Literal["over-racks"] = "over-racks"


Impossible = (
    VendorUnsupported
    | PrecisionUnsupported
    | TargetLacks
    | WiderThanSystem
    | TooManyStages
    | CannotRun
)
Worse = Outdone | Behind | NeedsMoreGpus | NotSure
Broken = (
    BrokenAtAnyLoad
    | AboveSaturation
    | BrokenEarly
    | BrokenInVerification
    | BrokenOnManyInstances
    | TooSlowForJob
    | NothingMeetsLimits
)
Measured = DoesNotDivide | ThroughputNotMeasured | StatisticNotMeasured | NoMeasuredLoadHolds
TooMuch = OverBudget | OverPower | OverRacks
Reason = Annotated[Impossible | Worse | Broken | Measured | TooMuch, Tagged("code")]


@strict
class Rejected(Identity):
    """A deployment that cannot carry the load, and the reason with its numbers."""

    reason: Reason


def rejected(deployment: Identity, reason: Reason) -> Rejected:
    """A deployment by its names, and why it cannot be."""
    return Rejected(**deployment.names, reason=reason)


@strict
class Reached:
    """The latencies of one deployment at its lightest load."""

    # the limit that asks for it; None for the time in which a job has to be done
    limit: Limit | None
    asked_ms: float  # at most so many milliseconds
    value_ms: float  # what is reached, in milliseconds
    deployment: Identity

    @property
    def excess(self) -> float:
        """The reached value over the limit."""
        return self.value_ms / self.asked_ms


@strict
class Reachable:
    """The nearest that deployments come to limits that none of them meets.

    The lightest load is one request at a time, of a job a single request, and of a benchmark the
    measured load that comes nearest.
    """

    best: tuple[Reached, ...]  # for each limit the lowest value that any deployment reaches
    # every limited value of the deployment that exceeds its limits by the smallest factor
    nearest: tuple[Reached, ...]


def nearest_of(reached: Iterable[tuple[Reached, ...]]) -> Reachable | None:
    """The best value for each limit and the deployment nearest to all, from the values of each
    deployment; None where there are none.
    """
    per_deployment = [values for values in reached if values]
    if not per_deployment:
        return None
    limits = dict.fromkeys(value.limit for values in per_deployment for value in values)
    best = tuple(
        min(
            (value for values in per_deployment for value in values if value.limit == limit),
            key=lambda value: value.excess,
        )
        for limit in limits
    )
    return Reachable(
        best=best,
        nearest=min(per_deployment, key=lambda values: max(value.excess for value in values)),
    )
