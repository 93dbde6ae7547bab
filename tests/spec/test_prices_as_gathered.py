"""Every price of the catalog stands in the gathered prices with the same figures, and nothing that was gathered was forgotten."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from tonnage.spec.catalog import gpus
from tonnage.spec.catalog.price_list import catalog_prices
from tonnage.spec.prices import Figure

PRICES = catalog_prices()
GATHERED = Path(__file__).parents[3] / "shared" / "data" / "prices.csv"
GPUS = {gpu.name for gpu in gpus()}
Row = dict[str, str]

QUOTED = {
    "dgx-a100-40gb": "dgx-a100 (8x A100 40GB, launch list)",
    "dgx-h100": "hgx-h100 / dgx-h100 (8x H100 SXM)",
    "dgx-h200": "hgx-h200 / dgx-h200 (8x H200 SXM)",
    "dgx-b200": "dgx-b200 (8x B200)",
    "gb200-nvl72": "gb200-nvl72 (rack, 72 GPUs)",
    "gb300-nvl72": "gb300-nvl72 (rack, 72 GPUs)",
}
"""What the gathered prices call the catalog's systems."""

NOT_PRICED_SO = {
    "dgx-b300 / hgx-b300 (8x B300)": "below the price of its own GPUs; estimated from these",
    "gb200-nvl72 with external networking, large cluster": "a cluster",
    "h100 cluster, all-in per GPU (server + InfiniBand)": "a cluster",
}
CARDS = {
    "b200-sxm-180gb": "b200-sxm (new)",
    "b300-sxm-270gb": "b300-sxm (new)",
    "h20-96gb": "h20",
    "rtx-pro-6000-blackwell-se": "rtx-pro-6000-blackwell",
}
NOT_GATHERED = ("mi325x", "mi355x")
"""Cards of which the gathered prices have none."""

APIS = {"deepseek-v3": "deepseek-v3-0324"}


@pytest.fixture(scope="module")
def gathered() -> dict[str, list[Row]]:
    """The rows by kind."""
    if not GATHERED.exists():
        pytest.skip(f"{GATHERED.name} is not beside the checkout")
    found: dict[str, list[Row]] = {}
    with GATHERED.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            found.setdefault(row["kind"], []).append(row)
    return found


def item(rows: list[Row], name: str) -> Row:
    (found,) = (row for row in rows if row["item"] == name)
    return found


def figures_of(row: Row) -> tuple[float, float | None, float]:
    """Lowest, usual and highest as the row gives them; the usual one where an end is missing."""
    typical = float(row["typical"]) if row["typical"] else None
    low, high = (float(row[end] or row["typical"]) for end in ("low", "high"))
    return low, typical, high


def same(figure: Figure | None, row: Row) -> bool:
    assert figure is not None, row["item"]
    low, typical, high = figures_of(row)
    usual = (low + high) / 2 if typical is None else typical
    return (figure.low, figure.value, figure.high, figure.date) == (low, usual, high, row["date"])


def test_every_quoted_system_has_its_price_and_the_rest_is_left_out_for_a_reason(gathered: dict[str, list[Row]]) -> None:
    rows = gathered["system_purchase"]
    assert {row["item"] for row in rows} == {*QUOTED.values(), *NOT_PRICED_SO}
    assert {price.system for price in PRICES.systems} == set(QUOTED)
    for system, name in QUOTED.items():
        figure = PRICES.system_usd(system)
        assert same(figure, item(rows, name))
        assert not figure.estimate


def test_gpus_cost_what_was_gathered(gathered: dict[str, list[Row]]) -> None:
    rows = gathered["accelerator_purchase"]
    names = {row["item"] for row in rows}
    for price in PRICES.gpus:
        if price.gpu in NOT_GATHERED:
            continue
        found = [name for name in (CARDS.get(price.gpu, price.gpu), f"{price.gpu} (new)") if name in names]
        assert same(price.usd, item(rows, found[0]))
        assert price.usd.value >= 5_000


def test_every_cloud_row_of_a_gpu_of_the_catalog_is_there_with_its_figures(gathered: dict[str, list[Row]]) -> None:
    rows = [row for row in gathered["cloud_gpu_hour"] if row["item"].partition(": ")[0] in GPUS]
    offers = {(offer.gpu, offer.offer): offer for offer in PRICES.cloud}
    assert len(rows) == len(offers) > 200
    for row in rows:
        gpu, _, name = row["item"].partition(": ")
        offer = offers[gpu, re.sub(r" \(\d+ GPU\)", "", name)]
        assert same(offer.usd_per_gpu_hour, row)
        assert offer.usd_per_gpu_hour.source in (row["source"], row["source"].replace('"', "'"))
        machine = re.search(r"\((\d+) GPU\)", name)
        assert machine is None or offer.machine_gpus == (int(machine[1]),)
        assert offer.terms, row["item"]
        assert (offer.terms == "on-demand") <= ("on-demand" in name)


def test_every_model_s_api_price_is_the_gathered_one(gathered: dict[str, list[Row]]) -> None:
    prices = {APIS.get(price.name, price.name): price for price in PRICES.api if not price.usd_per_million_input_tokens.estimate}
    assert set(prices) == {row["item"] for row in gathered["api_input"]} == {row["item"] for row in gathered["api_output"]}
    for name, price in prices.items():
        assert same(price.usd_per_million_input_tokens, item(gathered["api_input"], name))
        assert same(price.usd_per_million_output_tokens, item(gathered["api_output"], name))
        told = re.match(r"(\d+) hosts", item(gathered["api_input"], name)["note"])
        assert price.hosts == (int(told[1]) if told else None)


@pytest.mark.parametrize(
    ("kind", "name", "key", "whole"),
    [
        ("hosting", "colocation, North America primary markets, 250-500 kW asking rate", "hosting_usd_per_kw_month", True),
        ("electricity", "United States, industrial, January 2026", "power_usd_per_kwh", True),
        ("pue", "industry average", "pue", True),
        ("licence", "NVIDIA AI Enterprise, 1-year subscription", "licence_usd_per_gpu_year", False),
        ("licence", "NVIDIA AI Enterprise, in the cloud", "licence_usd_per_gpu_hour", True),
        ("api_output_to_input_ratio", "median over 47 open models", "output_to_input_price_ratio", False),
    ],
)
def test_the_other_prices_are_the_gathered_ones(gathered: dict[str, list[Row]], kind: str, name: str, key: str, whole: bool) -> None:
    row, figure = item(gathered[kind], name), getattr(PRICES, key)
    assert same(figure, row) if whole else (figure.value, figure.date) == (float(row["typical"]), row["date"])
