"""Workloads: the same seed, the same trace; pairs and recorded arrivals by share."""

from __future__ import annotations

import numpy as np
import pytest

from tonnage.errors import InputError
from tonnage.spec.lengths import Lengths, Pairs
from tonnage.spec.recording import Recording
from tonnage.spec.workload import STRETCH_REQUESTS, STRETCH_S, OpenLoop, TraceArrivals, Workload

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
