"""A history as a scenario: the week, the lengths, the growth and what a cache found."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from tests.watch.served_weeks import DAY, HOUR, WEEK_SHAPE, Weeks, weeks
from tests.workload.prometheus_history import BOUNDS, MONDAY, TRUE, answer, exported, series
from tonnage import simulate
from tonnage.api.compare import read_history
from tonnage.formats.prometheus import curves
from tonnage.spec.lengths import parse_lengths
from tonnage.workload.history import History, history_of
from tonnage.workload.history_fit import HistoryFit, fit_history

SCRAPED_FROM = 1_793_577_600.0
"""When the two weeks of examples/chat-weeks.json began, a Monday."""


@pytest.fixture(scope="module")
def fit(history: History) -> HistoryFit:
    return fit_history(history, "week", model="llama-3.1-8b")


def test_the_scenario_has_the_week_the_lengths_and_the_growth(fit: HistoryFit) -> None:
    last_week = TRUE.due >= 8 * DAY
    assert np.mean(fit.profile) == pytest.approx(last_week.sum() / 7 / DAY, rel=1e-6)
    assert np.corrcoef(fit.profile, WEEK_SHAPE)[0, 1] > 0.95
    for side, one in (("isl", fit.isl), ("osl", fit.osl)):
        lengths = getattr(TRUE, side)[last_week]
        drawn = parse_lengths(one.written, "").draw(100_000, np.random.default_rng(0))
        assert one.mean == pytest.approx(lengths.mean())
        assert drawn.mean() == pytest.approx(lengths.mean(), rel=0.03)
        assert one.p95[0] <= np.percentile(lengths, 95) <= one.p95[1]
        assert one.p95[0] <= np.percentile(drawn, 95) <= one.p95[1]
    growth = fit.growth
    assert growth.by_weekday
    assert growth.low < 0.03 < growth.high
    assert growth.per_day == pytest.approx(0.03, abs=0.003)
    assert fit.dispersion == pytest.approx(1.0, abs=0.1)
    assert fit.scenario.search.arrivals is None


def test_the_break_is_where_the_trend_meets_the_ratio(fit: HistoryFit) -> None:
    growth = fit.growth
    middle, early, late = growth.until(1.5)
    assert middle == pytest.approx(math.log(1.5) / 0.03, abs=2)  # days
    assert early < middle < late
    assert growth.until(0.9) == (0.0, 0.0, 0.0)


def test_buckets_that_no_distribution_fits_are_filled() -> None:
    rng = np.random.default_rng(1)
    isl = np.where(rng.random(TRUE.due.size) < 0.5, 30, rng.integers(3_000, 4_000, TRUE.due.size))
    rows = exported(Weeks(due=TRUE.due, isl=isl, osl=TRUE.osl), days=15)
    found = fit_history(history_of(curves([answer(rows)], "x"), "x"), "week")
    assert (found.isl.how, found.osl.how) == ("buckets", "distribution")
    values = np.array(
        [line.split(",") for line in found.files["week.isl.csv"].splitlines()[1:]], dtype=float
    )
    assert np.average(values[:, 0], weights=values[:, 1]) == pytest.approx(
        isl[TRUE.due >= 8 * DAY].mean(), rel=0.01
    )


def test_requests_are_counted_as_their_series_are(
    history: History, fit: HistoryFit, tmp_path: Path
) -> None:
    path = tmp_path / "log.csv"
    rows = zip(TRUE.due, TRUE.isl, TRUE.osl, strict=True)
    path.write_text(
        "timestamp,isl,osl\n"
        + "".join(f"{MONDAY + due:.3f},{isl},{osl}\n" for due, isl, osl in rows)
    )
    found = read_history(str(path))
    assert found.at(0) == history.at(0)
    assert found.requests[1:-1] == pytest.approx(history.requests[1:-1])
    other = fit_history(found, "week")
    assert other.profile == pytest.approx(fit.profile, rel=0.02)
    assert other.isl.mean == pytest.approx(fit.isl.mean, rel=0.02)


def test_a_file_that_a_real_prometheus_answered() -> None:
    """34,880 requests of a simulated engine over two weeks, which ``test_real_prometheus.py`` made
    and scraped."""
    made = weeks(days=14, a_day=2_000, growth_per_day=0.03)
    found = read_history("examples/chat-weeks.json")
    fit = fit_history(found, "week")
    first = (found.start_s + np.flatnonzero(found.seen)[0] * HOUR - SCRAPED_FROM) % DAY
    assert fit.mean_rps == pytest.approx((made.due > first).sum() / (14 * DAY - first), rel=0.02)
    last_week = made.due >= 7 * DAY
    for one, lengths in ((fit.isl, made.isl[last_week]), (fit.osl, made.osl[last_week])):
        assert one.mean == pytest.approx(lengths.mean(), rel=0.03)
        assert one.p95[0] <= np.percentile(lengths, 95) <= one.p95[1]
    assert fit.growth.by_weekday
    assert fit.growth.low < 0.03 < fit.growth.high


def test_what_a_cache_found_becomes_a_common_beginning_that_a_simulation_finds_as_often() -> None:
    """Prompts of 1,100 to 2,100 tokens, of which 450 are common and cached; where the shortest are
    shorter than that, nothing is."""
    times = MONDAY + np.arange(0, 7_201, 60.0)
    counts, isl = times - MONDAY, np.linspace(1_100, 2_100, 101)
    rows = [series("vllm:e2e_request_latency_seconds_count", times, counts)]
    for name, lengths in (
        ("vllm:request_prompt_tokens", isl),
        ("vllm:request_generation_tokens", np.full(1, 40.0)),
    ):
        rows.append(series(f"{name}_sum", times, counts * lengths.mean()))
        rows += [
            series(f"{name}_bucket", times, counts * (lengths <= bound).mean(), le=str(bound))
            for bound in BOUNDS
        ]

    def fitted(cached: int) -> HistoryFit:
        told = {
            "vllm:prefix_cache_queries_total": isl.mean(),
            "vllm:prefix_cache_hits_total": cached,
        }
        both = [series(name, times, counts * tokens) for name, tokens in told.items()]
        return fit_history(
            history_of(curves([answer([*rows, *both])], "x"), "x"), "hours", model="llama-3.1-8b"
        )

    found = fitted(450)
    assert found.scenario.sessions.shared_prefix == 450
    assert any("450 tokens in common" in gap for gap in found.gaps)
    rest = parse_lengths(str(found.scenario.lengths.isl), "isl").mean
    assert rest + 450 == pytest.approx(isl.mean(), rel=0.01)
    asked = {
        "isl": round(rest),
        "osl": 40,
        "shared_prefix": 450,
        "request_rate": 4,
        "requests": 200,
    }
    made = simulate(model="llama-3.1-8b", gpu="h100", engine="vllm", **asked)
    assert made.hit_rate == pytest.approx(450 / isl.mean(), rel=0.05)
    apart = fitted(1_200)
    assert apart.scenario.sessions.shared_prefix is None
    assert any("shares nothing" in gap for gap in apart.gaps)
