"""What systems that exist carry, held against a brute-force search over loads, and when they run
out."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.questions import best, question
from tonnage.plan.demand import Existing
from tonnage.plan.plan import Plan
from tonnage.report.plans.fleet import existing_text
from tonnage.report.plans.question import bound_text
from tonnage.sizing.fleet.existing import existing, months_left
from tonnage.sizing.loads.runs import Runs
from tonnage.sizing.planner import size
from tonnage.sizing.progress import Steps
from tonnage.sizing.question import Question


def carried(asked: Question) -> Existing:
    return existing(asked, Runs(), Steps())[0]


@pytest.mark.parametrize("count", [pytest.param(1, marks=pytest.mark.accuracy), 3])
def test_highest_load_agrees_with_brute_force(count: int) -> None:
    asked = question(
        have=f"{count}xdgx-h100",
        growth="5%/month",
        tp="1",
        peak_rps=100,
        ttft="p95<=100ms",
        isl="1000+-300",
        osl="100+-30",
    )
    have, _, (ready,) = existing(asked, Runs(), Steps())
    one = best(asked)
    peak = replace(one.contender, ready=ready).at_peak(one.slowdown)

    def holds(share: float) -> bool:
        fleet = replace(peak, rate=share * have.requests_per_second)
        return all(fleet.run(count, seeds=(seed,)).holds for seed in (0, 10, 20))

    assert [holds(share) for share in (0.7, 0.8, 0.9, 0.96, 1.06, 1.1)] == [
        True,
        True,
        True,
        True,
        False,
        False,
    ]
    assert have.breaks_first is not None
    assert bound_text(have.breaks_first) == "TTFT p95 ≤ 100 ms"
    assert have.headroom == pytest.approx(have.requests_per_second / 100 - 1)
    assert have.groups[0].instances == 8 * count


SLOW = ({"arrivals": "gamma", "cv": 3}, {"tp": "1,2"}, {"confidence": 95})


@pytest.mark.parametrize(
    "changed",
    [{"ttft": "p95<=100ms"}, *(pytest.param(each, marks=pytest.mark.accuracy) for each in SLOW)],
)
def test_what_systems_carry_and_what_a_load_needs_are_one_answer(
    changed: dict[str, object],
) -> None:
    """Asked for what n systems carry, the answer is n; for a little more it is more."""
    changed = {"tp": "1", **changed}
    asked = question(have="3xdgx-h100", peak_rps=None, **changed)
    have = carried(asked)
    for share, enough in ((0.99, True), (1.03, False)):
        found = best(question(peak_rps=share * have.requests_per_second, **changed))
        assert (found.systems <= 3) == enough


def test_what_systems_carry_is_a_question_by_itself() -> None:
    """The same as beside a load, and the plan is for that load: on these systems it needs no
    others."""
    wanted = {"have": "2xdgx-h100", "tp": "1", "ttft": "p95<=100ms"}
    alone = size(replace(question(**wanted, peak_rps=None), deepen=False))
    beside = size(replace(question(**wanted, peak_rps=100), deepen=False))
    (group,), (other,) = alone.existing.groups, beside.existing.groups
    assert (group.deployment, group.instances, group.binds) == (
        other.deployment,
        other.instances,
        other.binds,
    )
    assert 0.8 * other.requests_per_second < group.requests_per_second <= other.requests_per_second
    assert alone.choice.systems <= 2
    assert (
        alone.existing.asked_requests_per_second
        is alone.existing.headroom
        is alone.existing.months_left
        is None
    )
    assert (
        pytest.approx(alone.existing.requests_per_second)
        == alone.demand.peak_requests_per_second
        > 100
    )
    assert Plan.from_json(json.loads(json.dumps(alone.to_json()))) == alone


def test_too_few_systems_have_negative_headroom_and_say_so() -> None:
    asked = question(have="1xdgx-h100", growth="5%/month", tp="1", peak_rps=4000)
    have = carried(asked)
    assert have.headroom < 0
    assert have.months_left == -1
    assert "less than today's 4,000" in existing_text(have)


@given(today=st.floats(1, 1e4), room=st.floats(1, 100), growth=st.floats(1e-3, 1))
def test_the_last_month_still_fits_and_the_next_does_not(
    today: float, room: float, growth: float
) -> None:
    most = today * room
    left = months_left(today, most, growth)
    if left is not None:
        assert today * (1 + growth) ** left <= most * (1 + 1e-6)
        assert today * (1 + growth) ** (left + 1) > most * (1 - 1e-6)


def test_a_load_that_does_not_grow_never_runs_out() -> None:
    assert months_left(10.0, 20.0, None) is None
    assert months_left(10.0, 20.0, -0.1) is None
    assert months_left(30.0, 20.0, 0.1) == -1
