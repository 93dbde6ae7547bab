from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from tests.bench.parts import MS
from tests.bench.records import judged, record
from tonnage.bench.intervals import single_gaps
from tonnage.bench.steady import (
    DEFINITION,
    Steady,
    _line,
    _stands_out,
    _trend,
    find_steady,
    positions_of_gaps,
    steady_metrics,
    trends,
    ttft_rise_ms,
)
from tonnage.results.store import gap_counts


def test_the_steady_window_leaves_the_beginning_out() -> None:
    e2e = np.concatenate([np.full(120, 900.0), np.full(480, 100.0)])
    requests = record(e2e)
    steady = find_steady(requests)
    offsets = np.column_stack([np.rint(e2e / 2 * MS), np.rint(e2e * MS)]).astype(np.int64).ravel()
    gaps = single_gaps(offsets, np.full(600, 2))
    found = steady_metrics(requests, steady, gaps)
    assert found["start_s"] >= 1.2
    assert found["e2e_ms"]["mean"] == found["e2e_ms"]["p99"] == pytest.approx(100.0)
    assert found["itl_ms"]["p99"] == pytest.approx(50.0)
    # and those of the beginning that end in it
    assert found["requests_per_second"] == pytest.approx(100, rel=0.2)
    assert "itl_ms" not in (steady_metrics(requests, steady, None) or {})
    assert steady_metrics(requests, Steady(found=False), gaps) is None
    late = replace(requests, last_token_ns=requests.last_token_ns + 10**12)
    assert (steady_metrics(late, steady, gaps) or {})["requests_per_second"] == 0


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
    ttft_line, itl_line = (
        found["ttft_ms_per_1000_prompt_tokens"],
        found["itl_ms_per_1000_output_tokens"],
    )
    assert ttft_line["slope"] == pytest.approx(20, abs=3 * ttft_line["standard_error"])
    assert ttft_line["standard_error"] == pytest.approx(1 / (isl.std() / 1e3) / 20, rel=0.15)
    assert ttft_line["at_zero"] == pytest.approx(30, abs=1)
    # buckets know the mean of their positions
    assert itl_line["slope"] == pytest.approx(4, rel=0.004)
    # a gap stands for the middle of its bin
    assert itl_line["at_zero"] == pytest.approx(10, rel=0.004)
    assert found["limits_tokens"]["prompt_p99"] == np.percentile(isl, 99)


def test_lengths_that_are_all_alike_have_no_slope() -> None:
    found = trends(record(np.full(400, 100.0)))
    assert found["ttft_ms_per_1000_prompt_tokens"] is None
    assert trends(record(np.full(5, 100.0)))["limits_tokens"] is None


def test_an_engine_is_to_be_built_for_the_99th_percentile_of_lengths_and_of_their_sum() -> None:
    lengths = np.arange(401)
    found = trends(replace(record(np.full(401, 100.0)), isl=lengths, osl=2 * lengths + 1))[
        "limits_tokens"
    ]
    assert found == {"prompt_p99": 396, "output_p99": 793, "sum_p99": 1189}


def test_a_run_that_settles_is_steady_from_there() -> None:
    rng = np.random.default_rng(1)
    e2e = rng.normal(100, 5, 1_000)
    e2e[:150] *= np.linspace(4, 1, 150)
    found = find_steady(record(e2e))
    assert found.found
    assert 1.0 <= found.start_s <= 3.1
    assert found.end_s == pytest.approx(9.99)
    rising = find_steady(record(np.linspace(100, 110, 1_000)))
    # from the mean of the first tenth to that of the last
    assert rising.drift == pytest.approx(9 / 105, rel=0.005)


def test_a_queue_that_grows_is_not_steady() -> None:
    rng = np.random.default_rng(1)
    found = find_steady(record(rng.normal(100, 5, 1_000) + np.linspace(0, 800, 1_000)))
    assert found.found is False
    assert found.drift > 0.2
    growing = record(rng.normal(100, 5, 600) + np.linspace(0, 800, 600))
    assert any("no steady state" in reason for reason in judged(requests=growing).reasons)


