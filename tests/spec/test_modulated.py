"""Markov-modulated Poisson arrivals against their closed forms."""

from __future__ import annotations

import numpy as np
import pytest

from tonnage import simulate
from tonnage.errors import InputError
from tonnage.spec.arrivals import ModulatedArrivals
from tonnage.spec.lengths import Lengths
from tonnage.spec.workload import Workload
from tonnage.units import PS_PER_S

STATES = ModulatedArrivals(rates=(2.0, 20.0), stays_s=(60.0, 10.0))


def due_s(arrivals: ModulatedArrivals, count: int, seed: int) -> np.ndarray:
    return arrivals.due_ps(count, np.random.default_rng(seed)) / PS_PER_S


def test_the_mean_rate_is_that_of_both_states_by_their_time() -> None:
    assert STATES.rate == pytest.approx((2 * 60 + 20 * 10) / 70)
    due = due_s(STATES, 1_000_000, 1)
    assert len(due) / due[-1] == pytest.approx(STATES.rate, rel=0.02)
    assert (np.diff(due) >= 0).all()


@pytest.mark.parametrize("states", [STATES, ModulatedArrivals(rates=(0.0, 5.0), stays_s=(8.0, 2.0))], ids=["busy", "interrupted"])
@pytest.mark.parametrize("seconds", [1, 10, 60])
def test_the_index_of_dispersion_is_the_closed_form(states: ModulatedArrivals, seconds: float) -> None:
    due = due_s(states, 1_000_000, 2)
    counts = np.bincount((due // seconds).astype(np.int64))[:-1]
    assert counts.var() / counts.mean() == pytest.approx(states.index_of_dispersion(seconds), rel=0.08)


def test_its_ends_are_poisson_and_the_limit() -> None:
    assert STATES.index_of_dispersion(1e-9) == pytest.approx(1, abs=1e-6)
    share, leaving = 6 / 7, 1 / 60 + 1 / 10
    limit = 1 + 2 * share * (1 - share) * 18**2 / (leaving * STATES.rate)
    assert STATES.index_of_dispersion(1e9) == pytest.approx(limit)
    even = ModulatedArrivals(rates=(5.0, 5.0), stays_s=(1.0, 3.0))
    assert even.index_of_dispersion(10) == 1


def test_the_first_state_is_drawn_in_equilibrium() -> None:
    """Over many seeds the first second has the mean rate, not that of the first state."""
    first = [np.searchsorted(due_s(STATES, 60, seed), 1.0) for seed in range(3_000)]
    assert np.mean(first) == pytest.approx(STATES.rate, rel=0.08)


def test_another_mean_keeps_the_stays() -> None:
    faster = STATES.at_mean(14.0)
    assert faster.rate == pytest.approx(14)
    assert faster.stays_s == STATES.stays_s
    assert faster.rates[1] / faster.rates[0] == pytest.approx(10)


def test_a_workload_of_two_states_is_reproducible_and_shares_its_lengths() -> None:
    work = Workload(isl=Lengths(kind="uniform", mean=100, std=30), osl=Lengths(mean=5), arrivals=STATES, requests=500)
    one, other = work.trace(4), work.trace(4)
    assert one.due_ps.tolist() == other.due_ps.tolist()
    assert work.trace(5).due_ps.tolist() != one.due_ps.tolist()


ASKED = {"model": "llama-3.1-8b", "isl": 500, "osl": 50, "requests": 400, "arrivals": "mmpp"}


def test_states_of_the_same_mean_wait_longer_than_poisson() -> None:
    busy = simulate(**ASKED, mmpp="2/s for 20s, 60/s for 4s", request_rate=12)
    plain = simulate(**ASKED | {"arrivals": "poisson"}, request_rate=12)
    assert busy.workload.arrivals.rate == pytest.approx(12)
    assert busy.summary.ttft_ms.p95 > plain.summary.ttft_ms.p95
    assert busy.scenario()["arrivals"]["stays_s"] == (20.0, 4.0)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({}, "needs the two states"),
        ({"mmpp": "2/s for 20s"}, "not two states"),
        ({"mmpp": "2 for 20s, 3/s for 4s"}, "not two states"),
        ({"mmpp": "0/s for 20s, 0/s for 4s"}, "no requests"),
        ({"mmpp": "2/s for 0s, 3/s for 4s"}, "no time"),
        ({"mmpp": "2/s for 20s, 3/s for 4s", "concurrency": 3}, "open loop"),
        ({"mmpp": "2/s for 20s, 3/s for 4s", "arrivals": "poisson", "request_rate": 1}, "belongs to"),
    ],
)
def test_states_that_cannot_be_are_refused(more: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        simulate(**ASKED | more)
