"""Recorded traffic over whole numbers of instances, held against a brute force and against Poisson arrivals."""

import math
from dataclasses import replace

import numpy as np
import pytest

from tests.questions import question
from tonnage.plan.reason import BrokenAtAnyLoad
from tonnage.sizing.loads.fleet_check import Replayed, fleet_summary
from tonnage.sizing.loads.limits import worst_limit
from tonnage.sizing.loads.ready import Ready
from tonnage.sizing.loads.trace_capacity import replay_capacity
from tonnage.sizing.planner import size
from tonnage.sizing.question import Question
from tonnage.sizing.search.search_space import prepare
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
    traffic = recording(bursts)
    base = question(tp="1", ttft="p95<=150ms", peak_rps=traffic.mean_rps)
    return replace(base, recording=traffic, deepen=False)


@pytest.mark.parametrize("bursts", [False, True])
def test_instances_agree_with_brute_force(bursts: bool) -> None:
    one = asked(bursts)
    ready = next(found for found in prepare(one) if isinstance(found, Ready))
    assert one.recording is not None
    found = replay_capacity(ready.instance, one.recording)
    count = math.ceil(one.recording.mean_rps / found.rate)  # the rest of the last instance is not needed, but no half can be had

    def holds(instances: int) -> bool:
        summary = fleet_summary(ready.instance, 1.0, instances, replayed=Replayed(recording=one.recording))[0]
        return worst_limit(summary, ready.instance.asked.slo) is None

    fewest = next(n for n in range(1, 200) if n * found.saturation >= one.recording.mean_rps and holds(n))
    assert count == fewest


@pytest.mark.parametrize("bursts", [False, True])
def test_systems_agree_with_brute_force_over_whole_systems(bursts: bool) -> None:
    one = asked(bursts)
    ready = next(found for found in prepare(one) if isinstance(found, Ready))
    plan = size(one)
    assert plan.choice is not None
    for systems in range(1, plan.choice.systems + 1):
        summary = fleet_summary(ready.instance, 1.0, 8 * systems, replayed=Replayed(recording=one.recording))[0]
        assert (worst_limit(summary, ready.instance.asked.slo) is None) == (systems == plan.choice.systems)


def test_what_an_instance_carries_is_no_fraction_of_a_whole_number() -> None:
    """A recording a little denser needs a little more, not an instance more or none."""
    ready = next(found for found in prepare(question(tp="1", ttft="p95<=150ms")) if isinstance(found, Ready))
    traffic = recording(bursts=True)
    exact = [traffic.mean_rps * f / replay_capacity(ready.instance, traffic.at_mean(f * traffic.mean_rps)).rate for f in (0.9, 1.0, 1.1)]
    assert exact == sorted(exact)
    assert len(set(exact)) == 3
    assert not all(float(number).is_integer() for number in exact)


def test_a_single_instance_carries_more_than_a_thin_recording() -> None:
    ready = next(found for found in prepare(question(tp="1", ttft="p95<=150ms")) if isinstance(found, Ready))
    thin = recording(bursts=False, rps=2.0)
    found = replay_capacity(ready.instance, thin)
    assert found.rate > 5 * thin.mean_rps
    faster = fleet_summary(ready.instance, 1.0, 1, replayed=Replayed(recording=thin.at_mean(found.rate)))[0]
    assert worst_limit(faster, ready.instance.asked.slo) is None


def test_bursts_need_more_than_a_poisson_peak_of_the_same_mean() -> None:
    poisson, bursty = (size(asked(bursts)).choice for bursts in (False, True))
    assert poisson is not None
    assert bursty is not None
    assert bursty.systems_exact > 1.5 * poisson.systems_exact


def test_a_trace_that_no_number_of_instances_holds_is_refused() -> None:
    ready = next(found for found in prepare(question(tp="1", ttft="p95<=1ms")) if isinstance(found, Ready))
    reason = replay_capacity(ready.instance, recording(bursts=False)).reason
    assert isinstance(reason, BrokenAtAnyLoad)
    assert reason.breach.limit.milliseconds == 1
