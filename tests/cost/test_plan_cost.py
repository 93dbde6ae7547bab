"""The cost of a plan is read off the plan and the prices alone."""

from __future__ import annotations

import json
import math
from dataclasses import fields, replace
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cost.cost_cases import (
    COURSE_PEAK,
    COURSE_PRICES,
    COURSE_REQUESTS,
    COURSE_SERVING,
    candidate,
    price_lists,
    servings,
)
from tests.cost.plan_cost_cases import JOB_PRICES, ONE, TOKENS
from tests.plan.candidates import candidate as any_candidate
from tests.plan.candidates import plan_of
from tonnage.cost.cost import serving_of, traffic_of
from tonnage.cost.options import summed, with_cost_together
from tonnage.cost.plan_cost import (
    Outlay,
    compare,
    cost_of,
    cost_of_run,
    in_proportion,
    job_cost,
    outlay,
    rented_job,
    with_cost,
    with_rent,
)
from tonnage.plan.candidate import Identity, Power
from tonnage.plan.cost import JobCost, PaysOff, Serving, Traffic, YearlyCost
from tonnage.plan.demand import Demand, DemandSource, Region, Regions
from tonnage.plan.document import json_of
from tonnage.plan.fleet import Autoscaling, Held, OverHours, Proposal
from tonnage.plan.notes import CourseWay, NoCost, OwnedElectricity, TokenPriceRatio
from tonnage.plan.plan import Plan
from tonnage.plan.sensitivity import Measurement, pareto
from tonnage.plan.use_cases import (
    Arrangement,
    Background,
    CaseAtPeak,
    PoolSystems,
    UseCasePool,
    UseCases,
)
from tonnage.report.plans.fleet import autoscaling_text
from tonnage.results.metrics import Latencies
from tonnage.sizing.demand import demand_of
from tonnage.spec.catalog.price_list import catalog_prices
from tonnage.spec.prices import Prices

PRICES = COURSE_PRICES


YEAR = demand_of(mean_rps=COURSE_PEAK / 7, factor=7)


JOB = demand_of(requests=100_000, within_s=3_600)


def test_the_gpus_of_a_run_are_paid_by_their_share_of_a_system_and_their_hours() -> None:
    """A system is 119,000 USD a year: two of its eight GPUs at 10 requests/s of 1,000 and 200
    tokens pay for 315 million requests."""
    prices = PRICES.with_overrides({"cloud": {"h100-sxm-80gb": 2}}, "")
    owned, rented = cost_of_run(10.0, (1_000.0, 200.0), ("h100-sxm-80gb", "dgx-h100", 2), prices)
    assert owned.total_usd_per_year == pytest.approx(29_750)
    assert owned.usd_per_1000_requests == pytest.approx(29_750 / 315_360)
    assert owned.usd_per_million_input_tokens == pytest.approx(29_750 / 315.36 / 1_600)
    assert owned.usd_per_million_output_tokens == pytest.approx(3 * 29_750 / 315.36 / 1_600)
    assert rented.total_usd_per_year == pytest.approx(2 * (2 + 1) * 8_760)
    twice = cost_of_run(20.0, (1_000.0, 200.0), ("h100-sxm-80gb", "dgx-h100", 2), prices)
    for one, half in zip((owned, rented), twice, strict=True):
        assert half.total_usd_per_year == one.total_usd_per_year
        assert half.usd_per_million_output_tokens == pytest.approx(
            (one.usd_per_million_output_tokens or 0) / 2
        )
    unknown = cost_of_run(
        10.0,
        (1_000.0, 200.0),
        ("h100-sxm-80gb", "dgx-h100", 2),
        replace(prices, cloud=(), systems=(), gpus=()),
    )
    assert [way.reason for way in unknown] == [
        NoCost(code="system-price", name="dgx-h100"),
        NoCost(code="cloud-price", name="h100-sxm-80gb"),
    ]


def test_a_year_of_the_choice_costs_what_its_traffic_and_its_systems_do() -> None:
    plan = plan_of(YEAR, candidate(), candidate(system="8xl4", gpu="l4"))
    cost = cost_of(plan, PRICES, where=("on-prem", "api"))
    assert isinstance(cost, YearlyCost)
    assert plan.choice is not None
    assert replace(cost, outlook=None) == compare(
        traffic_of(plan),
        serving_of(plan.choice),
        PRICES,
        model="llama-3-8b",
        where=("on-prem", "api"),
    )
    owned = cost.way("on-prem")
    assert owned.total_usd_per_year == pytest.approx(595_000)
    assert cost.way("cloud") is None


