"""What a year of serving costs: owned systems, and how a cost is spread over requests and tokens.

One year is 365 days. The cost of an owned system is linear depreciation plus what it takes to run:
price / years + hosting + GPUs × licence, and the electricity where hosting does not pay for it
already. Hosting is paid for each kW of the system's highest power, or as one sum for a system.

A cost is split over tokens by one rule: an output token counts for as many input tokens as
``output_to_input_price_ratio`` says, so that USD = p · (input + ratio · output) and p is the price
of an input token.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal

from tonnage.errors import UnknownName
from tonnage.plan.candidate import Candidate
from tonnage.plan.cost import HOURS_PER_YEAR, CostPart, Energy, Serving, Traffic, WayCost
from tonnage.plan.notes import NoCost
from tonnage.plan.plan import Plan
from tonnage.spec.catalog import find_gpu, find_system
from tonnage.spec.prices import ApiPrice, Figure, Prices, amount

MONTHS = 12

# Highest power of a server over the TDP of its GPUs: 1.79 of a DGX B200, 1.82 of a DGX H100 and
# H200, 2.03 of a DGX A100 (``spec/catalog/systems.yaml``)
SERVER_OVER_GPUS = 1.8


def traffic_of(plan: Plan) -> Traffic:
    """The year's load behind a plan; the mean of its hourly profile where it has one."""
    demand, understood = plan.demand, plan.scenario
    profile = demand.profile or ()
    mean = sum(profile) / len(profile) if profile else demand.mean_requests_per_second
    return Traffic(
        peak_requests_per_second=demand.sizing_requests_per_second,
        mean_requests_per_second=mean,
        input_tokens=understood.mean_isl,
        output_tokens=understood.mean_osl,
        profile=profile,
    )


def serving_of(candidate: Candidate, spare: int = 0) -> Serving:
    """What a candidate of a plan is, for its cost; ``spare`` systems beyond the load, and standby
    ones for failures.
    """
    watts, source = system_watts(candidate.gpu, candidate.system)
    power, limit = candidate.power, candidate.gpu_limit
    if (
        watts is not None
        and limit is not None
        and limit.cap_watts is not None
        and limit.board_watts is not None
    ):
        off, whole = candidate.gpus_per_system * (limit.board_watts - limit.cap_watts), watts
        watts, source = whole - off, f"{source}, less {off:,.0f} W by the power cap"
        power = None if power is None else replace(power, tdp_watts=power.tdp_watts * watts / whole)
    spare += 0 if candidate.standby is None else candidate.standby.extra_systems
    return Serving(
        gpu=candidate.gpu,
        system=candidate.system,
        gpus_per_instance=candidate.parallelism.gpus,
        gpus_per_system=candidate.gpus_per_system,
        requests_per_second_per_instance=candidate.sized_rate,
        system_watts=watts,
        watts_from=source,
        spare=spare,
        systems=candidate.systems,
        power=power,
    )


def system_watts(gpu: str, system: str) -> tuple[float | None, str]:
    """Highest power of a system in watts and where it comes from: its own, else an estimate from
    the TDP of its GPUs.
    """
    try:
        catalog_system = find_system(system)
        if catalog_system.max_power_w is not None:
            return (
                catalog_system.max_power_w,
                f"highest power of {catalog_system.name}, {catalog_system.max_power_w:,.0f} W",
            )
        tdp = find_gpu(gpu).tdp_w
    except UnknownName:
        tdp = None
    if tdp is None:
        return None, f"the power of {system} is not in the catalog"
    watts = SERVER_OVER_GPUS * catalog_system.gpus * tdp
    return (
        watts,
        f"{SERVER_OVER_GPUS:g} × the TDP of its {catalog_system.gpus} × {gpu}, {watts:,.0f} W, an"
        " estimate",
    )


