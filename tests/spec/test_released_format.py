"""The format that a checkpoint is published in, from the forms of quantization_config that
published models have."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.spec.quantised_configs import GROUP, GROUP_16, LLAMA_8B
from tonnage import api
from tonnage.errors import InputError
from tonnage.perf.matrices import dense_formats
from tonnage.perf.terms import step_model
from tonnage.spec.catalog import find_model
from tonnage.spec.config_json import read_config
from tonnage.spec.precision import find_precision
from tonnage.spec.released_format import released_format

KIMI_IGNORE = [
    "lm_head",
    "re:.*self_attn.*",
    "re:.*shared_experts.*",
    "re:.*mlp\\.(gate|up|gate_up|down)_proj.*",
]


KIMI = {
    "quant_method": "compressed-tensors",
    "config_groups": {"group_0": GROUP},
    "ignore": KIMI_IGNORE,
}


EXPERTS_OF_NVIDIA = {f"layers.{layer}.ffn.experts": {"quant_algo": "NVFP4"} for layer in range(61)}


FORMS = {
    "nothing said": ({}, "bf16"),
    "float16": ({"torch_dtype": "float16"}, "fp16"),
    "DeepSeek": (
        {
            "quantization_config": {
                "quant_method": "fp8",
                "fmt": "e4m3",
                "weight_block_size": [128, 128],
            }
        },
        "fp8",
    ),
    "gpt-oss": (
        {
            "quantization_config": {
                "quant_method": "mxfp4",
                "modules_to_not_convert": ["model.layers.*.self_attn"],
            }
        },
        "mxfp4",
    ),
    "AWQ": ({"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128}}, "awq"),
    "GPTQ of 8 bits": ({"quantization_config": {"quant_method": "gptq", "bits": 8}}, "int8-wo"),
    "Kimi": ({"quantization_config": KIMI}, "int4-g32+experts"),
    "Model Optimizer": (
        {"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}},
        "nvfp4",
    ),
    "DeepSeek V4": (
        {"expert_dtype": "fp4", "quantization_config": {"quant_method": "fp8"}},
        "mxfp4+rest-fp8",
    ),
    "GLM-5-FP8": (
        {
            "quantization_config": {
                "quant_method": "fp8",
                "modules_to_not_convert": ["model.layers.0.self_attn.indexers_proj"],
            }
        },
        "fp8",
    ),
    "experts of NVIDIA": (
        {
            "quantization_config": {
                "quant_algo": "MIXED_PRECISION",
                "quantized_layers": EXPERTS_OF_NVIDIA,
            }
        },
        "nvfp4+rest-fp8",
    ),
    "GGUF": ({"quantization_config": {"quant_method": "gguf", "bits": 5}}, ""),
    "groups of nothing": (
        {
            "quantization_config": {
                "config_groups": {"group_0": {"weights": {"num_bits": [], "type": {}}}}
            }
        },
        "",
    ),
}


MODELS = {"AWQ": "llama-3.1-8b", "GPTQ of 8 bits": "llama-3.1-8b", "float16": "llama-3.1-8b"}
"""The model of a form, where it is another than DeepSeek-V3."""


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_published_checkpoints(form: str) -> None:
    config, name = FORMS[form]
    assert released_format(config, find_model(MODELS.get(form, "deepseek-v3"))) == name
    assert name == "" or find_precision(name).name == name


def test_weights_are_counted_as_published() -> None:
    """gpt-oss-120b is a download of 65 GB, and was counted at 234."""
    plan = api.memory(model="gpt-oss-120b", isl=2_000, osl=200).plan
    assert 60e9 < plan.weight_bytes < 66e9
    assert find_model("llama-3.1-8b").usual_precision == "fp16"


FIELD = Path(__file__).parents[3] / "shared" / "field" / "planning"


@pytest.mark.skipif(not FIELD.is_dir(), reason="the field's cases are not part of the repository")
@pytest.mark.parametrize(
    ("case", "asked", "gigabytes"),
    [
        ("f01-mixed-nvfp4-35b-moe", {"gpu": "rtx-5090"}, 20.8),
        ("f03-mixed-nvfp4-nemotron", {"gpu": "rtx-pro-6000-blackwell-se"}, 18.9),
        ("f05-fbgemm-fp8-attention-excluded", {"gpu": "h100", "tp": 8, "engine": "vllm"}, 60.9),
        ("f06-silent-16-bit-autoround", {}, 5.73),
        ("f06-silent-16-bit-bnb-int8", {}, 9.08),
        ("f06-silent-16-bit-bnb-nf4", {}, 5.70),
        ("f06-silent-16-bit-gptq3", {}, 4.85),
    ],
)
def test_weights_of_the_fields_checkpoints(
    case: str, asked: dict[str, Any], gigabytes: float
) -> None:
    report = api.memory(model=str(FIELD / case / "config.json"), **asked)
    assert report.plan.weight_bytes / 1e9 == pytest.approx(gigabytes, abs=0.05)
    assert report.plan.deployment.parallelism.gpus == asked.get("tp", 1)
    assert report.plan.deployment.precision.weights == report.plan.deployment.model.released


MATRICES, TABLES = 6_979_321_856, 2 * 128_256 * 4_096  # weights of Llama 3.1 8B


TORCHAO = {"default": {"_type": "Int4WeightOnlyConfig", "_data": {"group_size": 64}}}


QUARK = {
    "weight": {"dtype": "fp8_e4m3", "qscheme": "per_tensor"},
    "input_tensors": {"dtype": "fp8_e4m3"},
}


QUARK_4 = {
    "weight": {"dtype": "fp4", "qscheme": "per_group", "group_size": 32},
    "input_tensors": {"dtype": "fp4"},
}


TWO_GROUPS = {
    "group_0": {
        "weights": {"num_bits": 8, "type": "float"},
        "input_activations": {"num_bits": 8},
        "targets": ["re:.*self_attn.*"],
    },
    "group_1": {
        "weights": {"num_bits": 4, "type": "int", "group_size": 64},
        "targets": ["re:.*mlp.*"],
    },
}


ATTENTION = 32 * 4_096 * (2 * 4_096 + 2 * 1_024)


ROUNDED = {r"model\.layers\.\d+\.self_attn\..*": {"bits": 8, "group_size": 32}}


FORMATS = {
    "NF4 without double quantization": (
        {"quant_method": "bitsandbytes", "load_in_4bit": True},
        "nf4",
        MATRICES * 4.5,
    ),
    "hqq": (
        {
            "quant_method": "hqq",
            "quant_config": {"weight_quant_params": {"nbits": 4, "group_size": 64}},
        },
        "hqq-4bit-g64",
        MATRICES * 4.5,
    ),
    "torchao": (
        {"quant_method": "torchao", "quant_type": TORCHAO},
        "torchao-4bit-g64",
        MATRICES * 4.5,
    ),
    "torchao of 8 bits": (
        {"quant_method": "torchao", "quant_type": "int8_weight_only"},
        "int8-wo",
        MATRICES * 8,
    ),
    "torchao in FP8": (
        {"quant_method": "torchao", "quant_type": "float8_weight_only"},
        "fp8-wo",
        MATRICES * 8,
    ),
    "torchao, dynamic": (
        {"quant_method": "torchao", "quant_type": "int8_dynamic_activation_int8_weight"},
        "int8-sq",
        MATRICES * 8,
    ),
    "quark": (
        {"quant_method": "quark", "global_quant_config": QUARK, "exclude": ["lm_head"]},
        "fp8",
        MATRICES * 8,
    ),
    "quark in MXFP4": (
        {"quant_method": "quark", "global_quant_config": QUARK_4},
        "mxfp4",
        MATRICES * 4.25,
    ),
    "GPTQ of 2 bits": (
        {"quant_method": "gptq", "bits": 2, "group_size": 64},
        "gptq-2bit-g64",
        MATRICES * (2 + 18 / 64),
    ),
    "GPTQ in groups of 32": (
        {"quant_method": "gptq", "bits": 4, "group_size": 32},
        "gptq-4bit-g32",
        MATRICES * (4 + 20 / 32),
    ),
    "AWQ in groups of 64": (
        {"quant_method": "awq", "bits": 4, "group_size": 64},
        "awq-4bit-g64",
        MATRICES * (4 + 20 / 64),
    ),
    "EETQ": ({"quant_method": "eetq", "weights": "int8"}, "eetq", MATRICES * 8),
    "AQLM": (
        {"quant_method": "aqlm", "nbits_per_codebook": 16, "num_codebooks": 1, "in_group_size": 8},
        "aqlm-2bit",
        MATRICES * 2,
    ),
    "NVFP4A16": (
        {"quant_method": "compressed-tensors", "config_groups": {"group_0": GROUP_16}},
        "nvfp4-wo",
        MATRICES * 4.5,
    ),
    "W8A16 by Model Optimizer": (
        {"quant_method": "modelopt", "quant_algo": "W4A16_NVFP4"},
        "nvfp4-wo",
        MATRICES * 4.5,
    ),
    "two groups": (
        {"quant_method": "compressed-tensors", "config_groups": TWO_GROUPS},
        "int4-g64+attention-fp8",
        (MATRICES - ATTENTION) * 4.25 + ATTENTION * 8,
    ),
    "a wider attention": (
        {
            "quant_method": "auto-round",
            "bits": 4,
            "group_size": 128,
            "sym": True,
            "extra_config": {"model.layers.*.self_attn": {"bits": 16}},
        },
        "gptq+attention-fp16",
        (MATRICES - ATTENTION) * 4.15625 + ATTENTION * 16,
    ),
    "a wider attention by a regular expression": (
        {"quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": ROUNDED},
        "gptq+attention-gptq-8bit-g32",
        (MATRICES - ATTENTION) * 4.15625 + ATTENTION * 8.75,
    ),
    "the first two layers left out": (
        {
            "quant_method": "fp8",
            "modules_to_not_convert": ["lm_head", "model.layers.0", "model.layers.1"],
        },
        "fp8+attention-fp16:1/16+mlp-fp16:1/16",
        MATRICES * (8 * 30 + 16 * 2) / 32,
    ),
    "half of the layers by a regular expression": (
        {
            "quant_method": "compressed-tensors",
            "ignore": [r"re:.*layers\.(1[6-9]|2\d|3\d)\..*"],
            "config_groups": {"group_0": GROUP_16},
        },
        "nvfp4-wo+attention-fp16:1/2+mlp-fp16:1/2",
        MATRICES * (16 * 4.5 + 16 * 16) / 32,
    ),
    "down projections left out by a shell pattern": (
        {
            "quant_method": "modelopt",
            "quant_algo": "FP8",
            "exclude_modules": ["lm_head", "*.mlp.down_proj"],
        },
        "fp8+mlp-fp16:1/3",
        MATRICES * 8 + (MATRICES - ATTENTION) / 3 * 8,
    ),
}


@pytest.mark.parametrize("form", FORMATS)
def test_weights_of_formats_by_their_names(form: str, tmp_path: Path) -> None:
    """Every format is counted with its scales, and its name says the same to whoever types it."""
    quantized, name, bits = FORMATS[form]
    (tmp_path / "config.json").write_text(
        json.dumps(LLAMA_8B | {"quantization_config": quantized}), encoding="utf-8"
    )
    read = read_config(tmp_path)
    precision = find_precision(read.released)
    assert precision.name == read.released == name
    assert sum(
        count * precision.bits(group, moe=False) for group, count in read.group_parameters.items()
    ) == pytest.approx(bits, rel=1e-3)
    assert sum(weights for weights, _ in dense_formats(read, precision)) == pytest.approx(
        read.common_parameters
    )


def test_a_format_without_a_name_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        json.dumps(LLAMA_8B | {"quantization_config": {"quant_method": "zipquant"}}),
        encoding="utf-8",
    )
    with pytest.raises(InputError, match=r"zipquant.* no name here.*precision says"):
        api.memory(model=str(tmp_path))
    with pytest.raises(InputError, match=r"zipquant.* no name here.*precision says"):
        api.size(model=str(tmp_path), peak_rps=1, isl=500, osl=100)
    counted = api.memory(model=str(tmp_path), precision="nf4", engine="vllm").plan
    assert counted.weight_bytes == MATRICES * 4.5 / 8 + 2 * TABLES


def test_fp8_of_a_model_with_mxfp8_alone_is_mxfp8() -> None:
    """And what a GPU has no units for is computed in 16 bits, so that a prompt takes longer than in
    native FP8."""
    deployment = api.memory(
        model="minimax-m3", precision="fp8", gpu="h200", tp=8, engine="vllm"
    ).plan.deployment
    assert (deployment.precision.name, deployment.precision.arithmetic) == ("mxfp8+kv-fp16", "fp16")
    plan = api.memory(model="qwen3-14b", precision="fp8", gpu="a100-sxm-80gb", engine="vllm").plan
    assert (plan.deployment.precision.name, plan.deployment.precision.arithmetic) == (
        "fp8+kv-fp16",
        "fp16",
    )
    half, narrow = (
        step_model(replace(plan.deployment, precision=p))
        for p in (find_precision("fp16"), plan.deployment.precision)
    )
    assert narrow.seconds(0, 0, 1, 0, 1_000) < half.seconds(0, 0, 1, 0, 1_000)
    assert narrow.seconds(8_000, 4, 0, 4 * 2_000**2, 0) > half.seconds(8_000, 4, 0, 4 * 2_000**2, 0)


@pytest.mark.skipif(not FIELD.is_dir(), reason="the field's cases are not part of the repository")
def test_the_fields_weight_only_deployments_are_answered() -> None:
    for line in (
        (FIELD / "f09-weight-only-fp8-and-fp4" / "command.txt")
        .read_text(encoding="utf-8")
        .splitlines()
    ):
        words = line.split()[1:]
        asked: dict[str, Any] = {
            flag.removeprefix("--"): value
            for flag, value in zip(words[::2], words[1::2], strict=True)
        }
        run = api.memory(**asked | {"tp": int(asked.get("tp", 1))}).plan.deployment.precision
        assert (run.arithmetic, run.unpacked) == ("fp16", True), line
        with pytest.raises(InputError, match=r"has no FP[48] matrix units"):
            api.memory(**asked | {"tp": int(asked.get("tp", 1)), "engine": "tensorrt-llm"})


@pytest.mark.parametrize(
    "name", ["moonshotai/Kimi-K2-Instruct-0905", "moonshotai/Kimi-K2-Instruct"]
)
def test_a_repository_is_counted_in_its_published_format(name: str) -> None:
    plan = api.memory(model=name).plan
    assert (plan.deployment.gpu.name, plan.deployment.parallelism.tp) == ("h200-sxm-141gb", 8)
    assert plan.weight_bytes / 1e9 == pytest.approx(128.9, abs=0.05)
