"""Prices by name: every price of the catalog has one, and none is a key."""

from __future__ import annotations

from dataclasses import fields

import pytest

from tonnage.report.plans.cost import PRICE_NAMES, price_name
from tonnage.spec.catalog.price_list import catalog_prices
from tonnage.spec.prices import Figure


def paths() -> list[str]:
    """Every price of the shipped list."""
    prices = catalog_prices()
    found = [value.path for f in fields(prices) if isinstance(value := getattr(prices, f.name), Figure)]
    found += [*(one.usd.path for one in prices.systems), *(one.usd.path for one in prices.gpus)]
    found += [offer.usd_per_gpu_hour.path for offer in prices.cloud]
    return found + [each.path for api in prices.api for each in (api.usd_per_million_input_tokens, api.usd_per_million_output_tokens)]


def test_every_price_of_the_catalog_has_a_name_of_its_own_with_a_unit() -> None:
    names = {path: price_name(path) for path in paths()}
    assert len(names) > 100
    assert len(set(names.values())) == len(names)
    assert all("_" not in name.split(":")[0] and name != path for path, name in names.items())
    assert all("USD" in name for path, name in names.items() if path not in PRICE_NAMES)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("systems.dgx-h100", "dgx-h100, USD per system"),
        ("cloud.h100-sxm-80gb.Civo on-demand", "h100-sxm-80gb in the cloud, USD per GPU and hour: Civo on-demand"),
        ("api.llama-3.1-8b.usd_per_million_input_tokens", "llama-3.1-8b through an API, USD per million input tokens"),
        ("api.a.b/c.usd_per_million_output_tokens", "a.b/c through an API, USD per million output tokens"),
        ("pue", "Power of the site over that of its machines (PUE)"),
        ("something_else", "something_else"),
    ],
)
def test_price_name(path: str, name: str) -> None:
    assert price_name(path) == name
