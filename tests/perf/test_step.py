from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.perf.step_cases import alone, tokens
from tests.strategies import ROOFLINE, coefficient_array
from tonnage import api
from tonnage.perf import pipeline
from tonnage.perf import step_terms as at
from tonnage.perf.step import (
    Drafting,
    StepModel,
    batch_seconds,
    context_seconds,
    drafted_batch_seconds,
    drafted_context_seconds,
    launched,
    step_seconds,
    tabulated_seconds,
    verify_seconds,
)
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


EVERYTHING = {
    "linear_flops": 1e-5,
    "linear_bytes": 2e-3,
    "expert_flops": 2e-5,
    "expert_bytes": 1e-3,
    "expert_miss": 0.5,
    "expert_rest": 0.8,
    "head_flops": 1e-5,
    "head_bytes": 3e-5,
    "activation": 3e-6,
    "comm_large": 1e-4,
    "comm_token": 1e-6,
    "host_step": 1e-3,
    "host_sequence": 1e-6,
    "bounded": 2e-6,
    "adapters": 1e-3,
    "adapter_miss": 0.5,
    "norm": 1.0,
}


@pytest.mark.parametrize(
    ("changed", "more"),
    [
        ({}, 0.0),
        # where arithmetic and reading overlap: √(0.6² + 0.8²) = 1
        ({"norm": 2.0, "linear_flops": 6e-5, "linear_bytes": 8e-4, "expert_flops": 0.0}, -1.2e-3),
        ({"expert_bytes": 0.0, "expert_flops": 9.0}, -1.075e-3),
        # 0.975 of the experts are touched, and the fullest GPU has them all
        ({"expert_uneven": 2.0}, 2.5e-5),
        ({"expert_uneven": 0.1}, 1e-4 * math.sqrt(0.975 * 0.025)),
        ({"head_bytes": 5e-5}, 1e-5),
        ({"slow_to": 11, "comm_slow": 1e-6}, 1e-5),
        ({"slow_to": 10, "comm_slow": 1e-6}, 0.0),
        ({"small_tokens": 10, "comm_step": 2e-5, "comm_small": 3e-6}, 5e-5 - 1.1e-4),
        ({"small_tokens": 10, "comm_step": 2e-3}, 0.0),
        ({"small_tokens": 9, "comm_step": 2e-5}, 0.0),
        ({"one_shot_to": 10, "comm_step": 2e-3, "comm_small": 1e-6}, 2.01e-3 - 1.1e-4),
        ({"one_shot_to": 9, "comm_step": 2e-3}, 0.0),
        ({"starved_from": 9, "starved_to": 10, "starved": 7e-4}, 7e-4),
        ({"starved_from": 10, "starved_to": 11, "starved": 7e-4}, 0.0),
        ({"starved_from": 8, "starved_to": 9, "starved": 7e-4}, 0.0),
        ({"adapters": 0.0}, -9.375e-4),
        ({"host_least": 5e-3, "host_least_sequence": 1e-4}, 5.4e-3 - 5.3045e-3),
        ({"host_least": 5e-3, "host_least_sequence": 1e-5}, 0.0),
    ],
)
def test_a_step_of_ten_tokens_and_four_sequences_by_hand(
    changed: dict[str, float], more: float
) -> None:
    """Half as many tokens are routed: 0.1 + 2 ms of matrices, 0.1 + 0.975 of experts, 0.04 of the
    head, 0.03 of activations, 0.11 of links, 1.012 of the host and 0.9375 of adapters."""
    c = coefficient_array(**EVERYTHING | changed)
    whole = 1e-3 * (2.1 + 1.075 + 0.04 + 0.03 + 0.11 + 1.012 + 0.9375)
    assert batch_seconds(c, 10, 4, 0.5) == pytest.approx(whole + more, rel=1e-12)


@pytest.mark.parametrize(
    ("terms", "work", "seconds"),
    [
        ({"attention": 2e-9}, (10, 1, 0, 600, 0), 6e-7),
        ({"sparse": 2e-9, "sparse_most": 1e-9}, (10, 1, 0, 600, 0), 1e-8),
        ({"sparse": 2e-11, "sparse_most": 1e-9}, (10, 1, 0, 600, 0), 6e-9),
        ({"scan": 1e-6, "encoder": 2e-6}, (10, 1, 0, 600, 0), 3e-5),
        ({"host_prefill": 1e-3}, (1, 1, 3, 1, 0), 1e-3),
        ({"host_prefill": 1e-3, "context": 1e-8, "walk": 8e-8}, (0, 0, 4, 0, 500), 1.5e-5),
        ({"linear_flops": 1e-6, "head_flops": 1e-3, "norm": 1.0}, (5, 2, 3, 0, 0), 5.008e-3),
        # past its graphs a step with a prefill takes longer, and never less than its launches
        ({"host_step": 1e-3, "graphed_to": 8, "eager": 2e-3}, (5, 1, 3, 0, 0), 1e-3),
        ({"host_step": 1e-3, "graphed_to": 7, "eager": 2e-3}, (5, 1, 3, 0, 0), 3e-3),
        ({"host_step": 1e-3, "eager": 2e-3, "launches": 4e-3}, (5, 1, 3, 0, 0), 4e-3),
        ({"host_step": 1e-3, "eager": 2e-3, "launches": 4e-3}, (0, 0, 3, 0, 0), 1e-3),
    ],
)
def test_what_prompts_and_contexts_add_to_a_step_by_hand(
    terms: dict[str, float], work: tuple[int, int, int, int, int], seconds: float
) -> None:
    assert step_seconds(coefficient_array(**terms), *work) == pytest.approx(seconds, rel=1e-12)


