"""Steps from operations that were timed alone: a step worked by hand, laws, and what is refused."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from tonnage.api.question.deployment import deployment_of
from tonnage.errors import InputError
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
from tonnage.spec.deployment import Deployment, Parallelism

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
