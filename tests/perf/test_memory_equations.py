"""The equations of memory: each part's bytes, by hand."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from tests.deployments import deployment
from tonnage.errors import InputError
from tonnage.perf.links import check_split
from tonnage.perf.memory import (
    MemoryPlan,
    kv_bytes_per_token,
    memory_plan,
    weight_bytes,
)
from tonnage.perf.memory_equations import equations
from tonnage.spec.catalog import find_gpu
from tonnage.spec.deployment import Parallelism, parse_adapters, parse_speculation
from tonnage.spec.layers import Layers


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


GPU, GPU_OF_VLLM = 85_520_809_984, 85_020_809_984
"""Bytes of an H100, and what CUDA gives out of them: half a gigabyte less."""


def lines_of(place: tuple[Any, ...], *, isl: int = 0, osl: int = 0, **changed: Any) -> list[str]:
    return equations(memory_plan(replace(deployment(*place), **changed)), isl, osl)


def test_all_lines_of_a_dense_model() -> None:
    """Llama 3 8B: 32 layers of 218,103,808 weights, and twice 128,256 by 4,096; all in 16 bits."""
    assert 32 * 218_103_808 == 6_979_321_856
    assert 2 * 128_256 * 4096 == 1_050_673_152
    place = ("llama-3-8b", "h100")
    before = [
        "weights = 6,979,321,856 × 2 B + 1,050,673,152 × 2 B (embedding and head) = 16.06 GB per GPU"
    ]
    host = "context, communication and graphs = 3.34 GB per GPU"
    token = "KV per token = 2 × 32 layers × 8 KV heads × 128 × 2 B = 131,072 B per GPU"
    assert lines_of(place, isl=1000, osl=200) == [
        *before,
        "activations = 32,768 tokens × 130,867 B + 256 slots × 128,256 × 17.3 B = 4.86 GB per GPU",
        host,
        "KV cache = 0.9 × (85.52 GB − 16.06 GB − 4.86 GB − 3.34 GB) = 55.14 GB per GPU"
        " (free_gpu_memory_fraction)",
        token,
        "KV tokens = 6,572 blocks × 64 = 420,608",
        "requests of 1,000 + 200 tokens at once = 256 (at most 256 slots)",
    ]
    static = replace(deployment(*place).knobs, scheduler="static", max_batch_size=3)
    assert lines_of(place, knobs=static) == [
        *before,
        "activations and logits = 130,867 B per prompt token + 2,218,829 B per request, as the"
        " batch needs",
        host,
        "KV cache = 0.9 × (85.52 GB − 16.06 GB − 3.34 GB) = 59.51 GB per GPU"
        " (free_gpu_memory_fraction)",
        token,
        "KV tokens = 7,093 blocks × 64 = 453,952",
    ]
    assert lines_of(place, osl=1)[-1].startswith("requests of 0 + 1 tokens at once = ")
    with_both = lines_of(
        place,
        speculation=parse_speculation("eagle k=3 acceptance=0.7"),
        adapters=parse_adapters("rank=16 adapters=4"),
    )
    assert with_both[1:3] == [
        "drafter (eagle k=3 acceptance=0.7) = 0.50 GB per GPU",
        "LoRA adapters (rank=16 adapters=4) = 0.34 GB per GPU",
    ]
    assert with_both[5:7] == [
        "KV cache = 0.9 × (85.52 GB − 16.06 GB − 0.50 GB − 0.34 GB − 4.86 GB − 3.34 GB) = 54.38 GB"
        " per GPU (free_gpu_memory_fraction)",
        "KV per token = (2 × 32 layers × 8 KV heads × 128 + 2048 of the drafter) × 2 B = 135,168 B"
        " per GPU",
    ]


def test_all_lines_of_experts_on_ranks_and_on_one() -> None:
    """Mixtral 8x7B in FP8: 45.1 B weights of experts, 32 · 41,943,040 of attention, and twice
    32,000 by 4,096 with 32 routers of 8 by 4,096."""
    assert 32 * (8 * 3 * 4096 * 14_336 + 41_943_040) == 46_439_333_888
    assert 2 * 32_000 * 4096 + 32 * 8 * 4096 == 263_192_576
    weights = (
        "weights = 46,439,333,888 × 1 B + 263,192,576 × 2 B (embedding, head and router), {} ="
        " {} GB per GPU"
    )
    place = ("mixtral-8x7b", "h200", "fp8", 1, "vllm")
    ranks = lines_of(place, parallelism=Parallelism(tp=2, dp=2))
    assert ranks[:2] == [
        weights.format("45,097,156,608 of experts over 4 GPUs, the rest over 2", "12.21"),
        "activations = the larger of 8,192 tokens × 150,077 B and 1,024 slots × 32,000 × 11.8 B +"
        " 0.74 GB for tokens of experts = 1.97 GB per GPU",
    ]
    assert lines_of(place, parallelism=Parallelism(tp=2))[:6] == [
        weights.format("2 GPUs", "23.48"),
        "activations = the larger of 8,192 tokens × 150,077 B and 1,024 slots × 32,000 × 11.8 B +"
        " 0.70 GB for tokens of experts = 1.93 GB per GPU",
        "communication, graphs and what is outside of torch = 2.82 GB per GPU",
        "KV cache = 0.92 × 150.25 GB − 23.48 GB − 1.93 GB − 2.82 GB = 110.00 GB per GPU"
        " (gpu_memory_utilization)",
        "KV per token = 2 × 32 layers × 4 KV heads × 128 × 1 B = 32,768 B per GPU",
        "KV tokens = 209,801 blocks × 16 = 3,356,816",
    ]


@pytest.mark.parametrize(
    ("place", "start"),
    [
        (
            ("llama-3.2-1b", "h100", "fp8", 1, "vllm"),
            "973,078,528 × 1 B + 262,668,288 × 2 B (embedding and head) = ",
        ),
        (
            ("llama-3.2-1b", "h100", "fp16", 2, "tensorrt-llm 0.9"),
            "973,078,528 × 2 B + 262,668,288 × 2 B (embedding and head), 2 GPUs (embedding on every"
            " GPU) = ",
        ),
        (
            ("llama-3.1-8b", "h100", "fp8+head-fp8+embedding-fp8", 1, "vllm"),
            "6,979,321,856 × 1 B + 525,336,576 × 1 B (embedding) + 525,336,576 × 1 B (head) = ",
        ),
        (
            ("llama-3.1-8b", "h100", "fp8+head-fp8", 1, "vllm"),
            "6,979,321,856 × 1 B + 525,336,576 × 1 B (head) + 525,336,576 × 2 B (embedding) = ",
        ),
        (
            ("llama-3.1-8b", "h100", "fp32", 1, "vllm"),
            "6,979,321,856 × 4 B + 1,050,673,152 × 4 B (embedding and head) = ",
        ),
        (
            ("llama-3.1-8b", "h100", "fp8+attention-fp16", 1, "vllm"),
            "5,637,144,576 × 1 B + 1,342,177,280 × 2 B (attention) + ",
        ),
        (
            ("gpt-oss-20b", "h100", "mxfp4", 1, "vllm"),
            "19,110,297,600 × 0.53125 B + 637,009,920 × 2 B (attention) + 1,160,478,720 × 2 B"
            " (embedding, head and router) + 0.92 GB that fill up experts = ",
        ),
        (
            ("gemma-3-27b", "h100", "fp8", 1, "vllm"),
            "25,598,361,600 × 1 B + 1,409,630,208 × 2 B (embedding and head) + 0.27 GB for rotary"
            " positions = ",
        ),
        (
            ("deepseek-v4-pro", "b200", "mxfp4+rest-fp8", 8, "vllm"),
            "1,547,396,186,112 × 0.53125 B + 23,478,665,216 × 1 B (attention, shared) +"
            " 2,021,261,312 × 2 B (embedding, head and router), 8 GPUs = ",
        ),
    ],
)
def test_weights_by_format(place: tuple[Any, ...], start: str) -> None:
    assert lines_of(place)[0].startswith(f"weights = {start}")


@pytest.mark.parametrize(
    ("place", "kept"),
    [
        (
            ("gpt-oss-20b", "h100", "mxfp4", 1, "vllm"),
            [
                "2 × 12 layers × 8 KV heads × 64 × 2 B = 24,576 B per GPU",
                "KV of windows = 12 layers within 128 tokens = 128 × 24,576 B per GPU and request,"
                " 8 blocks",
            ],
        ),
        (
            ("mimo-v2-flash", "h200", "fp8+kv-fp16", 4, "vllm"),
            [
                "9 layers × 1 KV heads × (192 + 128) × 2 B = 5,760 B per GPU",
                "KV of windows = 39 layers within 128 tokens = 128 × 49,920 B per GPU and request,"
                " 70 blocks",
            ],
        ),
        (
            ("qwen3.5-397b-a17b", "b200", "fp8", 8, "vllm"),
            [
                "2 × 15 layers × 1 KV heads × 256 × 1 B = 7,680 B per GPU",
                # 45 · (8 heads of 128 · 128 in four bytes, and 3 tokens of 1,536 channels in two)
                "state = 45 layers = 24,007,680 B per GPU and sequence, as much as 3,126 tokens of"
                " the KV cache, 196 blocks",
                "sequences by their states alone = 4,883",
            ],
        ),
        (
            ("deepseek-v3.2", "h200", "fp8", 8, "vllm"),
            [
                "61 layers × 788 B (latent attention to what an indexer chooses (DSA)) = 48,068 B"
                " per GPU, 8,052 B of it index keys"
            ],
        ),
        (
            ("minimax-m3", "b200", "mxfp8+kv-fp16", 4, "vllm"),
            [
                "(3 layers × 512 B (attention to the whole context) + 57 layers × 768 B (attention"
                " to blocks that an indexer chooses)) = 45,312 B per GPU, 14,592 B of it index keys"
            ],
        ),
    ],
)
def test_what_a_token_and_a_sequence_keep(place: tuple[Any, ...], kept: list[str]) -> None:
    lines = lines_of(place)
    first = next(i for i, line in enumerate(lines) if line.startswith("KV per token = "))
    assert lines[first:-1] == [f"KV per token = {kept[0]}", *kept[1:]]


def test_windows_next_to_states_have_their_blocks_with_these() -> None:
    """Ten layers of gpt-oss with a window, and ten of a state of Qwen3.5, next to ten without."""
    place = deployment("gpt-oss-20b", "h100", "fp16", 1, "vllm")
    full, sliding = (group.mixer for group in place.model.by_kind)
    state = deployment("qwen3.5-397b-a17b").model.by_kind[1].mixer
    mixed = tuple(Layers(layers=10, mixer=mixer) for mixer in (full, sliding, state))
    plan = memory_plan(replace(place, model=replace(place.model, mixers=mixed, windowed_layers=0)))
    windows = 128 * 20_480
    assert plan.windows.blocks == -(-(windows + plan.state_bytes) // (20_480 * 16))
    lines = equations(plan)
    assert (
        "KV of windows = 10 layers within 128 tokens = 128 × 20,480 B per GPU and request" in lines
    )
    assert any(
        line.startswith("state = 10 layers = ")
        and line.endswith(f", {plan.windows.blocks:,} blocks")
        for line in lines
    )


def value_of(expression: str) -> float:
    """What an equation's side comes to, without its words."""
    plain = re.sub(r"\((?=[a-zA-Z])[^()]*(\([^()]*\))?[^()]*\)", "", expression.replace(",", ""))
    plain = re.sub(r"([\d.]+) GB", r"\1e9", plain)
    plain = re.sub(r"(?<!\d)[A-Za-z]+", "", plain)
    return float(eval(plain.replace("×", "*").replace("−", "-")))


