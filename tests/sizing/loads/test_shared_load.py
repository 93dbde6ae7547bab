"""The requests that an instance gets of a shared workload."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.sizing.loads.fleets import trace
from tonnage.sizing.loads.shared_load import _scheduled, balanced_trace
from tonnage.spec.lengths import Lengths, Pairs, parse_lengths
from tonnage.spec.sessions import Pause, Sessions
from tonnage.spec.workload import OpenLoop, Workload


@pytest.mark.parametrize("arrivals", [{}, {"process": "gamma", "cv": 2.0}, {"process": "constant"}])
def test_the_mean_rate_is_exact(arrivals: dict[str, Any]) -> None:
    found = trace(**arrivals)
    assert found.due_ps[-1] / 1e12 == pytest.approx(4_000 / 3.0, rel=1e-9)
    assert (np.diff(found.due_ps) >= 0).all()


@pytest.mark.parametrize(
    "isl", ["lognormal:2000,2000", "2000+-500", "uniform:100-900", "histogram:100:0.2,500:0.8"]
)
def test_lengths_keep_their_distribution_and_their_mean(isl: str) -> None:
    lengths = parse_lengths(isl, "isl")
    found = trace(isl).isl
    reference = lengths.draw(400_000, np.random.default_rng(7))
    assert found.mean() == pytest.approx(reference.mean(), rel=0.005)
    for share in (10, 50, 90, 99):
        assert np.percentile(found, share) == pytest.approx(
            np.percentile(reference, share), rel=0.03
        )


def test_gaps_keep_their_coefficient_of_variation() -> None:
    for process, cv in (("poisson", 1.0), ("gamma", 2.0), ("gamma", 0.5)):
        gaps = np.diff(trace(requests=40_000, process=process, cv=cv).due_ps)
        assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.05)


def test_prompts_and_outputs_are_drawn_apart_and_in_no_order() -> None:
    found = trace(requests=20_000)
    assert abs(np.corrcoef(found.isl, found.osl)[0, 1]) < 0.03
    assert abs(np.corrcoef(found.isl[1:], found.isl[:-1])[0, 1]) < 0.03


def test_another_rate_stretches_the_same_gaps() -> None:
    slow, fast = trace(rate=1.0), trace(rate=4.0)
    np.testing.assert_allclose(slow.due_ps, 4.0 * fast.due_ps, rtol=1e-9, atol=4)
    np.testing.assert_array_equal(slow.isl, fast.isl)
    assert not np.array_equal(slow.isl, trace(rate=1.0, seed=1).isl)


def test_pairs_stay_together() -> None:
    pairs = Pairs(isl=(100, 200, 3_000), osl=(1, 2, 30), source="made up")
    loop = OpenLoop(rate=1.0)
    work = Workload(
        isl=pairs.lengths()[0], osl=pairs.lengths()[1], arrivals=loop, requests=300, pairs=pairs
    )
    found = balanced_trace(work, loop, 0)
    np.testing.assert_array_equal(found.isl, 100 * found.osl)
    assert {
        int(length): int(count)
        for length, count in zip(*np.unique(found.isl, return_counts=True), strict=True)
    } == pytest.approx({100: 100, 200: 100, 3_000: 100}, abs=4)


def test_a_share_of_all_turns_is_of_every_place_in_the_conversations_that_were_asked_for() -> None:
    """Five turns of 100 new tokens and 10 of an answer: prompts of 100, 210, 320, 430 and 540
    tokens, as many of each."""
    turns, think = Lengths(mean=5.0), Pause(mean_s=20.0)
    workload = Workload(
        isl=Lengths(mean=100),
        osl=Lengths(mean=10),
        arrivals=OpenLoop(rate=2.0),
        requests=2_000,
        sessions=Sessions(turns=turns, think=think),
    )
    trace = _scheduled(workload, OpenLoop(rate=20.0), 3, 0.1, 10**12)
    prompts, counts = np.unique(trace.isl, return_counts=True)
    assert prompts.tolist() == [100, 210, 320, 430, 540]
    assert counts == pytest.approx(400, rel=0.2)
    early = trace.isl[trace.due_ps < 100 * 10**12]
    assert np.unique(early, return_counts=True)[1] == pytest.approx(40, rel=0.5), (
        "conversations began before the run"
    )
    assert len(trace) / (trace.due_ps.max() / 1e12) == pytest.approx(2.0, rel=0.1)
