from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.deployments import array, deployment
from tests.perf.terms_cases import deployed, pictured
from tonnage import api
from tonnage.errors import InputError
from tonnage.perf import step_terms as at
from tonnage.perf.images_and_adapters import encoded_seconds
from tonnage.perf.matrices import MOST, matrix_rate
from tonnage.perf.measured_steps import reduction
from tonnage.perf.prediction_error import run_noise
from tonnage.perf.ranges import marks
from tonnage.perf.step import step_seconds
from tonnage.perf.terms import (
    client_turnaround_s,
    coefficients,
    drafting,
    encoder_seconds,
    resolve,
    step_model,
)
from tonnage.perf.terms_file import shipped
from tonnage.spec.catalog import engines, find_encoder, find_engine, find_gpu, find_model, gpus
from tonnage.spec.deployment import Parallelism, parse_adapters, parse_speculation
from tonnage.spec.hardware import Gpu
from tonnage.spec.model import Model
from tonnage.spec.precision import PRECISIONS, find_precision
from tonnage.spec.step_times import StepSource


def test_every_gpu_precision_and_engine_of_the_catalog_has_a_price() -> None:
    """Every third engine of each GPU and precision, by turns."""
    for place, gpu in enumerate(gpus()):
        for turn, name in enumerate((*PRECISIONS, "fp8+2:4", "awq+kv-int8"), place):
            if not gpu.supports(find_precision(name)):
                continue
            for engine in list(engines())[turn % 3 :: 3]:
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
    assert (full - alone) / context == pytest.approx(per_token_ms, rel=0.18)


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


SMALL = {"layers": 3, "hidden": 1000, "heads": 10, "kv_heads": 2, "head_dim": 100}


@pytest.mark.parametrize(
    ("text", "passes", "layers", "linear", "head"),
    [
        # a layer of 2.4 M + 9 M weights behind a projection of 2 M
        ("eagle k=3 acceptance=0.7", 3, 1, 1 + 2 / 11.4, 1.0),
        ("mtp k=2 acceptance=0.7", 2, 1, 1 + 2 / 11.4, 1.0),
        ("draft=llama-3.2-1b k=2 acceptance=0.7", 2, 16, 1.0, 1.0),
        # for each of three guesses a block of 1 M and a head of 5 M, as large as the model's
        ("medusa k=3 acceptance=0.7", 1, 3, 0.0, 3 * 6 / 5),
        # two matrices on twice the width, and a head
        ("redrafter k=2 acceptance=0.7", 2, 3, 0.0, 9 / 5),
        ("ngram k=4 acceptance=0.7", 0, 3, 0.0, 0.0),
    ],
)
def test_a_pass_of_each_drafter_by_hand(
    text: str, passes: int, layers: int, linear: float, head: float
) -> None:
    """Out of coefficients that are all 1."""
    d = deployment()
    model = replace(d.model, ffn=3000, vocab=5000, **SMALL)
    estimated: list[Model] = []

    def ones(of: Model) -> list[float]:
        estimated.append(of)
        return [1.0] * at.COEFFICIENTS

    speculation = parse_speculation(text)
    found_drafting = drafting(replace(d, model=model, speculation=speculation), ones)
    assert found_drafting is not None
    expected = np.full(at.COEFFICIENTS, 1.0 if linear else 0.0)
    expected[[at.LINEAR_FLOPS, at.LINEAR_BYTES]] = linear
    expected[[at.HEAD_FLOPS, at.HEAD_BYTES]] = head
    expected[at.NORM] = 1.0
    assert found_drafting.coefficients == pytest.approx(expected, rel=1e-12)
    assert (found_drafting.passes, found_drafting.acceptance) == (passes, 0.7)
    assert found_drafting.tokens == speculation.tokens  # type: ignore[union-attr]
    assert [of.layers for of in estimated] == [layers]
    assert drafting(d, ones) is None


