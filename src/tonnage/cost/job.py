"""A job that is done again and again, such as a nightly run.

What one costs rented or at an API, and from how many a year systems of one's own are cheaper.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import date

from tonnage.cost.break_even import power_per_request
from tonnage.cost.cost import api_request
from tonnage.cost.options import Rent, as_planned, needed, on_prem, rents_of
from tonnage.plan.cost import HOURS_PER_YEAR, JobCost, Serving, Traffic
from tonnage.plan.demand import JobDone
from tonnage.plan.note import NoCost
from tonnage.spec.prices import Prices, stale

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
        job: how many requests, within how long, and how long instances take for them.
        tokens: mean of a request, in and out.
        serving: the instance; its rate is what it completes when always busy.
        prices: the price list.
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
    """The cheapest rental that holds the instances; every instance that fits on the machines works.

    More machines would never cost less: they finish sooner, but each adds its own ramp-up and drain.
    """
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
