from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from tests.deployments import array, deployment
from tonnage import api
from tonnage.api.question.deployment import deployment_of
from tonnage.errors import DoesNotFit, InputError
from tonnage.perf import step_terms as at
from tonnage.perf.images_and_adapters import adapter_bytes, changed, encoder_bytes
from tonnage.perf.matrices import MOST
from tonnage.perf.memory import memory_plan
from tonnage.perf.pipeline import estimated_instance
from tonnage.perf.prediction_error import run_noise
from tonnage.perf.ranges import marks
from tonnage.perf.step import StepModel, batch_seconds, context_seconds, step_seconds
from tonnage.perf.step_terms import HOST_STEP
from tonnage.perf.terms import (
    client_turnaround_s,
    coefficients,
    encoder_seconds,
    resolve,
    step_model,
)
from tonnage.perf.terms_file import shipped
from tonnage.spec.catalog import engines, find_encoder, find_engine, find_gpu, find_model, gpus
from tonnage.spec.catalog.entries import host_cpus
from tonnage.spec.deployment import Deployment, Parallelism, parse_adapters
from tonnage.spec.hardware import Gpu
from tonnage.spec.images import parse_images
from tonnage.spec.precision import PRECISIONS, find_precision


def test_every_gpu_precision_and_engine_of_the_catalog_has_a_price() -> None:
    for gpu in gpus():
        for name in (*PRECISIONS, "fp8+2:4", "awq+kv-int8"):
            if not gpu.supports(find_precision(name)):
                continue
            for engine in engines():
                model = step_model(
                    deployment(gpu=gpu.name, precision=name, tp=2, engine=engine.name)
                )
                assert np.isfinite(model.coefficients).all(), (gpu.name, name, engine.name)
                assert (model.coefficients >= 0).all()
                assert 0 <= model.frontend_s < 0.1
                decode = step_seconds(model.coefficients, 0, 0, 8, 0, 8000)
                assert 1e-4 < decode < 1.0, (gpu.name, name, engine.name)


@pytest.mark.parametrize(
    "gpu", ["a100-sxm-80gb", "h100-sxm-80gb", "h200-sxm-141gb", "l40s", "b200-sxm-180gb"]
)
@pytest.mark.parametrize("engine", ["nim", "tensorrt-llm-0.15", "tensorrt-llm-0.9", "vllm"])
def test_no_efficiency_is_above_the_datasheet(gpu: str, engine: str) -> None:
    for precision in ("fp16", "fp8"):
        if not find_gpu(gpu).supports(find_precision(precision)):
            continue
        d = deployment(gpu=gpu, precision=precision, tp=4, engine=engine)
        t = resolve(
            shipped(), d.model, d.gpu, d.precision, d.parallelism, find_engine(engine).coefficients
        )
        m = t.matrices
        for efficiency in (m.compute, m.compute_16, m.memory, m.memory_16, t.attention[0].prefill):
            assert 0.2 < efficiency < 1.0
        assert 0.3 < t.attention[0].kv_bandwidth <= 1.2  # a share of it can come from the cache
        assert t.links.bytes_s < d.gpu.tp_link_bytes_s(4)
        assert t.matrices.norm >= 1.0


HALVED = ("rtx-4090", "rtx-5090")
"""GeForce cards halve 16- and 8-bit products alone, so that their watts per TFLOP/s say nothing of
clocks in 4 bits."""


def outgrows(more: Gpu, less: Gpu) -> bool:
    """Whether a GPU has at least what another one has, in rates, bandwidth and watts, behind the
    same link, and no rows of its own."""
    alike = all(
        getattr(more, name) == getattr(less, name)
        for name in ("vendor", "link", "link_gb_s", "p2p", "mesh_gpus")
    )
    figures = (
        "fp16_tflops",
        "fp8_tflops",
        "fp4_tflops",
        "memory_bandwidth_gb_s",
        "pcie_gb_s",
        "tdp_w",
    )
    judged = more.name not in shipped()["gpus"] and less.name not in HALVED
    return (
        alike
        and judged
        and all((getattr(more, name) or 0.0) >= (getattr(less, name) or 0.0) for name in figures)
    )


