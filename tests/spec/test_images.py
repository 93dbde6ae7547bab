"""Images as tokens, held against what the image processors of transformers 5 make of the same
sizes."""

from __future__ import annotations

import pytest

from tonnage.errors import InputError
from tonnage.spec.catalog import find_encoder
from tonnage.spec.catalog.entries import encoders
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
