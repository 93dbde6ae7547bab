"""What a model weighs and caches: plain ones as ever, latent attention and mixed layers as published."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tonnage.spec.catalog import find_model, models
from tonnage.spec.model import LatentAttention, Model

PLAIN = [model for model in models() if model.latent is None and not model.shared_experts and not model.mixers and not model.dense_layers]


@pytest.mark.parametrize("model", PLAIN, ids=lambda model: model.name)
def test_plain_models_are_counted_to_the_bit_as_before_mixed_ones_were_known(model: Model) -> None:
    attention = model.layers * model.hidden * model.head_dim * 2 * (model.heads + model.kv_heads)
    expert = model.layers * (3 if model.gated else 2) * model.hidden * model.ffn
    router = model.layers * model.hidden * model.experts if model.experts > 1 else 0
    assert model.common_parameters == attention + router + (expert if model.experts == 1 else 0)
    assert model.linear_parameters == attention + router + model.experts * expert
    assert model.active_parameters == attention + router + model.experts_per_token * expert
    assert model.inner == model.ffn * model.experts_per_token
    pairs = [some.layers * (some.mixer.work(16, 1).pair or some.mixer.work(16, 1).token / model.window) for some in model.by_kind]
    assert sum(pairs) == 4 * model.layers * model.heads * model.head_dim
    for tp in (1, 2, 8, 64):
        kv = 2 * model.layers * max(model.kv_heads / tp, 1.0) * model.head_dim
        assert model.kv_elements_per_gpu(tp) == kv
    half = model.part(model.layers // 2)
    assert half == replace(model, layers=model.layers // 2, windowed_layers=model.windowed_layers // 2)


def test_deepseek_as_its_report_counts_it() -> None:
    """671 B in total; 36.6 B active with the head and without the embedding; 576 elements per token and layer."""
    model = find_model("deepseek-ai/DeepSeek-R1")
    assert model.parameters / 1e9 == pytest.approx(671, rel=0.002)
    assert (model.active_parameters + model.head_parameters) / 1e9 == pytest.approx(36.6, rel=0.002)
    assert model.kv_elements_per_token == 61 * 576
    assert model.kv_elements_per_gpu(8) == model.kv_elements_per_gpu(1)
    (latent,) = model.by_kind
    work = latent.mixer.work(16, 1)
    assert latent.layers * work.pair == 61 * 128 * 2 * (192 + 128)
    assert latent.layers * work.context == 61 * 128 * 2 * (2 * 512 + 64)


def test_projections_of_latent_attention() -> None:
    """187.1 M per layer of DeepSeek V3: 7168×1536 + 1536×24576 + 7168×576 + 512×32768 + 16384×7168."""
    model = find_model("deepseek-v3")
    assert model.attention_parameters == 61 * 187_105_280
    assert model.latent is not None
    uncompressed = replace(model, latent=replace(model.latent, q_lora_rank=0))
    assert uncompressed.attention_parameters - model.attention_parameters == 61 * (7168 * 24576 - 1536 * (7168 + 24576))


@pytest.mark.parametrize(("name", "total", "active"), [("llama-4-scout", 109, 17), ("llama-4-maverick", 400, 17)])
def test_llama_4_with_its_shared_expert(name: str, total: float, active: float) -> None:
    """The published totals have the image encoder of about 0.9 B in them."""
    model = find_model(name)
    assert model.parameters / 1e9 + 0.9 == pytest.approx(total, rel=0.005)
    assert (model.active_parameters + model.embedding_parameters) / 1e9 == pytest.approx(active, rel=0.02)


def test_parts_have_their_share_of_the_plain_layers_rounded_down() -> None:
    r1, maverick = find_model("deepseek-r1"), find_model("llama-4-maverick")
    assert (r1.part(31).layers, r1.part(31).dense_layers) == (31, 1)
    assert r1.part(16).dense_layers == 0
    assert maverick.part(24).dense_layers == 12
    assert 2 * r1.part(31).linear_parameters > r1.linear_parameters


def test_a_latent_vector_is_small() -> None:
    latent = LatentAttention(q_lora_rank=0, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128)
    assert latent.cached == 576
    assert latent.decode_width == 1088
    assert latent.prefill_width == 320