@pytest.mark.parametrize("precision", ["fp16", "fp8", "nvfp4", "mxfp4", "nvfp4+experts"])
def test_a_gpu_that_has_more_of_everything_is_never_slower_unless_its_rows_say_so(
    precision: str,
) -> None:
    model, tp = ("deepseek-r1", 8) if "experts" in precision else ("llama-2-70b", 4)
    loads = [
        (0, 0, 1, 0, 1000),
        (0, 0, 64, 0, 64_000),
        (4096, 2, 0, 2 * 2048**2, 0),
        (1000, 4, 500, 4 * 250**2, 400_000),
    ]
    pairs = [
        (more, less) for more, less in itertools.permutations(gpus(), 2) if outgrows(more, less)
    ]
    assert ("b300-sxm-270gb", "b200-sxm-180gb") in {(more.name, less.name) for more, less in pairs}
    for more, less in pairs:
        forms = {
            gpu.executes(find_precision(precision)).arithmetic
            for gpu in (more, less)
            if gpu.supports(find_precision(precision))
        }
        if len(forms) != 1 or not (
            more.supports(find_precision(precision)) and less.supports(find_precision(precision))
        ):
            continue
        for engine in ("vllm", "atom" if more.vendor == "AMD" else "tensorrt-llm"):
            two = [
                array(model=model, gpu=gpu.name, precision=precision, tp=tp, engine=engine)
                for gpu in (more, less)
            ]
            for load in loads:
                seconds = [step_seconds(c, *load) for c in two]
                assert seconds[0] <= 1.001 * seconds[1], (more.name, less.name, engine, load)


PUBLISHED = [
    ("h100-sxm-80gb", "bf16", 6.44, 4.37e-5),
    ("h100-sxm-80gb", "bf16+kv-fp8", 6.58, 2.37e-5),
    ("b200-sxm-180gb", "bf16", 3.93, 1.80e-5),
    ("b200-sxm-180gb", "bf16+kv-fp8", 3.96, 9.72e-6),
]
"""vllm.ai/blog, 2026-04-22: milliseconds a token of Llama 3.1 8B without context on one GPU, and
more of them per token of context."""


@pytest.mark.parametrize(("gpu", "precision", "alone_ms", "per_token_ms"), PUBLISHED)
def test_what_vllm_published_of_0_19_comes_out(
    gpu: str, precision: str, alone_ms: float, per_token_ms: float
) -> None:
    """No row of the fit is of this version with a dense model. Start values were taken from some of
    these figures: the FP8 cache on the H100, and 16 bits alone on the B200; not from 16 bits on the
    H100, nor from what context adds on the B200."""
    c, context = (
        array(model="llama-3.1-8b", gpu=gpu, precision=precision, engine="vllm-0.19"),
        100_000,
    )
    alone, full = (1e3 * step_seconds(c, 0, 0, 1, 0, tokens) for tokens in (0, context))
    assert alone == pytest.approx(alone_ms, rel=0.05)
    assert (full - alone) / context == pytest.approx(per_token_ms, rel=0.17)


def test_only_the_closed_loop_of_nim_has_a_serial_turnaround() -> None:
    assert client_turnaround_s(deployment()) == pytest.approx(1.6e-3)
    assert client_turnaround_s(deployment(engine="tensorrt-llm-0.15")) == 0.0


def test_an_unmeasured_card_takes_after_its_measured_sibling() -> None:
    """H100 PCIe is slower than the SXM per datasheet FLOP, as the other H100 card of 400 W is."""
    shares = {}
    for gpu in ("h100-pcie-80gb", "h100-nvl-94gb", "h100-sxm-80gb"):
        d = deployment(gpu=gpu)
        shares[gpu] = resolve(
            shipped(), d.model, d.gpu, d.precision, d.parallelism, "nim-2024"
        ).matrices.compute
    # 0.46 and 0.48 W per TFLOP/s
    assert shares["h100-pcie-80gb"] == pytest.approx(shares["h100-nvl-94gb"], rel=0.05)
    assert shares["h100-nvl-94gb"] < shares["h100-sxm-80gb"]
    assert marks(deployment(gpu="h100-pcie-80gb")) == (
        "h100-pcie-80gb: no measurements; efficiencies transferred from h100-nvl-94gb",
    )
    for sibling, measured in shipped()["siblings"].items():
        assert find_gpu(sibling).arch == find_gpu(measured).arch
        assert measured in shipped()["gpus"]
        assert sibling not in shipped()["gpus"]


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


