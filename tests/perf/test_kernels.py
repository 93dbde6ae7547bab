"""Steps from operations that were timed alone: a step worked by hand, laws, and what is refused."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import NormalDist
from typing import Any

import pytest

from tests.strategies import coefficient_array
from tonnage.api.question.deployment import deployment_of
from tonnage.errors import InputError
from tonnage.perf import kernels as operations
from tonnage.perf.kernels import (
    WALK_FROM,
    Kernels,
    Step,
    _between,
    covers,
    ratio_to,
    timed_steps,
)
from tonnage.perf.measured_steps import reduction
from tonnage.perf.prediction_error import regime_of
from tonnage.perf.ranges import differs, marks, second_opinion
from tonnage.perf.residuals import shipped_residuals
from tonnage.perf.step import step_seconds
from tonnage.perf.terms import step_model
from tonnage.spec.catalog import find_model
from tonnage.spec.deployment import Deployment, Parallelism
from tonnage.spec.precision import find_precision

APART = ("gpt-oss-120b", "h200", "tensorrt-llm", 8, "mxfp4")
BANDWIDTH, RATE = 3.35e6, 989e6  # bytes and FLOP per µs of an H100


def of(
    model: str = "llama-3.1-8b",
    gpu: str = "h100",
    engine: str = "vllm",
    tp: int = 1,
    precision: str = "bf16",
    **more: object,
) -> Deployment:
    return deployment_of(model=model, gpu=gpu, precision=precision, tp=tp, engine=engine, **more)


def test_a_decode_step_worked_by_hand() -> None:
    """Llama 3.1 8B in 16 bits on an H100 in vLLM: eight sequences of 1,024 tokens, with the numbers
    of the file written out."""
    layers, hidden, inner, vocab = 32, 4096, 14336, 128256
    weights = layers * (hidden * (hidden + 2 * 1024) + hidden * hidden + 3 * hidden * inner)
    launches = sum(
        2 * layers * (3.2 + 0.2 * width / 1e3 + 0.2 * 8 / 1e3)
        for width in (hidden, (hidden + inner) / 2)
    )

    def joined(count: int) -> float:
        return float(
            ((2 * count / (BANDWIDTH * 0.88)) ** 3.1 + (2 * 8 * count / (RATE * 0.84)) ** 3.1)
            ** (1 / 3.1)
        )

    head = 3.2 + 0.2 * hidden / 1e3 + joined(vocab * hidden)
    kept = 8 * 1024 * 2 * 8 * 128 * 2
    attention = layers * (
        12.1 + 0.45 * math.log2(1 + 1024 / 256) + 1.43 * 8 * 32 / 1e3 + kept / (BANDWIDTH * 0.89)
    )
    gpu = launches + joined(weights) + head + attention + 2.4 * layers
    assert Kernels(of()).step_us(Step(0, 1, 8, 8 * 1024)) == pytest.approx(
        206 + 4.9 * 8 + 0.98 * gpu
    )


def test_an_all_reduce_and_a_layer_of_experts_worked_by_hand() -> None:
    """MiniMax M2.5 in FP8 at TP 4 on H200 in vLLM: two sums a layer of 64 tokens, and experts of
    which some are touched."""
    kernels, step = (
        Kernels(of("minimax-m2.5", "h200", tp=4, precision="fp8")),
        Step(0, 1, 64, 64 * 1024),
    )
    size = 2 * 3072 * 64
    link = 450e3
    ways = (
        3 * size / (link * 0.30),
        3.1 + 1.5 * size / (link * 0.33),
        52.2 + 1.5 * size / (link * 0.42),
    )
    assert kernels._sums(step) == pytest.approx(2 * 62 * (4.3 + 0.13 * 2 + min(ways)))
    bandwidth, rate = 4.8e6, 1979e6
    touched = 256 * (1 - (1 - 8 / 256) * (1 - 8 / 256) ** (0.85 * 63))
    rows, inner = 64 * 8, 1536 / 4
    read = 3 * touched * 3072 * inner / (bandwidth * 0.87)
    computed = 6 * 3072 * inner * max(touched * 2, rows + touched) / (rate * 0.33)
    moved = 4.3 * rows / 1e3 + 1.8 * 2 * rows * (2 * 3072 + 3 * inner) / bandwidth
    launched = 29 + 76 * touched / 1e3 + 1.1 * (3072 + inner) / 1e3
    assert kernels._routed(step) == pytest.approx(
        0.94 * (launched + moved + (read**1.4 + computed**1.4) ** (1 / 1.4))
    )


@pytest.mark.parametrize(
    ("model", "gpu", "engine", "tp", "precision"),
    [
        ("llama-3.3-70b", "b200", "tensorrt-llm", 4, "nvfp4"),
        ("deepseek-r1", "h200", "sglang", 8, "fp8"),
        ("glm-5", "b300", "sglang", 8, "nvfp4+experts"),
        ("gpt-oss-120b", "h100", "vllm", 2, "mxfp4"),
        ("deepseek-v4-pro", "b200", "vllm", 8, "mxfp4+rest-fp8"),
        ("qwen3.5-397b-a17b", "b200", "sglang", 8, "fp8"),
    ],
)
def test_more_work_takes_longer_and_the_array_repeats_it(
    model: str, gpu: str, engine: str, tp: int, precision: str
) -> None:
    deployment = of(model, gpu, engine, tp, precision)
    kernels = Kernels(deployment)
    decodes = [kernels.step_us(Step(0, 1, batch, batch * 2048)) for batch in (1, 4, 16, 64, 256)]
    contexts = [
        kernels.step_us(Step(0, 1, 16, 16 * context)) for context in (512, 2048, 8192, 65536)
    ]
    prompts = [kernels.step_us(Step(tokens, 1, 0, 0)) for tokens in (64, 512, 4096, 16384)]
    for times in (decodes, contexts, prompts):
        assert times == sorted(times)
        assert times[0] < times[-1]
    reduced = reduction(of(model, gpu, engine, tp, precision, step_model="kernels"))
    assert reduced.steps == len(timed_steps(deployment))
    assert reduced.decode_mape < 4
    assert reduced.prefill_mape < 12
    assert 1e6 * step_seconds(reduced.coefficients, 0, 0, 64, 0, 64 * 2048) == pytest.approx(
        decodes[3], rel=0.1
    )


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ({"gpu": "mi300x"}, "the GPU mi300x"),
        ({"engine": "nim"}, "the engine nim"),
        ({"precision": "awq"}, "the format awq"),
        ({"gpu": "l40s", "precision": "fp8"}, "the GPU l40s"),
        ({"model": "kimi-linear-48b-a3b", "tp": 2}, "the kind of layers kda"),
    ],
)
def test_what_was_not_timed_is_refused(what: dict[str, object], says: str) -> None:
    deployment = of(**what)
    assert not covers(deployment)
    with pytest.raises(
        InputError, match=rf"kernels has no operation times of {says}.*; choose .*fitted"
    ):
        timed_steps(deployment)


def test_step_models_that_differ_are_named_and_widen_the_interval() -> None:
    """gpt-oss in TensorRT-LLM on Hopper unpacks MXFP4; of MiniMax M2.5 in vLLM both step models say
    much the same."""
    alike = of("minimax-m2.5", "b200", tp=4, precision="fp8")
    assert 1 / 1.2 < second_opinion(alike) < 1.2
    assert differs(alike) == 1.0
    assert not any("step models differ" in mark for mark in marks(alike))
    dense = of()
    assert second_opinion(dense) == 1.0  # its own rows say more
    apart = of(*APART)
    ratio = second_opinion(apart)
    assert ratio == pytest.approx(ratio_to(step_model(apart).coefficients, apart))
    assert differs(apart) == max(ratio, 1 / ratio) > 1.2
    assert (
        f"two step models differ by {100 * (differs(apart) - 1):.0f} % here, fitted terms and"
        " kernels timed alone: measure" in marks(apart)
    )
    regime = regime_of(apart, isl=1000, osl=1000)
    assert regime.differs == differs(apart)
    table, alone = shipped_residuals(), replace(regime, differs=1.0)
    (low, high), (least, most) = (table.interval("itl_ms", 10.0, kind) for kind in (regime, alone))
    assert low < least < most < high
    assert table.interval("ttft_ms", 10.0, regime) == table.interval("ttft_ms", 10.0, alone)


def test_a_further_prompt_worked_by_hand() -> None:
    """Of Llama 3.1 8B: four operations for each pair of tokens, head and dimension, where a token
    sees half of its prompt, and what is read and written of queries, keys, values and results."""
    kernels = Kernels(of())
    (layers,) = kernels.model.by_kind
    one, two = (kernels._prefilled(layers.mixer, Step(n * 512, n, 0, 0)) for n in (1, 2))
    times = kernels._times("heads", kernels.gpu, kernels.engine, kernels.cache)
    operations = 4 * 32 * 128 * 512 * (512 + WALK_FROM) / 2
    moved = 512 * 2 * (32 + 8) * 2 * 128
    assert two - one == pytest.approx(
        operations / (RATE * times["prefill"]) + times["io"] * moved / BANDWIDTH, rel=1e-3
    )


def test_sparse_latent_attention_has_the_projections_of_latent_attention() -> None:
    """Two of the input, joined, one of the queries and one of the results: three products a layer,
    of 61 layers."""
    counts = {
        model: next(
            count
            for group, count, _ in Kernels(of(model, gpu="h200", tp=8, precision="fp8"))._products(
                Step(512, 1, 0, 0)
            )
            if group == "attention"
        )
        for model in ("deepseek-v3", "deepseek-v3.2")
    }
    assert counts == {"deepseek-v3": 3 * 61, "deepseek-v3.2": 3 * 61}


def test_ranks_send_their_tokens_to_the_same_experts() -> None:
    """Two ranks of 32 tokens on two GPUs each are 64 tokens for experts that are split over four."""
    joint = of("minimax-m2.5", "h200", tp=4, precision="fp8")
    ranks = replace(joint, parallelism=Parallelism(tp=2, dp=2))
    together = Kernels(joint)._routed(Step(0, 1, 64, 64 * 1024))
    assert Kernels(ranks)._routed(Step(0, 1, 32, 32 * 1024)) == pytest.approx(together)


@pytest.mark.parametrize(
    ("size", "time"),
    [(1, 5), (10, 5), (11, 5.2), (45, 12), (60, 15), (70, 25), (80, 35), (160, 70)],
)
def test_times_between_points_by_hand(size: float, time: float) -> None:
    """Constant below the first, in proportion beyond the last."""
    assert _between([[10, 5], [60, 15], [80, 35]], size) == pytest.approx(time)


BYTES, FLOPS, LINK = 1e6, 1e9, 1e5
"""Bytes, FLOP of 16 bits and bytes of a link per µs of ``small``; of 8 bits twice as many FLOP."""

ROUND = {
    "host": (
        "step_us sequence_us prefill_layer_us factor",
        {"vllm": (100, 2, 10, 0.5), "sglang-0.5.9": (100, 2, 10, 0.5)},
    ),
    "dense": (
        "floor_us depth_us memory compute norm row_ns passes fill error",
        {
            "h200 vllm bfloat16": (3, 2, 0.8, 0.5, 2, 5, 0.5, 64, 0),
            "b200 vllm bfloat16": (3, 2, 0.8, 0.5, 2, 5, 0.5, 64, 0),
            "h200 vllm fp8": (4, 1, 0.5, 0.25, 1, 0.2, 0.5, 64, 0),
            "h200 vllm fp8_block": (7, 1, 0.5, 0.25, 1, 2, 3, 0, 0),
            "h200 sglang bfloat16": (3, 2, 0.8, 0.5, 2, 5, 0.5, 64, 0),
            "h200 sglang fp8_block": (7, 1, 0.5, 0.25, 1, 2, 3, 0, 0),
        },
    ),
    "experts": (
        "floor_us each_ns depth_us memory compute norm tile passes row_ns error spread factor",
        {
            "h200 vllm fp8_block": (20, 500, 2, 0.5, 0.25, 1, 4, 3, 1000, 0, 0.5, 0.9),
            "h200 vllm w4a16_mxfp4": (20, 500, 2, 0.5, 0.25, 1, 4, 3, 1000, 0, 0.5, 0.9),
            "h200 sglang fp8_block": (20, 500, 2, 0.5, 0.25, 1, 4, 3, 1000, 0, 0.5, 0.9),
        },
    ),
    "heads": (
        "floor_us walk_us head_ns kv error prefill_floor_us prefill_walk_us prefill io",
        {
            "h200 vllm bfloat16": (7, 1.5, 20, 0.6, 0, 11, 4, 0.25, 1.5),
            "h200 vllm fp8": (9, 2.5, 30, 0.5, 0, 13, 5, 0.125, 2.5),
        },
    ),
    "latent": (
        "floor_us walk_us kv arithmetic norm error prefill",
        {
            "h200 trtllm bfloat16": (10, 3, 0.5, 0.25, 2, 0, 0.5),
            "h200 trtllm fp8": (11, 4, 0.6, 0.3, 1, 0, 0.4),
            "h200 sglang bfloat16": (12, 5, 0.7, 0.35, 1, 0, 0.3),
        },
    ),
    "modules": (
        "floor_us heads sequences both context context_heads bounded error",
        {
            "DSA h200 vllm A bfloat16": (40, 6, 3, 20, 90, 8, 2, 0),
            "DSA h200 vllm A fp8_block": (50, 7, 4, 30, 80, 9, 3, 0),
            "DSA h200 sglang A nvfp4": (60, 8, 5, 40, 70, 10, 4, 0),
            "MSA h200 vllm A nvfp4": (70, 9, 6, 50, 60, 11, 5, 0),
            "MSA h200 vllm A fp8_block": (80, 10, 7, 60, 50, 12, 6, 0),
        },
    ),
    "sums": (
        "floor_us step_us one_shot second_us two_shot large_us ring error",
        {
            "h200 vllm": (2, 1, 0.4, 6, 0.5, 10, 0.8, 0),
            "h200 sglang": (3, 1, 0.02, 6, 0.05, 1, 0.1, 0),
            "b200 trtllm": (3, 1, 0.02, 6, 0.05, 1, 0.09, 0),
        },
    ),
    "sent": ("", {"h200": [[1000, 5], [2000, 10]]}),
    "compressed": (
        "",
        {
            "CSA vllm": (78, 126, 0.25, 0.57),
            "CSA sglang": (140, 172, 0.25, 0.57),
            "HCA vllm": (54, 102, 0.19, 0.43),
        },
    ),
}
"""Times that are easy to add up by hand, in the places of ``kernels.json``."""

LAYERS = {
    "layer_us": 6,
    "expert_layer_us": 19,
    "compressed_layer_us": 53,
    "streams_us": 34,
    "streams_token_us": 0.5,
    "state_us": 7,
    "state_sequence_us": 1.5,
    "state_prefill_us": 22,
    "state_token_us": 0.25,
    "state_heads": 64,
}


@pytest.fixture
def by_round_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = {
        name: {"columns": columns.split(), "rows": rows} for name, (columns, rows) in ROUND.items()
    }
    monkeypatch.setattr(operations, "_file", lambda: {**tables, "layers": LAYERS})


ALONE = Parallelism()


def small(
    model: str = "llama-3.1-8b",
    precision: str = "bf16",
    engine: str = "vllm",
    *,
    split: Parallelism = ALONE,
    kv: str = "fp16",
    gpu: str = "h200",
    **sizes: object,
) -> Kernels:
    """Operations of a model of other sizes on a GPU of round rates."""
    d = of("llama-3.1-8b", gpu, engine)
    rates = {"fp16_tflops": 1000, "fp8_tflops": 2000, "memory_bandwidth_gb_s": 1000}
    return Kernels(
        replace(
            d,
            model=replace(find_model(model), **sizes),
            gpu=replace(d.gpu, link_gb_s=200, **rates),
            precision=find_precision(f"{precision}+kv-{kv}"),
            parallelism=split,
        )
    )


SIZES = {"hidden": 1000, "heads": 10, "kv_heads": 2, "head_dim": 100, "ffn": 3000, "vocab": 5000}
TWO = Parallelism(tp=2)
BOTH = Step(600, 3, 4, 4 * 768)
"""Three prompts of 200 tokens, and four decodes whose contexts are four times 256 with the 256
themselves: two doublings."""


@pytest.mark.parametrize("sequences", [7, 4])
@pytest.mark.usefixtures("by_round_numbers")
def test_a_whole_step_of_a_dense_model_by_hand(sequences: int) -> None:
    """Two layers of 10 heads of 100 on two GPUs, with prompts and without."""
    kernels, step = small(split=TWO, layers=2, **SIZES), BOTH
    prompts = sequences == 7
    if not prompts:
        step = Step(0, 3, 4, 4 * 768)
    tokens = 604 if prompts else 4
    # 2.4 M weights of attention and 9 M of the MLP in a layer, half of them on a GPU; four
    # products of a mean width of 750 and four of 1,250
    launches = 8 * (3 + 5e-3 * tokens) + 4 * 2 * 0.75 + 4 * 2 * 1.25
    moved = 4 * 0.5 * 2 * tokens * (750 + 1250) / BYTES
    weights = 11.4e6
    # no fewer than 64 rows are computed
    matrices = math.hypot(
        2 * weights / (0.8 * BYTES), 2 * max(tokens, 64) * weights / (0.5 * FLOPS)
    )
    head = 3 + 2 * 1.0 + math.hypot(5e6 / (0.8 * BYTES), 2 * sequences * 2.5e6 / (0.5 * FLOPS))
    size = 2000 * tokens
    message = min(size / (0.4 * LINK), 6 + size / (0.5 * LINK), 10 + size / (0.8 * LINK))
    sums = 4 * (2 + 1 + message)
    # one KV head a GPU: 400 bytes a token of context
    decoded = 7 + 1.5 * 2 + 20e-3 * 4 * 5 + 3072 * 400 / (0.6 * BYTES)
    # 200 tokens of a prompt see half of 456 tokens on average, 2,000 FLOP each
    prefilled = 11 + 4 * 0.2 + 3 * 200 * 228 * 2000 / (0.25 * FLOPS)
    # of 10 + 2 heads half, twice, of 200 bytes
    prefilled += 1.5 * 600 * 2 * 6 * 200 / BYTES
    layers = 2 * (decoded + 6 + (prefilled if prompts else 0))
    gpu = launches + moved + matrices + head + sums + layers
    host = 100 + 2 * sequences + (20 if prompts else 0)
    assert kernels.step_us(step) == pytest.approx(0.5 * gpu + host, rel=1e-12)


EXPERTS = {"experts": 16, "experts_per_token": 2, "dense_layers": 1, "dense_ffn": 4000}
RANKS = Parallelism(tp=2, dp=2, ep=2)


@pytest.mark.usefixtures("by_round_numbers")
def test_a_whole_step_of_experts_on_ranks_by_hand() -> None:
    """Two layers of 16 experts of which two are chosen, and one plain one, in FP8 on two ranks of
    two GPUs; one sequence a rank."""
    kernels = small(
        "mixtral-8x7b", "fp8", split=RANKS, layers=3, residual_streams=2, **EXPERTS, **SIZES
    )
    # attention: 2.4 M a layer in FP8, of static scales; plain MLP of 12 M; routers of 16,000
    weights = (3 * 2.4e6 + 12e6 + 2 * 16e3) / 2
    # six products of a mean width of 750, two of (1,000 + 2,000) / 2
    launches = 8 * (4 + 0.2e-3) + 6 * 0.75 + 2 * 1.5 + 0.5 * 2 * (6 * 750 + 2 * 1500) / BYTES
    matrices = weights / (0.5 * BYTES) + 2 * 64 * weights / (0.25 * 2 * FLOPS)
    head = 3 + 2 * 1.0 + math.hypot(5e6 / (0.8 * BYTES), 2 * 2.5e6 / (0.5 * FLOPS))
    # attention of all layers and the plain MLP are summed, experts are sent for
    size = 2000
    sums = 4 * (2 + 1 + size / (0.4 * LINK))
    decoded = 7 + 1.5 * 2 + 20e-3 * 5 + 768 * 400 / (0.6 * BYTES)
    layers = 3 * (decoded + 6 + 34 + 0.5)
    touched = 1 - 0.875**1.5  # of two tokens, the second of which is half like the first
    fullest = 8 * (
        touched + NormalDist().inv_cdf(1.625 / 2.25) * math.sqrt(touched * (1 - touched) * 2 / 16)
    )
    rows, width = 2 * 1.05, 1500
    routed = 20 + 0.5 * fullest + 2 * 2.5 + rows + 3 * 2 * rows * (2000 + 4500) / BYTES
    routed += 3 * fullest * 1000 * width / (0.5 * BYTES)
    routed += 6 * 1000 * width * max(4 * fullest, rows + 2 * fullest) / (0.25 * 2 * FLOPS)
    sent = 2 * 10 * 4000 / 2000  # two tokens of 1,000, there and back
    experts = 2 * (0.9 * routed + 19 + sent)
    gpu = launches + matrices + head + sums + layers + experts
    assert kernels.step_us(Step(0, 1, 1, 768)) == pytest.approx(0.5 * gpu + 102, rel=1e-12)


@pytest.mark.parametrize(("decodes", "copies"), [(1, 4.2), (100, 420)])
@pytest.mark.usefixtures("by_round_numbers")
def test_experts_compute_whole_tiles_and_no_more_of_them_than_there_are_by_hand(
    decodes: int, copies: float
) -> None:
    """Of two groups of two experts, all chosen: each GPU has two, and all copies of half of the
    tokens, 5 % more on the fullest."""
    sizes = {**EXPERTS, "experts": 4, "experts_per_token": 4, "dense_layers": 0}
    kernels = small(
        "mixtral-8x7b", "fp8", split=Parallelism(tp=2, ep=2), layers=3, **sizes, **SIZES
    )
    tile_rows = max(8, copies / 2 + 4) if decodes == 1 else copies / 2 + 4
    routed = 20 + 1 + 2 * 4 + copies / 2 + 3 * copies * (2000 + 9000) / BYTES
    routed += 3 * 2 * 3e6 / (0.5 * BYTES) + 6 * 3e6 * tile_rows / (0.25 * 2 * FLOPS)
    assert kernels._routed(Step(0, 1, decodes, decodes * 9)) == pytest.approx(
        0.9 * routed, rel=1e-12
    )
    assert kernels._sent(Step(0, 1, decodes, decodes * 9)) == 0.0
    assert (kernels.experts["bytes"], kernels.experts["rate"]) == (1.0, 2 * FLOPS)


def mixer_of(kernels: Kernels, kind: str) -> Any:
    return next(group.mixer for group in kernels.model.by_kind if group.mixer.kind == kind)


@pytest.mark.parametrize(
    ("model", "kind", "options", "step", "us"),
    [
        # a cache of 8 bits: 10 heads, each of its own: 1,000 bytes of keys and as many of values
        (
            "llama-3.1-8b",
            "full",
            {**SIZES, "kv_heads": 10, "kv": "fp8"},
            Step(0, 1, 2, 2 * 768),
            9 + 2.5 * 2 + 30e-3 * 2 * 10 + 2 * 768 * 2000 / (0.5 * BYTES),
        ),
        # eight KV heads of 64 in 16 bits are 2,048 bytes; a window keeps 128 tokens of 768, and of
        # a context of 100 all
        (
            "gpt-oss-20b",
            "sliding",
            {"precision": "mxfp4"},
            Step(0, 1, 2, 2 * 768),
            7 + 1.5 * 2 + 20e-3 * 2 * 64 + 2 * 128 * 2048 / (0.6 * BYTES),
        ),
        (
            "gpt-oss-20b",
            "sliding",
            {"precision": "mxfp4"},
            Step(0, 1, 2, 200),
            7 + 1.5 * math.log2(1 + 100 / 256) + 2.56 + 200 * 2048 / (0.6 * BYTES),
        ),
        # 512 + 64 elements, and for each of 128 heads 2 · (512 + 576) FLOP; two products of 3 µs
        (
            "deepseek-v3",
            "latent",
            {"precision": "fp8"},
            Step(0, 1, 4, 4 * 768),
            10
            + 3 * 2
            + math.hypot(3072 * 1152 / (0.5 * BYTES), 3072 * 2 * 128 * 1088 / (0.25 * FLOPS))
            + 6,
        ),
        # an 8-bit cache is half of it; SGLang unpacks it on Hopper, so that the other's stand
        (
            "deepseek-v3",
            "latent",
            {"precision": "fp8", "kv": "fp8", "engine": "sglang"},
            Step(0, 1, 4, 4 * 768),
            11 + 4 * 2 + 3072 * 576 / (0.6 * BYTES) + 3072 * 278_528 / (0.3 * FLOPS) + 6,
        ),
        (
            "deepseek-v3",
            "latent",
            {"precision": "fp8", "engine": "sglang"},
            Step(0, 1, 4, 4 * 768),
            12 + 5 * 2 + 3072 * 1152 / (0.7 * BYTES) + 3072 * 278_528 / (0.35 * FLOPS) + 6,
        ),
        # a state: 64 heads on one GPU
        (
            "qwen3.5-397b-a17b",
            "gated-delta",
            {"precision": "fp8"},
            Step(600, 3, 4, 9),
            7 + 1.5 * 4 + 22 + 0.25 * 600,
        ),
        ("qwen3.5-397b-a17b", "gated-delta", {"precision": "fp8"}, Step(0, 3, 4, 9), 13),
        ("qwen3.5-397b-a17b", "gated-delta", {"precision": "fp8"}, Step(600, 3, 0, 0), 172),
        (
            "qwen3.5-397b-a17b",
            "gated-delta",
            {"precision": "fp8", "split": TWO},
            Step(600, 3, 4, 9),
            7 + 0.75 * 4 + 22 + 0.125 * 600,
        ),
    ],
)
@pytest.mark.usefixtures("by_round_numbers")
def test_a_layer_of_each_kind_by_hand(
    model: str, kind: str, options: dict[str, Any], step: Step, us: float
) -> None:
    kernels = small(model, **{"precision": "bf16", **options})
    group = replace(kernels.model.by_kind[0], mixer=mixer_of(kernels, kind))
    assert kernels._mixing(group, step) == pytest.approx(us, rel=1e-12)


@pytest.mark.parametrize(
    ("model", "kind", "options", "us"),
    [
        # 64 heads of 64, two operations of key and of value; a window of 128 of all 228 tokens
        # that a token of a prompt sees on average
        (
            "gpt-oss-20b",
            "sliding",
            {"precision": "mxfp4"},
            11
            + 4 * 0.2
            + 600 * 128 * 4 * 64 * 64 / (0.25 * FLOPS)
            + 1.5 * 600 * 2 * 72 * 2 * 64 / BYTES,
        ),
        # expanded: 128 + 64 of keys and 128 of values
        (
            "deepseek-v3",
            "latent",
            {"precision": "fp8"},
            600 * 228 * 2 * 128 * 320 / (0.5 * FLOPS),
        ),
        # all pairs are scored by 64 heads of 128; and attended to, as the 2,048 best in absorbed
        # form would take longer
        (
            "deepseek-v3.2",
            "sparse-latent",
            {"precision": "fp8"},
            600 * 228 * (2 * 128 * 320 + 2 * 64 * 128) / (0.5 * FLOPS),
        ),
        # one entry of four tokens, of 128 heads of 512 that are key and value; the window of 128
        (
            "deepseek-v4-pro",
            "compressed",
            {"precision": "fp8", "first": 1},
            600 * (228 * (4 * 128 * 512 + 2 * 64 * 128) / 4 + 128 * 4 * 128 * 512) / (0.5 * FLOPS),
        ),
        (
            "deepseek-v4-pro",
            "compressed",
            {"precision": "fp8"},
            600 * (228 / 128 + 128) * 4 * 128 * 512 / (0.5 * FLOPS),
        ),
    ],
)
@pytest.mark.usefixtures("by_round_numbers")
def test_prompts_of_each_kind_by_hand(
    model: str, kind: str, options: dict[str, Any], us: float
) -> None:
    """Three prompts of 200 tokens, whose tokens see 228 others on average."""
    place = options.pop("first", 0)
    kernels = small(model, **options)
    mixer = [group.mixer for group in kernels.model.by_kind if group.mixer.kind == kind][place]
    assert kernels._prefilled(mixer, Step(600, 3, 0, 0)) == pytest.approx(us, rel=1e-12)


@pytest.mark.usefixtures("by_round_numbers")
def test_a_prompt_attends_to_no_more_than_its_layers_choose_by_hand() -> None:
    """MiniMax M3 chooses 16 blocks of 128 tokens; a prompt of 8,192 sees (8,192 + 256) / 2 tokens,
    which all are scored by 4 heads of 128."""
    kernels = small("minimax-m3", "fp8")
    mixer = mixer_of(kernels, "block-sparse")
    flop = 8192 * (2048 * 4 * 64 * 128 + 4224 * 2 * 4 * 128)
    assert kernels._prefilled(mixer, Step(8192, 1, 0, 0)) == pytest.approx(
        flop / (0.5 * FLOPS), rel=1e-12
    )


@pytest.mark.parametrize(
    ("place", "engine", "tp", "us"),
    [
        # 64 heads are 3/7 of the way from 16 to 128; of each 4 tokens 32 bytes of an index key, of
        # 128 an entry of 512 + 64 + 8 bytes
        (1, "vllm", 2, 78 + 48 * 3 / 7 + 53 + 4 * (0.25 + 0.32 * 3 / 7) + 3072 * 32 / BYTES),
        (0, "vllm", 2, 54 + 48 * 3 / 7 + 53 + 4 * (0.19 + 0.24 * 3 / 7) + 3072 * 4.5625 / BYTES),
        (1, "sglang", 8, 140 + 53 + 4 * 0.25 + 3072 * 32 / BYTES),
        (1, "vllm", 1, 126 + 53 + 4 * 0.57 + 3072 * 32 / BYTES),
    ],
)
@pytest.mark.usefixtures("by_round_numbers")
def test_decodes_of_compressed_layers_by_hand(place: int, engine: str, tp: int, us: float) -> None:
    kernels = small(
        "deepseek-v4-pro", "fp8", engine, split=Parallelism(tp=tp), kv="fp8", block_fp8=True
    )
    mixer = kernels.model.by_kind[place].mixer
    assert kernels._decoded(mixer, Step(0, 1, 4, 3072)) == pytest.approx(us, rel=1e-12)


def module(floor: float, heads: float, sequences: float, both: float, *rest: float) -> float:
    """Four sequences of 3,072 tokens in all and 32 heads; the fewer of 3,072 and 8,192 tokens are
    chosen."""
    context, context_heads, bounded = rest
    whole = floor + heads / 2 + sequences * 4 / 64 + both * 128 / 4096
    return whole + (context + context_heads / 2) * 3072e-6 + bounded * 0.03072 * math.sqrt(0.5)


@pytest.mark.parametrize(
    ("model", "precision", "engine", "tp", "us"),
    [
        ("deepseek-v3.2", "fp8", "vllm", 4, module(50, 7, 4, 30, 80, 9, 3)),
        ("deepseek-v3.2", "fp8+attention-fp16", "vllm", 4, module(40, 6, 3, 20, 90, 8, 2)),
        ("deepseek-v3.2", "fp8+attention-fp16:1/4", "vllm", 4, module(50, 7, 4, 30, 80, 9, 3)),
        ("deepseek-v3.2", "fp8+attention-fp16:3/4", "vllm", 4, module(40, 6, 3, 20, 90, 8, 2)),
        # the only row, of another format
        ("deepseek-v3.2", "fp8", "sglang", 4, module(60, 8, 5, 40, 70, 10, 4)),
        # of none in the format that of FP8 with a scale per block comes first
        ("minimax-m3", "fp8+attention-fp16", "vllm", 2, module(80, 10, 7, 60, 50, 12, 6)),
    ],
)
@pytest.mark.usefixtures("by_round_numbers")
def test_decodes_of_modules_that_were_timed_whole_by_hand(
    model: str, precision: str, engine: str, tp: int, us: float
) -> None:
    kernels = small(model, precision, engine, split=Parallelism(tp=tp))
    mixer = kernels.model.by_kind[-1].mixer
    assert kernels._decoded(mixer, Step(0, 1, 4, 3072)) == pytest.approx(us, rel=1e-12)
    # of 4 contexts of 2,048 and more no more is chosen
    long, longer = (kernels._decoded(mixer, Step(0, 1, 4, n)) for n in (8192, 8193))
    assert longer - long == pytest.approx(
        kernels._decoded(mixer, Step(0, 1, 4, 8194)) - longer, rel=1e-6
    )


@pytest.mark.usefixtures("by_round_numbers")
def test_a_module_that_was_timed_whole_brings_its_projections_by_hand() -> None:
    """DeepSeek V3.2: three plain MLPs of 18,432 and 58 shared experts of 2,048, and routers, are
    left of a step of decodes; with prompts the 201 M weights of each layer's attention come on
    top."""
    kernels = small("deepseek-v3.2", "fp8", split=Parallelism(tp=4))
    rest = 3 * 3 * 7168 * 18432 + 58 * (3 * 7168 * 2048 + 7168 * 256)

    def matrices(tokens: int, weights: float, products: list[tuple[int, float]]) -> float:
        launches = sum(
            count * (7 + width / 1e3 + 2e-3 * tokens + 3 * 2 * tokens * width / BYTES)
            for count, width in products
        )
        return (
            launches + weights / 4 / (0.5 * BYTES) + 2 * tokens * weights / 4 / (0.25 * 2 * FLOPS)
        )

    mlps = (2 * 3, (7168 + 18432 / 4) / 2)
    assert kernels._matrices(Step(0, 1, 8, 99)) == pytest.approx(matrices(8, rest, [mlps]))
    attention = (3 * 61, (7168 + 128 * 128 / 4) / 2)
    assert kernels._matrices(Step(8, 1, 0, 0)) == pytest.approx(
        matrices(8, rest + 61 * 201_064_448, [attention, mlps])
    )


@pytest.mark.parametrize(
    ("gpu", "engine", "message"), [("b200", "vllm", 8.4), ("h200", "sglang", 2.2)]
)
@pytest.mark.usefixtures("by_round_numbers")
def test_sums_of_four_gpus_by_hand(gpu: str, engine: str, message: float) -> None:
    """Three copies of 8,000 bytes take 12 µs in one shot; twice three quarters 6 + 2.4 in two, and
    1 + 1.2 around a ring, which counts from a tenth of the links on. vLLM's kernels on Blackwell
    are those of TensorRT-LLM."""
    kernels = small(engine=engine, gpu=gpu, split=Parallelism(tp=4), layers=2, **SIZES)
    assert kernels._sums(Step(0, 1, 4, 9)) == pytest.approx(4 * (3 + 1 * 2 + message))


def test_a_grid_of_steps_by_hand() -> None:
    """A context of 384 tokens: decodes of 128 tokens, up to 384 tokens of prompts in packs of up to
    8, and prompts among decodes of as many tokens, up to the context together."""
    expected = [(0, 1, 0, 2**power, 128 * 2**power) for power in range(12)]
    for prompt in (16, 32, 64, 128, 192, 256, 384):
        packs = [pack for pack in (1, 2, 4, 8) if prompt * pack <= 384]
        expected += [(prompt * pack, pack, 0, 0, 0) for pack in packs]
        if prompt <= 192:
            expected += [(prompt, 1, 0, batch, batch * prompt) for batch in (1, 8, 64, 512)]
    d = of()
    steps = timed_steps(replace(d, model=replace(d.model, max_context=384)))
    assert [
        (s.prefill_tokens, s.prefill_sequences, s.past_tokens, s.decode_sequences, s.context_tokens)
        for s in steps
    ] == expected
    kernels = Kernels(d)
    assert 1e6 * steps[0].seconds == pytest.approx(kernels.step_us(Step(0, 1, 1, 128)))
    assert 1e6 * steps[-1].seconds == pytest.approx(kernels.step_us(Step(384, 1, 0, 0)))
    # all twelve batches at eight contexts; no more than 32,768 tokens of prompts
    whole = timed_steps(d)
    assert len(whole) == 12 * 8 + (14 * 4 + 2 * 3 + 2) + 17 * 4
    assert sorted({s.prefill_tokens for s in whole})[-3:] == [16_384, 24_576, 32_768]
    assert max(s.context_tokens for s in whole) == 2048 * 65_536


@pytest.mark.usefixtures("by_round_numbers")
def test_what_is_no_module_of_an_engine_is_refused() -> None:
    kernels = small("minimax-m3", "fp8", "sglang", split=TWO, block_fp8=True)
    with pytest.raises(InputError, match="operation times of MSA on h200 in sglang; choose"):
        kernels._decoded(kernels.model.by_kind[-1].mixer, Step(0, 1, 4, 3072))


def test_two_step_models_are_compared_at_three_batches_of_2048_tokens() -> None:
    """Against an array whose steps all take a millisecond; the geometric mean."""
    d = of()
    times = [Kernels(d).step_us(Step(0, 1, batch, batch * 2048)) for batch in (1, 8, 64)]
    constant = coefficient_array(host_step=1e-3)
    assert ratio_to(constant, d) == pytest.approx(math.prod(times) ** (1 / 3) / 1000)
    short = replace(d, model=replace(d.model, max_context=1000))
    times = [Kernels(d).step_us(Step(0, 1, batch, batch * 1000)) for batch in (1, 8, 64)]
    assert ratio_to(constant, short) == pytest.approx(math.prod(times) ** (1 / 3) / 1000)
    assert operations.described(d) == "kernels timed alone on h100 (aisimulate 0.13)"