def test_seconds_of_a_token_of_context_by_hand() -> None:
    c = coefficient_array(context=1e-8, walk=8e-8, wave=0.3, heads=3e-8, grouped_from=5)
    assert context_seconds(c, 0) == 0.0
    assert context_seconds(c, 5) == pytest.approx(1e-8 + 8e-8 / 5)
    # 4 sequences walk in ⌈0.3 · 4⌉ = 2 waves, 4e-8 each; of both the root of the root of the sum of
    # fourth powers
    assert context_seconds(c, 4) == pytest.approx((3**4 + 4**4) ** 0.25 * 1e-8)
    assert launched(c, 2.0, 1) == 2.0


@settings(max_examples=20)
@given(
    st.dictionaries(st.integers(1, 500), st.floats(1e-5, 1e-2), min_size=2, max_size=12),
    st.integers(1, 500),
)
def test_a_table_is_read_between_its_entries(table: dict[int, float], tokens_of_step: int) -> None:
    """Reference: numpy.interp inside, the line of the last two entries behind them."""
    places = sorted(table)
    values = [table[place] for place in places]
    c = np.append(
        np.zeros(COEFFICIENTS), [x for pair in zip(places, values, strict=True) for x in pair]
    )
    expected = float(np.interp(tokens_of_step, places, values))
    if tokens_of_step > places[-1]:
        slope = (values[-1] - values[-2]) / (places[-1] - places[-2])
        expected = values[-1] + slope * (tokens_of_step - places[-1])
    assert tabulated_seconds(c, tokens_of_step) == pytest.approx(expected, rel=1e-9, abs=1e-12)
    c[at.NORM] = 1.0
    assert batch_seconds(c, tokens_of_step, 1) == pytest.approx(expected, rel=1e-9, abs=1e-12)


TERMS_BY_HAND = {
    "linear_flops": 1e-5,
    "head_flops": 1e-5,
    "host_sequence": 1e-6,
    "bounded": 2e-6,
    "context": 1e-8,
    "host_prefill": 1e-3,
    "attention": 2e-7,
    "graphed_to": 17,
    "eager": 2e-3,
    "norm": 1.0,
}
DRAFTER = coefficient_array(linear_flops=1e-6, host_step=1e-4, context=1e-9, norm=1.0)


def guessing(passes: int, **changed: float) -> StepModel:
    """Two guesses of each sequence in so many passes."""
    return StepModel(
        coefficients=coefficient_array(**TERMS_BY_HAND | changed),
        frontend_s=0.0,
        drafting=Drafting(tokens=2, acceptance=0.5, passes=passes, coefficients=DRAFTER),
    )


@pytest.mark.parametrize(
    ("passes", "work", "milliseconds"),
    [
        # 5 tokens of a prompt and 3 of each of 4 sequences: 0.17 of matrices, 0.13 of heads, the host
        # for 5 sequences, their contexts, the prompt's attention and what the host does for it
        (0, (5, 1, 4, 25, 500), 0.17 + 0.13 + 0.015 + 0.005 + 0.0025 + 1.0),
        # the first pass of the drafter takes the prompt too; each further one the 4 sequences alone
        (1, (5, 1, 4, 25, 500), 1.3225 + 0.109 + 0.0005),
        (3, (5, 1, 4, 25, 500), 1.3225 + 0.1095 + 2 * (0.104 + 0.0005)),
        (3, (5, 1, 0, 25, 0), 0.05 + 0.01 + 0.003 + 0.0025 + 1.0 + 0.105),
        (0, (0, 0, 4, 0, 500), 0.12 + 0.12 + 0.012 + 0.005),
        (1, (0, 0, 4, 0, 500), 0.257 + 0.1045),
        (3, (0, 0, 4, 0, 500), 0.257 + 3 * 0.1045),
        # one token more than graphs hold
        (0, (6, 1, 4, 25, 500), 1.3225 + 0.01 + 2.0),
    ],
)
def test_a_step_with_guesses_by_hand(
    passes: int, work: tuple[int, int, int, int, int], milliseconds: float
) -> None:
    model = guessing(passes)
    assert model.seconds(*work) == pytest.approx(milliseconds / 1e3, rel=1e-12)
    prefill, n, b, _, context = work
    if not prefill:
        line = model.decode_line(4)
        assert line[0][b] + line[1][b] * context == pytest.approx(milliseconds * 1e9, abs=1)
        assert model.decode_ps(b) == line[0][b]
        drafting = (model.coefficients, DRAFTER)
        assert drafted_batch_seconds(*drafting, 2, passes, b) * 1e12 == pytest.approx(line[0][b])
        assert drafted_context_seconds(*drafting, passes, b) * 1e12 == pytest.approx(line[1][b])
    assert verify_seconds(model.coefficients, 2, prefill, n, b) == pytest.approx(
        (2e-5 * 3 * b + 1e-5 * prefill + 1e-5 * n + 3e-6 * (n + b)), rel=1e-12
    )


