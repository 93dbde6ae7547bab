from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.perf.step_cases import alone, tokens
from tests.strategies import ROOFLINE, coefficient_array
from tonnage import api
from tonnage.perf import pipeline
from tonnage.perf import step_terms as at
from tonnage.perf.step import StepModel, batch_seconds, step_seconds
from tonnage.perf.step_terms import COEFFICIENTS, TERMS, StepTerm
from tonnage.sizing.notes import link_share
from tonnage.units import PS_PER_S


@given(tokens, tokens, st.integers(1, 512))
def test_more_tokens_and_more_sequences_never_cost_less(
    few: int, more: int, sequences: int
) -> None:
    low, high = sorted((few, more))
    assert batch_seconds(ROOFLINE, low, sequences) <= batch_seconds(ROOFLINE, high, sequences)
    assert batch_seconds(ROOFLINE, high, sequences) <= batch_seconds(ROOFLINE, high, sequences + 1)


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
