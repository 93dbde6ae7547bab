"""The rule that is proposed for a plan: it holds the limits when it is run again, and no higher
target that was tried does."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.plan.candidates import candidate, plan_of
from tests.questions import plans_with
from tonnage.api.sizing import ask
from tonnage.plan.demand import Demand, DemandSource
from tonnage.plan.fleet import Autoscaling, Held, OverHours, Proposal
from tonnage.plan.limit import limit_of
from tonnage.plan.plan import Plan
from tonnage.simulator.autoscaler import Autoscale
from tonnage.simulator.changes import NO_CHANGES, Changes
from tonnage.sizing.fleet import autoscaling as fleet_over_hours
from tonnage.sizing.fleet.autoscaling import (
    SHARES,
    FleetOverHours,
    Kind,
    Search,
    Tried,
    _fleet,
    autoscaling,
    first_load,
    hardest_hours,
)
from tonnage.sizing.loads.instance import QUICK
from tonnage.sizing.loads.runs import Runs
from tonnage.sizing.planner import size
from tonnage.sizing.question import Question
from tonnage.spec.arrivals import HourlyArrivals
from tonnage.spec.deployment import Limit
from tonnage.spec.recording import Recording
from tonnage.spec.workload import TraceArrivals

few_parts = plans_with()


DAY = tuple(
    1.5 * rate
    for rate in (
        0.4,
        0.3,
        0.2,
        0.2,
        0.2,
        0.3,
        0.5,
        0.9,
        1.3,
        1.6,
        1.7,
        1.7,
        1.6,
        1.6,
        1.7,
        1.7,
        1.6,
        1.5,
        1.3,
        1.2,
        1.0,
        0.9,
        0.7,
        0.5,
    )
)


START_S = 180.0


@cache
def question(**changed: object) -> Question:
    """A day of long prompts, for which three instances of two GPUs are needed at noon."""
    asked = {
        "model": "llama-3.1-70b",
        "gpu": "h100",
        "precision": "fp8",
        "tp": 2,
        "engine": "vllm",
        "isl": "6000+-1000",
        "osl": "400+-100",
    }
    asked |= {"profile": DAY, "ttft": "p95<=2s", **changed}
    asked["profile"] = list(asked["profile"])
    return replace(ask(**asked).questions[0], tune=False, deepen=False)


@cache
def plan() -> Plan:
    return size(question())


@cache
def proposed() -> Autoscaling:
    found = autoscaling(question(), plan(), start_s=START_S, workers=2)
    assert found is not None
    return found


@cache
def fleet() -> FleetOverHours:
    assert plan().choice is not None
    found = _fleet(question(), plan().choice, proposed().instances, Runs())
    assert found is not None
    return found


def test_what_is_proposed_saves_and_holds_when_it_is_run_again() -> None:
    found = proposed()
    assert {one.metric for one in found.proposals} == {"outstanding", "rate"}
    assert found.fixed.instance_hours == pytest.approx(4 * 24, rel=0.001)
    for one in found.proposals:
        rules = (
            Autoscale(
                metric=one.metric,
                target=one.target,
                least=one.least,
                most=one.most,
                start_s=START_S,
                hold_s=one.hold_s,
                warm=one.warm,
                first=first,
            )
            for first in range(one.least, one.most + 1)
        )
        outcomes = [fleet().run(fleet().whole, rule) for rule in rules]
        again = next(outcome for outcome in outcomes if outcome.run == one.run)
        assert again.broken_hours == (0,)
        assert one.run.limits[0].share <= 0.05
        assert one.run.instance_hours < 0.9 * found.fixed.instance_hours
    assert found.best == min(found.proposals, key=lambda one: one.run.instance_hours)
    assert 0.1 < (found.saved_share or 0.0) < 0.9


def test_a_day_cannot_be_served_with_fewer_instance_hours_than_its_load_asks_for() -> None:
    """An instance that carries so much at the plan's confidence is held for at least the requests
    over that."""
    choice = plan().choice
    least = sum(DAY) / choice.requests_per_second_per_instance
    assert all(one.run.instance_hours > least for one in proposed().proposals)


def test_one_step_up_the_lattice_a_limit_breaks_or_it_is_the_last_step() -> None:
    search = Search(
        fleet(), "rate", targets=[1.0] * len(SHARES), carries=1.0, start_s=START_S, broken_share=0.0
    )
    assert plan().choice is not None
    search.targets, search.carries = (
        [share * plan().choice.sized_rate for share in SHARES],
        plan().choice.sized_rate,
    )
    highest = search.highest(Kind())
    assert (
        highest.place == len(SHARES) - 1
        or search.run(Kind(), highest.place + 1, fleet().hardest) is None
    )


@pytest.mark.parametrize("top", [3, 4, len(SHARES) - 1])
def test_another_kind_of_rule_is_tried_with_every_higher_target_that_holds(top: int) -> None:
    def run(kind: Kind, place: int, trace: object) -> SimpleNamespace | None:
        return SimpleNamespace(kind=kind, place=place, hours=100 - place) if place <= top else None

    search = SimpleNamespace(run=run, fleet=SimpleNamespace(hardest=None))
    assert Search.better(search, Kind(warm=1), run(Kind(), 3, None)).place == top


def test_the_number_of_threads_does_not_matter_and_a_plan_keeps_it() -> None:
    found = proposed()
    assert autoscaling(question(), plan(), start_s=START_S, workers=1) == found
    kept = replace(plan(), autoscaling=found)
    document = json.loads(json.dumps(kept.to_json()))
    assert document["autoscaling"]["saved_share"] == found.saved_share
    assert Plan.from_json(document) == kept
    assert "autoscaling" not in plan().to_json()


@pytest.mark.parametrize(
    ("holds_at", "whole_is_hardest", "place"),
    [
        ({3: 90.0, 2: 95.0, 1: 99.0, 0: 120.0}, False, 3),
        ({2: 95.0, 1: 99.0, 0: 120.0}, False, 2),  # the target is lowered until it holds
        ({1: 100.0}, False, None),  # as many instance-hours as fixed are no saving
        ({1: 99.9}, False, 1),
        ({}, False, None),
        ({}, True, 3),  # the hardest hours are all hours: nothing is run again
    ],
)
def test_a_rule_for_the_hardest_hours_is_lowered_until_it_holds_over_all_and_saves(
    holds_at: dict[int, float], whole_is_hardest: bool, place: int | None
) -> None:
    def tried(at: int, hours: float) -> Tried:
        outcome = SimpleNamespace(run=SimpleNamespace(instance_hours=hours))
        return Tried(kind=Kind(), place=at, outcome=outcome)

    whole, hardest = object(), object()
    search = SimpleNamespace(
        fleet=SimpleNamespace(whole=whole, hardest=whole if whole_is_hardest else hardest),
        run=lambda kind, at, trace: (
            tried(at, holds_at[at]) if trace is whole and at in holds_at else None
        ),
        as_fixed=lambda trace: tried(0, 100.0).outcome,
    )
    found = Search.over_all(search, tried(3, 98.0))
    assert (None if found is None else found.place) == place
    if whole_is_hardest:
        assert Search.over_all(search, tried(3, 100.0)) is None


def test_limits_that_may_be_broken_in_some_hours_take_fewer_instance_hours() -> None:
    found = autoscaling(question(), plan(), start_s=START_S, broken_share=0.5)
    assert proposed().best is not None
    assert 0 < found.best.run.limits[0].broken_hours <= 12
    assert found.best.run.instance_hours < proposed().best.run.instance_hours


def test_a_fleet_that_cannot_be_scaled_says_why() -> None:
    alone = question(profile=(0.1,) * 24)
    found = autoscaling(alone, size(alone))
    assert found.reason == "one-instance"
    assert not found.proposals
    assert (found.simulated_instances, found.requests) == (0, 0)
    nothing = plan_of(
        Demand(
            peak_requests_per_second=1.0,
            sizing_requests_per_second=1.0,
            source=DemandSource(kind="peak"),
        )
    )
    assert autoscaling(question(), nothing) is None


def test_more_requests_than_are_simulated_are_shared_by_fewer_instances(monkeypatch) -> None:
    monkeypatch.setattr(fleet_over_hours, "MOST_REQUESTS", 10_000)
    large = replace(fleet(), instances=12, profile=tuple(4 * rate for rate in DAY))
    assert large.simulated == 4
    assert replace(large, profile=()).simulated == 12  # recorded moments
    outcome = large.run(large.hardest, None)
    assert [each.instances for each in outcome.run.held] == [12]
    assert len(large.hardest) == pytest.approx(
        3600 * 4 * sum(hardest_hours(DAY)) * 4 / 12, rel=0.05
    )


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=24, max_size=24).filter(any))
def test_the_hardest_hours_hold_the_busiest_one_and_no_rise_that_the_day_does_not_have(
    profile: list[int],
) -> None:
    day = tuple(map(float, profile))
    hours = hardest_hours(day)
    assert max(hours) == max(day)
    busiest = day.index(max(day))
    assert (max(day), day[(busiest + 1) % 24]) in pairwise(hours)
    assert len(hours) <= 5
    steepest = max(day[i] - day[i - 1] for i in range(24))
    rises = [after - before for before, after in pairwise(hours)]
    assert steepest == 0 or max(rises) == steepest


def test_what_is_rented_at_once_is_paid_for_as_a_whole() -> None:
    run = OverHours(held=(Held(instances=1, hours=10.0), Held(instances=5, hours=2.0)), limits=())
    assert run.instance_hours == 20.0
    assert run.rented_hours(1) == 20.0
    assert run.rented_hours(4) == 10.0 + 2 * 2.0


def test_the_load_at_first_is_that_of_the_first_hour() -> None:
    whole = fleet().whole
    assert first_load(whole) == pytest.approx(DAY[0], rel=0.1)
    assert first_load(replace(whole, due_ps=np.arange(len(whole)) * 10**12)) == pytest.approx(
        1.0, rel=0.001
    )


@pytest.mark.parametrize(
    ("profile", "hours"),
    [
        ((1.0, 2.0, 9.0, 4.0, 3.0, 2.0), (2.0, 9.0, 4.0)),
        ((5.0, 9.0, 7.0, 1.0, 6.0, 6.0, 5.0), (9.0, 7.0, 1.0, 6.0, 6.0)),
        ((9.0, 4.0, 1.0, 6.0, 7.0, 8.0), (9.0, 4.0, 1.0, 6.0, 7.0)),
        ((1.0, 7.0, 9.0, 2.0), (1.0, 7.0, 9.0, 2.0)),  # the busiest is the hour after the rise
        ((0.0, 6.0, 8.0, 9.0, 2.0, 1.0), (0.0, 6.0, 8.0, 9.0, 2.0)),  # or two after it
        ((3.0, 3.0, 3.0), (3.0, 3.0, 3.0)),
    ],
)
def test_the_hardest_hours_by_hand(profile: tuple[float, ...], hours: tuple[float, ...]) -> None:
    assert hardest_hours(profile) == hours


@pytest.mark.parametrize(
    ("rates", "instances", "simulated"),
    [
        ((500.0,), 40, 40),
        ((2_000_000 / 3_600,), 40, 40),
        ((1_000.0,), 40, 22),  # 3.6 million requests: 40 * 2 / 3.6
        ((1_000.0, 1_000.0), 40, 11),
        ((1_000.0,) * 24, 40, 4),
        ((1_000.0,) * 24, 3, 3),
    ],
)
def test_how_many_instances_stand_for_a_fleet_over_hours(
    rates: tuple[float, ...], instances: int, simulated: int
) -> None:
    over = FleetOverHours(instance=None, limits=(), slo=(), instances=instances, profile=rates)
    assert over.simulated == simulated
    assert over.lengths


def search_of(simulated: int = 10, **changed: object) -> Search:
    parts: dict = {
        "targets": [float(number) for number in range(3, 12)],
        "carries": 10.0,
        "start_s": 60.0,
        "broken_share": 0.25,
    }
    fleet_of = SimpleNamespace(
        simulated=simulated, instances=3 * simulated, hardest="hard", whole="whole"
    )
    return Search(fleet_of, "rate", **parts | changed)


def first_trace(rate: float) -> SimpleNamespace:
    return SimpleNamespace(due_ps=np.arange(int(7_200 * rate)) * int(10**12 / rate))


@pytest.mark.parametrize(
    ("place", "kind", "rate", "first"),
    [
        (0, Kind(), 20.0, 7),  # an instance at 0.3 of 10 requests per second
        (2, Kind(), 20.0, 4),
        (7, Kind(), 20.0, 2),
        (7, Kind(least=3), 20.0, 3),
        (0, Kind(), 60.0, 10),
    ],
)
def test_a_rule_by_hand(place: int, kind: Kind, rate: float, first: int) -> None:
    rule = search_of().rule(kind, place, first_trace(rate))
    assert rule == Autoscale(
        metric="rate",
        target=3.0 + place,
        least=kind.least,
        most=10,
        start_s=60.0,
        hold_s=300.0,
        warm=0,
        first=first,
    )
    assert search_of().rule(Kind(hold_s=60.0, warm=2), place, first_trace(rate)).instances == 12


def test_the_load_of_a_short_trace_is_over_its_own_length() -> None:
    assert first_load(first_trace(2.0)) == pytest.approx(2.0)
    short = SimpleNamespace(due_ps=np.arange(101) * 10**12)
    assert first_load(short) == pytest.approx(1.01)
    at_once = SimpleNamespace(due_ps=np.zeros(5, np.int64))
    assert first_load(at_once) == 5e12


@pytest.mark.parametrize(
    ("simulated", "leasts"), [(2, []), (3, [2]), (4, [2]), (5, [2, 3]), (10, [2, 5])]
)
def test_the_kinds_of_rule_that_are_tried(simulated: int, leasts: list[int]) -> None:
    assert search_of(simulated).kinds() == [
        Kind(hold_s=60.0),
        Kind(hold_s=900.0),
        Kind(warm=1),
        *(Kind(least=least) for least in leasts),
    ]
    assert Kind() == Kind(hold_s=300.0, warm=0, least=1)


@pytest.mark.parametrize(
    ("broken", "fixed", "hours", "holds"),
    [
        ((6,), (0,), 24, True),  # a quarter of the hours
        ((7,), (0,), 24, False),
        ((7,), (1,), 24, True),  # the whole fleet breaks it in one of them
        ((6, 7), (0, 0), 24, False),
        ((1,), (0,), 3, False),
        ((1,), (0,), 4, True),
    ],
)
def test_a_rule_may_break_limits_in_a_share_of_the_hours(
    broken: tuple[int, ...], fixed: tuple[int, ...], hours: int, holds: bool
) -> None:
    runs: list[object] = []

    def run(trace: object, rule: object) -> SimpleNamespace:
        runs.append(rule)
        return SimpleNamespace(broken_hours=fixed if rule is None else broken, hours=hours)

    search = search_of()
    search.fleet.run = run
    search.rule = lambda kind, place, trace: (kind, place)
    tried = search.run(Kind(), 3, "trace")
    assert (tried is not None) == holds
    if tried is not None:
        assert (tried.kind, tried.place, tried.outcome.hours) == (Kind(), 3, hours)
    search.run(Kind(warm=1), 4, "trace")
    assert runs == [None, (Kind(), 3), (Kind(warm=1), 4)], "the fixed fleet is run once"
    assert search.runs == 2


@pytest.mark.parametrize("top", range(-1, len(SHARES)))
def test_the_highest_target_that_holds_is_found_by_halving(top: int) -> None:
    search = search_of()
    search.run = lambda kind, place, trace: (
        SimpleNamespace(place=place, kind=kind, trace=trace) if place <= top else None
    )
    highest = search.highest(Kind(warm=1))
    assert (None if highest is None else (highest.place, highest.kind, highest.trace)) == (
        None if top < 0 else (top, Kind(warm=1), "hard")
    )


@pytest.mark.parametrize(
    ("hold_s", "hours", "place"),
    [
        (300.0, {4: 90.0, 5: 80.0}, 5),
        (300.0, {4: 90.0, 5: 95.0, 6: 50.0}, 4),
        (300.0, {3: 10.0, 4: 100.0}, 3),
        (60.0, {3: 90.0, 4: 95.0}, 3),
        (60.0, {3: 90.0, 4: 85.0}, 4),
        (900.0, {3: 90.0}, 3),
    ],
)
def test_another_kind_is_better_where_it_saves_hours(
    hold_s: float, hours: dict[int, float], place: int
) -> None:
    """A shorter hold is tried with the same target as well, others with higher ones alone."""
    search = search_of()
    search.run = lambda kind, at, trace: (
        SimpleNamespace(kind=kind, place=at, hours=hours[at]) if at in hours else None
    )
    usual = SimpleNamespace(kind=Kind(), place=3, hours=100.0)
    better = search.better(Kind(hold_s=hold_s), usual)
    assert better.place == place
    assert (better is usual) == (place == 3 and hold_s >= 300.0)
    search.highest = lambda kind: ("highest of", kind)
    assert search.better(Kind(warm=1), None) == ("highest of", Kind(warm=1))


def test_the_best_rule_is_searched_over_all_kinds() -> None:
    search = search_of(3)
    search.highest = lambda kind: [kind]
    search.better = lambda kind, rule: [*rule, kind]
    search.over_all = tuple
    assert search.best() == (Kind(), *search.kinds())
    search.better = lambda kind, rule: None
    assert search.best() is None


def test_what_is_proposed_is_of_the_whole_fleet() -> None:
    """Ten of thirty instances are simulated."""
    search = search_of()
    search.fleet.whole = first_trace(20.0)
    run = OverHours(held=(), limits=())
    tried = Tried(
        kind=Kind(hold_s=60.0, warm=1, least=2), place=2, outcome=SimpleNamespace(run=run)
    )
    proposal = fleet_over_hours._proposal(search, tried)
    assert proposal == Proposal(
        metric="rate",
        target=5.0,
        least=6,
        most=30,
        warm=3,
        start_s=60.0,
        hold_s=60.0,
        interval_s=15.0,
        run=run,
    )


def test_a_run_over_hours_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten of thirty instances are simulated; a limit on single gaps counts over the whole run."""
    ttft, itl = (Limit(metric=metric, statistic="p95", seconds=1.0) for metric in ("ttft", "itl"))
    gap = [0.9]
    calls: list[object] = []

    def run_fleet(trace: object, machines: list[object], router: str, **how: object) -> object:
        calls.append((len(machines), router, how["seed"], how["changes"]))
        held = {1: 1_800.0, 3: 7_200.0, 5: 0.0}
        return SimpleNamespace(requests="record", changed=SimpleNamespace(held_seconds=held))

    @dataclass
    class Violation:
        limit: object = None
        broken_hours: int = 3
        hours: int = 24
        requests: int = 9
        violating: int = 4
        worst_hour: int = 7
        worst_share: float = 0.5

    module = "tonnage.sizing.fleet.autoscaling"
    monkeypatch.setattr(f"{module}.run_fleet", run_fleet)
    monkeypatch.setattr(f"{module}.violations", lambda requests, slo: [Violation()])
    monkeypatch.setattr(f"{module}.LimitOverHours", SimpleNamespace)
    monkeypatch.setattr(f"{module}.summarize", lambda requests: None)
    monkeypatch.setattr(f"{module}.statistic_s", lambda summary, limit: gap[0])
    monkeypatch.setattr(f"{module}.OverHours", SimpleNamespace)
    instance = SimpleNamespace(traffic=SimpleNamespace(router="random", seed=3), engine="machine")
    over = FleetOverHours(
        instance=instance,
        limits=(itl, replace(ttft, seconds=2.0)),
        slo=(itl, ttft),
        instances=30,
    )
    over.__dict__["simulated"] = 10
    outcome = over.run("trace", None)
    assert outcome.run.held == (Held(instances=3, hours=0.5), Held(instances=9, hours=2.0))
    assert (outcome.broken_hours, outcome.hours) == ((0, 3), 24)
    (limit,) = outcome.run.limits
    assert limit.limit == limit_of(replace(ttft, seconds=2.0))
    assert (limit.broken_hours, limit.hours) == (3, 24)
    gap[0] = 1.1
    rule = Autoscale(metric="rate", target=1.0, least=1, most=6, start_s=0.0, warm=2)
    assert over.run("trace", rule).broken_hours == (1, 3)
    assert calls == [(10, "random", 3, NO_CHANGES), (8, "random", 3, Changes(autoscale=rule))]
    monkeypatch.setattr(f"{module}.violations", lambda requests, slo: [])
    gaps_alone = replace(over, limits=(itl,), slo=(itl,))
    gaps_alone.__dict__["simulated"] = 10
    outcome = gaps_alone.run("trace", None)
    assert (outcome.broken_hours, outcome.hours) == ((1,), 1)


