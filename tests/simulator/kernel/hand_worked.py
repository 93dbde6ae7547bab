"""Traces in whole milliseconds, and TensorRT-LLM under MAX_UTILIZATION."""

from __future__ import annotations

import numpy as np

from tests.strategies import MS
from tonnage.spec.workload import Trace


def trace_of(*requests: tuple[int, int, int]) -> Trace:
    due, isl, osl = np.array(requests, np.int64).T
    return Trace(due_ps=due * MS, isl=isl, osl=osl, concurrency=0, turnaround_ps=0)
