"""KV blocks, compiled: windows and guesses in little memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.simulator.kernel.compared import ENGINE, MODEL, both
from tests.strategies import ROOFLINE
from tonnage.perf.step import Drafting
from tonnage.spec.deployment import Windows
from tonnage.spec.workload import ClosedLoop, Lengths, Workload


@pytest.mark.parametrize("scheduler", ["tensorrt-llm", "vllm", "sglang"])
@pytest.mark.parametrize("blocks", [60, 120])
def test_kernel_equals_reference_with_windows_and_guesses_in_little_memory(scheduler, blocks):
    lengths = {
        "isl": Lengths(kind="lognormal", mean=100, std=80),
        "osl": Lengths(kind="normal", mean=120, std=60),
    }
    trace = Workload(**lengths, arrivals=ClosedLoop(concurrency=20), requests=100).trace(5)
    guessing = replace(
        MODEL, drafting=Drafting(tokens=3, acceptance=0.6, passes=1, coefficients=0.1 * ROOFLINE)
    )
    for step in (MODEL, guessing):
        both(
            trace,
            step,
            replace(ENGINE, scheduler=scheduler),
            blocks,
            windows=Windows(blocks=9, tokens=300),
        )
