from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import ROOFLINE, coefficient_array, draftings, step_models
from tonnage import api
from tonnage.perf import pipeline, step, vectorised_step
from tonnage.perf import step_terms as at
from tonnage.perf.step import StepModel, batch_seconds, context_seconds, step_seconds
from tonnage.perf.step_terms import COEFFICIENTS, DURATIONS, LIMITS, PARTS, TERMS, StepTerm
from tonnage.perf.vectorised_step import Steps, parts
from tonnage.plan.plan import TERMS as EXPLAINED
from tonnage.sizing.loads.confidence import slower
from tonnage.sizing.notes import link_share
from tonnage.units import PS_PER_S

tokens = st.integers(1, 50_000)


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


@given(tokens, tokens, st.integers(1, 512))
def test_more_tokens_and_more_sequences_never_cost_less(
    few: int, more: int, sequences: int
) -> None:
    low, high = sorted((few, more))
    assert batch_seconds(ROOFLINE, low, sequences) <= batch_seconds(ROOFLINE, high, sequences)
    assert batch_seconds(ROOFLINE, high, sequences) <= batch_seconds(ROOFLINE, high, sequences + 1)


def test_arithmetic_and_weights_join_by_the_norm() -> None:
    c = coefficient_array(linear_flops=3e-3, linear_bytes=4e-3, norm=2.0)
    assert batch_seconds(c, 1, 1) == pytest.approx(5e-3)
    c[at.NORM] = 1.0
    assert batch_seconds(c, 1, 1) == pytest.approx(7e-3)


def test_the_head_costs_arithmetic_or_bytes_whichever_is_more() -> None:
    c = coefficient_array(head_flops=1e-3, head_bytes=3e-3, norm=1.0)
    assert batch_seconds(c, 0, 2) == pytest.approx(3e-3)
    assert batch_seconds(c, 0, 5) == pytest.approx(5e-3)


def test_experts_are_read_as_far_as_tokens_touch_them() -> None:
    """One token of 8 experts with 2 chosen reads a quarter, and 100 random tokens read all."""
    c = coefficient_array(expert_bytes=8e-3, expert_miss=0.75, expert_rest=1.0, norm=1.0)
    assert batch_seconds(c, 1, 1) == pytest.approx(2e-3)
    assert batch_seconds(c, 2, 2) == pytest.approx(8e-3 * (1 - 0.75**2))
    assert batch_seconds(c, 100, 100) == pytest.approx(8e-3)


def test_a_cuda_graph_spares_a_step_with_prompts_what_launching_costs() -> None:
    c = coefficient_array(
        host_step=1e-3, host_prefill=2e-3, launches=7e-3, eager=5e-3, graphed_to=64.0, norm=1.0
    )
    assert step_seconds(c, 60, 1, 4, 0, 0) == pytest.approx(3e-3)
    assert step_seconds(c, 61, 1, 4, 0, 0) == pytest.approx(8e-3)
    c[at.EAGER] = 0.0
    assert step_seconds(c, 61, 1, 4, 0, 0) == pytest.approx(7e-3)
    assert step_seconds(c, 0, 0, 65, 0, 0) == pytest.approx(1e-3)


def test_a_slow_host_hides_behind_a_step_until_it_takes_longer() -> None:
    c = coefficient_array(
        linear_bytes=3e-3,
        host_step=1e-3,
        host_sequence=1e-5,
        host_least=5e-3,
        host_least_sequence=1e-4,
        norm=1.0,
    )
    assert batch_seconds(c, 1, 1) == pytest.approx(5.1e-3)
    assert batch_seconds(c, 32, 32) == pytest.approx(8.2e-3)
    c[at.LINEAR_BYTES] = 9e-3
    assert batch_seconds(c, 1, 1) == pytest.approx(10.01e-3)


def test_a_starved_all_reduce_costs_more_between_its_bounds_only() -> None:
    c = coefficient_array(
        comm_large=2e-3, starved=5e-3, starved_from=70.0, starved_to=269.0, norm=1.0
    )
    assert [batch_seconds(c, t, 1) for t in (70, 71, 269, 270)] == pytest.approx(
        [2e-3, 7e-3, 7e-3, 2e-3]
    )


