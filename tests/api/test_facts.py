"""Answers from facts alone: the catalog, and the memory of an instance."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.spec.quantised_configs import GROUP, GROUP_16, LLAMA_8B
from tonnage import api
from tonnage.errors import InputError
from tonnage.spec.catalog import find_model


def test_kimi_k2_is_fp8_in_blocks_and_its_thinking_release_alone_int4() -> None:
    for name in ("moonshotai/Kimi-K2-Instruct-0905", "moonshotai/Kimi-K2-Instruct", "kimi-k2"):
        model = find_model(name)
        assert (model.released, model.block_fp8) == ("fp8", True)
        plan = api.memory(model=name).plan
        assert (plan.deployment.gpu.name, plan.deployment.parallelism.tp) == ("h200-sxm-141gb", 8)
        assert plan.weight_bytes == pytest.approx(128.9e9, rel=0.01)
    assert find_model("moonshotai/Kimi-K2-Thinking").released == "int4-g32+experts"
    assert (find_model("kimi-k2-instruct-0905").max_context, find_model("kimi-k2").max_context) == (
        262_144,
        131_072,
    )


def test_the_catalog_shows_the_model_of_a_repository() -> None:
    (model,) = api.catalog("deepseek-ai/DeepSeek-R1-Distill-Qwen-14B")["models"]
    assert (model["name"], model["hidden"]) == ("deepseek-r1-distill-qwen-14b", 5120)
    assert "qwen2.5-14b" in model["notes"]
    (model,) = api.catalog("Qwen/Qwen2.5-7B-Instruct-AWQ")["models"]
    assert (model["name"], model["released"]) == ("qwen2.5-7b", "awq")
    with pytest.raises(InputError, match="nothing matches"):
        api.catalog("bartowski/Llama-3.3-70B-Instruct-GGUF")


FIELD = Path(__file__).parents[3] / "shared" / "field" / "planning"


@pytest.mark.parametrize(
    ("model", "engine", "precision", "kv"),
    [
        ("qwen3-235b-a22b", "vllm", "fp8", "fp16"),  # the author's blocks of FP8 declare none
        ("qwen3-235b-a22b", "sglang", "fp8", "fp16"),
        ("qwen3-235b-a22b", "vllm", "fp8+kv-fp8", "fp8"),
        ("llama-3.1-8b", "vllm", "fp8", "fp8"),  # NVIDIA's checkpoint declares FP8
        ("llama-3.1-8b", "vllm-0.10", "fp8", "fp16"),  # which this version does not take over
        ("llama-3.1-8b", "tensorrt-llm", "fp8", "fp8"),
        ("llama-3.1-8b", "tensorrt-llm", "fp8+kv-fp16", "fp16"),
        ("deepseek-v3", "vllm", "fp8", "fp16"),
        ("llama-3.1-8b", "vllm", "awq", "fp16"),
    ],
)
def test_the_kv_cache_is_in_the_engines_format(
    model: str, engine: str, precision: str, kv: str
) -> None:
    """And whoever asks for the printed name gets the same."""
    report = api.memory(
        model=model,
        engine=engine,
        precision=precision,
        gpu="b200",
        tp=8 if model == "deepseek-v3" else 4,
    )
    printed = report.plan.deployment.precision
    assert printed.kv == kv
    again = api.memory(
        model=model,
        engine=engine,
        precision=printed.name,
        gpu="b200",
        tp=report.plan.deployment.parallelism.tp,
    )
    assert again.plan == report.plan


DECLARED = {"kv_cache_scheme": {"num_bits": 8, "type": "float"}}


@pytest.mark.parametrize(
    ("declared", "kv"),
    [
        ({}, "fp16"),
        (DECLARED, "fp8"),
        ({"kv_cache_scheme": None}, "fp16"),
        ({"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}, "fp8"),
    ],
)
def test_a_checkpoint_declares_its_kv_cache(
    tmp_path: Path, declared: dict[str, Any], kv: str
) -> None:
    quantized = {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": GROUP_16},
    } | declared
    (tmp_path / "config.json").write_text(
        json.dumps(LLAMA_8B | {"quantization_config": quantized}), encoding="utf-8"
    )
    plan = api.memory(model=str(tmp_path), engine="vllm").plan
    assert plan.deployment.precision.kv == kv
    assert plan.kv_bytes_per_token == 2 * 32 * 8 * 128 * (1 if kv == "fp8" else 2)


OPTIMIZER = {"quant_method": "modelopt", "quant_algo": "FP8"}
BESIDE = {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}
GROUPS_OF_4 = {"quant_method": "compressed-tensors", "config_groups": {"group_0": GROUP}}


@pytest.mark.parametrize(
    ("inside", "beside", "narrowed"),
    [
        (None, BESIDE, {"vllm", "sglang", "tensorrt-llm"}),
        # vLLM and SGLang do not read the second file where the first has the object
        (OPTIMIZER, BESIDE, {"tensorrt-llm"}),
        (
            OPTIMIZER | DECLARED,
            {"quant_algo": "FP8", "kv_cache_quant_algo": None},
            {"vllm", "sglang"},
        ),
        (OPTIMIZER | DECLARED, BESIDE, {"vllm", "sglang", "tensorrt-llm"}),
        (OPTIMIZER, None, set()),
        # SGLang asks for Model Optimizer's kv_cache_quant_algo
        (GROUPS_OF_4 | DECLARED, None, {"vllm", "tensorrt-llm"}),
    ],
)
def test_each_engine_reads_the_kv_cache_where_it_looks(
    tmp_path: Path, inside: dict[str, Any] | None, beside: dict[str, Any] | None, narrowed: set[str]
) -> None:
    """And vLLM 0.10 takes no declaration over."""
    (tmp_path / "config.json").write_text(
        json.dumps(LLAMA_8B | ({"quantization_config": inside} if inside else {})), encoding="utf-8"
    )
    if beside:
        (tmp_path / "hf_quant_config.json").write_text(
            json.dumps({"quantization": beside}), encoding="utf-8"
        )
    engines = ("vllm", "vllm-0.10", "sglang", "tensorrt-llm")
    kept = {
        engine: api.memory(
            model=str(tmp_path), engine=engine, gpu="h100"
        ).plan.deployment.precision.kv
        for engine in engines
    }
    assert {engine for engine, kv in kept.items() if kv == "fp8"} == narrowed


@pytest.mark.skipif(not FIELD.is_dir(), reason="the field's cases are not part of the repository")
def test_the_kv_cache_of_the_fields_checkpoint() -> None:
    report = api.memory(
        model=str(FIELD / "f13-fp8-checkpoint-kv-format" / "config.json"),
        gpu="h100",
        tp=4,
        engine="vllm",
    )
    assert report.plan.kv_bytes_per_token == 49_152


@pytest.mark.parametrize(
    ("engine", "name", "aliases"),
    [
        ("vllm", "gpu_memory_utilization", ()),
        ("sglang", "mem_fraction_static", ()),
        (
            "tensorrt-llm",
            "free_gpu_memory_fraction",
            ("kv_cache_free_gpu_memory_fraction", "kv_cache_free_gpu_mem_fraction"),
        ),
    ],
)
def test_the_share_of_the_memory_is_the_engines_own_setting(
    engine: str, name: str, aliases: tuple[str, ...]
) -> None:
    half, most = (
        api.memory(model="llama-3.1-8b", engine=engine, **{name: share}).plan
        for share in (0.5, 0.95)
    )  # type: ignore[arg-type]
    whole = half.deployment.gpu.memory_bytes
    spent = half.weight_bytes + half.activation_bytes + half.reserve_bytes
    of = {
        "free_gpu_memory_fraction": whole - spent,
        "gpu_memory_utilization": whole - 500_000_000,
    }.get(name, whole)
    assert most.kv_budget_bytes - half.kv_budget_bytes == pytest.approx(0.45 * of, abs=2)
    for alias in aliases:
        assert api.memory(model="llama-3.1-8b", engine=engine, **{alias: 0.5}).plan == half  # type: ignore[arg-type]
    other = "sglang" if engine != "sglang" else "vllm"
    with pytest.raises(
        InputError,
        match=rf"^{name}: {other}.* has no such setting; write .* 0.95 or engine {engine}$",
    ):
        api.memory(model="llama-3.1-8b", engine=other, **{name: 0.95})  # type: ignore[arg-type]
    for share in (0, -0.1, 1.01, 95):
        with pytest.raises(InputError, match="is not a share of the memory"):
            api.memory(model="llama-3.1-8b", engine=engine, **{name: share})  # type: ignore[arg-type]


def test_a_smaller_step_leaves_more_of_the_memory_to_the_cache() -> None:
    small = api.memory(
        model="llama-3.1-8b", engine="vllm", max_num_batched_tokens=2_048, max_num_seqs=128
    ).plan  # type: ignore[call-arg]
    usual = api.memory(model="llama-3.1-8b", engine="vllm").plan
    assert (small.deployment.knobs.max_num_tokens, small.deployment.knobs.max_batch_size) == (
        2_048,
        128,
    )
    assert (
        small.kv_budget_bytes - usual.kv_budget_bytes
        == usual.activation_bytes - small.activation_bytes
        > 0
    )


def test_a_shorter_context_is_the_longest_request() -> None:
    for name in ("max_model_len", "context_length", "max_seq_len"):
        with pytest.raises(InputError, match=r"exceed the context of llama-3\.1-8b, 4,000 tokens"):
            api.memory(model="llama-3.1-8b", isl=4_000, osl=200, **{name: 4_000})  # type: ignore[arg-type]
    with pytest.raises(
        InputError,
        match=(
            r"max_model_len: 900,000 is longer than the context of llama-3\.1-8b; write at most"
            r" 131072"
        ),
    ):
        api.memory(model="llama-3.1-8b", max_model_len=900_000)


def test_memory_shows_state_and_cache_apart_on_an_instance_that_holds_the_model() -> None:
    found = api.memory(model="qwen3.5-397b-a17b")
    text, document = "\n".join(found.lines()), found.to_json()
    assert (document["gpu"], document["tp"]) == ("h200-sxm-141gb", 8)
    assert "state = 45 layers = 24,007,680 B per GPU and sequence" in text
    assert "sequences by their states alone = 1,591" in text
    assert document["state_bytes_per_sequence"] == 24_007_680
    assert document["kv_bytes_per_token"] == 15 * 2 * 256 * 2
    plan = found.plan
    alone = plan.blocks // plan.windows.blocks
    assert plan.concurrent_requests(1, 1) <= alone
    plain = api.memory(model="qwen3.5-27b", gpu="h200", tp=1).plan
    guessed = api.memory(
        model="qwen3.5-27b", gpu="h200", tp=1, speculation="mtp k=3 acceptance=0.7"
    ).plan
    assert guessed.state_bytes == 4 * plain.state_bytes