def spread(cost: WayCost, traffic: Traffic, prices: Prices) -> WayCost:
    """The cost with its shares per request and per token, where the requests of the year are
    known.
    """
    requests, usd = traffic.requests_per_year, cost.total_usd_per_year
    if not requests or usd is None:
        return cost
    exact = cost.usd_per_year_exact
    ratio = prices.output_to_input_price_ratio.value
    per_token = usd / requests / (traffic.input_tokens + ratio * traffic.output_tokens)
    return replace(
        cost,
        usd_per_1000_requests=usd / requests * 1_000,
        usd_per_1000_requests_exact=None if exact is None else exact / requests * 1_000,
        usd_per_million_input_tokens=per_token * 1e6,
        usd_per_million_output_tokens=per_token * ratio * 1e6,
        figures=(*cost.figures, prices.output_to_input_price_ratio),
    )


def priced_part(
    name: str, kind: Literal["capex", "opex"], price: Figure, count: float, how: str
) -> CostPart:
    """The cost of ``count`` units at a price, with both ends of the price's range, if any."""
    usd = (count * price.value, count * price.low, count * price.high)
    return ranged_part(name, kind, how, usd, ranges=price.low < price.high)


def ranged_part(
    name: str,
    kind: Literal["capex", "opex"],
    how: str,
    usd: tuple[float, float, float],
    *,
    ranges: bool,
) -> CostPart:
    """A part by its USD a year at the usual price and, where its price ``ranges``, at the lowest
    and the highest.
    """
    usual, low, high = usd
    ends = {"usd_per_year_low": low, "usd_per_year_high": high} if ranges else {}
    return CostPart(name=name, kind=kind, how=how, usd_per_year=usual, **ends)


def ends(parts: Sequence[CostPart]) -> tuple[float, float] | tuple[None, None]:
    """The parts together at the low and at the high ends of their prices; None where no price has a
    range.
    """
    if all(part.usd_per_year_low is None for part in parts):
        return None, None
    low = sum(
        part.usd_per_year if part.usd_per_year_low is None else part.usd_per_year_low
        for part in parts
    )
    return low, sum(
        part.usd_per_year if part.usd_per_year_high is None else part.usd_per_year_high
        for part in parts
    )


def system_parts(serving: Serving, prices: Prices, count: float) -> tuple[CostPart, ...] | NoCost:
    """A year of ``count`` owned systems, part by part and without electricity; why there is no cost
    where the price is not known.
    """
    price = prices.system_usd(serving.system)
    if price is None:
        return NoCost(code="system-price", name=serving.system)
    years, licence = prices.depreciation_years, licence_of(serving, prices.licence_usd_per_gpu_year)
    shown = f"{count:,.4g} × "
    capex_how = (
        f"{shown}{amount(price)} USD{' (estimate)' if price.estimate else ''} / {years.value:g}"
        " years"
    )
    parts = [
        priced_part("systems", "capex", price, count / years.value, capex_how),
        *_hosting(serving, prices, count),
    ]
    if licence is not None:
        how = f"{shown}{serving.gpus_per_system} GPUs × {amount(licence)} USD"
        parts.append(priced_part("licences", "opex", licence, count * serving.gpus_per_system, how))
    return tuple(parts)


def _hosting(serving: Serving, prices: Prices, count: float) -> Iterator[CostPart]:
    """A sum for each system, or a price for each kW of its highest power; none where that is not
    known.
    """
    flat, by_kw = prices.hosting_usd_per_system_year, prices.hosting_usd_per_kw_month
    if flat is not None:
        yield priced_part("hosting", "opex", flat, count, f"{count:,.4g} × {amount(flat)} USD")
    elif by_kw is not None and serving.system_watts is not None:
        kw = serving.system_watts / 1_000
        how = f"{count:,.4g} × {kw:,.4g} kW × {MONTHS} months × {amount(by_kw)} USD"
        yield priced_part("hosting", "opex", by_kw, count * kw * MONTHS, how)


