"""The price list: offers by size and provider, prices of one's own in their place, and what cannot be a price."""

from __future__ import annotations

import math
import pickle
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.spec.price_lists import PRICES, offer
from tonnage.cost.cost import system_watts
from tonnage.errors import InputError
from tonnage.spec.catalog import find_gpu, system_of
from tonnage.spec.catalog.price_list import (
    FIGURES,
    KEYS,
    OPTIONAL,
    catalog_prices,
    parse_price_flags,
    problems,
    read_overrides,
)
from tonnage.spec.prices import Figure


def test_the_offer_is_the_user_s_then_the_one_named_then_the_middle_one_of_the_providers_of_that_size() -> (
    None
):
    aws = PRICES.with_overrides({"cloud_offer": "AWS"})
    named = {tier.machine_gpus: tier.offer.offer for tier in aws.cloud_tiers("h100-sxm-80gb")}
    assert named == {
        1: "AWS p5.4xlarge on-demand us-east-1",
        8: "AWS p5.48xlarge on-demand us-east-1",
    }
    assert (
        offer(PRICES.with_overrides({"cloud_offer": "AWS p5.48xlarge reserved"}))
        == "AWS p5.48xlarge reserved 3 years us-east-1"
    )
    assert (
        offer(PRICES.with_overrides({"cloud": {"H100": {"reserved": 1.9}}, "cloud_offer": "AWS"}))
        == "reserved"
    )
    assert offer(PRICES.with_overrides({"cloud_offer": "Lambda"}), "mi300x") == offer(
        PRICES, "mi300x"
    ), "Lambda has none of these"
    tiers = PRICES.cloud_tiers("h100-sxm-80gb")
    assert [tier.machine_gpus for tier in tiers] == [1, 2, 4, 8]
    for tier in tiers:
        offers = (*tier.offers, *tier.elsewhere)
        assert len({each.provider for each in offers}) == len(offers) == 16
        assert {each.terms for each in offers} == {"on-demand"}
        assert all(tier.machine_gpus in each.machine_gpus for each in tier.offers)
        assert not any(tier.machine_gpus in each.machine_gpus for each in tier.elsewhere)
        assert tier.offer == tier.offers[(len(tier.offers) - 1) // 2]
        for sorted_by_price in (tier.offers, tier.elsewhere):
            usual = [each.usd_per_gpu_hour.value for each in sorted_by_price]
            assert usual == sorted(usual)


def test_a_machine_is_offered_for_every_size() -> None:
    assert offer(PRICES, "l4", 1) == "GCP g2-standard-4 on-demand us-central1"
    assert offer(PRICES, "l4", 4) == "GCP g2-standard-48 on-demand us-central1"
    assert {tier.machine_gpus for tier in PRICES.cloud_tiers("l40s", 8)} == {8, 10}
    assert offer(PRICES, "gb300-279gb", 8) == "OCI BM.GPU.GB300.4 on-demand", (
        "no larger machine is offered"
    )
    assert [tier.machine_gpus for tier in PRICES.cloud_tiers("h100-sxm-80gb", 16)] == [8], (
        "of several machines, the largest"
    )
    aws = PRICES.with_overrides({"cloud_offer": "AWS"})
    assert [offer(aws, "a10g-24gb", gpus) for gpus in (1, 4, 8)] == [
        "AWS g5.xlarge on-demand us-east-1",
        "AWS g5.12xlarge on-demand us-east-1",
        "AWS g5.48xlarge on-demand us-east-1",
    ]
    for gpu, smallest in [
        *(
            ("h100-sxm-80gb", 1),
            ("h200-sxm-141gb", 1),
            ("b200-sxm-180gb", 1),
            ("b300-sxm-270gb", 1),
            ("gb200-186gb", 4),
        ),
        *(
            ("gb300-279gb", 4),
            ("rtx-pro-6000-blackwell-se", 1),
            ("l40s", 1),
            ("mi300x", 1),
            ("mi325x", 8),
            ("mi355x", 8),
        ),
    ]:
        system = system_of(find_gpu(gpu))
        bought = PRICES.system_usd(system.name)
        assert bought.source
        assert bought.value > 5_000 * system.gpus
        watts, source = system_watts(gpu, system.name)
        assert source.endswith("an estimate") == (system.max_power_w is None)
        assert 500 < watts / system.gpus < 3_000
        tiers = PRICES.cloud_tiers(gpu)
        assert tiers[0].machine_gpus == smallest
        assert 0.5 < tiers[0].offer.usd_per_gpu_hour.value < 20


def test_an_api_price_is_the_model_s_and_one_s_own_is_for_any() -> None:
    known = PRICES.api_price("llama-3.1-70b")
    assert (known.usd_per_million_input_tokens.value, known.hosts) == (0.76, 6)
    like = PRICES.api_price("llama-3-70b")
    assert like.usd_per_million_input_tokens.value == 0.76
    assert like.usd_per_million_input_tokens.estimate
    assert like.usd_per_million_input_tokens.source.startswith(
        "estimate: the price of llama-3.1-70b; "
    )
    two = {
        "a": {"usd_per_million_input_tokens": 1, "usd_per_million_output_tokens": 2},
        "phi-4": {"usd_per_million_input_tokens": 3, "usd_per_million_output_tokens": 4},
    }
    mine = PRICES.with_overrides({"api": two})
    for model, name in (("phi-4", "phi-4"), ("llama-3.1-70b", "a"), ("nobody", "a")):
        price = mine.api_price(model)
        assert price.name == name
    only = PRICES.with_overrides({"api": {"phi-4": two["phi-4"]}})
    assert only.api_price("llama-3.1-70b") == known
    assert only.api_price("nobody") is None


def test_overrides_take_the_place_of_the_catalog_s_and_leave_the_rest() -> None:
    mine = PRICES.with_overrides(
        {
            "systems": {
                "DGX H100": {"value": 250_000, "source": "quote 17", "date": "2026-10-01"},
                "8xl40s": 90_000,
            },
            "cloud": {"h100": {"low": 2, "high": 3}},
            "api": {"usd_per_million_input_tokens": 0.5, "usd_per_million_output_tokens": 1.5},
            "licence_usd_per_gpu_year": None,
            "hosting_usd_per_system_year": "none",
        }
    )
    quoted = mine.system_usd("dgx-h100")
    assert quoted == Figure(
        path="systems.DGX H100",
        low=250_000,
        high=250_000,
        source="given by the user: quote 17",
        date="2026-10-01",
    )
    assert mine.system_usd("8xl40s") is not None
    assert mine.system_usd("gb200-nvl72") == PRICES.system_usd("gb200-nvl72")
    (tier,) = mine.cloud_tiers("h100-sxm-80gb")
    assert (tier.machine_gpus, tier.offer.usd_per_gpu_hour.value) == (None, 2.5)
    assert (api := mine.api_price("llama-3.1-70b")) is not None
    assert api.usd_per_million_output_tokens.value == 1.5
    assert mine.licence_usd_per_gpu_year is None
    assert mine.hosting_usd_per_system_year is None
    assert mine.licence_usd_per_gpu_hour == PRICES.licence_usd_per_gpu_hour
    assert PRICES.with_overrides({}) == PRICES
    assert pickle.loads(pickle.dumps(mine)) == mine


BAD = {
    "word": ({"power_usd_per_kwh": "cheap"}, "prices.power_usd_per_kwh"),
    "endless": ({"pue": math.inf}, "prices.pue"),
    "building below its computers": ({"pue": 0.9}, "prices.pue"),
    "unknown key": ({"sytems": {}}, "prices.sytems"),
    "unknown system": ({"systems": {"dgx-z": 3}}, "prices.systems.dgx-z"),
    "turned range": ({"cloud": {"h100": {"low": 3, "high": 2}}}, "prices.cloud.h100"),
    "half an API": (
        {"api": {"usd_per_million_input_tokens": 1}},
        "prices.api.usd_per_million_output_tokens",
    ),
    "free API": (
        {"api": {"x": {"usd_per_million_input_tokens": 0, "usd_per_million_output_tokens": 1}}},
        "prices.api.x.usd_per_million_input",
    ),
    "an offer that nobody makes": (
        {"cloud_offer": "specialty"},
        "prices.cloud_offer: no offer begins with 'specialty'",
    ),
    "a machine of no GPUs": (
        {"cloud": {"h100": {"x": {"value": 2, "gpus": [8, 0]}}}},
        "prices.cloud.h100.x.gpus: '0' is not a number of GPUs",
    ),
    "value outside its range": (
        {"pue": {"low": 1.2, "value": 1.7, "high": 1.5}},
        "prices.pue: 1.7 is outside 1.2 to 1.5",
    ),
    "hosting twice": (
        {"hosting_usd_per_kw_month": 100, "hosting_usd_per_system_year": 3_000},
        "prices.hosting_usd_per_kw_month: hosting_usd_per_system_year is given too",
    ),
}


@pytest.mark.parametrize(("overrides", "path"), BAD.values(), ids=BAD)
def test_what_no_price_can_be_is_refused_with_its_path(
    overrides: dict[str, object], path: str
) -> None:
    with pytest.raises(InputError, match=f"^{path}"):
        PRICES.with_overrides(overrides)
    assert catalog_prices() == PRICES


@given(
    st.floats(max_value=0, allow_nan=False, allow_infinity=False),
    st.sampled_from((*FIGURES, *OPTIONAL)),
)
def test_nothing_at_or_below_zero_is_a_price(value: float, key: str) -> None:
    assert problems({key: value})[0].startswith(f"prices.{key}: ")


def test_flags_and_files_say_the_same(tmp_path: Path) -> None:
    flags = [
        "systems.dgx-h100=250000",
        "pue=1.2",
        "licence_usd_per_gpu_year=none",
        "api.a-1.5.usd_per_million_input_tokens=1",
    ]
    assert parse_price_flags(flags) == {
        "systems": {"dgx-h100": 250_000},
        "pue": 1.2,
        "licence_usd_per_gpu_year": "none",
        "api": {"a-1.5": {"usd_per_million_input_tokens": 1}},
    }
    for wrong in (["pue"], ["systems.=3"], ["pue=1.2", "pue.value=1.3"]):
        with pytest.raises(InputError, match=r"^price: "):
            parse_price_flags(wrong)
    file = tmp_path / "prices.yaml"
    file.write_text(
        "systems: {dgx-h100: 250000}\npue: {value: 1.2, date: 2026-10-01, source: meter}\n"
    )
    mine = PRICES.with_overrides(read_overrides(file))
    assert (mine.pue.value, mine.pue.date, mine.pue.source) == (
        1.2,
        "2026-10-01",
        "given by the user: meter",
    )


def test_the_price_list_of_the_manual_can_be_read() -> None:
    manual = (Path(__file__).parents[3] / "docs" / "cost.md").read_text()
    listed = manual.partition("```yaml\n")[2].partition("```")[0]
    overrides = yaml.safe_load(listed)
    assert set(overrides) == set(KEYS)
    assert problems(overrides) == []


def test_reserved_machines_are_offers_for_years_by_the_same_rule() -> None:
    prices = catalog_prices()
    (tier,) = prices.reserved_tiers("h100-sxm-80gb", 1, 3)
    assert tier.machine_gpus == 8
    assert tier.offer.offer.startswith("AWS p5.48xlarge reserved 3 years")
    # prices of the GPU without its machine are no offers, and none is for one year
    assert all("SKU" not in offer.offer for offer in tier.offers)
    assert prices.reserved_tiers("h100-sxm-80gb", 1, 1) == ()
    named = prices.with_overrides({"cloud_offer": "Azure"})
    assert named.reserved_tiers("h100-sxm-80gb", 1, 3) == ()
    own = prices.with_overrides({"cloud": {"h100": 2}})
    assert own.reserved_tiers("h100-sxm-80gb", 1, 3) == ()
    kept = {"value": 1, "gpus": 8, "terms": "reserved 3 years"}
    both = prices.with_overrides({"cloud": {"h100": {"kept": kept, "hourly": 2}}})
    assert [tier.offer.offer for tier in both.cloud_tiers("h100-sxm-80gb")] == ["hourly"]
    assert [tier.offer.offer for tier in both.reserved_tiers("h100-sxm-80gb", 1, 3)] == ["kept"]
