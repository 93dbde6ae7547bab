"""Published config.json files are counted as published; everything else is refused in one line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.spec.published_configs import config_of, configs
from tonnage.errors import InputError
from tonnage.spec.catalog import find_model
from tonnage.spec.config_json import read_config
from tonnage.spec.config_layouts import LAYOUTS, REFUSED
from tonnage.spec.model import Model

PUBLISHED = configs()
"""What the model cards publish, in billions of parameters."""

LLAMA, QWEN_MOE, DEEPSEEK = (
    config_of(f"{name}ForCausalLM") for name in ("Llama", "Qwen3Moe", "DeepseekV3")
)
GPT_OSS, GEMMA_2, GEMMA_3 = (
    config_of(f"{name}ForCausalLM") for name in ("GptOss", "Gemma2", "Gemma3")
)


def write(folder: Path, config: object, name: str = "config.json") -> Path:
    file = folder / name
    file.write_text(config if isinstance(config, str) else json.dumps(config), encoding="utf-8")
    return file


@pytest.mark.parametrize(
    ("config", "billions"), PUBLISHED, ids=[c["architectures"][0] for c, _ in PUBLISHED]
)
def test_parameters_of_published_files(
    tmp_path: Path, config: dict[str, Any], billions: float
) -> None:
    assert read_config(write(tmp_path, config)).parameters / 1e9 == pytest.approx(
        billions, rel=0.005
    )


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
    ("config", "name"),
    [(DEEPSEEK, "deepseek-v3"), (GPT_OSS, "gpt-oss-20b"), (GEMMA_2, "gemma-2-9b")],
)
def test_a_file_is_read_as_the_catalog_has_the_model(
    tmp_path: Path, config: dict[str, Any], name: str
) -> None:
    read, known = read_config(write(tmp_path, config)), find_model(name)
    assert (
        replace(read, name=known.name, source=known.source, date=known.date, notes=known.notes)
        == known
    )


def test_layers_are_counted_by_list_by_pattern_or_as_the_library_has_them(tmp_path: Path) -> None:
    by_pattern = read_config(write(tmp_path, GEMMA_3))
    assert (by_pattern.window, by_pattern.windowed_layers, by_pattern.growing_layers) == (
        512,
        22,
        4,
    )
    bare = {key: value for key, value in GEMMA_3.items() if key != "sliding_window_pattern"}
    listed = [("full" if (i + 1) % 6 == 0 else "sliding") + "_attention" for i in range(26)]
    for other in (bare, bare | {"_sliding_window_pattern": 6}, bare | {"layer_types": listed}):
        assert read_config(write(tmp_path, other)) == by_pattern
    assert (
        read_config(write(tmp_path, GEMMA_3 | {"sliding_window_pattern": 2})).windowed_layers == 13
    )
    assert (
        read_config(
            write(tmp_path, {key: value for key, value in GPT_OSS.items() if key != "layer_types"})
        ).windowed_layers
        == 12
    )


@pytest.mark.parametrize(
    "key", sorted(set(DEEPSEEK) - {"num_nextn_predict_layers", "quantization_config"})
)
def test_deepseek_without_one_of_its_numbers_is_refused(tmp_path: Path, key: str) -> None:
    with pytest.raises(InputError) as error:
        read_config(
            write(tmp_path, {name: value for name, value in DEEPSEEK.items() if name != key})
        )
    one_line(error, key)


def test_a_folder_is_searched_and_gives_the_name(tmp_path: Path) -> None:
    folder = tmp_path / "My-Llama-8B"
    folder.mkdir()
    write(folder, LLAMA)
    assert read_config(folder).name == "my-llama-8b"
    assert find_model(str(folder)).name == "my-llama-8b"
    assert find_model(str(folder / "config.json")).layers == 32
    for architecture, more, parallel in [
        ("GPTJForCausalLM", {}, True),
        ("GPTNeoXForCausalLM", {}, True),
        ("GPTNeoXForCausalLM", {"use_parallel_residual": False}, False),
        ("LlamaForCausalLM", {}, False),
    ]:
        assert (
            read_config(write(tmp_path, config_of(architecture) | more)).parallel_block is parallel
        )


def one_line(error: pytest.ExceptionInfo[InputError], *words: str) -> None:
    message = str(error.value)
    assert "\n" not in message
    assert error.value.exit_code == 2
    for word in words:
        assert word in message


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


def test_what_is_no_file_of_json_is_refused(tmp_path: Path) -> None:
    binary = tmp_path / "model.json"
    binary.write_bytes(b"\xff\xfe\x00weights")
    huge = write(tmp_path, " " * 5_000_000, "huge.json")
    for path in (tmp_path, tmp_path / "absent.json", binary, huge, Path("a\0b.json")):
        with pytest.raises(InputError) as error:
            read_config(path)
        one_line(error)
    with pytest.raises(InputError, match=r"no such file"):
        find_model(str(tmp_path / "absent.json"))


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**25), 10**25)
    | st.integers(1, 64)
    | st.floats()
    | st.text(max_size=12),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=6,
)
keys = st.sampled_from(
    sorted(
        set().union(*(config for config, _ in PUBLISHED))
        | {"quantization_config", "vision_config", "n_head_kv"}
    )
)


@settings(
    max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(
    st.sampled_from([config for config, _ in PUBLISHED]),
    st.dictionaries(keys, values, max_size=4),
    st.sets(keys, max_size=2),
)
def test_any_change_gives_a_model_or_one_line(
    tmp_path: Path, base: dict[str, Any], change: dict[str, Any], removed: set[str]
) -> None:
    config = {key: value for key, value in (base | change).items() if key not in removed}
    try:
        model = read_config(write(tmp_path, config))
    except InputError as error:
        message = str(error)
    else:
        message = ""
        assert isinstance(model, Model)
        assert model.parameters > 0
        assert model.heads % model.kv_heads == 0
        assert model.max_context >= 1
        assert model.experts >= model.experts_per_token >= 1
    assert "\n" not in message


@settings(
    max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(st.text(max_size=40) | values.map(json.dumps))
def test_any_text_gives_one_line(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config.json"
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(InputError) as error:
        read_config(file)
    assert "\n" not in str(error.value)
