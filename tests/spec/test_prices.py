"""Every price has a source and a date; a user's own take their place; what no price can be is
refused with its path."""

from __future__ import annotations

from datetime import date

import pytest

from tests.spec.price_lists import PRICES
from tonnage.spec.catalog.price_list import (
    FIGURES,
    OPTIONAL,
)
from tonnage.spec.prices import Figure, Prices, first_day, stale


def figures(prices: Prices) -> list[Figure]:
    found = [getattr(prices, key) for key in (*FIGURES, *OPTIONAL)]
    found += [price.usd for price in (*prices.systems, *prices.gpus)]
    found += [offer.usd_per_gpu_hour for offer in prices.cloud]
    for api in prices.api:
        found += [api.usd_per_million_input_tokens, api.usd_per_million_output_tokens]
    return [figure for figure in found if figure is not None]


def test_every_price_of_the_catalog_has_a_source_a_date_and_is_above_zero() -> None:
    for figure in figures(PRICES):
        assert figure.source, figure.path
        assert date(2020, 5, 14) <= first_day(figure.date) <= date(2026, 11, 21), figure.path
        assert 0 < figure.low <= figure.value <= figure.high, figure.path


def test_a_price_that_is_not_known_is_estimated_or_none() -> None:
    assert PRICES.system_usd("8xl4") is None
    assert PRICES.system_usd("abacus") is None
    assert PRICES.cloud_tiers("gaudi3") == ()
    assert PRICES.api_price("nobody") is None
    assert PRICES.api_price() is None, "the catalog has a price for each model and none for any"
    found = PRICES.system_usd("8xl40s")
    assert (found.low, found.value, found.high) == pytest.approx(
        (8 * 7_500 * 1.25, 8 * 8_500 * 1.3, 8 * 9_000 * 1.61)
    )
    assert found.estimate
    assert found.source.startswith(
        "estimate: 8 × 8,500 (7,500 to 9,000) USD for each l40s × 1.3 (1.25 to 1.61)"
    )
    dearer = PRICES.with_overrides({"gpus": {"l40s": 10_000}, "server_over_gpus": 1.5}).system_usd(
        "8xl40s"
    )
    assert dearer.value == 120_000
    assert PRICES.with_overrides({"gpus": {"l40s": "none"}}).system_usd("8xl40s") is None
    quoted = PRICES.with_overrides({"systems": {"8xl40s": 100_000}}).system_usd("8xl40s")
    assert (quoted.value, quoted.estimate) == (100_000, False)


def test_what_power_and_hosting_cost() -> None:
    assert not PRICES.power_in_hosting, (
        "a place in a data centre is paid for without its electricity"
    )
    assert PRICES.with_overrides({"hosting_usd_per_system_year": 3_000}).power_in_hosting, (
        "a sum for everything is taken to hold it"
    )
    assert not PRICES.with_overrides(
        {"hosting_usd_per_system_year": 3_000, "power_usd_per_kwh": 0.2}
    ).power_in_hosting
    assert not PRICES.with_overrides({"power_usd_per_kwh": 0.2}).power_in_hosting
    assert PRICES.with_overrides(
        {"power_usd_per_kwh": 0.2, "power_in_hosting": True}
    ).power_in_hosting
    assert not PRICES.with_overrides({"power_usd_per_kwh": None}).power_in_hosting
    flat = PRICES.with_overrides({"hosting_usd_per_system_year": 3_000})
    assert flat.hosting_usd_per_kw_month is None
    back = flat.with_overrides({"hosting_usd_per_kw_month": 150})
    assert (back.hosting_usd_per_system_year, back.hosting_usd_per_kw_month is not None) == (
        None,
        True,
    )
    for key in ("hosting_usd_per_system_year", "hosting_usd_per_kw_month"):
        bare = PRICES.with_overrides({key: "none"})
        assert (bare.hosting_usd_per_system_year, bare.hosting_usd_per_kw_month) == (None, None)


def test_a_price_is_old_a_year_and_a_day_later() -> None:
    figure = Figure(path="pue", low=1.5, high=1.6, source="somewhere", date="2025-11")
    assert stale([figure], date(2026, 11, 1)) == ()
    assert stale([figure, figure], date(2026, 11, 2)) == (figure,)
    undated = Figure(path="pue", low=1, high=1, source="given by the user", date="")
    rule = Figure(path="depreciation_years", low=4, high=4, source="course", date="2020")
    assert stale([undated, rule], date(2036, 1, 1)) == ()
    for text in ["2026-13", "26-01-01", "2026-1-1", "", "2026-02-30", "last year"]:
        with pytest.raises(ValueError, match="is not a date"):
            first_day(text)
    assert Figure(path="x", low=1, high=3, source="", date="").value == 2
    assert Figure(path="x", low=1, high=3, source="", date="", typical=1.5).value == 1.5
    pue = PRICES.with_overrides({"pue": {"low": 1.1, "value": 1.2, "high": 1.5}}).pue
    assert (pue.low, pue.value, pue.high) == (1.1, 1.2, 1.5)
    assert PRICES.with_overrides({"pue": {"value": 1.2, "high": 1.5}}).pue.low == 1.2
