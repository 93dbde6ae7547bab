"""Histories: hours, lengths and growth out of the series of a Prometheus, against the requests that
they were made of."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.watch.served_weeks import DAY, HOUR, WEEK_SHAPE, Weeks, weeks
from tests.workload.prometheus_history import BOUNDS, MONDAY, STEP, TRUE, answer, exported, series
from tonnage import simulate
from tonnage.api.compare import read_history
from tonnage.api.sizing import ask
from tonnage.cli.main import run
from tonnage.errors import InputError, in_python
from tonnage.formats.prometheus import INCREASE, curves
from tonnage.spec.lengths import parse_lengths
from tonnage.workload.history import History, history_of
from tonnage.workload.history_fit import HistoryFit, fit_history

SCRAPED_FROM = 1_793_577_600.0
"""When the two weeks of examples/chat-weeks.json began, a Monday."""


@pytest.fixture(scope="module")
def history() -> History:
    return history_of(curves([answer(exported(TRUE, days=15))], "x"), "x")


@pytest.fixture(scope="module")
def fit(history: History) -> HistoryFit:
    return fit_history(history, "week", model="llama-3.1-8b")


def test_hours_are_those_of_the_requests(history: History) -> None:
    assert history.engine == "vllm"
    assert history.at(0).isoformat() == "2026-10-26T00:00:00+00:00"
    assert history.requests == pytest.approx(
        np.bincount((TRUE.due // HOUR).astype(int), minlength=15 * 24)
    )
    assert (history.fine_s, history.fine.size) == (STEP, 15 * 144)
    assert set(history.instances) == {1.0}


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


def test_instances_are_added_and_a_restart_loses_what_no_sample_saw(history: History) -> None:
    half = [Weeks(due=TRUE.due[k::2], isl=TRUE.isl[k::2], osl=TRUE.osl[k::2]) for k in (0, 1)]
    rows = exported(half[0], days=15, instance="a") + exported(
        half[1], days=15, instance="b", restart_s=5 * DAY + 90
    )
    two = history_of(curves([answer(rows)], "x"), "x")
    assert set(two.instances) == {2.0}
    lost = int(((half[1].due >= 5 * DAY) & (half[1].due < 5 * DAY + 90)).sum())
    assert history.requests.sum() - two.requests.sum() == pytest.approx(lost)


def test_growths_over_hours_are_read_as_the_counters_are(history: History) -> None:
    rows = []
    for row in exported(TRUE, days=15):
        name, values = row["metric"]["__name__"], np.array(row["values"], dtype=float)
        if "_bucket" in name or name.endswith("_sum"):
            hourly = values[:: int(HOUR / STEP)]
            labels = {key: value for key, value in row["metric"].items() if key != "__name__"}
            rows.append(series(name + INCREASE, hourly[1:, 0], np.diff(hourly[:, 1]), **labels))
        else:
            rows.append(row)
    found = history_of(curves([answer(rows)], "x"), "x")
    for side, one in history.histograms.items():
        assert found.histograms[side].counts == pytest.approx(one.counts)
        assert found.histograms[side].totals == pytest.approx(one.totals)


def test_an_hour_without_samples_is_left_out(history: History) -> None:
    rows = exported(TRUE, days=15)
    for row in rows:
        row["values"] = [
            pair for pair in row["values"] if not 50 * HOUR < pair[0] - MONDAY < 53 * HOUR
        ]
    found = history_of(curves([answer(rows)], "x"), "x")
    assert np.flatnonzero(~found.seen).tolist() == [50, 51, 52]
    assert any("3 of 360 hours" in line for line in fit_history(found, "week").gaps)


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


def test_the_command_writes_a_scenario_that_size_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = tmp_path / "history.json", tmp_path / "week.yaml"
    source.write_text(json.dumps(answer(exported(TRUE, days=15))))
    assert (
        run(
            [
                "workload",
                "from-prometheus",
                str(source),
                "--output",
                str(target),
                "--model",
                "llama-3.1-8b",
            ]
        )
        == 0
    )
    said = capsys.readouterr().out
    assert "Requests change by +1" in said  # 3 % a day are 149 % a month
    assert "Not seen: bursts shorter than 600 s" in said
    question = ask(target, ttft="p95<=1s").questions[0]
    assert len(question.demand.profile) == 168
    assert question.demand.peak_requests_per_second == max(question.demand.profile)


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


@pytest.mark.parametrize(
    ("document", "says"),
    [
        (
            {"status": "error", "data": {}, "error": "query timed out"},
            "Prometheus says: query timed out",
        ),
        ({"status": "success", "data": {"resultType": "vector", "result": []}}, "is not a matrix"),
        (answer([{"metric": {"le": "1"}, "values": [[0, "1"], [60, "2"]]}]), "has no __name__"),
        (
            answer([series("up", np.array([0.0, 60.0]), np.array([1.0, 1.0]))]),
            "has no counter of requests that is known",
        ),
        (
            answer(
                [
                    series(
                        "vllm:e2e_request_latency_seconds_count",
                        np.array([0.0, 60.0]),
                        np.array([1.0, 2.0]),
                    )
                ]
            ),
            "holds 1 minutes",
        ),
    ],
)
def test_what_is_no_history_is_refused(
    document: dict[str, Any], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "history.json"
    path.write_text(json.dumps(document))
    assert run(["workload", "from-prometheus", str(path)]) == 2
    assert says in capsys.readouterr().err


def test_a_history_without_lengths_asks_for_them() -> None:
    rows = [row for row in exported(TRUE, days=15) if "latency" in row["metric"]["__name__"]]
    found = history_of(curves([answer(rows)], "x"), "x")
    with pytest.raises(InputError, match="says no lengths of prompts; give"):
        fit_history(found, "week")
    given = fit_history(found, "week", isl="600", osl="40")
    assert given.scenario.lengths.isl == "600"
    assert given.to_json()["isl"]["mean"] is None


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


FIELD = Path(__file__).parents[3] / "shared" / "field" / "measuring"


@pytest.mark.parametrize(
    ("place", "select", "requests", "remark"),
    [
        ("108/prom_ha.json", "", 129_600, "differ in prometheus_replica alone"),
        (
            "110/prom_two_models.json",
            "",
            648_000,
            "(llama, other); one of them alone is read with select 'model_name=\"llama\"'",
        ),
        ("110/prom_two_models.json", 'model_name="llama"', 129_600, None),
        ("110/prom_two_models.json", 'model_name!~"ll.*",instance="10.0.0.2:8000"', 518_400, None),
    ],
)
def test_histories_of_the_field(place: str, select: str, requests: int, remark: str | None) -> None:
    if not (FIELD / place).exists():
        pytest.skip("the cases from the field are not here")
    found = read_history(str(FIELD / place), select=select)
    assert np.nansum(found.requests) == requests
    assert [remark in in_python(one) for one in found.remarks if remark] == (
        [True] if remark else []
    )
