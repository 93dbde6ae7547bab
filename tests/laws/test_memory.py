"""Laws of memory: what more of something may never do to what an instance holds."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st

from tests.laws.draws import changed, deployments, holds
from tests.strategies import examples
from tonnage.perf.memory import memory_plan
from tonnage.spec.deployment import Deployment
from tonnage.spec.precision import find_precision


def tokens(made: Deployment) -> int:
    """Tokens that the KV cache holds; 0 where there is no room for one block."""
    plan = holds(made)
    return 0 if plan is None else plan.tokens


@examples(0.5)
@given(made=deployments(), isl=st.integers(1, 4000), osl=st.integers(1, 500))
def test_twice_the_context_never_lets_more_requests_in(
    made: Deployment, isl: int, osl: int
) -> None:
    plan = memory_plan(made)
    assert plan.concurrent_requests(2 * isl, 2 * osl) <= plan.concurrent_requests(isl, osl)
    assert plan.request_blocks(2 * (isl + osl)) >= plan.request_blocks(isl + osl)


@examples(0.5)
@given(made=deployments(precision="fp16"))
def test_fewer_bits_of_the_weights_never_take_more_memory(made: Deployment) -> None:
    fewer = replace(made, precision=find_precision("fp8+kv-fp16"))
    assert memory_plan(fewer).weight_bytes < memory_plan(made).weight_bytes
    assert tokens(fewer) >= tokens(made)


@examples(0.5)
@given(made=deployments(precision="fp16"))
def test_half_the_bits_of_the_cache_hold_at_least_nearly_twice_the_tokens(made: Deployment) -> None:
    half = replace(made, precision=find_precision("fp16+kv-fp8"))
    block = made.knobs.tokens_per_block
    assert memory_plan(half).kv_bytes_per_token <= memory_plan(made).kv_bytes_per_token
    assert memory_plan(half).kv_bytes_per_token >= memory_plan(made).kv_bytes_per_token / 2
    assert tokens(made) - block <= tokens(half) <= 2 * (tokens(made) + block)


@examples(0.5)
@given(made=deployments(tp=1))
def test_two_gpus_hold_no_more_each_and_at_least_half(made: Deployment) -> None:
    two = replace(made, parallelism=replace(made.parallelism, tp=2))
    assume(holds(two) is not None)
    alone, each = memory_plan(made), memory_plan(two)
    assert alone.weight_bytes / 2 <= each.weight_bytes <= alone.weight_bytes
    assert alone.kv_bytes_per_token / 2 <= each.kv_bytes_per_token <= alone.kv_bytes_per_token
    assert each.tokens >= alone.tokens


@examples(0.5)
@given(
    made=deployments(), slots=st.sampled_from([8, 64, 256]), budget=st.sampled_from([1024, 4096])
)
def test_more_slots_and_a_larger_step_never_leave_more_cache(
    made: Deployment, slots: int, budget: int
) -> None:
    least = tokens(changed(made, max_batch_size=slots, max_num_tokens=budget))
    assert tokens(changed(made, max_batch_size=2 * slots, max_num_tokens=budget)) <= least
    assert tokens(changed(made, max_batch_size=slots, max_num_tokens=2 * budget)) <= least


@examples(0.5)
@given(made=deployments(), more=st.floats(1.01, 2.0))
def test_a_gpu_with_more_memory_holds_more(made: Deployment, more: float) -> None:
    assert tokens(
        replace(made, gpu=replace(made.gpu, memory_bytes=int(made.gpu.memory_bytes * more)))
    ) > tokens(made)


@examples(0.5)
@given(made=deployments(), less=st.floats(0.5, 0.99))
def test_a_smaller_share_of_the_memory_never_holds_more(made: Deployment, less: float) -> None:
    assert tokens(changed(made, kv_fraction=made.knobs.kv_fraction * less)) <= tokens(made)


@examples(0.5)
@given(made=deployments())
def test_the_parts_and_the_cache_are_what_the_engine_takes(made: Deployment) -> None:
    plan, knobs = memory_plan(made), made.knobs
    parts = plan.weight_bytes + plan.encoder_bytes + plan.activation_bytes + plan.reserve_bytes
    if knobs.kv_rule == "free_gpu_memory_fraction":
        assert plan.kv_budget_bytes == int(knobs.kv_fraction * (made.gpu.memory_bytes - parts))
    else:
        assert plan.kv_budget_bytes + parts <= made.gpu.memory_bytes
    used = plan.blocks * knobs.tokens_per_block * plan.kv_bytes_per_token
    assert (
        plan.kv_budget_bytes - plan.kv_bytes_per_token * knobs.tokens_per_block
        < used
        <= plan.kv_budget_bytes
    )


@examples(0.5)
@given(made=deployments(), isl=st.integers(1, 4000))
def test_what_fits_at_once_fits_into_the_blocks(made: Deployment, isl: int) -> None:
    plan = memory_plan(made)
    fitting = plan.concurrent_requests(isl, 100)
    assert (
        fitting * plan.request_blocks(isl + 100) + plan.prompt_blocks(isl) * (fitting > 0)
        <= plan.blocks
    )
    assert fitting <= made.knobs.max_batch_size
