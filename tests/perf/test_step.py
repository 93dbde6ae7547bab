import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import ROOFLINE, coefficient_array
from tonnage.perf import step_terms as at
from tonnage.perf.step import Drafting, StepModel, batch_seconds, context_seconds, step_seconds
from tonnage.units import PS_PER_S

tokens = st.integers(1, 50_000)


@given(tokens, st.integers(1, 64), st.integers(0, 256), st.integers(0, 10**9), st.integers(0, 10**8))
def test_a_step_is_the_sum_of_its_parts(prefill: int, n: int, b: int, pairs_2: int, context: int) -> None:
    parts = (
        batch_seconds(ROOFLINE, prefill + b, n + b)
        + ROOFLINE[at.ATTENTION] * pairs_2 / 2
        + context_seconds(ROOFLINE, b) * context
        + ROOFLINE[at.HOST_PREFILL]
    )
    assert step_seconds(ROOFLINE, prefill, n, b, pairs_2, context) == pytest.approx(parts, rel=1e-12)


@given(tokens, tokens, st.integers(1, 512))
def test_more_tokens_and_more_sequences_never_cost_less(few: int, more: int, sequences: int) -> None:
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


def test_alike_tokens_touch_no_more_experts_than_one() -> None:
    c = coefficient_array(expert_bytes=8e-3, expert_miss=1.0, expert_rest=0.75, norm=1.0)
    assert batch_seconds(c, 1, 1) == batch_seconds(c, 1000, 1) == pytest.approx(2e-3)


def test_experts_are_kernels_of_their_own() -> None:
    """Dense matrices and experts each join their arithmetic and their reading; the two follow one another."""
    c = coefficient_array(linear_flops=3e-3, linear_bytes=4e-3, expert_flops=6e-3, expert_bytes=8e-3, norm=2.0)
    assert batch_seconds(c, 1, 1) == pytest.approx(5e-3 + 10e-3)
    c[at.EXPERT_BYTES] = 0.0  # a dense model has none
    assert batch_seconds(c, 1, 1) == pytest.approx(5e-3)


def test_a_cuda_graph_spares_a_step_with_prompts_what_launching_costs() -> None:
    c = coefficient_array(host_step=1e-3, host_prefill=2e-3, launches=7e-3, eager=5e-3, graphed_to=64.0, norm=1.0)
    assert step_seconds(c, 60, 1, 4, 0, 0) == pytest.approx(3e-3)
    assert step_seconds(c, 61, 1, 4, 0, 0) == pytest.approx(8e-3)
    c[at.EAGER] = 0.0
    assert step_seconds(c, 61, 1, 4, 0, 0) == pytest.approx(7e-3)
    assert step_seconds(c, 0, 0, 65, 0, 0) == pytest.approx(1e-3)


def test_guesses_count_among_the_tokens_of_a_cuda_graph() -> None:
    c = coefficient_array(host_step=1e-3, launches=7e-3, graphed_to=64.0, norm=1.0)
    model = StepModel(coefficients=c, frontend_s=0.0, drafting=Drafting(tokens=3, acceptance=0.5, passes=0, coefficients=c))
    assert model.seconds(48, 1, 4, 0, 0) == pytest.approx(1e-3)
    assert model.seconds(49, 1, 4, 0, 0) == pytest.approx(7e-3)


def test_a_starved_all_reduce_costs_more_between_its_bounds_only() -> None:
    c = coefficient_array(comm_large=2e-3, starved=5e-3, starved_from=70.0, starved_to=269.0, norm=1.0)
    assert [batch_seconds(c, t, 1) for t in (70, 71, 269, 270)] == pytest.approx([2e-3, 7e-3, 7e-3, 2e-3])


def test_a_small_all_reduce_is_never_starved() -> None:
    c = coefficient_array(comm_step=1e-3, comm_large=2e-3, small_tokens=100.0, starved=5e-3, starved_from=70.0, starved_to=269.0, norm=1.0)
    assert batch_seconds(c, 100, 1) == pytest.approx(1e-3)
    assert batch_seconds(c, 101, 1) == pytest.approx(7e-3)


def test_all_reduces_change_regime_and_never_get_cheaper_by_it() -> None:
    c = coefficient_array(comm_step=1e-3, comm_small=1e-4, small_tokens=10.0, comm_large=1.8e-3, comm_token=2e-5, norm=1.0)
    assert batch_seconds(c, 5, 1) == pytest.approx(1.5e-3)
    assert batch_seconds(c, 10, 1) == pytest.approx(2e-3)  # both cost 2 ms here
    assert batch_seconds(c, 11, 1) == pytest.approx(1.8e-3 + 11 * 2e-5)
    times = [batch_seconds(c, t, 1) for t in range(1, 40)]
    assert all(a <= b + 1e-15 for a, b in itertools.pairwise(times))


def test_a_one_shot_all_reduce_is_taken_even_where_it_costs_more() -> None:
    c = coefficient_array(comm_step=1e-3, comm_small=1e-4, comm_large=1.8e-3, comm_token=2e-5, one_shot_to=128.0, norm=1.0)
    assert batch_seconds(c, 5, 1) == pytest.approx(1.5e-3)
    assert batch_seconds(c, 128, 1) == pytest.approx(1e-3 + 128e-4)
    assert batch_seconds(c, 129, 1) == pytest.approx(1.8e-3 + 129 * 2e-5)
    c[at.SMALL_TOKENS] = 200.0  # beyond, whichever is faster
    assert batch_seconds(c, 128, 1) == pytest.approx(1e-3 + 128e-4)
    assert batch_seconds(c, 129, 1) == pytest.approx(1.8e-3 + 129 * 2e-5)


def test_a_decode_step_is_linear_in_its_context() -> None:
    times = [step_seconds(ROOFLINE, 0, 0, 7, 0, context) for context in (0, 1000, 2000, 3000)]
    assert np.diff(times) == pytest.approx(1000 * context_seconds(ROOFLINE, 7))


def test_walking_one_context_is_shared_by_the_batch() -> None:
    c = coefficient_array(context=2e-9, walk=1e-7)
    assert context_seconds(c, 0) == 0.0
    assert context_seconds(c, 1) == pytest.approx(1.02e-7)
    assert context_seconds(c, 100) == pytest.approx(3e-9)


def test_blocks_of_heads_run_in_waves_until_they_are_taken_together() -> None:
    """64 blocks a sequence on 128 multiprocessors: two sequences are one wave, three are two; from five on, groups."""
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


def test_a_step_with_prompts_takes_no_less_than_its_launches() -> None:
    c = coefficient_array(host_step=0.001, linear_flops=1e-6, launches=0.004, norm=1.0)
    assert step_seconds(c, 100, 1, 0, 0, 0) == 0.004
    assert step_seconds(c, 10_000, 1, 0, 0, 0) == pytest.approx(0.011)
    assert step_seconds(c, 0, 0, 10, 0, 0) == pytest.approx(0.00101)


def test_an_engine_in_its_own_process_hands_out_no_tokens() -> None:
    c = coefficient_array(host_step=0.001, host_sequence=2e-5, norm=1.0)
    model = StepModel(coefficients=c, frontend_s=0.01, stream_s=1e-4, response_s=1.5e-5)
    own = model.in_process
    assert own.stream_s == own.response_s == 0.0
    assert own.seconds(0, 0, 100, 0, 0) == pytest.approx(0.001 + 100 * 5e-6)
    assert model.seconds(0, 0, 100, 0, 0) == pytest.approx(0.001 + 100 * 2e-5)
    assert own.in_process.seconds(0, 0, 100, 0, 0) == own.seconds(0, 0, 100, 0, 0)
