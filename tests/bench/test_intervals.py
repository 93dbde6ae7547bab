from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.bench.parts import MS
from tests.bench.records import record
from tonnage.bench.intervals import (
    WORDS,
    Ratio,
    SingleGaps,
    _notes,
    block_draws,
    block_intervals,
    compare,
    completed_rows,
    gap_intervals,
    latencies_ms,
    needed,
    other_definitions,
    percentiles,
    rank_interval,
    share_ratio,
    single_gaps,
    statistics,
    widened,
)
from tonnage.results.metrics import Attained, attained, student_t, summarize
from tonnage.results.requests import Requests
from tonnage.results.store import Batch, RunWriter
from tonnage.spec.deployment import parse_attainment, parse_limit

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


def rows_of(**columns: list[int]) -> Requests:
    """Requests with these columns, in milliseconds where they are times."""
    made = record(np.full(len(columns["due_ns"]), 100.0))
    scale = {name: MS if name.endswith("_ns") else 1 for name in columns}
    return replace(
        made, **{name: np.array(column) * scale[name] for name, column in columns.items()}
    )


FIVE = {
    "due_ns": [30, 10, 20, 10, 0],
    "first_token_ns": [40, 15, 22, 30, 1],
    "last_token_ns": [70, 15, 82, 40, 2],
    "osl": [4, 1, 7, 2, 9],
    "status": [0, 0, 0, 0, 3],
}


def test_latencies_of_the_completed_requests_in_the_order_of_their_due_times() -> None:
    rows = completed_rows(rows_of(**FIVE))
    assert rows.tolist() == [1, 3, 2, 0]
    found = latencies_ms(rows_of(**FIVE), rows)
    assert {name: column.tolist() for name, column in found.items()} == {
        "ttft_ms": [5, 20, 2, 10],
        "tpot_ms": [10, 10, 10],
        "e2e_ms": [5, 30, 62, 40],
    }
    unstreamed = rows_of(**{**FIVE, "first_token_ns": [-1, 15, -1, 30, -1]})
    unstreamed.first_token_ns[unstreamed.first_token_ns < 0] = -1
    found = latencies_ms(unstreamed, rows)
    assert {name: column.tolist() for name, column in found.items()} == {
        "ttft_ms": [5, 20],
        "tpot_ms": [10],
        "e2e_ms": [5, 30, 62, 40],
    }


def test_mean_and_percentiles_over_a_unit() -> None:
    assert statistics(np.arange(101.0)).tolist() == [50, 50, 95, 99]
    assert percentiles(np.arange(101) * 20, 10.0) == {
        "mean": 100,
        "p50": 100,
        "p90": 180,
        "p95": 190,
        "p99": 198,
    }
    assert percentiles(np.array([3])) == dict.fromkeys(("mean", "p50", "p90", "p95", "p99"), 3)
    assert percentiles(np.array([])) == dict.fromkeys(("mean", "p50", "p90", "p95", "p99"))


def test_a_spread_of_few_blocks_is_widened_by_student_s_t() -> None:
    """t of seven degrees of freedom is 2.364624 (a table of the distribution), the normal's
    1.959964."""
    wide = widened(np.array([[1.0, 5.0], [3.0, 4.0]]), np.array([2.0, 4.0]), 8)
    factor = 2.364624 / 1.959964
    assert wide.ravel() == pytest.approx([2 - factor, 4 + factor, 2 + factor, 4], rel=1e-3)


@pytest.mark.parametrize(("count", "blocks"), [(39, 0), (40, 8), (44, 8), (150, 30), (900, 30)])
def test_blocks_have_five_requests_at_least_and_thirty_are_enough(count: int, blocks: int) -> None:
    """Blocks of equal values: the mean of a draw is that of the numbers of its blocks."""
    values = np.concatenate(
        [
            np.full(len(part), number)
            for number, part in enumerate(np.array_split(np.arange(count), max(blocks, 1)))
        ]
    ).astype(float)
    draws = block_draws(values, seed=5)
    if not blocks:
        assert draws is None
        assert all(
            math.isnan(end) for pair in block_intervals(values, seed=5).values() for end in pair
        )
        return
    assert draws is not None
    assert draws.shape == (200, 4)
    picks = np.random.default_rng(5).integers(0, blocks, (200, blocks))
    sizes = np.bincount(values.astype(int))
    means = (picks * sizes[picks]).sum(axis=1) / sizes[picks].sum(axis=1)
    factor = student_t(0.975, blocks - 1) / 1.959964
    assert draws[:, 0] == pytest.approx(values.mean() + (means - values.mean()) * factor)
    found = block_intervals(values, seed=5)
    assert list(found) == ["mean", "p50", "p95", "p99"]
    for place, pair in enumerate(found.values()):
        assert pair == pytest.approx(np.quantile(draws[:, place], (0.025, 0.975)))


