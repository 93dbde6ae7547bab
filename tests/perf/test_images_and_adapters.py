"""Adapters and encoders: the memory and the time that they take."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.perf.terms_cases import deployed, pictured
from tonnage.api.question.deployment import deployment_of
from tonnage.perf import step_terms as at
from tonnage.perf.images_and_adapters import (
    ADAPTER_S,
    GROUP_S,
    Changed,
    adapter_bytes,
    add_adapters,
    changed,
    encoder_bytes,
    merger_parameters,
    transformer,
)
from tonnage.perf.memory import memory_plan
from tonnage.spec.catalog import find_model
from tonnage.spec.catalog.entries import encoders
from tonnage.spec.deployment import Parallelism


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


def test_what_adapters_add_to_a_step_by_hand() -> None:
    """Llama 2 7B on two GPUs: queries, keys and values, and gate and up, are split by outputs; the
    output and down by inputs. Four groups of matrices in each of 32 layers."""
    deployment = deployed(tp=2, lora="rank=16 adapters=4")
    groups = changed(deployment.model, "all")
    assert groups == [
        Changed(
            copies=32, used=32, layers=32, inputs=inputs, outputs=outputs, by_outputs=by_outputs
        )
        for inputs, outputs, by_outputs in (
            (3 * 4096, 3 * 4096, True),
            (4096, 4096, False),
            (2 * 4096, 2 * 11_008, True),
            (11_008, 4096, False),
        )
    ]
    inputs = 3 * 4096 + 4096 // 2 + 2 * 4096 + 11_008 // 2
    outputs = 3 * 4096 // 2 + 4096 + 11_008 + 4096
    c = [1e-4] * at.COEFFICIENTS
    add_adapters(c, deployment)
    expected = [1e-4] * at.COEFFICIENTS
    bandwidth = deployment.gpu.memory_bandwidth_gb_s * 1e9
    expected[at.HOST_STEP] += 4 * 32 * GROUP_S
    expected[at.ACTIVATION] += 2 * 32 * (inputs + 2 * outputs) / bandwidth
    flops = deployment.gpu.fp16_tflops * 1e12
    expected[at.LINEAR_FLOPS] += 2 * 16 * 32 * (inputs + outputs) / flops
    expected[at.ADAPTERS] = 4 * (ADAPTER_S * 4 * 32 + 2 * 16 * 32 * (inputs + outputs) / bandwidth)
    expected[at.ADAPTER_MISS] = 0.75
    assert c == pytest.approx(expected, rel=1e-12)
    assert adapter_bytes(deployment) == 4 * 16 * 2 * 32 * (inputs + outputs)
    add_adapters(c, replace(deployment, adapters=None))
    assert c == pytest.approx(expected, rel=1e-12)
    assert adapter_bytes(replace(deployment, adapters=None)) == 0


def test_adapters_of_experts_lie_with_them() -> None:
    """Two groups of two GPUs hold half of the experts each, and split the width of each in two."""
    deployment = deployed("mixtral-8x7b", tp=4, lora="rank=8 adapters=1")
    spread = replace(deployment, parallelism=Parallelism(tp=4, ep=2))
    attention = 4096 + (32 + 16) * 128 // 4 + 4096 // 4 + 4096
    attention += 2 * 4096
    experts = 8 // 2 * (2 * 4096 + 2 * 14_336 // 2 + 14_336 // 2 + 4096)
    assert adapter_bytes(spread) == 8 * 2 * 32 * (attention + experts)


def test_the_encoder_of_a_model_by_hand() -> None:
    """A merger takes four patches of 1,152 to the width of the language model, through a perceptron
    as wide as the four."""
    (encoder,) = (e for e in encoders() if "qwen3.6-27b" in e.models)
    small = replace(encoder, hidden=10, merge=2, mergers=3)
    assert merger_parameters(small, 100) == 3 * (40 * 40 + 40 * 100)
    seen = pictured("1024x768")
    assert encoder_bytes(seen) == 2 * seen.model.encoder_parameters
    two = replace(seen, parallelism=Parallelism(tp=2))
    assert encoder_bytes(two) == seen.model.encoder_parameters


def test_shared_experts_and_dense_layers_have_one_adapter_each() -> None:
    """DeepSeek V3: 3 dense layers of 18,432 and 58 with one shared expert of 2,048."""
    groups = changed(find_model("deepseek-v3"), "all")[-4:]
    assert groups == [
        Changed(
            copies=layers,
            used=layers,
            layers=layers,
            inputs=inputs,
            outputs=outputs,
            by_outputs=by_outputs,
        )
        for layers, inputs, outputs, by_outputs in (
            (3, 2 * 7168, 2 * 18_432, True),
            (3, 18_432, 7168, False),
            (58, 2 * 7168, 2 * 2048, True),
            (58, 2048, 7168, False),
        )
    ]


@pytest.mark.parametrize(
    ("by_outputs", "tp", "widths"),
    [(True, 1, (7, 10)), (True, 4, (7, 2.5)), (False, 4, (1.75, 10)), (False, 1, (7, 10))],
)
def test_tensor_parallelism_divides_outputs_or_inputs(
    by_outputs: bool, tp: int, widths: tuple[float, float]
) -> None:
    group = Changed(copies=1, used=1, layers=1, inputs=7, outputs=10, by_outputs=by_outputs)
    assert group.widths(tp) == widths


def test_what_adapters_of_each_kind_of_layer_change() -> None:
    """Qwen3.5: 15 layers of attention and 45 with a state; 60 layers of 512 experts, ten of which a
    token uses, and a shared one."""
    model = find_model("qwen3.5-397b-a17b")
    attention = [
        (15, 15, 15, 3 * 4096, 104_857_600 // 4096 - 32 * 256),
        (15, 15, 15, 32 * 256, 4096),
        (45, 45, 45, 3 * 4096, 117_964_800 // 4096 - 64 * 128),
        (45, 45, 45, 64 * 128, 4096),
    ]
    experts = [
        (60 * 512, 600, 60, 2 * 4096, 2 * 1024),
        (60 * 512, 600, 60, 1024, 4096),
        (60, 60, 60, 2 * 4096, 2 * 1024),
        (60, 60, 60, 1024, 4096),
    ]
    for on, expected in (("attention", attention), ("all", attention + experts)):
        groups = changed(model, on)
        assert [(g.copies, g.used, g.layers, g.inputs, g.outputs) for g in groups] == expected
        assert [g.by_outputs for g in groups] == [True, False] * (len(expected) // 2)
    # one matrix before the gate where there is no gate
    plain = changed(find_model("gpt-j-6b"), "all")
    assert [(g.inputs, g.outputs) for g in plain[2:]] == [(4096, 16_384), (16_384, 4096)]