def _arranged(plan: Plan, systems: int, *pools: tuple[str, ...]) -> Arrangement:
    """Equal pools of the plan's choice for these use cases, each with as many instances as the
    choice, on so many systems in all."""
    best = plan.choice
    assert best is not None
    names = {
        part: getattr(best, part)
        for part in (
            *(part.name for part in fields(Identity)),
            "system",
            "gpus_per_system",
            "knobs",
        )
    }
    none = Latencies()
    cases = {
        name: CaseAtPeak(
            name=name, requests_per_second=1.0, limits=(), ttft_ms=none, tpot_ms=none, e2e_ms=none
        )
        for pool in pools
        for name in pool
    }
    made = tuple(
        UseCasePool(
            **names,
            instances=best.instances,
            instances_exact=1.0,
            cases=tuple(cases[name] for name in pool),
        )
        for pool in pools
    )
    return Arrangement(
        pools=made,
        systems=(
            PoolSystems(system=best.system, systems=systems, gpus=systems * best.gpus_per_system),
        ),
    )


def test_use_cases_on_one_fleet_cost_what_their_systems_and_rented_instances_do() -> None:
    """One use case costs what its plan does; two equal pools on the systems of one rent twice as
    much, and own no more."""
    plan = plan_of(YEAR, candidate())
    alone = cost_of(plan, PRICES)
    assert isinstance(alone, YearlyCost)
    systems = plan.choice.systems if plan.choice is not None else 0
    found = UseCases(
        names=("chat", "rag"),
        plans=(plan, plan),
        separate=_arranged(plan, systems, ("chat",), ("rag",)),
        shared=_arranged(plan, systems, ("chat",)),
        not_shared=None,
        chosen="shared",
    )
    paid = with_cost_together(found, PRICES)
    assert paid.shared is not None
    assert paid.separate is not None
    assert paid.shared.owned_usd_per_year == pytest.approx(alone.way("on-prem").total_usd_per_year)
    assert paid.shared.rented_usd_per_year == pytest.approx(alone.way("cloud").total_usd_per_year)
    assert paid.separate.owned_usd_per_year == pytest.approx(paid.shared.owned_usd_per_year)
    assert paid.separate.rented_usd_per_year == pytest.approx(2 * paid.shared.rented_usd_per_year)
    only = with_cost_together(found, PRICES, ("on-prem",)).shared
    assert only is not None
    assert only.rented_usd_per_year is None
    assert UseCases.from_json(json.loads(json.dumps(paid.to_json()))) == paid


def test_loads_together_are_summed_hour_by_hour() -> None:
    day, night = (
        replace(traffic_of(plan_of(YEAR, candidate())), profile=hours)
        for hours in ((4.0, 0.0), (1.0, 3.0))
    )
    both = summed([day, replace(night, input_tokens=3 * day.input_tokens)])
    assert both.profile == (5.0, 3.0)
    assert both.peak_requests_per_second == 2 * day.peak_requests_per_second
    assert both.mean_requests_per_second == pytest.approx(2 * (day.mean_requests_per_second or 0))
    assert both.input_tokens == pytest.approx(2 * day.input_tokens)
    assert summed([day, replace(night, profile=())]).profile == ()


def test_the_cloud_keeps_an_instance_of_each_pool() -> None:
    """One GPU was rented for prefill and decode pools, of which neither answers alone."""
    quiet, both = demand_of(mean_rps=0.1, factor=2), candidate(systems=1)
    apart = replace(
        both, pools=tuple(replace(both.pool, role=role) for role in ("prefill", "decode"))
    )
    prices = [
        cost_of(plan_of(quiet, one), catalog_prices(), where=("cloud",)) for one in (both, apart)
    ]
    one, two = (cost.way("cloud").total_usd_per_year for cost in prices)  # type: ignore[union-attr]
    assert two > 1.5 * one > 0  # the machines of two GPUs may have another price