def test_noise_alone_is_steady_and_few_requests_say_nothing() -> None:
    rng = np.random.default_rng(2)
    assert sum(bool(find_steady(record(rng.lognormal(4, 1, 400))).found) for _ in range(50)) >= 49
    assert find_steady(record(np.full(20, 100.0))).found is None


def test_the_mean_position_of_the_gaps_of_a_bucket() -> None:
    """Outputs of 1, 3 and 5 tokens: gaps at 1, 2 and 1 to 4; bucket k holds 2^k to 2^(k+1) - 1."""
    positions = positions_of_gaps(np.array([1, 3, 5]))
    assert positions[:4].tolist() == [1.0, (2 + 2 + 3) / 3, 4.0, (8 + 15) / 2]
    assert positions_of_gaps(np.array([11]))[:5].tolist() == [1.0, 2.5, 5.5, 9.0, 23.5]


@pytest.mark.parametrize(
    ("x", "y", "weights", "line"),
    [
        # residuals -0.5, 0.5, 0.5, -0.5 over two degrees of freedom: 0.5 / 5
        ([0, 1, 2, 3], [0, 2, 3, 3], [1, 1, 1, 1], (1.0, math.sqrt(0.1), 0.5)),
        ([0, 1, 2, 3], [1, 3, 5, 7], [1, 2, 3, 4], (2.0, 0.0, 1.0)),
        # twice the weight for each: the same line, as sure as before
        ([0, 1, 2, 3], [0, 2, 3, 3], [2, 2, 2, 2], (1.0, math.sqrt(0.1), 0.5)),
        # middle 2, level 3: residuals 1, -2, 1 by halves, of mean square 1 / 2; 3 / (1 * 2 * 3)
        ([1, 2, 3], [3, 3, 3], [1, 2, 1], (0.0, 0.0, 3.0)),
        ([1, 2, 3], [4, 2, 4], [1, 2, 1], (0.0, math.sqrt(2.0), 3.0)),
        ([0, 1], [0, 1], [1, 1], None),
        ([5, 5, 5], [1, 2, 3], [1, 1, 1], None),
        ([100.0, 100.5, 100.9], [1, 2, 3], [1, 1, 1], None),
        ([-1, 0, 1], [2, 4, 6], [1, 1, 1], (2.0, 0.0, 4.0)),
    ],
)
def test_a_line_by_hand(
    x: list[float], y: list[float], weights: list[float], line: tuple[float, float, float] | None
) -> None:
    found = _line(*(np.array(column, dtype=float) for column in (x, y, weights)))
    if line is None:
        assert found is None
        return
    assert list(found) == ["slope", "standard_error", "at_zero"]
    assert list(found.values()) == pytest.approx(line, abs=1e-9)


@pytest.mark.parametrize(
    ("means", "drift", "errors"),
    [
        ([1, 2, 3], 1.0, math.inf),
        ([3, 2, 1], -1.0, math.inf),
        ([10, 10, 10], 0.0, math.inf),
        ([0, 0, 0], 0.0, math.inf),
        # slope 1, residuals as of the line above: error sqrt(1 / 2 / 5)
        ([0, 2, 3, 3], 3 / 2, 1 / math.sqrt(0.1)),
        ([3, 3, 2, 0], -3 / 2, 1 / math.sqrt(0.1)),
    ],
)
def test_a_trend_is_the_rise_over_its_length_as_a_share_of_the_mean(
    means: list[float], drift: float, errors: float
) -> None:
    assert _trend(np.array(means, dtype=float)) == pytest.approx((drift, errors))


@pytest.mark.parametrize(
    ("first", "out"),
    [(100, False), (119, False), (121, True), (79, True), (81, False)],
)
def test_a_block_stands_out_by_a_fifth_of_the_median(first: float, out: bool) -> None:
    assert _stands_out(np.array([first, 100.0, 101.0, 99.0, 100.0])) == out
    # deviations of 40 from a median of 100: three times 1.4826 of them
    wide = np.array([100.0, 60.0, 140.0, 60.0, 140.0])
    assert not _stands_out(np.append(100 + 177, wide[1:]))
    assert _stands_out(np.append(100 + 178.5, wide[1:]))


