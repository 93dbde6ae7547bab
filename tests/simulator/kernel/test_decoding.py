"""Decoding with guesses, compiled."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.simulator.guesses import NOTHING, drafting, guessing
from tests.simulator.reference.examples import VLLM
from tests.strategies import MS, ROOFLINE
from tonnage.perf.step import StepModel
from tonnage.simulator import kernel
from tonnage.spec.workload import ClosedLoop, Lengths, Workload


@pytest.mark.parametrize("scheduler", ["tensorrt-llm", "vllm", "sglang"])
@pytest.mark.parametrize("blocks", [60, 10_000])
def test_kernel_equals_reference_with_guesses(scheduler, blocks):
    from tests.simulator.kernel.compared import ENGINE, both

    lengths = {
        "isl": Lengths(kind="lognormal", mean=200, std=150),
        "osl": Lengths(kind="normal", mean=60, std=30),
    }
    trace = Workload(
        **lengths, arrivals=ClosedLoop(concurrency=40, turnaround_s=0.0016), requests=300
    ).trace(5)
    step = StepModel(
        coefficients=ROOFLINE,
        frontend_s=0.002,
        drafting=drafting(3, 0.6, 3, ROOFLINE * 0.1 + NOTHING),
    )
    requests, _, _ = both(trace, step, replace(ENGINE, scheduler=scheduler), blocks)
    assert (requests.preemptions.sum() > 0) == (blocks == 60 and scheduler != "tensorrt-llm")
    both(trace, step, replace(ENGINE, scheduler=scheduler), blocks, window_ps=2_000 * MS)


@pytest.mark.parametrize(
    ("tokens", "acceptance"), [(1, 0.5), (3, 0.7), (5, 0.9), (4, 0.0), (2, 1.0)]
)
def test_tokens_per_step_are_the_closed_form(tokens: int, acceptance: float) -> None:
    work = Workload(
        isl=Lengths(mean=10),
        osl=Lengths(mean=4_001),
        arrivals=ClosedLoop(concurrency=1),
        requests=20,
    )
    requests = kernel.run(
        work.trace(0), guessing(tokens, acceptance), replace(VLLM, max_batch_size=1), 10_000
    )
    expected = (1 - acceptance ** (tokens + 1)) / (1 - acceptance) if acceptance < 1 else tokens + 1
    steps = (requests.last_token_ns - requests.first_token_ns) / 1e6
    assert 4_000 / steps.mean() == pytest.approx(expected, rel=0.01)
    assert drafting(tokens, acceptance).tokens_per_step == pytest.approx(expected)
