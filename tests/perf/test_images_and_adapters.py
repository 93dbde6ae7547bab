"""Adapters and encoders: the memory and the time that they take."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.perf.terms_cases import deployed, pictured
from tonnage.api.question.deployment import deployment_of
from tonnage.perf.images_and_adapters import (
    adapter_bytes,
    changed,
    encoder_bytes,
    merger_parameters,
    transformer,
)
from tonnage.perf.memory import memory_plan
from tonnage.spec.catalog import find_model
from tonnage.spec.catalog.entries import encoders


def test_a_slot_has_rank_times_inputs_and_outputs_of_every_matrix() -> None:
    # queries, keys, values, output; gate, up, down of Llama 2 7B
    widths = 4 * (4096 + 4096) + 3 * (4096 + 11008)
    assert adapter_bytes(deployed(lora="rank=32 adapters=100")) == 100 * 32 * 2 * 32 * widths
    attention = adapter_bytes(deployed(lora="rank=32 adapters=1 on=attention"))
    assert attention == 32 * 2 * 32 * 4 * (4096 + 4096)


def test_tensor_parallelism_divides_one_side_of_each_pair() -> None:
    one, four = (adapter_bytes(deployed(tp=tp, lora="rank=8 adapters=1")) for tp in (1, 4))
    assert one / 4 < four < one


def test_experts_have_adapters_of_their_own() -> None:
    deployment = deployed("qwen3-30b-a3b", lora="rank=8 adapters=1")
    model = deployment.model
    groups = [group for group in changed(model, "all") if group.copies > group.used]
    assert sum(
        g.copies * (g.inputs + g.outputs) for g in groups
    ) == model.layers * model.experts * 3 * (model.hidden + model.ffn)
    assert {g.used for g in groups} == {model.layers * model.experts_per_token}


def test_memory_of_adapters_and_encoders_is_taken_from_the_cache() -> None:
    plain, adapted = memory_plan(deployed()), memory_plan(deployed(lora="rank=64 adapters=16"))
    assert plain.kv_budget_bytes - adapted.kv_budget_bytes == pytest.approx(
        adapted.adapter_bytes, abs=2
    )
    seen = pictured("1024x768")
    # it is loaded whether or not there are images
    assert memory_plan(replace(seen, images=None)) == replace(
        memory_plan(seen), deployment=replace(seen, images=None)
    )
    # SigLIP So400m in 16 bits, and its merger
    assert encoder_bytes(seen) == pytest.approx(0.9e9, rel=0.1)


def test_adapters_on_attention_do_not_know_how_experts_are_spread() -> None:
    sizes = {
        adapter_bytes(
            deployment_of(
                model="qwen3-30b-a3b",
                gpu="h100",
                precision="fp16",
                tp=4,
                ep=ep,
                engine="vllm",
                lora="rank=8 adapters=1 on=attention",
            )
        )
        for ep in (1, 4)
    }
    assert len(sizes) == 1


def test_the_catalog_counts_the_encoders_that_it_lists() -> None:
    for encoder in encoders():
        for name in encoder.models:
            model = find_model(name)
            layers = transformer(encoder).linear_parameters
            assert model.encoder_parameters == layers + merger_parameters(encoder, model.hidden)
