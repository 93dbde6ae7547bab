"""A fleet as one record: nothing lost in splitting and pooling, and the least number of systems
that holds."""

from __future__ import annotations

import math
from dataclasses import dataclass, make_dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tonnage
from tests.questions import best, contender, plans_with, question
from tonnage.plan.candidate import first_rows
from tonnage.plan.fleet import Fleet, FleetRun, fleet
from tonnage.plan.limit import Breach, Limit, limit_of
from tonnage.plan.plan import Plan
from tonnage.plan.reason import BrokenOnManyInstances
from tonnage.report.plans.confidence import fleet_check_text
from tonnage.report.plans.fleet import routers_text
from tonnage.results.metrics import Latencies
from tonnage.simulator.spec import pooled, rank_traces
from tonnage.sizing.loads.fleet_check import (
    FURTHER,
    LIFETIMES,
    MOST_TIMES,
    FleetAtPeak,
    Replayed,
    _of_a_further,
    check,
    fleet_record,
    fleet_seen,
    never_holds,
    runs_of,
    simulated_of,
)
from tonnage.sizing.loads.instance import QUICK
from tonnage.sizing.loads.runs import Runs, Seen
from tonnage.sizing.planner import size
from tonnage.spec import deployment as spec
from tonnage.spec.workload import OpenLoop

few_parts = plans_with("routers")


