"""The peak, and the words for how it came about."""

from __future__ import annotations

import math
import time
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tests.questions import plans_with
from tonnage.api.sizing import size, size_measured, size_use_cases
from tonnage.errors import InputError
from tonnage.plan.demand import Demand, DemandSource
from tonnage.plan.plan import Plan
from tonnage.report.plans.question import demand_text
from tonnage.sizing.demand import (
    _weights_above,
    _weights_below,
    carried_by_existing,
    demand_of,
    poisson_peak,
    working_week,
)
from tonnage.spec.recording import Recording


def test_a_peak_is_taken_as_given() -> None:
    d = demand_of(peak_rps=199.77)
    assert (d.peak_requests_per_second, d.sizing_requests_per_second) == (199.77, 199.77)
    assert (d.mean_requests_per_second, d.percentile, d.factor) == (None, None, None)
    assert demand_text(d) == "199.77 requests/s at the peak, as given"


@pytest.mark.parametrize(("mean", "peak"), [(64, 77), (7, 12), (200, 224)])
def test_a_mean_has_the_percentile_of_the_course(mean: float, peak: float) -> None:
    d = demand_of(mean_rps=mean, percentile=95)
    assert d == demand_of(mean_rps=mean)
    assert (
        d.peak_requests_per_second,
        d.sizing_requests_per_second,
        d.mean_requests_per_second,
    ) == (peak, mean, mean)
    said = (
        f"{mean} requests/s: the mean; Tonnage simulates arrivals at this rate, bursts included; "
    )
    assert (
        demand_text(d)
        == f"{said}95th percentile of the arrivals in one second, for comparison: {peak}"
    )


def test_a_factor_of_the_mean() -> None:
    d = demand_of(mean_rps=30_000_000 * 30 / (365 * 86_400), factor=7)
    assert d.peak_requests_per_second == pytest.approx(199.77, abs=0.005)
    assert d.sizing_requests_per_second == d.peak_requests_per_second
    assert demand_text(d) == "199.772 requests/s at the peak: 7 × the mean of 28.5388"


def test_users_over_working_hours_make_a_week() -> None:
    d = demand_of(users=2000, requests_per_user_day=40, working_hours=8.5, factor=3)
    assert d.sizing_requests_per_second == pytest.approx(3 * 80_000 / (8.5 * 3600))
    assert len(d.profile) == 168
    assert sum(d.profile) * 3600 == pytest.approx(5 * 80_000)
    assert sum(d.profile) / 168 == pytest.approx(d.mean_requests_per_second)
    assert [hour for hour in range(24) if d.profile[hour]] == list(range(8, 17))
    assert d.profile[16] == pytest.approx(d.profile[8] / 2)
    assert not any(d.profile[5 * 24 :])


@given(hours=st.floats(0.1, 24), days=st.integers(1, 7))
def test_any_working_week_holds_its_requests(hours: float, days: int) -> None:
    d = demand_of(
        users=10, requests_per_user_day=5, working_hours=hours, working_days=days, percentile=99
    )
    assert d.profile is not None
    assert sum(d.profile) * 3600 == pytest.approx(50 * days)
    assert d.sizing_requests_per_second == pytest.approx(50 / (hours * 3600))


DAY = [1.0, 2.0, 3.0] * 8


def test_a_profile_in_requests_per_second() -> None:
    d = demand_of(profile=DAY)
    assert (d.sizing_requests_per_second, d.mean_requests_per_second, d.profile) == (
        3,
        2,
        tuple(DAY),
    )


@pytest.mark.parametrize(
    ("given_", "scale"),
    [({"mean_rps": 20}, 10), ({"peak_rps": 30}, 10), ({"calls_per_year": 365 * 86_400 * 20}, 10)],
)
def test_a_profile_of_shares(given_: dict[str, float], scale: float) -> None:
    d = demand_of(profile=DAY, **given_)
    assert d.profile == pytest.approx([scale * value for value in DAY])
    assert d.sizing_requests_per_second == pytest.approx(3 * scale)
    assert d.mean_requests_per_second == pytest.approx(2 * scale)


