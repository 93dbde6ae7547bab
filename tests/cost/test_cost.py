"""The course's figures to the cent, and the arithmetic of owned systems, energy and tokens in
closed form."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given

from tests.cost.cost_cases import (
    COURSE_PRICES,
    COURSE_REQUESTS,
    COURSE_SERVING,
    COURSE_TRAFFIC,
    candidate,
    servings,
    traffics,
)
from tests.plan.candidates import plan_of
from tonnage.cost.cost import (
    api_cost,
    api_request,
    divided,
    ends,
    energy_of,
    owned_figures,
    serving_of,
    spread,
    system_parts,
    system_watts,
    traffic_of,
)
from tonnage.cost.options import cloud, on_prem
from tonnage.cost.plan_cost import compare
from tonnage.errors import UnknownName
from tonnage.plan.candidate import GpuLimit, Power
from tonnage.plan.cost import HOURS_PER_YEAR, CostPart, Serving, Traffic, WayCost
from tonnage.plan.notes import HostingLeftOut, NoCost
from tonnage.report.plans.cost import cost_note_texts, no_cost_text
from tonnage.sizing.demand import demand_of
from tonnage.spec.catalog.price_list import catalog_prices
from tonnage.spec.prices import Prices

PRICES = COURSE_PRICES


CATALOG = catalog_prices()


def year_of(count: float, prices: Prices = PRICES) -> float:
    parts = system_parts(COURSE_SERVING, prices, count)
    assert not isinstance(parts, NoCost)
    return sum(part.usd_per_year for part in parts)


def test_course_a_system_costs_119_000_a_year_572k_exact_and_595k_whole() -> None:
    assert year_of(1) == 320_000 / 4 + 3_000 + 8 * 4_500 == 119_000
    assert round(year_of(4.806), -3) == 572_000
    assert year_of(5) == 595_000


def test_course_api_2_60_usd_per_1000_requests() -> None:
    usd, how = api_request(COURSE_TRAFFIC, PRICES)
    assert math.isclose(usd * 1_000, 2.6)
    assert (
        "2,000 tokens in × 1 USD + 200 out × 3 USD per million = 2.6 USD per 1,000 requests" in how
    )
    cost = api_cost(COURSE_TRAFFIC, PRICES)
    assert cost.usd_per_1000_requests is not None
    assert math.isclose(cost.usd_per_1000_requests, 2.6)
    assert cost.total_usd_per_year is not None
    assert math.isclose(cost.total_usd_per_year, 2_340_000)


def test_parts_are_left_out_where_their_price_is_none() -> None:
    bare = PRICES.with_overrides(
        {"licence_usd_per_gpu_year": None, "hosting_usd_per_system_year": None}
    )
    assert year_of(3, bare) == 240_000
    assert {figure.path for figure in owned_figures(COURSE_SERVING, bare)} == {
        "systems.dgx-h100",
        "depreciation_years",
        "power_usd_per_kwh",
        "pue",
    }


def test_a_system_is_written_off_over_the_years_given() -> None:
    assert year_of(2, PRICES.with_overrides({"depreciation_years": 5})) == 2 * (
        320_000 / 5 + 3_000 + 36_000
    )


def test_hosting_is_paid_for_each_kw_of_the_highest_power_and_electricity_beside_it() -> None:
    parts = {part.name: part for part in on_prem(COURSE_TRAFFIC, COURSE_SERVING, CATALOG).parts}
    assert parts["hosting"].usd_per_year == pytest.approx(5 * 10.2 * 12 * 184.06)
    assert parts["hosting"].how == "5 × 10.2 kW × 12 months × 184.06 (163.44 to 188.7) USD"
    assert (
        20_005
        <= (parts["hosting"].usd_per_year_low or 0) / 5
        <= 22_529
        <= (parts["hosting"].usd_per_year_high or 0) / 5
        <= 26_598
    )
    energy = energy_of(COURSE_SERVING, COURSE_TRAFFIC, CATALOG, 40)
    assert energy.added
    assert parts["power"].usd_per_year == energy.usd_per_year < parts["hosting"].usd_per_year


def test_hosting_by_the_kw_needs_the_power_and_says_so_where_it_is_not_known() -> None:
    dark = replace(COURSE_SERVING, system_watts=None)
    found = compare(COURSE_TRAFFIC, dark, CATALOG)
    owned = found.way("on-prem")
    assert "hosting" not in {part.name for part in owned.parts}
    (note,) = (note for note in found.notes if isinstance(note, HostingLeftOut))
    assert cost_note_texts(note)[0].startswith(
        "Hosting is not in the cost of the owned systems, as the power of dgx-h100 is not known"
    )
    assert not any(figure.path.startswith("hosting") for figure in owned.figures)
    flat = compare(COURSE_TRAFFIC, dark, COURSE_PRICES)
    assert not any(isinstance(note, HostingLeftOut) for note in flat.notes)


def test_nvidia_s_licence_is_paid_on_nvidia_s_gpus_and_one_s_own_on_any() -> None:
    amd = replace(COURSE_SERVING, gpu="mi300x", system="mi300x-8")
    for way in (on_prem, cloud):
        assert not any("licence" in part.name for part in way(COURSE_TRAFFIC, amd, CATALOG).parts)
        assert any(
            "licence" in part.name for part in way(COURSE_TRAFFIC, COURSE_SERVING, CATALOG).parts
        )
    own = CATALOG.with_overrides({"licence_usd_per_gpu_year": 100})
    assert any(part.name == "licences" for part in on_prem(COURSE_TRAFFIC, amd, own).parts)


def test_the_ends_of_every_price_are_the_ends_of_the_cost() -> None:
    owned = on_prem(COURSE_TRAFFIC, COURSE_SERVING, CATALOG)
    assert owned.total_usd_per_year - owned.usd_per_year_low == pytest.approx(
        5 * (10_000 / 4 + 10.2 * 12 * (184.06 - 163.44))
    )
    assert owned.usd_per_year_high - owned.total_usd_per_year == pytest.approx(
        5 * (90_000 / 4 + 10.2 * 12 * (188.7 - 184.06))
    )
    asked = api_cost(COURSE_TRAFFIC, CATALOG, "llama-3.1-70b")
    million = COURSE_REQUESTS / 1e6
    assert asked.usd_per_year_low == pytest.approx(million * (2_000 * 0.34 + 200 * 0.39))
    assert asked.usd_per_year_high == pytest.approx(million * (2_000 * 2.68 + 200 * 3.54))
    course = on_prem(COURSE_TRAFFIC, COURSE_SERVING, COURSE_PRICES)
    assert (course.usd_per_year_low, course.usd_per_year_high) == (None, None)


def test_the_ratio_of_tokens_is_the_user_s_to_set() -> None:
    even = PRICES.with_overrides({"output_to_input_price_ratio": 1})
    cost = spread(WayCost(where="on-prem", total_usd_per_year=2_200), COURSE_TRAFFIC, even)
    assert cost.usd_per_million_input_tokens == cost.usd_per_million_output_tokens
    assert cost.usd_per_million_input_tokens is not None
    assert math.isclose(cost.usd_per_million_input_tokens, 2_200 / (COURSE_REQUESTS * 2_200 / 1e6))


def test_energy_is_power_times_utilisation_times_pue() -> None:
    traffic = replace(COURSE_TRAFFIC, peak_requests_per_second=40.0, mean_requests_per_second=10.0)
    serving = replace(COURSE_SERVING, requests_per_second_per_instance=5.0)
    energy = energy_of(
        serving, traffic, PRICES.with_overrides({"power_usd_per_kwh": 0.2, "pue": 1.5}), 16
    )
    assert energy.utilisation == 10 / 80
    idle = energy_of(serving, replace(traffic, mean_requests_per_second=0.31), PRICES, 16)
    assert "× utilisation 12% ×" in energy.how
    assert "× utilisation 0.39% ×" in idle.how, "a bill of more than nothing is no product of 0 %"
    assert math.isclose(energy.kwh_per_year, 2 * 10.2 * (10 / 80) * 8_760 * 1.5)
    assert energy.usd_per_year is not None
    assert math.isclose(energy.usd_per_year, energy.kwh_per_year * 0.2)
    assert energy.how.startswith("estimate: ")
    assert energy.added


def test_energy_over_a_profile_counts_every_hour() -> None:
    traffic = replace(
        COURSE_TRAFFIC,
        peak_requests_per_second=20.0,
        mean_requests_per_second=7.5,
        profile=(0.0, 0.0, 10.0, 20.0),
    )
    serving = replace(COURSE_SERVING, requests_per_second_per_instance=1.0)
    whole = energy_of(serving, traffic, PRICES, 24)
    half = energy_of(serving, traffic, PRICES, 8)
    assert math.isclose(whole.utilisation, 7.5 / 24)
    assert math.isclose(half.utilisation, (0 + 0 + 1 + 1) / 4), (
        "what is beyond the owned instances is carried elsewhere"
    )


def test_energy_of_a_peak_alone_is_an_upper_bound_and_says_so() -> None:
    energy = energy_of(
        COURSE_SERVING, replace(COURSE_TRAFFIC, mean_requests_per_second=None), PRICES, 40
    )
    assert energy.utilisation == 1
    assert "only the peak is known" in energy.how


@given(servings(), traffics())
def test_energy_does_not_depend_on_how_many_systems_share_the_load(
    serving: Serving, traffic: Traffic
) -> None:
    enough = math.ceil(traffic.peak_requests_per_second / serving.requests_per_second_per_instance)
    few = energy_of(serving, traffic, PRICES, enough)
    many = energy_of(serving, traffic, PRICES, enough * 2)
    assert (few is None) == (many is None) == (serving.system_watts is None)
    if few and many:
        assert math.isclose(few.kwh_per_year, many.kwh_per_year)
        assert 0 <= many.utilisation <= few.utilisation <= 1


def test_power_of_a_system_is_its_own_or_estimated_from_its_gpus() -> None:
    assert system_watts("h100-sxm-80gb", "dgx-h100") == (
        10_200,
        "highest power of dgx-h100, 10,200 W",
    )
    watts, source = system_watts("l40s", "8xl40s")
    assert watts == pytest.approx(1.8 * 8 * 350)
    assert source == "1.8 × the TDP of its 8 × l40s, 5,040 W, an estimate"
    assert system_watts("my-gpu", "my-box")[0] is None
    assert energy_of(replace(COURSE_SERVING, system_watts=None), COURSE_TRAFFIC, PRICES, 8) is None


def test_traffic_of_a_demand() -> None:
    seven = traffic_of(
        plan_of(demand_of(mean_rps=COURSE_REQUESTS / HOURS_PER_YEAR / 3_600, factor=7))
    )
    assert seven.requests_per_year is not None
    assert math.isclose(seven.requests_per_year, COURSE_REQUESTS)
    assert round(seven.peak_requests_per_second, 2) == 199.77
    alone = traffic_of(plan_of(demand_of(peak_rps=3), isl=10, osl=10))
    assert alone.requests_per_year is None
    assert (
        spread(WayCost(where="api", total_usd_per_year=1.0), alone, PRICES).usd_per_1000_requests
        is None
    )


def test_an_api_without_a_volume_still_has_a_price_per_request() -> None:
    cost = api_cost(replace(COURSE_TRAFFIC, mean_requests_per_second=None), PRICES)
    assert cost.total_usd_per_year is None
    assert cost.usd_per_1000_requests is not None
    assert math.isclose(cost.usd_per_1000_requests, 2.6)
    assert cost.reason == NoCost(code="only-peak")


def test_an_api_that_is_not_known_is_not_guessed() -> None:
    unknown = api_cost(COURSE_TRAFFIC, CATALOG, "nobody")
    assert unknown.total_usd_per_year is None
    assert unknown.reason is not None
    assert no_cost_text(unknown.reason).startswith("no API price of nobody is known")
    with pytest.raises(UnknownName, match="nobody"):
        api_request(COURSE_TRAFFIC, CATALOG, "nobody")


def test_an_api_asks_what_its_model_costs() -> None:
    small, large = (
        api_cost(COURSE_TRAFFIC, CATALOG, model) for model in ("llama-3.1-8b", "llama-3.1-405b")
    )
    assert small.usd_per_1000_requests == pytest.approx((2_000 * 0.152 + 200 * 0.18) / 1_000)
    assert large.usd_per_1000_requests == pytest.approx((2_000 * 3.5 + 200 * 3.5) / 1_000)
    assert small.how[0].startswith(
        "llama-3.1-8b (median of 9 hosts): 2,000 tokens in × 0.152 (0.02 to 0.22) USD"
    )


def test_a_power_cap_lowers_the_highest_power_of_a_system_and_not_what_its_gpus_draw() -> None:
    drawn = Power(
        watts=420,
        low=380,
        high=490,
        idle_watts=69,
        tdp_watts=700,
        joules_per_output_token=1,
        by_load=((0.0, 69.0), (10.0, 420.0)),
    )
    first = replace(candidate(), power=drawn)
    free = serving_of(first)
    held = serving_of(
        replace(first, gpu_limit=GpuLimit(cap_watts=500, board_watts=700, clock=0.85))
    )
    assert held.system_watts == 10_200 - 8 * 200
    assert held.watts_from.endswith("less 1,600 W by the power cap")
    kwh = [energy_of(each, COURSE_TRAFFIC, PRICES, 8).kwh_per_year for each in (free, held)]  # type: ignore[union-attr]
    assert kwh[1] == pytest.approx(kwh[0])


def test_one_instance_stays_in_the_quietest_hour_unless_told_otherwise() -> None:
    night = replace(COURSE_TRAFFIC, profile=(0.0,) * 12 + (1.0,) * 12)
    usual, one, nobody = (
        compare(night, COURSE_SERVING, CATALOG, **least)
        for least in ({}, {"min_instances": 1}, {"min_instances": 0})
    )
    assert usual == one
    assert nobody.way("cloud").total_usd_per_year < one.way("cloud").total_usd_per_year


def test_energy_by_the_predicted_power_of_the_gpus() -> None:
    """Two hours of four are idle: 16 instances of 5 requests/s draw a tenth of their 700 W there,
    half at 40 requests/s, and 0.9 of it at full load."""
    power = Power(
        watts=420,
        low=380,
        high=490,
        idle_watts=70,
        tdp_watts=700,
        joules_per_output_token=1,
        by_load=((0.0, 70.0), (2.5, 350.0), (5.0, 630.0)),
    )
    serving = replace(COURSE_SERVING, requests_per_second_per_instance=5.0, power=power)
    traffic = replace(
        COURSE_TRAFFIC,
        peak_requests_per_second=80.0,
        mean_requests_per_second=30.0,
        profile=(0.0, 0.0, 40.0, 80.0),
    )
    prices = PRICES.with_overrides(
        {"power_usd_per_kwh": 0.2, "pue": 1.5, "grid_kg_co2_per_kwh": 0.4}
    )
    energy = energy_of(serving, traffic, prices, 16)
    assert energy is not None
    drawn = (0.1 + 0.1 + 0.5 + 0.9) / 4
    kwh = 2 * 10.2 * drawn * 8_760 * 1.5
    assert energy.kwh_per_year == pytest.approx(kwh)
    assert energy.usd_per_year == pytest.approx(0.2 * kwh)
    assert energy.kg_co2_per_year == pytest.approx(0.4 * kwh)
    assert energy.mean_kw == pytest.approx(2 * 10.2 * drawn)
    assert energy.peak_kw == pytest.approx(2 * 10.2 * 0.9)
    assert energy.utilisation == pytest.approx(30 / 80)
    assert energy.how == (
        "estimate: 2 × highest power of dgx-h100, 10,200 W × 40% of it at utilisation 38%, as"
        " predicted of the GPUs × 8,760 h × PUE 1.5 × 0.2 USD/kWh"
    )
    more = energy_of(serving, traffic, prices, 32)
    assert more is not None
    assert more.peak_kw == pytest.approx(4 * 10.2 * 0.5)  # each has half of the load
    half = energy_of(serving, traffic, prices, 8)
    assert half is not None
    assert half.peak_kw == pytest.approx(10.2 * 0.9)  # what is beyond is carried elsewhere
    assert half.utilisation == pytest.approx((0 + 0 + 1 + 1) / 4)
    peak = replace(traffic, mean_requests_per_second=None, profile=())
    alone = energy_of(serving, replace(peak, peak_requests_per_second=40.0), prices, 16)
    assert alone is not None
    # only the peak is known: busy all year with what it is provided for
    assert (alone.utilisation, alone.mean_kw) == (1.0, pytest.approx(2 * 10.2 * 0.5))
    free = energy_of(serving, traffic, replace(prices, power_usd_per_kwh=None), 16)
    assert free is not None
    assert (free.usd_per_year, free.added) == (None, False)
    assert free.how.endswith("× PUE 1.5")
    bare = energy_of(replace(serving, power=None), traffic, PRICES, 16)
    assert bare is not None
    assert bare.peak_kw is bare.mean_kw is bare.kg_co2_per_year is None
    assert energy_of(serving, traffic, prices, 0) is None


def test_a_year_of_the_course_part_by_part() -> None:
    prices = PRICES.with_overrides({"systems": {"dgx-h100": {"low": 300_000, "high": 340_000}}})
    parts = system_parts(COURSE_SERVING, prices, 2.5)
    assert parts == (
        CostPart(
            name="systems",
            kind="capex",
            usd_per_year=200_000,
            usd_per_year_low=187_500,
            usd_per_year_high=212_500,
            how="2.5 × 300,000 to 340,000 USD / 4 years",
        ),
        CostPart(name="hosting", kind="opex", usd_per_year=7_500, how="2.5 × 3,000 USD"),
        CostPart(name="licences", kind="opex", usd_per_year=90_000, how="2.5 × 8 GPUs × 4,500 USD"),
    )
    assert ends(parts) == (187_500 + 97_500, 212_500 + 97_500)
    assert ends(parts[1:]) == (None, None)


@pytest.mark.parametrize(
    ("by_use", "shares"),
    [(0.0, (75.0, 25.0)), (100.0, (20.0, 80.0)), (40.0, (53.0, 47.0))],
)
def test_a_cost_is_divided_by_the_peak_and_by_the_year(
    by_use: float, shares: tuple[float, float]
) -> None:
    assert divided(100.0, by_use, at_peak=(3, 1), over_year=(1, 4)) == pytest.approx(shares)
    for uses in ({"at_peak": (0, 0), "over_year": (1, 4)}, {"at_peak": (3, 1), "over_year": (0,)}):
        with pytest.raises(ValueError, match="divided by what is used"):
            divided(100.0, by_use, **uses)  # type: ignore[arg-type]


def test_what_owned_systems_and_tokens_rest_on() -> None:
    paths = {
        name: {figure.path for figure in owned_figures(serving, prices)}
        for name, serving, prices in (
            ("catalog", COURSE_SERVING, CATALOG),
            ("course", COURSE_SERVING, PRICES),
            ("no power", COURSE_SERVING, replace(PRICES, power_usd_per_kwh=None)),
            ("amd", replace(COURSE_SERVING, gpu="mi300x", system="mi300x-8"), CATALOG),
        )
    }
    usual = {"systems.dgx-h100", "depreciation_years", "power_usd_per_kwh", "pue"}
    assert paths["catalog"] == {*usual, "hosting_usd_per_kw_month", "licence_usd_per_gpu_year"}
    assert paths["course"] == {*usual, "hosting_usd_per_system_year", "licence_usd_per_gpu_year"}
    assert paths["no power"] == paths["course"] - {"power_usd_per_kwh"}
    assert "licence_usd_per_gpu_year" not in paths["amd"]
    cost = api_cost(COURSE_TRAFFIC, CATALOG, "llama-3.1-70b")
    (tokens,) = cost.parts
    assert (tokens.name, tokens.kind) == ("tokens", "opex")
    assert (
        tokens.how
        == f"{api_request(COURSE_TRAFFIC, CATALOG, 'llama-3.1-70b')[1]}, × 900,000,000 requests"
    )
    assert cost.how == (tokens.how,)
    assert [figure.path for figure in cost.figures] == [
        "api.llama-3.1-70b.usd_per_million_input_tokens",
        "api.llama-3.1-70b.usd_per_million_output_tokens",
    ]
    assert cost.usd_per_million_input_tokens == cost.figures[0].value
    assert cost.usd_per_million_output_tokens == cost.figures[1].value


def test_the_shares_of_a_cost_are_over_its_requests_and_tokens() -> None:
    """2,000 tokens in and 200 out that count three times: 2,600 for each of 900 million."""
    bare = WayCost(where="on-prem", total_usd_per_year=585_000.0, usd_per_year_exact=540_000.0)
    found = spread(bare, COURSE_TRAFFIC, PRICES)
    assert found == replace(
        bare,
        usd_per_1000_requests=pytest.approx(0.65),
        usd_per_1000_requests_exact=pytest.approx(0.6),
        usd_per_million_input_tokens=pytest.approx(0.25, rel=1e-9),
        usd_per_million_output_tokens=pytest.approx(0.75, rel=1e-9),
        figures=(PRICES.output_to_input_price_ratio,),
    )
    no_exact = spread(replace(bare, usd_per_year_exact=None), COURSE_TRAFFIC, PRICES)
    assert no_exact.usd_per_1000_requests_exact is None
    nothing = replace(bare, total_usd_per_year=None)
    assert spread(nothing, COURSE_TRAFFIC, PRICES) == nothing


def test_the_mean_of_a_profile_counts_where_there_is_one() -> None:
    demand = replace(demand_of(peak_rps=12.0), profile=(3.0, 9.0), mean_requests_per_second=7.0)
    traffic = traffic_of(plan_of(demand))
    assert (traffic.peak_requests_per_second, traffic.mean_requests_per_second) == (12.0, 6.0)
    assert (traffic.input_tokens, traffic.output_tokens) == (2_000, 200)
    assert traffic.profile == (3.0, 9.0)
    flat = traffic_of(plan_of(replace(demand, profile=None)))
    assert (flat.mean_requests_per_second, flat.profile) == (7.0, ())