def test_every_request_is_served_by_one_instance() -> None:
    instance = contender(tp="1").instance
    trace = instance.workload(OpenLoop(rate=50.0), 300).trace(3)
    parts = rank_traces(trace, 7)
    assert sum(len(part) for part in parts) == 300
    record = pooled([instance.serve(part) for part in parts])
    np.testing.assert_array_equal(record.due_ns, trace.due_ps // 1000)
    assert record.gaps.sum() == (record.osl - 1).sum()


@pytest.mark.parametrize("instances", [2, 8, 9])
def test_the_check_simulates_every_instance_of_a_fleet(instances: int) -> None:
    one = contender(tp="1").instance
    record, simulated = fleet_record(one, 5.0 * instances, instances)
    assert set(record.instance.tolist()) == set(range(instances))
    assert simulated >= len(record)
    share = np.bincount(record.instance) / len(record)
    assert max(abs(share * instances - 1)) < 0.3  # each of them gets its part of the load


@pytest.mark.parametrize(
    ("rate", "instances"), [(1e-4, 2), (0.01, 2), (0.2, 3), (5.0, 2), (30.0, 8)]
)
def test_a_fleet_is_simulated_over_as_many_requests_as_its_instances_need(
    rate: float, instances: int
) -> None:
    """200 of each instance, 8 times those in flight, or 16,000 of all: whichever is most, but
    within a stretch of time."""
    one = contender(tp="1").instance
    _, simulated = fleet_record(one, rate * instances, instances)
    of_each = min(
        max(200, 8 * one.in_flight_at(rate), 16_000 / instances), max(3_000_000 * rate, 1.0)
    )
    assert simulated == round(of_each * instances)


BREACH = Breach(limit=Limit(metric="ttft", statistic="p95", milliseconds=1_000.0), value_ms=2_000.0)


@dataclass
class Holds:
    """A fleet that holds from some number of systems on."""

    least: int
    span: int = 1

    @property
    def layout(self) -> Fleet:
        return fleet(8 * self.span, 8)

    def run(self, systems: int, router: str = "") -> FleetRun:
        holds = systems >= self.least
        worst = None if holds else BREACH
        nothing = Latencies()
        return FleetRun(
            systems=systems,
            instances=8 * systems,
            simulated_instances=8 * systems,
            router=router,
            requests=1,
            holds=holds,
            worst=worst,
            ttft_ms=nothing,
            itl_ms=nothing,
            tpot_ms=nothing,
            e2e_ms=nothing,
        )


@pytest.mark.parametrize("span", [1, 2])
@pytest.mark.parametrize("division", [1, 5, 30, 200])
@pytest.mark.parametrize("factor", [0.5, 1.0, 1.1, 1.4, 3.0, 5.6])
def test_the_check_goes_up_to_the_least_number_that_holds(
    division: int, factor: float, span: int
) -> None:
    division *= span
    least = span * -(-round(factor * division) // span)
    verdict = check(Holds(least=least, span=span), division)  # type: ignore[arg-type]
    assert verdict.holds == (factor < 4)
    assert len(verdict.runs) < 250
    if not verdict.holds:
        return
    said = fleet_check_text(verdict)
    assert (
        max(least, division)
        <= verdict.systems
        <= max(least, division) * (1.016 if division > 64 else 1.0)
    )
    assert any(run.holds and run.systems == verdict.systems for run in verdict.runs)
    if verdict.systems == division:
        assert said.endswith("meet every limit")
    else:
        assert (
            f"break a limit (TTFT p95 2 s > 1 s); {verdict.systems:,} systems meet all of them, and"
            " the plan takes these" in said
        )


@pytest.mark.parametrize(
    ("draws", "holds"),
    [
        ((0.98, 0.982, 0.981), True),
        ((0.98, 0.99, 0.995), False),
        ((0.9, 1.1, 0.9), False),
        ((math.nan,) * 3, True),
    ],
)
def test_a_fleet_of_sessions_holds_with_every_draw_and_a_further_one(
    draws: tuple[float, ...], holds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = best(question(tp="1", ttft="p95<=100ms", peak_rps=100))
    fleet, values = found.contender.at_peak(found.slowdown), iter(draws)
    seen, (limit,) = fleet.seen(found.systems), fleet.asked
    monkeypatch.setattr(FleetAtPeak, "seeds", (0, 1, 2))
    monkeypatch.setattr(FleetAtPeak, "seen", lambda *_: seen)
    monkeypatch.setattr(
        FleetAtPeak, "latencies_s", lambda *_: ((limit, next(values) * limit.seconds),)
    )
    assert fleet.run(found.systems).holds == holds


@given(st.lists(st.floats(0.5, 1.5), min_size=3, max_size=3))
def test_two_draws_say_what_a_further_one_stays_below_at_least(draws: list[float]) -> None:
    assert (
        _of_a_further(draws[:1]) <= _of_a_further(draws[:2]) <= _of_a_further(draws) * (1 + 1e-12)
    )
    assert _of_a_further(draws[:1]) == draws[0]


def test_a_check_goes_no_further_than_is_worth_it() -> None:
    found = check(Holds(least=9), 5, lambda systems: systems < 8)  # type: ignore[arg-type]
    assert [run.systems for run in found.runs] == [5, 6, 7]
    assert (found.holds, found.systems) == (False, 8)
    assert check(Holds(least=9), 5, lambda systems: systems < 10).systems == 9  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("division", "least", "span", "tried"),
    [
        (126, 129, 1, [126, 127, 128, 130]),
        (200, 210, 1, [200, 203, 206, 209, 212]),
        (252, 260, 2, [252, 254, 256, 260]),
        (1, 9, 1, [1, 2, 3, 4]),
        (5, 20, 1, list(range(5, 21))),
    ],
)
def test_a_check_goes_up_by_a_sixty_fourth_to_four_times_as_many(
    division: int, least: int, span: int, tried: list[int]
) -> None:
    verdict = check(Holds(least=least, span=span), division)  # type: ignore[arg-type]
    assert [run.systems for run in verdict.runs] == tried
    assert (verdict.by_division, verdict.systems) == (division, tried[-1])
    assert verdict.holds == (least <= tried[-1])
    assert tried[-1] <= MOST_TIMES * division


def test_the_plans_systems_agree_with_brute_force_over_whole_systems() -> None:
    found = best(question(tp="1", ttft="p95<=100ms", peak_rps=900))
    fleet = found.contender.at_peak(found.slowdown)
    holds = [fleet.run(systems).holds for systems in range(1, found.systems + 2)]
    least = holds.index(True) + 1
    assert all(holds[least - 1 :])
    assert least == found.systems
    for seed in (10, 20, 30):
        assert fleet.run(found.systems, seeds=(seed,)).holds
    blind = [fleet.run(systems, "random").holds for systems in range(1, found.systems + 2)]
    assert blind.index(True) + 1 > least


@pytest.mark.parametrize("rate", [1000 / 31_536_000, 1e-9])
def test_a_fleet_with_a_request_a_day_or_fewer_is_simulated_over_a_stretch(rate: float) -> None:
    """Every request is alone, so that its latency is that of an idle engine."""
    instance = contender(tp="1").instance
    seen = fleet_seen(Runs(), instance, rate, 8)
    assert 8 <= seen.requests < 4_000
    assert seen.summary.statistic_ms("ttft", "p50") < 1.2e3 * instance.unloaded_ttft_s() + 1


def test_a_plan_says_what_its_router_is_worth() -> None:
    asked = question(
        tp="1",
        ttft="p95<=300ms",
        peak_rps=60,
        isl="1000+-400",
        osl="200+-80",
        router="least-tokens",
    )
    plan = size(replace(asked, tune=False))
    chosen, *others = plan.routers
    assert chosen.router == plan.scenario.router == "least-tokens"
    assert [row.router for row in others] == ["random", "round-robin"]
    assert chosen.ttft_ms.p95 < others[0].ttft_ms.p95
    assert chosen.systems is not None
    assert others[0].systems is None or others[0].systems >= chosen.systems
    assert plan.choice.at_peak.ttft_ms == chosen.ttft_ms
    assert routers_text(
        plan.routers, plan.scenario.limits_that_count, plan.choice.systems
    ).startswith("least-tokens, TTFT p95 ")


ASKED: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "gpu": "h100,l40s",
    "precision": "fp8",
    "tp": "1,2",
    "engine": "vllm",
    "isl": 1000,
    "osl": 100,
    "peak_rps": 100,
    "ttft": "p95<=500ms",
    "tpot": "p95<=60ms",
}


@pytest.fixture(scope="module")
def plan() -> Plan:
    return tonnage.size(**ASKED)


def test_the_peak_is_easier_than_the_limit(plan: Plan) -> None:
    for candidate in plan.candidates:
        peak = candidate.at_peak
        assert peak.utilisation == candidate.utilisation <= 1
        assert peak.requests_per_second_per_instance * candidate.instances == pytest.approx(100)
        for metric in ("ttft_ms", "tpot_ms", "e2e_ms"):
            assert getattr(peak, metric).mean <= getattr(candidate, metric).mean * 1.02
        assert peak.ttft_ms.p95 <= 500
        assert peak.tpot_ms.p95 <= 60
        assert peak.instances <= candidate.instances
    assert plan.candidates[0].at_peak.instances == plan.candidates[0].instances


@pytest.mark.parametrize("place", [0, 1])
def test_choosing_a_row_gives_the_numbers_of_the_row(plan: Plan, place: int) -> None:
    """A row that is not the choice is an estimate from short runs: it agrees within a few
    percent."""
    row = plan.candidates[place]
    asked = {
        **ASKED,
        "gpu": row.gpu,
        "precision": row.precision,
        "tp": row.tp,
        "engine": row.engine,
    }
    chosen = tonnage.size(**asked).choice
    assert chosen.checked
    assert row.checked or place > 0
    assert chosen.confidence is not None
    assert row.confidence is not None
    if row.checked:
        assert (chosen.systems, chosen.confidence) == (row.systems, row.confidence)
        return
    assert chosen.systems_exact == pytest.approx(row.systems_exact, rel=0.06)
    assert abs(chosen.systems - row.systems) <= max(1, 0.06 * row.systems)


@pytest.mark.accuracy
def test_every_row_of_the_first_screen_is_answered_alike_when_it_is_asked_for_alone() -> None:
    """With the engine's own knobs two rows of B200 took a system more each, and one of MI355X twice
    as many."""
    asked = {
        "model": "gpt-oss-120b",
        "isl": 1000,
        "osl": 200,
        "peak_rps": 120,
        "ttft": "p95<=3s",
        "itl": "p99<=30ms",
        "confidence": "95",
    }
    plan = tonnage.size(**asked, gpu="mi355x,b200")
    for place in first_rows([each.gpu for each in plan.candidates]):
        row = plan.candidates[place + 1]
        split = {name: getattr(row.parallelism, name) for name in ("tp", "pp", "dp", "ep")}
        alone = tonnage.size(
            **asked, gpu=row.gpu, precision=row.precision, engine=row.engine, **split
        ).choice
        assert abs(alone.systems - row.systems) <= 1
        assert alone.systems_exact == pytest.approx(row.systems_exact, rel=0.1)


def of_ranks(ranks: int, warm: int | None = None, recorded: object = None) -> Any:
    """An instance whose caches take so many requests to fill."""
    return SimpleNamespace(
        recorded_sessions=recorded,
        deployment=SimpleNamespace(parallelism=SimpleNamespace(dp=ranks)),
        shared=None if warm is None else SimpleNamespace(warm=lambda rate: round(warm * rate)),
    )


@pytest.mark.parametrize(
    ("instance", "instances", "simulated"),
    [
        (of_ranks(1), 100, 100),
        (of_ranks(1), 300, 256),
        (of_ranks(8), 300, 32),
        (of_ranks(300), 300, 1),
        (of_ranks(1, warm=0), 300, 256),
        (of_ranks(1, warm=300), 300, 200),  # a request per second each: 60,000 fill 200 of them
        (of_ranks(1, warm=300), 100, 20),  # three per second each
        (of_ranks(1, warm=2_069), 300, 28),  # 29 would take 60,001
        (of_ranks(1, warm=300_000), 300, 8),
        (of_ranks(1, recorded=object()), 300, 8),
        (of_ranks(1, recorded=object()), 5, 5),
    ],
)
def test_how_many_instances_of_a_fleet_are_simulated(
    instance: Any, instances: int, simulated: int
) -> None:
    rate = 300.0 if instances == 300 else 1_000.0
    assert simulated_of(instance, instances, rate) == simulated


@pytest.mark.parametrize(
    ("draws", "further"),
    [
        ((0.9,), 0.9),
        ((0.8, 1.0), 0.9 + 0.1 * math.sqrt(2.18**2 - 1 / 3)),
        ((0.8, 0.9, 1.0), 0.9 + 2.18 * 0.1),
        ((1.0, 1.0, 1.0), 1.0),
    ],
)
def test_what_a_further_draw_stays_below_by_hand(draws: tuple[float, ...], further: float) -> None:
    assert _of_a_further(draws) == pytest.approx(further)
    assert FURTHER == 2.18


TTFT = spec.Limit(metric="ttft", statistic="p95", seconds=2.0)
TPOT = spec.Limit(metric="tpot", statistic="mean", seconds=0.5)


def peak_of(**changed: Any) -> FleetAtPeak:
    """Two instances on each system under 10 requests per second, limits tighter by a quarter."""
    instance = of_ranks(1)
    instance.traffic = SimpleNamespace(router="least-outstanding")
    parts: dict[str, Any] = {
        "runs": None,
        "instance": instance,
        "layout": fleet(4, 8),
        "rate": 10.0,
        "saturation": 2.0,
        "asked": (TTFT, TPOT),
        "slo": (replace(TTFT, seconds=1.6), replace(TPOT, seconds=0.4)),
    }
    return FleetAtPeak(**parts | changed)


def test_latencies_are_longer_by_what_their_limits_are_tighter() -> None:
    summary = SimpleNamespace(limit_s=lambda limit: {"ttft": 1.2, "tpot": 0.4}[limit.metric])
    latencies = peak_of().latencies_s(summary)
    assert [limit for limit, _ in latencies] == [TTFT, TPOT]
    assert [seconds for _, seconds in latencies] == pytest.approx([1.5, 0.5])


@pytest.mark.parametrize(
    ("values", "worst"),
    [
        ((2.0, 0.5), None),
        ((2.1, 0.5), Breach(limit=limit_of(TTFT), value_ms=2_100.0)),
        ((2.1, 1.0), Breach(limit=limit_of(TPOT), value_ms=1_000.0)),
        ((math.nan, 0.6), Breach(limit=limit_of(TPOT), value_ms=600.0)),
        ((math.nan, math.nan), None),
    ],
)
def test_the_limit_that_breaks_most(values: tuple[float, ...], worst: Breach | None) -> None:
    assert peak_of()._worst(values) == worst


def test_whether_systems_could_carry_a_load_within_a_share_of_saturation() -> None:
    """Two instances a system, of 1.96 requests per second each."""
    assert not peak_of().could_carry(2)
    assert peak_of().could_carry(3)
    assert peak_of(rate=11.76).could_carry(3)
    assert not peak_of(rate=11.77).could_carry(3)
    assert not peak_of().could_carry(0)
    assert not peak_of(layout=fleet(16, 8)).could_carry(1)
    assert peak_of().simulated(150) == 256
    assert peak_of(replayed=Replayed(recording=None)).simulated(150) == 300
    assert Replayed(recording=None).lengths
    assert peak_of().seeds == (0,)
    assert peak_of(instance=of_ranks(1, recorded=object())).seeds == (0, 1, 2)


@pytest.mark.parametrize(
    ("latencies", "seeds", "holds", "worst"),
    [
        ([1.6], (), True, None),
        ([1.8], (), False, 2_250.0),
        ([1.2, 1.2, 1.2], (4, 5, 6), True, None),
        ([1.2, 1.7], (4, 5, 6), False, 2_125.0),  # the second draw breaks it, and ends the run
    ],
)
def test_a_run_of_a_fleet_says_what_its_last_draw_showed(
    latencies: list[float],
    seeds: tuple[int, ...],
    holds: bool,
    worst: float | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[tuple[Any, ...]] = []

    def fleet_of(*where: Any, replayed: Any, seed: int) -> Seen:
        calls.append((*where, replayed, seed))
        value = latencies[len(calls) - 1]
        summary = SimpleNamespace(
            limit_s=lambda limit: value if limit.metric == "ttft" else 0.1,
            ttft_ms=Latencies(mean=value),
            itl_ms=Latencies(mean=2.0),
            tpot_ms=Latencies(mean=3.0),
            e2e_ms=Latencies(mean=4.0),
        )
        return Seen(summary=summary, requests=100 + len(calls))

    monkeypatch.setattr("tonnage.sizing.loads.fleet_check.fleet_seen", fleet_of)
    peak = peak_of()
    assert peak.run(3, seeds=seeds) == FleetRun(
        systems=3,
        instances=6,
        simulated_instances=6,
        router="least-outstanding",
        requests=100 + len(latencies),
        holds=holds,
        worst=None if worst is None else Breach(limit=limit_of(TTFT), value_ms=worst),
        ttft_ms=Latencies(mean=latencies[-1]),
        itl_ms=Latencies(mean=2.0),
        tpot_ms=Latencies(mean=3.0),
        e2e_ms=Latencies(mean=4.0),
    )
    assert calls == [
        (None, peak.instance, 10.0, 6, "", None, seed) for seed in (seeds or (0,))[: len(latencies)]
    ]


def test_a_fleet_that_saturates_does_not_hold_and_another_router_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nothing = dict.fromkeys(("ttft_ms", "itl_ms", "tpot_ms", "e2e_ms"), Latencies())
    summary = SimpleNamespace(limit_s=lambda limit: 0.1, **nothing)
    monkeypatch.setattr(
        "tonnage.sizing.loads.fleet_check.fleet_seen",
        lambda *_, **__: Seen(summary=summary, requests=1),
    )
    run = peak_of().run(2, "random")
    assert (run.holds, run.worst, run.router) == (False, None, "random")


def test_a_fleet_that_never_holds_names_the_largest_that_breaks_a_limit() -> None:
    verdict = check(Holds(least=99), 2)  # type: ignore[arg-type]
    assert [run.systems for run in verdict.runs] == [2, 3, 4, 5, 6, 7, 8]
    assert never_holds(verdict) == BrokenOnManyInstances(breach=BREACH, instances=64)
    unbroken = replace(verdict.runs[-1], worst=None)
    verdict = replace(verdict, runs=(*verdict.runs[:-1], unbroken))
    assert never_holds(verdict).instances == 56


def test_each_session_run_of_a_fleet_has_a_draw_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight instances of the fleet come before those of the next seed."""
    monkeypatch.setattr(
        "tonnage.sizing.loads.fleet_check.session_run",
        lambda spec, held, clients, requests, *, seed, alone_ns: (clients, requests, seed),
    )

    class Recorded(SimpleNamespace):
        __hash__ = object.__hash__

    instance = Recorded(traffic=SimpleNamespace(seed=10), tiered=None, alone_ns=None)
    run = runs_of(instance, SimpleNamespace(pace=0.5), 3, None)
    assert run(4, 5) == (4, 12_000, 10 + 2 + 24 + 5)
    memory = Runs()
    assert runs_of(instance, SimpleNamespace(pace=0.5), 0, memory)(100, 1) == (100, 24_000, 13)
    assert memory.kept == 1


CHECK = "tonnage.sizing.loads.fleet_check"


@pytest.mark.parametrize(
    ("how", "key", "asked"),
    [
        ({}, ("least-outstanding", 0), {"replayed": None, "seed": 0}),
        ({"router": "random", "seed": 4}, ("random", 4), {"replayed": None, "seed": 4}),
        (
            {"replayed": Replayed(recording=SimpleNamespace(mean_rps=3.0))},
            ("least-outstanding", 0, 3.0, True),
            None,
        ),
    ],
)
def test_a_fleet_is_simulated_once_for_each_load_router_and_seed(
    how: dict[str, Any], key: tuple[Any, ...], asked: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []

    def record(*args: Any, runs: Any, **named: Any) -> Any:
        calls.append((args, named))
        return "record", 40

    monkeypatch.setattr(f"{CHECK}.fleet_record", record)
    keys: list[Any] = []
    runs = SimpleNamespace(
        once=lambda key, made: keys.append(key) or made(), summary=lambda record: f"of {record}"
    )
    instance = SimpleNamespace(traffic=SimpleNamespace(router="least-outstanding"))
    seen = fleet_seen(runs, instance, 9.0, 3, **how)
    assert seen == Seen(summary="of record", requests=40)
    assert keys == [(instance, "fleet", 9.0, 3, *key)]
    ((args, named),) = calls
    assert args == (instance, 9.0, 3, how.get("router", ""))
    assert named == (asked or {"replayed": how["replayed"], "seed": 0})


class Rows(SimpleNamespace):
    """A run, or its requests."""

    def __len__(self) -> int:
        return 50


def in_fleet(**changed: Any) -> Any:
    """An instance whose runs say what they are of."""
    traffic = SimpleNamespace(
        router="least-outstanding", seed=10, process="poisson", cv=1.0, sharing=None
    )
    parts = {
        "traffic": traffic,
        "recorded_sessions": None,
        "shared": None,
        "deployment": SimpleNamespace(parallelism=SimpleNamespace(dp=1)),
        "in_flight_at": lambda rate: 10.0 * rate,
        "requests_of": lambda *args: args,
        "workload": lambda arrivals, requests: (arrivals, requests),
        "together": lambda *args: Rows(of=args),
    }
    return SimpleNamespace(**parts | changed)


@pytest.fixture
def whole_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{CHECK}.middle", lambda record: record)
    monkeypatch.setattr(f"{CHECK}.balanced_trace", lambda *args: args)


@pytest.mark.parametrize(
    ("rate", "instances", "in_flight", "requests"),
    [
        (6.0, 2, 0.0, 16_000),  # of all
        (6.0, 100, 0.0, 20_000),  # 200 of each
        (6.0, 2, 4_000.0, LIFETIMES * 8_000),  # eight times those in flight
        (1.0, 1, 1e9, 3_000_000),  # in 35 days
        (1e-9, 8, 0.0, 8),  # one of each
        (600.0, 300, 0.0, 51_200),  # 256 of 300
    ],
)
@pytest.mark.usefixtures("whole_runs")
def test_the_arrivals_of_a_fleet_by_hand(
    rate: float, instances: int, in_flight: float, requests: int
) -> None:
    """With the seed of the question, that of the check and what is added."""
    shown = min(instances, 256)
    instance = in_fleet(in_flight_at=lambda share: in_flight if share == rate / instances else 0.0)
    record, simulated = fleet_record(instance, rate, instances, seed=5)
    trace, count, router = record.of
    arriving = OpenLoop(rate=pytest.approx(rate * shown / instances), process="poisson", cv=1.0)
    assert trace == ((arriving, requests), arriving, 17)
    assert (count, router, simulated) == (shown, "least-outstanding", 50)
    assert fleet_record(instance, rate, instances, "random")[0].of[0][-1] == 12
    assert fleet_record(instance, rate, instances, "random")[0].of[2] == "random"


@pytest.mark.usefixtures("whole_runs")
def test_bursty_arrivals_of_a_fleet_are_simulated_for_longer() -> None:
    instance = in_fleet()
    instance.traffic.process, instance.traffic.cv = "gamma", 2.0
    (arriving, requests), *_ = fleet_record(instance, 6.0, 2)[0].of[0]
    assert (arriving.process, arriving.cv, requests) == ("gamma", 2.0, 40_000)


@pytest.mark.parametrize("lengths", [True, False])
@pytest.mark.usefixtures("whole_runs")
def test_a_recording_comes_to_a_fleet_repeated_until_it_is_long_enough(lengths: bool) -> None:
    """All of it counts."""

    class Recorded(SimpleNamespace):
        def __len__(self) -> int:
            return 50

        def repeated(self, requests: Any) -> Any:
            return Recorded(mean_rps=8.0, repeated_to=requests)

    def workload(arrivals: Any, requests: int) -> Any:
        return SimpleNamespace(
            trace=lambda seed: Rows(
                of=(arrivals.recording.repeated_to, arrivals.lengths, requests, seed)
            )
        )

    replayed = Replayed(recording=Recorded(mean_rps=8.0), lengths=lengths)
    record, simulated = fleet_record(in_fleet(workload=workload), 99.0, 4, replayed=replayed)
    trace, count, router = record.of
    assert trace.of == ((2.0, QUICK, 4), lengths, 50, 10)
    assert (count, router, simulated) == (4, "least-outstanding", 50)


def test_a_recording_with_shared_prompts_comes_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{CHECK}.recorded", lambda *args: Rows(of=args))
    sharing = make_dataclass("Shared", ["recording"])
    recording = SimpleNamespace(mean_rps=8.0)
    instance = in_fleet()
    instance.traffic.sharing = sharing("asked")
    record, _ = fleet_record(instance, 99.0, 4, replayed=Replayed(recording=recording))
    assert record.of[0].of == (sharing(recording), 8.0, 10, (2.0, QUICK, 4))


@pytest.mark.usefixtures("whole_runs")
def test_shared_prompts_come_to_a_fleet_after_those_that_warm_its_caches() -> None:
    """A hundred for each of two instances, of which the whole fleet has 6 requests per second."""
    calls: list[Any] = []

    @dataclass(frozen=True)
    class Load:
        sharing: Any

        def warm(self, rate: float) -> int:
            return round(rate / 3 * 100)

        def trace(self, *args: Any, **how: Any) -> Any:
            calls.append((self.sharing.fleet_rate, args, how))
            return "trace"

        def counted(self, *args: Any) -> Any:
            return args

    sharing = make_dataclass("Shared", ["fleet_rate"])
    instance = in_fleet(shared=Load(sharing(1.0)))
    (record, *counted), simulated = fleet_record(instance, 6.0, 2, "random", seed=5)
    assert calls == [(6.0, (6.0, 16_200, 17), {"router": "random", "whole": True})]
    assert record.of == ("trace", 2, "random")
    assert (counted, simulated) == ([6.0, 200, 16_000], 50)


def test_sessions_of_a_fleet_are_run_on_its_instances(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{CHECK}.middle", lambda record: record)
    monkeypatch.setattr(f"{CHECK}.session_fleet", lambda *args: (args, 77))
    monkeypatch.setattr(f"{CHECK}.runs_of", lambda *args: args)
    instance = in_fleet(recorded_sessions="sessions")
    (run, *how), simulated = fleet_record(instance, 6.0, 2, seed=5, runs="runs")
    assert run == (instance, "sessions", 5, "runs")
    assert (how, simulated) == (["sessions", 6.0, 2], 77)
    assert fleet_record(instance, 6.0, 2)[0][0] == (instance, "sessions", 0, None)


def test_what_a_number_of_systems_does_is_that_of_its_instances(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(f"{CHECK}.fleet_seen", lambda *args, **how: (*args, how))
    replayed = Replayed(recording=None)
    peak = peak_of(runs="runs", replayed=replayed)
    assert peak.seen(3) == ("runs", peak.instance, 10.0, 6, "", {"replayed": replayed, "seed": 0})
    assert peak.seen(3, "random", 4)[4:] == ("random", {"replayed": replayed, "seed": 4})
    assert peak_of().replayed is None
    assert peak.instances(3) == 6
