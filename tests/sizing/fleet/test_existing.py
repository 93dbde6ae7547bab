"""What systems that exist carry, held against a brute-force search over loads, and when they run
out."""

import json
from dataclasses import dataclass, replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.plan.candidates import candidate
from tests.questions import best, plans_with, question
from tests.sizing.search.contenders import IDENTITY, asked_for, carrying, ready_of, sized_of
from tonnage.plan.demand import Existing, OwnedGroup
from tonnage.plan.limit import SATURATION
from tonnage.plan.plan import Plan
from tonnage.report.plans.fleet import existing_text
from tonnage.report.plans.question import bound_text
from tonnage.sizing.fleet.existing import (
    _carried_rps,
    _group,
    _together,
    existing,
    measured_existing,
    months_left,
    not_mixed,
    strongest,
    whole_fleet,
)
from tonnage.sizing.loads.runs import Runs
from tonnage.sizing.planner import size
from tonnage.sizing.progress import Steps
from tonnage.sizing.question import Owned, Question
from tonnage.sizing.search.objectives import MostLoad

few_parts = plans_with()


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


@pytest.mark.parametrize(
    ("today", "most", "growth", "months"),
    [
        (100.0, 121.0, 0.1, 2),
        (100.0, 120.9, 0.1, 1),
        (100.0, 100.0, 0.1, 0),
        (100.0, 99.9, 0.1, -1),
        (100.0, 99.9, None, -1),
        (1.0, 1.005 * 1.01**600, 0.01, 600),
        (1.0, 1.005 * 1.01**601, 0.01, None),
        (100.0, 200.0, 0.0, None),
    ],
)
def test_months_until_a_load_is_too_high_by_hand(
    today: float, most: float, growth: float | None, months: int | None
) -> None:
    assert months_left(today, most, growth) == months


@pytest.mark.parametrize(
    ("changed", "ranks", "why"),
    [
        ({}, (1, 1), None),
        ({}, (2,), None),
        ({}, (1, 2), "ranks"),
        ({"pools": object()}, (1, 2), "pools"),
        ({"drawn": False}, (1,), "traffic"),
        ({"sharing": object()}, (1,), "traffic"),
    ],
)
def test_why_fleets_are_not_mixed(
    changed: dict[str, object], ranks: tuple[int, ...], why: str | None
) -> None:
    kinds = []
    for count in ranks:
        ready = ready_of()
        ready.trial.deployment.parallelism.dp = count
        kinds.append(sized_of(carrying(1.0, ready=ready), 1, 1.0))
    assert not_mixed(asked_for(1.0, **{"sharing": None} | changed), kinds) == why


@pytest.mark.parametrize(
    ("gpus", "rates", "best"),
    [
        ((8, 8), (3.0, 4.0), (2, 8.0)),
        ((4, 8), (3.0, 4.0), (4, 12.0)),  # two instances on each of two systems
        ((16, 8), (9.0, 4.0), (1, 9.0)),
        ((32, 32), (9.0, 4.0), None),  # wider than all systems
    ],
)
def test_what_measured_systems_carry(
    gpus: tuple[int, int], rates: tuple[float, float], best: tuple[int, float] | None
) -> None:
    rows = [
        candidate(tp=width, gpus_per_system=max(8, width), requests_per_second_per_instance=rate)
        for width, rate in zip(gpus, rates, strict=True)
    ]
    rows.append(candidate(gpu="l40s", requests_per_second_per_instance=99.0))
    system = SimpleNamespace(gpu="h100-sxm-80gb", gpus=8, name="dgx-h100")
    unknown = SimpleNamespace(gpu="a100-sxm-80gb", gpus=8, name="dgx-a100")
    demand = SimpleNamespace(of_existing=False, sizing_requests_per_second=4.0)
    plan = SimpleNamespace(candidates=rows, demand=demand)
    have = (Owned(count=2, system=system), Owned(count=3, system=unknown))
    existing = measured_existing(plan, have)
    group, nothing = existing.groups
    instances, rate = best or (0, 0.0)
    assert (group.count, group.system, group.instances) == (2, "dgx-h100", instances)
    assert group.requests_per_second == existing.requests_per_second == rate
    assert (group.deployment is None) == (best is None)
    assert (group.binds, existing.breaks_first) == ((SATURATION,) * 2 if best else (None, None))
    assert (nothing.count, nothing.instances, nothing.requests_per_second) == (3, 0, 0.0)
    assert (existing.asked_requests_per_second, existing.headroom) == (4.0, rate / 4 - 1)
    assert existing.months_left == (None if best else -1)
    assert existing.growth_per_month is None
    demand.of_existing = True
    existing = measured_existing(plan, have)
    assert existing.asked_requests_per_second is existing.headroom is existing.months_left is None


