"""What a plan costs: each way of serving the load for a year, or each way of doing a job."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

from tonnage.plan.candidate import Power
from tonnage.plan.document import Shown, Tagged
from tonnage.plan.fleet import Fleet, Footprint
from tonnage.plan.notes import CostNote, NoCost
from tonnage.spec.prices import Figure
from tonnage.spec.typed_values import strict

YEARS = (3, 5)  # years that are looked at


@strict
class WayOutlook:
    """One way of serving over the years, in USD."""

    where: str
    # spent in 3 and in 5 years, by the number of years: the purchase on the first day, and what is
    # paid in every year. Nothing is written off, discounted or sold.
    usd: dict[str, float]
    # a month of the yearly cost over the users; None where these are not known
    usd_per_user_month: float | None = None


@strict
class PaysOff:
    """When bought systems have cost less than the rented GPUs."""

    # from the purchase on until what was spent is equal; None where it is not within ten years
    months: float | None
    date: str  # that month, as YYYY-MM, for a purchase today; "" where no day is known
    # what owning saves from then on, electricity and hosting paid; negative where renting is
    # cheaper
    saved_usd_per_month: float


@strict
class Outlook:
    """What a cost comes to over the years: money spent, when owning has paid off, a user's month,
    racks and heat.
    """

    ways: tuple[WayOutlook, ...]  # those whose cost is known
    # bought systems against cloud GPUs; None where one of them has no cost
    pays_off: PaysOff | None = None
    users: float | None = None  # whose load it is; None where it was not given
    # of the systems of the plan; None where their power is not known
    footprint: Footprint | None = None


@strict
class Serving:
    """The instance that carries a load, and the system that it is in."""

    # gpu, system: catalog ids
    gpu: str
    system: str
    # gpus_per_instance, gpus_per_system: whole GPUs
    gpus_per_instance: int
    gpus_per_system: int
    # what the plan counts on: the highest load inside the limits at the asked confidence
    requests_per_second_per_instance: float
    system_watts: float | None  # highest power of one system; None where unknown
    watts_from: str  # where that comes from, in words
    spare: int = 0  # systems owned on top of what the load needs
    # the systems that a plan decided on, spare ones included: its simulation of the whole fleet may
    # ask for more than the capacity of one instance says. None leaves the count to the capacity.
    systems: int | None = None
    power: Power | None = None  # of its GPUs, as predicted; None where it is not

    @property
    def fleet(self) -> Fleet:
        """An empty fleet that knows what an instance takes of a system; ``fleet.of(3)`` is one of
        three.
        """
        return Fleet(
            systems=0,
            gpus_per_instance=self.gpus_per_instance,
            gpus_per_system=self.gpus_per_system,
        )


HOURS_PER_YEAR = 8_760
SECONDS_PER_YEAR = 3_600 * HOURS_PER_YEAR


@dataclass(frozen=True, slots=True, kw_only=True)
class Hours:
    """Hours of a year with one load."""

    hours_per_year: float
    requests_per_second: float | None  # what arrives in them; None where only the peak is known
    # what is provided for in them: bursts within the hour included
    sized_requests_per_second: float


@strict
class Traffic:
    """A year's load."""

    peak_requests_per_second: float  # what a fixed fleet is sized for
    mean_requests_per_second: float | None  # over the year; None where only the peak is known
    # input_tokens, output_tokens: mean of a request
    input_tokens: float
    output_tokens: float
    # requests/s hour by hour, a day, a week or a year that repeats; empty where there is none
    profile: tuple[float, ...] = ()

    @property
    def requests_per_year(self) -> float | None:
        """Requests in 365 days; None where only the peak is known."""
        return (
            None
            if self.mean_requests_per_second is None
            else self.mean_requests_per_second * SECONDS_PER_YEAR
        )

    @property
    def hours(self) -> tuple[Hours, ...]:
        """The year's hours, those of one load together, the quietest first.

        The busiest hour of a profile is provided for at the peak; every other hour has the same
        room for bursts, peak over busiest hour. Without a profile the peak is provided for all
        year.
        """
        if not self.profile:
            return (
                Hours(
                    hours_per_year=HOURS_PER_YEAR,
                    requests_per_second=self.mean_requests_per_second,
                    sized_requests_per_second=self.peak_requests_per_second,
                ),
            )
        busiest = max(self.profile)
        room = max(1.0, self.peak_requests_per_second / busiest) if busiest else 1.0
        hours_per_rate = HOURS_PER_YEAR / len(self.profile)
        return tuple(
            Hours(
                hours_per_year=count * hours_per_rate,
                requests_per_second=rate,
                sized_requests_per_second=rate * room,
            )
            for rate, count in sorted(Counter(self.profile).items())
        )

    def times(self, factor: float) -> Traffic:
        """Multiply the load of the day by ``factor``."""
        mean = self.mean_requests_per_second
        return replace(
            self,
            peak_requests_per_second=self.peak_requests_per_second * factor,
            mean_requests_per_second=None if mean is None else mean * factor,
            profile=tuple(rate * factor for rate in self.profile),
        )