def test_a_slow_host_shows_in_small_models_and_in_what_the_gpu_waits_for() -> None:
    """One speed for one host: AccelMark's RTX 5090 takes 8.1 ms a step of 32 for 0.5B and 10.2 ms a
    token for 8B."""

    def steps(model: str, engine: str, speed: float) -> tuple[float, float, StepModel]:
        d = deployment_of(
            model=model, gpu="rtx-5090", precision="bf16", tp=1, engine=engine, host_speed=speed
        )
        made = step_model(d)
        return made.seconds(0, 0, 1, 0, 400), made.seconds(0, 0, 32, 0, 32 * 200), made

    (one, many, quick), (slow_one, slow_many, slow) = (
        steps("qwen2.5-0.5b", "vllm-0.19", speed) for speed in (1.0, 0.25)
    )
    assert one < 2.1e-3
    assert 4.5e-3 < slow_one < 6e-3
    assert many < 3e-3
    assert 7e-3 < slow_many < 9e-3
    assert slow.frontend_s == pytest.approx(4 * quick.frontend_s)
    assert slow.stream_s == pytest.approx(4 * quick.stream_s)
    large, slow_large = (steps("llama-3-8b", "vllm-0.19", speed)[0] for speed in (1.0, 0.25))
    assert slow_large == large
    serial, slow_serial = (steps("llama-3-8b", "vllm-0.12", speed)[0] for speed in (1.0, 0.25))
    assert slow_serial - serial == pytest.approx(
        3 * shipped()["engines"]["vllm-0.12"]["schedule_s"]
    )
    assert steps("llama-3-8b", "vllm-0.19", 2.0)[0] == large
    d = deployment_of(
        model="llama-3-8b", gpu="h100", precision="bf16", tp=1, engine="vllm", host_speed=0.25
    )
    assert "cores of the host at 0.25 of the measured hosts' speed, as stated" in marks(d)


def test_graphs_that_end_before_attention_leave_a_least_time_per_layer() -> None:
    """vLLM until 0.11: what a small mixture of experts takes at one client is 48 launches, whatever
    the GPU."""
    for engine, piecewise in (
        ("vllm-0.8", True),
        ("vllm-0.10", True),
        ("vllm-0.12", False),
        ("vllm", False),
    ):
        for gpu in ("h100-sxm-80gb", "b200-sxm-180gb"):
            d = deployment(model="qwen3-30b-a3b", gpu=gpu, precision="bf16", engine=engine)
            assert d.knobs.piecewise_graphs == piecewise
            alone = step_model(d).seconds(0, 0, 1, 0, 0)
            assert alone == pytest.approx(48 * 190e-6) if piecewise else alone < 7e-3
    large = deployment(
        model="qwen2.5-32b", gpu="h100-sxm-80gb", precision="bf16", engine="vllm-0.10"
    )
    whole = replace(large, knobs=replace(large.knobs, piecewise_graphs=False))
    assert step_model(large).seconds(0, 0, 1, 0, 0) == step_model(whole).seconds(0, 0, 1, 0, 0)


@pytest.mark.parametrize("speed", [0.0, 0.09, 3.1, -1.0])
def test_a_speed_that_no_core_has_is_refused(speed: float) -> None:
    with pytest.raises(InputError, match=r"is not a speed of cores; write 0\.1 to 3"):
        deployment_of(model="llama-3-8b", gpu="h100", tp=1, engine="vllm", host_speed=speed)


def test_no_card_reaches_more_of_its_datasheet_than_the_best_measured_one() -> None:
    for gpu in gpus():
        terms = resolve(
            shipped(),
            find_model("llama-3.1-8b"),
            gpu,
            find_precision("bf16"),
            Parallelism(),
            "nim-2024",
        )
        assert terms.matrices.compute_16 <= MOST["compute"]
        assert terms.matrices.memory_16 <= MOST["memory"]


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


def test_only_tensorrt_llm_saves_what_it_spends_on_handing_out_tokens_when_it_is_called_from_its_own_process() -> (
    None
):
    """Served and in its own process it was measured apart: some 6 µs a sequence and step of a dense
    model, less where experts hide it."""
    saved = {}
    for engine, model in (
        ("tensorrt-llm", "llama-3.1-8b"),
        ("tensorrt-llm", "qwen3-30b-a3b"),
        ("vllm", "llama-3.1-8b"),
    ):
        served = step_model(deployment(engine=engine, model=model))
        saved[engine, model] = (
            served.seconds(0, 0, 256, 0, 0) - served.in_process.seconds(0, 0, 256, 0, 0)
        ) / 256
    assert 4e-6 < saved["tensorrt-llm", "llama-3.1-8b"] < 9e-6
    assert 0 < saved["tensorrt-llm", "qwen3-30b-a3b"] < saved["tensorrt-llm", "llama-3.1-8b"]
    assert saved["vllm", "llama-3.1-8b"] == 0


