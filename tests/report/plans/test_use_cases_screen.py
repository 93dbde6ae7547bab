"""The first screen of several use cases: forty lines at most however many there are, and the answer in it; --full holds each of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.report.example_plan import full, without_answer
from tests.report.plans.test_screen import SURE, UNSURE, sized
from tonnage.plan.candidate import Confidence
from tonnage.plan.limit import Limit, LimitUse
from tonnage.plan.plan import Plan
from tonnage.plan.use_cases import Arrangement, CaseAtPeak, NotShared, PoolSystems, UseCasePool, UseCases
from tonnage.report.plans.screen import BRIEF, MOST
from tonnage.report.plans.use_cases import brief_lines, use_cases_screen, use_cases_text
from tonnage.report.writers.terminal import WIDEST, terminal
from tonnage.results.metrics import Latencies

LIMITS = (Limit(metric="ttft", statistic="p95", milliseconds=500.0), Limit(metric="itl", statistic="p99", milliseconds=62.5))
SEEN = Latencies(mean=101.0, p95=201.0)


def case(name: str, value_ms: float = 250.0) -> CaseAtPeak:
    uses = tuple(LimitUse(limit=limit, value_ms=value_ms, used=value_ms / limit.milliseconds) for limit in LIMITS)
    return CaseAtPeak(name=name, requests_per_second=12.5, limits=uses, ttft_ms=SEEN, tpot_ms=SEEN, e2e_ms=SEEN)


def pool(*cases: CaseAtPeak) -> UseCasePool:
    first = full().candidates[0].pool
    return UseCasePool(
        gpu=first.gpu,
        precision=first.precision,
        tp=first.tp,
        engine=first.engine,
        system="dgx-h100",
        gpus_per_system=8,
        knobs=None,
        instances=3,
        instances_exact=2.4,
        cases=cases,
    )


def alone(sure: Confidence = SURE) -> Plan:
    """One use case by itself, asked for with that confidence."""
    plan = sized(sure)
    return replace(plan, scenario=replace(plan.scenario, confidence=sure.asked))


def several(count: int, *, apart: bool = False, value_ms: float = 50.0) -> UseCases:
    """So many use cases, in one pool or with a pool for each; every second one is not sure by itself."""
    names = tuple(f"use case {place}" for place in range(count))
    cases = tuple(case(name, value_ms) for name in names)
    systems = (PoolSystems(system="dgx-h100", systems=count, gpus=8 * count),)
    separate, shared = Arrangement(pools=tuple(map(pool, cases)), systems=systems), Arrangement(pools=(pool(*cases),), systems=systems)
    return UseCases(
        names=names,
        plans=tuple(alone(UNSURE if place % 2 else SURE) for place in range(count)),
        separate=separate,
        shared=None if apart else shared,
        not_shared=NotShared(code="more-gpus", gpus=99, separate_gpus=80) if apart else None,
        chosen="separate" if apart else "shared",
    )


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("count", [2, 5, 9, 30])
@pytest.mark.parametrize("apart", [False, True])
def test_it_has_forty_lines_at_most_and_the_answer(count: int, columns: int, apart: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    found = several(count, apart=apart)
    lines = terminal(use_cases_screen(found)).splitlines()
    assert len(lines) <= MOST
    assert max(map(len, lines)) <= min(columns, WIDEST)
    words = " ".join(" ".join(lines).split())
    assert f"Answer {count} × dgx-h100 (" in words
    assert "every limit of each use case holds at the 80% asked" in words
    assert "Use case 1, by itself: Nothing that was asked for reaches 80%" in words
    assert "full\ue001 prints each use case by itself" in words
    assert len(brief_lines(found)) <= BRIEF


def test_with_room_each_alone_has_its_systems_cost_and_risk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    words = " ".join(terminal(use_cases_screen(several(2))).split())
    assert "Alone use case 0 5 × dgx-h100 (40 GPUs; 4.81 systems exactly); use case 1 5 × dgx-h100" in words
    assert "Cost use case 0 alone: " in words
    assert "Risk use case 0 alone: " in words


def test_a_limit_that_breaks_takes_the_line_of_confidence_away() -> None:
    assert "Confidence" in terminal(use_cases_screen(several(2)))
    assert "Confidence" not in terminal(use_cases_screen(several(2, value_ms=600.0)))


def test_no_arrangement_is_an_answer_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    why = NotShared(code="no-deployment", case="use case 1")
    plans = (sized(), without_answer())
    found = replace(several(2), plans=plans, shared=None, separate=None, not_shared=why, chosen=None)
    text = terminal(use_cases_screen(found))
    assert "Answer       no arrangement is possible: no deployment that was tried" in text
    assert len(text.splitlines()) <= MOST


@pytest.mark.parametrize("columns", [80, 120])
def test_full_holds_every_section_of_each(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = terminal(use_cases_text(several(3))).splitlines()
    for title in ("use case 0, by itself", "use case 2, by itself", "Use cases on one fleet", "Limits and latencies"):
        assert lines.count(title) == 1
    for title in ("Deployment", "Cost", "Candidates", "Rejected, and why", "What it rests on"):
        assert lines.count(title) == 3
    assert max(len(line) for line in lines if not line.startswith("  ./tonnage ")) <= min(columns, WIDEST)