def test_the_experts_of_other_ranks_count_with_guesses_too() -> None:
    """30 µs a token of experts: 12 tokens of 4 sequences, half as many at a share of a half."""
    model = guessing(1, expert_flops=3e-5, expert_bytes=1e-12)
    plain = replace(model, drafting=None)
    for kind, tokens_of_all in ((model, 12), (plain, 4)):
        whole = kind.decode_ps(4) - kind.decode_ps(4, 0.5)
        assert whole == pytest.approx(3e7 * tokens_of_all / 2, abs=2)
        seconds = kind.seconds(0, 0, 4, 0, 0) - kind.seconds(0, 0, 4, 0, 0, 0.5)
        assert seconds == pytest.approx(3e-5 * tokens_of_all / 2)
        with_prompt = kind.seconds(5, 1, 4, 25, 0) - kind.seconds(5, 1, 4, 25, 0, 0.5)
        assert with_prompt == pytest.approx(3e-5 * (tokens_of_all + 5) / 2)


def test_the_expected_tokens_of_a_step_by_hand() -> None:
    assert guessing(1).tokens_per_step == 1 + 0.5 + 0.25
    assert replace(guessing(1), drafting=None).tokens_per_step == 1.0
    drafting = guessing(1).drafting
    assert drafting is not None
    for acceptance, expected in ((0.0, 1.0), (1.0, 3.0)):
        assert replace(drafting, acceptance=acceptance).tokens_per_step == expected


FRONT_END = StepModel(
    coefficients=coefficient_array(host_sequence=5e-6, host_step=1e-3),
    frontend_s=0.004,
    stream_s=1e-4,
    response_s=2e-6,
    stream_step_s=2e-3,
    enter_s=1e-3,
    enter_token_s=1e-5,
)


def test_how_long_a_prompt_enters_and_how_busy_that_makes_the_front_end() -> None:
    """2 ms for a prompt of 100 tokens and 6 for 60 tokens that are streamed, at 10 a second; and 2 ms
    for each step, as far as there is time."""
    assert FRONT_END.entering_s(100) == 0.004
    assert FRONT_END.entering_s(500) == pytest.approx(0.006)
    assert FRONT_END.front_end_busy(10, 100, 60, 50) == pytest.approx(0.08 + 0.1)
    assert FRONT_END.front_end_busy(10, 100, 60, 500) == 1.0
    assert FRONT_END.front_end_busy(200, 100, 60, 50) == pytest.approx(1.6)
    guesses = replace(FRONT_END, drafting=guessing(1).drafting)
    assert guesses.front_end_busy(10, 100, 70, 0) == pytest.approx(10 * (0.002 + 40 * 1e-4))


def test_what_is_left_of_the_front_end_in_its_own_process_and_between_engines() -> None:
    own = FRONT_END.in_process
    fields = ("frontend_s", "stream_s", "response_s", "stream_step_s", "enter_s", "enter_token_s")
    assert [getattr(own, name) for name in fields] == [0.004, 0.0, 0.0, 0.0, 0.0, 0.0]
    changed = FRONT_END.coefficients - own.coefficients
    assert changed[at.HOST_SEQUENCE] == pytest.approx(2e-6)
    assert np.flatnonzero(changed).tolist() == [at.HOST_SEQUENCE]
    inside = FRONT_END.inside
    assert [getattr(inside, name) for name in fields] == [0.0, 1e-4, 2e-6, 2e-3, 0.0, 0.0]
    assert inside.coefficients is FRONT_END.coefficients
    plain = StepModel(coefficients=DRAFTER, frontend_s=0.0)
    assert [getattr(plain, name) for name in fields] == [0.0] * 6
    assert plain.drafting is None
