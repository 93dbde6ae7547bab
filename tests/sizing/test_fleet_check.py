"""A fleet as one record: nothing lost in splitting and pooling, and the least number of systems that holds."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from tests.questions import question
from tonnage.plan.fleet_check import FleetRun
from tonnage.plan.limit import Breach, Limit
from tonnage.report.wording.fleet_check import fleet_check_text
from tonnage.results.latencies import Latencies
from tonnage.results.metrics import summarize
from tonnage.sizing.fleet_check import check, fleet_summary, pooled, split_trace
from tonnage.sizing.search import answer, fleet_under
from tonnage.sizing.search_space import Ready, prepare
from tonnage.spec.workload import OpenLoop


def ready(**changed: object) -> Ready:
    return next(found for found in prepare(question(**{"tp": "1", **changed})) if isinstance(found, Ready))


@pytest.mark.parametrize("split", ["random", "round-robin"])
def test_every_request_is_served_by_one_instance(split: str) -> None:
    instance = ready().instance
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
    instance = ready().instance
    trace = instance.workload(OpenLoop(rate=20.0), 300).trace(3)
    assert summarize(pooled([instance.serve(part) for part in split_trace(trace, 1, "random", seed=1)])) == summarize(instance.serve(trace))


BREACH = Breach(limit=Limit(metric="ttft", statistic="p95", milliseconds=1_000.0), value_ms=2_000.0)


@dataclass
class Holds:
    """A fleet that holds from some number of systems on."""

    least: int
    span: int = 1
    carries: int = 1

    def could_carry(self, systems: int) -> bool:
        return systems >= self.carries

    def run(self, systems: int, split: str = "random") -> FleetRun:
        holds = systems >= self.least
        worst = None if holds else BREACH
        nothing = Latencies()
        return FleetRun(
            systems=systems,
            instances=8 * systems,
            simulated_instances=8 * systems,
            split=split,
            requests=1,
            holds=holds,
            worst=worst,
            ttft_ms=nothing,
            itl_ms=nothing,
            tpot_ms=nothing,
            e2e_ms=nothing,
        )


@pytest.mark.parametrize(
    ("least", "taken", "said"),
    [
        (5, 5, "meet every limit; one system fewer does not (TTFT p95 2 s > 1 s)"),
        (4, 4, "meet every limit, and one system fewer does too, so the plan takes 4 systems"),
        (6, 6, "break a limit (TTFT p95 2 s > 1 s); 6 systems meet all of them, and the plan takes these"),
        (99, 8, "this peak is too close to saturation"),
    ],
)
def test_the_check_corrects_the_division_and_says_so(least: int, taken: int, said: str) -> None:
    verdict = check(Holds(least=least), 5)
    assert verdict.systems == taken
    assert said in fleet_check_text(verdict)
    assert verdict.runs[-1].split == "round-robin"


def test_a_fleet_that_could_not_complete_the_load_is_not_tried() -> None:
    verdict = check(Holds(least=1, carries=5), 5)
    assert verdict.systems == 5
    assert [run.systems for run in verdict.runs] == [5, 5]


def test_the_plans_systems_agree_with_brute_force_over_whole_systems() -> None:
    asked = replace(question(tp="1", ttft="p95<=100ms", peak_rps=900), deepen=False)
    found = answer(asked, prepare(asked))
    fleet = fleet_under(asked, found.carried[0])
    holds = [fleet.run(systems).holds for systems in range(1, found.candidates[0].systems + 2)]
    assert holds == [False] * (found.candidates[0].systems - 1) + [True, True]
    assert found.check is not None
    assert found.check.systems == found.candidates[0].systems


def test_a_fleet_too_large_to_simulate_whole_says_how_much_of_it_was() -> None:
    asked = replace(question(tp="1", peak_rps=30_000), deepen=False, tune=False)
    found = answer(asked, prepare(asked))
    assert found.check is not None
    assert fleet_check_text(found.check).startswith(f"256 of {8 * found.check.by_division:,} instances on ")
    assert found.check.runs[0].holds


@pytest.mark.parametrize("rate", [1000 / 31_536_000, 1e-9])
def test_a_fleet_with_a_request_a_day_or_fewer_is_simulated_over_a_stretch(rate: float) -> None:
    """Every request is alone, so that its latency is that of an idle engine."""
    instance = ready().instance
    summary, requests = fleet_summary(instance, rate, 8)
    assert 60 <= requests < 4_000
    assert summary.statistic_ms("ttft", "p99") < 1.2e3 * instance.unloaded_ttft_s() + 1