def test_intervals_of_gaps_are_those_of_the_blocks_of_their_requests() -> None:
    """Forty requests in eight blocks, three gaps each: those of block b take b + 1 ms. A request
    that failed has gaps of a second, which count for nothing."""
    made = record(np.full(41, 100.0))
    requests = replace(made, status=np.array([0] * 40 + [3]))
    gap = np.append(np.repeat(np.arange(1, 9), 5), 1_000)
    offsets = (50 + gap[:, None] * np.arange(4)).ravel() * MS
    found = gap_intervals(single_gaps(offsets, np.full(41, 4)), requests, seed=3)
    assert list(found) == ["mean", "p50", "p95", "p99"]
    picks = np.random.default_rng(3).integers(0, 8, (200, 8)) + 1
    factor = student_t(0.975, 7) / 1.959964
    draws = 4.5 + (picks.mean(axis=1) - 4.5) * factor
    assert found["mean"] == pytest.approx(np.quantile(draws, (0.025, 0.975)))
    ordered = np.sort(picks, axis=1)  # of eight equal blocks, the median is the fourth
    for name, place, middle in (("p50", 3, 4), ("p95", 7, 8), ("p99", 7, 8)):
        draws = middle + (ordered[:, place] - middle) * factor
        assert found[name] == pytest.approx(np.quantile(draws, (0.025, 0.975)), rel=0.011)
    nothing = single_gaps(np.array([], dtype=np.int64), np.zeros(41, dtype=np.int64))
    for gaps, of in (
        (nothing, requests),
        (single_gaps(offsets, np.full(41, 4)), replace(made, status=np.array([0] * 39 + [3, 3]))),
    ):
        assert all(
            math.isnan(end) for pair in gap_intervals(gaps, of, seed=3).values() for end in pair
        )


@pytest.mark.parametrize(
    ("count", "percentile", "confidence", "ranks"),
    [
        (5, 50, 0.9, (0, 4)),  # 1/32 is below the least, 31/32 below the greatest but one
        (4, 50, 0.9, None),  # 1/16 is more than 0.05
        (8, 50, 0.99, (0, 7)),
        (7, 50, 0.99, None),
        (2, 50, 0.5, (0, 1)),  # 1/4 either way
        (1, 50, 0.0, (0, 0)),
    ],
)
def test_ranks_of_few_samples_by_hand(
    count: int, percentile: float, confidence: float, ranks: tuple[int, int] | None
) -> None:
    assert rank_interval(count, percentile, confidence) == ranks
    assert confidence != 0.99 or rank_interval(count, percentile) == ranks


def test_a_low_percentile_needs_as_many_samples_as_a_high_one() -> None:
    assert [needed(p) for p in (1, 5, 10)] == [459, 90, 44]
    assert [needed(50, c) for c in (0.5, 0.75, 0.875)] == [1, 2, 3]


def test_gaps_of_some_requests_and_their_weighted_percentiles() -> None:
    gaps = SingleGaps(
        ms=np.array([30.0, 10.0, 20.0, 40.0]),
        count=np.array([1, 89, 6, 4]),
        request=np.array([0, 1, 1, 2]),
    )
    assert gaps.statistics() == {
        "mean": (30 + 890 + 120 + 160) / 100,
        "p50": 10,
        "p90": 20,
        "p95": 20,
        "p99": 40,
    }
    some = gaps.of(np.array([True, False, True]))
    assert (some.ms.tolist(), some.count.tolist(), some.request.tolist()) == (
        [30, 40],
        [1, 4],
        [0, 2],
    )
    none = gaps.of(np.zeros(3, dtype=bool))
    assert none.statistics() == dict.fromkeys(("mean", "p50", "p90", "p95", "p99"))


