from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.deployments import array, deployment
from tests.strategies import coefficient_array
from tonnage.perf import step_terms as at
from tonnage.perf.step import StepModel, batch_seconds, context_seconds, step_seconds
from tonnage.perf.step_terms import COEFFICIENTS, DURATIONS, PARTS, TERMS
from tonnage.perf.terms import coefficients, resolve, step_model
from tonnage.perf.terms_file import shipped
from tonnage.plan.plan import TERMS as EXPLAINED
from tonnage.sizing.loads.confidence import slower
from tonnage.spec.catalog import find_engine


def test_scheduling_that_does_not_overlap_is_part_of_every_step() -> None:
    for engine in ("vllm-0.8", "vllm-0.10", "vllm-0.12", "vllm-0.19", "vllm"):
        d = deployment(engine=engine)
        plain, overlapping = (
            step_model(replace(d, knobs=replace(d.knobs, overlap_schedule=overlap))).coefficients
            for overlap in (False, True)
        )
        scheduling = shipped()["engines"][find_engine(engine).coefficients]["schedule_s"]
        assert plain[at.HOST_STEP] - overlapping[at.HOST_STEP] == pytest.approx(scheduling)
        # asynchronous from 0.14 on
        assert d.knobs.overlap_schedule == (engine in ("vllm-0.19", "vllm"))


def test_cuda_graphs_spare_latent_attention_what_launching_it_costs() -> None:
    d = deployment(
        model="kimi-k2.5", gpu="b200-sxm-180gb", precision="nvfp4+experts", tp=8, engine="vllm"
    )
    wide = replace(d, knobs=replace(d.knobs, graph_tokens=2048))
    plain, graphed = (step_model(each).coefficients for each in (d, wide))
    assert (plain[at.GRAPHED_TO], graphed[at.GRAPHED_TO]) == (512, 2048)
    assert plain[at.EAGER] == graphed[at.EAGER] > 0
    assert (
        step_seconds(plain, 1024, 1, 0, 0, 0)
        > step_seconds(graphed, 1024, 1, 0, 0, 0) + plain[at.EAGER] - 1e-12
    )
    assert step_seconds(plain, 4096, 1, 0, 0, 0) == step_seconds(graphed, 4096, 1, 0, 0, 0)
    dense = deployment(engine="vllm")
    engine = shipped()["engines"]["vllm"]
    spared = engine["prefill_s"] + engine["prefill_layer_s"] * dense.model.layers
    assert step_model(dense).coefficients[at.EAGER] == pytest.approx(spared)
    assert step_model(dense).coefficients[at.HOST_PREFILL] == 0.0


def test_a_short_prompt_in_a_cuda_graph_costs_as_many_decodes_and_its_own_attention() -> None:
    """Nothing of the host's further work for steps with prompts is in a step that a graph holds."""
    c = step_model(deployment(engine="vllm")).coefficients
    prompt = step_seconds(c, 200, 1, 0, 200 * 200, 0)
    decodes = batch_seconds(c, 200, 1)
    assert prompt - decodes == pytest.approx(c[at.ATTENTION] * 200 * 100, rel=1e-9)
    beyond = step_seconds(c, 513, 1, 0, 0, 0)
    assert beyond >= batch_seconds(c, 513, 1) + c[at.EAGER]


def test_an_all_reduce_of_an_odd_width_is_left_with_few_blocks() -> None:
    """Falcon's 14,848 is 512 · 29: at TP 8 a two-shot message above 70 tokens and below 8 MB has
    one block per 29 · 16 KB and rank."""
    falcon = array(model="falcon-180b", tp=8, engine="tensorrt-llm-0.9")
    assert falcon[at.STARVED_FROM] == pytest.approx(16 * 1024 * 16 * 8 / (2 * 14848))
    assert falcon[at.STARVED_TO] == pytest.approx(8e6 / (2 * 14848))
    rate = shipped()["engines"]["tensorrt-llm-0.9"]["block_bytes_s"]
    assert falcon[at.STARVED] == pytest.approx(80 * 2 * 29 * 1024 * 16 * 8 / rate)
    assert array(model="falcon-180b", tp=4, engine="tensorrt-llm-0.9")[at.STARVED] == pytest.approx(
        falcon[at.STARVED] / 2
    )
    for what in (
        {"model": "llama-2-70b"},  # a power of two
        {"model": "falcon-180b", "tp": 2},  # one-shot up to 16 MB
        {"model": "falcon-180b", "gpu": "l40s"},  # NCCL over PCIe
        {"model": "falcon-180b", "engine": "vllm"},  # another kernel
    ):
        assert array(**({"tp": 8, "engine": "tensorrt-llm-0.9"} | what))[at.STARVED] == 0.0


