"""Limits: their names, and the forms that a plan and a question have."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.plan.limit import Limit, limit_of


@pytest.mark.parametrize(
    ("limit", "name", "text"),
    [
        (Limit(metric="ttft", statistic="p95", milliseconds=500.0), "TTFT p95", "500 ms"),
        (Limit(metric="tpot", statistic="mean", milliseconds=12.5), "TPOT mean", "12.5 ms"),
    ],
)
def test_a_limit_is_written_as_a_question_does(limit: Limit, name: str, text: str) -> None:
    assert limit.name == name
    assert str(limit) == f"{name} ≤ {text}"
    assert limit.seconds == limit.milliseconds / 1e3


def test_joint_attainment_is_named_by_its_share_and_has_the_limits_of_its_parts() -> None:
    limit = Limit(
        metric="attain",
        statistic="share",
        milliseconds=1000.0,
        share=0.95,
        parts=(("ttft", 500.0), ("tpot", 50.0)),
    )
    assert limit.name == "attainment of 95%"
    assert limit.asked.parts == (("ttft", 0.5), ("tpot", 0.05))


@given(
    metric=st.sampled_from(["ttft", "itl", "tpot", "e2e"]),
    statistic=st.sampled_from(["mean", "p50", "p90", "p95", "p99"]),
    milliseconds=st.integers(1, 10**7),
)
def test_the_forms_of_plan_and_question_are_each_others(
    metric: str, statistic: str, milliseconds: int
) -> None:
    limit = Limit(metric=metric, statistic=statistic, milliseconds=float(milliseconds))
    again = limit_of(limit.asked)
    assert (again.metric, again.statistic) == (metric, statistic)
    assert again.milliseconds == pytest.approx(milliseconds, rel=1e-12)
