"""Jobs by their deadlines."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cost.cost_cases import price_lists, servings
from tests.cost.plan_cost_cases import JOB_PRICES, ONE, TOKENS
from tonnage.cost.plan_cost import job_cost
from tonnage.plan.cost import Serving
from tonnage.plan.demand import JobDone
from tonnage.spec.prices import Prices


def test_owned_systems_do_as_many_jobs_a_year_as_they_have_time_for() -> None:
    """A fleet that was done after 3.8 h did 365 jobs a year because each was given a day."""
    job = JobDone(
        requests=80_000,
        requests_per_instance=10_000,
        allowed_seconds=86_400,
        finish_seconds=3.8 * 3_600,
        fixed_seconds=0,
        seconds_per_request=1,
    )
    assert job_cost(job, TOKENS, ONE, JOB_PRICES).most_jobs_per_year == pytest.approx(8_760 / 3.8)


@given(
    st.integers(1, 3_000_000),
    st.tuples(st.floats(0.05, 20.0), st.floats(0.0, 2_000.0)),
    servings(),
    price_lists(),
    st.lists(st.floats(0.5, 400.0), min_size=2, max_size=8),
)
def test_a_looser_deadline_never_costs_more(
    requests: int, line: tuple[float, float], serving: Serving, prices: Prices, hours: list[float]
) -> None:
    """384, 461, 538, 845 and 1,310 USD were asked for 5, 6, 8, 12 and 24 hours of one job on one
    fleet."""
    costs, (each, fixed) = [], line
    for allowed in sorted(3_600 * hour for hour in hours):
        within = math.floor((allowed - fixed) / each)
        if within < 1:
            continue  # no queue is done in time
        rate = within / allowed
        share = math.ceil(requests / math.ceil(round(requests / within, 9)))
        job = JobDone(
            requests=requests,
            requests_per_instance=share,
            allowed_seconds=allowed,
            finish_seconds=fixed + share * each,
            fixed_seconds=fixed,
            seconds_per_request=each,
        )
        found = job_cost(
            job, TOKENS, replace(serving, requests_per_second_per_instance=rate), prices
        )
        assert found.cloud_usd_per_job is not None
        assert found.owned.total_usd_per_year is not None
        costs.append((found.cloud_usd_per_job, found.owned.total_usd_per_year))
    for looser, tighter in zip(costs[1:], costs, strict=False):
        assert looser[0] <= tighter[0] * (1 + 1e-9)
        assert looser[1] <= tighter[1] * (1 + 1e-9)
