import math
from dataclasses import replace

import pytest

from tests.deployments import array, deployment
from tonnage.perf import step_terms as at
from tonnage.perf.step import context_seconds
from tonnage.perf.terms import coefficients, resolve, step_model
from tonnage.perf.terms_file import shipped
from tonnage.spec.catalog import find_engine
from tonnage.spec.deployment import Parallelism


def test_kv_heads_are_not_split_below_one() -> None:
    """Llama 3 8B has 8 KV heads: TP 16 reads as much per GPU as TP 8."""
    d = deployment(precision="fp16", engine="tensorrt-llm-0.15")
    values = {}
    for tp in (4, 8, 16):
        t = resolve(shipped(), d.model, d.gpu, d.precision, Parallelism(tp=tp), "tensorrt-llm-0.15")
        values[tp] = coefficients(t, d.model, d.gpu, d.precision, Parallelism(tp=tp))[at.CONTEXT]
    assert values[4] == pytest.approx(2 * values[8])
    assert values[16] == pytest.approx(values[8])


def test_old_decode_kernels_took_groups_of_eight_heads_together() -> None:
    """A context token costs Llama 3 8B (groups of 4) more than its bytes on engines of 2024, and the 70B (groups of 8) only its bytes."""
    for model, dearer in (("llama-3-8b", True), ("llama-3-70b", False)):
        d = deployment(model=model, precision="fp8")
        t = resolve(shipped(), d.model, d.gpu, d.precision, Parallelism(), "nim-2024")
        together = replace(t, attention=tuple(replace(of, head_arithmetic=math.inf) for of in t.attention))
        bytes_only = coefficients(together, d.model, d.gpu, d.precision, Parallelism())[at.CONTEXT]
        assert (coefficients(t, d.model, d.gpu, d.precision, Parallelism())[at.CONTEXT] > 1.2 * bytes_only) == dearer


def test_few_sequences_leave_old_kernels_head_by_head() -> None:
    """70B on 4 H100: 16 query heads and 2 KV heads a GPU. Up to 16 sequences the 132 multiprocessors walk 16 blocks each; then groups."""
    old, now = (array(model="llama-3-70b", precision="fp8", tp=4, engine=e) for e in ("nim", "tensorrt-llm-0.15"))
    assert old[at.WAVE] == pytest.approx(16 / 132)
    assert old[at.GROUPED_FROM] == pytest.approx(132 / 4 / 2)
    one_wave, two_waves = (context_seconds(old, b) * b for b in (8, 9))
    assert two_waves > 1.3 * one_wave
    assert context_seconds(old, 17) < 0.7 * context_seconds(old, 16)
    assert [context_seconds(now, b) for b in (1, 8, 9, 17)] == [now[at.CONTEXT]] * 4
    assert array(model="llama-3-8b")[at.GROUPED_FROM] > 1e6  # groups of 4 never are


def test_current_kernels_read_a_context_at_most_at_the_bandwidth() -> None:
    d = deployment(precision="fp8", engine="tensorrt-llm-0.15")
    per_token = d.model.kv_elements_per_gpu(1) / (d.gpu.memory_bandwidth_gb_s * 1e9)
    assert context_seconds(step_model(d).coefficients, 64) == pytest.approx(per_token, rel=0.25)
    assert context_seconds(step_model(d).coefficients, 64) >= per_token


def test_latent_attention_is_bytes_or_arithmetic_whichever_takes_longer() -> None:
    """On 8 GPUs a token of DeepSeek is 16 heads of arithmetic over 576 bytes: bandwidth decides; on one GPU the 128 heads do."""
    for tp, bound in ((8, "bytes"), (1, "arithmetic")):
        d = deployment(model="deepseek-r1", gpu="h200-sxm-141gb", precision="fp8", tp=tp, engine="vllm")
        t = resolve(shipped(), d.model, d.gpu, d.precision, d.parallelism, find_engine("vllm").coefficients)
        read = 61 * 576 / (d.gpu.memory_bandwidth_gb_s * 1e9 * t.attention[0].kv_bandwidth)
        work = 61 * 128 / tp * 1088 * 2 / (d.gpu.fp16_tflops * 1e12 * t.attention[0].head_arithmetic)
        assert (read > work) == (bound == "bytes")
        c = coefficients(t, d.model, d.gpu, d.precision, d.parallelism)
        assert max(read, work) <= c[at.CONTEXT] <= read + work
        assert c[at.ATTENTION] == pytest.approx(61 * 128 / tp * 320 * 2 / (d.gpu.fp16_tflops * 1e12 * t.attention[0].prefill))
