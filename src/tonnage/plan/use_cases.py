"""Several use cases on one fleet, of one model or of several: what they need together, what they
need apart, which of the two is chosen, and which system holds which instances.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from tonnage.notebook import Displayed
from tonnage.plan.candidate import Candidate, Identity
from tonnage.plan.document import Saved, read_back
from tonnage.plan.fleet import Standby
from tonnage.plan.limit import Breach, LimitUse
from tonnage.plan.plan import Plan
from tonnage.results.metrics import Latencies
from tonnage.spec.deployment import EngineKnobs
from tonnage.spec.typed_values import strict

SCHEMA = "tonnage-use-cases/1"

Chosen = Literal["shared", "separate", "first-come"]
WhyNot = Literal["models", "demand", "no-deployment", "no-priority", "limit", "more-gpus"]


@strict
class CaseAtPeak:
    """One use case at its peak, in a simulation of a pool."""

    name: str  # of the use case
    requests_per_second: float  # at its peak
    # each of its limits, with the value at the asked confidence and the share of the limit that it
    # uses. The percentile of single gaps (ITL) is an upper bound where several use cases share a
    # pool: the record pools their gaps.
    limits: tuple[LimitUse, ...]
    # ttft_ms, tpot_ms, e2e_ms: of its requests, by the prediction as it is
    ttft_ms: Latencies
    tpot_ms: Latencies
    e2e_ms: Latencies
    # instances that it takes by what one carries of it alone, without rounding; None in files of
    # before 2026-11-28
    instances_exact: float | None = None


@strict
class UseCasePool(Identity):
    """Instances of one deployment that serve some of the use cases."""

    system: str  # catalog id; ``gpus_per_system`` GPUs in each
    gpus_per_system: int
    knobs: EngineKnobs | None  # of the engine; None where they are not known
    instances: int  # the fewest that were seen to hold every limit
    instances_exact: float  # by what one instance carries of each use case, without rounding
    cases: tuple[CaseAtPeak, ...]  # what each of them sees at the peak of all
    # of a pool for one use case, what ``size`` says of it in systems of one instance; None of a
    # pool for several, and in files of before 2026-11-28
    alone: Candidate | None = None

    @property
    def gpus(self) -> int:
        """GPUs of its instances."""
        return self.instances * self.parallelism.gpus


@strict
class PoolSystems:
    """A number of systems of one kind."""

    system: str
    systems: int
    gpus: int


@strict
class CostShare:
    """A use case's use of an arrangement, and its share of the owned systems' cost."""

    name: str  # of the use case
    # at_peak, over_year: its share of the GPUs' time, at all peaks at once and over the year
    at_peak: float
    over_year: float
    usd_per_year: float | None  # None where a price is not known or was not requested


@strict
class Placed:
    """Equal systems of one kind, and the instances in each of them."""

    system: str
    first: int  # number of the first one, from 1 on in each kind; the others follow it
    systems: int
    # instances of each pool in each of them, in the order of the pools; none on standby systems
    instances: tuple[int, ...]
    free_gpus: int  # in each of them
    spans: int = 1  # systems that one of its instances takes


@strict
class SystemLost:
    """The loss of any one system, at worst, for each pool in their order."""

    instances: tuple[int, ...]  # that it takes
    # of these, what finds no free GPUs on the other systems, those on standby included
    without_gpus: tuple[int, ...]


@strict
class Arrangement:
    """Pools, and the whole systems that hold them: pools on one kind of system share its
    systems.
    """

    # one for all use cases of a model, or one for each use case
    pools: tuple[UseCasePool, ...]
    systems: tuple[PoolSystems, ...]  # by kind
    # standby systems for failures, of each kind of system or of the instances of each pool; empty
    # where none was requested
    standby: tuple[Standby, ...] = ()
    # a year of the systems, owned, and of the instances, rented by the hour; None where a price is
    # not known or was not requested
    owned_usd_per_year: float | None = None
    rented_usd_per_year: float | None = None
    # of each use case; empty in files of before 2026-11-28
    shares: tuple[CostShare, ...] = ()
    # which system holds which instances; empty in files of before 2026-11-28
    placement: tuple[Placed, ...] = ()
    lost: SystemLost | None = None  # None without a placement

    @property
    def gpus(self) -> int:
        """GPUs of the systems."""
        return sum(system.gpus for system in self.systems)

    @property
    def gpus_in_use(self) -> int:
        """GPUs of the instances."""
        return sum(pool.gpus for pool in self.pools)


@strict
class NotShared:
    """Why one pool for all use cases is not chosen."""

    # "models" or "demand" where they cannot be simulated together; "no-deployment" where no
    # deployment meets the limits of each; "no-priority" where no engine of these serves by
    # priority; "limit" where none holds the limits of all on as many GPUs as the separate pools
    # take; "more-gpus" where it takes more
    code: WhyNot
    case: str = ""  # the use case that decides; "" where none does
    # of the shared pool, or the most that were tried; None where nothing was simulated.
    # ``separate_gpus`` are those of the separate pools next to it: of whole systems, or, where
    # these are as many, of the instances.
    gpus: int | None = None
    separate_gpus: int | None = None
    breach: Breach | None = None  # the limit that breaks; None where none does


@strict
class Background:
    """A job of the lowest priority, done in what the hours below the peak leave free."""

    name: str  # of its use case
    requests: float  # in one job
    within_seconds: float
    # requests of it that the instances do within its time which the others take without it
    free_requests: float
    more_instances: int  # that the pool has for it
    # instances that it would take by itself, sent evenly over its time, without rounding
    instances_exact: float
    # requests per second at which it may be sent in each hour of the profile, the limits of all
    # others held
    requests_per_second: tuple[float, ...]

    @property
    def free_share(self) -> float:
        """Share of it that takes no further instance."""
        return min(1.0, self.free_requests / self.requests)


@strict
class UseCases(Saved, Displayed):
    """The answer."""

    WHERE_ASKED: ClassVar[tuple[str, ...]] = (
        "priorities",
        "first_come",
        "not_first_come",
        "background",
        "alone",
    )

    SCHEMA: ClassVar[str] = SCHEMA

    names: tuple[str, ...]  # of the use cases, in the order in which they were given
    plans: tuple[Plan, ...]  # each by itself, in the same order
    # a pool for each; None where one of them has no deployment inside its limits
    separate: Arrangement | None
    # one pool for all use cases of a model; None where there is none that could be chosen
    shared: Arrangement | None
    not_shared: NotShared | None  # why ``shared`` is not chosen; None where it is
    chosen: Chosen | None  # which of them; None where none is possible
    # of each use case, the lowest first, by which ``shared`` is served; None where it is served
    # first come, first served
    priorities: tuple[int, ...] | None = None
    # with priorities, one pool for all that is served first come, first served, to compare with;
    # None where there is none on as many GPUs as the separate pools take, and why
    first_come: Arrangement | None = None
    not_first_come: NotShared | None = None
    # with priorities, a job that ``shared`` does in the background of the others
    background: Background | None = None
    # a fleet for each use case, as its plan has it; None where one has none, and in files of before
    # 2026-11-28
    alone: Arrangement | None = None

    def served(self, arrangement: Arrangement, place: int) -> tuple[str, ...]:
        """The use cases of the pool at that place of an arrangement; a job, which is seen at no
        peak, has the place of its name.
        """
        names = tuple(case.name for case in arrangement.pools[place].cases)
        return names or (self.names[place],)

    @property
    def choice(self) -> Arrangement | None:
        """The arrangement that is chosen."""
        kinds = {"shared": self.shared, "separate": self.separate, "first-come": self.first_come}
        return None if self.chosen is None else kinds[self.chosen]

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> UseCases:
        """The answer of a JSON object. Raises InputErrors: everything in it that cannot be used,
        each with its path.
        """
        return read_back(cls, document, "use cases")