# What is asked of a plan, and what is made of the answers of both searches.


def of_plan(**changed: object) -> SimpleNamespace:
    """A choice of ten systems of four instances, one of them spare, that carry 100 requests per
    second with five each."""
    parts = {"systems": 10, "systems_exact": 5.0, "sized_requests_per_second_per_instance": 5.0}
    return SimpleNamespace(choice=candidate(tp=2, **parts | changed))


def over(seconds: float | None = None, profile: object = None, **changed: object) -> object:
    source = SimpleNamespace(trace_seconds=seconds)
    demand = SimpleNamespace(source=source, profile=profile, sizing_requests_per_second=100.0)
    return SimpleNamespace(**{"demand": demand, "spare": 1} | changed)


@pytest.mark.parametrize(
    ("asked", "plan_of_it", "base"),
    [
        (over(), of_plan(), (0.0, 20)),
        (over(7_200.0), of_plan(), (2.0, 20)),
        (over(profile=(1.0,) * 24), of_plan(), (24.0, 20)),
        # no more than the nine systems next to the spare one, and the eight without one on standby
        (over(), of_plan(sized_requests_per_second_per_instance=2.0), (0.0, 36)),
        (
            over(),
            of_plan(
                sized_requests_per_second_per_instance=2.0,
                standby=SimpleNamespace(extra_systems=1),
            ),
            (0.0, 32),
        ),
        (over(), of_plan(sized_requests_per_second_per_instance=100 / 3 + 1e-12), (0.0, 3)),
    ],
)
@pytest.mark.parametrize("start_s", [None, 45.0])
def test_what_is_scaled_is_what_carries_the_load(
    *,
    asked: object,
    plan_of_it: SimpleNamespace,
    base: tuple[float, int],
    start_s: float | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module, looked = "tonnage.sizing.fleet.autoscaling", []
    fleet_of = SimpleNamespace(instance=SimpleNamespace(deployment="deployment"))
    monkeypatch.setattr(f"{module}._fleet", lambda *what: looked.append(what) or fleet_of)
    monkeypatch.setattr(f"{module}._proposed", lambda *what, **how: (what, how))
    monkeypatch.setattr(f"{module}.start_seconds", lambda deployment: (deployment, 300.0))
    (first, fleet_there, runs), how = autoscaling(
        asked, plan_of_it, broken_share=0.1, start_s=start_s, workers=3
    )
    hours, instances = base
    assert first == Autoscaling(
        hours=hours,
        instances=instances,
        simulated_instances=0,
        requests=0,
        broken_hours_share=0.1,
        fixed=None,
    )
    assert looked == [(asked, plan_of_it.choice, instances, runs)]
    assert fleet_there is fleet_of
    assert how == {
        "carries": plan_of_it.choice.sized_rate,
        "start_s": ("deployment", 300.0) if start_s is None else 45.0,
        "workers": 3,
    }
    monkeypatch.setattr(f"{module}._fleet", lambda *what: None)
    assert autoscaling(asked, plan_of_it, broken_share=0.1) == replace(first, reason="no-rule")
    single = of_plan(sized_requests_per_second_per_instance=100.0)
    assert autoscaling(asked, single).reason == "one-instance"
    ranks = of_plan(dp=2)
    assert autoscaling(asked, ranks).reason == "attention-ranks"
    assert autoscaling(asked, ranks).broken_hours_share == 0.0


@pytest.mark.parametrize(
    ("profile", "recording", "rates"),
    [
        ((40.0, 80.0), None, (50.0, 100.0)),  # as much more as the peak is
        ((100.0, 200.0), None, (100.0, 200.0)),
        (None, None, ()),
        ((40.0, 80.0), "recording", ()),
    ],
)
def test_the_fleet_of_a_choice_over_its_hours(
    *,
    profile: tuple[float, ...] | None,
    recording: str | None,
    rates: tuple[float, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slowdown = SimpleNamespace(steps=1.25, beyond_steps=lambda limits: (*limits, "tighter"))
    contender = SimpleNamespace(behind=lambda *, steps: ("instance", steps))
    sized = SimpleNamespace(contender=contender, slowdown=slowdown)
    module, looked = "tonnage.sizing.fleet.autoscaling", []
    monkeypatch.setattr(f"{module}.alone", lambda *what: looked.append(what) or sized)
    asked = over(profile=profile, recording=recording, limits=("limit",), replays_lengths=False)
    assert _fleet(asked, "choice", 7, "runs") == FleetOverHours(
        instance=("instance", 1.25),
        limits=("limit",),
        slo=("limit", "tighter"),
        instances=7,
        profile=rates,
        recording=recording,
        lengths=False,
    )
    assert looked == [(asked, "choice", "runs")]
    monkeypatch.setattr(f"{module}.alone", lambda *what: None)
    assert _fleet(asked, "choice", 7, "runs") is None


@pytest.mark.parametrize("best_rules", [("outstanding", "rate"), ("rate",), ()])
def test_rules_for_both_metrics_are_proposed_the_fewest_hours_first(
    best_rules: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An instance carries 10 requests per second, which take a tenth of a second for each."""
    module = "tonnage.sizing.fleet.autoscaling"
    hours = {"outstanding": 90.0, "rate": 80.0}
    fixed, made = SimpleNamespace(run="fixed"), []

    class Searched:
        def __init__(self, fleet: object, metric: str, **how: object) -> None:
            self.metric, self.runs, self.fixed = metric, len(metric), {}
            made.append((self, fleet, metric, how))

        def as_fixed(self, trace: object) -> object:
            assert trace == "whole of it"
            return fixed

        def best(self) -> object:
            assert list(self.fixed.values()) == [fixed]
            return self.metric if self.metric in best_rules else None

    monkeypatch.setattr(f"{module}.Search", Searched)
    monkeypatch.setattr(
        f"{module}._proposal",
        lambda search, best: SimpleNamespace(
            metric=best, run=SimpleNamespace(instance_hours=hours[best])
        ),
    )
    opened = []

    def run(instance: object, instances: int, rate: float, care: object) -> SimpleNamespace:
        opened.append((instance, instances, care))
        mean = None if rate == SHARES[0] * 10.0 else 100.0 * rate
        return SimpleNamespace(summary=SimpleNamespace(e2e_ms=SimpleNamespace(mean=mean)))

    scaled = SimpleNamespace(
        instance="instance", whole="whole of it", hardest="hard", machine="machine", simulated=4
    )
    base = Autoscaling(
        hours=24.0,
        instances=9,
        simulated_instances=0,
        requests=0,
        broken_hours_share=0.1,
        fixed=None,
    )
    found = fleet_over_hours._proposed(
        base, scaled, SimpleNamespace(open=run), carries=10.0, start_s=45.0, workers=1
    )
    assert opened == [("instance", 1, QUICK)] * len(SHARES)
    rates = [share * 10.0 for share in SHARES]
    how = {"carries": 10.0, "start_s": 45.0, "broken_share": 0.1}
    # of a load of which nothing ended no request is outstanding
    outstanding = pytest.approx([0.0, *(0.1 * rate**2 for rate in rates[1:])])
    assert [what[1:] for what in made] == [
        (scaled, "outstanding", how | {"targets": outstanding}),
        (scaled, "rate", how | {"targets": rates}),
    ]
    assert (found.simulated_instances, found.requests, found.fixed) == (4, 11, "fixed")
    assert found.tried == len("outstanding") + len("rate")
    assert [one.metric for one in found.proposals] == sorted(best_rules, key=hours.__getitem__)
    assert found.reason == (None if best_rules else "no-rule")
    assert (found.hours, found.instances, found.broken_hours_share) == (24.0, 9, 0.1)


@pytest.mark.parametrize("lengths", [True, False])
def test_the_requests_over_the_hours(lengths: bool) -> None:
    """Four of eight instances get half of each hour's; a recording is replayed as it is."""
    made: list[object] = []

    def workload(arrivals: object, count: int) -> SimpleNamespace:
        made.append((arrivals, count))
        return SimpleNamespace(trace=lambda seed: ("trace", len(made), seed))

    instance = SimpleNamespace(traffic=SimpleNamespace(seed=3), workload=workload)
    profile = tuple(float(hour) for hour in range(1, 25))
    hourly = FleetOverHours(instance=instance, limits=(), slo=(), instances=8, profile=profile)
    hourly.__dict__["simulated"] = 4
    assert (hourly.whole, hourly.hardest) == (("trace", 1, 3), ("trace", 2, 3))
    halves = [HourlyArrivals(hours=tuple(rate / 2 for rate in profile))]
    halves.append(HourlyArrivals(hours=tuple(rate / 2 for rate in hardest_hours(profile))))
    assert made == [(arrivals, arrivals.most) for arrivals in halves]
    made.clear()
    recording = Recording(due_ns=(0, 10**9, 3 * 10**9))
    replayed = replace(hourly, profile=(), recording=recording, lengths=lengths)
    assert replayed.whole == ("trace", 1, 3)
    assert replayed.hardest is replayed.whole
    assert made == [(TraceArrivals(recording=recording, lengths=lengths), 3)]
