"""LoRA adapters and image encoders: their arithmetic against counts by hand, their limits, and what others measured."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tonnage.api.question.deployment import deployment_of
from tonnage.errors import InputError
from tonnage.perf import step_terms as at
from tonnage.perf.images_and_adapters import adapter_bytes, changed, encoder_bytes
from tonnage.perf.memory import memory_plan
from tonnage.perf.terms import encoder_seconds, step_model
from tonnage.spec.catalog import find_encoder
from tonnage.spec.deployment import Deployment, parse_adapters
from tonnage.spec.images import parse_images


def deployed(model: str = "llama-2-7b", tp: int = 1, lora: str | None = None) -> Deployment:
    return deployment_of(model=model, gpu="h100", precision="fp16", tp=tp, engine="vllm", lora=lora)


def pictured(text: str, prompt_tokens: float = 2000.0) -> Deployment:
    images = replace(parse_images(text, "qwen3.6-27b"), prompt_tokens=prompt_tokens)
    return replace(deployed("qwen3.6-27b"), images=images)


def test_a_slot_has_rank_times_inputs_and_outputs_of_every_matrix() -> None:
    widths = 4 * (4096 + 4096) + 3 * (4096 + 11008)  # queries, keys, values, output; gate, up, down of Llama 2 7B
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
    assert sum(g.copies * (g.inputs + g.outputs) for g in groups) == model.layers * model.experts * 3 * (model.hidden + model.ffn)
    assert {g.used for g in groups} == {model.layers * model.experts_per_token}


def test_memory_of_adapters_and_encoders_is_taken_from_the_cache() -> None:
    plain, adapted = memory_plan(deployed()), memory_plan(deployed(lora="rank=64 adapters=16"))
    assert plain.kv_budget_bytes - adapted.kv_budget_bytes == pytest.approx(adapted.adapter_bytes, abs=2)
    seen = pictured("1024x768")
    assert memory_plan(replace(seen, images=None)).kv_budget_bytes - memory_plan(seen).kv_budget_bytes == encoder_bytes(seen)
    assert encoder_bytes(seen) == pytest.approx(0.9e9, rel=0.1)  # SigLIP So400m in 16 bits, and its merger


def test_more_adapters_and_more_sequences_never_take_less() -> None:
    steps = [step_model(deployed(lora=lora)) for lora in (None, "rank=8 adapters=1", "rank=8 adapters=16", "rank=64 adapters=16")]
    for batch in (1, 8, 200):
        taken = [step.decode_ps(batch) for step in steps]
        assert taken == sorted(taken)
        assert len(set(taken)) == len(taken) or batch == 1  # One sequence reads one adapter
    many = steps[2].coefficients
    used = [many[at.ADAPTERS] * (1 - many[at.ADAPTER_MISS] ** batch) for batch in (0, 1, 16, 10_000)]
    assert used[0] == 0.0
    assert used[1] == pytest.approx(many[at.ADAPTERS] / 16)
    assert used[3] == pytest.approx(many[at.ADAPTERS])


def test_images_take_their_encoder_s_time_from_the_prompt_alone() -> None:
    seen, plain = step_model(pictured("2x1024x768")), step_model(deployed("qwen3.6-27b"))
    encoder = find_encoder("qwen3.6-27b")
    each = encoder_seconds(deployed("qwen3.6-27b"), encoder, encoder.sequences(1024, 768))
    prompt = (2000, 1, 0, 2000**2, 0)
    assert seen.seconds(*prompt) - plain.seconds(*prompt) == pytest.approx(2 * each)
    assert seen.seconds(0, 0, 8, 0, 8000) == plain.seconds(0, 0, 8, 0, 8000)


@pytest.mark.parametrize("text", ["16", "rank=16 adapters=0", "rank=x", "adapters=4", "rank=16 adapters=4 on=mlp", "rank=9999"])
def test_what_is_no_set_of_adapters_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is not a set of adapters"):
        parse_adapters(text)


@pytest.mark.accuracy
def test_measurements_of_others_are_met_as_the_page_says() -> None:
    from benchmarks.published import adapters, encoders

    rows = [*adapters(), *encoders()]
    groups: dict[str, list[float]] = {}
    for row in rows:
        groups.setdefault(row.group, []).append(abs(row.error))
    means = {group: sum(errors) / len(errors) for group, errors in groups.items()}
    most = {"adapters, fitted": 0.04, "adapters, throughput kept": 0.25, "encoders, FasterTransformer": 0.2, "encoders, ninfer": 0.25}
    assert all(means[group] <= limit for group, limit in most.items())
