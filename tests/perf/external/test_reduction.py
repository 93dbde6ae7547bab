from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.step_times import deployment, timed
from tests.strategies import ROOFLINE, step_models
from tonnage.errors import InputError
from tonnage.perf.measured_steps import reduced
from tonnage.perf.step import StepModel, batch_seconds, step_seconds, tabulated_seconds
from tonnage.perf.step_terms import COEFFICIENTS, GRAPHED_TO, LAUNCHES, NORM
from tonnage.perf.terms import step_model
from tonnage.spec.step_times import TimedStep


@settings(max_examples=30, deadline=None)
@given(step_models())
def test_the_stated_error_is_that_of_the_steps(model: StepModel) -> None:
    steps = list(timed(model.coefficients))
    found = reduced(steps, "ours")
    errors = [
        100 * abs(step_seconds(found.coefficients, s.prefill_tokens, s.prefill_sequences if s.prefill_tokens else 0,
                               s.decode_sequences, s.attention_pairs_2, s.context_tokens) / s.seconds - 1)
        for s in steps
    ]  # fmt: skip
    decode = [error for error, s in zip(errors, steps, strict=True) if s.prefill_tokens == 0]
    assert max(errors) == pytest.approx(found.worst, abs=1e-6)
    assert np.mean(decode) == pytest.approx(found.decode_mape, abs=1e-6)
    assert found.steps == len(steps)


@pytest.mark.parametrize(("engine", "mean", "worst"), [("vllm", 1, 13), ("tensorrt-llm-0.15", 1, 5), ("nim-2024", 4, 15)])
def test_steps_of_our_own_model_come_back(engine: str, mean: float, worst: float) -> None:
    """Decode attention of 2024 goes in waves of blocks, which two terms only follow on average.

    Where vLLM's CUDA graphs end, a step of 520 tokens takes a quarter longer than one of 512; two such steps are no floor yet.
    """
    for tp in (1, 4):
        found = reduced(list(timed(step_model(deployment(tp=tp, engine=engine)).coefficients)), "ours")
        assert found.decode_mape < mean
        assert found.prefill_mape < 1
        assert found.worst < worst


@settings(max_examples=30, deadline=None)
@given(step_models(), st.integers(1, 300), st.integers(1, 300), st.integers(0, 10**6))
def test_a_reduced_step_costs_something_and_more_context_more(model: StepModel, fewer: int, more: int, context: int) -> None:
    c = reduced(list(timed(model.coefficients)), "ours").coefficients
    assert (c[COEFFICIENTS + 1 :: 2] >= 0).all()
    assert (np.diff(c[COEFFICIENTS::2]) > 0).all()
    assert step_seconds(c, 0, 0, fewer, 0, context + more) >= step_seconds(c, 0, 0, fewer, 0, context) > 0


def test_the_table_is_linear_between_entries_and_goes_on() -> None:
    c = np.concatenate([np.zeros(COEFFICIENTS), [1, 2.0, 10, 3.0, 100, 30.0]])
    c[NORM] = 1.0
    assert [tabulated_seconds(c, t) for t in (0, 1, 10, 55, 100, 200)] == pytest.approx([2.0, 2.0, 3.0, 16.5, 30.0, 60.0])
    assert batch_seconds(c, 55, 3) == pytest.approx(16.5)


def test_an_array_without_a_table_is_priced_as_before() -> None:
    assert batch_seconds(ROOFLINE, 9, 9) == batch_seconds(ROOFLINE[:COEFFICIENTS].copy(), 9, 9)
    longer = np.concatenate([ROOFLINE, [1, 0.5, 2, 0.5]])
    assert batch_seconds(longer, 9, 9) == pytest.approx(batch_seconds(ROOFLINE, 9, 9) + 0.5)


def test_an_odd_measurement_is_said_to_be_off() -> None:
    steps = list(timed(ROOFLINE))
    steps[0] = replace(steps[0], seconds=steps[0].seconds * 3)
    found = reduced(steps, "ours")
    assert found.worst > 10
    assert f"{found.worst:.0f} % at most" in str(found)


def test_steps_that_do_not_say_enough_are_refused() -> None:
    def step(p: int, b: int, context: int) -> TimedStep:
        return TimedStep(prefill_tokens=p, prefill_sequences=1, past_tokens=0, decode_sequences=b, context_tokens=context, seconds=0.01)

    enough = [step(0, 1, 9), step(0, 1, 99), step(8, 0, 0), step(16, 0, 0)]
    assert reduced(enough, "x.csv").steps == 4
    for left, says in (((1, 2, 3), "two context_tokens"), ((0, 1, 2), "two numbers of prefill_tokens")):
        with pytest.raises(InputError, match=rf"^step_model: x\.csv needs .*{says}"):
            reduced([enough[i] for i in left], "x.csv")


def test_a_floor_of_steps_with_prompts_comes_back() -> None:
    """Kernels launched one by one: the shortest steps with prompts all take the same, and steps of decodes less."""
    c = ROOFLINE.copy()
    c[LAUNCHES] = 0.02
    found = reduced(list(timed(c)), "ours")
    assert found.coefficients[LAUNCHES] == pytest.approx(0.02)
    assert found.worst < 2
    assert step_seconds(found.coefficients, 16, 1, 0, 256, 0) == pytest.approx(0.02)
    assert step_seconds(found.coefficients, 0, 0, 1, 0, 128) < 0.01
    assert reduced(list(timed(ROOFLINE)), "ours").coefficients[LAUNCHES] == 0.0


def test_a_floor_beyond_cuda_graphs_comes_back() -> None:
    """Steps of few tokens are spared the floor, and what else launching costs is part of the table."""
    c = ROOFLINE.copy()
    c[LAUNCHES], c[GRAPHED_TO] = 0.02, 64
    found = reduced(list(timed(c)), "ours")
    assert found.coefficients[LAUNCHES] == pytest.approx(0.02)
    assert 64 <= found.coefficients[GRAPHED_TO] < 72
    assert found.worst < 2
    assert step_seconds(found.coefficients, 64, 1, 0, 64 * 64, 0) == pytest.approx(step_seconds(c, 64, 1, 0, 64 * 64, 0), rel=0.02)
    assert step_seconds(found.coefficients, 64, 1, 0, 64 * 64, 0) < 0.01
    assert step_seconds(found.coefficients, 72, 1, 0, 72 * 72, 0) == pytest.approx(0.02)