@pytest.mark.parametrize("engine", ["vllm", "vllm-0.12"])
def test_a_draft_model_is_split_as_it_can_be_and_leaves_the_host_to_the_step(engine: str) -> None:
    """A dense one next to experts on two ranks of two GPUs has two GPUs; experts have all four.
    What the host does once a step, sequence and prefill is done once."""
    target = deployment(model="mixtral-8x7b", tp=2, engine=engine)
    split = Parallelism(tp=2, dp=2, ep=4)
    for name, placed in (("llama-3.2-1b", Parallelism(tp=2)), ("mixtral-8x7b", split)):
        speculation = parse_speculation(f"draft={name} k=2 acceptance=0.7")
        whole = step_model(replace(target, parallelism=split, speculation=speculation)).drafting
        alone = replace(target, model=find_model(name), parallelism=placed)
        expected = step_model(alone).coefficients
        terms = shipped()["engines"][find_engine(engine).coefficients]
        scheduled = 0.0 if target.knobs.overlap_schedule else terms["schedule_s"]
        expected[at.HOST_STEP] -= terms["step_s"] + scheduled
        expected[at.HOST_SEQUENCE] -= terms["sequence_s"]
        expected[[at.EAGER, at.LAUNCHES]] = 0.0
        assert whole is not None
        assert whole.coefficients == pytest.approx(expected, rel=1e-9, abs=1e-18)


def test_an_encoder_by_hand() -> None:
    """Two sequences of 4 and of 6 patches: 10 tokens, and 4² + 6² pairs; the merger takes what its
    weights add to those of the layers, once for four patches."""
    encoder = replace(
        find_encoder("qwen3.6-27b"), layers=2, hidden=10, heads=2, ffn=30, merge=2, mergers=3
    )
    gates = 3 if encoder.gated else 2
    layers = 2 * (4 * 10 * 10 + gates * 10 * 30)
    merger = 3 * 40 * (40 + 100) / 4
    c = [0.0] * at.COEFFICIENTS
    c[at.NORM], c[at.LINEAR_FLOPS], c[at.ATTENTION], c[at.HOST_STEP] = 1.0, 1e-6, 1e-9, 1e-4
    assert encoded_seconds(c, encoder, 100, (4, 6)) == pytest.approx(
        10e-6 * (1 + merger / layers) + 52e-9 + 1e-4, rel=1e-12
    )


def test_an_encoder_runs_in_16_bits_on_the_gpus_of_a_rank_and_without_the_hosts_step() -> None:
    plain, encoder = deployed("qwen3.6-27b"), find_encoder("qwen3.6-27b")
    patches = (4096,) * 40
    seconds = encoder_seconds(plain, encoder, patches)
    narrow = replace(plain, precision=find_precision("fp8"))
    ranks = replace(plain, parallelism=Parallelism(dp=4))
    assert encoder_seconds(narrow, encoder, patches) == seconds
    assert encoder_seconds(ranks, encoder, patches) == seconds
    wide = replace(plain, parallelism=Parallelism(tp=2))
    slow = replace(plain, gpu=replace(plain.gpu, clock=0.5))
    halved, doubled = (encoder_seconds(d, encoder, patches) for d in (wide, slow))
    assert halved < 0.8 * seconds < 1.2 * seconds < doubled < 2 * seconds
    # few patches take what launching their layers one by one does
    least = encoder.layers * shipped()["engines"]["vllm"]["launch_layer_s"]
    assert encoder_seconds(plain, encoder, (16,)) == pytest.approx(least)


def test_clocks_slow_arithmetic_alone() -> None:
    d = deployment(model="deepseek-v4-pro", gpu="b200", precision="fp8", tp=8, engine="vllm")
    free = step_model(d).coefficients
    half = step_model(replace(d, gpu=replace(d.gpu, clock=0.5))).coefficients
    ratios = {
        at.TERMS[place].name: half[place] / free[place] for place in np.flatnonzero(half != free)
    }
    computed = ("linear_flops", "expert_flops", "head_flops", "attention", "sparse", "sparse_most")
    assert ratios == pytest.approx(dict.fromkeys((*computed, "scan"), 2.0))