def test_bursts_within_the_busiest_hour() -> None:
    by_percentile, by_factor = (
        demand_of(profile=DAY, percentile=99),
        demand_of(profile=DAY, factor=2),
    )
    assert (by_percentile.sizing_requests_per_second, by_percentile.peak_requests_per_second) == (
        3,
        8,
    )
    assert (by_factor.sizing_requests_per_second, by_factor.mean_requests_per_second) == (6, 2)
    hour = "(profile of 24 hours, mean of all hours 2)"
    assert demand_text(by_percentile).startswith(
        f"3 requests/s: the busiest hour {hour}; Tonnage simulates arrivals at this rate"
    )
    assert demand_text(by_factor) == f"6 requests/s at the peak: 2 × the busiest hour's 3 {hour}"


def test_a_trace_brings_its_own_peak_and_is_burstier_than_poisson() -> None:
    due = [burst * 10**10 + place * 10**7 for burst in range(50) for place in range(20)]
    d = demand_of(trace=Recording(due_ns=tuple(due), source="t.csv"))
    assert (d.peak_second, d.bursty) == (20, True)
    assert d.cv > 4
    assert (
        d.sizing_requests_per_second
        == d.mean_requests_per_second
        == pytest.approx(1000 / 490.19 * 999 / 1000, rel=2e-3)
    )
    assert d.poisson_peak_requests_per_second == 5
    assert "busiest second 20, CV of the gaps" in demand_text(d)


def test_a_job_has_a_throughput() -> None:
    d = demand_of(requests=1e6, within_s=8 * 3600)
    assert d.sizing_requests_per_second == pytest.approx(1e6 / 28_800)
    assert (d.offline_requests, d.offline_seconds) == (1_000_000, 28_800)
    assert demand_text(d) == "1 million requests within 8 h: 34.72 requests/s throughout, no peak"


