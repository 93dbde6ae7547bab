"""The cost of a plan: of its choice, by every way requested, and of each candidate that can be owned."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import TYPE_CHECKING

from tonnage.cost.break_even import power_per_request
from tonnage.cost.cost import api_cost, api_request, serving_of, traffic_of
from tonnage.cost.options import Rent, as_planned, cloud, hybrid, needed, on_prem, overflow, rents_of, yearly_owned
from tonnage.cost.where import compare, with_outlook
from tonnage.errors import InputError
from tonnage.plan.autoscaling import Autoscaling, AutoscalingCost, OverHours
from tonnage.plan.cost import HOURS_PER_YEAR, WAYS, Cost, JobCost, Serving, Traffic, Where, YearlyCost
from tonnage.plan.demand import JobDone
from tonnage.plan.note import NoCost
from tonnage.plan.plan import Plan
from tonnage.plan.provenance import Measurement
from tonnage.plan.sensitivity import pareto
from tonnage.spec.catalog import find_model
from tonnage.spec.prices import Prices, stale

if TYPE_CHECKING:
    from tonnage.plan.candidate import Candidate


# What autoscaling saves in the cloud: the instances that a rule holds, hour by hour, beside all of them all year.


def with_rent(plan: Plan, prices: Prices) -> Autoscaling | None:
    """The plan's autoscaling with what the first proposal and the fixed fleet cost a year, where the price of a GPU and hour is known.

    What is rented at once may hold several instances: of these so many are paid for as hold the instances of each moment, and both fleets
    are rented as costs least for them. The hours that were simulated are taken to repeat for a year.
    """
    found = plan.autoscaling
    if found is None or found.best is None or found.fixed is None or plan.choice is None:
        return found
    rents = rents_of(serving_of(plan.choice, plan.scenario.spare_systems), prices)
    if isinstance(rents, NoCost):
        return found
    (fixed, _), (scaled, rent) = (min(((_yearly(run, rent), rent) for rent in rents), key=_usd) for run in (found.fixed, found.best.run))
    return replace(found, cost=AutoscalingCost(fixed_usd_per_year=fixed, scaled_usd_per_year=scaled, offer=rent.offer))


def _yearly(run: OverHours, rent: Rent) -> float:
    """USD a year of what the run holds."""
    return run.rented_hours(rent.instances) / math.fsum(each.hours for each in run.held) * HOURS_PER_YEAR * rent.usd


def _usd(priced: tuple[float, Rent]) -> float:
    return priced[0]


def with_cost(plan: Plan, prices: Prices, *, today: date | None = None, where: tuple[Where, ...] = WAYS) -> Plan:
    """The plan with the cost of its choice, and with the yearly cost of every candidate that has a price, by the day ``today``."""
    cost = cost_of(plan, prices, today=today, where=where)
    plan = replace(plan, cost=cost, autoscaling=with_rent(plan, prices), measurement=_worth(plan, cost))
    if not plan.pareto or plan.demand.offline:
        return plan
    owned = yearly_owned(plan.candidates, traffic_of(plan), prices, plan.scenario.spare_systems)
    return replace(plan, pareto=pareto(plan.candidates, owned))


def cost_of(plan: Plan, prices: Prices, *, today: date | None = None, where: tuple[Where, ...] = WAYS) -> Cost | None:
    """What the choice costs: a job once, other traffic for a year; None where nothing was chosen."""
    if plan.choice is None:
        return None
    traffic, serving = traffic_of(plan), serving_of(plan.choice, plan.scenario.spare_systems)
    requests, seconds = plan.demand.offline_requests, plan.demand.offline_seconds
    model = catalog_id(plan.scenario.model)
    if requests is None or seconds is None:
        least = len(plan.choice.pools)  # one instance of each: prefill alone answers nothing
        found = compare(traffic, serving, prices, min_instances=least, today=today, model=model, where=where)
        return with_outlook(found, plan, prices, today)
    job = plan.job or in_proportion(requests, seconds, serving)
    return job_cost(job, (traffic.input_tokens, traffic.output_tokens), serving, prices, model=model, today=today)


def _worth(plan: Plan, cost: Cost | None) -> Measurement | None:
    """What measuring the choice would save a year, owned or rented: a share of the systems saves that share of the cost."""
    found, choice = plan.measurement, plan.choice
    if found is None or choice is None or not isinstance(cost, YearlyCost):
        return found
    known = [way.total_usd_per_year for way in cost.ways if way.where in ("on-prem", "cloud") and way.total_usd_per_year is not None]
    if not known:
        return found
    of_system = min(known) / choice.systems
    usd = of_system * found.seconds / 3_600 / HOURS_PER_YEAR
    return replace(found, usd=usd, saved_usd_per_year=found.saved_systems * of_system - usd)


def catalog_id(model: str) -> str:
    """The model's name in the catalog and in its prices; what the catalog does not have, such as a file, keeps its own."""
    try:
        return model if model.endswith(".json") else find_model(model).name
    except InputError:
        return model


