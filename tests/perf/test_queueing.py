"""Closed forms against scipy, against tables, and against each other."""

from __future__ import annotations

import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tonnage.errors import InputError
from tonnage.perf.queueing import erlang_b, erlang_c, md1_wait, mg1_wait, mm1_wait, mmc_wait, poisson_peak


@pytest.mark.parametrize(("mean", "peak"), [(64, 77), (7, 12), (200, 224), (0, 0), (0.01, 0), (1e6, 1_001_645)])
def test_peaks_of_the_course_and_of_a_table(mean: float, peak: int) -> None:
    assert poisson_peak(mean, 95) == peak


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


@pytest.mark.parametrize(("mean", "percentile"), [(-1, 95), (math.nan, 95), (math.inf, 95), (2e9, 95), (7, 0), (7, 100), (7, math.nan)])
def test_what_cannot_be_is_refused(mean: float, percentile: float) -> None:
    with pytest.raises(InputError, match="cannot be"):
        poisson_peak(mean, percentile)


@given(st.floats(0.01, 200), st.integers(1, 300))
def test_erlang_b_is_a_truncated_poisson(offered: float, servers: int) -> None:
    truncated = stats.poisson.pmf(servers, offered) / stats.poisson.cdf(servers, offered)
    assert erlang_b(offered, servers) == pytest.approx(truncated, rel=1e-6, abs=1e-300)


def test_erlang_of_known_tables() -> None:
    assert erlang_b(10, 10) == pytest.approx(0.2146, abs=5e-5)
    assert erlang_c(8, 10) == pytest.approx(0.4092, abs=5e-5)
    assert erlang_c(0, 1) == 0
    assert erlang_c(12, 10) == 1


@given(st.floats(0.001, 0.999), st.floats(1e-3, 100))
def test_one_server_forms_agree(utilisation: float, service: float) -> None:
    rate = utilisation / service
    assert mm1_wait(rate, service) == pytest.approx(mmc_wait(rate, service, 1), rel=1e-6)
    assert md1_wait(rate, service) == pytest.approx(mm1_wait(rate, service) / 2)
    assert md1_wait(rate, service) <= mg1_wait(rate, service, 0.5) <= mm1_wait(rate, service)


def test_known_waits() -> None:
    assert mm1_wait(0.8, 1) == pytest.approx(4)
    assert md1_wait(0.8, 1) == pytest.approx(2)
    assert mg1_wait(0.8, 1, 0.5**0.5) == pytest.approx(3)
    assert mg1_wait(0.4, 2, 2) == pytest.approx(20)
    assert mmc_wait(8, 1, 10) == pytest.approx(0.4092 / 2, abs=5e-5)
    assert mm1_wait(1, 1) == mmc_wait(10, 1, 10) == math.inf


@pytest.mark.parametrize("call", [lambda: erlang_b(-1, 1), lambda: erlang_c(1, 0), lambda: mm1_wait(math.nan, 1)])
def test_loads_that_cannot_be_are_refused(call: object) -> None:
    with pytest.raises(InputError):
        call()