def holding(limit: float) -> object:
    """A fleet that holds loads up to a limit, at any number of systems."""
    return lambda kinds, load: SimpleNamespace(
        run=lambda systems: SimpleNamespace(holds=load <= limit)
    )


@pytest.mark.parametrize(
    ("limit", "today", "of_existing", "carried_rps"),
    [
        (100.0, 50.0, False, 100.0),
        (95.0, 50.0, False, 100 * 2 ** (-5 / 64)),
        (1.0, 0.5, False, 100 * 2 ** (-63 / 64)),
        (108.0, 108.0, False, 108.0),  # the requested load, a little above the sum
        (107.0, 108.0, False, 100.0),
        (200.0, 111.0, False, 100.0),
        (200.0, 108.0, True, 100.0),
    ],
)
def test_what_systems_of_two_kinds_carry_together(
    limit: float,
    today: float,
    of_existing: bool,
    carried_rps: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tonnage.sizing.fleet.existing.whole_fleet", holding(limit))
    question = asked_for(today, sharing=None)
    question.demand.of_existing = of_existing
    kinds = [(sized_of(carrying(1.0), 1, 1.0), 1)] * 2
    assert _together(question, kinds, 100.0) == pytest.approx(carried_rps)
    assert _together(question, kinds[:1], 90.0) == 90.0
    assert _together(replace(question, sharing=object()), kinds, 90.0) == 90.0


def test_the_load_of_one_kind_is_what_its_fleet_was_seen_to_hold() -> None:
    """Five for each of 80 instances, less 1.1 % for each step at which the fleet breaks a limit."""
    contender = carrying(1.0)
    sized = sized_of(contender, 20, 5.0)

    @dataclass
    class Peak:
        rate: float = 0.0
        limit: float = 0.0

        def run(self, systems: int) -> object:
            assert systems == 20
            return SimpleNamespace(holds=self.rate < self.limit)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(contender), "slowdown", lambda self, level: level)
        for limit, steps in ((401.0, 0), (395.0, 2), (0.0, 63)):
            peak = Peak(limit=limit)
            patch.setattr(type(contender), "at_peak", lambda self, slowdown, peak=peak: peak)
            assert _carried_rps(sized) == pytest.approx(400 * 2 ** (-steps / 64))
    recorded = sized_of(carrying(1.0, question=asked_for(1.0, drawn=False)), 20, 5.0)
    assert _carried_rps(recorded) == 400.0
    group = _group(Owned(count=20, system=SimpleNamespace(name="system")), recorded)
    assert (group.count, group.system, group.instances, group.requests_per_second) == (
        20,
        "system",
        80,
        400.0,
    )
    assert (group.deployment, group.binds) == (IDENTITY, SATURATION)
    nothing = _group(Owned(count=20, system=SimpleNamespace(name="system")), None)
    assert (nothing.count, nothing.instances, nothing.requests_per_second, nothing.binds) == (
        20,
        0,
        0.0,
        None,
    )


def test_too_few_systems_for_their_spare_ones_carry_nothing() -> None:
    assert strongest(None, SimpleNamespace(count=1), spare=1) is None


