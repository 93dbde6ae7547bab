"""Many steps at once, and the parts of each."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.perf.step_cases import alone, tokens
from tests.strategies import ROOFLINE, draftings, step_models
from tonnage.perf import step, vectorised_step
from tonnage.perf import step_terms as at
from tonnage.perf.step import StepModel, batch_seconds, context_seconds, step_seconds
from tonnage.perf.step_terms import DURATIONS, TERMS
from tonnage.perf.vectorised_step import Steps, parts


@given(
    tokens, st.integers(1, 64), st.integers(0, 256), st.integers(0, 10**9), st.integers(0, 10**8)
)
def test_a_step_is_the_sum_of_its_parts(
    prefill: int, n: int, b: int, pairs_2: int, context: int
) -> None:
    parts = (
        batch_seconds(ROOFLINE, prefill + b, n + b)
        + ROOFLINE[at.ATTENTION] * pairs_2 / 2
        + context_seconds(ROOFLINE, b) * context
        + ROOFLINE[at.HOST_PREFILL]
    )
    assert step_seconds(ROOFLINE, prefill, n, b, pairs_2, context) == pytest.approx(
        parts, rel=1e-12
    )


CONTENTS = (700, 2, 9, 900_000, 20_000)
"""A step of prompts and decodes."""


def named(names: object) -> list[str]:
    return [TERMS[place].name for place in names]


@pytest.mark.parametrize("place", DURATIONS, ids=named(DURATIONS))
def test_each_duration_is_filed_under_its_part(place: int) -> None:
    """A step in which one duration alone takes time takes as long as the part that the duration
    belongs to."""
    c = alone(place)
    columns = [np.array([float(value)]) for value in CONTENTS]
    names = (
        "prefill_tokens",
        "prefill_sequences",
        "decode_sequences",
        "attention_pairs_2",
        "context_tokens",
    )
    found = parts(c, Steps(**dict(zip(names, columns, strict=True))))
    whole = step_seconds(c, *CONTENTS)
    assert whole > 1e-6
    assert found[str(TERMS[place].part)][0] == pytest.approx(whole, rel=1e-9)


TOLERANCE = 1e-13
"""Relative: powers differ in their last bits between libm and numpy, and two or three of them are
added."""
counts = st.sampled_from([0, 0, 1, 2, 5, 6, 7, 9, 10, 11, 12, 100, 4_097, 50_000])


@st.composite
def steps_of(draw: st.DrawFn) -> Steps:
    """Steps of prompts, of decodes, of both and of neither; many of them are at the limits that
    ``step_models`` draws."""
    rows = draw(
        st.lists(
            st.tuples(
                counts, st.integers(1, 4), counts, st.integers(0, 10**10), st.integers(0, 10**7)
            ),
            min_size=1,
            max_size=20,
        )
    )
    found = [
        (p, n if p else 0, b, pairs if p else 0, context if b else 0)
        for p, n, b, pairs, context in rows
    ]
    columns = np.array(found, float).T
    return Steps(
        prefill_tokens=columns[0],
        prefill_sequences=columns[1],
        decode_sequences=columns[2],
        attention_pairs_2=columns[3],
        context_tokens=columns[4],
    )


@st.composite
def models(draw: st.DrawFn) -> StepModel:
    """Step models with experts touched unevenly, experts apart from weights, and with a table
    behind the coefficients."""
    found = draw(step_models())
    c = found.coefficients.copy()
    c[at.EXPERT_REST], c[at.EXPERT_UNEVEN] = draw(
        st.sampled_from([(0.0, 0.0), (0.9, 0.0), (1.0, 0.3), (0.4, 2.0)])
    )
    if draw(st.booleans()):
        knots = np.cumsum(draw(st.lists(st.integers(1, 4_000), min_size=2, max_size=6)))
        values = draw(st.lists(st.floats(0.0, 0.1), min_size=len(knots), max_size=len(knots)))
        c = np.concatenate([c, np.column_stack([knots, np.sort(values)]).ravel()])
    return replace(found, coefficients=c)


def each(steps: Steps) -> list[tuple[int, ...]]:
    columns = (
        steps.prefill_tokens,
        steps.prefill_sequences,
        steps.decode_sequences,
        steps.attention_pairs_2,
        steps.context_tokens,
    )
    return [tuple(int(value) for value in row) for row in zip(*columns, strict=True)]


@given(models(), steps_of())
def test_many_steps_at_once_take_what_each_takes(model: StepModel, steps: Steps) -> None:
    c = model.coefficients
    scalar = [step.step_seconds(c, *row) for row in each(steps)]
    np.testing.assert_allclose(vectorised_step.step_seconds(c, steps), scalar, rtol=TOLERANCE)


@given(models(), draftings(), steps_of())
def test_drafted_steps_do_too(model: StepModel, drafting: step.Drafting, steps: Steps) -> None:
    scalar = [replace(model, drafting=drafting).seconds(*row) for row in each(steps)]
    np.testing.assert_allclose(
        vectorised_step.drafted_step_seconds(model.coefficients, steps, drafting),
        scalar,
        rtol=TOLERANCE,
    )


@given(models(), models(), steps_of())
def test_each_step_may_be_of_a_deployment_of_its_own(
    one: StepModel, other: StepModel, steps: Steps
) -> None:
    both = np.array([one.coefficients[: at.COEFFICIENTS], other.coefficients[: at.COEFFICIENTS]])
    of = np.arange(len(steps.prefill_tokens)) % 2
    scalar = [step.step_seconds(both[i], *row) for i, row in zip(of, each(steps), strict=True)]
    np.testing.assert_allclose(
        vectorised_step.step_seconds(both[of].T, steps), scalar, rtol=TOLERANCE
    )


@given(models(), st.none() | draftings(), steps_of())
def test_the_parts_of_a_step_add_up_to_it(
    model: StepModel, drafting: step.Drafting | None, steps: Steps
) -> None:
    found = parts(model.coefficients, steps, drafting)
    if drafting is None:
        whole = vectorised_step.step_seconds(model.coefficients, steps)
    else:
        whole = vectorised_step.drafted_step_seconds(
            model.coefficients, steps, replace(drafting, passes=0)
        )
    assert all((seconds >= 0).all() for seconds in found.values())
    np.testing.assert_allclose(sum(found.values()), whole, rtol=1e-12, atol=1e-15)