def hosting_is_missing(serving: Serving, prices: Prices) -> bool:
    """Whether hosting is paid by the kW for a system whose power is not known."""
    return (
        prices.hosting_usd_per_system_year is None
        and prices.hosting_usd_per_kw_month is not None
        and serving.system_watts is None
    )


def licence_of(serving: Serving, licence: Figure | None) -> Figure | None:
    """The licence where it is one for these GPUs: the catalog's is NVIDIA's, the user's own goes
    with any.
    """
    if licence is None or licence.given:
        return licence
    try:
        return licence if find_gpu(serving.gpu).vendor == "NVIDIA" else None
    except UnknownName:
        return licence


def owned_figures(serving: Serving, prices: Prices) -> tuple[Figure, ...]:
    """The prices that an owned system's cost rests on."""
    energy = (prices.power_usd_per_kwh, prices.pue) if prices.power_usd_per_kwh else (prices.pue,)
    figures = (
        prices.system_usd(serving.system),
        prices.depreciation_years,
        prices.hosting_usd_per_system_year
        or (None if hosting_is_missing(serving, prices) else prices.hosting_usd_per_kw_month),
        licence_of(serving, prices.licence_usd_per_gpu_year),
        *energy,
    )
    return tuple(figure for figure in figures if figure is not None)


def energy_of(serving: Serving, traffic: Traffic, prices: Prices, instances: int) -> Energy | None:
    """Electricity of ``instances`` owned instances, each with its share of a system; None where
    their power is not known.

    In an hour that needs more instances than are owned, these take their share. Where only the peak
    is known the systems are taken as busy all year: an upper bound.
    """
    if serving.system_watts is None or not instances:
        return None
    systems = instances * serving.gpus_per_instance / serving.gpus_per_system
    carried, full_kw = (
        instances * serving.requests_per_second_per_instance,
        systems * serving.system_watts / 1_000,
    )
    busy, drawn, has_power = 0.0, 0.0, serving.power is not None
    for hours in traffic.hours:
        rate, sized = hours.requests_per_second, hours.sized_requests_per_second
        highest = max(carried, sized)
        used = 1.0 if rate is None else rate / highest
        busy += hours.hours_per_year * used
        drawn += hours.hours_per_year * _drawn(
            serving, sized / highest if rate is None and has_power else used
        )
    utilisation = busy / HOURS_PER_YEAR
    kwh = full_kw * drawn * prices.pue.value
    power, grid = prices.power_usd_per_kwh, prices.grid_kg_co2_per_kwh
    whole = (
        ""
        if traffic.mean_requests_per_second is not None
        else " (only the peak is known: taken as busy all year)"
    )
    shown = _percent(drawn / HOURS_PER_YEAR)
    of_it = (
        f"{shown} of it at utilisation {_percent(utilisation)}, as predicted of the GPUs"
        if has_power
        else f"utilisation {shown}"
    )
    how = (
        f"estimate: {systems:,.4g} × {serving.watts_from} × {of_it}{whole} × {HOURS_PER_YEAR:,} h ×"
        f" PUE {prices.pue.value:g}{f' × {amount(power)} USD/kWh' if power else ''}"
    )
    return Energy(
        peak_kw=(
            full_kw * _drawn(serving, min(1.0, traffic.peak_requests_per_second / carried))
            if has_power
            else None
        ),
        mean_kw=full_kw * drawn / HOURS_PER_YEAR if has_power else None,
        kg_co2_per_year=None if grid is None else kwh * grid.value,
        kwh_per_year=kwh,
        usd_per_year=None if power is None else kwh * power.value,
        utilisation=utilisation,
        added=power is not None and not prices.power_in_hosting,
        how=how,
    )


def _drawn(serving: Serving, used: float) -> float:
    """Power over the highest at a share of the load inside the limits: as predicted of the GPUs,
    else that share.
    """
    return (
        used
        if serving.power is None
        else serving.power.share_at(used * serving.requests_per_second_per_instance)
    )


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.01 else f"{100 * share:.2g}%"


