"""The catalog's prices as a list: all of them, found by words, and shown with source and date."""

from __future__ import annotations

import pytest

from tonnage import api
from tonnage.report.facts import catalogued
from tonnage.report.writers.terminal import terminal
from tonnage.spec.catalog.listed import listed_prices
from tonnage.spec.catalog.price_list import catalog_prices

PRICES = catalog_prices()


def test_every_price_is_listed_with_a_unit_a_source_and_a_date() -> None:
    listed = listed_prices()
    assert all(price.unit and price.source and price.date for price in listed)
    assert all(0 < price.low <= price.value <= price.high for price in listed)
    kinds = [price.kind for price in listed]
    assert kinds.count("cloud") == len(PRICES.cloud)
    assert kinds.count("api") == 2 * len(PRICES.api)
    assert {price.name for price in listed if price.kind == "system" and price.estimate} >= {"dgx-b300", "mi300x-8", "8xl40s"}


@pytest.mark.parametrize(
    ("text", "name"),
    [("dgx-h100", "dgx-h100"), ("AWS p5.48xlarge", "h100-sxm-80gb"), ("api llama 3.1 70b", "llama-3.1-70b"), ("pue", "pue")],
)
def test_prices_are_found_by_words(text: str, name: str) -> None:
    found = listed_prices(text)
    assert {price.name for price in found} == {name}
    assert len(found) < 6


@pytest.mark.parametrize("columns", [80, 100, 120])
def test_prices_are_shown_with_day_and_source_at_every_width(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    text = terminal(catalogued(api.catalog("dgx-b300")))
    assert "468,000 (estimate)" in text
    assert "2026-08-08" in text
    assert "estimate: 8 × 45,000 USD" in text
    cloud = terminal(catalogued(api.catalog("AWS p5en")))
    assert "h200-sxm-141gb in a cloud, USD per GPU and hour (2)" in cloud
    assert "7.912" in cloud
    assert "2026-07-20" in cloud
    assert "github.com/aws/karp" in cloud
    assert "llama-3.1-70b" in terminal(catalogued(api.catalog("prices")))