def test_other_definitions_of_three_requests_whole() -> None:
    """Events at 10 (2 tokens), 20 and 45 ms; at 7 ms alone; of a failed one; and at 4, 5 and 9."""
    requests = rows_of(due_ns=[0] * 5, status=[0, 0, 3, 0, 0])
    offsets = np.array([10, 10, 20, 45, 7, 1, 2, 4, 5, 9]) * MS
    found = other_definitions(requests, offsets, np.array([4, 1, 2, 3, 0]))
    values = {
        "gap_by_event_ms": [10, 25, 1, 4],
        "tpot_by_event_ms": [17.5, 2.5],
        "tpot_with_ttft_ms": [45 / 4, 7, 3],
        "inter_token_latency_ms": [35 / 3, 2.5],
        "request_latency_ms": [45, 7, 9],
    }
    assert list(found) == list(values)
    for name, column in values.items():
        words = found[name].pop("definition")
        assert words == WORDS[name]
        quantiles = zip((50, 90, 95, 99), np.percentile(column, (50, 90, 95, 99)), strict=True)
        assert found[name] == pytest.approx(
            {"mean": np.mean(column), **{f"p{p}": value for p, value in quantiles}}
        )
    empty = other_definitions(rows_of(due_ns=[0]), np.array([], dtype=np.int64), np.array([0]))
    assert {entry["mean"] for entry in empty.values()} == {None}


@pytest.mark.parametrize(
    ("changed", "ratio", "differs"),
    [
        ({}, 2.5, None),
        ({"low": 0.9, "high": 1.1}, 2.5, False),
        ({"low": 1.0, "high": 3.0}, 2.5, False),
        ({"low": 0.5, "high": 1.0}, 2.5, False),
        ({"low": 1.1, "high": 3.0}, 2.5, True),
        ({"low": 0.1, "high": 0.9}, 2.5, True),
        ({"first": 0.0}, math.nan, None),
    ],
)
def test_a_ratio_differs_where_its_interval_leaves_out_one(
    changed: dict[str, float], ratio: float, differs: bool | None
) -> None:
    made = Ratio(
        **{"metric": "ttft_ms", "statistic": "mean", "first": 2.0, "second": 5.0, **changed}
    )
    document = made.to_json()
    assert list(document) == [
        "metric",
        "statistic",
        "first",
        "second",
        "ratio",
        "low",
        "high",
        "differs",
    ]
    assert document["ratio"] == pytest.approx(ratio, nan_ok=True)
    assert made.differs is differs


def share(low: float, middle: float, high: float) -> Attained:
    """A share of the requests with its interval."""
    return Attained(
        limits="l", asked=0.9, share=middle, low=low, high=high, requests_per_second=1.0
    )


def test_a_ratio_of_shares_has_the_interval_of_donner_and_zou() -> None:
    """MOVER for ratios: 0.9 in [0.8, 0.94] over 0.8 in [0.7, 0.86], by hand."""
    found = share_ratio(share(0.7, 0.8, 0.86), share(0.8, 0.9, 0.94))
    assert (found.metric, found.statistic, found.first, found.second) == (
        "share l",
        "mean",
        0.8,
        0.9,
    )
    assert (found.low, found.high) == (
        pytest.approx((0.72 - math.sqrt(0.5184 - 0.8 * 0.6364)) / 0.6364),
        pytest.approx((0.72 + math.sqrt(0.5184 - 0.8084 * 0.63)) / 0.63),
    )
    exact = share_ratio(share(0.8, 0.8, 0.8), share(0.4, 0.4, 0.4))
    assert (exact.low, exact.high) == (pytest.approx(0.5), pytest.approx(0.5))
    for first in (share(0.0, 0.5, 0.6), share(0.1, 0.4, 0.8)):  # either may be as low as 0
        assert math.isnan(share_ratio(first, share(0.8, 0.9, 0.94)).low)


@pytest.mark.parametrize(
    ("second", "notes"),
    [
        ({}, ()),
        ({"isl": np.full(100, 10.2)}, ()),
        (
            {"isl": np.full(100, 12)},
            ("prompts are 10 tokens on average in the first run, 12 in the second",),
        ),
        (
            {"osl": np.full(100, 4)},
            ("outputs are 5 tokens on average in the first run, 4 in the second",),
        ),
        ({"status": np.array([0] * 99 + [3])}, ()),
        (
            {"status": np.array([0] * 96 + [3] * 4), "isl": np.array([10] * 96 + [99] * 4)},
            ("0.0% of the requests did not complete in the first run, 4.0% in the second",),
        ),
    ],
)
def test_what_makes_two_runs_hard_to_compare(
    second: dict[str, np.ndarray], notes: tuple[str, ...]
) -> None:
    made = record(np.full(100, 100.0))
    assert _notes(made, replace(made, **second)) == notes