def test_all_reduces_change_regime_and_never_get_cheaper_by_it() -> None:
    c = coefficient_array(
        comm_step=1e-3,
        comm_small=1e-4,
        small_tokens=10.0,
        comm_large=1.8e-3,
        comm_token=2e-5,
        norm=1.0,
    )
    assert batch_seconds(c, 5, 1) == pytest.approx(1.5e-3)
    assert batch_seconds(c, 10, 1) == pytest.approx(2e-3)  # both cost 2 ms here
    assert batch_seconds(c, 11, 1) == pytest.approx(1.8e-3 + 11 * 2e-5)
    times = [batch_seconds(c, t, 1) for t in range(1, 40)]
    assert all(a <= b + 1e-15 for a, b in itertools.pairwise(times))


def test_a_one_shot_all_reduce_is_taken_even_where_it_costs_more() -> None:
    c = coefficient_array(
        comm_step=1e-3,
        comm_small=1e-4,
        comm_large=1.8e-3,
        comm_token=2e-5,
        one_shot_to=128.0,
        norm=1.0,
    )
    assert batch_seconds(c, 5, 1) == pytest.approx(1.5e-3)
    assert batch_seconds(c, 128, 1) == pytest.approx(1e-3 + 128e-4)
    assert batch_seconds(c, 129, 1) == pytest.approx(1.8e-3 + 129 * 2e-5)
    c[at.SMALL_TOKENS] = 200.0  # beyond, whichever is faster
    assert batch_seconds(c, 128, 1) == pytest.approx(1e-3 + 128e-4)
    assert batch_seconds(c, 129, 1) == pytest.approx(1.8e-3 + 129 * 2e-5)


def test_blocks_of_heads_run_in_waves_until_they_are_taken_together() -> None:
    """64 blocks a sequence on 128 multiprocessors: two sequences are one wave, three are two; from
    five on, groups."""
    c = coefficient_array(context=2e-9, heads=1e-9, walk=1e-7, wave=0.5, grouped_from=4.5)
    assert context_seconds(c, 0) == 0.0
    per_mean_context = [context_seconds(c, b) * b for b in (1, 2, 3, 4)]
    assert per_mean_context == pytest.approx([1e-7, 1e-7, 2e-7, 2e-7], rel=1e-6)
    assert context_seconds(c, 5) == pytest.approx(2e-9 + 1e-7 / 5)
    c[at.HEADS] = 3e-6  # arithmetic head by head takes longer than the waves
    assert context_seconds(c, 4) == pytest.approx(3e-6, rel=1e-6)
    assert context_seconds(c, 5) == pytest.approx(2e-9 + 1e-7 / 5)


def test_the_decode_line_is_the_price_of_a_decode_step() -> None:
    model = StepModel(coefficients=ROOFLINE, frontend_s=0.0)
    a, c = model.decode_line(300)
    assert a.dtype == c.dtype == np.int64
    assert len(a) == len(c) == 301
    for b in (1, 7, 300):
        context = b * 1234
        exact = step_seconds(ROOFLINE, 0, 0, b, 0, context) * PS_PER_S
        assert abs(int(a[b]) + int(c[b]) * context - exact) <= 1 + 0.5 * context
        assert math.isclose((int(a[b]) + int(c[b]) * context) / exact, 1.0, rel_tol=1e-3)


def test_an_engine_in_its_own_process_hands_out_no_tokens() -> None:
    c = coefficient_array(host_step=0.001, host_sequence=2e-5, norm=1.0)
    model = StepModel(coefficients=c, frontend_s=0.01, stream_s=1e-4, response_s=1.5e-5)
    own = model.in_process
    assert own.stream_s == own.response_s == 0.0
    assert own.seconds(0, 0, 100, 0, 0) == pytest.approx(0.001 + 100 * 5e-6)
    assert model.seconds(0, 0, 100, 0, 0) == pytest.approx(0.001 + 100 * 2e-5)
    assert own.in_process.seconds(0, 0, 100, 0, 0) == own.seconds(0, 0, 100, 0, 0)


