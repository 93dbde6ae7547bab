"""The catalog's prices as a list: what, how much, of which day, from where."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from tonnage.spec.catalog.lookup import systems
from tonnage.spec.catalog.price_list import FIGURES, OPTIONAL, catalog_prices
from tonnage.spec.prices import Figure, Prices

Kind = Literal["general", "system", "gpu", "cloud", "api"]

UNITS = {
    "depreciation_years": "years",
    "hosting_usd_per_kw_month": "USD per kW and month",
    "hosting_usd_per_system_year": "USD per system and year",
    "licence_usd_per_gpu_year": "USD per GPU and year",
    "licence_usd_per_gpu_hour": "USD per GPU and hour",
    "power_usd_per_kwh": "USD per kWh",
    "grid_kg_co2_per_kwh": "kg of CO2 per kWh",
    "pue": "kW in the building per kW of computers",
    "output_to_input_price_ratio": "input tokens per output token",
    "server_over_gpus": "price of a server over its GPUs",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedPrice:
    """One price of the catalog.

    Attributes:
        kind: "system" and "gpu" to buy one, "cloud" by the hour, "api" by tokens, "general" for the rest.
        name: what it is of: its key in a price list, or an id of the catalog.
        offer: whose offer it is, such as "AWS p5.48xlarge on-demand us-east-1"; empty elsewhere.
        low, value, high: the range, and what costs are computed with.
        unit: what the price is for.
        estimate: whether it is computed from other prices rather than quoted.
        source, date: where it was read, and of which day it is.
    """

    kind: Kind
    name: str
    offer: str
    low: float
    value: float
    high: float
    unit: str
    estimate: bool
    source: str
    date: str


def listed_prices(text: str = "") -> tuple[ListedPrice, ...]:
    """The prices whose name or unit holds all words of a text; all of them for an empty one."""
    words = _level(text).split("-")
    return tuple(
        price for price in _all(catalog_prices()) if all(word in _level(f"{price.kind} {price.name} {price.offer}") for word in words)
    )


def _level(text: str) -> str:
    return re.sub(r"[\s_-]+", "-", text.strip().lower())


def _all(prices: Prices) -> Iterator[ListedPrice]:
    """General prices, systems with the estimated ones, GPUs, clouds and APIs."""
    for key in (*FIGURES, *OPTIONAL):
        figure = getattr(prices, key)
        if figure is not None:
            yield _listed("general", key, figure, UNITS[key])
    for system in systems():
        figure = prices.system_usd(system.name)
        if figure is not None:
            yield _listed("system", system.name, figure, "USD to buy one")
    for gpu in prices.gpus:
        yield _listed("gpu", gpu.gpu, gpu.usd, "USD to buy one without a server")
    for offer in prices.cloud:
        yield _listed("cloud", offer.gpu, offer.usd_per_gpu_hour, "USD per GPU and hour", offer.offer)
    for api in prices.api:
        yield _listed("api", api.name, api.usd_per_million_input_tokens, "USD per million tokens in")
        yield _listed("api", api.name, api.usd_per_million_output_tokens, "USD per million tokens out")


def _listed(kind: Kind, name: str, figure: Figure, unit: str, offer: str = "") -> ListedPrice:
    return ListedPrice(
        kind=kind,
        name=name,
        offer=offer,
        low=figure.low,
        value=figure.value,
        high=figure.high,
        unit=unit,
        estimate=figure.estimate,
        source=figure.source,
        date=figure.date,
    )
