"""Names as buyers copy them from the pages of vendors, clouds and the model hub find their entry; unknown ones suggest near ones."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tonnage import api
from tonnage.errors import UnknownName
from tonnage.report.facts import catalogued
from tonnage.report.writers.terminal import terminal
from tonnage.spec.catalog import find_engine, find_gpu, find_model, find_system, instance_types, machine_meant, system_of
from tonnage.spec.catalog.price_list import catalog_prices, listed_prices

MEANT: dict[str, dict[str, str]] = yaml.safe_load((Path(__file__).parent / "spellings.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("spelling", "name"), MEANT["gpus"].items())
def test_spellings_of_gpus_on_the_pages_of_vendors_and_clouds(spelling: str, name: str) -> None:
    assert find_gpu(spelling).name == find_gpu(spelling.upper()).name == name


@pytest.mark.parametrize(("spelling", "name"), MEANT["systems"].items())
def test_spellings_of_systems_and_machine_types_name_their_gpu_too(spelling: str, name: str) -> None:
    found = find_system(spelling)
    assert found.name == name
    assert find_gpu(spelling).name == found.gpu
    meant = machine_meant(spelling)
    assert meant == found or (meant is None and system_of(find_gpu(spelling)) == found), "HGX is the board and the server"


@pytest.mark.parametrize(("spelling", "name"), MEANT["models"].items())
def test_models_by_their_hub_names_whatever_the_case_and_without_the_owner(spelling: str, name: str) -> None:
    for written in (spelling, spelling.lower(), spelling.upper(), spelling.rpartition("/")[2]):
        assert find_model(written).name == name


@pytest.mark.parametrize(("spelling", "name"), MEANT["engines"].items())
def test_engines_by_nearest_version_at_or_below(spelling: str, name: str) -> None:
    assert find_engine(spelling).name == name


def test_machine_types_have_the_gpus_of_their_offers() -> None:
    offered = {(offer.gpu, size) for offer in catalog_prices().cloud for size in offer.machine_gpus}
    for name, machine in instance_types().items():
        assert find_gpu(machine.gpu).name == machine.gpu, name
        assert (machine.gpu, machine.gpus) in offered or machine.source.endswith("(recalled)"), name
        assert machine.source, name
        assert machine.date, name


@pytest.mark.parametrize(
    ("find", "name", "near"),
    [
        (find_gpu, "h1000", "h100"),
        (find_gpu, "GB200 NVL4", "gb200-186gb"),
        (find_gpu, "mi355", "mi355x"),
        (find_system, "gb200-nvl73", "gb200-nvl72"),
        (find_system, "dgx-h1000", "dgx-h100"),
        (find_model, "Qwen/Qwen3-33B", "qwen3-32b"),
        (find_model, "meta-llama/Llama-3.1-9B-Instruct", "llama-3.1-8b"),
    ],
)
def test_an_unknown_name_suggests_near_ones(find, name: str, near: str) -> None:
    with pytest.raises(UnknownName, match=f"did you mean .*{near}"):
        find(name)


# The catalog's prices as a list: all of them, found by words, and shown with source and date.


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
