"""``config.json`` of models that mix layers with and without sliding windows."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tonnage.errors import InputError
from tonnage.spec.catalog import find_model
from tonnage.spec.config_json import read_config

GPT_OSS: dict[str, Any] = {
    "architectures": ["GptOssForCausalLM"],
    "head_dim": 64,
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "layer_types": ["sliding_attention", "full_attention"] * 12,
    "max_position_embeddings": 131072,
    "num_attention_heads": 64,
    "num_experts_per_tok": 4,
    "num_hidden_layers": 24,
    "num_key_value_heads": 8,
    "num_local_experts": 32,
    "quantization_config": {"quant_method": "mxfp4"},
    "sliding_window": 128,
    "tie_word_embeddings": False,
    "vocab_size": 201088,
}
GEMMA_2: dict[str, Any] = {
    "architectures": ["Gemma2ForCausalLM"],
    "head_dim": 256,
    "hidden_size": 3584,
    "intermediate_size": 14336,
    "max_position_embeddings": 8192,
    "num_attention_heads": 16,
    "num_hidden_layers": 42,
    "num_key_value_heads": 8,
    "sliding_window": 4096,
    "vocab_size": 256000,
}
GEMMA_3: dict[str, Any] = {
    "architectures": ["Gemma3ForCausalLM"],
    "head_dim": 256,
    "hidden_size": 1152,
    "intermediate_size": 6912,
    "max_position_embeddings": 32768,
    "num_attention_heads": 4,
    "num_hidden_layers": 26,
    "num_key_value_heads": 1,
    "sliding_window": 512,
    "sliding_window_pattern": 6,
    "vocab_size": 262144,
}
MIXED = [(GPT_OSS, 20.91), (GEMMA_2, 9.24), (GEMMA_3, 1.0)]
"""gpt-oss 20B, Gemma 2 9B and Gemma 3 1B, with their billions of parameters."""


def write(folder: Path, config: dict[str, Any]) -> Path:
    file = folder / "config.json"
    file.write_text(json.dumps(config), encoding="utf-8")
    return file


@pytest.mark.parametrize(("config", "name"), [(GPT_OSS, "gpt-oss-20b"), (GEMMA_2, "gemma-2-9b")])
def test_they_are_read_as_the_catalog_has_them(tmp_path: Path, config: dict[str, Any], name: str) -> None:
    read, known = read_config(write(tmp_path, config)), find_model(name)
    assert replace(read, name=known.name, source=known.source, date=known.date, notes=known.notes) == known


def test_layers_are_counted_by_list_by_pattern_or_as_the_library_has_them(tmp_path: Path) -> None:
    by_pattern = read_config(write(tmp_path, GEMMA_3))
    assert (by_pattern.window, by_pattern.windowed_layers, by_pattern.growing_layers) == (512, 22, 4)
    bare = {key: value for key, value in GEMMA_3.items() if key != "sliding_window_pattern"}
    listed = [("full" if (i + 1) % 6 == 0 else "sliding") + "_attention" for i in range(26)]
    for other in (bare, bare | {"_sliding_window_pattern": 6}, bare | {"layer_types": listed}):
        assert read_config(write(tmp_path, other)) == by_pattern
    assert read_config(write(tmp_path, GEMMA_3 | {"sliding_window_pattern": 2})).windowed_layers == 13
    assert read_config(write(tmp_path, {key: value for key, value in GPT_OSS.items() if key != "layer_types"})).windowed_layers == 12


def test_without_a_window_all_layers_are_plain(tmp_path: Path) -> None:
    read = read_config(write(tmp_path, GEMMA_3 | {"sliding_window": None}))
    assert (read.window, read.windowed_layers, read.growing_layers) == (0, 0, 26)


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"layer_types": ["sliding_attention"] * 25}, "layer_types"),
        ({"layer_types": ["chunked_attention"] * 26}, "layer_types"),
        ({"layer_types": [["sliding_attention"]] * 26}, "layer_types"),
        ({"layer_types": "sliding_attention"}, "layer_types"),
        ({"sliding_window_pattern": 0}, "sliding_window_pattern"),
        ({"sliding_window": -1}, "sliding_window"),
    ],
)
def test_impossible_windows_are_refused(tmp_path: Path, change: dict[str, Any], key: str) -> None:
    with pytest.raises(InputError, match=f"config.json: {key}: ") as error:
        read_config(write(tmp_path, GEMMA_3 | change))
    assert "\n" not in str(error.value)