TRACE = Recording(due_ns=(0, 10**9, 3 * 10**9))


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        ({}, "neither is given"),
        ({"peak_rps": 1, "mean_rps": 1}, "both are given"),
        ({"peak_rps": 1, "mean_rps": 3, "calls_per_year": 3}, "all are given"),
        ({"mean_rps": 1, "percentile": 95, "factor": 2}, "both are given"),
        ({"peak_rps": 1, "percentile": 95}, "is the peak itself"),
        ({"profile": DAY, "peak_rps": 3, "factor": 2}, "is the peak itself"),
        ({"mean_rps": 1, "percentile": 100}, "peak_percentile: 100"),
        ({"mean_rps": 1, "factor": 0.5}, "peak_factor: 0.5"),
        ({"peak_rps": 0}, "peak_rps: 0 is not a rate"),
        ({"mean_rps": math.inf}, "is not a rate"),
        ({"calls_per_year": -3}, "calls_per_year: -3"),
        ({"users": 3}, "requests_per_user_day"),
        ({"users": 3, "requests_per_user_day": 0}, "requests_per_user_day: 0"),
        ({"users": 3, "requests_per_user_day": 1, "working_hours": 25}, "working_hours: 25"),
        ({"users": 3, "requests_per_user_day": 1, "working_days": 8}, "working_days: 8"),
        ({"users": 3, "requests_per_user_day": 1, "profile": DAY}, "profile and users"),
        ({"working_hours": 8, "peak_rps": 1}, "working_hours: goes with users"),
        ({"requests_per_call": 8, "peak_rps": 1}, "requests_per_call: goes with calls_per_year"),
        ({"profile": [1, 2]}, "has 2 values"),
        ({"profile": [0.0] * 24}, "every hour is 0"),
        ({"profile": [math.nan] * 24}, "at hour 0 is not a load"),
        ({"profile": DAY, "trace": TRACE}, "profile and trace"),
        ({"trace": TRACE, "factor": 3}, "trace and peak_factor"),
        ({"trace": TRACE, "percentile": 95, "factor": 3}, "trace and peak_percentile: "),
        ({"trace": TRACE, "peak_rps": 3}, "trace and peak_rps: a trace brings"),
        ({"trace": TRACE, "users": 3, "requests_per_user_day": 1}, "trace and users: a trace"),
        ({"trace": TRACE, "mean_rps": 3, "factor": 3}, "trace and peak_factor: a trace brings"),
        ({"requests": 5, "within_s": 9, "trace": TRACE}, "requests and trace: .* leave trace out"),
        (
            {"requests": 5, "within_s": 9, "percentile": 95, "factor": 3},
            "requests and peak_percentile: .* leave peak_percentile out",
        ),
        ({"requests": 5, "within_s": 9, "profile": DAY}, "profile and requests: each says"),
        ({"requests": 5, "within_s": 2e10}, "within: 2e.10 s is longer than any job"),
        ({"requests": 5, "within_s": math.inf}, "within: a job of at least one request"),
        ({"requests_per_user_day": 3, "working_days": 3}, "requests_per_user_day: goes with users"),
        ({"working_days": 3, "mean_rps": 1}, "working_days: goes with users"),
        ({"users": 3, "working_hours": 3}, "type concurrency 3 for so many requests at once"),
        ({"mean_rps": 9e-301}, "mean_rps: 9e-301 is not a rate"),
        ({"mean_rps": 1e9, "factor": 1.5}, "peak_factor: 1500000000.0 is not a rate"),
        ({"calls_per_year": 1e15, "requests_per_call": 1e3}, "calls_per_year: .* is not a rate"),
        ({"calls_per_year": 3, "requests_per_call": 0}, "requests_per_call: 0 is not a number"),
        ({"users": -3, "requests_per_user_day": 1}, "users: -3 is not a number"),
        ({"users": 1e15, "requests_per_user_day": 1e9}, "users: .* is not a rate"),
        ({"profile": [1.0] * 23 + [1e16]}, "profile: 1e.16 at hour 23 is not a load"),
        ({"profile": [1e12] * 24}, "profile: .* is not a rate"),
        ({"mean_rps": 2, "percentile": math.nan}, "peak_percentile: nan is not a percentile"),
        ({"mean_rps": 2, "factor": math.nan}, "peak_factor: nan is not a factor"),
        ({"requests": 5}, "requests: goes with within"),
        ({"within_s": 5, "peak_rps": 1}, "within: goes with requests"),
        ({"requests": 5, "within_s": 0}, "takes time"),
        ({"requests": 5, "within_s": 10, "factor": 2}, "no peak"),
        ({"requests": math.inf, "within_s": 10}, "requests: inf"),
    ],
)
def test_what_says_nothing_or_too_much_is_refused(given_: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        demand_of(**given_)


NAMES = ("peak_rps", "mean_rps", "percentile", "factor", "users", "requests_per_user_day")
MORE = ("calls_per_year", "requests_per_call", "requests", "within_s")


@given(
    st.dictionaries(
        st.sampled_from(NAMES + MORE), st.floats(allow_nan=True) | st.floats(0, 1e6), max_size=4
    )
)
def test_any_demand_has_a_positive_load_or_is_an_input_error(given_: dict[str, float]) -> None:
    try:
        d = demand_of(**given_)
    except InputError:
        return
    assert 0 < d.sizing_requests_per_second <= d.peak_requests_per_second <= 2e9


# The peak of a second against scipy and against tables.


@given(st.floats(1e-9, 1e6), st.floats(0.01, 99.999))
def test_peak_is_the_quantile_of_scipy(mean: float, percentile: float) -> None:
    k = poisson_peak(mean, percentile)
    wanted = percentile / 100
    assert stats.poisson.cdf(k, mean) >= wanted - 1e-9
    assert k == 0 or stats.poisson.cdf(k - 1, mean) <= wanted + 1e-9


def test_peak_of_a_billion_takes_no_time() -> None:
    start = time.process_time()
    assert poisson_peak(1e9, 95) == int(stats.poisson.ppf(0.95, 1e9))
    assert time.process_time() - start < 5


@pytest.mark.parametrize(
    ("mean", "percentile"),
    [(-1, 95), (math.nan, 95), (math.inf, 95), (2e9, 95), (7, 0), (7, 100), (7, math.nan)],
)
def test_what_cannot_be_is_refused(mean: float, percentile: float) -> None:
    with pytest.raises(InputError, match="cannot be"):
        poisson_peak(mean, percentile)


QUESTION: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "gpu": "h100",
    "tp": "1",
    "precision": "fp8",
    "engine": "vllm",
    "isl": 1_000,
    "osl": 200,
}
LEAVES_OUT = plans_with()


