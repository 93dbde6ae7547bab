"""Instances under load."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tests.questions import contender, question
from tonnage.sizing.loads.capacity import Capacity, broken_alone, find_capacity, replay_capacity
from tonnage.sizing.loads.fleet_check import Replayed, fleet_seen
from tonnage.sizing.loads.instance import Instance, Traffic
from tonnage.sizing.loads.load_scan import worst_limit
from tonnage.sizing.loads.runs import Runs
from tonnage.sizing.question import Question
from tonnage.sizing.search.deployment_capacity import Contender
from tonnage.spec.deployment import Slo
from tonnage.spec.recording import Recording
from tonnage.spec.workload import Lengths


def traffic(isl: float = 500, osl: float = 50, load: str = "open") -> Traffic:
    return Traffic(
        isl=Lengths(mean=isl), osl=Lengths(mean=osl), load=load, process="poisson", cv=1.0, seed=0
    )


def found(instance: Instance, slo: Slo = (), instances: int = 1) -> Capacity:
    broken = broken_alone(instance.single_client(), slo)
    return broken or find_capacity(Runs(), instance, slo, instances=instances)


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
    broken = broken_alone(one.instance.single_client(), one.question.limits)
    return broken or replay_capacity(
        one.runs, one.instance, one.question.limits, Replayed(recording=traffic)
    )


def holding(one: Contender, traffic: Recording, instances: int) -> bool:
    seen = fleet_seen(
        one.runs, one.instance, traffic.mean_rps, instances, replayed=Replayed(recording=traffic)
    )
    return worst_limit(seen.summary, one.question.limits) is None
