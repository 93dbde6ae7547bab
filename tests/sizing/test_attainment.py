"""Joint attainment as a limit of size: looser asks never take more systems, and what is found holds
in the fleet's own run."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.questions import SMALL, contenders, plans_with, question
from tonnage.api.sizing import size
from tonnage.cli.main import run
from tonnage.plan.fleet import FleetCheck
from tonnage.plan.limit import Breach, limit_of
from tonnage.plan.plan import Plan
from tonnage.plan.reason import BrokenOnManyInstances
from tonnage.sizing import planner
from tonnage.sizing.loads.confidence import Slowdown
from tonnage.sizing.loads.fleet_check import FleetAtPeak, check
from tonnage.sizing.loads.runs import Runs
from tonnage.sizing.question import Question
from tonnage.spec.deployment import Limit, parse_attainment

few_parts = plans_with()

ONE = {**SMALL, "tp": "1", "ttft": None}


def rates(
    asked: Question, runs: Runs, texts: list[str], slower: Slowdown | None = None
) -> list[float]:
    found = []
    for text in texts:
        one = contenders(replace(asked, slo=(parse_attainment(text),)), runs)[0]
        found.append(one.capacity(4, slower).rate)
    return found


@pytest.mark.parametrize(
    "texts",
    [
        [
            "99%: ttft<=200ms & tpot<=12ms",
            "80%: ttft<=200ms & tpot<=12ms",
            "50%: ttft<=200ms & tpot<=12ms",
        ],
        ["95%: ttft<=100ms & tpot<=12ms", "95%: ttft<=600ms & tpot<=12ms", "95%: tpot<=12ms"],
        pytest.param(
            [
                "95%: e2e<=900ms & tpot<=9ms",
                "95%: e2e<=1s & tpot<=9ms",
                "95%: e2e<=1s & tpot<=20ms",
            ],
            marks=pytest.mark.accuracy,
        ),
    ],
)
def test_a_looser_share_or_limit_carries_no_less(texts: list[str]) -> None:
    asked = question(**ONE, attain=texts[0])
    runs = Runs((parse_attainment(texts[0]),))
    for slower in (None, Slowdown(steps=1.2, latencies={"ttft_ms": 1.4})):
        found = rates(asked, runs, texts, slower)
        assert found == sorted(found)
        assert found[0] < found[-1]


@pytest.fixture(scope="module")
def plan() -> Plan:
    return size(**{**ONE, "tp": "1"}, attain=["95%: ttft<=200ms & tpot<=12ms", "99%: e2e<=3s"])


def test_the_plan_holds_its_shares_and_survives_json(plan: Plan) -> None:
    choice = plan.choice
    assert choice.at_peak.attained is not None
    assert choice.at_peak.sure is not None
    for one, sure in zip(choice.at_peak.attained, choice.at_peak.sure, strict=True):
        assert one.holds
        assert one.asked <= sure <= one.share
    assert choice.binds.limit.parts is not None
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan
    assert plan.scenario.limits[0].asked == parse_attainment("95%: ttft<=200ms & tpot<=12ms")


def test_one_part_is_the_percentile_of_it() -> None:
    """The share of one limit is that percentile, up to interpolation between two requests."""
    asked = question(**{**ONE, "ttft": "p95<=300ms"})
    runs = Runs((parse_attainment("95%: ttft<=300ms"),))
    single = (
        contenders(replace(asked, slo=(Limit(metric="ttft", statistic="p95", seconds=0.3),)), runs)[
            0
        ]
        .capacity(4)
        .rate
    )
    assert rates(asked, runs, ["95%: ttft<=300ms"])[0] == pytest.approx(single, rel=0.02)


def test_parts_that_a_mode_does_not_count_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "size",
        "--model",
        "llama-3.1-8b",
        "--isl",
        "1000",
        "--osl",
        "100",
        "--peak-rps",
        "10",
        "--mode",
        "sequential",
        "--attain",
    ]
    assert run([*words, "95%: ttft<=1s & e2e<=9s"]) == 2
    assert "contradicts the limit" in capsys.readouterr().err


def test_where_the_fleet_of_every_deployment_breaks_a_limit_each_is_rejected_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The last deployment whose fleet never held ended the search with an error; now the next best
    is tried."""
    asked = question(**{**ONE, "tp": "1,2"}, attain="95%: ttft<=200ms & tpot<=12ms")
    broken: list[str] = []

    def never(peak: FleetAtPeak, systems: int, *worth: Callable[[int], bool]) -> FleetCheck:
        found = check(peak, systems, *worth)
        broken.append(str(peak.instance.deployment))
        worst = Breach(limit=limit_of(asked.limits[0]), value_ms=1_500)
        return replace(
            found, runs=tuple(replace(run, holds=False, worst=worst) for run in found.runs)
        )

    monkeypatch.setattr("tonnage.sizing.search.search.check", never)
    found = planner.size(asked)
    assert found.choice is None
    reasons = [one.reason for one in found.rejected]
    assert len(broken) == len(set(broken)) >= 2
    assert sum(isinstance(each, BrokenOnManyInstances) for each in reasons) == len(broken)
    assert len({one.identity for one in found.rejected}) == len(reasons)
