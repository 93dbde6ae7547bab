"""Arrivals: two states, their dispersion, and requests by the hour."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tonnage import simulate
from tonnage.errors import InputError
from tonnage.spec.arrivals import HourlyArrivals, ModulatedArrivals
from tonnage.units import PS_PER_S

STATES = ModulatedArrivals(rates=(2.0, 20.0), stays_s=(60.0, 10.0))


def due_s(arrivals: ModulatedArrivals, count: int, seed: int) -> np.ndarray:
    return arrivals.due_ps(count, np.random.default_rng(seed)) / PS_PER_S


def index_of_dispersion(arrivals: ModulatedArrivals, seconds: float) -> float:
    """Variance of the requests in an interval over their mean, in equilibrium (Fischer and
    Meier-Hellstern, 1993)."""
    leaving = 1 / arrivals.stays_s[0] + 1 / arrivals.stays_s[1]
    spread = (
        2
        * arrivals.share
        * (1 - arrivals.share)
        * (arrivals.rates[0] - arrivals.rates[1]) ** 2
        / (leaving * arrivals.rate)
    )
    return 1 + spread * (1 + math.expm1(-leaving * seconds) / (leaving * seconds))


def test_two_states_have_the_mean_rate_by_their_time_from_the_first_second_on() -> None:
    assert STATES.rate == pytest.approx((2 * 60 + 20 * 10) / 70)
    due = due_s(STATES, 1_000_000, 1)
    assert len(due) / due[-1] == pytest.approx(STATES.rate, rel=0.02)
    assert (np.diff(due) >= 0).all()
    first = [np.searchsorted(due_s(STATES, 60, seed), 1.0) for seed in range(3_000)]
    assert np.mean(first) == pytest.approx(STATES.rate, rel=0.08)
    faster = STATES.at_mean(14.0)
    assert faster.rate == pytest.approx(14)
    assert faster.stays_s == STATES.stays_s
    assert faster.rates[1] / faster.rates[0] == pytest.approx(10)


@pytest.mark.parametrize(
    "states",
    [STATES, ModulatedArrivals(rates=(0.0, 5.0), stays_s=(8.0, 2.0))],
    ids=["busy", "interrupted"],
)
@pytest.mark.parametrize("seconds", [1, 10, 60])
def test_the_index_of_dispersion_is_the_closed_form(
    states: ModulatedArrivals, seconds: float
) -> None:
    due = due_s(states, 1_000_000, 2)
    counts = np.bincount((due // seconds).astype(np.int64))[:-1]
    assert counts.var() / counts.mean() == pytest.approx(
        index_of_dispersion(states, seconds), rel=0.08
    )


ASKED = {"model": "llama-3.1-8b", "isl": 500, "osl": 50, "requests": 400, "arrivals": "mmpp"}


def test_states_of_the_same_mean_wait_longer_than_poisson() -> None:
    busy = simulate(**ASKED, mmpp="2/s for 20s, 60/s for 4s", request_rate=12)
    plain = simulate(**ASKED | {"arrivals": "poisson"}, request_rate=12)
    assert busy.workload.arrivals.rate == pytest.approx(12)
    assert busy.summary.ttft_ms.p95 > plain.summary.ttft_ms.p95
    assert busy.scenario()["arrivals"]["stays_s"] == (20.0, 4.0)
    for more, said in [
        ({}, "needs the two states"),
        ({"mmpp": "2/s for 20s"}, "not two states"),
        ({"mmpp": "2 for 20s, 3/s for 4s"}, "not two states"),
        ({"mmpp": "0/s for 20s, 0/s for 4s"}, "no requests"),
        ({"mmpp": "2/s for 0s, 3/s for 4s"}, "no time"),
        ({"mmpp": "2/s for 20s, 3/s for 4s", "concurrency": 3}, "open loop"),
        (
            {"mmpp": "2/s for 20s, 3/s for 4s", "arrivals": "poisson", "request_rate": 1},
            "belongs to",
        ),
    ]:
        with pytest.raises(InputError, match=said):
            simulate(**ASKED | more)


def test_requests_come_by_the_hour() -> None:
    hours = HourlyArrivals(hours=(2.0, 0.0, 6.0))
    due = hours.due_ps(np.random.default_rng(1))
    counts = np.bincount(due // (3_600 * 10**12), minlength=3)
    assert counts.tolist() == [pytest.approx(7_200, rel=0.05), 0, pytest.approx(21_600, rel=0.03)]
    assert (np.diff(due) >= 0).all()
    assert hours.at_mean(1.0).rate == pytest.approx(1.0)
    gaps = np.diff(due[: counts[0]]) / 1e12
    assert gaps.std() / gaps.mean() == pytest.approx(1.0, abs=0.05)
