"""What a year of serving costs: what is owned, and how a cost is spread over requests and tokens.

One year is 365 days. The cost of an owned system is linear depreciation plus what it takes to run:
price / years + hosting + GPUs × licence, and the electricity where hosting does not pay for it already.

A cost is split over tokens by one rule: an output token counts for as many input tokens as
``output_to_input_price_ratio`` says, so that USD = p · (input + ratio · output) and p is the price of
an input token.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tonnage.errors import UnknownName
from tonnage.plan.cost import CostPart, Energy, WayCost
from tonnage.plan.cost_note import NoCost
from tonnage.plan.serving import Serving
from tonnage.plan.traffic import HOURS_PER_YEAR, Traffic
from tonnage.spec.catalog import find_gpu, find_system
from tonnage.spec.prices import Figure, Prices, amount

if TYPE_CHECKING:
    from tonnage.plan.candidate import Candidate
    from tonnage.plan.plan import Plan


def traffic_of(plan: Plan) -> Traffic:
    """The year's load behind a plan; the mean of its hourly profile where it has one."""
    demand, asked = plan.demand, plan.scenario
    profile = demand.profile or ()
    mean = sum(profile) / len(profile) if profile else demand.mean_requests_per_second
    return Traffic(
        peak_requests_per_second=demand.sizing_requests_per_second,
        mean_requests_per_second=mean,
        input_tokens=asked.mean_isl,
        output_tokens=asked.mean_osl,
        profile=profile,
    )


def serving_of(candidate: Candidate, spare: int = 0) -> Serving:
    """What a candidate of a plan is, for its cost."""
    watts, source = system_watts(candidate.gpu, candidate.system)
    return Serving(
        gpu=candidate.gpu,
        system=candidate.system,
        gpus_per_instance=candidate.parallelism.gpus,
        gpus_per_system=candidate.gpus_per_system,
        requests_per_second_per_instance=candidate.requests_per_second_per_instance,
        system_watts=watts,
        watts_from=source,
        spare=spare,
        systems=candidate.systems,
    )


def system_watts(gpu: str, system: str) -> tuple[float | None, str]:
    """Highest power of a system in watts and where it comes from: its own, else the TDP of its GPUs, without the rest of the server."""
    try:
        found = find_system(system)
        if found.max_power_w is not None:
            return found.max_power_w, f"highest power of {found.name}, {found.max_power_w:,.0f} W"
        tdp = find_gpu(gpu).tdp_w
    except UnknownName:
        tdp = None
    if tdp is None:
        return None, f"the power of {system} is not in the catalog"
    return found.gpus * tdp, f"TDP of {found.gpus} × {gpu}, {found.gpus * tdp:,.0f} W, without the rest of the server"


def spread(cost: WayCost, traffic: Traffic, prices: Prices) -> WayCost:
    """The cost with its shares per request and per token, where the requests of the year are known."""
    requests, usd = traffic.requests_per_year, cost.usd_per_year
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


def system_parts(serving: Serving, prices: Prices, count: float) -> tuple[CostPart, ...] | NoCost:
    """A year of ``count`` owned systems, part by part and without electricity; why there is no cost where the price is not known."""
    price = prices.system_usd(serving.system)
    if price is None:
        return NoCost(code="system-price", name=serving.system)
    years, hosting, licence = prices.depreciation_years, prices.hosting_usd_per_system_year, prices.licence_usd_per_gpu_year
    shown = f"{count:,.4g} × "
    each = f"{shown}{price.value:,.0f} USD / {years.value:g} years"
    parts = [CostPart(name="systems", kind="capex", usd_per_year=count * price.value / years.value, how=each)]
    if hosting is not None:
        how = f"{shown}{amount(hosting)} USD"
        parts.append(CostPart(name="hosting", kind="opex", usd_per_year=count * hosting.value, how=how))
    if licence is not None:
        how = f"{shown}{serving.gpus_per_system} GPUs × {amount(licence)} USD"
        usd = count * serving.gpus_per_system * licence.value
        parts.append(CostPart(name="licences", kind="opex", usd_per_year=usd, how=how))
    return tuple(parts)