def test_formats_of_32_bits_attend_at_their_own_rate() -> None:
    """The same coefficients as on a GPU whose 16 bits are as slow, but for the matrices' own."""
    d = deployment(gpu="a100-sxm-80gb", precision="tf32", engine="vllm")
    rate = matrix_rate(d.gpu, d.precision) / 1e12
    slow = replace(d.gpu, fp16_tflops=rate)
    assert rate == d.gpu.tf32_tflops
    terms = resolve(shipped(), d.model, d.gpu, d.precision, d.parallelism, "vllm")
    one, other = (
        coefficients(terms, d.model, gpu, d.precision, d.parallelism) for gpu in (d.gpu, slow)
    )
    assert one == other
    assert one[at.HEAD_FLOPS] == pytest.approx(
        2 * d.model.head_parameters / (rate * 1e12 * terms.matrices.compute_16)
    )


@pytest.mark.parametrize(
    ("split", "what", "places"),
    [
        (Parallelism(), {}, ()),
        (Parallelism(tp=2), {}, ("comm_step", "comm_token")),
        (Parallelism(dp=2), {"model": "mixtral-8x7b"}, ("comm_step", "comm_token", "expert_bytes")),
        (Parallelism(), {"model": "mixtral-8x7b"}, ("expert_bytes",)),
    ],
)
def test_what_a_split_adds_to_a_step(
    split: Parallelism, what: dict[str, Any], places: tuple[str, ...]
) -> None:
    c = step_model(replace(deployment(engine="vllm", **what), parallelism=split)).coefficients
    seen = {
        name for name in ("comm_step", "comm_token", "expert_bytes") if c[getattr(at, name.upper())]
    }
    assert seen == set(places)


def test_the_rate_of_experts_is_that_of_all_gpus_of_a_rank_by_hand() -> None:
    d = deployment(model="mixtral-8x7b", precision="fp8", engine="vllm")
    split = Parallelism(tp=2, dp=2, ep=1)
    terms = resolve(shipped(), d.model, d.gpu, d.precision, split, "vllm")
    c = coefficients(terms, d.model, d.gpu, d.precision, split)
    rate = 2 * d.gpu.fp8_tflops * 1e12 * terms.matrices.compute * terms.experts.compute  # type: ignore[operator]
    assert c[at.EXPERT_FLOPS] == pytest.approx(2 * 2 * 32 * 3 * 4096 * 14_336 / rate)
    reading = (
        d.gpu.memory_bandwidth_gb_s * 1e9 * min(1, terms.matrices.memory * terms.experts.memory)
    )
    assert c[at.EXPERT_BYTES] == pytest.approx(8 * 32 * 3 * 4096 * 14_336 / 4 / reading)


def test_step_times_from_elsewhere_keep_the_front_end_and_the_drafter_of_the_preset() -> None:
    """Steps alone are those of the table; what an engine hands out in its own process is not known
    of them."""
    fitted = replace(
        deployed(), speculation=parse_speculation("draft=llama-3.2-1b k=2 acceptance=0.7")
    )
    timed = replace(fitted, step_source=StepSource(name="kernels"))
    usual, other = step_model(fitted), step_model(timed)
    assert other.coefficients.tolist() == reduction(timed).coefficients.tolist()
    names = ("frontend_s", "stream_s", "enter_s", "enter_token_s", "stream_step_s")
    assert [getattr(other, name) for name in names] == [getattr(usual, name) for name in names]
    assert usual.frontend_s == shipped()["engines"]["vllm"]["frontend_s"]
    assert usual.enter_s > 0
    assert other.response_s == 0.0
    assert usual.drafting is not None
    assert other.drafting is not None
    assert other.drafting.coefficients.tolist() == usual.drafting.coefficients.tolist()