@pytest.mark.parametrize("wanted", [20, 700])
def test_requests_at_once_are_a_rate_times_the_time_of_an_answer(wanted: int) -> None:
    plan = size(**QUESTION, concurrency=wanted, ttft="p95<=1s")
    rate, choice = plan.demand.sizing_requests_per_second, plan.choice
    assert choice is not None
    assert choice.at_peak is not None
    assert rate * choice.at_peak.e2e_ms.mean / 1e3 == pytest.approx(wanted, rel=0.021)
    assert (plan.demand.source.kind, plan.demand.source.concurrency) == ("concurrency", wanted)
    assert demand_text(plan.demand).startswith(f"{wanted} requests at once at the peak: ")
    same = size(**QUESTION, peak_rps=rate, ttft="p95<=1s")
    assert same.choice is not None
    assert (same.choice.pools[0].systems, same.choice.at_peak) == (
        choice.pools[0].systems,
        choice.at_peak,
    )
    assert Plan.from_json(plan.to_json()) == plan


def test_more_requests_at_once_never_take_fewer_systems() -> None:
    found = [size(**QUESTION, concurrency=wanted).choice for wanted in (50, 200, 1_000)]
    exact = [one.systems_exact for one in found if one is not None]
    assert exact == sorted(exact)
    assert len(exact) == 3


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"peak_rps": 5}, "concurrency and peak_rps: do not go together"),
        ({"users": 5, "requests_per_user_day": 3}, "concurrency and users: do not go together"),
        ({"have": "3xdgx-h100"}, "concurrency and have: do not go together"),
        ({"load": "closed"}, "concurrency and load: do not go together"),
        ({"concurrency": 0}, "concurrency: 0 is not possible; write a number from 1"),
        ({"concurrency": -5}, "concurrency: -5 is not possible"),
        ({"concurrency": "many"}, "concurrency: 'many' is not a number"),
    ],
)
def test_requests_at_once_are_the_demand_alone(changes: dict[str, object], says: str) -> None:
    with pytest.raises(InputError, match=says):
        size(**{**QUESTION, "concurrency": 20, **changes})


def test_measured_points_and_use_cases_take_no_requests_at_once(tmp_path: Path) -> None:
    points = tmp_path / "points.csv"
    points.write_text("concurrency,requests_s,ttft_ms,tp,gpus_per_instance\n1,2,30,1,1\n")
    with pytest.raises(InputError, match="concurrency"):
        size_measured(benchmarks=points, concurrency=20)
    with pytest.raises(InputError, match="concurrency is for one use case alone"):
        size_use_cases(
            [{"model": "llama-3.1-8b"}, {"model": "qwen3-8b"}], isl=100, osl=20, concurrency=5
        )


WEEK = [*DAY * 5, *([0.0] * 48)]


