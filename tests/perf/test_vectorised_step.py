"""Many steps at once, and the parts of each."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.perf.step_cases import alone, tokens
from tests.strategies import ROOFLINE, coefficient_array, draftings, step_models
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


def columns(*rows: tuple[int, int, int, int, int]) -> Steps:
    prefill, prompts, decodes, pairs_2, context = np.array(rows, float).T
    return Steps(
        prefill_tokens=prefill,
        prefill_sequences=prompts,
        decode_sequences=decodes,
        attention_pairs_2=pairs_2,
        context_tokens=context,
    )


PARTED = coefficient_array(
    norm=2.0,
    linear_flops=3e-4,
    linear_bytes=4e-3,
    expert_flops=1e-4,
    expert_bytes=8e-3,
    expert_miss=0.5,
    expert_rest=1.0,
    activation=1e-5,
    attention=1e-6,
    sparse=2e-6,
    sparse_most=5e-6,
    scan=3e-6,
    encoder=7e-6,
    context=1e-7,
    bounded=2e-5,
    adapters=1e-3,
    adapter_miss=0.5,
    head_flops=1e-4,
    head_bytes=3e-4,
    comm_large=1e-3,
    comm_token=1e-4,
    host_step=2e-3,
    host_sequence=1e-4,
    host_prefill=5e-4,
    graphed_to=9,
    eager=4e-4,
    launches=0.02,
)
"""Of a step of 6 tokens of two prompts and 4 decodes: 3 ms of matrices next to 4 ms of reading them,
and 1 ms of experts next to 8 · (1 − 0.5¹⁰)."""

EXPERTS_S = math.hypot(1e-3, 8e-3 * (1 - 0.5**10))
BY_PART = {
    # the squares' shares of each pair, activations, and the pass over half of the adapters
    "compute": 9 / 25 * 5e-3 + 1e-6 / EXPERTS_S + 1e-4 + 6 * 7e-6 + 1e-3 * (1 - 0.5**6),
    "bandwidth": 16 / 25 * 5e-3 + (8e-3 * (1 - 0.5**10)) ** 2 / EXPERTS_S,
    # 15 pairs, those that are bounded at their bound, and scans
    "attention": 15e-6 + min(30e-6, 30e-6) + 18e-6,
    "kv": 1e-7 * 500 + 6 * 2e-5,
    "head": 6e-4,
    "link": 2e-3,
}


def test_the_parts_of_a_step_by_hand() -> None:
    """What launches take longer than all else is the host's."""
    host = 2e-3 + 6e-4 + 5e-4 + 4e-4
    whole = sum(BY_PART.values()) + host
    assert whole < 0.0265
    least = PARTED.copy()
    least[at.LAUNCHES] = 0.03
    for c, longer in ((PARTED, max(0.02 - whole, 0.0)), (least, 0.03 - whole)):
        by_part = parts(c, columns((6, 2, 4, 30, 500)))
        expected = BY_PART | {"host": host + longer}
        assert {name: seconds[0] for name, seconds in by_part.items()} == pytest.approx(
            expected, rel=1e-12
        )
    graphed = PARTED.copy()
    graphed[at.GRAPHED_TO] = 10
    assert parts(graphed, columns((6, 2, 4, 30, 500)))["host"][0] == pytest.approx(host - 4e-4)


def test_the_parts_of_a_step_with_guesses_by_hand() -> None:
    """Two guesses a sequence: 12 tokens and sequences for the matrices and the head, and four that
    the host and states know."""
    drafting = step.Drafting(
        tokens=2, acceptance=0.5, passes=2, coefficients=np.zeros(at.COEFFICIENTS)
    )
    by_part = parts(PARTED, columns((0, 0, 4, 0, 500)), drafting)
    experts = math.hypot(1.2e-3, 8e-3 * (1 - 0.5**12))
    linear = math.hypot(3.6e-3, 4e-3)
    expected = {
        "compute": 3.6e-3**2 / linear + 1.2e-3**2 / experts + 1.2e-4 + 1e-3 * (1 - 0.5**12),
        "bandwidth": 4e-3**2 / linear + (8e-3 * (1 - 0.5**12)) ** 2 / experts,
        "attention": 0.0,
        "kv": 1e-7 * 500 + 4 * 2e-5,
        "head": 1.2e-3,
        "link": 2.2e-3,
        "host": 2e-3 + 4e-4,
    }
    assert {name: seconds[0] for name, seconds in by_part.items()} == pytest.approx(
        expected, rel=1e-12
    )
    whole = vectorised_step.drafted_step_seconds(
        PARTED, columns((0, 0, 4, 0, 500)), replace(drafting, passes=0)
    )
    assert whole[0] == pytest.approx(sum(expected.values()), rel=1e-12)


def test_a_slow_host_is_a_part_of_its_own_by_hand() -> None:
    """5 ms and 0.1 ms for each of ten sequences, next to 3 ms of reading; nothing where reading
    takes longer."""
    c = coefficient_array(norm=1.0, linear_bytes=3e-3, host_least=5e-3, host_least_sequence=1e-4)
    assert parts(c, columns((0, 0, 10, 0, 0)))["host"][0] == pytest.approx(3e-3)
    c[at.LINEAR_BYTES] = 7e-3
    by_part = parts(c, columns((0, 0, 10, 0, 0)))
    assert (by_part["host"][0], by_part["bandwidth"][0]) == (0.0, pytest.approx(7e-3))


def test_passes_of_a_drafter_by_hand() -> None:
    """A first pass over the whole step, and two more over the decodes alone: 1 ms and 0.01 ms a
    token."""
    plain = coefficient_array(norm=1.0, host_step=2e-3)
    draft = coefficient_array(
        norm=1.0, linear_flops=1e-5, linear_bytes=1e-3, context=1e-7, host_prefill=3e-3
    )
    drafting = step.Drafting(tokens=3, acceptance=0.5, passes=3, coefficients=draft)
    steps = columns((6, 2, 4, 0, 500), (6, 2, 0, 0, 0))
    first = 1e-3 + 10e-5 + 5e-5 + 3e-3
    again = 1e-3 + 4e-5 + 5e-5
    seconds = vectorised_step.drafted_step_seconds(plain, steps, drafting)
    assert seconds == pytest.approx([2e-3 + first + 2 * again, 2e-3 + 1e-3 + 6e-5 + 3e-3])
    once = vectorised_step.drafted_step_seconds(plain, steps, replace(drafting, passes=1))
    assert once[0] == pytest.approx(2e-3 + first)


def test_each_step_may_have_a_table_of_its_own_by_hand() -> None:
    """Two deployments with tables of three entries, of which the second takes ten times as long."""
    one = np.append(coefficient_array(norm=1.0), [1, 2.0, 10, 3.0, 100, 30.0])
    ten = one.copy()
    ten[at.COEFFICIENTS + 1 :: 2] *= 10
    places = (1, 10, 55, 200)
    steps = columns(*((0, 0, tokens, 0, 0) for tokens in places for _ in range(2)))
    both = np.array([one, ten] * len(places)).T
    expected = [factor * value for value in (2.0, 3.0, 16.5, 60.0) for factor in (1, 10)]
    assert vectorised_step.tabulated_seconds(both, steps.decode_sequences) == pytest.approx(
        expected
    )
    assert parts(both, steps)["table"] == pytest.approx(expected)
    assert vectorised_step.step_seconds(both, steps) == pytest.approx(expected)
    zero = vectorised_step.tabulated_seconds(one, np.array([0.0]))
    assert zero == pytest.approx([2.0])
