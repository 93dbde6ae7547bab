"""Laws of money and electricity: sums, prices, ranges, and what more load may never make
cheaper."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.cost.cost_cases import (
    COURSE_PRICES,
    COURSE_SERVING,
    COURSE_TRAFFIC,
    price_lists,
    servings,
    traffics,
)
from tests.laws.draws import deployments
from tests.strategies import examples
from tonnage.cost.break_even import Curve, crossings
from tonnage.cost.cost import api_cost, divided, energy_of
from tonnage.cost.horizon import Decay, Month, compared, systems_by_division
from tonnage.cost.options import cloud, hybrid, on_prem, rents_of
from tonnage.perf.power import draw, steady_load
from tonnage.perf.step import step_seconds
from tonnage.perf.terms import step_model
from tonnage.plan.cost import HOURS_PER_YEAR, Serving, Traffic, WayCost
from tonnage.plan.horizon import Horizon, HorizonMonth
from tonnage.spec.deployment import Deployment
from tonnage.spec.prices import CloudOffer, Figure, Prices

FACTORS = st.sampled_from([1.25, 2.0, 3.0])
HOUR = Figure(path="cloud", low=1.0, high=1.0, source="a test", date="2026-11")
"""A US dollar for an hour of a GPU."""

WAYS = {"on-prem": on_prem, "cloud": cloud, "hybrid": hybrid}


def usd(cost: WayCost) -> float:
    assert cost.total_usd_per_year is not None
    return cost.total_usd_per_year


def dearer(figure: Figure, factor: float) -> Figure:
    """The price, and the ends of its range, times a factor."""
    typical = None if figure.typical is None else figure.typical * factor
    return replace(figure, low=figure.low * factor, high=figure.high * factor, typical=typical)


def with_system_price(prices: Prices, factor: float) -> Prices:
    return replace(
        prices, systems=tuple(replace(one, usd=dearer(one.usd, factor)) for one in prices.systems)
    )


USES = st.lists(st.tuples(st.floats(0.01, 1e6), st.floats(0.01, 1e6)), min_size=1, max_size=8)


@examples(0.5)
@given(uses=USES, total=st.floats(0, 1e9), share=st.floats(0, 1))
def test_the_shares_of_a_cost_sum_to_it_and_more_use_never_pays_less(
    uses: list[tuple[float, float]], total: float, share: float
) -> None:
    peaks, years = ([use[place] for use in uses] for place in (0, 1))
    shares = divided(total, share * total, at_peak=peaks, over_year=years)
    assert math.fsum(shares) == pytest.approx(total)
    assert all(0 <= part <= total * (1 + 1e-9) for part in shares)
    more = divided(total, share * total, at_peak=[2 * peaks[0], *peaks[1:]], over_year=years)
    assert more[0] >= shares[0] - 1e-9 * total


@examples(0.5)
@given(traffic=traffics(), serving=servings(), prices=price_lists())
def test_the_parts_of_a_cost_sum_to_it_and_it_is_between_its_ends(
    traffic: Traffic, serving: Serving, prices: Prices
) -> None:
    for way in WAYS.values():
        cost = way(traffic, serving, prices)
        assert usd(cost) == pytest.approx(sum(part.usd_per_year for part in cost.parts))
        assert usd(cost) == pytest.approx(cost.capex_usd_per_year + cost.opex_usd_per_year)
        if cost.usd_per_year_low is not None and cost.usd_per_year_high is not None:
            assert cost.usd_per_year_low <= usd(cost) * (1 + 1e-9)
            assert usd(cost) <= cost.usd_per_year_high * (1 + 1e-9)


@examples(0.5)
@given(traffic=traffics(), serving=servings(), prices=price_lists(), factor=FACTORS)
def test_more_load_is_never_cheaper(
    traffic: Traffic, serving: Serving, prices: Prices, factor: float
) -> None:
    for way in WAYS.values():
        assert usd(way(traffic.times(factor), serving, prices)) >= usd(
            way(traffic, serving, prices)
        ) * (1 - 1e-9)


@examples(0.5)
@given(traffic=traffics(), serving=servings(), prices=price_lists(), factor=FACTORS)
def test_an_instance_that_carries_more_is_never_dearer_in_hardware(
    traffic: Traffic, serving: Serving, prices: Prices, factor: float
) -> None:
    faster = replace(
        serving, requests_per_second_per_instance=serving.requests_per_second_per_instance * factor
    )
    assert on_prem(traffic, faster, prices).systems <= on_prem(traffic, serving, prices).systems
    assert usd(cloud(traffic, faster, prices)) <= usd(cloud(traffic, serving, prices)) * (1 + 1e-9)


@examples(0.5)
@given(traffic=traffics(), serving=servings(), prices=price_lists())
def test_owning_and_renting_together_never_costs_more_than_the_cheaper_alone(
    traffic: Traffic, serving: Serving, prices: Prices
) -> None:
    both = usd(hybrid(traffic, serving, prices))
    assert both <= min(
        usd(on_prem(traffic, serving, prices, 1)), usd(cloud(traffic, serving, prices))
    ) * (1 + 1e-9)


@examples(0.5)
@given(traffic=traffics(), serving=servings(), prices=price_lists())
def test_a_rent_is_between_its_cheapest_and_its_dearest_offer(
    traffic: Traffic, serving: Serving, prices: Prices
) -> None:
    rents = rents_of(serving, prices)
    assert isinstance(rents, tuple)
    for rent in rents:
        assert rent.low <= rent.hour <= rent.high
        assert rent.gpus >= serving.gpus_per_instance * rent.instances
        assert rent.holding(rent.instances) == 1
    cost = cloud(traffic, serving, prices)
    ranged = any(rent.low < rent.high for rent in rents)
    assert ranged or cost.usd_per_year_low is None


def test_the_ends_of_a_rent_are_those_of_the_offers() -> None:
    """Three providers of single GPUs at 1, 2 and 4 USD: the middle one counts, the others are the
    ends."""
    offers = tuple(
        CloudOffer(
            gpu="h100-sxm-80gb",
            offer=name,
            provider=name,
            machine_gpus=(1,),
            usd_per_gpu_hour=hour,
            terms="on-demand",
        )
        for name, hour in (
            ("a", dearer(HOUR, 1.0)),
            ("b", dearer(HOUR, 2.0)),
            ("c", dearer(HOUR, 4.0)),
        )
    )
    prices = replace(COURSE_PRICES, cloud=offers, licence_usd_per_gpu_hour=None)
    cost = cloud(COURSE_TRAFFIC, COURSE_SERVING, prices)
    gpu_hours = 39 * HOURS_PER_YEAR  # ⌈199.77 / 5.195428⌉ instances of a GPU, all year
    assert (cost.usd_per_year_low, usd(cost), cost.usd_per_year_high) == pytest.approx(
        (gpu_hours, 2 * gpu_hours, 4 * gpu_hours)
    )


@examples(0.5)
@given(traffic=traffics(), serving=servings(), prices=price_lists(), factor=FACTORS)
def test_a_dearer_system_is_dearer_by_its_purchase_alone(
    traffic: Traffic, serving: Serving, prices: Prices, factor: float
) -> None:
    cost, more = (
        on_prem(traffic, serving, prices),
        on_prem(traffic, serving, with_system_price(prices, factor)),
    )
    assert (more.systems, more.opex_usd_per_year) == (
        cost.systems,
        pytest.approx(cost.opex_usd_per_year),
    )
    assert more.capex_usd_per_year == pytest.approx(cost.capex_usd_per_year * factor)
    assert cost.purchase_usd == pytest.approx(
        cost.capex_usd_per_year * prices.depreciation_years.value
    )


@examples(0.5)
@given(traffic=traffics(), serving=servings(), prices=price_lists(), factor=FACTORS)
def test_a_dearer_system_never_makes_a_split_own_more(
    traffic: Traffic, serving: Serving, prices: Prices, factor: float
) -> None:
    split, other = (
        hybrid(traffic, serving, prices),
        hybrid(traffic, serving, with_system_price(prices, factor)),
    )
    assert other.systems <= split.systems
    assert usd(other) >= usd(split) * (1 - 1e-9)


@examples(0.5)
@given(traffic=traffics(), serving=servings(), prices=price_lists())
def test_what_a_request_and_what_a_token_cost_add_up_to_the_year(
    traffic: Traffic, serving: Serving, prices: Prices
) -> None:
    cost, requests = on_prem(traffic, serving, prices), traffic.requests_per_year
    assert requests is not None
    assert cost.usd_per_1000_requests is not None
    assert cost.usd_per_million_input_tokens is not None
    assert cost.usd_per_million_output_tokens is not None
    assert cost.usd_per_1000_requests * requests / 1000 == pytest.approx(usd(cost))
    tokens = (
        traffic.input_tokens * cost.usd_per_million_input_tokens
        + traffic.output_tokens * cost.usd_per_million_output_tokens
    )
    assert tokens * requests / 1e6 == pytest.approx(usd(cost))


@examples(0.5)
@given(traffic=traffics(), prices=price_lists(), factor=FACTORS)
def test_an_api_costs_in_proportion(traffic: Traffic, prices: Prices, factor: float) -> None:
    assert usd(api_cost(traffic.times(factor), prices)) == pytest.approx(
        factor * usd(api_cost(traffic, prices))
    )


@examples(0.5)
@given(traffic=traffics(), serving=servings(), prices=price_lists(), factor=FACTORS)
def test_energy_grows_with_the_load_and_never_above_the_highest_power(
    traffic: Traffic, serving: Serving, prices: Prices, factor: float
) -> None:
    assume(serving.system_watts is not None)
    owned = on_prem(traffic, serving, prices)
    some, more = (
        energy_of(serving, load, prices, owned.instances)
        for load in (traffic, traffic.times(factor))
    )
    assert some is not None
    assert more is not None
    assert some.kwh_per_year <= more.kwh_per_year * (1 + 1e-9)
    assert (
        more.kwh_per_year
        <= owned.systems
        * serving.system_watts
        / 1000
        * HOURS_PER_YEAR
        * prices.pue.value
        * (1 + 1e-9)
    )


@examples(0.5)
@given(traffic=traffics(), serving=servings(), factor=FACTORS)
def test_energy_costs_its_price_times_the_pue(
    traffic: Traffic, serving: Serving, factor: float
) -> None:
    assume(serving.system_watts is not None)
    prices = COURSE_PRICES.with_overrides({"power_usd_per_kwh": 0.2})
    energy, other = (
        energy_of(serving, traffic, one, 8)
        for one in (prices, replace(prices, pue=dearer(prices.pue, factor)))
    )
    assert energy is not None
    assert other is not None
    assert energy.usd_per_year == pytest.approx(0.2 * energy.kwh_per_year)
    assert other.kwh_per_year == pytest.approx(factor * energy.kwh_per_year)


@examples(0.5)
@given(fixed=st.floats(1, 1e6), slope=st.floats(0.001, 10))
def test_two_ways_cross_once_where_their_lines_do(fixed: float, slope: float) -> None:
    """One way that costs the same at any volume, and one that costs by the request."""
    flat, rising = Curve(base=fixed, slope=0.0), Curve(base=0.0, slope=slope)
    _, found = crossings(flat, rising, 10 * fixed / slope)
    assert [crossing.volume for crossing in found] == pytest.approx([fixed / slope])


@examples(0.5)
@given(made=deployments(tp=1), rate=st.floats(0.01, 5.0), factor=FACTORS)
def test_a_gpu_draws_more_under_more_load_and_less_for_each_token(
    made: Deployment, rate: float, factor: float
) -> None:
    """Of one GPU below its slots; several may wait for their links instead, and draw less."""
    coefficients = step_model(made).coefficients
    watts = []
    for requests_per_second in (rate, factor * rate):
        load, busy = steady_load(
            made,
            coefficients,
            requests_per_second=requests_per_second,
            isl=1000,
            osl=200,
            computed=1000,
        )
        assume(load.sequences < 0.9 * made.knobs.max_batch_size)
        drawn = draw(made, coefficients, load, busy=busy)
        assert drawn is not None
        assert made.gpu.tdp_w is not None
        assert drawn.idle_watts <= drawn.watts <= made.gpu.tdp_w
        watts.append(drawn.watts)
    assert watts[0] <= watts[1] * 1.005
    assert watts[1] / factor < watts[0]


@examples(0.5)
@given(made=deployments(), rate=st.floats(0.01, 2.0))
def test_a_steady_load_keeps_as_many_in_flight_as_it_brings(made: Deployment, rate: float) -> None:
    """Little's law of the closed form: n = rate · output tokens · seconds of a step with n, all of
    them in the time with a step."""
    c = step_model(made).coefficients
    load, busy = steady_load(made, c, requests_per_second=rate, isl=1000, osl=200, computed=600)
    assume(1.0 < load.sequences < made.knobs.max_batch_size)
    n = load.sequences * busy
    prompts = max(1.0, n) * 600 / 200
    seconds = step_seconds(
        c, prompts, max(1.0, n) / 200, max(1.0, n), prompts * (2 * 1000 - 600), max(1.0, n) * 1100
    )
    assert busy == pytest.approx(-math.expm1(-n), rel=1e-6)
    assert n == pytest.approx(rate * 200 * seconds, rel=1e-6)
    assert load.prompt_tokens == pytest.approx(load.sequences * 3)


def months_of_growth(
    serving: Serving, prices: Prices, loads: list[float], decay: Decay
) -> tuple[Month, ...]:
    """A month for each load, on the systems that division names."""
    made = []
    for place, load in enumerate(loads):
        traffic = Traffic(
            peak_requests_per_second=load,
            mean_requests_per_second=load / 3,
            input_tokens=1_000,
            output_tokens=100,
            profile=(load / 2, load / 6),
        )
        need = HorizonMonth(
            month=place,
            requests_per_second=load,
            systems=systems_by_division(traffic, serving),
            simulated=True,
        )
        made.append(Month(need=need, traffic=traffic, serving=serving, prices=prices, decay=decay))
    return tuple(made)


def paid(horizon: Horizon) -> dict[str, float]:
    """USD of every way; one that comes to another has the cost of that."""
    totals = {way.way: way.total_usd for way in horizon.ways if way.total_usd is not None}
    least = min(usd for name, usd in totals.items() if name != "reserved")
    totals = {"now": totals["hour"], **totals}  # where nothing is delivered within the months
    return {"steps": totals["now"], "reserved": totals["hour"], "both": least, **totals}


GROWING = st.tuples(st.floats(1, 60), st.sampled_from([1.0, 1.1, 1.5]), st.integers(1, 6)).map(
    lambda drawn: [drawn[0] * drawn[1] ** month for month in range(drawn[2])]
)
DECAYS = st.sampled_from([0.0, 0.1, 0.4, 0.8])


@examples(0.3)
@given(
    serving=servings(), prices=price_lists(), loads=GROWING, decay=DECAYS, lead=st.integers(0, 2)
)
def test_the_months_of_a_way_sum_to_its_total_and_a_mixture_is_never_dearer(
    serving: Serving, prices: Prices, loads: list[float], decay: float, lead: int
) -> None:
    months = months_of_growth(serving, prices, loads, Decay(systems=decay, rents=decay / 2))
    horizon = compared(months, lead_months=lead)
    for way in horizon.ways:
        assert math.fsum(way.usd_by_month) == pytest.approx(way.total_usd)
        assert way.purchase_usd + way.running_usd + way.rent_usd == pytest.approx(way.total_usd)
        assert len(way.systems) == len(way.usd_by_month) == len(loads)
    usd = paid(horizon)
    assert usd["both"] <= min(usd[name] for name in ("now", "steps", "hour")) * (1 + 1e-9)
    assert usd["reserved"] <= usd["hour"] * (1 + 1e-9)
    assert usd["steps"] <= usd["now"] * (1 + 1e-9)  # prices that fall, and later upkeep


@examples(0.3)
@given(serving=servings(), prices=price_lists(), load=st.floats(1, 200), months=st.integers(1, 12))
def test_without_growth_and_decay_buying_later_gains_nothing(
    serving: Serving, prices: Prices, load: float, months: int
) -> None:
    horizon = compared(months_of_growth(serving, prices, [load] * months, Decay()))
    usd = paid(horizon)
    assert usd["steps"] == usd["now"]
    assert horizon.way("steps") is None  # and it is not named as another way


@examples(0.3)
@given(
    serving=servings(), prices=price_lists(), loads=GROWING, decay=DECAYS, more=st.floats(0, 0.19)
)
def test_a_higher_decay_never_makes_buying_now_better_against_buying_later(
    serving: Serving, prices: Prices, loads: list[float], decay: float, more: float
) -> None:
    gains = []
    for systems in (decay, decay + more):
        usd = paid(compared(months_of_growth(serving, prices, loads, Decay(systems=systems))))
        gains.append(usd["now"] - usd["steps"])
    assert gains[1] >= gains[0] - 1e-6 * max(1.0, abs(gains[0]))


@examples(0.3)
@given(serving=servings(), prices=price_lists(), loads=GROWING, times=FACTORS)
def test_what_is_rented_over_the_months_is_linear_in_its_price(
    serving: Serving, prices: Prices, loads: list[float], times: float
) -> None:
    free = replace(prices, licence_usd_per_gpu_hour=None)
    dearer_rent = replace(
        free,
        cloud=tuple(
            replace(offer, usd_per_gpu_hour=dearer(offer.usd_per_gpu_hour, times))
            for offer in free.cloud
        ),
    )
    usd = [
        paid(compared(months_of_growth(serving, offered, loads, Decay(rents=0.2))))["hour"]
        for offered in (free, dearer_rent)
    ]
    assert usd[1] == pytest.approx(times * usd[0])


@examples(0.3)
@given(serving=servings(), prices=price_lists(), loads=GROWING, decay=DECAYS)
def test_a_further_month_never_makes_the_months_cheaper(
    serving: Serving, prices: Prices, loads: list[float], decay: float
) -> None:
    shorter, longer = (
        paid(compared(months_of_growth(serving, prices, some, Decay(rents=decay))))
        for some in (loads, [*loads, loads[-1]])
    )
    assert all(longer[name] >= shorter[name] * (1 - 1e-9) for name in shorter)
