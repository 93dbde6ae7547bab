"""Names of what is not covered on purpose."""

from __future__ import annotations

import pytest

from tonnage.scope import PAGE, refused


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("gpt-4o", "weights are not published"),
        ("openai/gpt-4.1-mini", "weights are not published"),
        ("anthropic/claude-sonnet-4", "weights are not published"),
        ("gemini-2.5-pro", "weights are not published"),
        ("o3-mini", "weights are not published"),
        ("Qwen/Qwen3-Embedding-8B", "with outputs of 1 token"),
        ("nvidia/NV-Embed-v2", "with outputs of 1 token"),
        ("BAAI/bge-m3", "encoders answer in one pass"),
        ("openai/whisper-large-v3", "only decoders of text"),
        ("state-spaces/mamba-2.8b", "no KV cache"),
    ],
)
def test_a_model_that_is_not_sized_says_why(name: str, why: str) -> None:
    assert why in refused("model", name)
    assert refused("model", name).endswith(f"({PAGE})")


@pytest.mark.parametrize("name", ["gpt-43b", "gpt-oss-20b", "olmo-3-7b", "gpt-neox-20b", "llama"])
def test_a_name_that_is_merely_like_one_is_not_refused(name: str) -> None:
    assert not refused("model", name)
