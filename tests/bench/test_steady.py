from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.bench.parts import MS
from tests.bench.records import judged, record
from tonnage.bench.intervals import single_gaps
from tonnage.bench.steady import Steady, find_steady, steady_metrics, trends
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