def test_two_bridged_pairs_are_slow_below_64_mib() -> None:
    """4,096 tokens of Llama 2 70B are 64 MiB; below, an all-reduce reaches what one of eight GPUs
    does."""
    pairs, eight = (
        array(
            model="llama-2-70b",
            gpu="h100-nvl-94gb",
            precision="fp8",
            tp=tp,
            engine="tensorrt-llm-0.9",
        )
        for tp in (4, 8)
    )
    assert pairs[at.SLOW_TO] == 4096
    moved = (2 * 3 / 4) / (2 * 7 / 8)
    assert pairs[at.COMM_TOKEN] + pairs[at.COMM_SLOW] == pytest.approx(eight[at.COMM_TOKEN] * moved)
    assert batch_seconds(pairs, 4096, 1) < batch_seconds(pairs, 4095, 1)
    for what in (
        {"gpu": "h100-nvl-94gb", "tp": 2},
        {"gpu": "l40s", "tp": 4},
        {"gpu": "h100-sxm-80gb", "tp": 4},
    ):
        assert array(**({"model": "llama-2-70b", "precision": "fp8"} | what))[at.COMM_SLOW] == 0.0


@pytest.mark.parametrize(
    ("model", "precision", "engine", "passes"),
    [
        # written, pow, 6 products and sums, tanh (8 kernels), read
        ("gpt-j-6b", "fp16", "tensorrt-llm-0.9", 20),
        ("falcon-180b", "fp16", "nim-2024", 20),
        ("gpt-j-6b", "fp16", "tensorrt-llm-0.15", 20),
        ("gpt-j-6b", "fp16", "tensorrt-llm-1.1", 4),  # torch's GELU is one kernel
        ("gpt-j-6b", "fp16", "vllm", 4),
        ("gpt-j-6b", "fp8", "tensorrt-llm-0.9", 1),
        ("llama-2-7b", "fp16", "tensorrt-llm-0.9", 6),
    ],
)
def test_elements_of_the_inner_width_are_those_of_the_kernels_between_two_matrices(
    model: str, precision: str, engine: str, passes: int
) -> None:
    d = deployment(model=model, precision=precision, engine=engine)
    per_element = (
        shipped()["shared"]["activation"] * 2 * d.model.layers / (d.gpu.memory_bandwidth_gb_s * 1e9)
    )
    elements = array(model=model, precision=precision, engine=engine)[at.ACTIVATION] / per_element
    assert (
        elements - 8 * d.model.hidden - d.model.heads * d.model.head_dim
    ) / d.model.inner == pytest.approx(passes)


def test_linear_work_is_split_over_the_gpus() -> None:
    one, four = array(tp=1), array(tp=4)
    for place in (at.LINEAR_FLOPS, at.LINEAR_BYTES, at.HEAD_BYTES, at.ATTENTION):
        assert four[place] == pytest.approx(one[place] / 4)
    assert one[at.COMM_STEP] == one[at.COMM_TOKEN] == 0.0
    assert four[at.COMM_STEP] > 0.0
    assert four[at.HOST_STEP] == one[at.HOST_STEP]


def test_few_sequences_leave_old_kernels_head_by_head() -> None:
    """70B on 4 H100: 16 query heads and 2 KV heads a GPU. Up to 16 sequences the 132
    multiprocessors walk 16 blocks each; then groups."""
    old, now = (
        array(model="llama-3-70b", precision="fp8", tp=4, engine=e)
        for e in ("nim", "tensorrt-llm-0.15")
    )
    assert old[at.WAVE] == pytest.approx(16 / 132)
    assert old[at.GROUPED_FROM] == pytest.approx(132 / 4 / 2)
    one_wave, two_waves = (context_seconds(old, b) * b for b in (8, 9))
    assert two_waves > 1.3 * one_wave
    assert context_seconds(old, 17) < 0.7 * context_seconds(old, 16)
    assert [context_seconds(now, b) for b in (1, 8, 9, 17)] == [now[at.CONTEXT]] * 4
    assert array(model="llama-3-8b")[at.GROUPED_FROM] > 1e6  # groups of 4 never are


