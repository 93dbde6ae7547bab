"""Single gaps from the moments of tokens: the same as one by one, their intervals, and the metrics of the steady window."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.bench.test_truth import record
from tonnage.bench.gaps import gap_intervals, other_definitions, single_gaps
from tonnage.bench.steady import Steady, find_steady, steady_metrics
from tonnage.bench.trends import trends
from tonnage.results.batches import Batch, RunWriter, gap_counts

MS = 1_000_000
EVENTS = st.lists(st.tuples(st.integers(1, 40 * MS), st.integers(1, 4)), max_size=6)


@settings(max_examples=30, deadline=None)
@given(st.lists(EVENTS, min_size=1, max_size=5))
def test_gaps_are_those_that_are_counted_one_by_one(requests: list[list[tuple[int, int]]]) -> None:
    """Each request is a list of events: the time since the one before it, and how many tokens it carries."""
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
    one_by_one = [(int(who), float(ms)) for who, ms, count in zip(found.request, found.ms, found.count, strict=True) for _ in range(count)]
    assert [w for w, _ in one_by_one] == [w for w, _ in expected]
    assert [ms for _, ms in one_by_one] == pytest.approx([ms for _, ms in expected])
    mean = found.statistics()["mean"]
    assert mean == (pytest.approx(np.mean([ms for _, ms in expected])) if expected else None)


def test_the_interval_of_the_mean_holds_it_as_often_as_it_says() -> None:
    """Requests have a pace of their own, so that the gaps of one are alike: blocks of requests must not be taken for single gaps."""
    rng, held = np.random.default_rng(3), 0
    requests = record(np.full(200, 200.0))
    for seed in range(40):
        pace = rng.normal(10, 2, 200).clip(2)
        gaps = rng.normal(pace[:, None], 0.5, (200, 9)).clip(0.1)
        offsets = np.rint(np.cumsum(np.hstack([np.full((200, 1), 50.0), gaps]), axis=1) * MS).astype(np.int64)
        low, high = gap_intervals(single_gaps(offsets.ravel(), np.full(200, 10)), requests, seed=seed)["mean"]
        held += low <= 10 <= high
    assert held >= 34


def test_too_few_requests_have_no_interval() -> None:
    gaps = single_gaps(np.arange(1, 31, dtype=np.int64) * MS, np.full(3, 10))
    assert math.isnan(gap_intervals(gaps, record(np.full(3, 100.0)), seed=0)["p95"][0])


def test_the_steady_window_leaves_the_beginning_out() -> None:
    e2e = np.concatenate([np.full(120, 900.0), np.full(480, 100.0)])
    requests = record(e2e)
    steady = find_steady(requests)
    offsets = np.column_stack([np.rint(e2e / 2 * MS), np.rint(e2e * MS)]).astype(np.int64).ravel()
    gaps = single_gaps(offsets, np.full(600, 2))
    found = steady_metrics(requests, steady, gaps)
    assert found is not None
    assert found["start_s"] >= 1.2
    assert found["e2e_ms"]["mean"] == found["e2e_ms"]["p99"] == pytest.approx(100.0)
    assert found["itl_ms"]["p99"] == pytest.approx(50.0)
    assert found["requests_per_second"] == pytest.approx(100, rel=0.2)  # and those of the beginning that end in it
    assert "itl_ms" not in (steady_metrics(requests, steady, None) or {})
    assert steady_metrics(requests, Steady(found=False), gaps) is None
    late = replace(requests, last_token_ns=requests.last_token_ns + 10**12)
    assert (steady_metrics(late, steady, gaps) or {})["requests_per_second"] == 0


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
    assert found["tpot_by_event_ms"]["mean"] == pytest.approx(15)  # 30 ms for the two tokens after the first event
    assert found["inter_token_latency_ms"]["mean"] == pytest.approx(10)
    assert found["tpot_with_ttft_ms"]["mean"] == pytest.approx((10 + 7) / 2)
    assert found["request_latency_ms"]["mean"] == pytest.approx((40 + 7) / 2)


def test_slopes_of_ttft_and_itl_are_those_that_were_put_in() -> None:
    rng = np.random.default_rng(1)
    isl = rng.integers(100, 4_000, 400)
    made = record(np.full(400, 100.0))
    ttft = np.rint((30 + 0.02 * isl + rng.normal(0, 1, 400)) * 1e6).astype(np.int64)
    gaps = np.rint((10 + 0.004 * np.arange(1, 2_000)) * 1e6).astype(np.int64)
    found = trends(
        replace(
            made,
            isl=isl,
            osl=np.full(400, 2_000),
            first_token_ns=made.due_ns + ttft,
            gaps=gap_counts(np.tile(gaps, 5), np.tile(np.arange(1, 2_000), 5)),
        )
    )
    ttft_line, itl_line = found["ttft_ms_per_1000_prompt_tokens"], found["itl_ms_per_1000_output_tokens"]
    assert ttft_line["slope"] == pytest.approx(20, abs=3 * ttft_line["standard_error"])
    assert ttft_line["standard_error"] == pytest.approx(1 / (isl.std() / 1e3) / 20, rel=0.15)
    assert ttft_line["at_zero"] == pytest.approx(30, abs=1)
    assert itl_line["slope"] == pytest.approx(4, rel=0.01)  # buckets know the mean of their positions
    assert found["limits_tokens"]["prompt_p99"] == np.percentile(isl, 99)


def test_lengths_that_are_all_alike_have_no_slope() -> None:
    found = trends(record(np.full(400, 100.0)))
    assert found["ttft_ms_per_1000_prompt_tokens"] is None
    assert trends(record(np.full(5, 100.0)))["limits_tokens"] is None