def energy_part(energy: Energy | None) -> tuple[CostPart, ...]:
    """The electricity as a part of a cost; none where hosting pays for it or its price is not
    known.
    """
    if energy is None or energy.usd_per_year is None or not energy.added:
        return ()
    return (CostPart(name="power", kind="opex", usd_per_year=energy.usd_per_year, how=energy.how),)


def divided(
    total: float, by_use: float, *, at_peak: Sequence[float], over_year: Sequence[float]
) -> tuple[float, ...]:
    """A cost divided between its causes: what is paid by use, such as electricity and rent
    by the hour, by their use over the year; the rest, which the peak decides, by their use then.

    Args:
        total: the whole cost.
        by_use: the part of it that is paid by use.
        at_peak, over_year: what each uses, in any unit.
    """
    peaks, years = math.fsum(at_peak), math.fsum(over_year)
    if not peaks or not years:
        raise ValueError("a cost is divided by what is used, and nothing is")
    return tuple(
        (total - by_use) * peak / peaks + by_use * year / years
        for peak, year in zip(at_peak, over_year, strict=True)
    )


def api_cost(traffic: Traffic, prices: Prices, model: str | None = None) -> WayCost:
    """The price of the year's tokens at an API."""
    price = prices.api_price(model)
    if price is None:
        return WayCost(
            where="api", total_usd_per_year=None, reason=NoCost(code="api-price", name=model or "")
        )
    usd_per_request, how = api_request(traffic, prices, model)
    figures = (price.usd_per_million_input_tokens, price.usd_per_million_output_tokens)
    requests = traffic.requests_per_year
    cost = WayCost(
        where="api",
        total_usd_per_year=None,
        usd_per_1000_requests=usd_per_request * 1_000,
        how=(how,),
        figures=figures,
    )
    if requests is None:
        return replace(cost, reason=NoCost(code="only-peak"))
    part = token_part(traffic, price, requests, how)
    return replace(
        cost,
        total_usd_per_year=part.usd_per_year,
        usd_per_year_low=part.usd_per_year_low,
        usd_per_year_high=part.usd_per_year_high,
        usd_per_million_input_tokens=figures[0].value,
        usd_per_million_output_tokens=figures[1].value,
        parts=(part,),
        how=(part.how,),
    )


def token_part(traffic: Traffic, price: ApiPrice, requests: float, how: str) -> CostPart:
    """The tokens of ``requests`` at an API, with the cheapest and the dearest host."""
    into, out = price.usd_per_million_input_tokens, price.usd_per_million_output_tokens
    usual, low, high = (
        requests * (traffic.input_tokens * input_usd + traffic.output_tokens * output_usd) / 1e6
        for input_usd, output_usd in (
            (into.value, out.value),
            (into.low, out.low),
            (into.high, out.high),
        )
    )
    return ranged_part(
        "tokens",
        "opex",
        f"{how}, × {requests:,.0f} requests",
        (usual, low, high),
        ranges=low < high,
    )


def api_request(traffic: Traffic, prices: Prices, model: str | None = None) -> tuple[float, str]:
    """USD that one request costs at an API, and the arithmetic; the list must have a price for the
    model.
    """
    price = prices.api_price(model)
    if price is None:
        raise UnknownName("API price", str(model), [api_price.name for api_price in prices.api])
    into, out = price.usd_per_million_input_tokens, price.usd_per_million_output_tokens
    hosts = f" (median of {price.hosts} hosts)" if price.hosts and price.hosts > 1 else ""
    usd = (traffic.input_tokens * into.value + traffic.output_tokens * out.value) / 1e6
    how = (
        f"{price.name}{hosts}: {traffic.input_tokens:,.6g} tokens in × {amount(into)} USD +"
        f" {traffic.output_tokens:,.6g} out × {amount(out)} USD per million = {usd * 1_000:,.4g}"
        " USD per 1,000 requests"
    )
    return usd, how
