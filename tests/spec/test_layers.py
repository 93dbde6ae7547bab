"""Layers by kind: bytes and arithmetic by the formulas of their makers, and how tensor parallelism
splits them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage import api
from tonnage.spec.catalog import models
from tonnage.spec.layers import WITH_STATE
from tonnage.spec.model import Model

MIXED = [model for model in models() if model.mixers]


@pytest.mark.parametrize("model", MIXED, ids=lambda model: model.name)
@given(bits=st.sampled_from((8, 16)), tp=st.sampled_from((1, 2, 4, 8)))
def test_more_gpus_never_keep_or_compute_more_each(model: Model, bits: int, tp: int) -> None:
    for some in model.by_kind:
        if not some.mixer.splits(tp):
            continue
        one, each = some.mixer.cache(bits, 1), some.mixer.cache(bits, tp)
        assert each.token <= one.token
        assert each.sequence <= one.sequence
        assert some.mixer.work(bits, tp).sequence <= some.mixer.work(bits, 1).sequence
        assert some.mixer.work(bits, tp).token <= some.mixer.work(bits, 1).token
        assert (one.sequence > 0) == (some.mixer.kind in WITH_STATE)


def test_memory_shows_state_and_cache_apart_on_an_instance_that_holds_the_model() -> None:
    found = api.memory(model="qwen3.5-397b-a17b")
    text, document = "\n".join(found.lines()), found.to_json()
    assert (document["gpu"], document["tp"]) == ("h200-sxm-141gb", 8)
    assert "state = 45 layers = 24,007,680 B per GPU and sequence" in text
    assert "sequences by their states alone = 1,591" in text
    assert document["state_bytes_per_sequence"] == 24_007_680
    assert document["kv_bytes_per_token"] == 15 * 2 * 256 * 2
    plan = found.plan
    alone = plan.blocks // plan.windows.blocks
    assert plan.concurrent_requests(1, 1) <= alone
    plain = api.memory(model="qwen3.5-27b", gpu="h200", tp=1).plan
    guessed = api.memory(
        model="qwen3.5-27b", gpu="h200", tp=1, speculation="mtp k=3 acceptance=0.7"
    ).plan
    assert guessed.state_bytes == 4 * plain.state_bytes
