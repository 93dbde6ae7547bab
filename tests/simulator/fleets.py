"""Fleets, compiled and plain."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tests.deployments import knobs_of
from tests.strategies import examples
from tonnage.perf.step import StepModel
from tonnage.perf.step_terms import COEFFICIENTS, HOST_STEP, NORM
from tonnage.simulator.engine import Engine
from tonnage.simulator.router import Request as Asked
from tonnage.spec.workload import Trace

EASY = examples(0.3)
FLEET_KNOBS = knobs_of(8, 4096)


def engine_model(step_s: float) -> StepModel:
    c = np.zeros(COEFFICIENTS)
    c[NORM], c[HOST_STEP] = 1.0, step_s
    return StepModel(coefficients=c, frontend_s=0.0)


def engine(step_s: float) -> Engine:
    return Engine(engine_model(step_s), FLEET_KNOBS, 4096)


def poisson_requests(count: int, rate: float) -> Trace:
    rng = np.random.default_rng(2)
    due = np.cumsum(rng.exponential(1e12 / rate, count)).astype(np.int64)
    lengths = np.full(count, 64), rng.integers(10, 60, count)
    return Trace(due_ps=due, isl=lengths[0], osl=lengths[1], concurrency=0, turnaround_ps=0)


def requests() -> st.SearchStrategy[Asked]:
    return st.builds(
        Asked,
        number=st.integers(0, 10**7),
        session=st.integers(-1, 10**6),
        isl=st.integers(1, 4000),
    )
