"""The cost of a plan is read off the plan and the prices alone."""

from __future__ import annotations

import json
import math
from dataclasses import fields, replace
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cost.cost_cases import (
    COURSE_PEAK,
    COURSE_PRICES,
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
    compare,
    cost_of,
    cost_of_run,
    in_proportion,
    job_cost,
    with_cost,
    with_rent,
)
from tonnage.plan.candidate import Identity
from tonnage.plan.cost import JobCost, Serving, YearlyCost
from tonnage.plan.demand import Demand, DemandSource
from tonnage.plan.document import json_of
from tonnage.plan.fleet import Autoscaling, Held, OverHours, Proposal
from tonnage.plan.notes import NoCost
from tonnage.plan.plan import Plan
from tonnage.plan.sensitivity import pareto
from tonnage.plan.use_cases import Arrangement, CaseAtPeak, PoolSystems, UseCasePool, UseCases
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
    unpriced = replace(plan_of(DEMAND, any_candidate(gpu="unknown-gpu")), autoscaling=scaled(HALF))
    found = with_rent(unpriced, catalog_prices())
    assert found.cost is None