# What each candidate of a plan costs, to buy and in a year, and what its systems draw: what a choice is made by.


OWNED_OR_RENTED: tuple[Where, ...] = ("on-prem", "cloud", "hybrid")
"""The ways of serving whose cost hangs on the candidate alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlay:
    """What a candidate costs and draws; None where a price or a power is not known."""

    purchase_usd: float | None  # price of its systems
    cheapest_usd_per_year: float | None  # of all requested ways of serving
    own_usd_per_year: float | None  # of those among them that own or rent the candidate's GPUs alone
    system_watts: float | None  # highest power of one system; ``watts_from`` says where that comes from
    watts_from: str
    job_usd: float | None = 0.0  # of one job on rented GPUs; 0 of other traffic
    drawn_watts: float | None  # what one is predicted to draw at the peak; the highest where nothing is predicted


def outlay(
    candidate: Candidate, traffic: Traffic, prices: Prices, *, spare: int = 0, model: str | None = None, where: Sequence[Where] = WAYS
) -> Outlay:
    """What a candidate costs and draws, with ``spare`` systems more than the load needs; of two pools the cloud keeps one instance each."""
    serving = as_planned(serving_of(candidate, spare), traffic)
    least = len(candidate.pools)
    each = {
        "on-prem": lambda: on_prem(traffic, serving, prices, least),
        "cloud": lambda: cloud(traffic, serving, prices, least),
        "hybrid": lambda: hybrid(traffic, serving, prices, least),
        "api": lambda: api_cost(traffic, prices, model),
        "hybrid-api": lambda: overflow(traffic, serving, prices, model),
    }
    known = {way: usd for way in where if (usd := each[way]().total_usd_per_year) is not None}
    price, highest = prices.system_usd(serving.system), serving.system_watts
    return Outlay(
        purchase_usd=None if price is None else candidate.systems * price.value,
        cheapest_usd_per_year=min(known.values(), default=None),
        own_usd_per_year=min((usd for way, usd in known.items() if way in OWNED_OR_RENTED), default=None),
        system_watts=highest,
        watts_from=serving.watts_from,
        drawn_watts=highest if highest is None or serving.power is None else highest * serving.power.watts / serving.power.tdp_watts,
    )


# A job that is done again and again, such as a nightly run.


LEAST_HOURS = 1.0
"""Shortest rental of a machine: it covers the minutes of starting and of loading the model, and the minimum that some clouds charge."""


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
        licence = f" + {self.rent.licence / self.rent.gpus:g} USD licence" if self.rent.licence else ""
        count = f"{gpus:,} GPU{'' if gpus == 1 else 's'} for {self.hours:,.3g} h"
        return f"{self.gpu_hours:,.4g} GPU-hours ({count}) × {self.rent.offer}{licence}"


def rented_job(plan: Plan, candidate: Candidate, prices: Prices, spare: int) -> float | None:
    """USD of a plan's job on rented GPUs of a candidate; None where their rent is not known, 0 of other traffic."""
    requests, seconds = plan.demand.offline_requests, plan.demand.offline_seconds
    if requests is None or seconds is None:
        return 0.0
    serving = serving_of(candidate, spare)
    instances = max(1, needed(requests / seconds, serving))
    rental = _rental(in_proportion(requests, seconds, serving), instances, rents_of(serving, prices))
    return None if isinstance(rental, NoCost) else rental.usd


