"""Speculative decoding: what it draws, what it holds, and where it pays."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.simulator.guesses import NOTHING, drafting, guessing
from tests.simulator.reference.examples import (
    KNOBS,
    SGLANG,
    VLLM,
    closed_trace,
    composition,
    ms,
    open_trace,
)
from tests.strategies import ROOFLINE
from tonnage.api.simulation import simulate_sweep
from tonnage.errors import InputError
from tonnage.perf.step import StepModel
from tonnage.results.requests import COMPLETED, REJECTED
from tonnage.simulator import kernel
from tonnage.simulator.reference import run_reference


def test_tokens_of_one_step_come_together_and_their_gaps_are_0() -> None:
    result = run_reference(open_trace((0, 7, 9)), guessing(3, 1.0), KNOBS, 100)
    # The prompt's token, then 4 a step: 1 + 4 + 4.
    assert composition(result) == [(7, 1, 0, 49, 0), (0, 0, 1, 0, 8), (0, 0, 1, 0, 12)]
    assert ms(result.requests.last_token_ns) == [3.0]
    assert result.requests.gaps[:, 0].sum() == 6
    assert result.requests.gaps.sum() == 8


def test_guesses_take_their_part_of_the_token_budget() -> None:
    knobs = replace(VLLM, max_num_tokens=100)
    result = run_reference(open_trace((0, 10, 9), (0.1, 250, 2)), guessing(3, 0.0), knobs, 1000)
    assert composition(result)[1] == (96, 1, 1, 96 * 96, 11)  # 100 − (1 + 3)


def test_slots_are_held_to_what_guesses_leave_of_the_budget() -> None:
    for knobs in (KNOBS, VLLM):
        narrow = replace(knobs, max_num_tokens=10, chunked_prefill=True, tokens_per_block=1)
        result = run_reference(open_trace(*[(0.0, 1, 9)] * 5), guessing(3, 0.5), narrow, 1000)
        assert max(row[7] for row in result.steps) == 2
    result = run_reference(
        open_trace(*[(0.0, 1, 9)] * 5), guessing(3, 0.5), replace(SGLANG, max_num_tokens=10), 1000
    )
    assert max(row[7] for row in result.steps) == 5


@pytest.mark.parametrize("knobs", [KNOBS, VLLM, SGLANG])
def test_guesses_have_their_place_in_the_cache(knobs) -> None:
    knobs = replace(knobs, tokens_per_block=1)
    room = 13 + (2 if knobs.scheduler == "sglang" else 0)
    fits, not_quite = (
        run_reference(open_trace((0, 7, 3)), guessing(3, 0.5), knobs, blocks)
        for blocks in (room, room - 1)
    )
    assert fits.requests.status.tolist() == [COMPLETED]
    assert fits.free_blocks == room
    assert not_quite.requests.status.tolist() == [REJECTED]


def test_a_price_with_guesses_is_that_of_its_parts() -> None:
    d = drafting(3, 0.5, 2, ROOFLINE * 0.1 + NOTHING)
    step = StepModel(coefficients=ROOFLINE, frontend_s=0.0, drafting=d)
    a, c = step.decode_line(5)
    assert step.seconds(0, 0, 5, 0, 700) == pytest.approx((a[5] + 700 * c[5]) / 1e12, rel=1e-12)
    plain = StepModel(coefficients=ROOFLINE, frontend_s=0.0).seconds(0, 0, 20, 0, 700)
    drafter = StepModel(coefficients=d.coefficients, frontend_s=0.0).seconds(0, 0, 5, 0, 700)
    host = ROOFLINE[18] * 15
    context = (ROOFLINE[11] / 5 - ROOFLINE[11] / 20) * 700
    assert step.seconds(0, 0, 5, 0, 700) == pytest.approx(
        plain + context - host + 2 * drafter, rel=1e-12
    )


def test_static_batches_and_impossible_guesses_are_refused() -> None:
    trace = closed_trace(1, 0.0, (5, 5))
    with pytest.raises(InputError, match="static batching has no speculative decoding"):
        kernel.run(trace, guessing(3, 0.5), replace(KNOBS, scheduler="static"), 100)
    with pytest.raises(InputError, match="k=3 is not possible in steps of 3 tokens"):
        kernel.run(trace, guessing(3, 0.5), replace(VLLM, max_num_tokens=3), 100)


def test_alone_its_gain_is_the_closed_form() -> None:
    point = simulate_sweep(
        model="llama-3.1-8b",
        isl=100,
        osl=4_001,
        concurrency=1,
        requests=50,
        speculation="eagle k=3 acceptance=0.7",
    )[0]
    from tonnage.perf.terms import step_model

    guessed, plain = (
        step_model(replace(point.deployment, speculation=s))
        for s in (point.deployment.speculation, None)
    )
    context = 100 + 2_000
    expected = plain.seconds(0, 0, 1, 0, context) / (
        guessed.seconds(0, 0, 1, 0, context) / guessed.tokens_per_step
    )
    assert point.gain == pytest.approx(expected, rel=0.01)
    assert 1.0 < expected < 2.533
