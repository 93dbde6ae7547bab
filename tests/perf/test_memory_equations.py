"""The equations of memory: each part's bytes, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.deployments import deployment
from tonnage.errors import InputError
from tonnage.perf.links import check_split
from tonnage.perf.memory import kv_bytes_per_token, memory_plan, weight_bytes
from tonnage.perf.memory_equations import equations
from tonnage.spec.deployment import Parallelism, parse_speculation


def test_the_rule_of_sglang_leaves_activations_in_the_rest() -> None:
    plan = memory_plan(deployment("llama-3-8b", "h100", engine="sglang"))
    assert plan.activation_bytes == 0
    assert plan.kv_budget_bytes == int(
        0.83 * 85_520_809_984 - plan.weight_bytes - plan.reserve_bytes
    )
    longer = replace(plan.deployment, knobs=replace(plan.deployment.knobs, max_num_tokens=65_536))
    assert memory_plan(longer).kv_budget_bytes == plan.kv_budget_bytes
    lines = equations(plan)
    assert "activations and graphs = in the 17 % that mem_fraction_static leaves" in lines
    assert any(
        line.startswith("KV cache = 0.83 × ") and line.endswith("(mem_fraction_static)")
        for line in lines
    )


@pytest.mark.parametrize("model", ["gemma-3-27b", "llama-3.2-11b-vision", "ministral-3-8b"])
def test_encoders_are_loaded_and_split_over_the_gpus(model: str) -> None:
    one, two = (memory_plan(deployment(model, "h200", tp=tp, engine="vllm")) for tp in (1, 2))
    assert one.encoder_bytes == 2 * one.deployment.model.encoder_parameters
    assert two.encoder_bytes == one.encoder_bytes // 2
    assert f"{one.deployment.model.encoder_parameters:,} × 2 B" in "".join(equations(one))
    bare = replace(one.deployment.model, encoder_parameters=0)
    without = memory_plan(replace(one.deployment, model=bare))
    assert without.kv_budget_bytes - one.kv_budget_bytes == one.encoder_bytes


def test_experts_in_mxfp4_are_filled_up_to_what_kernels_take() -> None:
    one, two = (
        memory_plan(deployment("gpt-oss-20b", "h100", "mxfp4", tp, "vllm 0.19")) for tp in (1, 2)
    )
    plain = weight_bytes(one.deployment)
    # 2,880 of the hidden width become 3,072; of the inner width 2,880 become 2,944, and 1,440
    # become 1,536
    assert one.weight_bytes / plain == pytest.approx(
        1 + (3_072 / 2_880 * 2_944 / 2_880 - 1) * 0.74, rel=0.01
    )
    assert 2 * two.weight_bytes / plain == pytest.approx(
        1 + (3_072 / 2_880 * 1_536 / 1_440 - 1) * 0.74, rel=0.01
    )
    assert "that fill up experts" in equations(one)[0]
    wide = deployment("gpt-oss-20b", "h100", "mxfp4", engine="tensorrt-llm 1.2")
    assert memory_plan(wide).weight_bytes == weight_bytes(wide)


def test_a_latent_vector_is_on_every_gpu_and_its_heads_are_split() -> None:
    one, eight = (deployment("deepseek-r1", "h200", "fp8", tp, "vllm") for tp in (1, 8))
    assert kv_bytes_per_token(one) == kv_bytes_per_token(eight) == 61 * 576
    assert weight_bytes(eight) < weight_bytes(one) / 7
    check_split(replace(eight, parallelism=Parallelism(tp=16)))
    with pytest.raises(InputError, match=r"128 query"):
        check_split(replace(eight, parallelism=Parallelism(tp=3)))
    assert any(
        "61 layers × (512 + 64) latent × 1 B = 35,136 B" in line
        for line in equations(memory_plan(eight))
    )


def test_a_drafter_takes_memory_for_weights_and_cache() -> None:
    plain = deployment("llama-3-8b", "h100")
    eagle = replace(plain, speculation=parse_speculation("eagle k=3 acceptance=0.7"))
    with_it, without = memory_plan(eagle), memory_plan(plain)
    # One layer and a projection of 2 × 4,096 × 4,096, in 16 bits; one layer's keys and values
    # beside 32.
    assert with_it.drafter_bytes == 2 * (218_103_808 + 33_554_432)
    assert with_it.kv_bytes_per_token == without.kv_bytes_per_token * 33 // 32
    assert without.drafter_bytes == 0
    assert with_it.weight_bytes == without.weight_bytes
    assert with_it.kv_budget_bytes == pytest.approx(
        without.kv_budget_bytes - 0.9 * with_it.drafter_bytes, abs=2
    )
    assert [line for line in equations(with_it) if line.startswith("drafter")] == [
        "drafter (eagle k=3 acceptance=0.7) = 0.50 GB per GPU"
    ]


@pytest.mark.parametrize(
    ("model", "engine", "growing", "windowed", "windows"),
    [
        # 18 layers of 36 keep 128 tokens: as many bytes as 128 tokens of the others, 8 blocks of
        # 16.
        ("gpt-oss-120b", "vllm", 2 * 18 * 4 * 64 * 2, 2 * 18 * 4 * 64 * 2, 8),
        # 52 layers of 62 keep 1,024 tokens: as many bytes as 5,324.8 tokens of the other 10, 333
        # blocks of 16 or 167 of 32.
        ("gemma-3-27b", "vllm", 2 * 10 * 8 * 128 * 2, 2 * 52 * 8 * 128 * 2, 333),
        ("gemma-3-27b", "tensorrt-llm 1.0", 2 * 10 * 8 * 128 * 2, 2 * 52 * 8 * 128 * 2, 167),
    ],
)
def test_layers_with_windows_take_a_constant_number_of_blocks(
    model: str, engine: str, growing: int, windowed: int, windows: int
) -> None:
    asked = deployment(model, "h200", "fp16", 2, engine)
    plan, size, slots = memory_plan(asked), asked.knobs.tokens_per_block, asked.knobs.max_batch_size
    assert (plan.kv_bytes_per_token, plan.window_bytes_per_token) == (growing, windowed)
    assert plan.blocks == plan.kv_budget_bytes // (growing * size)
    assert (plan.windows.blocks, plan.windows.tokens) == (windows, asked.model.window)
    # While prompts are computed, layers with a window keep the whole step in vLLM.
    step = asked.knobs.max_num_tokens
    beyond = {
        isl: -(-step * (isl - asked.model.window) * windowed // (min(isl, step) * growing * size))
        for isl in (2_000,)
    }
    beyond[20_000] = -(-min(step, 20_000 - asked.model.window) * windowed // (growing * size))
    if engine != "vllm":
        beyond = dict.fromkeys(beyond, 0)
    assert {isl: plan.prompt_blocks(isl) for isl in beyond} == pytest.approx(beyond, abs=1)
    assert plan.prompt_blocks(asked.model.window) == 0
    assert plan.concurrent_requests(2_000, 200) == min(
        (plan.blocks - plan.prompt_blocks(2_000)) // (-(-2_200 // size) + windows), slots
    )
    assert (
        plan.concurrent_requests(20_000, 480)
        == (plan.blocks - plan.prompt_blocks(20_000)) // (-(-20_480 // size) + windows)
        < slots
    )
    # Shorter than its window a request takes its share: no more than its tokens in all layers, but
    # for whole blocks.
    short = asked.model.window // 2
    assert 0 <= plan.request_blocks(short) - short * (growing + windowed) / (growing * size) < 2
    kept = (
        f"{asked.model.windowed_layers} layers within {asked.model.window:,} tokens ="
        f" {asked.model.window:,} × {windowed:,} B"
    )
    assert f"KV of windows = {kept} per GPU and request, {windows:,} blocks" in equations(plan)
