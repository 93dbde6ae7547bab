"""The cost of a plan: of its choice by every way, compared with each other and over years, and of
each candidate that can be owned.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Literal

from tonnage.cost.break_even import break_evens, power_per_request
from tonnage.cost.cost import (
    api_cost,
    api_request,
    divided,
    hosting_is_missing,
    serving_of,
    spread,
    system_watts,
    traffic_of,
)
from tonnage.cost.options import (
    Rent,
    as_planned,
    cloud,
    hybrid,
    needed,
    on_prem,
    overflow,
    rents_of,
    yearly_owned,
)
from tonnage.errors import InputError, option
from tonnage.plan.candidate import Candidate
from tonnage.plan.cost import (
    HOURS_PER_YEAR,
    SECONDS_PER_YEAR,
    WAYS,
    YEARS,
    Cost,
    JobCost,
    Outlook,
    PaysOff,
    Serving,
    Traffic,
    WayCost,
    WayOutlook,
    Where,
    YearlyCost,
)
from tonnage.plan.demand import JobDone, Regions
from tonnage.plan.fleet import Autoscaling, AutoscalingCost, footprint
from tonnage.plan.limit import RACK_KW
from tonnage.plan.notes import (
    CostNote,
    CourseWay,
    EstimatedPrice,
    HostingLeftOut,
    NoCost,
    NoProfile,
    NotComparable,
    OnlyPeakKnown,
    OwnedElectricity,
    SameAs,
    TokenPriceRatio,
)
from tonnage.plan.plan import Plan
from tonnage.plan.sensitivity import Measurement, pareto
from tonnage.spec.catalog import find_model, find_system
from tonnage.spec.prices import Prices, stale


def compare(
    traffic: Traffic,
    serving: Serving,
    prices: Prices,
    *,
    today: date | None = None,
    min_instances: int = 1,
    model: str | None = None,
    where: tuple[Where, ...] = WAYS,
) -> YearlyCost:
    """The costs of a load.

    Args:
        today: the day on which prices older than a year are warned about; none are if not given.
        min_instances: cloud instances kept in the quietest hour; 0 lets the fleet go to nothing.
        model: whose API price counts (catalog id); without one only a price that the user gave.

    Raises InputError: a negative number of instances.
    """
    if min_instances < 0:
        raise InputError(
            f"{option('min_instances')}: {min_instances} is negative; write how many instances stay"
            " on, 0 or more"
        )
    serving = as_planned(serving, traffic)
    owned = on_prem(traffic, serving, prices, min_instances)
    rented = cloud(traffic, serving, prices, min_instances)
    both = hybrid(traffic, serving, prices, min_instances)
    tokens = api_cost(traffic, prices, model)
    sent_on = overflow(traffic, serving, prices, model)
    way_costs = [
        option for option in (owned, rented, both, tokens, sent_on) if option.where in where
    ]
    alone = tuple(_alone(way_costs))
    shown = [
        option for option in way_costs if not any(option.where == same_as.way for same_as in alone)
    ]
    priced = [
        (option.total_usd_per_year, option.where)
        for option in shown
        if option.total_usd_per_year is not None
    ]
    figures = dict.fromkeys(figure for way in shown for figure in way.figures)
    alone_priced = [NotComparable(way=priced[0][1])] if len(priced) == 1 and len(shown) > 1 else []
    return YearlyCost(
        traffic=traffic,
        serving=serving,
        ways=tuple(shown),
        cheapest=min(priced, key=lambda pair: pair[0])[1] if len(priced) > 1 else None,
        break_evens=tuple(
            break_even
            for break_even in break_evens(traffic, serving, prices, min_instances, model)
            if set(break_even.between) <= set(where)
        ),
        notes=(*alone_priced, *alone, *_notes(traffic, serving, owned, prices, where)),
        stale_prices=stale(figures, today) if today else (),
    )


def _alone(ways: Sequence[WayCost]) -> Iterator[SameAs]:
    """The mixtures that own nothing, or rent and send on nothing, where the way that they come to
    is shown.
    """
    priced_ways = {way.where for way in ways if way.total_usd_per_year is not None}
    for way in ways:
        if way.total_usd_per_year is None or way.where not in ("hybrid", "hybrid-api"):
            continue
        alternative: Literal["cloud", "api"] = "cloud" if way.where == "hybrid" else "api"
        same = (
            alternative
            if not way.systems
            else (
                "on-prem"
                if not way.cloud_gpu_hours_per_year and not way.api_requests_per_year
                else None
            )
        )
        if same in priced_ways and same is not None:
            yield SameAs(way=way.where, same=same)


def _notes(
    traffic: Traffic, serving: Serving, owned: WayCost, prices: Prices, where: tuple[Where, ...]
) -> Iterator[CostNote]:
    """The remarks that a reader needs about the ways that are shown."""
    yield TokenPriceRatio(ratio=prices.output_to_input_price_ratio)
    if not traffic.profile and {"cloud", "hybrid", "hybrid-api"} & set(where):
        yield NoProfile()
    if traffic.requests_per_year is None:
        yield OnlyPeakKnown()
    if not {"on-prem", "hybrid", "hybrid-api"} & set(where):
        return
    price = prices.system_usd(serving.system)
    if price is not None and price.estimate:
        yield EstimatedPrice(system=serving.system, price=price)
    if price is not None and hosting_is_missing(serving, prices):
        yield HostingLeftOut(system=serving.system)
    if "on-prem" in where:
        yield from _owned_notes(serving, owned)


def _owned_notes(serving: Serving, owned: WayCost) -> Iterator[CostNote]:
    exact, usd, usd_per_1000 = (
        owned.systems_exact,
        owned.usd_per_year_exact,
        owned.usd_per_1000_requests_exact,
    )
    if exact is not None and exact >= 1 and usd is not None and usd_per_1000 is not None:
        fleet = serving.fleet
        per_system = (
            fleet.instances_per_system
            / fleet.systems_per_instance
            * serving.requests_per_second_per_instance
        )
        requests = per_system * SECONDS_PER_YEAR
        yield CourseWay(
            systems_exact=exact,
            usd_per_1000_requests=usd_per_1000,
            course_usd_per_1000_requests=usd / requests * 1_000,
            one_system_requests_per_year=requests,
        )
    energy = owned.energy
    if energy is not None:
        hosting = next((part.usd_per_year for part in owned.parts if part.name == "hosting"), 0.0)
        exceeds = not energy.added and (energy.usd_per_year or 0.0) > hosting
        yield OwnedElectricity(
            kwh_per_year=energy.kwh_per_year,
            usd_per_year=energy.usd_per_year,
            added=energy.added,
            hosting_usd_per_year=hosting if exceeds else None,
        )


MONTHS = 12
MOST_MONTHS = 120  # beyond ten years, twice what systems serve, no month is named


def with_outlook(cost: YearlyCost, plan: Plan, prices: Prices, today: date | None) -> YearlyCost:
    """The cost with what it comes to."""
    day = None if plan.existing is None else plan.existing.a_day
    users = plan.demand.source.users or (None if day is None else day.users)
    ways = []
    for way in cost.ways:
        total = way.total_usd_per_year
        if total is not None:
            per_user = None if users is None else total / MONTHS / users
            ways.append(
                WayOutlook(
                    where=way.where,
                    usd={str(years): spent(way, years) for years in YEARS},
                    usd_per_user_month=per_user,
                )
            )
    watts, racks = cost.serving.system_watts, None
    if plan.choice is not None and watts is not None:
        rack = RACK_KW if plan.aim is None else plan.aim.rack_kw
        racks = footprint(
            plan.choice.systems, watts, cost.serving.watts_from, rack_kw=rack, pue=prices.pue.value
        )
    return replace(
        cost,
        outlook=Outlook(
            ways=tuple(ways), pays_off=_pays_off(cost, today), users=users, footprint=racks
        ),
    )


def spent(way: WayCost, years: float) -> float:
    """USD that a way costs in ``years``: the purchase, and what each year costs."""
    return (way.purchase_usd or 0.0) + years * way.opex_usd_per_year


def _pays_off(cost: YearlyCost, today: date | None) -> PaysOff | None:
    owned, rented = cost.way("on-prem"), cost.way("cloud")
    if (
        owned is None
        or rented is None
        or owned.total_usd_per_year is None
        or rented.total_usd_per_year is None
    ):
        return None
    saved = (rented.opex_usd_per_year - owned.opex_usd_per_year) / MONTHS
    months = (owned.purchase_usd or 0.0) / saved if saved > 0 else math.inf
    if months > MOST_MONTHS:
        return PaysOff(months=None, date="", saved_usd_per_month=saved)
    if today is None:
        return PaysOff(months=months, date="", saved_usd_per_month=saved)
    years, month = divmod(today.month - 1 + math.ceil(months), MONTHS)
    return PaysOff(
        months=months, date=f"{today.year + years:04d}-{month + 1:02d}", saved_usd_per_month=saved
    )


def with_rent(plan: Plan, prices: Prices) -> Autoscaling | None:
    """The plan's autoscaling with what the first proposal and the fixed fleet cost a year, where
    the price of a GPU and hour is known.

    A rented machine may hold several instances: of these so many are paid for as hold the
    instances of each moment, and both fleets are rented as costs least for them. The hours that
    were simulated are taken to repeat for a year.
    """
    autoscaling = plan.autoscaling
    if (
        autoscaling is None
        or autoscaling.best is None
        or autoscaling.fixed is None
        or plan.choice is None
    ):
        return autoscaling
    rents = rents_of(serving_of(plan.choice, plan.scenario.spare_systems), prices)
    if isinstance(rents, NoCost):
        return autoscaling
    cheapest = []
    for run in (autoscaling.fixed, autoscaling.best.run):
        hours = math.fsum(period.hours for period in run.held)
        yearly = (
            (run.rented_hours(rent.instances) / hours * HOURS_PER_YEAR * rent.usd, rent)
            for rent in rents
        )
        cheapest.append(min(yearly, key=lambda priced: priced[0]))
    (fixed, _), (scaled, rent) = cheapest
    return replace(
        autoscaling,
        cost=AutoscalingCost(
            fixed_usd_per_year=fixed, scaled_usd_per_year=scaled, offer=rent.offer
        ),
    )


def with_cost(
    plan: Plan, prices: Prices, *, today: date | None = None, where: tuple[Where, ...] = WAYS
) -> Plan:
    """The plan with the cost of its choice, and with the yearly cost of every candidate that has a
    price, by the day ``today``.
    """
    cost = cost_of(plan, prices, today=today, where=where)
    plan = replace(
        plan,
        cost=cost,
        autoscaling=with_rent(plan, prices),
        measurement=_worth(plan, cost),
        regions=_with_shares(plan.regions, cost),
    )
    if not plan.pareto or plan.demand.offline:
        return plan
    owned = yearly_owned(plan.candidates, traffic_of(plan), prices, plan.scenario.spare_systems)
    return replace(plan, pareto=pareto(plan.candidates, owned))


def _with_shares(regions: Regions | None, cost: Cost | None) -> Regions | None:
    """The regions with their shares of the cheapest way of serving by owned systems or by GPUs that
    are rented by the hour.
    """
    ways = cost.ways if isinstance(cost, YearlyCost) else ()
    priced = [
        (way.total_usd_per_year, way)
        for way in ways
        if way.where in ("on-prem", "cloud") and way.total_usd_per_year is not None
    ]
    if regions is None or not priced:
        return regions
    total, way = min(priced, key=lambda pair: pair[0])
    by_use = total
    if way.where == "on-prem":
        by_use = math.fsum(part.usd_per_year for part in way.parts if part.name == "power")
    usd = divided(
        total,
        by_use,
        at_peak=[region.at_peak for region in regions.regions],
        over_year=[region.over_year for region in regions.regions],
    )
    shared = zip(regions.regions, usd, strict=True)
    return replace(
        regions,
        where=way.where,
        regions=tuple(replace(region, usd_per_year=part) for region, part in shared),
    )


def cost_of(
    plan: Plan, prices: Prices, *, today: date | None = None, where: tuple[Where, ...] = WAYS
) -> Cost | None:
    """The cost of the choice: of a job once, of other traffic for a year; None where nothing was
    chosen.
    """
    if plan.choice is None:
        return None
    traffic, serving = traffic_of(plan), serving_of(plan.choice, plan.scenario.spare_systems)
    requests, seconds = plan.demand.offline_requests, plan.demand.offline_seconds
    model = catalog_id(plan.scenario.model)
    if requests is None or seconds is None:
        least = len(plan.choice.pools)  # one instance of each: prefill alone answers nothing
        yearly_cost = compare(
            traffic, serving, prices, min_instances=least, today=today, model=model, where=where
        )
        return with_outlook(yearly_cost, plan, prices, today)
    job = plan.job or in_proportion(requests, seconds, serving)
    return job_cost(
        job,
        (traffic.input_tokens, traffic.output_tokens),
        serving,
        prices,
        model=model,
        today=today,
    )


def cost_of_run(
    rate: float, tokens: tuple[float, float], hardware: tuple[str, str, int], prices: Prices
) -> tuple[WayCost, ...]:
    """What a year at a measured load costs: the GPUs owned, as their share of systems, and rented
    on whole machines.

    Args:
        rate: requests/s that the run completed.
        tokens: mean prompt and output tokens of a request.
        hardware: GPU and system by their catalog ids, and how many GPUs served the run.
        prices: the price list.
    """
    gpu, system, gpus = hardware
    traffic = Traffic(
        peak_requests_per_second=rate,
        mean_requests_per_second=rate,
        input_tokens=tokens[0],
        output_tokens=tokens[1],
    )
    watts, source = system_watts(gpu, system)
    serving = Serving(
        gpu=gpu,
        system=system,
        gpus_per_instance=gpus,
        gpus_per_system=find_system(system).gpus,
        requests_per_second_per_instance=rate,
        system_watts=watts,
        watts_from=source,
    )
    owned, exact = on_prem(traffic, serving, prices), None
    if owned.total_usd_per_year and owned.usd_per_year_exact is not None:
        share = owned.usd_per_year_exact / owned.total_usd_per_year
        low, high = (
            None if end is None else end * share
            for end in (owned.usd_per_year_low, owned.usd_per_year_high)
        )
        exact = replace(
            owned,
            total_usd_per_year=owned.usd_per_year_exact,
            usd_per_year_low=low,
            usd_per_year_high=high,
        )
    return (
        owned if exact is None else spread(exact, traffic, prices),
        cloud(traffic, serving, prices),
    )


def _worth(plan: Plan, cost: Cost | None) -> Measurement | None:
    """What measuring the choice would save a year, owned or rented: a share of the systems saves
    that share of the cost.
    """
    measurement, choice = plan.measurement, plan.choice
    if measurement is None or choice is None or not isinstance(cost, YearlyCost):
        return measurement
    costs = [
        way.total_usd_per_year
        for way in cost.ways
        if way.where in ("on-prem", "cloud") and way.total_usd_per_year is not None
    ]
    if not costs:
        return measurement
    of_system = min(costs) / choice.systems
    usd = of_system * measurement.seconds / 3_600 / HOURS_PER_YEAR
    return replace(
        measurement, usd=usd, saved_usd_per_year=measurement.saved_systems * of_system - usd
    )


def catalog_id(model: str) -> str:
    """The model's name in the catalog and in its prices; what the catalog does not have, such as a
    file, keeps its own.
    """
    try:
        return model if model.endswith(".json") else find_model(model).name
    except InputError:
        return model


# the ways of serving whose cost hangs on the candidate alone
OWNED_OR_RENTED: tuple[Where, ...] = ("on-prem", "cloud", "hybrid")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlay:
    """The cost and the power of a candidate; None where a price or a power is not known."""

    purchase_usd: float | None  # price of its systems
    cheapest_usd_per_year: float | None  # of all requested ways of serving
    # of those among them that own or rent the candidate's GPUs alone
    own_usd_per_year: float | None
    # highest power of one system; ``watts_from`` says where that comes from
    system_watts: float | None
    watts_from: str
    job_usd: float | None = 0.0  # of one job on rented GPUs; 0 of other traffic
    # what one is predicted to draw at the peak; the highest where nothing is predicted
    drawn_watts: float | None


def outlay(
    candidate: Candidate,
    traffic: Traffic,
    prices: Prices,
    *,
    spare: int = 0,
    model: str | None = None,
    where: Sequence[Where] = WAYS,
) -> Outlay:
    """What a candidate costs and draws, with ``spare`` systems more than the load needs; of two
    pools the cloud keeps one instance each.
    """
    serving = as_planned(serving_of(candidate, spare), traffic)
    least = len(candidate.pools)
    yearly_cost = {
        "on-prem": lambda: on_prem(traffic, serving, prices, least),
        "cloud": lambda: cloud(traffic, serving, prices, least),
        "hybrid": lambda: hybrid(traffic, serving, prices, least),
        "api": lambda: api_cost(traffic, prices, model),
        "hybrid-api": lambda: overflow(traffic, serving, prices, model),
    }
    costs = {
        way: usd for way in where if (usd := yearly_cost[way]().total_usd_per_year) is not None
    }
    price, highest = prices.system_usd(serving.system), serving.system_watts
    return Outlay(
        purchase_usd=None if price is None else candidate.systems * price.value,
        cheapest_usd_per_year=min(costs.values(), default=None),
        own_usd_per_year=min(
            (usd for way, usd in costs.items() if way in OWNED_OR_RENTED), default=None
        ),
        system_watts=highest,
        watts_from=serving.watts_from,
        drawn_watts=(
            highest
            if highest is None or serving.power is None
            else highest * serving.power.watts / serving.power.tdp_watts
        ),
    )


# Shortest rental of a machine: it covers the minutes of starting and of loading the model, and the
# minimum that some clouds charge
LEAST_HOURS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rental:
    """The fewest machines of one size that finish in time, rented until the job is done."""

    rent: Rent
    times: int
    hours: float

    @property
    def usd(self) -> float:
        return self.times * self.hours * self.rent.usd

    @property
    def gpu_hours(self) -> float:
        return self.times * self.hours * self.rent.gpus

    @property
    def how(self) -> str:
        """The arithmetic."""
        gpus = self.times * self.rent.gpus
        licence = (
            f" + {self.rent.licence / self.rent.gpus:g} USD licence" if self.rent.licence else ""
        )
        count = f"{gpus:,} GPU{'' if gpus == 1 else 's'} for {self.hours:,.3g} h"
        return f"{self.gpu_hours:,.4g} GPU-hours ({count}) × {self.rent.offer}{licence}"


def rented_job(plan: Plan, candidate: Candidate, prices: Prices, spare: int) -> float | None:
    """USD of a plan's job on rented GPUs of a candidate; None where their rent is not known, 0 of
    other traffic.
    """
    requests, seconds = plan.demand.offline_requests, plan.demand.offline_seconds
    if requests is None or seconds is None:
        return 0.0
    serving = serving_of(candidate, spare)
    instances = max(1, needed(requests / seconds, serving))
    rental = _rental(
        in_proportion(requests, seconds, serving), instances, rents_of(serving, prices)
    )
    return None if isinstance(rental, NoCost) else rental.usd


def in_proportion(requests: int, seconds: float, serving: Serving) -> JobDone:
    """A job of which only the rate of an instance is known: its time is proportional to its
    requests.
    """
    seconds_per_request = 1 / serving.requests_per_second_per_instance
    share = math.ceil(requests / max(1, needed(requests / seconds, serving)))
    return JobDone(
        requests=requests,
        requests_per_instance=share,
        allowed_seconds=seconds,
        finish_seconds=share * seconds_per_request,
        fixed_seconds=0.0,
        seconds_per_request=seconds_per_request,
    )


def job_cost(
    job: JobDone,
    tokens: tuple[float, float],
    serving: Serving,
    prices: Prices,
    *,
    model: str | None = None,
    today: date | None = None,
) -> JobCost:
    """The cost of a job.

    Args:
        serving: the instance; its rate is what it completes when always busy.
        model: whose API price counts (catalog id); without one only a price that the user gave.
        today: the day on which prices older than a year are warned about; none are if not given.
    """
    rate, hours = job.requests / job.allowed_seconds, job.allowed_seconds / 3_600
    traffic = Traffic(
        peak_requests_per_second=rate,
        mean_requests_per_second=None,
        input_tokens=tokens[0],
        output_tokens=tokens[1],
    )
    serving = as_planned(serving, traffic)
    owned = replace(on_prem(traffic, serving, replace(prices, power_in_hosting=True)), energy=None)
    power = power_per_request(serving, prices) * job.requests
    rental = _rental(job, max(1, needed(rate, serving)), rents_of(serving, prices))
    cloud = None if isinstance(rental, NoCost) else rental.usd
    api = prices.api_price(model)
    usd_per_request, api_how = api_request(traffic, prices, model) if api else (0.0, "")
    tokens_usd = job.requests * usd_per_request if api else None
    api_figures = (
        (api.usd_per_million_input_tokens, api.usd_per_million_output_tokens) if api else ()
    )
    rented_figures = () if isinstance(rental, NoCost) else rental.rent.figures
    figures = tuple(dict.fromkeys((*owned.figures, *rented_figures, *api_figures)))
    max_jobs = HOURS_PER_YEAR * 3_600 / job.finish_seconds
    return JobCost(
        requests=job.requests,
        hours=hours,
        owned=owned,
        power_usd_per_job=power,
        cloud_usd_per_job=cloud,
        cloud_gpu_hours_per_job=0.0 if isinstance(rental, NoCost) else rental.gpu_hours,
        api_usd_per_job=tokens_usd,
        jobs_per_year_against_cloud=_jobs(owned.total_usd_per_year, cloud, power, max_jobs),
        jobs_per_year_against_api=_jobs(owned.total_usd_per_year, tokens_usd, power, max_jobs),
        most_jobs_per_year=max_jobs,
        cloud_how="" if isinstance(rental, NoCost) else rental.how,
        api_how=f"{job.requests:,.0f} requests; {api_how}" if api else "",
        cloud_reason=rental if isinstance(rental, NoCost) else None,
        api_reason=None if api else NoCost(code="api-price", name=model or ""),
        figures=figures,
        stale_prices=stale(figures, today) if today else (),
    )


def _rental(job: JobDone, instances: int, rents: tuple[Rent, ...] | NoCost) -> _Rental | NoCost:
    """The cheapest rental that holds the instances; more machines never cost less, as each adds its
    own ramp-up and drain.
    """
    if isinstance(rents, NoCost):
        return rents
    rentals = []
    for rent in rents:
        times = rent.holding(instances)
        hours = max(LEAST_HOURS, job.seconds_on(times * rent.instances) / 3_600)
        rentals.append(_Rental(rent=rent, times=times, hours=hours))
    return min(rentals, key=lambda rental: rental.usd)


def _jobs(
    owned: float | None, usd_per_job: float | None, power: float, most_jobs: float
) -> float | None:
    """Jobs a year at which owning costs the same; None where a price is not known or a year is too
    short.
    """
    if owned is None or usd_per_job is None or owned > (usd_per_job - power) * most_jobs:
        return None
    return owned / (usd_per_job - power)