def test_latent_attention_is_bytes_or_arithmetic_whichever_takes_longer() -> None:
    """On 8 GPUs a token of DeepSeek is 16 heads of arithmetic over 576 bytes: bandwidth decides; on
    one GPU the 128 heads do."""
    for tp, bound in ((8, "bytes"), (1, "arithmetic")):
        d = deployment(
            model="deepseek-r1", gpu="h200-sxm-141gb", precision="fp8", tp=tp, engine="vllm"
        )
        t = resolve(
            shipped(), d.model, d.gpu, d.precision, d.parallelism, find_engine("vllm").coefficients
        )
        read = 61 * 576 / (d.gpu.memory_bandwidth_gb_s * 1e9 * t.attention[0].kv_bandwidth)
        work = (
            61 * 128 / tp * 1088 * 2 / (d.gpu.fp16_tflops * 1e12 * t.attention[0].head_arithmetic)
        )
        assert (read > work) == (bound == "bytes")
        c = coefficients(t, d.model, d.gpu, d.precision, d.parallelism)
        assert max(read, work) <= c[at.CONTEXT] <= read + work
        assert c[at.ATTENTION] == pytest.approx(
            61 * 128 / tp * 320 * 2 / (d.gpu.fp16_tflops * 1e12 * t.attention[0].prefill)
        )


def test_arithmetic_and_weights_join_by_the_norm() -> None:
    c = coefficient_array(linear_flops=3e-3, linear_bytes=4e-3, norm=2.0)
    assert batch_seconds(c, 1, 1) == pytest.approx(5e-3)
    c[at.NORM] = 1.0
    assert batch_seconds(c, 1, 1) == pytest.approx(7e-3)


def test_a_cuda_graph_spares_a_step_with_prompts_what_launching_costs() -> None:
    c = coefficient_array(
        host_step=1e-3, host_prefill=2e-3, launches=7e-3, eager=5e-3, graphed_to=64.0, norm=1.0
    )
    assert step_seconds(c, 60, 1, 4, 0, 0) == pytest.approx(3e-3)
    assert step_seconds(c, 61, 1, 4, 0, 0) == pytest.approx(8e-3)
    c[at.EAGER] = 0.0
    assert step_seconds(c, 61, 1, 4, 0, 0) == pytest.approx(7e-3)
    assert step_seconds(c, 0, 0, 65, 0, 0) == pytest.approx(1e-3)


def test_a_one_shot_all_reduce_is_taken_even_where_it_costs_more() -> None:
    c = coefficient_array(
        comm_step=1e-3,
        comm_small=1e-4,
        comm_large=1.8e-3,
        comm_token=2e-5,
        one_shot_to=128.0,
        norm=1.0,
    )
    assert batch_seconds(c, 5, 1) == pytest.approx(1.5e-3)
    assert batch_seconds(c, 128, 1) == pytest.approx(1e-3 + 128e-4)
    assert batch_seconds(c, 129, 1) == pytest.approx(1.8e-3 + 129 * 2e-5)
    c[at.SMALL_TOKENS] = 200.0  # beyond, whichever is faster
    assert batch_seconds(c, 128, 1) == pytest.approx(1e-3 + 128e-4)
    assert batch_seconds(c, 129, 1) == pytest.approx(1.8e-3 + 129 * 2e-5)


def test_blocks_of_heads_run_in_waves_until_they_are_taken_together() -> None:
    """64 blocks a sequence on 128 multiprocessors: two sequences are one wave, three are two; from
    five on, groups."""
    c = coefficient_array(context=2e-9, heads=1e-9, walk=1e-7, wave=0.5, grouped_from=4.5)
    assert context_seconds(c, 0) == 0.0
    per_mean_context = [context_seconds(c, b) * b for b in (1, 2, 3, 4)]
    assert per_mean_context == pytest.approx([1e-7, 1e-7, 2e-7, 2e-7], rel=1e-6)
    assert context_seconds(c, 5) == pytest.approx(2e-9 + 1e-7 / 5)
    c[at.HEADS] = 3e-6  # arithmetic head by head takes longer than the waves
    assert context_seconds(c, 4) == pytest.approx(3e-6, rel=1e-6)
    assert context_seconds(c, 5) == pytest.approx(2e-9 + 1e-7 / 5)


def test_numbers_that_are_no_durations_stay_in_a_slower_step() -> None:
    model = StepModel(coefficients=np.arange(1.0, COEFFICIENTS + 5.0), frontend_s=0.0)
    ratio = slower(model, 1.5).coefficients / model.coefficients
    pure = [term.place for term in TERMS if not term.is_time]
    assert (ratio[pure] == 1.0).all()
    assert (ratio[list(DURATIONS)] == 1.5).all()
    assert ratio[COEFFICIENTS:].tolist() == [1.0, 1.5, 1.0, 1.5]


def test_every_part_is_explained_in_words_and_has_durations() -> None:
    assert {*PARTS, "drafter", "table"} == set(EXPLAINED)
    assert {term.part for term in TERMS if term.is_time} == set(PARTS)
    assert {term.part for term in TERMS if not term.is_time} == {None}


def test_limits_of_a_round_are_those_of_all_its_micro_batches() -> None:
    limits = [term for term in TERMS if term.unit in ("tokens", "sequences")]
    assert {term.stages for term in limits} == {"times"}
