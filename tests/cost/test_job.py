"""A nightly job: rented by begun hours, owned all year, or by tokens, and from how many a year owning is cheaper."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cost.cost_cases import COURSE_PRICES, COURSE_SERVING, price_lists, servings
from tonnage.cost.job import job_cost
from tonnage.plan.cost_note import NoCost
from tonnage.plan.document import json_of
from tonnage.plan.serving import Serving
from tonnage.spec.prices import Prices

PRICES = COURSE_PRICES.with_overrides({"cloud": {"h100": 2.0}, "licence_usd_per_gpu_hour": None})
TOKENS = (2_000.0, 200.0)


def test_a_nightly_job_by_hand() -> None:
    serving = replace(COURSE_SERVING, requests_per_second_per_instance=1.0)
    cost = job_cost(10 * 3_600 * 5.5, 5.5 * 3_600, TOKENS, serving, PRICES, today=date(2026, 11, 21))
    assert (cost.owned.systems, cost.owned.total_usd_per_year) == (2, 238_000)
    assert cost.cloud_gpu_hours_per_job == 10 * 6
    assert cost.cloud_usd_per_job == 120
    assert cost.api_usd_per_job == pytest.approx(10 * 3_600 * 5.5 * 0.0026)
    assert cost.jobs_per_year_against_api == pytest.approx(238_000 / (10 * 3_600 * 5.5 * 0.0026))
    assert cost.jobs_per_year_against_cloud is None, "a year has no time for 1,983 of them"
    assert cost.most_jobs_per_year == pytest.approx(8_760 / 5.5)
    assert any(figure.path == "systems.dgx-h100" for figure in cost.stale_prices)
    assert json.loads(json.dumps(json_of(cost), allow_nan=False))["owned"]["capex_usd_per_year"] == 160_000


def test_electricity_of_a_job_is_that_of_its_requests() -> None:
    paid = PRICES.with_overrides({"power_usd_per_kwh": 0.2, "pue": 1.5})
    serving = replace(COURSE_SERVING, requests_per_second_per_instance=1.0)
    cost = job_cost(10 * 3_600 * 5.5, 5.5 * 3_600, TOKENS, serving, paid)
    assert cost.power_usd_per_job == pytest.approx(10 * 10.2 / 8 * 5.5 * 1.5 * 0.2)
    assert cost.owned.total_usd_per_year == 238_000
    assert job_cost(10, 10, TOKENS, serving, PRICES).power_usd_per_job == 0


def test_a_whole_hour_is_not_begun_twice() -> None:
    serving = replace(COURSE_SERVING, requests_per_second_per_instance=1 / 3)
    assert job_cost(3_600, 0.1 * 3 * 10 * 3_600, TOKENS, serving, PRICES).cloud_gpu_hours_per_job == 3


def test_a_small_job_rents_no_longer_than_it_takes() -> None:
    """10 thousand requests within 8 hours were rented 8 hours, though an instance does them in 9 minutes."""
    serving = replace(COURSE_SERVING, requests_per_second_per_instance=20.0)
    assert job_cost(10_000, 8 * 3_600, TOKENS, serving, PRICES).cloud_gpu_hours_per_job == 1
    assert job_cost(100_000, 8 * 3_600, TOKENS, serving, PRICES).cloud_gpu_hours_per_job == 2


def test_a_job_on_prices_that_are_not_known() -> None:
    unknown = PRICES.with_overrides({"systems": {"dgx-h100": None}, "cloud": {"h100": None}})
    cost = job_cost(3_600, 3_600, TOKENS, COURSE_SERVING, replace(unknown, api=()))
    assert cost.owned.total_usd_per_year is None
    assert cost.cloud_usd_per_job is cost.api_usd_per_job is cost.jobs_per_year_against_cloud is cost.jobs_per_year_against_api is None
    assert cost.cloud_reason == NoCost(code="cloud-price", name="h100-sxm-80gb")
    assert cost.api_reason == NoCost(code="api-price")


@given(st.floats(1.0, 1e7), st.floats(600.0, 200_000.0), servings(), price_lists())
def test_owning_is_cheaper_from_the_break_even_on(requests: float, seconds: float, serving: Serving, prices: Prices) -> None:
    cost = job_cost(requests, seconds, TOKENS, serving, prices)
    assert cost.owned.total_usd_per_year is not None
    for each, jobs in (
        (cost.cloud_usd_per_job, cost.jobs_per_year_against_cloud),
        (cost.api_usd_per_job, cost.jobs_per_year_against_api),
    ):
        assert each is not None
        if jobs is None:
            assert (each - cost.power_usd_per_job) * cost.most_jobs_per_year < cost.owned.total_usd_per_year
        else:
            assert math.isclose(each * jobs, cost.owned.total_usd_per_year + cost.power_usd_per_job * jobs)
            assert jobs <= cost.most_jobs_per_year