def test_a_job_is_paid_once_and_has_no_front_of_cost() -> None:
    plan = with_cost(
        plan_of(JOB, candidate(), pareto=pareto([candidate()])), PRICES, today=date(2026, 11, 21)
    )
    assert isinstance(plan.cost, JobCost)
    assert (plan.cost.requests, plan.cost.hours) == (100_000, 1.0)
    assert plan.pareto[0].cost_per_year is None
    assert plan.cost.stale_prices


def cost_of_of_job(
    requests: int,
    seconds: float,
    serving: Serving,
    prices: Prices = JOB_PRICES,
    today: date | None = None,
) -> JobCost:
    """The cost of a job whose instances complete what their rate says from the first second on."""
    return job_cost(in_proportion(requests, seconds, serving), TOKENS, serving, prices, today=today)


def test_a_nightly_job_by_hand() -> None:
    cost = cost_of_of_job(198_000, 5.5 * 3_600, ONE, today=date(2026, 11, 21))
    assert (cost.owned.systems, cost.owned.total_usd_per_year) == (2, 238_000)
    assert cost.cloud_gpu_hours_per_job == pytest.approx(10 * 5.5)
    assert cost.cloud_usd_per_job == pytest.approx(110)
    assert cost.cloud_how.startswith(
        "55 GPU-hours (10 GPUs for 5.5 h) × given, 2 USD per GPU and hour"
    )
    assert cost.api_usd_per_job == pytest.approx(198_000 * 0.0026)
    assert cost.jobs_per_year_against_api == pytest.approx(238_000 / (198_000 * 0.0026))
    assert cost.jobs_per_year_against_cloud is None, "a year has no time for 2,164 of them"
    assert cost.most_jobs_per_year == pytest.approx(8_760 / 5.5)
    assert any(figure.path == "systems.dgx-h100" for figure in cost.stale_prices)
    assert (
        json.loads(json.dumps(json_of(cost), allow_nan=False))["owned"]["capex_usd_per_year"]
        == 160_000
    )


def test_electricity_of_a_job_is_that_of_its_requests() -> None:
    paid = JOB_PRICES.with_overrides({"power_usd_per_kwh": 0.2, "pue": 1.5})
    cost = cost_of_of_job(198_000, 5.5 * 3_600, ONE, paid)
    assert cost.power_usd_per_job == pytest.approx(10 * 10.2 / 8 * 5.5 * 1.5 * 0.2)
    assert cost.owned.total_usd_per_year == 238_000
    assert cost_of_of_job(10, 10, ONE).power_usd_per_job == 0


def test_a_small_job_is_rented_until_it_is_done_and_for_an_hour_at_least() -> None:
    """10 thousand requests within 8 hours were rented 8 hours, though an instance does them in 9
    minutes."""
    serving = replace(ONE, requests_per_second_per_instance=20.0)
    assert cost_of_of_job(10_000, 8 * 3_600, serving).cloud_gpu_hours_per_job == 1
    assert cost_of_of_job(100_000, 8 * 3_600, serving).cloud_gpu_hours_per_job == pytest.approx(
        100_000 / 20 / 3_600
    )


def test_every_instance_of_a_rented_machine_works() -> None:
    whole = JOB_PRICES.with_overrides({"cloud": {"h100": {"value": 2.0, "gpus": 8}}})
    cost = cost_of_of_job(36_000, 10 * 3_600, ONE, whole)
    assert cost.cloud_gpu_hours_per_job == pytest.approx(8 * 36_000 / 8 / 3_600), (
        "one instance would do, and eight are there"
    )


def test_a_job_on_prices_that_are_not_known() -> None:
    unknown = JOB_PRICES.with_overrides({"systems": {"dgx-h100": None}, "cloud": {"h100": None}})
    cost = cost_of_of_job(3_600, 3_600, COURSE_SERVING, replace(unknown, api=()))
    assert cost.owned.total_usd_per_year is None
    assert (
        cost.cloud_usd_per_job
        is cost.api_usd_per_job
        is cost.jobs_per_year_against_cloud
        is cost.jobs_per_year_against_api
        is None
    )
    assert cost.cloud_reason == NoCost(code="cloud-price", name="h100-sxm-80gb")
    assert cost.api_reason == NoCost(code="api-price")