@pytest.mark.parametrize(
    ("count", "rise", "expected"),
    [(49, 70.0, 0.0), (50, 70.0, 70.0), (50, -30.0, 0.0), (50, 0.0, 0.0)],
)
def test_ttft_rises_over_the_last_seven_blocks(count: int, rise: float, expected: float) -> None:
    """Means of the blocks rise by a sixth of it from block to block; the three first are left out."""
    steps = np.concatenate([[900.0] * 3, 100 + rise / 6 * np.arange(7)])
    sizes = [len(part) for part in np.array_split(np.arange(count), 10)]
    requests = record(2 * np.repeat(steps, sizes))
    assert ttft_rise_ms(requests) == pytest.approx(expected, abs=1e-6)


def test_a_rise_that_five_errors_do_not_show_is_none() -> None:
    """A zigzag of 30 ms around a rise of 60 ms is a rise of 2.8 errors; of 3 ms, of 28."""
    for zigzag, seen in ((30.0, False), (3.0, True)):
        ttft = 100 + 10 * np.arange(7) + zigzag * np.array([1, -1, 1, -1, 1, -1, 1])
        requests = record(2 * np.repeat(np.concatenate([[100.0] * 3, ttft]), 5))
        assert (ttft_rise_ms(requests) > 0) == seen


def test_the_window_by_blocks() -> None:
    """Ten blocks of 5: how many of the first are unlike the others is how many are left out, up to
    five."""
    for out in range(7):
        e2e = np.concatenate([np.full(5 * out, 900.0), np.full(50 - 5 * out, 100.0)])
        found = find_steady(record(e2e))
        if out <= 5:
            assert found == Steady(found=True, start_s=5 * out * 0.01, end_s=0.49, drift=0.0)
        else:
            assert found.found is False
            assert math.isnan(found.start_s)
            assert math.isnan(found.end_s)
            means = np.array([900.0, 100, 100, 100, 100])
            assert found.drift == pytest.approx(_trend(means)[0])
    assert find_steady(record(np.full(49, 100.0))).found is None


def test_figures_of_the_window_by_hand() -> None:
    """Six requests due every 10 ms, of 20 ms each and 5 tokens; the window is 10 to 40 ms."""
    requests = record(np.full(6, 20.0))
    requests = replace(requests, status=np.array([0, 0, 3, 0, 0, 0]))
    found = steady_metrics(requests, Steady(found=True, start_s=0.01, end_s=0.04), None)
    assert found is not None
    alike = ("mean", "p50", "p90", "p95", "p99")
    assert found == {
        "start_s": 0.01,
        "end_s": 0.04,
        "requests": 3,
        "ttft_ms": dict.fromkeys(alike, 10.0),
        "tpot_ms": dict.fromkeys(alike, 2.5),
        "e2e_ms": dict.fromkeys(alike, 20.0),
        # those of 0 and 10 ms end in it, and that of 20 ms failed
        "requests_per_second": pytest.approx(2 / 0.03),
        "output_tokens_per_second": pytest.approx(10 / 0.03),
        "definition": DEFINITION,
    }
    for start, end in ((0.01, 0.01), (0.02, 0.021), (0.9, 1.0)):
        window = Steady(found=True, start_s=start, end_s=end)
        assert steady_metrics(requests, window, None) is None
    assert steady_metrics(requests, Steady(found=None), None) is None


@pytest.mark.parametrize("count", [19, 20])
def test_twenty_requests_make_a_line(count: int) -> None:
    made = record(np.full(count, 100.0))
    found = trends(replace(made, isl=1000 + np.arange(count)))
    assert (found["limits_tokens"] is None) == (count < 20)
    assert found["itl_ms_per_1000_output_tokens"] is None
