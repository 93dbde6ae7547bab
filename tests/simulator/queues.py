"""Queues whose waits are known."""

from __future__ import annotations

import numpy as np

from tests.deployments import knobs_of
from tonnage.spec.workload import Trace

ONE_AT_A_TIME = knobs_of(1, 10_000_000, block=64, scheduler="tensorrt-llm")
PLENTY = 10_000_000


def poisson(rate: float, count: int, isl: np.ndarray, seed: int = 1) -> Trace:
    gaps = np.random.default_rng(seed).exponential(1e12 / rate, count)
    return Trace(
        due_ps=np.rint(gaps).astype(np.int64).cumsum(),
        isl=isl,
        osl=np.ones(count, np.int64),
        concurrency=0,
        turnaround_ps=0,
    )