@given(st.integers(1, 10_000_000), st.floats(600.0, 200_000.0), servings(), price_lists())
def test_owning_is_cheaper_from_the_break_even_on(
    requests: int, seconds: float, serving: Serving, prices: Prices
) -> None:
    cost = cost_of_of_job(requests, seconds, serving, prices)
    assert cost.owned.total_usd_per_year is not None
    for each, jobs in (
        (cost.cloud_usd_per_job, cost.jobs_per_year_against_cloud),
        (cost.api_usd_per_job, cost.jobs_per_year_against_api),
    ):
        assert each is not None
        if jobs is None:
            assert (
                each - cost.power_usd_per_job
            ) * cost.most_jobs_per_year < cost.owned.total_usd_per_year
        else:
            assert math.isclose(
                each * jobs, cost.owned.total_usd_per_year + cost.power_usd_per_job * jobs
            )
            assert jobs <= cost.most_jobs_per_year


DEMAND = Demand(
    peak_requests_per_second=4.0,
    sizing_requests_per_second=4.0,
    source=DemandSource(kind="profile"),
)


FIXED = OverHours(held=(Held(instances=4, hours=24.0),), limits=())


HALF = OverHours(held=(Held(instances=1, hours=16.0), Held(instances=4, hours=8.0)), limits=())


def scaled(run: OverHours) -> Autoscaling:
    rule = Proposal(
        metric="rate",
        target=1.0,
        least=1,
        most=4,
        warm=0,
        start_s=60.0,
        hold_s=300.0,
        interval_s=15.0,
        run=run,
    )
    return Autoscaling(
        hours=24.0,
        instances=4,
        simulated_instances=4,
        requests=9,
        broken_hours_share=0.0,
        fixed=FIXED,
        proposals=(rule,),
    )


def test_it_is_the_share_of_the_fixed_fleet_at_the_prices_of_the_catalog() -> None:
    found = with_rent(
        replace(plan_of(DEMAND, any_candidate(tp=2)), autoscaling=scaled(HALF)), catalog_prices()
    )
    assert found.cost.scaled_usd_per_year == pytest.approx(found.cost.fixed_usd_per_year * 48 / 96)
    # two GPUs an instance, for more than a dollar an hour
    assert found.cost.fixed_usd_per_year > 4 * 2 * 8760
    assert found.saved_share == pytest.approx(0.5)


def test_whole_machines_save_nothing_and_single_gpus_do() -> None:
    """44 % fewer instance-hours saved 0 USD on machines of eight, though a cloud rents the GPU by
    itself."""
    plan = replace(plan_of(DEMAND, any_candidate(gpu="b200-sxm-180gb")), autoscaling=scaled(HALF))
    alone = with_rent(plan, catalog_prices())
    whole = with_rent(plan, catalog_prices().with_overrides({"cloud_offer": "AWS"}))
    assert alone.cost.scaled_usd_per_year == pytest.approx(alone.cost.fixed_usd_per_year * 48 / 96)
    assert "less" in autoscaling_text(alone)
    assert whole.cost.scaled_usd_per_year == whole.cost.fixed_usd_per_year
    assert autoscaling_text(whole).endswith(
        " USD a year with and without it, as machines are rented whole"
    )


def test_nothing_is_said_without_a_price_or_a_rule() -> None:
    plan = plan_of(DEMAND, any_candidate())
    assert with_rent(plan, catalog_prices()) is None
    alone = replace(scaled(HALF), proposals=(), reason="one-instance")
    assert with_rent(replace(plan, autoscaling=alone), catalog_prices()) == alone
    unchosen = replace(plan_of(DEMAND), autoscaling=scaled(HALF))
    assert with_rent(unchosen, catalog_prices()) == scaled(HALF)
    unpriced = replace(plan_of(DEMAND, any_candidate(gpu="unknown-gpu")), autoscaling=scaled(HALF))
    found = with_rent(unpriced, catalog_prices())
    assert found.cost is None


RENTED = PRICES.with_overrides({"cloud": {"h100": 2.0}})
"""With the licence 3 USD an hour for a GPU: 39 of them cost 1,024,920 USD a year."""

SAVED = (39 * 3 * 8_760 - 195_000) / 12
"""USD that five owned systems save a month: hosting and licences are 195,000 USD a year."""


