"""A simulated engine with round numbers, for tests of what serves it."""

from __future__ import annotations

import numpy as np

from tonnage.perf.step import StepModel
from tonnage.perf.step_terms import COEFFICIENTS, HOST_STEP, NORM
from tonnage.simulator.engine import Engine
from tonnage.spec.deployment import EngineKnobs

STEP_S = 0.004
"""Every step of the engine takes this long."""

KNOBS = EngineKnobs(
    scheduler="vllm",
    max_batch_size=4,
    max_num_tokens=256,
    chunked_prefill=True,
    tokens_per_block=16,
    kv_rule="gpu_memory_utilization",
    kv_fraction=0.9,
)


def engine(kv_blocks: int = 200) -> Engine:
    """An engine of four slots."""
    c = np.zeros(COEFFICIENTS)
    c[NORM], c[HOST_STEP] = 1.0, STEP_S
    return Engine(StepModel(coefficients=c, frontend_s=0.0), KNOBS, kv_blocks)