Where = Literal["on-prem", "cloud", "hybrid", "api", "hybrid-api"]

WAYS: tuple[Where, ...] = ("on-prem", "cloud", "hybrid", "api", "hybrid-api")


@strict
class Energy(Shown):
    """An estimate of the electricity of owned systems: their power × PUE.

    Where the power of the GPUs is predicted, a system draws its highest power times the predicted
    watts of a GPU over its TDP, idle hours included; elsewhere its highest power times the
    utilisation.
    """

    WHERE_ASKED = ("peak_kw", "mean_kw", "kg_co2_per_year")

    kwh_per_year: float  # at the meter of the building
    usd_per_year: float | None  # at the price of power; None where none is given
    utilisation: float  # mean over the year of load over what the systems carry inside the limits
    added: bool  # whether it is part of the cost; otherwise hosting pays for it
    how: str  # the arithmetic
    # peak_kw, mean_kw: of the owned systems without the building; None where the power of the GPUs
    # is not predicted
    peak_kw: float | None = None
    mean_kw: float | None = None
    kg_co2_per_year: float | None = None  # by the grid's intensity; None where the prices have none


@strict
class CostPart:
    """One part of a cost."""

    name: str
    kind: Literal["capex", "opex"]  # "capex" (written off) or "opex" (paid)
    usd_per_year: float  # at the usual price
    how: str  # the arithmetic
    # usd_per_year_low, usd_per_year_high: at the ends of the price's range; None where it has none
    usd_per_year_low: float | None = None
    usd_per_year_high: float | None = None


@strict
class WayCost(Shown):
    """The yearly cost of one way of serving, in USD."""

    DERIVED: ClassVar[tuple[str, ...]] = ("capex_usd_per_year", "opex_usd_per_year")

    where: Where
    # all parts; None where a price is not known, and ``reason`` says which
    total_usd_per_year: float | None
    # usd_per_year_low, usd_per_year_high: at the ends of the ranges of its prices; None where none
    # has a range
    usd_per_year_low: float | None = None
    usd_per_year_high: float | None = None
    # without rounding to whole systems and without spare; None where nothing is rounded
    usd_per_year_exact: float | None = None
    # usd_per_1000_requests, usd_per_1000_requests_exact: over the requests of the year; None where
    # they are not known
    usd_per_1000_requests: float | None = None
    usd_per_1000_requests_exact: float | None = None
    # usd_per_million_input_tokens, usd_per_million_output_tokens: split by the price ratio
    usd_per_million_input_tokens: float | None = None
    usd_per_million_output_tokens: float | None = None
    parts: tuple[CostPart, ...] = ()  # what the cost consists of
    purchase_usd: float | None = None  # price of the systems on the day they are bought
    # systems, systems_exact, instances, gpus: owned ones; None or 0 where nothing is
    systems: int = 0
    systems_exact: float | None = None
    instances: int = 0
    gpus: int = 0
    # cloud_gpu_hours_per_year, cloud_gpus_at_peak: rented ones
    cloud_gpu_hours_per_year: float = 0.0
    cloud_gpus_at_peak: int = 0
    api_requests_per_year: float = 0.0  # what owned systems leave to an API
    # of what is owned; None where nothing is, or its power is not known
    energy: Energy | None = None
    how: tuple[str, ...] = ()  # the arithmetic, one line each
    figures: tuple[Figure, ...] = ()  # every price that went into it
    reason: NoCost | None = None  # why there is no cost; None where there is one

    @property
    def capex_usd_per_year(self) -> float:
        """Written off in a year."""
        return sum(part.usd_per_year for part in self.parts if part.kind == "capex")

    @property
    def opex_usd_per_year(self) -> float:
        """Paid in a year."""
        return sum(part.usd_per_year for part in self.parts if part.kind == "opex")


