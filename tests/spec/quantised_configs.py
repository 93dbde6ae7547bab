"""Configurations of checkpoints in released formats."""

from __future__ import annotations

from tests.spec.published_configs import configs

GROUP = {"weights": {"num_bits": 4, "type": "int", "group_size": 32}, "input_activations": None}

LLAMA_8B = next(
    config
    for config, billions in configs()
    if config["architectures"] == ["LlamaForCausalLM"] and 7.9 < billions < 8.1
)
FP8 = {"num_bits": 8, "type": "float", "strategy": "channel"}


GROUP_16 = {
    "weights": {"num_bits": 4, "type": "float", "group_size": 16},
    "input_activations": None,
    "targets": ["Linear"],
}
