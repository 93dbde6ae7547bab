"""Recorded traffic over whole numbers of instances, held against a brute force and against Poisson arrivals."""

import math
from dataclasses import replace

import numpy as np
import pytest

from tests.questions import contender, question
from tonnage.plan.reason import BrokenAtAnyLoad
from tonnage.sizing.loads.capacity import Capacity, replay_capacity
from tonnage.sizing.loads.fleet_check import Replayed, fleet_seen
from tonnage.sizing.loads.load_scan import worst_limit
from tonnage.sizing.planner import size
from tonnage.sizing.question import Question
from tonnage.sizing.search.contender import Contender
from tonnage.spec.recording import Recording


def recording(bursts: bool, count: int = 3_000, rps: float = 200.0) -> Recording:
    """Poisson arrivals, or groups of 60 at once."""
    rng = np.random.default_rng(5)
    gaps = rng.exponential(1e9 / rps, count)
    if bursts:
        gaps = np.where(np.arange(count) % 60 == 0, 60 * gaps, 0)
    due = np.cumsum(gaps).astype(np.int64)
    return Recording(due_ns=tuple(int(d) for d in due - due[0]), source="made up")


def asked(bursts: bool) -> Question:
    """As sure as the prediction is, so that limits are held as they are."""
    traffic = recording(bursts)
    base = question(tp="1", ttft="p95<=150ms", peak_rps=traffic.mean_rps, confidence=50)
    return replace(base, recording=traffic, deepen=False)


def alone() -> Contender:
    return contender(tp="1", ttft="p95<=150ms")


def capacity(one: Contender, traffic: Recording) -> Capacity:
    return replay_capacity(one.runs, one.instance, one.question.limits, Replayed(recording=traffic))


def holding(one: Contender, traffic: Recording, instances: int) -> bool:
    seen = fleet_seen(one.runs, one.instance, traffic.mean_rps, instances, replayed=Replayed(recording=traffic))
    return worst_limit(seen.summary, one.question.limits) is None


@pytest.mark.parametrize("bursts", [False, True])
def test_instances_agree_with_brute_force(bursts: bool) -> None:
    one = asked(bursts)
    ready = alone()
    found = capacity(ready, one.recording)
    saturation = ready.runs.saturation(ready.instance)
    count = math.ceil(one.recording.mean_rps / found.rate)  # the rest of the last instance is not needed, but no half can be had

    def holds(instances: int) -> bool:
        return holding(ready, one.recording, instances)

    fewest = next(n for n in range(1, 200) if n * saturation >= one.recording.mean_rps and holds(n))
    assert count == fewest


@pytest.mark.parametrize("bursts", [False, True])
def test_systems_agree_with_brute_force_over_whole_systems(bursts: bool) -> None:
    one = asked(bursts)
    ready = alone()
    plan = size(one)
    for systems in range(1, plan.choice.systems + 1):
        assert holding(ready, one.recording, 8 * systems) == (systems == plan.choice.systems)


def test_what_an_instance_carries_is_no_fraction_of_a_whole_number() -> None:
    """A recording a little denser needs a little more, not an instance more or none."""
    ready = alone()
    traffic = recording(bursts=True)
    exact = [traffic.mean_rps * f / capacity(ready, traffic.at_mean(f * traffic.mean_rps)).rate for f in (0.9, 1.0, 1.1)]
    assert exact == sorted(exact)
    assert len(set(exact)) == 3
    assert not all(float(number).is_integer() for number in exact)


def test_a_single_instance_carries_more_than_a_thin_recording() -> None:
    ready = alone()
    thin = recording(bursts=False, rps=2.0)
    found = capacity(ready, thin)
    assert found.rate > 5 * thin.mean_rps
    assert holding(ready, thin.at_mean(found.rate), 1)


def test_a_trace_that_no_number_of_instances_holds_is_refused() -> None:
    reason = capacity(contender(tp="1", ttft="p95<=1ms"), recording(bursts=False)).reason
    assert isinstance(reason, BrokenAtAnyLoad)
    assert reason.breach.limit.milliseconds == 1
