"""Workloads: the same seed, the same trace; pairs and recorded arrivals by share."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tonnage import simulate
from tonnage.errors import InputError
from tonnage.spec.arrivals import ModulatedArrivals
from tonnage.spec.lengths import Lengths, Pairs
from tonnage.spec.recording import Recording
from tonnage.spec.workload import STRETCH_REQUESTS, STRETCH_S, OpenLoop, TraceArrivals, Workload
from tonnage.units import PS_PER_S

RECORDING = Recording(
    due_ns=tuple(range(0, 10_000_000, 1000)),
    isl=tuple(range(1, 10_001)),
    osl=tuple(range(10_001, 20_001)),
    source="r.csv",
)
ONE = Lengths(mean=1)


def replay(**arrivals: object) -> Workload:
    return Workload(
        isl=ONE, osl=ONE, arrivals=TraceArrivals(recording=RECORDING, **arrivals), requests=10**6
    )


def test_pairs_and_lengths_are_drawn_apart_from_the_gaps() -> None:
    pairs = Pairs(isl=(5, 50), osl=(500, 5000))
    apart = Workload(isl=ONE, osl=ONE, arrivals=OpenLoop(rate=3), requests=200)
    together = Workload(isl=ONE, osl=ONE, arrivals=OpenLoop(rate=3), requests=200, pairs=pairs)
    found = together.trace(7)
    assert set(zip(found.isl.tolist(), found.osl.tolist(), strict=True)) == {(5, 500), (50, 5000)}
    np.testing.assert_array_equal(found.due_ps, apart.trace(7).due_ps)
    found = Workload(
        isl=Lengths(mean=7),
        osl=Lengths(mean=9),
        arrivals=TraceArrivals(recording=RECORDING, lengths=False),
        requests=100,
    ).trace(0)
    assert (set(found.isl.tolist()), set(found.osl.tolist()), len(found)) == ({7}, {9}, 100)


def test_the_whole_recording_is_replayed_as_it_came() -> None:
    found = replay().trace(0)
    np.testing.assert_array_equal(found.due_ps, np.array(RECORDING.due_ns) * 1000)
    np.testing.assert_array_equal(found.isl, RECORDING.isl)
    np.testing.assert_array_equal(found.osl, RECORDING.osl)
    assert found.concurrency == 0


@pytest.mark.parametrize("split", ["random", "round-robin"])
def test_a_share_keeps_each_request_with_its_lengths(split: str) -> None:
    found = replay(share=0.25, split=split).trace(3)
    assert len(found) == pytest.approx(2500, rel=0.06)
    np.testing.assert_array_equal(found.osl - found.isl, 10_000)
    assert (np.diff(found.isl) > 0).all()
    np.testing.assert_array_equal(np.diff(found.due_ps), np.diff(found.isl) * 1_000_000)


def test_what_a_share_is() -> None:
    assert len(replay(share=1e-9).trace(0)) == 1
    assert set(np.diff(replay(share=0.25, split="round-robin").trace(1).isl).tolist()) == {4}
    assert TraceArrivals(recording=RECORDING, share=0.1).rate == pytest.approx(
        RECORDING.mean_rps / 10
    )
    for share in (0, -1, 1.1, float("nan")):
        with pytest.raises(InputError, match="not a share"):
            replay(share=share).trace(0)


def slow(rate: float, process: str = "poisson", cv: float = 1.0, requests: int = 4_000) -> Workload:
    return Workload(
        isl=Lengths(mean=300, std=100),
        osl=ONE,
        arrivals=OpenLoop(rate=rate, process=process, cv=cv),
        requests=requests,
    )


@pytest.mark.parametrize(
    ("process", "cv"), [("poisson", 1.0), ("constant", 1.0), ("gamma", 2.0), ("gamma", 50.0)]
)
@pytest.mark.parametrize("rate", [1e-4, 1000 / 31_536_000, 1e-6, 1e-9, 1e-320])
def test_a_stretch_of_slow_traffic_fits_simulated_time(
    rate: float, process: str, cv: float
) -> None:
    found = slow(rate, process, cv).trace(3, stretch=True)
    assert STRETCH_REQUESTS <= len(found) <= 4_000
    assert found.due_ps[0] >= 0
    assert (np.diff(found.due_ps) >= 0).all()
    assert found.due_ps[-1] <= 2 * STRETCH_S * 10**12 - 1
    assert len(found.isl) == len(found.osl) == len(found)


def test_a_stretch_begins_as_the_whole_would() -> None:
    whole, part = slow(1.25e-4, requests=800).trace(3), slow(1.25e-4).trace(3, stretch=True)
    assert 400 < len(part) < 600
    np.testing.assert_array_equal(part.due_ps, whole.due_ps[: len(part)])
    whole, part = slow(1e-3).trace(3), slow(1e-3).trace(3, stretch=True)
    np.testing.assert_array_equal(part.due_ps, whole.due_ps)
    np.testing.assert_array_equal(part.isl, whole.isl)
    with pytest.raises(InputError, match="4,000 at 1e-05 a second come over more than 9,000,000 s"):
        slow(1e-5).trace(3)


# Markov-modulated Poisson arrivals against their closed forms.


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
