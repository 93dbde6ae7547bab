"""Layouts of architectures that are not known by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.spec.config_files import (
    DEEPSEEK,
    GEMMA_3,
    LLAMA,
    PLAIN,
    PUBLISHED,
    QWEN_MOE,
    one_line,
    per_token,
    read,
    write,
)
from tests.spec.published_configs import configs, layouts, listed
from tonnage.errors import InputError, UnknownName, UnsupportedModel
from tonnage.spec.config_json import read_config
from tonnage.spec.config_layouts import LAYOUTS, REFUSED


def test_a_layout_may_be_named_and_the_model_says_so(tmp_path: Path) -> None:
    with pytest.raises(
        UnsupportedModel, match=r"layout LlamaForCausalLM \(1\.\d+ billion\) or layout \w+ \(\d"
    ):
        read(tmp_path, PLAIN | {"hidden_act": "gelu"})
    wide, narrow = (
        read(tmp_path, PLAIN | {"hidden_act": "gelu"}, layout)
        for layout in ("LlamaForCausalLM", "GPTNeoXForCausalLM")
    )
    assert (wide.gated, narrow.gated) == (True, False)
    assert (
        wide.layout_mark
        == "its architecture UnheardOfForCausalLM is read as LlamaForCausalLM, as requested"
    )
    assert (
        read(
            tmp_path, PLAIN | {"architectures": ["LlamaForCausalLM"]}, "LlamaForCausalLM"
        ).layout_mark
        == ""
    )
    with pytest.raises(UnknownName, match="did you mean LlamaForCausalLM"):
        read(tmp_path, PLAIN, "LamaForCausalLM")


def test_the_mark_names_the_nearest_known_layout(tmp_path: Path) -> None:
    assert read(tmp_path, PLAIN).layout == "LlamaForCausalLM"
    experts = {"num_local_experts": 8, "num_experts_per_tok": 2}
    assert read(tmp_path, PLAIN | experts).layout == "MixtralForCausalLM"
    latent = {
        "kv_lora_rank": 512,
        "q_lora_rank": 1536,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
    }
    assert read(tmp_path, PLAIN | latent).kinds == {"latent"}
    assert read(tmp_path, PLAIN | experts).architecture == "UnheardOfForCausalLM"


@pytest.mark.parametrize(
    "entry", layouts(), ids=[entry["source"].split(",")[0].split("/", 1)[-1] for entry in layouts()]
)
def test_published_files_are_counted_and_marked_where_their_architecture_is_not_known(
    tmp_path: Path, entry: dict[str, Any]
) -> None:
    model, (architecture,) = read(tmp_path, entry["config"]), entry["config"]["architectures"]
    assert model.parameters / 1e9 == pytest.approx(entry["billions"], rel=0.02)
    assert per_token(model) == entry["kv_bytes"]
    assert model.architecture == ("" if architecture in LAYOUTS else architecture)


def test_enough_published_files_and_architectures_are_asserted() -> None:
    before = {config["architectures"][0] for config, _ in configs()}
    new = [
        entry["config"]["architectures"][0]
        for entry in layouts()
        if entry["config"]["architectures"][0] not in before
    ]
    assert len(configs()) + len(layouts()) >= 190
    sources = [
        entry["source"]
        for file in ("published_configs.json", "published_layouts.json")
        for entry in listed(file)
    ]
    assert len([source for source in sources if "recalled and checked" not in source]) >= 80
    assert len(new) >= 60
    assert len(set(new)) >= 40
    assert len({name for name in new if name not in LAYOUTS}) >= 20


def test_what_a_file_says_beside_its_sizes(tmp_path: Path) -> None:
    # with those that are read by their fields in tests/spec/test_config_fields.py
    others = {"GPTNeoForCausalLM", "CodeGenForCausalLM", "Kimi_K25ForConditionalGeneration"}
    assert LAYOUTS["Kimi_K25ForConditionalGeneration"] == LAYOUTS["KimiK25ForConditionalGeneration"]
    by_keys = {name for name, layout in LAYOUTS.items() if layout.family != "by_fields"} - others
    assert by_keys <= {config["architectures"][0] for config, _ in PUBLISHED} <= set(LAYOUTS)
    assert read_config(write(tmp_path, QWEN_MOE)).head_norms
    plain = read_config(
        write(
            tmp_path,
            LLAMA | {"quantization_config": {"quant_method": "fp8"}, "num_key_value_heads": None},
        )
    )
    assert (plain.head_norms, plain.block_fp8, plain.kv_heads) == (False, False, 32)
    assert read_config(
        write(
            tmp_path,
            LLAMA
            | {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}},
        )
    ).block_fp8


@pytest.mark.parametrize(
    ("change", "words"),
    [
        *(({"architectures": [name]}, [name, why]) for name, why in REFUSED.items()),
        *(
            (DEEPSEEK | {"first_k_dense_replace": layers}, ["first_k_dense_replace"])
            for layers in (-1, 61)
        ),
        (DEEPSEEK | {"moe_layer_freq": 2}, ["moe_layer_freq"]),
        (DEEPSEEK | {"n_shared_experts": False}, ["n_shared_experts"]),
        (DEEPSEEK | {"q_lora_rank": "1536"}, ["q_lora_rank"]),
        (QWEN_MOE | {"num_experts_per_tok": 200}, ["num_experts_per_tok"]),
        (QWEN_MOE | {"mlp_only_layers": [0, 3]}, ["mlp_only_layers"]),
        (QWEN_MOE | {"decoder_sparse_step": 2}, ["decoder_sparse_step"]),
        (QWEN_MOE | {"head_dim": None}, ["head_dim"]),
        (QWEN_MOE | {"use_sliding_window": True}, ["sliding_window"]),
        *(
            (GEMMA_3 | {"layer_types": [f"{kind}_attention"] * count}, ["layer_types"])
            for kind, count in (("sliding", 25), ("chunked", 26))
        ),
        (GEMMA_3 | {"sliding_window_pattern": 0}, ["sliding_window_pattern"]),
        (GEMMA_3 | {"sliding_window": -1}, ["sliding_window"]),
        (
            {"architectures": ["UnheardOfForCausalLM"], "hidden_act": "gelu"},
            ["UnheardOfForCausalLM", "hidden_act", "LlamaForCausalLM"],
        ),
        ({"architectures": []}, ["architectures"]),
        ({"architectures": ["LlamaForCausalLM", "MistralForCausalLM"]}, ["architectures"]),
        ({"is_encoder_decoder": True}, ["encoder"]),
        (
            {"architectures": ["LlamaForSequenceClassification"]},
            ["one pass", "LlamaForCausalLM", "1 token"],
        ),
        ({"vision_config": {"hidden_size": 1024}}, ["vision_config"]),
        *(
            ({"num_hidden_layers": count}, ["num_hidden_layers"])
            for count in ("32", True, 0, -1, 32.0, [32], 10**30, None)
        ),
        ({"hidden_size": float("nan")}, ["hidden_size", "NaN"]),
        ({"hidden_size": 4097}, ["hidden_size", "4097", "32"]),
        ({"num_key_value_heads": 5}, ["num_key_value_heads", "5", "32"]),
        ({"max_position_embeddings": None}, ["max_position_embeddings", "missing"]),
        ({"quantization_config": "fp8"}, ["quantization_config"]),
    ],
)
def test_impossible_values_are_named(
    tmp_path: Path, change: dict[str, Any], words: list[str]
) -> None:
    file = write(tmp_path, LLAMA | change)
    with pytest.raises(InputError) as error:
        read_config(file)
    one_line(error, str(file), *words)
