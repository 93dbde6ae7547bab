"""A job that is done again and again, such as a nightly run.

What one costs rented or at an API, and from how many a year systems of one's own are cheaper.
"""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import date

from tonnage.cost.break_even import SAME_VOLUME, power_per_request
from tonnage.cost.cost import api_request
from tonnage.cost.options import Rent, as_planned, needed, on_prem, rent_of
from tonnage.plan.cost import JobCost
from tonnage.plan.cost_note import NoCost
from tonnage.plan.serving import Serving
from tonnage.plan.traffic import HOURS_PER_YEAR, Traffic
from tonnage.spec.prices import Prices, stale


def job_cost(
    requests: float,
    seconds: float,
    tokens: tuple[float, float],
    serving: Serving,
    prices: Prices,
    *,
    model: str | None = None,
    today: date | None = None,
) -> JobCost:
    """What a job costs.

    Args:
        requests, seconds: how many, within how long.
        tokens: mean of a request, in and out.
        serving: the instance; its rate is what it completes when always busy.
        prices: the price list.
        model: whose API price counts (catalog id); without one only a price that the user gave.
        today: the day on which prices older than a year are warned about; none are if not given.
    """
    rate, hours = requests / seconds, seconds / 3_600
    traffic = Traffic(peak_requests_per_second=rate, mean_requests_per_second=None, input_tokens=tokens[0], output_tokens=tokens[1])
    serving = as_planned(serving, traffic)
    owned = replace(on_prem(traffic, serving, replace(prices, power_in_hosting=True)), energy=None)
    power = power_per_request(serving, prices) * requests
    rent = rent_of(serving, prices)
    instances = max(1, needed(rate, serving))
    busy = requests / (instances * serving.requests_per_second_per_instance) / 3_600
    begun = max(1, math.ceil(min(hours, busy) * (1 - SAME_VOLUME)))
    gpu_hours = 0.0 if isinstance(rent, NoCost) else float(rent.holding(instances) * begun * rent.gpus)
    cloud = None if isinstance(rent, NoCost) else rent.holding(instances) * begun * rent.usd
    api = prices.api_price(model)
    each, api_how = api_request(traffic, prices, model) if api else (0.0, "")
    tokens_usd = requests * each if api else None
    api_figures = (api.usd_per_million_input_tokens, api.usd_per_million_output_tokens) if api else ()
    figures = tuple(dict.fromkeys((*owned.figures, *(() if isinstance(rent, NoCost) else rent.figures), *api_figures)))
    most = HOURS_PER_YEAR / hours
    return JobCost(
        requests=requests,
        hours=hours,
        owned=owned,
        power_usd_per_job=power,
        cloud_usd_per_job=cloud,
        cloud_gpu_hours_per_job=gpu_hours,
        api_usd_per_job=tokens_usd,
        jobs_per_year_against_cloud=_jobs(owned.total_usd_per_year, cloud, power, most),
        jobs_per_year_against_api=_jobs(owned.total_usd_per_year, tokens_usd, power, most),
        most_jobs_per_year=most,
        cloud_how="" if isinstance(rent, NoCost) else _rented(rent, gpu_hours, begun),
        api_how=f"{requests:,.0f} requests; {api_how}" if api else "",
        cloud_reason=rent if isinstance(rent, NoCost) else None,
        api_reason=None if api else NoCost(code="api-price", name=model or ""),
        figures=figures,
        stale_prices=stale(figures, today) if today else (),
    )


def _rented(rent: Rent, gpu_hours: float, begun: int) -> str:
    """The arithmetic of the rent."""
    licence = f" + {rent.licence / rent.gpus:g} USD licence" if rent.licence else ""
    return f"{gpu_hours:,.0f} GPU-hours ({begun} begun hour{'' if begun == 1 else 's'}) × {rent.offer}{licence}"


def _jobs(owned: float | None, each: float | None, power: float, most: float) -> float | None:
    """Jobs a year at which owning costs the same; None where a price is not known or a year is too short."""
    if owned is None or each is None or owned > (each - power) * most:
        return None
    return owned / (each - power)