@pytest.mark.parametrize("as_predicted", [False, True])
def test_systems_of_each_kind_are_as_slow_as_their_confidence_allows(
    as_predicted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    @dataclass
    class Peak:
        slowdown: object
        rate: float = 0.0

    monkeypatch.setattr(
        "tonnage.sizing.fleet.existing.at_peak", lambda peaks, rates: (peaks, rates)
    )
    rows = [sized_of(carrying(1.0), 1, rate) for rate in (5.0, 6.0)]
    monkeypatch.setattr(type(rows[0].contender), "at_peak", lambda self, slowdown: Peak(slowdown))
    monkeypatch.setattr(type(rows[0].contender), "slowdown", lambda self, level: level)
    fleet = whole_fleet(list(zip(rows, (2, 3), strict=True)), 9.0, as_predicted=as_predicted)
    slowdown = rows[0].contender.as_asked if as_predicted else 0.8
    peak = Peak(slowdown, 9.0)
    assert fleet == ([(peak, 2), (peak, 3)], [5.0, 6.0])


@pytest.mark.parametrize(
    ("of_existing", "rates", "spare", "kinds"),
    [
        (False, (30.0,), 1, 1),
        (True, (30.0,), 1, 1),
        (False, (30.0, 50.0), 1, 2),
        (True, (30.0, None), 0, 2),
        (True, (None,), 0, 1),
    ],
)
def test_what_exists_and_the_question_for_it_by_hand(
    *,
    of_existing: bool,
    rates: tuple[float | None, ...],
    spare: int,
    kinds: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Spare systems are left out where there is one kind; together the kinds carry a tenth less."""
    module = "tonnage.sizing.fleet.existing"
    have = tuple(
        Owned(count=4 + place, system=SimpleNamespace(name=f"kind {place}"))
        for place in range(kinds)
    )
    demand = SimpleNamespace(of_existing=of_existing, sizing_requests_per_second=20.0)
    asked = asked_for(20.0, have=have, spare=spare, demand=demand, growth_per_month=0.05)
    calls: list[object] = []

    def strong(search: object, owned: Owned, spare: int = 0) -> object:
        calls.append(("strongest", search, owned, spare))
        rate = rates[have.index(owned)]
        return None if rate is None else SimpleNamespace(ready=f"ready {rate:g}", rate=rate)

    def together(question: object, kinds: object, total: float) -> float:
        calls.append(("together", kinds, total))
        return 0.9 * total

    def group(owned: Owned, best: object) -> OwnedGroup:
        rate = 0.0 if best is None else best.rate
        return OwnedGroup(
            count=owned.count,
            system=owned.system.name,
            deployment=None,
            instances=0,
            requests_per_second=rate,
            binds=f"bound {rate:g}",
        )

    monkeypatch.setattr(f"{module}.Search", lambda **what: what)
    monkeypatch.setattr(f"{module}.strongest", strong)
    monkeypatch.setattr(f"{module}._group", group)
    monkeypatch.setattr(f"{module}._together", together)
    monkeypatch.setattr(f"{module}.months_left", lambda *what: what)
    monkeypatch.setattr(
        f"{module}.carried_by_existing", lambda rate: SimpleNamespace(of_existing=True, rate=rate)
    )
    found, question, ready = existing(asked, "runs", "steps", 3)
    total = 0.9 * sum(rate or 0.0 for rate in rates)
    search = {"question": asked, "runs": "runs", "steps": "steps", "workers": 3, "rows": False}
    left_out = spare if kinds == 1 else 0
    assert calls[:-1] == [("strongest", search, owned, left_out) for owned in have]
    name, counts, whole = calls[-1]
    assert (name, whole) == ("together", sum(rate or 0.0 for rate in rates))
    assert [(best.rate, count) for best, count in counts] == [
        (rate, owned.count - left_out)
        for rate, owned in zip(rates, have, strict=True)
        if rate is not None
    ]
    if of_existing and total:
        assert question.demand.rate == pytest.approx(total, rel=1e-8)
        assert question.demand.rate < total
    else:
        assert question is asked
    today = None if of_existing else 20.0
    largest = max(rate or 0.0 for rate in rates)
    assert found == Existing(
        groups=tuple(
            group(owned, None if rate is None else SimpleNamespace(rate=rate))
            for owned, rate in zip(have, rates, strict=True)
        ),
        requests_per_second=pytest.approx(total),
        asked_requests_per_second=today,
        headroom=None if today is None else pytest.approx(total / 20.0 - 1),
        breaks_first=f"bound {largest:g}",
        growth_per_month=0.05,
        months_left=None if today is None else (20.0, pytest.approx(total), 0.05),
    )
    assert ready == tuple(f"ready {rate:g}" for rate in rates if rate is not None)


def test_the_strongest_deployment_is_of_the_gpus_of_the_systems() -> None:
    gpus = tuple(SimpleNamespace(name=name) for name in ("a", "b"))
    asked = asked_for(1.0, gpus=gpus, systems=("all",), have=("systems",), spare=3)
    made: list[object] = []

    @dataclass(frozen=True)
    class Searched:
        question: object
        aim: object = None

        def answer(self) -> object:
            made.append(self)
            return SimpleNamespace(best="best")

    owned = Owned(count=5, system=SimpleNamespace(gpu="b", name="s"))
    assert strongest(Searched(asked), owned, spare=1) == "best"
    (search,) = made
    assert search.aim == MostLoad(4)
    of = search.question
    assert (of.gpus, of.systems, of.have, of.spare) == (gpus[1:], (owned.system,), (), 0)
    assert strongest(Searched(asked), owned, spare=5) is None
    assert strongest(Searched(asked), owned) == "best"
    assert made[-1].aim == MostLoad(5)
