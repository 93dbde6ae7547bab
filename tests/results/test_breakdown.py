from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.results.drawn_requests import requests
from tests.results.test_metrics import record
from tonnage.report.simulated import fleet_lines
from tonnage.results.breakdown import ClassResult, Violation, by_class, violations
from tonnage.results.metrics import Latencies, attained, summarize
from tonnage.results.requests import COMPLETED, FAILED, REJECTED
from tonnage.simulator.simulated_run import FleetFacts
from tonnage.spec.arrivals import TrafficClass
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


def test_hours_without_a_request_are_none_and_the_worst_is_named_by_the_clock() -> None:
    """Requests in the hours 1, 3 and 4: one of two is late, then two of three, then two of three
    again, of which one was lost."""
    due = [3_600_000 * hour + late for hour, late in ((1, 0), (1, 5))]
    due += [3_600_000 * hour + late for hour in (3, 4) for late in (0, 1, 2)]
    waits = [100, 2_000, 100, 1_500, 3_000, 100, 2_000, 0]
    first = [at + wait for at, wait in zip(due, waits, strict=True)]
    r = record(due, first, first, [1] * 8, status=[COMPLETED] * 7 + [FAILED])
    limits = [
        Limit(metric="ttft", statistic=statistic, seconds=seconds)
        for statistic, seconds in (("mean", 1.2), ("p50", 1.2), ("p99", 9.0), ("p50", 1.5))
    ]
    limits += [Limit(metric="itl", statistic="p99", seconds=1.0)]
    mean, half, never, at_limit = violations(r, tuple(limits))
    assert mean == Violation(
        limit="TTFT mean ≤ 1.2 s",
        share=5 / 8,
        broken_hours=1,
        hours=3,
        worst_hour=3,
        worst_share=2 / 3,
    )
    # 1.05 s in the hours 1 and 4, 1.5 s in hour 3
    assert (half.limit, half.broken_hours) == ("TTFT p50 ≤ 1.2 s", 1)
    assert (never.share, never.broken_hours) == (1 / 8, 0)
    assert (never.worst_hour, never.worst_share) == (4, 1 / 3)
    assert (at_limit.broken_hours, at_limit.share) == (0, 4 / 8)
    joint = violations(r, (parse_attainment("50%: ttft<=1200ms"),))[0]
    # half of the requests of hour 1 are in time, which is enough
    assert (joint.broken_hours, joint.share, joint.worst_hour) == (2, 5 / 8, 3)
    empty = violations(record([], [], [], []), tuple(limits[:1]))[0]
    assert empty == Violation(
        limit="TTFT mean ≤ 1.2 s",
        share=0.0,
        broken_hours=0,
        hours=0,
        worst_hour=0,
        worst_share=0.0,
    )


def test_the_results_of_classes_by_hand() -> None:
    """Rows 0, 2 and 4 are chat, of which one is rejected and one is late; 1 and 3 are batch; nobody
    sent the third class."""
    r = record(
        [0, 0, 100, 100, 200],
        [500, 700, 1_101, 900, -1],
        [900, 1_700, 1_101, 2_100, -1],
        [3, 11, 1, 13, 5],
        status=[COMPLETED, COMPLETED, COMPLETED, FAILED, REJECTED],
    )
    traffic = [
        TrafficClass(name="chat", share=0.6, ttft_s=1.0),
        TrafficClass(name="batch", share=0.3),
        TrafficClass(name="nobody", share=0.1, ttft_s=2.0),
    ]
    limit = parse_attainment("30%: ttft<=600ms & e2e<=1s")
    mean = Limit(metric="ttft", statistic="mean", seconds=1.0)
    chat, batch, nobody = by_class(r, np.array([0, 1, 0, 1, 0, 2, 2]), traffic, (limit, mean))
    (chat_attained,) = chat.attained
    assert chat_attained.share == 1 / 3

    def same(value: float) -> Latencies:
        return Latencies(mean=value, p50=value, p90=value, p95=value, p99=value)

    assert batch == ClassResult(
        name="batch",
        share=0.3,
        ttft_limit_s=None,
        requests=2,
        completed=1,
        rejected=0,
        preemptions=1 + 3,
        within=None,
        ttft_ms=same(700),
        tpot_ms=same(100),
        e2e_ms=same(1_700),
        attained=batch.attained,
    )
    assert (chat.requests, chat.completed, chat.rejected, chat.preemptions) == (3, 2, 1, 0 + 2 + 4)
    assert (chat.ttft_limit_s, chat.within) == (1.0, 1 / 3)
    assert chat.ttft_ms.mean == pytest.approx((500 + 1_001) / 2)
    assert chat.ttft_ms.p50 == pytest.approx(750.5)
    assert chat.tpot_ms == same(200)  # a single token has none
    assert chat.e2e_ms.p90 == pytest.approx(900 + 0.9 * 101)
    assert nobody.requests == nobody.completed == 0
    assert math.isnan(nobody.within)  # type: ignore[arg-type]
    assert nobody.ttft_ms == Latencies()
    document = chat.to_json()
    assert document["attained"] == [chat_attained.to_json()]
    everybody = TrafficClass(name="all", share=1.0, ttft_s=0.8)
    (plain,) = by_class(r, np.zeros(5, dtype=int), [everybody])
    assert "attained" not in plain.to_json()
    assert plain.within == 3 / 5  # exactly at the limit is within