def priced(prices: Prices = RENTED, today: date | None = None, **changed: Any) -> Plan:
    return with_cost(plan_of(YEAR, candidate(), **changed), prices, today=today)


@pytest.mark.parametrize(
    ("today", "month"),
    [
        (None, ""),
        (date(2026, 1, 31), "2028-01"),
        (date(2026, 11, 22), "2028-11"),
        (date(2026, 12, 1), "2028-12"),
    ],
)
def test_owning_has_paid_off_in_the_month_in_which_as_much_was_spent(
    today: date | None, month: str
) -> None:
    """1.6 million USD at 69,160 USD a month: within the 24th month."""
    cost = priced(today=today).cost
    assert isinstance(cost, YearlyCost)
    assert cost.outlook is not None
    assert cost.outlook.pays_off == PaysOff(
        months=pytest.approx(1_600_000 / SAVED), date=month, saved_usd_per_month=SAVED
    )
    usd = {way.where: way.usd for way in cost.outlook.ways}
    assert usd["on-prem"] == {"3": 2_185_000, "5": 2_575_000}
    assert usd["cloud"] == {"3": 3 * 1_024_920, "5": 5 * 1_024_920}
    assert {way.usd_per_user_month for way in cost.outlook.ways} == {None}
    assert cost.outlook.users is None


@pytest.mark.parametrize(
    ("system_usd", "months"),
    [(119.9 * SAVED / 5, 119.9), (120.1 * SAVED / 5, None)],
)
def test_beyond_ten_years_no_month_is_named(system_usd: float, months: float | None) -> None:
    prices = RENTED.with_overrides({"systems": {"dgx-h100": system_usd}})
    for today in (None, date(2026, 11, 22)):
        cost = priced(prices, today).cost
        assert isinstance(cost, YearlyCost)
        pays_off = cost.outlook.pays_off  # type: ignore[union-attr]
        assert pays_off == PaysOff(
            months=None if months is None else pytest.approx(months),
            date="2036-11" if months and today else "",
            saved_usd_per_month=pytest.approx(SAVED),
        )


def test_renting_that_costs_less_each_year_is_never_paid_off() -> None:
    cheap = PRICES.with_overrides({"cloud": {"h100": 0.01}, "licence_usd_per_gpu_hour": None})
    cost = priced(cheap).cost
    assert isinstance(cost, YearlyCost)
    assert cost.outlook.pays_off == PaysOff(  # type: ignore[union-attr]
        months=None,
        date="",
        saved_usd_per_month=pytest.approx((39 * 0.01 * 8_760 - 195_000) / 12),
    )
    unknown = priced(PRICES.with_overrides({"cloud": {"h100": None}})).cost
    assert isinstance(unknown, YearlyCost)
    assert unknown.outlook.pays_off is None  # type: ignore[union-attr]


def test_a_measurement_is_worth_the_share_of_the_cost_that_its_systems_are() -> None:
    """Five systems of 595,000 USD: half a system is 59,500, less two hours of one."""
    measurement = Measurement(
        model="m",
        confidence=0.8,
        sweeps=(),
        seconds=7_200.0,
        left=0.1,
        systems={"80": 5},
        after={"80": 5},
        expected_systems=4.5,
    )
    hours = 119_000 / 8_760 * 2
    worth = priced(measurement=measurement).measurement
    assert worth == replace(
        measurement,
        usd=pytest.approx(hours),
        saved_usd_per_year=pytest.approx(59_500 - hours),
    )
    rented = PRICES.with_overrides({"cloud": {"h100": 0.5}})
    worth = priced(rented, measurement=measurement).measurement
    assert worth is not None
    assert worth.usd == pytest.approx(39 * 1.5 * 2 / 5)  # by the hour, of what is rented
    unknown = PRICES.with_overrides({"cloud": {"h100": None}, "systems": {"dgx-h100": None}})
    assert priced(unknown, measurement=measurement).measurement == measurement