def test_the_noise_of_a_run_is_the_scatter_between_seeds_and_shrinks_with_its_length() -> None:
    asked = {"model": "llama-3-8b", "isl": 500, "osl": 50, "engine": "nim-2024", "request_rate": 8}
    runs = [api.simulate(**asked, seed=seed, requests=2000) for seed in range(12)]
    means = np.array([run.summary.ttft_ms.mean for run in runs])
    told = np.mean([run_noise(run.requests)["ttft_ms"] for run in runs])
    assert told == pytest.approx(means.std(ddof=1) / means.mean(), rel=0.6)
    long = api.simulate(**asked, seed=3, requests=20_000)
    assert run_noise(long.requests)["ttft_ms"] < 0.6 * told
    assert run_noise(api.simulate(**asked, requests=20).requests) == {}


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


def test_a_lower_power_limit_lowers_the_efficiencies() -> None:
    """Half the watts on the same chip: arithmetic loses about a fifth (the cube root of power),
    reading less; watts unknown, nothing."""
    d = deployment(gpu="h100-sxm-80gb")

    def efficiencies(watts: float | None) -> tuple[float, float]:
        gpu = replace(d.gpu, tdp_w=watts)
        t = resolve(shipped(), d.model, gpu, d.precision, d.parallelism, "nim-2024")
        return t.matrices.compute, t.matrices.memory

    whole, half, unknown = efficiencies(700.0), efficiencies(350.0), efficiencies(None)
    assert 0.7 < half[0] / whole[0] < half[1] / whole[1] < 1.0
    generation = shipped()["architectures"]["*"] | shipped()["architectures"]["Hopper"]
    plain = efficiencies(generation["watts_compute"] * d.gpu.fp16_tflops)
    assert unknown[0] == pytest.approx(plain[0])


def test_kv_heads_are_not_split_below_one() -> None:
    """Llama 3 8B has 8 KV heads: TP 16 reads as much per GPU as TP 8."""
    d = deployment(precision="fp16", engine="tensorrt-llm-0.15")
    values = {}
    for tp in (4, 8, 16):
        t = resolve(shipped(), d.model, d.gpu, d.precision, Parallelism(tp=tp), "tensorrt-llm-0.15")
        values[tp] = coefficients(t, d.model, d.gpu, d.precision, Parallelism(tp=tp))[at.CONTEXT]
    assert values[4] == pytest.approx(2 * values[8])
    assert values[16] == pytest.approx(values[8])


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


# LoRA adapters and image encoders: their arithmetic against counts by hand, their limits, and what
# others measured.


def deployed(model: str = "llama-2-7b", tp: int = 1, lora: str | None = None) -> Deployment:
    return deployment_of(model=model, gpu="h100", precision="fp16", tp=tp, engine="vllm", lora=lora)


def pictured(text: str, prompt_tokens: float = 2000.0) -> Deployment:
    images = replace(parse_images(text, "qwen3.6-27b"), prompt_tokens=prompt_tokens)
    return replace(deployed("qwen3.6-27b"), images=images)


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


def test_more_adapters_and_more_sequences_never_take_less() -> None:
    steps = [
        step_model(deployed(lora=lora))
        for lora in (None, "rank=8 adapters=1", "rank=8 adapters=16", "rank=64 adapters=16")
    ]
    for batch in (1, 8, 200):
        taken = [step.decode_ps(batch) for step in steps]
        assert taken == sorted(taken)
        assert len(set(taken)) == len(taken) or batch == 1  # One sequence reads one adapter
    many = steps[2].coefficients
    used = [
        many[at.ADAPTERS] * (1 - many[at.ADAPTER_MISS] ** batch) for batch in (0, 1, 16, 10_000)
    ]
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


@pytest.mark.parametrize(
    "text",
    ["16", "rank=16 adapters=0", "rank=x", "adapters=4", "rank=16 adapters=4 on=mlp", "rank=9999"],
)
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
    most = {
        "adapters, fitted": 0.04,
        "adapters, throughput kept": 0.25,
        "encoders, FasterTransformer": 0.2,
        "encoders, ninfer": 0.25,
    }
    assert all(means[group] <= limit for group, limit in most.items())


# An instance of several stages, held against what a pipeline must do in the limits.


def staged(
    model: str = "llama-3.1-70b",
    tp: int = 2,
    pp: int = 1,
    gpu: str = "h100-sxm-80gb",
    precision: str = "fp8",
) -> Deployment:
    d = api.deployment_of(
        model=model, gpu=gpu, precision=precision, tp=1, engine="tensorrt-llm-0.15"
    )
    return replace(d, parallelism=Parallelism(tp=tp, pp=pp))