@pytest.mark.parametrize(
    ("given_", "demand"),
    [
        (
            {"peak_rps": 5},
            {"peak": 5.0, "sizing": 5.0, "source": {"kind": "peak", "requests_per_second": 5.0}},
        ),
        (
            {"peak_rps": 6, "profile": DAY},
            {
                "peak": 6.0,
                "sizing": 6.0,
                "mean": 4.0,
                "profile": [2 * rate for rate in DAY],
                "source": {"kind": "peak", "requests_per_second": 6.0, "profile_hours": 24},
            },
        ),
        (
            {"calls_per_year": 31_536_000, "requests_per_call": 30, "factor": 2},
            {
                "peak": 60.0,
                "sizing": 60.0,
                "mean": 30.0,
                "factor": 2,
                "source": {
                    "kind": "calls",
                    "requests_per_second": 30.0,
                    "calls_per_year": 31_536_000,
                    "requests_per_call": 30.0,
                },
            },
        ),
        (
            {"calls_per_year": 31_536_000, "percentile": 50},
            {
                "peak": 1.0,
                "sizing": 1.0,
                "mean": 1.0,
                "percentile": 50,
                "source": {
                    "kind": "calls",
                    "requests_per_second": 1.0,
                    "counted": 1.0,
                    "calls_per_year": 31_536_000,
                    "requests_per_call": 1.0,
                },
            },
        ),
        (
            {"mean_rps": 0.001},  # a second without an arrival: the mean is more
            {
                "peak": 0.001,
                "sizing": 0.001,
                "mean": 0.001,
                "percentile": 95.0,
                "source": {"kind": "mean", "requests_per_second": 0.001, "counted": 0.0},
            },
        ),
        (
            {"profile": WEEK},
            {
                "peak": 3.0,
                "sizing": 3.0,
                "mean": 240 / 168,
                "profile": WEEK,
                "source": {"kind": "profile", "profile_hours": 168},
            },
        ),
        (
            {"profile": WEEK, "mean_rps": 10 / 7, "factor": 2},
            {
                "peak": 6.0,
                "sizing": 6.0,
                "mean": 10 / 7,
                "factor": 2,
                "profile": WEEK,
                "source": {
                    "kind": "mean",
                    "requests_per_second": 10 / 7,
                    "profile_hours": 168,
                },
            },
        ),
        (
            {"requests": 7_200, "within_s": 3_600},
            {
                "peak": 2.0,
                "sizing": 2.0,
                "mean": 2.0,
                "source": {"kind": "job"},
                "offline_requests": 7_200,
                "offline_seconds": 3_600,
            },
        ),
        (
            {"users": 360, "requests_per_user_day": 80, "factor": 1},
            {
                "peak": 1.0,
                "sizing": 1.0,
                "mean": 5 * 8 / 168,
                "factor": 1,
                "profile": ([0.0] * 8 + [1.0] * 8 + [0.0] * 8) * 5 + [0.0] * 48,
                "source": {
                    "kind": "users",
                    "requests_per_second": 1.0,
                    "users": 360,
                    "requests_per_user_day": 80,
                    "working_hours": 8.0,
                },
            },
        ),
    ],
)
def test_a_whole_demand_by_hand(given_: dict[str, Any], demand: dict[str, Any]) -> None:
    names = {rate: f"{rate}_requests_per_second" for rate in ("peak", "sizing", "mean")}
    values = {names.get(name, name): value for name, value in demand.items()}
    source = DemandSource(**values.pop("source"))
    profile = values.pop("profile", None)
    found = demand_of(**given_)
    assert found.profile == (None if profile is None else pytest.approx(profile))
    mean = values.pop("mean_requests_per_second", None)
    assert found.mean_requests_per_second == (None if mean is None else pytest.approx(mean))
    bare = replace(found, profile=None, mean_requests_per_second=None, source=source)
    assert bare == Demand(source=source, **values)
    for part in fields(DemandSource):
        value = getattr(source, part.name)
        numeric = isinstance(value, float)
        assert getattr(found.source, part.name) == (pytest.approx(value) if numeric else value)


@pytest.mark.parametrize(
    ("hours", "days", "working"),
    [
        (8.0, 5, range(8, 16)),
        (16.0, 7, range(8, 24)),
        (17.0, 7, range(7, 24)),  # earlier where they do not fit
        (24.0, 1, range(24)),
        (0.5, 2, range(8, 9)),
    ],
)
def test_working_hours_begin_at_eight_where_they_fit(
    hours: float, days: int, working: range
) -> None:
    week = working_week(6.0, hours, days)
    assert len(week) == 168
    for day in range(7):
        rates = week[24 * day : 24 * day + 24]
        assert [hour for hour, rate in enumerate(rates) if rate] == (
            list(working) if day < days else []
        )
        assert sum(rates) == pytest.approx(6.0 * hours if day < days else 0.0)


