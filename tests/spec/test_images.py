"""Images as tokens, held against what the image processors of transformers 5 make of the same
sizes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tonnage.errors import InputError
from tonnage.spec.catalog import find_encoder, find_model
from tonnage.spec.catalog.entries import encoders
from tonnage.spec.config_fields import encoder_weights, encoders_of
from tonnage.spec.config_json import read_config
from tonnage.spec.config_layouts import ConfigValues
from tonnage.spec.images import parse_images

# width, height; tokens without their marks: Qwen3-VL, Gemma 4, Llama 4 with its marks, Kimi K2.5
SIZES = (
    (640, 480, 300, 266, 727, 414),
    (1024, 768, 768, 266, 1887, 1036),
    (1920, 1080, 2040, 264, 2322, 2691),
    (224, 224, 64, 256, 147, 64),
    (4000, 3000, 11750, 266, 1887, 4200),
    (300, 1200, 342, 264, 727, 473),
    (100, 60, 77, 252, 147, 12),
    (672, 336, 210, 253, 437, 288),
    (5000, 900, 4368, 273, 2467, 4256),
)
"""smart_resize, get_aspect_ratio_preserving_size, get_best_fit and navit_resize of transformers,
called on 2026-11-25 (all of 290 random sizes agreed)."""


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def test_tokens_are_those_of_the_image_processors(size: tuple[int, ...]) -> None:
    width, height, *expected = size
    models = ("qwen3-vl-235b-a22b", "gemma-4-31b", "llama-4-scout", "kimi-k2.5")
    found = [find_encoder(model).tokens(width, height) for model in models]
    assert [found[0] - 2, found[1] - 2, found[2], found[3] - 2] == expected


def test_patches_become_tokens_and_what_is_no_size_is_refused() -> None:
    encoder = find_encoder("gemma-3-27b")
    assert {encoder.tokens(width, 500) for width in (10, 500, 5000)} == {256 + encoder.marks}
    assert encoder.sequences(10, 500) == (4096,)
    for encoder in encoders():
        for width, height in ((640, 480), (1920, 1080), (50, 900)):
            patches = sum(encoder.sequences(width, height)) - len(
                encoder.sequences(width, height)
            ) * (encoder.sizing == "tiles")
            marks = encoder.tokens(width, height) - patches // encoder.merge**2
            assert (
                encoder.marks
                <= marks
                <= encoder.marks + (encoder.most if encoder.sizing == "tiles" else 0)
            )
    for text in ["", "1024", "0x10x10", "1024x768px", "1x2x3x4", "10x5000"]:
        with pytest.raises(InputError, match="is not a size of images"):
            parse_images(text, "gemma-3-27b")


VISION: list[tuple[dict[str, Any], int, float]] = [
    # fields of an encoder, width of the decoder, and millions of weights of the modules that
    # transformers 5.19 makes of them (``torch.device("meta")``, 2026-11-28)
    (
        {
            "vision_config": {
                "model_type": "pixtral",
                "num_hidden_layers": 24,
                "hidden_size": 1024,
                "intermediate_size": 4096,
                "hidden_act": "gelu",
            },
            "spatial_merge_size": 2,
        },
        5120,
        439.0,
    ),
    (
        {
            "vision_config": {
                "num_hidden_layers": 24,
                "hidden_size": 1024,
                "intermediate_size": 4096,
                "hidden_act": "quick_gelu",
            }
        },
        4096,
        324.5,
    ),
    (
        {
            "vision_config": {
                "depth": 32,
                "embed_dim": 1280,
                "hidden_size": 3584,
                "mlp_ratio": 4,
                "spatial_merge_size": 2,
                "hidden_act": "quick_gelu",
            }
        },
        3584,
        675.8,
    ),
    (
        {
            "vision_config": {
                "depth": 27,
                "hidden_size": 1152,
                "intermediate_size": 4304,
                "spatial_merge_size": 2,
                "hidden_act": "gelu_pytorch_tanh",
                "deepstack_visual_indexes": [8, 16, 24],
            }
        },
        4096,
        566.9,
    ),
    (
        {
            "vision_config": {
                "num_hidden_layers": 24,
                "hidden_size": 1024,
                "intermediate_size": 4096,
                "hidden_act": "gelu",
            },
            "downsample_ratio": 0.5,
        },
        4096,
        337.5,
    ),
    (
        {
            "audio_config": {
                "num_hidden_layers": 32,
                "hidden_size": 1280,
                "intermediate_size": 5120,
                "activation_function": "gelu",
            }
        },
        3072,
        662.1,
    ),
]


@pytest.mark.parametrize(("fields", "hidden", "millions"), VISION)
def test_weights_of_an_encoder_are_those_of_its_layers(
    fields: dict[str, Any], hidden: int, millions: float
) -> None:
    parts = encoders_of(ConfigValues("config.json", fields))
    weights = sum(encoder_weights(part, hidden) for part in parts)
    assert weights / 1e6 == pytest.approx(millions, rel=0.04)


@pytest.mark.parametrize(
    "fields",
    [
        {"hidden_size": 1024},
        {"depth": 24, "hidden_size": 1536, "intermediate_size": 13696},  # of its merger (GLM-4.1V)
        {"depth": "24", "hidden_size": 1536, "intermediate_size": 4096},
    ],
)
def test_an_encoder_whose_sizes_are_open_is_named(tmp_path: Path, fields: dict[str, Any]) -> None:
    text = {"hidden_size": 2048, "num_hidden_layers": 4, "num_attention_heads": 16}
    text |= {"intermediate_size": 5632, "vocab_size": 32000, "max_position_embeddings": 4096}
    config = {"architectures": ["UnheardOfVL"], "text_config": text | {"hidden_act": "silu"}}
    config |= {"tie_word_embeddings": False, "vision_config": fields}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    model = read_config(tmp_path)
    assert model.encoder_parameters == 0
    assert "weights of its encoder are left out" in model.reading


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("Qwen/Qwen2.5-VL-7B-Instruct", 16.0, 16.8),  # 8.29 billion weights at the hub
        ("mistralai/Pixtral-12B-2409", 24.8, 25.6),  # 12.68 billion
        ("OpenGVLab/InternVL3-38B", 75.0, 78.5),  # 38.4 billion
        ("meta-llama/Llama-3.2-11B-Vision-Instruct", 20.8, 21.6),  # 10.64 billion
    ],
)
def test_repositories_with_images_are_as_large_as_published(
    name: str, least: float, most: float
) -> None:
    model = find_model(name)
    assert least <= 2 * (model.parameters + model.encoder_parameters) / 1e9 <= most


def test_a_repository_whose_encoder_is_not_known_says_so() -> None:
    assert "encoder are left out" in find_model("deepseek-ai/Janus-Pro-7B").reading