def test_regions_share_the_peak_by_what_is_owned_and_the_year_by_what_is_used() -> None:
    def region(name: str, at_peak: float, over_year: float) -> Region:
        return Region(
            name=name,
            peak_requests_per_second=1.0,
            peak_hour=0,
            mean_requests_per_second=1.0,
            at_peak=at_peak,
            over_year=over_year,
            systems=None,
        )

    regions = Regions(regions=(region("west", 0.75, 0.4), region("east", 0.25, 0.6)), systems=5)

    def shares(prices: Prices) -> tuple[str, list[float | None]]:
        found = priced(prices, regions=regions).regions
        assert found is not None
        return found.where, [one.usd_per_year for one in found.regions]

    assert shares(RENTED) == ("on-prem", [0.75 * 595_000, 0.25 * 595_000])
    paid = RENTED.with_overrides({"power_usd_per_kwh": 0.2})
    cost = priced(paid).cost
    assert isinstance(cost, YearlyCost)
    power = cost.way("on-prem").energy.usd_per_year  # type: ignore[union-attr]
    where, usd = shares(paid)
    assert where == "on-prem"
    assert usd == pytest.approx([0.75 * 595_000 + 0.4 * power, 0.25 * 595_000 + 0.6 * power])
    where, usd = shares(PRICES.with_overrides({"cloud": {"h100": 0.5}}))
    assert where == "cloud"
    assert usd == pytest.approx([0.4 * 39 * 1.5 * 8_760, 0.6 * 39 * 1.5 * 8_760])
    unknown = PRICES.with_overrides({"cloud": {"h100": None}, "systems": {"dgx-h100": None}})
    assert shares(unknown) == ("", [None, None])


def test_what_a_candidate_costs_and_draws() -> None:
    """Six systems with a spare one, whose GPUs draw three fifths of their 700 W at the peak."""
    drawn = Power(
        watts=420,
        low=380,
        high=490,
        idle_watts=69,
        tdp_watts=700,
        joules_per_output_token=1,
        by_load=((0.0, 69.0), (10.0, 420.0)),
    )
    traffic = traffic_of(plan_of(YEAR, candidate()))
    tokens = COURSE_REQUESTS * (2_000 * 1 + 200 * 3) / 1e6
    found = outlay(replace(candidate(systems=6), power=drawn), traffic, RENTED, spare=1)
    assert found == Outlay(
        purchase_usd=6 * 320_000,
        cheapest_usd_per_year=6 * 119_000,
        own_usd_per_year=6 * 119_000,
        system_watts=10_200,
        watts_from="highest power of dgx-h100, 10,200 W",
        job_usd=0.0,
        drawn_watts=10_200 * 0.6,
    )
    bare = outlay(candidate(), traffic, RENTED, where=("api", "cloud"))
    assert (bare.drawn_watts, bare.system_watts) == (10_200, 10_200)
    assert bare.cheapest_usd_per_year == bare.own_usd_per_year == 39 * 3 * 8_760
    sent = outlay(candidate(), traffic, RENTED, where=("api",))
    assert (sent.cheapest_usd_per_year, sent.own_usd_per_year) == (
        pytest.approx(tokens, rel=1e-4),
        None,
    )
    unknown = outlay(candidate(gpu="my-gpu", system="my-box"), traffic, RENTED, where=("on-prem",))
    assert unknown == Outlay(
        purchase_usd=None,
        cheapest_usd_per_year=None,
        own_usd_per_year=None,
        system_watts=None,
        watts_from="the power of my-box is not in the catalog",
        drawn_watts=None,
    )
    pools = tuple(replace(candidate(systems=1).pool, role=role) for role in ("prefill", "decode"))
    quiet = traffic.times(1e-6)
    apart = outlay(replace(candidate(systems=1), pools=pools), quiet, RENTED, where=("cloud",))
    assert apart.own_usd_per_year == 2 * 3 * 8_760  # an instance of each


def test_a_plan_s_job_is_rented_on_the_gpus_of_a_candidate() -> None:
    """100,000 requests within an hour at 5 a second: six GPUs, and 55 minutes rounded up."""
    of = candidate(rate=5.0)
    assert rented_job(plan_of(JOB, of), of, RENTED, 0) == pytest.approx(6 * 3)
    longer = demand_of(requests=100_000, within_s=7_200)
    assert rented_job(plan_of(longer, of), of, RENTED, 0) == pytest.approx(
        3 * 3 * math.ceil(100_000 / 3) / 5 / 3_600, rel=1e-4
    )
    assert rented_job(plan_of(YEAR, of), of, RENTED, 0) == 0
    unknown = RENTED.with_overrides({"cloud": {"h100": None}})
    assert rented_job(plan_of(JOB, of), of, unknown, 0) is None


