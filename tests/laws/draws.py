"""What the laws are tried on: deployments that fit, and one instance's runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from tests.deployments import deployment
from tonnage.errors import TonnageError
from tonnage.perf.memory import MemoryPlan, memory_plan
from tonnage.perf.step import StepModel
from tonnage.perf.terms import step_model
from tonnage.results.requests import Requests
from tonnage.simulator.kernel import run
from tonnage.spec.deployment import NO_WINDOWS, Deployment
from tonnage.spec.workload import Trace

MODELS = (
    "llama-3-8b",
    "llama-3.1-8b",
    "llama-3.3-70b",
    "qwen3-32b",
    "gpt-oss-120b",
    "qwen3-235b-a22b",
    "deepseek-v3.2",
    "gemma-3-27b",
)
GPUS = ("h100-sxm-80gb", "h200", "b200", "a100-sxm-80gb", "l40s", "mi300x", "mi355x")
SECOND = 10**12
"""In picoseconds."""


def holds(made: Deployment) -> MemoryPlan | None:
    """Where its memory goes; None where it does not fit."""
    try:
        return memory_plan(made)
    except TonnageError:
        return None


@st.composite
def deployments(draw: st.DrawFn, **fixed: Any) -> Deployment:
    """Dense models and mixtures, on one GPU and on eight, in the formats and engines that have
    them, where they fit."""
    place = {
        "model": draw(st.sampled_from(MODELS)),
        "gpu": draw(st.sampled_from(GPUS)),
        "precision": draw(st.sampled_from(["fp16", "fp8"])),
        "tp": draw(st.sampled_from([1, 2, 4, 8])),
        "engine": draw(st.sampled_from(["vllm", "sglang", "tensorrt-llm-1.2"])),
        **fixed,
    }
    try:
        made = deployment(**place)
        step_model(made)
    except TonnageError:
        made = None
    assume(made is not None and holds(made) is not None)
    return made


def changed(made: Deployment, **knobs: Any) -> Deployment:
    """The deployment with other settings of its engine."""
    return replace(made, knobs=replace(made.knobs, **knobs))


def trace_of(
    rng: np.random.Generator, count: int, rate: float, isl: int = 400, osl: int = 60
) -> Trace:
    """Poisson arrivals of so many requests a second, with lengths that vary."""
    due = np.sort(rng.uniform(0, count / rate * SECOND, count)).astype(np.int64)
    lengths = [rng.integers(max(1, mean // 2), mean * 3 // 2 + 1, count) for mean in (isl, osl)]
    return Trace(due_ps=due, isl=lengths[0], osl=lengths[1], concurrency=0, turnaround_ps=0)


def clients(
    rng: np.random.Generator, count: int, concurrency: int, isl: int = 400, osl: int = 60
) -> Trace:
    """So many clients that send the next request when they have an answer."""
    open_loop = trace_of(rng, count, 1.0, isl, osl)
    return replace(open_loop, due_ps=np.full(count, -1, np.int64), concurrency=concurrency)


def ran(
    made: Deployment, trace: Trace, step: StepModel | None = None, blocks: int | None = None
) -> Requests:
    """What happens to the requests of a trace on one instance."""
    pool = memory_plan(made).blocks if blocks is None else blocks
    return run(
        trace,
        step or step_model(made),
        made.knobs,
        pool,
        windows=NO_WINDOWS,
        window_ps=-1,
        max_context=0,
    )
