"""The peak of a second against scipy and against tables."""

from __future__ import annotations

import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tonnage.errors import InputError
from tonnage.sizing.demand import poisson_peak


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
