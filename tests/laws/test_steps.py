"""Laws of a step: what more work, and a faster or slower GPU, may never do to its time."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.laws.draws import deployments
from tests.strategies import examples
from tonnage.perf.terms import step_model
from tonnage.spec.deployment import Deployment
from tonnage.spec.hardware import clocked

PROMPTS = st.integers(1, 4096)
BATCH = st.integers(1, 128)
CONTEXT = st.integers(1, 8192)


def prefill_s(made: Deployment, new: int, past: int = 0) -> float:
    """Seconds of a step with one prompt's new tokens after so many that are computed."""
    return step_model(made).seconds(new, 1, 0, new * (2 * past + new), 0)


def decode_s(made: Deployment, batch: int, context: int) -> float:
    """Seconds of a step in which so many decode, each with such a context."""
    return step_model(made).seconds(0, 0, batch, 0, batch * context)


@examples(0.5)
@given(made=deployments(), new=PROMPTS, more=PROMPTS)
def test_a_longer_prompt_never_takes_less(made: Deployment, new: int, more: int) -> None:
    assert prefill_s(made, new + more) >= prefill_s(made, new)


@examples(0.5)
@given(made=deployments(), batch=BATCH, more=BATCH, context=CONTEXT)
def test_more_that_decode_never_take_less(
    made: Deployment, batch: int, more: int, context: int
) -> None:
    assert decode_s(made, batch + more, context) >= decode_s(made, batch, context)


@examples(0.5)
@given(made=deployments(), batch=BATCH, context=CONTEXT, more=CONTEXT)
def test_longer_contexts_never_take_less(
    made: Deployment, batch: int, context: int, more: int
) -> None:
    assert decode_s(made, batch, context + more) > decode_s(made, batch, context)


@examples(0.5)
@given(made=deployments(), batch=BATCH, context=CONTEXT)
def test_two_steps_never_take_less_than_one_with_both(
    made: Deployment, batch: int, context: int
) -> None:
    assert 2 * decode_s(made, batch, context) >= decode_s(made, 2 * batch, context)


@examples(0.5)
@given(made=deployments(), new=PROMPTS, batch=BATCH, context=CONTEXT)
def test_a_prompt_in_a_step_of_decodes_never_makes_it_shorter(
    made: Deployment, new: int, batch: int, context: int
) -> None:
    both = step_model(made).seconds(new, 1, batch, new * new, batch * context)
    assert both >= decode_s(made, batch, context)


@examples(0.5)
@given(made=deployments(), new=PROMPTS, batch=BATCH, share=st.floats(0.5, 1.0))
def test_a_slower_clock_never_makes_a_step_shorter(
    made: Deployment, new: int, batch: int, share: float
) -> None:
    slower = replace(made, gpu=clocked(made.gpu, share))
    assert prefill_s(slower, new) >= prefill_s(made, new)
    assert decode_s(slower, batch, 1000) >= decode_s(made, batch, 1000)


@examples(0.5)
@given(made=deployments(), batch=BATCH, faster=st.floats(1.01, 3.0))
def test_faster_memory_never_makes_a_step_longer(
    made: Deployment, batch: int, faster: float
) -> None:
    other = replace(
        made, gpu=replace(made.gpu, memory_bandwidth_gb_s=made.gpu.memory_bandwidth_gb_s * faster)
    )
    assert decode_s(other, batch, 2000) <= decode_s(made, batch, 2000)


@examples(0.5)
@given(made=deployments(), batch=BATCH, context=CONTEXT)
def test_a_step_of_decodes_is_a_line_over_the_context(
    made: Deployment, batch: int, context: int
) -> None:
    step = step_model(made)
    fixed, slope = (column[batch] for column in step.decode_line(batch))
    # picoseconds, half of one for the fixed part and for each token
    rounded = (1 + batch * context) / 2
    assert int(fixed) + int(slope) * batch * context == pytest.approx(
        1e12 * decode_s(made, batch, context), abs=rounded, rel=1e-9
    )
