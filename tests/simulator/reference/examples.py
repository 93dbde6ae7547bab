"""Traces and settings whose steps can be worked out by hand, with steps of 1 ms."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tests.deployments import knobs_of
from tests.strategies import MS, coefficient_array
from tonnage.perf.step import StepModel
from tonnage.simulator.reference import Reference
from tonnage.spec.workload import Trace

TICK = StepModel(coefficients=coefficient_array(host_step=0.001, norm=1.0), frontend_s=0.0)
KNOBS = knobs_of(8, 100, block=10, scheduler="tensorrt-llm")


def open_trace(*requests: tuple[float, int, int]) -> Trace:
    """Requests as (due in ms, isl, osl)."""
    due, isl, osl = zip(*requests, strict=True)
    return Trace(
        due_ps=np.array([int(d * MS) for d in due]),
        isl=np.array(isl),
        osl=np.array(osl),
        concurrency=0,
        turnaround_ps=0,
    )


def closed_trace(clients: int, turnaround_ms: float, *requests: tuple[int, int]) -> Trace:
    isl, osl = zip(*requests, strict=True)
    due = np.full(len(requests), -1)
    return Trace(
        due_ps=due,
        isl=np.array(isl),
        osl=np.array(osl),
        concurrency=clients,
        turnaround_ps=int(turnaround_ms * MS),
    )


def composition(result: Reference) -> list[tuple[int, ...]]:
    """(P, n, B, 2A, C) of each step."""
    return [row[2:7] for row in result.steps]


def ms(column) -> list[float]:
    return [float(v) / 1e6 for v in column]


VLLM = replace(KNOBS, scheduler="vllm", chunked_prefill=True, tokens_per_block=4)
SGLANG = replace(KNOBS, scheduler="sglang", chunked_prefill=True, tokens_per_block=1)
