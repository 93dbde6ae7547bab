"""A fleet as one record: nothing lost in splitting and pooling, and the least number of systems that holds."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest

from tests.questions import best, contender, question
from tonnage.plan.fleet import Fleet, FleetRun, fleet
from tonnage.plan.limit import Breach, Limit
from tonnage.report.plans.confidence import fleet_check_text
from tonnage.report.plans.fleet import routers_text
from tonnage.results.metrics import Latencies, summarize
from tonnage.simulator.spec import pooled, split_trace
from tonnage.sizing.loads.fleet_check import FleetAtPeak, check, fleet_record, fleet_seen
from tonnage.sizing.loads.runs import Runs
from tonnage.sizing.planner import size
from tonnage.sizing.search.search import Search
from tonnage.spec.workload import OpenLoop


@pytest.mark.parametrize("split", ["random", "least-outstanding"])
def test_every_request_is_served_by_one_instance(split: str) -> None:
    instance = contender(tp="1").instance
    trace = instance.workload(OpenLoop(rate=50.0), 300).trace(3)
    parts = split_trace(trace, 7, split, seed=1)
    assert sum(len(part) for part in parts) == 300
    record = pooled([instance.serve(part) for part in parts])
    np.testing.assert_array_equal(record.due_ns, trace.due_ps // 1000)
    assert record.gaps.sum() == (record.osl - 1).sum()
    if split == "round-robin":
        assert {len(part) for part in parts} == {42, 43}
        np.testing.assert_array_equal(record.instance, np.arange(300) % 7)


def test_a_fleet_of_one_is_the_instance_itself() -> None:
    instance = contender(tp="1").instance
    trace = instance.workload(OpenLoop(rate=20.0), 300).trace(3)
    assert summarize(pooled([instance.serve(part) for part in split_trace(trace, 1, "random", seed=1)])) == summarize(instance.serve(trace))


@pytest.mark.parametrize("instances", [2, 8, 9])
def test_the_check_simulates_every_instance_of_a_fleet(instances: int) -> None:
    one = contender(tp="1").instance
    record, simulated = fleet_record(one, 5.0 * instances, instances)
    assert set(record.instance.tolist()) == set(range(instances))
    assert simulated >= len(record)
    share = np.bincount(record.instance) / len(record)
    assert max(abs(share * instances - 1)) < 0.3  # each of them gets its part of the load


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


@dataclass
class Drawn(Holds):
    """A fleet that holds at some numbers of systems, in no order."""

    held: frozenset[int] = frozenset()

    def run(self, systems: int, router: str = "") -> FleetRun:
        return replace(super().run(systems, router), holds=systems in self.held)


@pytest.mark.parametrize("span", [1, 2])
@pytest.mark.parametrize("division", [1, 5, 30, 200])
@pytest.mark.parametrize("factor", [0.5, 1.0, 1.1, 1.4, 3.0, 5.6])
def test_the_check_goes_up_to_the_least_number_that_holds(division: int, factor: float, span: int) -> None:
    division *= span
    least = span * -(-round(factor * division) // span)
    verdict = check(Holds(least=least, span=span), division)  # type: ignore[arg-type]
    assert verdict.holds == (factor < 4)
    assert len(verdict.runs) < 250
    if not verdict.holds:
        return
    said = fleet_check_text(verdict)
    assert max(least, division) <= verdict.systems <= max(least, division) * (1.016 if division > 64 else 1.0)
    assert any(run.holds and run.systems == verdict.systems for run in verdict.runs)
    if verdict.systems == division:
        assert said.endswith("meet every limit")
    else:
        assert f"break a limit (TTFT p95 2 s > 1 s); {verdict.systems:,} systems meet all of them, and the plan takes these" in said


@pytest.mark.parametrize(
    ("draws", "holds"), [((0.98, 0.982, 0.981), True), ((0.98, 0.99, 0.995), False), ((0.9, 1.1, 0.9), False), ((math.nan,) * 3, True)]
)
def test_a_fleet_of_sessions_holds_with_every_draw_and_a_further_one(
    draws: tuple[float, ...], holds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = best(question(tp="1", ttft="p95<=100ms", peak_rps=100))
    fleet, values = found.contender.at_peak(found.slowdown), iter(draws)
    seen, (limit,) = fleet.seen(found.systems), fleet.asked
    monkeypatch.setattr(FleetAtPeak, "seeds", (0, 1, 2))
    monkeypatch.setattr(FleetAtPeak, "seen", lambda *_: seen)
    monkeypatch.setattr(FleetAtPeak, "latencies_s", lambda *_: ((limit, next(values) * limit.seconds),))
    assert fleet.run(found.systems).holds == holds


def test_where_no_number_holds_the_check_says_so() -> None:
    assert not check(Holds(least=1_000), 5).holds  # type: ignore[arg-type]


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


def test_a_fleet_too_large_to_simulate_whole_says_how_much_of_it_was() -> None:
    found = Search(question=replace(question(tp="1", peak_rps=30_000), tune=False), runs=Runs(), rows=False).answer()
    assert fleet_check_text(found.check).startswith(f"256 of {8 * found.check.by_division:,} instances on ")
    assert found.check.runs[0].holds


@pytest.mark.parametrize("rate", [1000 / 31_536_000, 1e-9])
def test_a_fleet_with_a_request_a_day_or_fewer_is_simulated_over_a_stretch(rate: float) -> None:
    """Every request is alone, so that its latency is that of an idle engine."""
    instance = contender(tp="1").instance
    seen = fleet_seen(Runs(), instance, rate, 8)
    assert 8 <= seen.requests < 4_000
    assert seen.summary.statistic_ms("ttft", "p50") < 1.2e3 * instance.unloaded_ttft_s() + 1


def test_a_plan_says_what_its_router_is_worth() -> None:
    asked = question(tp="1", ttft="p95<=300ms", peak_rps=60, isl="1000+-400", osl="200+-80", router="least-tokens")
    plan = size(replace(asked, tune=False))
    chosen, *others = plan.routers
    assert chosen.router == plan.scenario.router == "least-tokens"
    assert [row.router for row in others] == ["random", "round-robin"]
    assert chosen.ttft_ms.p95 < others[0].ttft_ms.p95
    assert chosen.systems is not None
    assert others[0].systems is None or others[0].systems >= chosen.systems
    assert plan.choice.at_peak.ttft_ms == chosen.ttft_ms
    assert routers_text(plan.routers, plan.scenario.limits_that_count, plan.choice.systems).startswith("least-tokens, TTFT p95 ")