@pytest.mark.parametrize(
    ("given_", "allowed"),
    [
        ({"mean_rps": 1, "percentile": 1}, True),
        ({"mean_rps": 1, "percentile": 0.99}, False),
        ({"mean_rps": 1, "percentile": 99.99}, True),
        ({"mean_rps": 1, "factor": 1}, True),
        ({"mean_rps": 1, "factor": 0.999}, False),
        ({"peak_rps": 1e9}, True),
        ({"peak_rps": 1e9 + 0.5}, False),
        ({"requests": 0.4, "within_s": 10}, False),
        ({"requests": 0.6, "within_s": 10}, True),
        ({"requests": 5, "within_s": 1e10}, True),
        ({"requests": 1e15, "within_s": 1e10}, True),
        ({"requests": 1e15 + 1, "within_s": 1e10}, False),
        ({"requests": 1e10, "within_s": 1e10 + 0.5}, False),
        ({"users": 3, "requests_per_user_day": 1, "working_days": 1}, True),
        ({"users": 3, "requests_per_user_day": 1, "working_days": 7}, True),
        ({"users": 3, "requests_per_user_day": 1, "working_days": 2.5}, False),
        ({"users": 3, "requests_per_user_day": 1, "working_days": 0}, False),
        ({"users": 3, "requests_per_user_day": 1, "working_hours": 24}, True),
        ({"users": 3, "requests_per_user_day": 1, "working_hours": 0}, False),
        ({"profile": [1.0] * 23}, False),
        ({"profile": [1.0] * 167}, False),
        ({"profile": [1.0] * 23 + [-0.1]}, False),
        ({"profile": [0.0] * 23 + [1.0]}, True),
    ],
)
def test_the_ends_of_what_is_allowed(given_: dict[str, Any], allowed: bool) -> None:
    if allowed:
        assert demand_of(**given_).sizing_requests_per_second > 0
    else:
        with pytest.raises(InputError):
            demand_of(**given_)


def test_the_peak_of_a_trace_is_its_busiest_second_or_its_mean() -> None:
    """Four requests in three seconds, two of them in one."""
    trace = Recording(due_ns=(0, 10**9, 10**9 + 1, 3 * 10**9), source="t.csv")
    found = demand_of(trace=trace)
    assert found.sizing_requests_per_second == found.mean_requests_per_second == trace.mean_rps
    assert (found.peak_requests_per_second, found.peak_second) == (2.0, 2)
    assert found.cv == trace.cv
    assert found.poisson_peak_requests_per_second == poisson_peak(trace.mean_rps, 95)
    assert found.source == DemandSource(
        kind="trace",
        trace="t.csv",
        trace_change=trace.change,
        trace_requests=4,
        trace_seconds=trace.seconds,
    )
    assert carried_by_existing(3.0) == Demand(
        peak_requests_per_second=3.0,
        sizing_requests_per_second=3.0,
        source=DemandSource(kind="existing", requests_per_second=3.0),
    )
    assert carried_by_existing().sizing_requests_per_second == 1.0


@pytest.mark.parametrize(
    ("mean", "percentile", "count"),
    [
        # by the tables of the Poisson distribution
        (0, 95, 0),
        (0.5, 60, 0),
        (0.5, 61, 1),
        (1, 36.7, 0),
        (1, 36.8, 1),
        (1, 73.6, 2),
        (1, 73.5, 1),
        (2.5, 54.3, 2),
        (2.5, 54.4, 3),
        (4, 99, 9),
        (64, 95, 77),
        (10, 50, 10),
        (10, 0.004, 0),
        (10, 0.005, 1),
    ],
)
def test_the_least_count_of_a_percentile(mean: float, percentile: float, count: int) -> None:
    assert poisson_peak(mean, percentile) == count


def test_tails_are_cut_where_they_weigh_nothing() -> None:
    """Of a mean of 2.5: 2 / 2.5 below the mode of two, then 1 / 2.5 of that; 2.5 / 3 above."""
    assert _weights_below(2.5, 2) == pytest.approx([0.8, 0.32])
    above = _weights_above(2.5, 2)
    assert above[:3] == pytest.approx([2.5 / 3, 2.5**2 / 12, 2.5**3 / 60])
    assert above[-1] >= 1e-30 > above[-1] * 2.5 / (2 + len(above) + 1)
    assert _weights_below(0.5, 0) == []
    many = _weights_below(1e4, 10_000)
    assert many[-1] >= 1e-30 > many[-1] * (10_000 - len(many)) / 1e4
    assert many[0] == 1.0