def test_two_runs_next_to_one_another() -> None:
    rng = np.random.default_rng(2)
    first, second = (record(rng.uniform(50, 100, 120) * factor) for factor in (1, 2))
    slo = (parse_limit("e2e", "p95<=150ms"), parse_attainment("90%: ttft<=80ms & e2e<=150ms"))
    found = compare(first, second, slo=slo, seed=4)
    metrics = ("ttft_ms", "tpot_ms", "e2e_ms", "itl_ms")
    names = [(metric, s) for metric in metrics for s in ("mean", "p50", "p95", "p99")]
    rates = ("requests_per_second", "output_tokens_per_second")
    names = [*names, *((name, "mean") for name in rates)]
    assert [(ratio.metric, ratio.statistic) for ratio in found.ratios[:18]] == names
    goods = [attained(run, slo) for run in (first, second)]
    assert [(r.metric, r.first, r.second) for r in found.ratios[18:]] == [
        row
        for ours, theirs in zip(*goods, strict=True)
        for row in (
            (f"share {ours.limits}", ours.share, theirs.share),
            (f"goodput {ours.limits}", ours.requests_per_second, theirs.requests_per_second),
        )
    ]
    both = [latencies_ms(run, completed_rows(run)) for run in (first, second)]
    for place, metric in enumerate(("ttft_ms", "tpot_ms", "e2e_ms")):
        columns = [latencies[metric] for latencies in both]
        draws = [block_draws(column, seed=4 + 2 * place + k) for k, column in enumerate(columns)]
        ends = np.quantile(draws[1] / draws[0], (0.025, 0.975), axis=0)
        for k, ratio in enumerate(found.ratios[4 * place : 4 * place + 4]):
            assert (ratio.low, ratio.high) == (pytest.approx(ends[0][k]), pytest.approx(ends[1][k]))
            assert ratio.first == pytest.approx(statistics(columns[0])[k])
            assert ratio.second == pytest.approx(statistics(columns[1])[k])
            assert ratio.differs
        assert found.quantiles_ms[metric] == tuple(
            tuple(np.percentile(column, range(1, 100))) for column in columns
        )
    summaries = [summarize(run) for run in (first, second)]
    for ratio in found.ratios[16:18]:
        values = [getattr(summary, ratio.metric) for summary in summaries]
        assert [ratio.first, ratio.second] == values
    shares = [float((latencies["e2e_ms"] <= 150).mean()) for latencies in both]
    assert [found.ratios[-2].first, found.ratios[-2].second] == pytest.approx(shares)
    document = found.to_json()
    assert list(document) == ["ratios", "confidence", "quantiles_ms", "notes"]
    assert document["confidence"] == 0.95
    assert document["ratios"][0] == found.ratios[0].to_json()
    assert document["quantiles_ms"]["e2e_ms"]["second"] == found.quantiles_ms["e2e_ms"][1]
    nothing = replace(first, status=np.full(120, 3))
    alone = compare(first, nothing)
    assert alone.notes == _notes(first, nothing) != ()
    assert {ratio.metric for ratio in alone.ratios} == {"itl_ms", *rates}
    assert alone.quantiles_ms == {}
    few = compare(record(np.full(39, 100.0)), record(np.full(40, 200.0))).ratios[0]
    assert (few.first, few.second, few.ratio, few.differs) == (50, 100, 2, None)


def test_a_gap_shared_by_three_tokens_is_a_third_of_it() -> None:
    """Ten nanoseconds for three tokens after the first: not 3 ns each."""
    offsets = np.array([100, 110, 110, 110])
    found = other_definitions(rows_of(due_ns=[0]), offsets, np.array([4]))
    for name in ("tpot_by_event_ms", "inter_token_latency_ms"):
        assert found[name]["mean"] == pytest.approx(10 / 3 / 1e6, rel=1e-9)
    assert found["tpot_with_ttft_ms"]["mean"] == pytest.approx(110 / 4 / 1e6, rel=1e-9)