def in_proportion(requests: int, seconds: float, serving: Serving) -> JobDone:
    """A job of which only the rate of an instance is known: its time is proportional to its requests."""
    each = 1 / serving.requests_per_second_per_instance
    share = math.ceil(requests / max(1, needed(requests / seconds, serving)))
    return JobDone(
        requests=requests,
        requests_per_instance=share,
        allowed_seconds=seconds,
        finish_seconds=share * each,
        fixed_seconds=0.0,
        seconds_per_request=each,
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
    """What a job costs.

    Args:
        serving: the instance; its rate is what it completes when always busy.
        model: whose API price counts (catalog id); without one only a price that the user gave.
        today: the day on which prices older than a year are warned about; none are if not given.
    """
    rate, hours = job.requests / job.allowed_seconds, job.allowed_seconds / 3_600
    traffic = Traffic(peak_requests_per_second=rate, mean_requests_per_second=None, input_tokens=tokens[0], output_tokens=tokens[1])
    serving = as_planned(serving, traffic)
    owned = replace(on_prem(traffic, serving, replace(prices, power_in_hosting=True)), energy=None)
    power = power_per_request(serving, prices) * job.requests
    rental = _rental(job, max(1, needed(rate, serving)), rents_of(serving, prices))
    cloud = None if isinstance(rental, NoCost) else rental.usd
    api = prices.api_price(model)
    each, api_how = api_request(traffic, prices, model) if api else (0.0, "")
    tokens_usd = job.requests * each if api else None
    api_figures = (api.usd_per_million_input_tokens, api.usd_per_million_output_tokens) if api else ()
    rented_figures = () if isinstance(rental, NoCost) else rental.rent.figures
    figures = tuple(dict.fromkeys((*owned.figures, *rented_figures, *api_figures)))
    most = HOURS_PER_YEAR * 3_600 / job.finish_seconds
    return JobCost(
        requests=job.requests,
        hours=hours,
        owned=owned,
        power_usd_per_job=power,
        cloud_usd_per_job=cloud,
        cloud_gpu_hours_per_job=0.0 if isinstance(rental, NoCost) else rental.gpu_hours,
        api_usd_per_job=tokens_usd,
        jobs_per_year_against_cloud=_jobs(owned.total_usd_per_year, cloud, power, most),
        jobs_per_year_against_api=_jobs(owned.total_usd_per_year, tokens_usd, power, most),
        most_jobs_per_year=most,
        cloud_how="" if isinstance(rental, NoCost) else rental.how,
        api_how=f"{job.requests:,.0f} requests; {api_how}" if api else "",
        cloud_reason=rental if isinstance(rental, NoCost) else None,
        api_reason=None if api else NoCost(code="api-price", name=model or ""),
        figures=figures,
        stale_prices=stale(figures, today) if today else (),
    )


def _rental(job: JobDone, instances: int, rents: tuple[Rent, ...] | NoCost) -> _Rental | NoCost:
    """The cheapest rental that holds the instances; more machines never cost less, as each adds its own ramp-up and drain."""
    if isinstance(rents, NoCost):
        return rents
    found = []
    for rent in rents:
        times = rent.holding(instances)
        hours = max(LEAST_HOURS, job.seconds_on(times * rent.instances) / 3_600)
        found.append(_Rental(rent=rent, times=times, hours=hours))
    return min(found, key=lambda rental: rental.usd)


def _jobs(owned: float | None, each: float | None, power: float, most: float) -> float | None:
    """Jobs a year at which owning costs the same; None where a price is not known or a year is too short."""
    if owned is None or each is None or owned > (each - power) * most:
        return None
    return owned / (each - power)