def test_a_job_says_its_arithmetic() -> None:
    prices = JOB_PRICES.with_overrides(
        {"licence_usd_per_gpu_hour": 1, "power_usd_per_kwh": 0.2, "pue": 1.5}
    )
    serving = replace(
        ONE,
        power=Power(
            watts=350,
            low=300,
            high=400,
            idle_watts=0,
            tdp_watts=700,
            joules_per_output_token=1,
            by_load=((0.0, 0.0), (1.0, 350.0)),
        ),
    )
    cost = cost_of_of_job(198_000, 5.5 * 3_600, serving, prices)
    assert cost.cloud_how == (
        "55 GPU-hours (10 GPUs for 5.5 h) × given, 2 USD per GPU and hour + 1 USD licence"
    )
    assert cost.cloud_usd_per_job == pytest.approx(165)
    assert cost.api_how == (
        "198,000 requests; given: 2,000 tokens in × 1 USD + 200 out × 3 USD per million = 2.6 USD"
        " per 1,000 requests"
    ).replace("given:", f"{prices.api[0].name}:")
    # at half of their power: 55 hours of an eighth of a system
    assert cost.power_usd_per_job == pytest.approx(10 * 10.2 / 8 * 0.5 * 5.5 * 1.5 * 0.2)
    assert (cost.owned.energy, cost.stale_prices) == (None, ())
    api = prices.api[0]
    assert {api.usd_per_million_input_tokens, api.usd_per_million_output_tokens} < set(cost.figures)
    assert {"systems.dgx-h100", "pue"} < {figure.path for figure in cost.figures}
    one = cost_of_of_job(1_800, 3_600, ONE, prices)
    assert one.cloud_how.startswith("1 GPU-hours (1 GPU for 1 h) × ")
    assert one.cloud_reason is one.api_reason is None
    unknown = cost_of_of_job(1_800, 3_600, ONE, replace(prices, api=()))
    assert (unknown.api_how, unknown.api_usd_per_job) == ("", None)


def test_the_notes_of_a_year_name_what_a_reader_has_to_know() -> None:
    cost = cost_of(plan_of(YEAR, candidate()), PRICES, where=("on-prem",))
    assert isinstance(cost, YearlyCost)
    ratio, course, power = cost.notes
    assert ratio == TokenPriceRatio(ratio=PRICES.output_to_input_price_ratio)
    one_system = 8 * 5.195428 * 31_536_000
    assert course == CourseWay(
        systems_exact=pytest.approx(COURSE_PEAK / (8 * 5.195428)),
        usd_per_1000_requests=pytest.approx(119_000 * COURSE_PEAK / (8 * 5.195428) / 9e5, rel=1e-4),
        course_usd_per_1000_requests=pytest.approx(
            119_000 * COURSE_PEAK / (8 * 5.195428) / one_system * 1_000
        ),
        one_system_requests_per_year=pytest.approx(one_system),
    )
    assert isinstance(power, OwnedElectricity)
    assert power.kwh_per_year == pytest.approx(
        COURSE_PEAK / 7 / 5.195428 * 10.2 / 8 * 8_760 * 1.58, rel=1e-4
    )
    small = cost_of(plan_of(demand_of(peak_rps=3.0), candidate(systems=1)), PRICES)
    assert isinstance(small, YearlyCost)
    assert [type(note).__name__ for note in small.notes[-4:]] == [
        "TokenPriceRatio",
        "NoProfile",
        "OnlyPeakKnown",
        "OwnedElectricity",
    ]  # less than one system: no figure of the course
    estimated = PRICES.with_overrides({"systems": {"dgx-h100": 320_000}})
    guessed = replace(
        estimated,
        systems=tuple(
            replace(one, usd=replace(one.usd, estimate=True)) if one.system == "dgx-h100" else one
            for one in estimated.systems
        ),
    )
    cost = cost_of(plan_of(YEAR, candidate()), guessed, where=("hybrid",))
    assert isinstance(cost, YearlyCost)
    assert [type(note).__name__ for note in cost.notes] == [
        "TokenPriceRatio",
        "NoProfile",
        "EstimatedPrice",
    ]


