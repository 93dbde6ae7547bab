from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.results.drawn_requests import requests
from tests.results.test_metrics import record
from tonnage.report.simulated import fleet_lines
from tonnage.results.breakdown import violations
from tonnage.results.metrics import attained, summarize
from tonnage.results.requests import COMPLETED, FAILED
from tonnage.simulator.simulated_run import FleetFacts
from tonnage.spec.deployment import Limit, parse_attainment


def test_violations_are_counted_by_request_and_by_hour() -> None:
    """Two hours of four requests each: in the second, two answers come late and one is lost."""
    due = [0, 1, 2, 3, *(3_600_000 + late for late in range(4))]
    first = [at + wait for at, wait in zip(due, (1_000,) * 5 + (5_000, 5_000, 0), strict=True)]
    found = record(
        due, first, [at + 2_000 for at in first], [3] * 8, status=[COMPLETED] * 7 + [FAILED]
    )
    ttft, e2e, tpot = violations(
        found,
        tuple(
            Limit(metric=m, statistic=s, seconds=x)
            for m, s, x in (("ttft", "p95", 2.0), ("e2e", "mean", 4.0), ("tpot", "p50", 1.0))
        ),
    )
    assert (ttft.share, ttft.broken_hours, ttft.hours) == (3 / 8, 1, 2)
    assert (ttft.worst_hour, ttft.worst_share) == (1, 3 / 4)
    assert (e2e.share, e2e.broken_hours) == (3 / 8, 1)
    assert (tpot.share, tpot.broken_hours) == (1 / 8, 0)
    facts = FleetFacts(
        failures=1,
        restarts=4,
        retried=2,
        lost=1,
        availability=0.75,
        instance_hours=3.5,
        serving_mean=1.5,
        serving_most=2,
        violations=(ttft,),
    )
    assert list(fleet_lines(facts)) == [
        "1 failure: instances worked 75.000 % of the time; 2 requests sent again, 1 lost",
        "4 restarts between seasons: 2 requests sent again, 1 lost",
        "3.50 instance-hours; 1.50 instances served on average, at most 2",
        "TTFT p95 ≤ 2 s: broken in 1 of 2 hours; 37.5 % of the requests took longer or were lost",
    ]


@given(requests, st.floats(0.01, 1), st.integers(1, 900), st.integers(1, 400), st.integers(1, 9000))
def test_the_share_is_that_of_counting_one_by_one(
    rows: list[Any], share: float, ttft: int, tpot: int, e2e: int
) -> None:
    rows = sorted(rows)
    kept = [row[4] == COMPLETED for row in rows]
    first = [due + wait if ok else -1 for (due, wait, *_), ok in zip(rows, kept, strict=True)]
    last = [
        due + wait + (more if osl > 1 else 0) if ok else -1
        for (due, wait, more, osl, _), ok in zip(rows, kept, strict=True)
    ]
    r = record(
        [row[0] for row in rows],
        first,
        last,
        [row[3] for row in rows],
        status=[row[4] for row in rows],
    )
    good = sum(
        ok
        and wait <= ttft
        and (osl == 1 or more / (osl - 1) <= tpot)
        and wait + (more if osl > 1 else 0) <= e2e
        for (_, wait, more, osl, _), ok in zip(rows, kept, strict=True)
    )
    limit = parse_attainment(f"{100 * share:.4f}%: ttft<={ttft}ms & tpot<={tpot}ms & e2e<={e2e}ms")
    found = attained(r, (limit,))[0]
    assert found.share == good / len(rows)
    assert 0 <= found.low <= found.share <= found.high <= 1
    assert found.holds == (good / len(rows) >= limit.share - 1e-9)
    assert (summarize(r, by_request=True).limit_s(limit) <= 1) == found.holds
    assert violations(r, (limit,))[0].share == pytest.approx(1 - good / len(rows))