def owned_figures(serving: Serving, prices: Prices) -> tuple[Figure, ...]:
    """The prices that an owned system's cost rests on."""
    energy = (prices.power_usd_per_kwh, prices.pue) if prices.power_usd_per_kwh else (prices.pue,)
    found = (
        prices.system_usd(serving.system),
        prices.depreciation_years,
        prices.hosting_usd_per_system_year,
        prices.licence_usd_per_gpu_year,
        *energy,
    )
    return tuple(figure for figure in found if figure is not None)


def energy_of(serving: Serving, traffic: Traffic, prices: Prices, instances: int) -> Energy | None:
    """Electricity of ``instances`` owned instances, each with its share of a system; None where their power is not known.

    In an hour that needs more instances than are owned, these take their share. Where only the peak is
    known the systems are taken as busy all year: an upper bound.
    """
    if serving.system_watts is None or not instances:
        return None
    systems = instances * serving.gpus_per_instance / serving.gpus_per_system
    carried = instances * serving.requests_per_second_per_instance
    busy = 0.0
    for hours in traffic.hours:
        rate, sized = hours.requests_per_second, hours.sized_requests_per_second
        share = min(1.0, carried / sized) if sized else 1.0
        busy += hours.hours_per_year * (1.0 if rate is None else min(1.0, rate * share / carried))
    utilisation = busy / HOURS_PER_YEAR
    kwh = systems * serving.system_watts / 1_000 * busy * prices.pue.value
    power = prices.power_usd_per_kwh
    whole = "" if traffic.mean_requests_per_second is not None else " (only the peak is known: taken as busy all year)"
    how = (
        f"estimate: {systems:,.4g} × {serving.watts_from} × utilisation {utilisation:.0%}{whole} × {HOURS_PER_YEAR:,} h × PUE "
        f"{prices.pue.value:g}{f' × {amount(power)} USD/kWh' if power else ''}"
    )
    return Energy(
        kwh_per_year=kwh,
        usd_per_year=None if power is None else kwh * power.value,
        utilisation=utilisation,
        added=power is not None and not prices.power_in_hosting,
        how=how,
    )


def energy_part(energy: Energy | None) -> tuple[CostPart, ...]:
    """The electricity as a part of a cost; none where hosting pays for it or its price is not known."""
    if energy is None or energy.usd_per_year is None or not energy.added:
        return ()
    return (CostPart(name="power", kind="opex", usd_per_year=energy.usd_per_year, how=energy.how),)


def api_cost(traffic: Traffic, prices: Prices, name: str | None = None) -> WayCost:
    """What an API asks for the year's tokens."""
    price = prices.api_price(name)
    if price is None:
        return WayCost(where="api", usd_per_year=None, reason=NoCost(code="api-price"))
    each, how = api_request(traffic, prices, name)
    figures = (price.usd_per_million_input_tokens, price.usd_per_million_output_tokens)
    requests = traffic.requests_per_year
    if requests is None:
        return WayCost(
            where="api",
            usd_per_year=None,
            usd_per_1000_requests=each * 1_000,
            how=(how,),
            figures=figures,
            reason=NoCost(code="only-peak"),
        )
    part = CostPart(name="tokens", kind="opex", usd_per_year=each * requests, how=f"{how}, × {requests:,.0f} requests")
    return WayCost(
        where="api",
        usd_per_year=part.usd_per_year,
        usd_per_1000_requests=each * 1_000,
        usd_per_million_input_tokens=figures[0].value,
        usd_per_million_output_tokens=figures[1].value,
        parts=(part,),
        how=(part.how,),
        figures=figures,
    )


def api_request(traffic: Traffic, prices: Prices, name: str | None = None) -> tuple[float, str]:
    """USD that one request costs at an API, and the arithmetic; the API must be in the list."""
    price = prices.api_price(name)
    if price is None:
        raise UnknownName("API", str(name), [known.name for known in prices.api])
    into, out = price.usd_per_million_input_tokens, price.usd_per_million_output_tokens
    usd = (traffic.input_tokens * into.value + traffic.output_tokens * out.value) / 1e6
    how = (
        f"{price.name}: {traffic.input_tokens:,.6g} tokens in × {amount(into)} USD + {traffic.output_tokens:,.6g} out × "
        f"{amount(out)} USD per million = {usd * 1_000:,.4g} USD per 1,000 requests"
    )
    return usd, how