def test_use_cases_share_a_pool_by_their_instances_and_a_job_by_what_it_uses() -> None:
    """Of four instances of two GPUs one use case takes a quarter at its peak, where it always is;
    the other is busy half of the time. A job in the background uses one instance, and no peak."""
    plan = plan_of(YEAR, candidate(tp=2))

    def of(mean: float | None) -> Plan:
        demand = replace(
            demand_of(peak_rps=10.0), mean_requests_per_second=mean, sizing_requests_per_second=10.0
        )
        return replace(plan, demand=demand)

    shared = _arranged(plan, 1, ("chat", "rag"))
    (pool,) = shared.pools
    exact = [
        replace(case, instances_exact=n) for case, n in zip(pool.cases, (0.5, 1.5), strict=True)
    ]
    pool = replace(pool, instances=4, cases=tuple(exact))
    job = Background(
        name="night",
        requests=1.0,
        within_seconds=1.0,
        free_requests=1.0,
        more_instances=0,
        instances_exact=1.0,
        requests_per_second=(),
    )
    found = UseCases(
        names=("chat", "rag", "night"),
        plans=(of(None), of(5.0), of(1.0)),
        separate=replace(shared, pools=(pool,)),
        shared=replace(shared, pools=(pool,)),
        not_shared=None,
        chosen="shared",
        background=job,
    )
    prices = RENTED.with_overrides({"power_usd_per_kwh": 0.2})
    paid = with_cost_together(found, prices)
    assert paid.shared is not None
    assert paid.separate is not None
    at_peak = {share.name: share.at_peak for share in paid.shared.shares}
    assert at_peak == pytest.approx({"chat": 0.25, "rag": 0.75, "night": 0.0})
    over_year = {share.name: share.over_year for share in paid.shared.shares}
    # chat 0.5 of an instance, rag half of 1.5, the job 1
    assert over_year == pytest.approx({"chat": 0.5 / 2.25, "rag": 0.75 / 2.25, "night": 1 / 2.25})
    # 20 requests/s at the peak; without the mean of one it is not known when: busy all year
    power = 10.2 * 8_760 * 1.58 * 0.2
    assert paid.shared.owned_usd_per_year == pytest.approx(119_000 + power)
    usd = {share.name: share.usd_per_year for share in paid.shared.shares}
    assert usd == pytest.approx(
        {name: at_peak[name] * 119_000 + over_year[name] * power for name in usd}
    )
    assert paid.shared.rented_usd_per_year == pytest.approx(4 * 2 * 3 * 8_760)
    assert [share.name for share in paid.separate.shares] == ["chat", "rag"]
    unpriced = with_cost_together(found, prices, ("cloud",)).shared
    assert unpriced is not None
    assert unpriced.owned_usd_per_year is None
    assert [share.usd_per_year for share in unpriced.shares] == [None] * 3
    assert [share.at_peak for share in unpriced.shares] == pytest.approx(list(at_peak.values()))
    old = replace(pool, cases=tuple(replace(case, instances_exact=None) for case in exact))
    aged = with_cost_together(replace(found, shared=replace(shared, pools=(old,))), prices)
    assert aged.shared is not None
    assert aged.shared.shares == ()


def test_loads_together_without_a_mean_are_weighted_by_their_peaks() -> None:
    first = Traffic(
        peak_requests_per_second=3.0,
        mean_requests_per_second=None,
        input_tokens=100.0,
        output_tokens=10.0,
    )
    second = replace(first, peak_requests_per_second=9.0, input_tokens=500.0, output_tokens=50.0)
    both = summed([first, second])
    assert both == Traffic(
        peak_requests_per_second=12.0,
        mean_requests_per_second=None,
        input_tokens=pytest.approx(400.0),
        output_tokens=pytest.approx(40.0),
    )
    known = summed(
        [
            replace(first, mean_requests_per_second=1.0),
            replace(second, mean_requests_per_second=3.0),
        ]
    )
    assert (known.mean_requests_per_second, known.input_tokens) == (4.0, pytest.approx(400.0))
    assert (
        summed([replace(first, profile=(1.0,)), replace(second, profile=(2.0, 3.0))]).profile == ()
    )