# Whatever knows about coefficients knows it from their one description.

CONTENTS = (700, 2, 9, 900_000, 20_000)
"""A step of prompts and decodes."""

ALWAYS = {
    at.NORM: 1.0,
    at.EXPERT_BYTES: 1e-30,
    at.EXPERT_MISS: 0.9,
    at.EXPERT_REST: 1.0,
    at.WAVE: 0.3,
}
"""Coefficients without which others would have no effect on the step."""

SWITCHES: dict[int, dict[int, float]] = {
    at.HOST_LEAST_SEQUENCE: {at.HOST_LEAST: 1e-15},
    at.COMM_STEP: {at.ONE_SHOT_TO: 1e6},
    at.COMM_SMALL: {at.ONE_SHOT_TO: 1e6},
    at.STARVED: {at.STARVED_TO: 1e6},
    at.COMM_SLOW: {at.SLOW_TO: 1e6},
    at.HEADS: {at.GROUPED_FROM: 1e6},
    at.SPARSE: {at.SPARSE_MOST: 1e6},
    at.SPARSE_MOST: {at.SPARSE: 1e6},
}
"""The limits inside which a duration is taken."""


def alone(place: int, seconds: float = 1e-3) -> np.ndarray:
    """A step model in which nothing but one duration takes time."""
    c = np.zeros(COEFFICIENTS)
    for other, value in {**ALWAYS, **SWITCHES.get(place, {}), place: seconds}.items():
        c[other] = value
    return c


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


def test_numbers_that_are_no_durations_stay_in_a_slower_step() -> None:
    model = StepModel(coefficients=np.arange(1.0, COEFFICIENTS + 5.0), frontend_s=0.0)
    ratio = slower(model, 1.5).coefficients / model.coefficients
    pure = [term.place for term in TERMS if not term.is_time]
    assert set(LIMITS) <= set(pure)
    assert (ratio[pure] == 1.0).all()
    assert (ratio[list(DURATIONS)] == 1.5).all()
    assert ratio[COEFFICIENTS:].tolist() == [1.0, 1.5, 1.0, 1.5]


def test_every_part_is_explained_in_words_and_has_durations() -> None:
    assert {*PARTS, "drafter", "table"} == set(EXPLAINED)
    assert {term.part for term in TERMS if term.is_time} == set(PARTS)
    assert {term.part for term in TERMS if not term.is_time} == {None}


def test_the_share_of_links_is_that_of_their_terms() -> None:
    class Filled:
        batch = 9
        step = StepModel(
            coefficients=alone(at.COMM_LARGE) + alone(at.HOST_STEP, 3e-3) - alone(at.NORM, 0.0),
            frontend_s=0.0,
        )

    Filled.step.coefficients[at.NORM] = 1.0
    assert link_share(Filled) == pytest.approx(0.25)


@pytest.mark.parametrize("term", TERMS, ids=[term.name for term in TERMS])
def test_a_round_scales_each_term_as_described(term: StepTerm) -> None:
    deployment = api.deployment_of(
        model="mixtral-8x7b", gpu="h100-sxm-80gb", precision="fp8", tp=4, engine="tensorrt-llm-0.9"
    )
    stage = StepModel(coefficients=np.full(COEFFICIENTS, 0.7), frontend_s=0.0)
    staged = replace(deployment, parallelism=replace(deployment.parallelism, pp=3))
    found = pipeline._round(stage, staged, 16, 100).coefficients[term.place]
    expected = {"same": 0.7, "times": 2.1, "share": 0.7 / 3, "root": 0.7 ** (1 / 3)}[term.stages]
    hops = {place for pair in at.MESSAGES for place in pair}
    assert found == pytest.approx(expected, rel=1e-3 if term.place in hops else 1e-12)


def test_limits_of_a_round_are_those_of_all_its_micro_batches() -> None:
    assert {TERMS[place].stages for place in LIMITS} == {"times"}


# The step's two price functions, held against each other: the scalar one that the kernel compiles,
# and its twin on arrays.

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
