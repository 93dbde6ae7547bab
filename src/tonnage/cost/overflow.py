"""One load served by systems of one's own, and by an API for what goes beyond them."""

from __future__ import annotations

import math

from tonnage.cost.cost import api_request, ends, energy_of, energy_part, owned_figures, spread, system_parts, token_part
from tonnage.cost.options import cheapest_split, instances_on, value_of, with_spare
from tonnage.plan.cost import Serving, Traffic, WayCost
from tonnage.plan.note import NoCost
from tonnage.spec.prices import ApiPrice, Prices


def overflow(traffic: Traffic, serving: Serving, prices: Prices, model: str | None = None) -> WayCost:
    """The cheapest number of owned systems, from none to all, with the requests beyond them sent to an API.

    Where systems are owned, the spare ones are owned beside them. Of equal costs the one with fewer systems stands.
    """
    price = prices.api_price(model)
    if price is None:
        return WayCost(where="hybrid-api", total_usd_per_year=None, reason=NoCost(code="api-price", name=model or ""))
    if traffic.requests_per_year is None:
        return WayCost(where="hybrid-api", total_usd_per_year=None, reason=NoCost(code="only-peak"))
    how = api_request(traffic, prices, model)[1]
    return cheapest_split([_split(traffic, serving, prices, price, how, systems=count) for count in _corners(traffic, serving)])


def beyond(traffic: Traffic, serving: Serving, systems: int) -> float:
    """Requests a year that so many owned systems leave to the API.

    Of an hour that is provided for at a peak P and whose owned instances carry C, the share 1 - C / P is sent on. That is the most
    that its mean and its peak allow: it is exact for an hour that is now at its peak and now idle, and less goes beyond where the
    load lies in between.
    """
    carried = instances_on(systems, serving) * serving.requests_per_second_per_instance
    return sum(
        hours.hours_per_year * 3_600 * (hours.requests_per_second or 0.0) * max(0.0, 1 - carried / hours.sized_requests_per_second)
        for hours in traffic.hours
        if hours.sized_requests_per_second
    )


def _corners(traffic: Traffic, serving: Serving) -> list[int]:
    """Numbers of owned systems of which one is the cheapest of all: none, and those around which some hour sends nothing on any more.

    Between them every cost is a straight line over the number of systems.
    """
    each, span = serving.fleet.instances_per_system, serving.fleet.systems_per_instance
    group = each * serving.requests_per_second_per_instance
    exact = {round(hours.sized_requests_per_second / group, 9) for hours in traffic.hours}
    return sorted({0, *(math.floor(groups) * span for groups in exact), *(math.ceil(groups) * span for groups in exact)})


def _split(traffic: Traffic, serving: Serving, prices: Prices, price: ApiPrice, how: str, *, systems: int) -> WayCost:
    """A year with so many owned systems that carry load, the spare ones beside them, and the rest at the API."""
    bought = with_spare(systems, serving)
    owned = system_parts(serving, prices, bought)
    if isinstance(owned, NoCost):
        return WayCost(where="hybrid-api", total_usd_per_year=None, reason=owned)
    requests = beyond(traffic, serving, systems)
    energy = energy_of(serving, traffic, prices, instances_on(systems, serving))
    tokens = (token_part(traffic, price, requests, how),) if requests else ()
    parts = (*(owned if systems else ()), *energy_part(energy), *tokens)
    low, high = ends(parts)
    asked = (price.usd_per_million_input_tokens, price.usd_per_million_output_tokens) if requests else ()
    cost = WayCost(
        where="hybrid-api",
        total_usd_per_year=sum(part.usd_per_year for part in parts),
        usd_per_year_low=low,
        usd_per_year_high=high,
        parts=parts,
        purchase_usd=bought * value_of(prices.system_usd(serving.system)) if systems else None,
        systems=bought,
        instances=instances_on(bought, serving),
        gpus=bought * serving.gpus_per_system,
        api_requests_per_year=requests,
        energy=energy,
        how=tuple(f"{part.name}: {part.how}" for part in parts),
        figures=(*(owned_figures(serving, prices) if systems else ()), *asked),
    )
    return spread(cost, traffic, prices)