@strict
class BreakEven:
    """The requests a year at which the cheaper of two ways changes."""

    between: tuple[str, str]
    cheaper_below: str  # the cheaper of them at small volumes; empty where they cost the same
    cheaper_above: str  # the cheaper of them at the largest volume looked at
    # where the cheaper one changes first; None where it never does
    first_requests_per_year: float | None
    # where it changes last; whole systems make it change more than once
    last_requests_per_year: float | None
    changes: int
    # where the fleet of this plan, bought whole, costs as much as the API: with less traffic than
    # this the API is the cheaper. None for other pairs, or where it is never reached.
    bought_fleet_requests_per_year: float | None
    searched_to_requests_per_year: float  # the largest volume looked at


@strict
class YearlyCost(Shown):
    """The ways of serving one load, what each costs a year, and where the cheaper changes."""

    DERIVED: ClassVar[tuple[str, ...]] = ("requests_per_year", "figures")

    # traffic, serving: the load, and what carries it
    traffic: Traffic
    serving: Serving
    ways: tuple[WayCost, ...]  # the cost of each requested way
    cheapest: Where | None  # of those whose cost is known; None where fewer than two are
    break_evens: tuple[BreakEven, ...]  # for each two of on-prem, cloud and API
    notes: tuple[CostNote, ...]  # what a reader must know
    stale_prices: tuple[Figure, ...]  # prices that are older than a year
    outlook: Outlook | None = None  # what it comes to over years, for each user and in a building
    of: Literal["year"] = "year"

    @property
    def requests_per_year(self) -> float | None:
        """Requests in 365 days; None where only the peak is known."""
        return self.traffic.requests_per_year

    @property
    def figures(self) -> tuple[Figure, ...]:
        """Every price that any of the ways rests on, once."""
        return tuple(dict.fromkeys(figure for way in self.ways for figure in way.figures))

    def way(self, where: Where) -> WayCost | None:
        """One of the ways; None where it was not requested."""
        return next((way for way in self.ways if way.where == where), None)


@strict
class JobCost:
    """Three ways of doing a job within its time, each with its cost in USD."""

    # requests, hours: the job
    requests: float
    hours: float
    # systems for the job, owned all year, without electricity and without shares per request, as
    # both hang on how often it is run
    owned: WayCost
    # electricity of the owned systems, an estimate; 0 where hosting pays for it or it is not known
    power_usd_per_job: float
    # the fewest rented machines that finish in time, until the job is done, for one hour at least;
    # None where the rent is not known. A later deadline never costs more.
    cloud_usd_per_job: float | None
    cloud_gpu_hours_per_job: float  # of all GPUs of these machines
    api_usd_per_job: float | None  # the tokens; None where no API price is known
    # jobs_per_year_against_cloud, jobs_per_year_against_api: from more jobs a year owning is
    # cheaper; None where a price is not known, or a year has no time for so many
    jobs_per_year_against_cloud: float | None
    jobs_per_year_against_api: float | None
    # for how many a year has time on the owned systems, one after another, each until it is done
    most_jobs_per_year: float
    # cloud_how, api_how: the arithmetic of the cloud and of the API; "" where they have no cost
    cloud_how: str = ""
    api_how: str = ""
    # cloud_reason, api_reason: why they have none; None where they have one
    cloud_reason: NoCost | None = None
    api_reason: NoCost | None = None
    figures: tuple[Figure, ...]  # the prices used; ``stale_prices`` are those older than a year
    stale_prices: tuple[Figure, ...]
    of: Literal["job"] = "job"


Cost = Annotated[YearlyCost | JobCost, Tagged("of")]
