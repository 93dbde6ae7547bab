"""Prompts that share a prefix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tests.serve.engines import KNOBS
from tonnage.perf.step import StepModel
from tonnage.perf.step_terms import COEFFICIENTS, HOST_STEP, NORM
from tonnage.simulator.spec import EngineSpec
from tonnage.simulator.tiers import Tier


def spec(blocks: int = 400, tiers: Sequence[Tier] = ()) -> EngineSpec:
    c = np.zeros(COEFFICIENTS)
    c[NORM], c[HOST_STEP] = 1.0, 0.004
    return EngineSpec(
        step=StepModel(coefficients=c, frontend_s=0.0),
        knobs=replace(KNOBS, prefix_caching=True),
        blocks=blocks,
        tiers=tiers,
    )