def test_one_stage_is_the_plain_instance() -> None:
    d = staged()
    found = estimated_instance(d, gpus_per_system=8, prompt_tokens=1000)
    assert found.memory == memory_plan(d)
    assert found.knobs == d.knobs
    np.testing.assert_array_equal(found.step.coefficients, step_model(d).coefficients)


def test_a_token_takes_as_long_as_through_all_layers_and_a_full_pipeline_carries_more() -> None:
    """Alone, a pipeline is no faster than one stage with all layers; with pp times the sequences a
    round is hardly longer."""
    one, two = (
        estimated_instance(
            staged(tp=4, pp=pp), gpus_per_system=8, prompt_tokens=1000
        ).step.coefficients
        for pp in (1, 2)
    )
    alone = step_seconds(one, 0, 0, 1, 0, 1000)
    assert step_seconds(two, 0, 0, 1, 0, 1000) == pytest.approx(alone, rel=0.1)
    assert step_seconds(two, 0, 0, 1, 0, 1000) > alone
    both = batch_seconds(two, 128, 128) / batch_seconds(one, 64, 64)
    assert both == pytest.approx(1.0, rel=0.1)


def test_a_lone_prompt_goes_through_every_stage_one_after_another() -> None:
    one, four = (
        estimated_instance(staged(tp=2, pp=pp), gpus_per_system=8, prompt_tokens=8000)
        for pp in (1, 4)
    )
    first, fourth = (
        p.step.frontend_s + step_seconds(p.step.coefficients, 8000, 1, 0, 8000 * 8000, 0)
        for p in (one, four)
    )
    assert fourth == pytest.approx(first, rel=0.1)


def test_stages_over_the_network_take_longer_than_inside_a_system() -> None:
    inside, across = (
        estimated_instance(
            staged(tp=4, pp=2), gpus_per_system=n, prompt_tokens=100
        ).step.coefficients
        for n in (8, 4)
    )
    assert batch_seconds(across, 64, 64) > batch_seconds(inside, 64, 64)
    assert across[HOST_STEP] == inside[HOST_STEP]


def test_405b_in_16_bits_needs_two_systems_of_eight() -> None:
    whole = staged("llama-3.1-405b", tp=8, precision="fp16")
    with pytest.raises(DoesNotFit, match="do not fit 8 × 80 GB"):
        estimated_instance(whole, gpus_per_system=8, prompt_tokens=1000)
    halves = estimated_instance(
        replace(whole, parallelism=Parallelism(tp=8, pp=2)), gpus_per_system=8, prompt_tokens=1000
    )
    assert halves.memory.tokens > 10_000
    assert halves.memory.weight_bytes * 16 == pytest.approx(2 * 405.9e9, rel=0.02)


def test_what_a_front_end_costs_is_that_of_its_measured_class_of_core_scaled_to_the_host() -> None:
    """One API server of vLLM was measured on EPYC 9005, whose cores are 1.25 times as fast as those
    of the shipped terms' hosts."""
    measured, speed = find_engine("vllm").front_end, host_cpus()["epyc-9005"].speed
    assert measured is not None
    one = step_model(deployment(engine="vllm"))
    assert one.enter_s == pytest.approx(1e-6 * measured.enter_us * speed)
    assert one.stream_step_s == pytest.approx(1e-6 * measured.step_us * speed)
    d = deployment(engine="vllm")
    four = step_model(replace(d, knobs=replace(d.knobs, front_ends=4)))
    assert (four.enter_s, four.enter_token_s, four.stream_step_s) == pytest.approx(
        (one.enter_s / 4, one.enter_token_s / 4, one.stream_step_s)
    )
    slow = step_model(replace(d, gpu=replace(d.gpu, host_speed=0.5)))
    assert (slow.enter_s, slow.stream_step_s) == pytest.approx(
        (2 * one.enter_s, 2 * one.stream_step_s)
    )
    wide = step_model(replace(d, parallelism=Parallelism(dp=8)))
    assert (wide.enter_s, wide.stream_step_s) == pytest.approx(
        (8 * one.enter_s, 8 * one.stream_step_s)
    )
    unknown = step_model(deployment(engine="sglang"))
    assert unknown.enter_s == unknown.enter_token_s == unknown.stream_step_s == 0.0


def test_every_measured_front_end_names_a_class_of_the_catalog() -> None:
    for engine in engines():
        assert engine.front_end is None or (
            engine.front_end.cpu in host_cpus()
            and engine.front_end.date
            and engine.front_end.source
        )


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