def two_sides(line: str) -> tuple[float, float]:
    _, left, right = line.split(" = ")
    return value_of(left), value_of(re.split(r" B| per", right)[0])


def plans() -> list[MemoryPlan]:
    """Models of all kinds of layers, with a drafter and another cache by turns."""
    names = (
        "llama-3-8b gemma-3-27b gpt-oss-20b deepseek-v3 deepseek-v3.2 deepseek-v4-flash"
        " glm-5.3-flash minimax-m3 qwen3.5-397b-a17b mimo-v2-flash nemotron-3-nano-30b-a3b gpt-j-6b"
    )
    eagle = parse_speculation("eagle k=3 acceptance=0.7")
    gpu = replace(find_gpu("b300"), memory_bytes=4 * 10**12)
    chosen = (
        replace(deployment(name, "b300", precision, 1, "vllm"), speculation=speculation, gpu=gpu)
        for name in names.split()
        for precision, speculation in (("fp8", eagle), ("fp8+kv-fp16", None))
    )
    return [memory_plan(d) for d in chosen]


def test_both_sides_of_each_equation_are_equal() -> None:
    for plan in plans():
        by_name = {line.partition(" = ")[0]: line for line in equations(plan)}
        token, weights = two_sides(by_name["KV per token"]), two_sides(by_name["weights"])
        assert token[0] == pytest.approx(token[1], abs=1), by_name["KV per token"]
        assert weights[0] == pytest.approx(weights[1], abs=2e7), by_name["weights"]
        left, right = two_sides(by_name["KV cache"])
        assert left == pytest.approx(right, abs=3e7), by_name["KV cache"]
        _, blocks, tokens = by_name["KV tokens"].replace(" blocks", "").split(" = ")
        assert value_of(blocks) == value_of(tokens) == plan.tokens
