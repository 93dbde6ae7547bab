"""Plans of two models, side by side."""

from __future__ import annotations

from dataclasses import replace

from tests.report.example_plan import full
from tests.report.plans.screens import SURE, UNSURE, sized
from tonnage.plan.candidate import Confidence
from tonnage.plan.limit import Limit, LimitUse
from tonnage.plan.plan import Plan
from tonnage.plan.use_cases import (
    Arrangement,
    CaseAtPeak,
    NotShared,
    PoolSystems,
    UseCasePool,
    UseCases,
)
from tonnage.results.metrics import Latencies

LIMITS = (
    Limit(metric="ttft", statistic="p95", milliseconds=500.0),
    Limit(metric="itl", statistic="p99", milliseconds=62.5),
)
SEEN = Latencies(mean=101.0, p95=201.0)


def case(name: str, value_ms: float = 250.0) -> CaseAtPeak:
    uses = tuple(
        LimitUse(limit=limit, value_ms=value_ms, used=value_ms / limit.milliseconds)
        for limit in LIMITS
    )
    return CaseAtPeak(
        name=name, requests_per_second=12.5, limits=uses, ttft_ms=SEEN, tpot_ms=SEEN, e2e_ms=SEEN
    )


def pool(*cases: CaseAtPeak) -> UseCasePool:
    first = full().candidates[0].pool
    return UseCasePool(
        gpu=first.gpu,
        precision=first.precision,
        tp=first.tp,
        engine=first.engine,
        system="dgx-h100",
        gpus_per_system=8,
        knobs=None,
        instances=3,
        instances_exact=2.4,
        cases=cases,
    )


def alone(sure: Confidence = SURE) -> Plan:
    """One use case by itself, asked for with that confidence."""
    plan = sized(sure)
    return replace(plan, scenario=replace(plan.scenario, confidence=sure.asked))


def several(count: int, *, apart: bool = False, value_ms: float = 50.0) -> UseCases:
    """So many use cases, in one pool or with a pool for each; every second one is not sure by
    itself."""
    names = tuple(f"use case {place}" for place in range(count))
    cases = tuple(case(name, value_ms) for name in names)
    systems = (PoolSystems(system="dgx-h100", systems=count, gpus=8 * count),)
    separate, shared = (
        Arrangement(pools=tuple(map(pool, cases)), systems=systems),
        Arrangement(pools=(pool(*cases),), systems=systems),
    )
    return UseCases(
        names=names,
        plans=tuple(alone(UNSURE if place % 2 else SURE) for place in range(count)),
        separate=separate,
        shared=None if apart else shared,
        not_shared=NotShared(code="more-gpus", gpus=99, separate_gpus=80) if apart else None,
        chosen="separate" if apart else "shared",
    )
