"""Checkpoints and plans that are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tonnage import api
from tonnage.errors import InputError

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 1_000,
    "max_position_embeddings": 2_048,
    "torch_dtype": "bfloat16",
}


def refused(model: Path, **asked: Any) -> str:
    with pytest.raises(InputError) as fault:
        api.compress(model, output=model.parent / "made", **asked)
    assert not (model.parent / "made").exists()
    assert not list(model.parent.glob(".made*"))
    return str(fault.value)
