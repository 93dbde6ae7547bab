"""Metrics against values worked out by hand, against numpy, and where nothing was measured."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t

from tonnage.results.metrics import (
    ByRequest,
    Latencies,
    SessionLatencies,
    Summary,
    counted_rows,
    gap_percentile_ns,
    latencies,
    latencies_by_request,
    of_rows,
    percentiles,
    reported_rates,
    session_latencies,
    student_t,
    summarize,
)
from tonnage.results.requests import (
    COMPLETED,
    FAILED,
    GAP_BINS,
    POSITION_BUCKETS,
    REJECTED,
    ROW_COLUMNS,
    UNFINISHED,
    Requests,
    Turns,
    gap_edges_ns,
)
from tonnage.spec.deployment import STATISTICS, Limit, parse_attainment

MS = 1_000_000


def record(
    due: list[int], first: list[int], last: list[int], osl: list[int], **other: Any
) -> Requests:
    """A record in milliseconds; -1 stays -1. Others: status, sent (as due), gaps (none),
    window_ns."""
    status, sent, gaps = (other.pop(name, None) for name in ("status", "sent", "gaps"))
    histogram = np.zeros((POSITION_BUCKETS, GAP_BINS), dtype=np.int64)
    for gap in gaps or []:
        histogram[0, np.searchsorted(gap_edges_ns(), gap * MS, side="right") - 1] += 1

    def ns(values: list[int]) -> Any:
        return np.array([v * MS if v >= 0 else -1 for v in values], dtype=np.int64)

    count = len(due)
    return Requests(
        due_ns=ns(due),
        sent_ns=ns(sent or due),
        first_token_ns=ns(first),
        last_token_ns=ns(last),
        isl=np.full(count, 100, dtype=np.int64),
        osl=np.array(osl, dtype=np.int64),
        cached_tokens=np.zeros(count, dtype=np.int64),
        instance=np.zeros(count, dtype=np.int32),
        status=np.array(status or [COMPLETED] * count, dtype=np.int8),
        preemptions=np.arange(count, dtype=np.int32),
        gaps=histogram,
        **other,
    )


THREE = record(
    [0, 100, 200],
    [50, 200, 350],
    [150, 500, 350],
    [11, 4, 1],
    sent=[10, 100, 220],
    gaps=[10] * 10 + [100] * 3,
)


def test_three_requests_by_hand() -> None:
    s = summarize(THREE)
    assert s.ttft_ms.mean == pytest.approx((50 + 100 + 150) / 3)
    assert s.ttft_ms.p50 == 100
    assert s.ttft_ms.p90 == pytest.approx(140)
    assert s.ttft_from_send_ms.mean == pytest.approx((40 + 100 + 130) / 3)
    assert s.e2e_ms.mean == pytest.approx((150 + 400 + 150) / 3)
    assert s.tpot_ms.mean == pytest.approx((10 + 100) / 2)
    assert s.itl_ms.mean == pytest.approx((100 + 300) / 13)
    assert s.itl_ms.p50 == pytest.approx(10, rel=0.01)
    assert s.itl_ms.p99 == pytest.approx(100, rel=0.01)
    assert s.window_s == pytest.approx(0.5)
    assert s.requests_per_second == pytest.approx(3 / 0.5)
    assert s.output_tokens_per_second == pytest.approx(16 / 0.5)
    assert s.input_tokens_per_second == pytest.approx(300 / 0.5)
    assert s.concurrency == pytest.approx((150 + 400 + 150) / 500)
    assert (s.counted, s.preemptions) == (3, 3)
    assert s.window == "whole run: 0.5 s from the first due request to the last token of all"


def test_only_completed_requests_count() -> None:
    r = record(
        [0, 0, 0, 900],
        [50, -1, 60, 950],
        [150, -1, 2000, 1000],
        [11, 0, 5, 6],
        status=[COMPLETED, REJECTED, UNFINISHED, COMPLETED],
    )
    s = summarize(r)
    assert s.requests == {"completed": 2, "rejected": 1, "unfinished": 1, "failed": 0}
    assert s.ttft_ms.mean == 50
    assert s.output_tokens_per_second == pytest.approx(17 / 2.0)
    assert s.input_tokens_per_second == pytest.approx(200 / 2.0)
    assert s.requests_per_second == pytest.approx(2 / 2.0)


def test_benchmark_window_counts_what_completes_in_it() -> None:
    r = record([0, 0, 150], [50, 60, 200], [150, 200, 201], [11, 5, 6], window_ns=200 * MS)
    s = summarize(r)
    assert s.counted == 2
    assert s.requests_per_second == pytest.approx(10)
    assert s.output_tokens_per_second == pytest.approx(16 / 0.2)
    assert s.ttft_ms.mean == 55
    assert s.window == "requests completed in the first 0.2 s, over that time"


def test_steady_window_leaves_out_ramp_and_drain() -> None:
    due = [i * 10 for i in range(100)]
    slow = [1000 if i < 10 or i >= 90 else 20 for i in range(100)]
    r = record(
        due,
        [d + w for d, w in zip(due, slow, strict=True)],
        [d + w + 10 for d, w in zip(due, slow, strict=True)],
        [2] * 100,
    )
    s = summarize(r, window="steady")
    assert s.counted == 80
    assert s.ttft_ms.p99 == 20
    assert s.window_s == pytest.approx(0.8)
    assert s.requests_per_second == pytest.approx(77 / 0.8)
    instant = record(due, due, due, [1] * 100)
    assert summarize(instant, window="steady").requests_per_second == pytest.approx(80 / 0.8)
    assert summarize(r).ttft_ms.mean > 200


def test_gap_percentile_is_the_middle_of_its_bin() -> None:
    edges = gap_edges_ns()
    gaps = np.zeros((POSITION_BUCKETS, GAP_BINS), dtype=np.int64)
    gaps[2, 700] = 95
    gaps[5, 900] = 5
    assert gap_percentile_ns(gaps, 95) == edges[700] * 1.005
    assert gap_percentile_ns(gaps, 95.1) == edges[900] * 1.005
    gaps[0, 0] = 10_000
    assert gap_percentile_ns(gaps, 50) == edges[1] / 2
    assert edges[1] == 1010


@pytest.mark.parametrize(
    "empty",
    [
        record([], [], [], []),
        record([0], [-1], [-1], [0], status=[FAILED]),
        record([-1], [-1], [-1], [0], status=[UNFINISHED]),
        record([0], [-1], [-1], [0], status=[REJECTED], window_ns=0),
        record([5], [5], [5], [1]),
    ],
    ids=["nothing", "failed", "never due", "no window", "no duration"],
)
def test_undefined_is_null_and_never_a_warning(empty: Requests) -> None:
    for window in ("run", "steady"):
        document = summarize(empty, window=window).to_json()
        assert json.loads(json.dumps(document, allow_nan=False)) == document
        assert document["requests_per_second"] is None
        assert document["itl_ms"] == dict.fromkeys(STATISTICS)


@given(
    st.lists(st.integers(0, 2**50), min_size=1, max_size=40),
    st.sampled_from([0.0, 50.0, 90.0, 95.0, 99.0, 100.0]),
)
def test_percentiles_are_those_of_numpy_to_the_last_bit(
    values: list[int], percentile: float
) -> None:
    for column in (np.array(values), np.array(values) / 3.0):
        expected = [float(np.percentile(column, p)) for p in (percentile, 90.0)]
        assert percentiles(column, (percentile, 90.0)) == expected


@given(
    st.lists(st.integers(0, 10**11), min_size=1, max_size=400),
    st.sampled_from([50.0, 90.0, 95.0, 99.0]),
)
def test_gap_percentiles_are_within_a_bin_of_the_true_ones(
    gaps: list[int], percentile: float
) -> None:
    histogram = np.zeros((POSITION_BUCKETS, GAP_BINS), dtype=np.int64)
    np.add.at(
        histogram,
        (
            np.arange(len(gaps)) % POSITION_BUCKETS,
            np.searchsorted(gap_edges_ns(), gaps, side="right") - 1,
        ),
        1,
    )
    true = float(np.percentile(gaps, percentile, method="inverted_cdf"))
    got = gap_percentile_ns(histogram, percentile)
    assert got == pytest.approx(true, rel=0.0101, abs=510)


@st.composite
def records(draw: st.DrawFn) -> Requests:
    count = draw(st.integers(1, 60))
    due = sorted(draw(st.lists(st.integers(0, 10_000), min_size=count, max_size=count)))
    wait = draw(st.lists(st.integers(0, 5_000), min_size=count, max_size=count))
    decode = draw(st.lists(st.integers(0, 5_000), min_size=count, max_size=count))
    osl = draw(st.lists(st.integers(1, 50), min_size=count, max_size=count))
    first = [d + w for d, w in zip(due, wait, strict=True)]
    last = [f if n == 1 else f + d for f, d, n in zip(first, decode, osl, strict=True)]
    return record(due, first, last, osl)


@given(records())
def test_latencies_fit_together(r: Requests) -> None:
    s: Summary = summarize(r)
    ttft = (r.first_token_ns - r.due_ns) / MS
    for name in ("p50", "p90", "p95", "p99"):
        assert getattr(s.ttft_ms, name) == pytest.approx(
            float(np.percentile(ttft, float(name[1:])))
        )
    assert s.ttft_ms.mean <= s.e2e_ms.mean + 1e-9
    assert s.ttft_ms.p50 <= s.ttft_ms.p90 <= s.ttft_ms.p95 <= s.ttft_ms.p99
    if s.window_s > 0:
        assert s.concurrency == pytest.approx(s.requests_per_second * s.e2e_ms.mean / 1e3)
        assert s.requests_per_second * s.window_s == pytest.approx(len(r))


@given(records(), st.integers(1, 1_000_000))
def test_moving_the_whole_run_changes_no_latency(r: Requests, shift: int) -> None:
    moved = Requests(
        **{name: getattr(r, name) + (shift if name.endswith("_ns") else 0) for name in ROW_COLUMNS},
        gaps=r.gaps,
        window_ns=r.window_ns,
    )
    a, b = summarize(r).to_json(), summarize(moved).to_json()
    for name in ("ttft_ms", "tpot_ms", "e2e_ms", "requests"):
        assert a[name] == b[name]


@pytest.mark.parametrize("degrees", [5, 9, 40])
@pytest.mark.parametrize("p", [0.03, 0.5, 0.8, 0.975])
def test_quantiles_of_student_s_t_are_those_of_scipy_and_finite_at_the_ends(
    p: float, degrees: int
) -> None:
    assert student_t(p, degrees) == pytest.approx(t.ppf(p, degrees), rel=0.02, abs=1e-9)
    assert student_t(1.0, degrees) == pytest.approx(-student_t(0.0, degrees))
    assert student_t(1.0, degrees) > student_t(0.9999, degrees)


def test_the_ends_of_the_steady_window_by_hand() -> None:
    """Twenty requests are due at 0, 1, 4, 9 … 361 ms, and one never: the window is from the third
    to the nineteenth. An answer that ends when it begins is in it, one that ends with it is not."""
    due = [number**2 for number in range(20)]
    ends = [4, *(at + 20 for at in due[1:17]), 324, 400, 420]
    r = record(
        [*due, -1], [*due, -1], [*ends, -1], [1] * 21, status=[COMPLETED] * 20 + [UNFINISHED]
    )
    s = summarize(r, window="steady")
    assert (s.counted, s.window_s) == (16, 0.32)
    assert s.requests_per_second == pytest.approx(17 / 0.32)
    assert s.preemptions == sum(range(2, 18))
    assert s.window == (
        "steady state: the 0.32 s between 10 % and 90 % of the requests in order of due time"
    )


def test_rates_that_a_benchmark_reports_end_with_the_last_answer_that_counts() -> None:
    r = record(
        [100, 200, 300],
        [150, 260, -1],
        [300, 600, -1],
        [3, 5, 9],
        status=[COMPLETED, COMPLETED, FAILED],
    )
    assert reported_rates(r) == (4.0, 16.0)
    assert summarize(r).window_s == 0.5
    early = record([100, 200], [150, 260], [300, 600], [3, 5], window_ns=300 * MS)
    assert reported_rates(early) == (5.0, 15.0)
    assert counted_rows(early).tolist() == [0]
    lost = record([0], [-1], [-1], [2], status=[FAILED])
    assert all(math.isnan(rate) for rate in reported_rates(lost))
    by_request = latencies_by_request(early)
    assert by_request.ttft.tolist() == [0.05, math.inf]
    assert by_request.tpot.tolist() == [0.075, math.inf]
    assert by_request.e2e.tolist() == [0.2, math.inf]
    every = latencies_by_request(early, np.array([False, True]))
    assert every.tpot.tolist() == [math.inf, 0.085]
    parts = (("ttft", 0.1), ("itl", 0.15), ("e2e", 0.1))
    assert by_request.ratios(parts).tolist() == [2.0, math.inf]
    assert by_request.ratio_of(0.5, parts) == 2.0
    assert by_request.ratio_of(0.51, parts) == math.inf


def same(value: float) -> Latencies:
    return Latencies(**dict.fromkeys(STATISTICS, value))


def of_sessions(*rows: tuple[int, bool, int, int, int], **other: Any) -> Requests:
    """Requests as (session, whether it is the first, TTFT, E2E and what it takes alone, in ms), one
    second after another; -1 alone is not compared."""
    due = [1_000 * place for place in range(len(rows))]
    session, first, ttft, e2e, alone = (np.array(column) for column in zip(*rows, strict=True))
    turns = Turns(session=session, first=first, alone_ns=np.where(alone < 0, -1, alone * MS))
    return record(
        due, (due + ttft).tolist(), (due + e2e).tolist(), [2] * len(rows), **other, turns=turns
    )


SESSIONS = of_sessions(
    # session 2: five answers that take 10 ms alone and twice as long together
    *((2, place == 0, 4 + place, 20, 10) for place in range(5)),
    # session 0: four that compare and one that does not
    *((0, place == 0, 8, 90, 10 if place < 4 else -1) for place in range(5)),
    # session 3: six, of which one takes no time alone and five 3, 4, 5, 6 and 7 ms: 50 for 25 ms
    *((3, place == 0, 9, 10, alone) for place, alone in enumerate((3, 4, 5, 6, 7, 0))),
)


def test_first_and_further_answers_of_sessions_by_hand() -> None:
    turns = SESSIONS.turns
    assert turns is not None
    found = session_latencies(SESSIONS, turns, np.arange(16))
    assert found.first_ttft_ms.mean == pytest.approx((4 + 8 + 9) / 3)
    assert (found.first_ttft_ms.p50, found.first_ttft_ms.p90) == (8, pytest.approx(8.8))
    assert found.further_ttft_ms.mean == pytest.approx((5 + 6 + 7 + 8 + 4 * 8 + 5 * 9) / 13)
    assert found.further_ttft_ms.p99 == 9
    # sessions 2 and 3 take twice as long as alone; session 0 has four answers, which is too few
    assert found.slowdown_ms == same(2_000)
    first = session_latencies(SESSIONS, turns, np.arange(5))
    assert first == SessionLatencies(
        first_ttft_ms=same(4), further_ttft_ms=first.further_ttft_ms, slowdown_ms=same(2_000)
    )
    assert first.further_ttft_ms.mean == pytest.approx(6.5)
    four = session_latencies(SESSIONS, turns, np.arange(4))
    assert four.slowdown_ms == Latencies()
    nothing = session_latencies(SESSIONS, turns, np.arange(0))
    assert nothing == SessionLatencies(
        first_ttft_ms=Latencies(), further_ttft_ms=Latencies(), slowdown_ms=Latencies()
    )


def test_a_summary_looks_its_statistics_up_by_name_in_the_unit_of_a_limit() -> None:
    summary = summarize(SESSIONS)
    assert summary.statistic_ms("first_ttft", "p50") == 8
    assert summary.statistic_ms("slowdown", "p95") == 2_000
    assert summary.statistic_ms("e2e", "p50") == 20
    slowdown = Limit(metric="slowdown", statistic="p95", seconds=2.0)
    assert summary.limit_s(slowdown) == 2.0
    assert summary.limit_s(Limit(metric="e2e", statistic="p50", seconds=1.0)) == 0.02
    document = summary.to_json()
    assert document["slowdown_ms"] == dict.fromkeys(STATISTICS, 2_000)
    assert document["first_ttft_ms"]["p50"] == 8  # type: ignore[index]
    plain = summarize(THREE)
    assert not {"sessions", "by_request", "slowdown_ms"} & set(plain.to_json())
    assert plain.sessions is plain.by_request is None
    assert math.isnan(plain.statistic_ms("slowdown", "mean"))
    assert math.isnan(plain.limit_s(slowdown))
    with pytest.raises(ValueError, match="latencies of single requests were not kept"):
        plain.limit_s(parse_attainment("50%: ttft<=100ms"))
    kept = summarize(THREE, by_request=True)
    # TTFTs of 50, 100 and 150 ms: two of three take no longer than the limit, all 1.5 times it
    limits = [parse_attainment(f"{share}%: ttft<=100ms") for share in (60, 100)]
    assert [kept.limit_s(limit) for limit in limits] == pytest.approx([1.0, 1.5])
    assert "by_request" not in kept.to_json()


def test_answers_whose_first_token_nobody_saw_count_for_e2e_alone() -> None:
    r = record([0, 0, 0], [-1, 0, 30], [90, 20, 60], [4, 3, 4], sent=[5, 0, 10])
    s = summarize(r)
    assert s.counted == 3
    assert s.e2e_ms.mean == pytest.approx((90 + 20 + 60) / 3)
    # an answer that begins at once was seen
    assert s.ttft_ms.mean == 15
    assert s.ttft_from_send_ms.mean == pytest.approx((0 + 20) / 2)
    assert s.tpot_ms.mean == 10
    assert s.itl_ms.mean == pytest.approx((20 + 30) / 5)
    assert s.output_tokens_per_second == pytest.approx(11 / 0.09)
    ttft, tpot, e2e = of_rows(r, np.arange(3))
    assert (ttft.mean, tpot.mean, e2e.p50) == (15, 10, 60)
    assert of_rows(r, np.arange(0)) == (Latencies(), Latencies(), Latencies())


def test_values_that_are_no_numbers_are_none() -> None:
    values = {"mean": 1.0, "p50": math.nan, "p90": math.inf, "p95": -math.inf, "p99": 0.0}
    assert latencies(**values) == Latencies(mean=1.0, p99=0.0)


def test_a_run_in_a_window_of_no_length_has_no_rates() -> None:
    """A request that was answered at the moment when it was due, in a window of 0 s."""
    s = summarize(record([0, 0], [0, 5], [0, 9], [1, 2], window_ns=0))
    assert (s.counted, s.window_s) == (1, 0.0)
    assert math.isnan(s.requests_per_second)
    assert math.isnan(s.output_tokens_per_second)
    assert math.isnan(s.input_tokens_per_second)
    assert s.window == "requests completed in the first 0 s, over that time"
    late = summarize(record([-1, 40], [50, 50], [90, 60], [2, 2]))
    assert late.window_s == pytest.approx(0.05)  # what was never due begins no window


def test_ratios_of_no_request_are_no_ratio() -> None:
    nothing = ByRequest(ttft=np.zeros(0), tpot=np.zeros(0), e2e=np.zeros(0))
    assert math.isnan(nothing.ratio_of(0.5, (("ttft", 1.0),)))
    four = ByRequest(ttft=np.array([1.0, 2.0, 3.0, 4.0]), tpot=np.full(4, 0.5), e2e=np.full(4, 6.0))
    parts = (("ttft", 2.0), ("tpot", 0.4), ("e2e", 6.0))
    assert four.ratios(parts).tolist() == [1.25, 1.25, 1.5, 2.0]
    shares = (0.0, 0.25, 0.5, 0.51, 0.75, 0.76, 1.0)
    assert [four.ratio_of(share, parts) for share in shares] == [
        *(1.25, 1.25, 1.25),
        *(1.5, 1.5, 2.0, 2.0),
    ]


def test_the_expansion_of_student_s_t_to_its_third_term() -> None:
    """Of many degrees the rest is of the order of their fourth power; of one the three terms of
    Abramowitz and Stegun 26.7.5 at z = 1 are 0.5, 0.25 and 24 / 384."""
    for degrees in (40, 200):
        assert student_t(0.975, degrees) == pytest.approx(t.ppf(0.975, degrees), rel=2e-6)
    sigma = 0.8413447460685429
    assert student_t(sigma, 1) == pytest.approx(1 + 0.5 + 0.25 + 24 / 384)
    assert student_t(sigma, 2) == pytest.approx(1 + 0.25 + 0.0625 + 24 / 384 / 8)
    assert student_t(sigma, 0) == student_t(sigma, 1)
    assert student_t(1.0, 9) == student_t(1 - 1e-6, 9) < student_t(1 - 1e-7, 9) * (1 + 1e-12)
    assert student_t(2e-6, 9) > student_t(1e-6, 9) == student_t(0.0, 9)
