"""Configurations of models, written and read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from tests.spec.published_configs import config_of, configs
from tonnage.errors import InputError
from tonnage.spec.config_json import read_config
from tonnage.spec.model import Model

if TYPE_CHECKING:
    import pytest

PLAIN = {
    "architectures": ["UnheardOfForCausalLM"],
    "num_hidden_layers": 24,
    "hidden_size": 2048,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "intermediate_size": 5632,
    "vocab_size": 64000,
    "max_position_embeddings": 32768,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
}


def read(folder: Path, config: dict[str, Any], layout: str = "") -> Model:
    file = folder / "config.json"
    file.write_text(json.dumps(config), encoding="utf-8")
    return read_config(file, layout)


def per_token(model: Model) -> float:
    """Bytes of keys and values in 16 bits that grow with the context."""
    return sum(layers * cache.token for layers, cache in model.caches(16, 1))


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


def one_line(error: pytest.ExceptionInfo[InputError], *words: str) -> None:
    message = str(error.value)
    assert "\n" not in message
    assert error.value.exit_code == 2
    for word in words:
        assert word in message


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
