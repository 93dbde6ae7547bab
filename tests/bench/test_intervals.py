from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.bench.parts import MS
from tests.bench.records import record
from tonnage.bench.intervals import (
    block_intervals,
    gap_intervals,
    needed,
    other_definitions,
    rank_interval,
    single_gaps,
)
from tonnage.results.store import Batch, RunWriter

EVENTS = st.lists(st.tuples(st.integers(1, 40 * MS), st.integers(1, 4)), max_size=6)


@settings(max_examples=30, deadline=None)
@given(st.lists(EVENTS, min_size=1, max_size=5))
def test_gaps_are_those_that_are_counted_one_by_one(requests: list[list[tuple[int, int]]]) -> None:
    """Each request is a list of events: the time since the one before it, and how many tokens it
    carries."""
    offsets, lengths, expected = [], [], []
    for number, events in enumerate(requests):
        moment = 0
        for place, (step, tokens) in enumerate(events):
            moment += step
            offsets += [moment] * tokens
            if place:
                expected += [(number, step / tokens / MS)] * tokens
        lengths.append(sum(tokens for _, tokens in events))
    found = single_gaps(np.array(offsets, dtype=np.int64), np.array(lengths, dtype=np.int64))
    one_by_one = [
        (int(who), float(ms))
        for who, ms, count in zip(found.request, found.ms, found.count, strict=True)
        for _ in range(count)
    ]
    assert [w for w, _ in one_by_one] == [w for w, _ in expected]
    assert [ms for _, ms in one_by_one] == pytest.approx([ms for _, ms in expected])
    mean = found.statistics()["mean"]
    assert mean == (pytest.approx(np.mean([ms for _, ms in expected])) if expected else None)


def test_the_interval_of_the_mean_holds_it_as_often_as_it_says() -> None:
    """Requests have a pace of their own, so that the gaps of one are alike: blocks of requests must
    not be taken for single gaps."""
    rng, held = np.random.default_rng(3), 0
    requests = record(np.full(200, 200.0))
    for seed in range(25):
        pace = rng.normal(10, 2, 200).clip(2)
        gaps = rng.normal(pace[:, None], 0.5, (200, 9)).clip(0.1)
        offsets = np.rint(
            np.cumsum(np.hstack([np.full((200, 1), 50.0), gaps]), axis=1) * MS
        ).astype(np.int64)
        low, high = gap_intervals(
            single_gaps(offsets.ravel(), np.full(200, 10)), requests, seed=seed
        )["mean"]
        held += low <= 10 <= high
    assert held >= 22


def test_too_few_requests_have_no_interval() -> None:
    gaps = single_gaps(np.arange(1, 31, dtype=np.int64) * MS, np.full(3, 10))
    assert math.isnan(gap_intervals(gaps, record(np.full(3, 100.0)), seed=0)["p95"][0])


def test_other_tools_definitions_by_hand(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path / "run")
    rows = np.zeros((3, 10), dtype=np.int64)
    rows[:, 5] = [4, 1, 2]
    rows[2, 8] = 3  # failed
    offsets = np.array([10, 10, 20, 40, 7, 1, 2], dtype=np.int64) * 1_000_000
    writer.add(Batch(rows=rows, offsets_ns=offsets, lengths=np.array([4, 1, 2])))
    found = other_definitions(writer.finish(), offsets, np.array([4, 1, 2]))
    writer.discard()
    assert found["gap_by_event_ms"]["mean"] == pytest.approx(15)
    # 30 ms for the two tokens after the first event
    assert found["tpot_by_event_ms"]["mean"] == pytest.approx(15)
    assert found["inter_token_latency_ms"]["mean"] == pytest.approx(10)
    assert found["tpot_with_ttft_ms"]["mean"] == pytest.approx((10 + 7) / 2)
    assert found["request_latency_ms"]["mean"] == pytest.approx((40 + 7) / 2)


def test_the_count_of_samples_is_that_of_mlperf() -> None:
    assert [needed(p) for p in (50, 90, 95, 99)] == [7, 44, 90, 459]


@pytest.mark.parametrize(("count", "percentile"), [(459, 50), (1_000, 95), (5_000, 99), (700, 90)])
def test_ranks_hold_the_percentile_as_often_as_they_say(count: int, percentile: float) -> None:
    from scipy import stats

    found = rank_interval(count, percentile, 0.9)
    low, high = found
    below = stats.binom.cdf(low, count, percentile / 100)
    above = stats.binom.sf(high, count, percentile / 100)
    assert below <= 0.05 + 1e-9
    assert above <= 0.05 + 1e-9
    held = stats.binom.cdf(high, count, percentile / 100) - below
    assert 0.88 <= held <= 0.97


def test_too_few_samples_have_no_interval() -> None:
    assert rank_interval(100, 99, 0.99) is None
    assert rank_interval(0, 50) is None


def test_block_intervals_hold_the_mean_of_a_correlated_series_as_often_as_they_say() -> None:
    series = np.random.default_rng(3).normal(0, 1, (1_200, 30))
    series[0] = 0
    for k in range(1, len(series)):
        series[k] += 0.9 * series[k - 1]
    held = 0
    for one in series.T:
        low, high = block_intervals(one, seed=7)["mean"]
        held += low <= 0 <= high
    assert held / 30 >= 0.85
    assert math.isnan(block_intervals(np.zeros(3), seed=7)["mean"][0])
