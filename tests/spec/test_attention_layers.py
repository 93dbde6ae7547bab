"""Kinds of attention: caches that are shared, indexed or states."""

from __future__ import annotations

import pytest

from tonnage.spec.catalog import find_model
from tonnage.spec.layers import Layers


def only(model: str, kind: str) -> Layers:
    return next(some for some in find_model(model).by_kind if some.mixer.kind == kind)


def test_states_are_counted_by_heads_and_split_over_gpus() -> None:
    delta = only("qwen3.5-397b-a17b", "gated-delta")
    assert delta.layers * delta.mixer.cache(16, 1).sequence == 192_061_440
    assert delta.mixer.cache(16, 8).sequence == pytest.approx(delta.mixer.cache(16, 1).sequence / 8)
    state = 64 * 128 * 128
    assert delta.mixer.work(16, 1).sequence_bytes == 2 * state * 4
    assert delta.mixer.work(16, 1).token == 64 * (64 * (6 * 128 + 4 * 128) + 6 * 128 * 128)
    mamba = only("nemotron-3-super-120b-a12b", "mamba2")
    assert mamba.layers * mamba.mixer.cache(16, 1).sequence == 170_229_760
    assert mamba.mixer.work(16, 2).sequence_bytes == mamba.mixer.work(16, 1).sequence_bytes / 2


def test_a_choice_of_entries_bounds_what_is_read() -> None:
    """FP8 entries of 656 bytes and keys of 132 (formulas of DeepSeek V3.2); 8 heads a GPU are
    filled up to 16."""
    sparse = only("deepseek-v3.2", "sparse-latent").mixer
    assert (sparse.cache(8, 8).token, sparse.cache(8, 8).index) == (656, 132)
    assert (sparse.cache(16, 1).token, sparse.cache(16, 1).index) == (1152, 256)
    assert sparse.work(8, 8).sequence_bytes == 2048 * 656
    assert (
        sparse.work(8, 16).sequence == sparse.work(8, 8).sequence == 2 * 16 * (2 * 512 + 64) * 2048
    )
    assert sparse.work(8, 1).index == 2 * 64 * 128
    assert sparse.work(16, 1).context == 0
    kept = {
        some.mixer.ratio: some.mixer.cache(16, 8) for some in find_model("deepseek-v4-pro").by_kind
    }
    assert kept[4].token == 512 * 2 / 4
    assert kept[4].index == 128 * 2 / 4
    assert (kept[128].token, kept[128].index) == (512 * 2 / 128, 0)
    assert kept[4].window_token * kept[4].window == 128 * 512 * 2
    blocks = only("minimax-m3", "block-sparse").mixer
    assert blocks.cache(16, 1).token == 2 * 4 * 128 * 2
    assert blocks.work(16, 4).sequence_bytes == 16 * 128 * 2 * 1 * 128 * 2


def test_shared_caches_are_read_and_not_kept() -> None:
    borrowing = [some for some in find_model("gemma-4-e4b").by_kind if some.mixer.shared_cache]
    assert sum(some.layers for some in borrowing) == 18
    for some in borrowing:
        cache, work = some.mixer.cache(16, 1), some.mixer.work(16, 1)
        assert cache.token == cache.window_token == 0
        assert work.context_bytes + work.sequence_bytes > 0


def test_deepseek_as_its_report_counts_it() -> None:
    """671 B in total; 36.6 B active with the head and without the embedding; 576 elements per token
    and layer."""
    model = find_model("deepseek-ai/DeepSeek-R1")
    assert model.parameters / 1e9 == pytest.approx(671, rel=0.002)
    assert (model.active_parameters + model.head_parameters) / 1e9 == pytest.approx(36.6, rel=0.002)
    assert model.kv_elements_per_gpu(1) == 61 * 576
    assert model.kv_elements_per_gpu(8) == model.kv_elements_per_gpu(1)
    (latent,) = model.by_kind
    work = latent.mixer.work(16, 1)
    assert latent.layers * work.pair == 61 * 128 * 2 * (192 + 128)
    assert latent.layers * work.context == 61 * 128 * 2 * (2 * 512 + 64)
    r1, maverick = find_model("deepseek-r1"), find_model("llama-4-maverick")
    assert (r1.part(31).layers, r1.part(31).dense_layers) == (31, 1)
    assert r1.part(16).dense_layers == 0
    assert maverick.part(24).dense_layers == 12
    assert 2 * r1.part(31).linear_parameters > r1.linear_parameters
