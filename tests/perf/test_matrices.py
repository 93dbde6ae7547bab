"""Matrices in a format: the bytes that are read, the rates, and what unpacking costs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.perf.format_cases import coefficients, deployment
from tonnage.errors import DataError
from tonnage.perf import step_terms as at
from tonnage.perf.matrices import (
    MatrixTerms,
    add_matrices,
    format_mark,
    matrix_rate,
    matrix_terms,
    shares,
    unfitted_formats,
)
from tonnage.perf.memory import kv_bytes_per_token, weight_bytes
from tonnage.perf.step import batch_seconds, step_seconds
from tonnage.perf.terms import resolve, step_model
from tonnage.perf.terms_file import TermGroups, shipped
from tonnage.spec.catalog import find_gpu, find_model
from tonnage.spec.deployment import Parallelism
from tonnage.spec.precision import PRECISIONS, find_precision

NARROW = sorted(set(PRECISIONS) - {"fp16", "bf16"})

MEASURED = (
    "a100-sxm-80gb",
    "h100-sxm-80gb",
    "h200-sxm-141gb",
    "l40s",
    "b200-sxm-180gb",
    "b300-sxm-270gb",
)


def matrices(c: np.ndarray, tokens: int) -> float:
    """Seconds of the layers' matrices alone."""
    alone = np.zeros_like(c)
    alone[[at.LINEAR_FLOPS, at.LINEAR_BYTES]] = c[[at.LINEAR_FLOPS, at.LINEAR_BYTES]]
    alone[at.NORM] = c[at.NORM]
    return batch_seconds(alone, tokens, tokens)


def supported(gpu: str) -> list[str]:
    return [name for name in NARROW if find_gpu(gpu).supports(PRECISIONS[name])]


PAIRS = [(gpu, name) for gpu in MEASURED for name in supported(gpu)]


@pytest.mark.parametrize("gpu", MEASURED)
def test_formats_read_fewer_bytes_at_batch_1_and_multiply_at_their_own_rate_in_prompts(
    gpu: str,
) -> None:
    """Of matrices alone: no token costs the bytes, a billion the arithmetic, each at the share that
    the format reaches."""
    fp16, board = coefficients("fp16", gpu=gpu), find_gpu(gpu)
    for name in supported(gpu):
        own, precision = coefficients(name, gpu=gpu), board.executes(PRECISIONS[name])
        t = [
            resolve(
                shipped(),
                find_model("llama-3-70b"),
                board,
                PRECISIONS[one],
                Parallelism(tp=4),
                "vllm",
            )
            for one in ("fp16", name)
        ]
        read = precision.weight_bytes / 2 * t[0].matrices.memory / t[1].matrices.memory
        multiplied = (
            board.fp16_tflops
            * 1e12
            / matrix_rate(board, precision)
            * t[0].matrices.compute
            / t[1].matrices.compute
        )
        assert matrices(own, 0) / matrices(fp16, 0) == pytest.approx(read), name
        assert matrices(own, 10**9) / matrices(fp16, 10**9) == pytest.approx(
            multiplied, rel=1e-3
        ), name
        assert read < 0.75
        token = step_seconds(fp16, 0, 0, 1, 0, 1000) / step_seconds(own, 0, 0, 1, 0, 1000)
        prompt = step_seconds(fp16, 8000, 4, 0, 4 * 2000**2, 0) / step_seconds(
            own, 8000, 4, 0, 4 * 2000**2, 0
        )
        assert token > 1.15, name
        if precision.arithmetic == "fp16":
            assert prompt < 1.0, name
        elif not (name == "int8-sq" and gpu.startswith("b300")):
            assert prompt > (0.95 if PRECISIONS[name].unpacked else 1.0), name


@given(st.sampled_from(PAIRS), st.integers(1, 4096), st.integers(1, 4096))
def test_gains_of_unpacked_formats_fall_with_the_batch(
    pair: tuple[str, str], one: int, other: int
) -> None:
    gpu, name = pair
    fp16, own = coefficients("fp16", gpu=gpu), coefficients(name, gpu=gpu)
    if find_gpu(gpu).executes(PRECISIONS[name]).arithmetic != "fp16":
        return
    few, many = sorted((one, other))
    assert matrices(fp16, few) / matrices(own, few) >= matrices(fp16, many) / matrices(
        own, many
    ) * (1 - 1e-12)


@given(
    st.sampled_from(NARROW), st.sampled_from(["fp16", "fp8", "int8"]), st.sampled_from([1, 2, 4, 8])
)
def test_the_kv_format_acts_on_the_kv_cache_alone(name: str, kv: str, tp: int) -> None:
    own, other = (
        deployment(f"{name}+kv-{kind}", gpu="b200", tp=tp) for kind in (PRECISIONS[name].kv, kv)
    )
    assert weight_bytes(own) == weight_bytes(other)
    assert (
        kv_bytes_per_token(other) * 8
        == kv_bytes_per_token(own) * 8 * other.precision.kv_bits / own.precision.kv_bits
    )
    a, b = (step_model(d).coefficients for d in (own, other))
    assert [i for i in range(at.COEFFICIENTS) if a[i] != b[i]] in ([], [at.CONTEXT])
    assert (a[at.CONTEXT] < b[at.CONTEXT]) == (own.precision.kv_bits < other.precision.kv_bits)


def test_a_generation_may_have_shares_of_its_own() -> None:
    groups = {
        "nvfp4": {"compute": 0.5, "memory": 0.25},
        "nvfp4 Blackwell Ultra": {"compute": 0.1, "memory": 0.2},
    }
    b200, b300 = (shares(groups, PRECISIONS["nvfp4"], find_gpu(name)) for name in ("b200", "b300"))
    assert (b200.compute, b200.memory) == (0.5, 0.25)
    assert (b300.compute, b300.memory) == (0.1, 0.2)
    with pytest.raises(DataError, match="awq"):
        shares(groups, PRECISIONS["awq"], find_gpu("b200"))
    fitted = shares({}, PRECISIONS["fp8"], find_gpu("h100"))
    assert (fitted.compute, fitted.memory) == (1.0, 1.0)


FORMATS = {
    "2:4": {"compute": 0.7, "memory": 0.9},
    "gptq": {"compute": 0.88, "memory": 0.85},
    "int8-sq": {"compute": 0.9, "memory": 0.87},
    "mxfp4 unpacked": {"compute": 0.8, "memory": 0.7},
    "mxfp4": {"compute": 0.6, "memory": 0.5},
    "nvfp4": {"compute": 0.5, "memory": 0.25},
    "nvfp4 Hopper": {"compute": 0.4, "memory": 0.3},
}
MORE = {
    "compute": 0.9,
    "compute_16": 0.8,
    "compute_hopper": 0.95,
    "compute_hopper_nvfp4": 0.75,
    "compute_blocks": 0.85,
    "memory": 0.96,
    "memory_8": 0.97,
    "gelu": 3.0,
}


def reached(
    precision: str,
    *,
    engine: dict[str, float] = MORE,
    gpu: dict[str, Any] | None = None,
    block_fp8: bool = False,
) -> tuple[float, ...]:
    """Compute of the format, of 8 and of 16 bits; memory likewise; on a card of as many watts as
    its generation's efficiencies are for."""
    card = replace(
        find_gpu("h100"), fp16_tflops=1000.0, memory_bandwidth_gb_s=3500.0, **(gpu or {})
    )
    groups = TermGroups(
        gpu=card,
        shared={"power_compute": 0.5, "power_memory": 0.25, "norm": 1.6, "activation": 1.3},
        generation={
            "compute_8": 0.5,
            "compute_16": 0.6,
            "memory_8": 0.8,
            "memory_16": 0.7,
            "watts_compute": 0.7,
            "watts_memory": 0.2,
        },
        own={"compute": 0.9, "compute_16": 0.8, "memory": 1.1, "memory_8": 0.75},
        engine=engine,
        links={},
        formats=FORMATS,
    )
    model = replace(find_model("llama-3.1-8b"), block_fp8=block_fp8)
    t = matrix_terms(groups, model, card.executes(find_precision(precision)))
    assert (t.norm, t.activation, t.gelu) == (1.6, 1.3, engine.get("gelu", 2.0))
    return t.compute, t.compute_8, t.compute_16, t.memory, t.memory_8, t.memory_16


C8, C16, M8, M16 = 0.5 * 0.9, 0.6 * 0.9 * 0.8, 0.8 * 1.1 * 0.75, 0.7 * 1.1
"""What the card reaches in any engine."""
E8, E16 = C8 * 0.95 * 0.9, C16 * 0.95 * 0.9 * 0.8
R8, R16 = M8 * 0.96 * 0.97, M16 * 0.96


@pytest.mark.parametrize(
    ("precision", "what", "expected"),
    [
        ("fp16", {"engine": {}}, (C16, C8, C16, M16, M8, M16)),
        ("fp8", {"engine": {}}, (C8, C8, C16, M8, M8, M16)),
        ("fp16", {}, (E16, E8, E16, R16, R8, R16)),
        ("fp8", {}, (E8, E8, E16, R8, R8, R16)),
        # the Hopper kernels of a format go before those of the generation; FP4 starts from 8 bits
        ("nvfp4", {}, (C8 * 0.75 * 0.9 * 0.4, E8, E16, R8 * 0.3, R8, R16)),
        ("gptq", {}, (E16 * 0.88, E8, E16, R16 * 0.85, R8, R16)),
        ("mxfp4", {}, (E16 * 0.8, E8, E16, R16 * 0.7, R8, R16)),
        ("nvfp4-wo", {}, (E16 * 0.8, E8, E16, R16 * 0.7, R8, R16)),
        ("fp8+2:4", {}, (E8 * 0.7, E8, E16, R8 * 0.9, R8, R16)),
        ("int8-sq+2:4", {}, (E16 * 0.9 * 0.7, E8, E16, R16 * 0.87 * 0.9, R8, R16)),
        # scales by blocks slow what is multiplied in FP8
        ("fp8", {"block_fp8": True}, (E8 * 0.85, E8 * 0.85, E16, R8, R8, R16)),
        ("fp16", {"block_fp8": True}, (E16, E8 * 0.85, E16, R16, R8, R16)),
        ("fp8", {"block_fp8": True, "engine": {}}, (C8, C8, C16, M8, M8, M16)),
        # a quarter of the watts: half of the arithmetic, and the fourth root of a quarter of reading
        (
            "fp16",
            {"engine": {}, "gpu": {"tdp_w": 175.0}},
            (C16 / 2, C8 / 2, C16 / 2, M16 / 2**0.5, M8 / 2**0.5, M16 / 2**0.5),
        ),
        # of a Grace Hopper module its CPU takes 250 W
        (
            "fp16",
            {"engine": {}, "gpu": {"tdp_w": 425.0, "name": "gh200-x"}},
            (C16 / 2, C8 / 2, C16 / 2, M16 / 2**0.5, M8 / 2**0.5, M16 / 2**0.5),
        ),
        ("fp16", {"engine": {}, "gpu": {"tdp_w": None}}, (C16, C8, C16, M16, M8, M16)),
        # no more than the measured card that reaches most, before what an engine does to it
        (
            "fp16",
            {"gpu": {"tdp_w": 70_000.0}},
            (0.91 * E16 / C16, 0.91 * E8 / C8, 0.91 * E16 / C16, 0.912, 0.88464, 0.912),
        ),
    ],
)
def test_terms_of_matrices_by_hand(
    precision: str, what: dict[str, Any], expected: tuple[float, ...]
) -> None:
    assert reached(precision, **what) == pytest.approx(expected, rel=1e-12)


TERMS = MatrixTerms(
    compute=0.5,
    compute_8=0.4,
    compute_16=0.25,
    memory=0.8,
    memory_8=0.75,
    memory_16=0.6,
    norm=1.5,
    activation=2.0,
    gelu=3.0,
)
SIZES = {"layers": 3, "hidden": 1000, "heads": 10, "kv_heads": 2, "head_dim": 100}
ATTENTION, MLP, HEAD = 3 * 2.4e6, 3 * 9e6, 5e6
"""Weights of three layers with an MLP of 3,000, and of a vocabulary of 5,000."""

RATES = {"fp16_tflops": 1000.0, "fp8_tflops": 2000.0, "fp4_tflops": 4000.0}


def added(precision: str, *, gpu: dict[str, Any] | None = None, **sizes: Any) -> dict[str, float]:
    """Coefficients on two GPUs, without the norm and without activations."""
    c = [0.0] * at.COEFFICIENTS
    model = replace(
        find_model("llama-3.1-8b"), **{**SIZES, "ffn": 3000, "vocab": 5000, "name": "m", **sizes}
    )
    card = replace(
        find_gpu("b200"),
        memory_bandwidth_gb_s=1000.0,
        **{**RATES, "fp32_tflops": 100.0, **(gpu or {})},
    )
    add_matrices(c, TERMS, model, card, find_precision(precision), 2)
    return {at.TERMS[place].name: c[place] for place in range(len(c)) if c[place]}


@pytest.mark.parametrize(
    ("precision", "what", "flops_s", "bytes_s"),
    [
        ("fp16", {}, (ATTENTION + MLP) / 0.5e15, 2 * (ATTENTION + MLP) / 0.8e12),
        ("fp8", {}, (ATTENTION + MLP) / 1e15, (ATTENTION + MLP) / 0.8e12),
        ("fp8+2:4", {}, (ATTENTION + MLP) / 2e15, (0.5 + 2 / 16) * (ATTENTION + MLP) / 0.8e12),
        (
            "fp8+attention-fp16",
            {},
            MLP / 1e15 + ATTENTION / 0.25e15,
            MLP / 0.8e12 + 2 * ATTENTION / 0.6e12,
        ),
        (
            "nvfp4+attention-fp8:1/4",
            {},
            (MLP + ATTENTION * 3 / 4) / 2e15 + ATTENTION / 4 / 0.8e15,
            (MLP + ATTENTION * 3 / 4) * 4.5 / 8 / 0.8e12 + ATTENTION / 4 / 0.75e12,
        ),
        # multiplied in 16 bits, and as narrow as those of 8
        (
            "fp16+mlp-gptq",
            {},
            ATTENTION / 0.5e15 + MLP / 0.25e15,
            2 * ATTENTION / 0.8e12 + MLP * (4 + 20 / 128) / 8 / 0.75e12,
        ),
        # no FP8 units: what is narrow is multiplied in 16 bits
        (
            "fp16+mlp-fp8",
            {"gpu": {"fp8_tflops": None}},
            ATTENTION / 0.5e15 + MLP / 0.25e15,
            2 * ATTENTION / 0.8e12 + MLP / 0.75e12,
        ),
        ("fp32", {}, (ATTENTION + MLP) / 0.05e15, 4 * (ATTENTION + MLP) / 0.8e12),
        # a rate that nothing is known of is that of 16 bits
        (
            "fp32",
            {"gpu": {"fp32_tflops": None}},
            (ATTENTION + MLP) / 0.5e15,
            4 * (ATTENTION + MLP) / 0.8e12,
        ),
        # routed experts are elsewhere; three routers of 8 are not
        ("fp8", {"experts": 8}, (ATTENTION + 24e3) / 1e15, (ATTENTION + 24e3) / 0.8e12),
        (
            "nvfp4+experts",
            {"experts": 8, "shared_ffn": 100},
            (ATTENTION + 24e3 + 0.9e6) / 0.25e15,
            2 * (ATTENTION + 24e3 + 0.9e6) / 0.6e12,
        ),
    ],
)
def test_matrices_of_a_step_by_hand(
    precision: str, what: dict[str, Any], flops_s: float, bytes_s: float
) -> None:
    """Two operations for each weight of half of them; in the format's own rate, or next to it."""
    c = added(precision, **what)
    assert (c["linear_flops"], c["linear_bytes"]) == pytest.approx(
        (flops_s, bytes_s / 2), rel=1e-12, abs=0.0
    )
    assert c["norm"] == 1.5


@pytest.mark.parametrize(
    ("precision", "what", "elements", "head_bytes"),
    [
        # four passes of the width for each of six halves of layers; the heads' outputs, and six
        # passes of the inner width
        ("fp16", {}, 24_000 + (3000 + 6 * 9000) / 2, 2),
        ("fp8", {}, 24_000 + (3000 + 6 * 9000) / 2, 2),
        ("fp8", {"residual_streams": 4}, 96_000 + (3000 + 6 * 9000) / 2, 2),
        ("fp8", {"mlp_layers": 1}, 16_000 + (3000 + 6 * 3000) / 2, 2),
        ("fp16", {"gated": False}, 24_000 + (3000 + 5 * 9000) / 2, 2),
        ("fp8", {"gated": False}, 24_000 + (3000 + 9000) / 2, 2),
        ("fp8+head-fp8", {}, 24_000 + (3000 + 6 * 9000) / 2, 1),
        ("fp32", {}, 2 * (24_000 + (3000 + 6 * 9000) / 2), 4),
    ],
)
def test_activations_and_head_of_a_step_by_hand(
    precision: str, what: dict[str, Any], elements: float, head_bytes: float
) -> None:
    """Twice as often, in two bytes each; the head at what 16 bits reach."""
    c = added(precision, **what)
    assert c["activation"] == pytest.approx(2 * 2 * elements / 1e12, rel=1e-12, abs=0.0)
    assert c["head_flops"] == pytest.approx(2 * HEAD / 2 / 0.25e15, rel=1e-12, abs=0.0)
    assert c["head_bytes"] == pytest.approx(head_bytes * HEAD / 2 / 0.6e12, rel=1e-12, abs=0.0)


@pytest.mark.parametrize(
    ("precision", "gpu", "expected"),
    [
        ("fp8", "h100", ()),
        ("fp16", "h100", ()),
        ("nvfp4", "b200", ()),
        ("gptq", "h100", (("gptq", "of A100"),)),
        ("gptq", "b200", (("gptq", "of Blackwell"),)),
        ("int8-sq+2:4", "h100", (("int8-sq", "of INT8"), ("2:4", "of zeros"))),
        ("tf32", "h100", (("tf32", "taken to reach the shares of 16 bits; no row is in 32"),)),
        ("nf4", "h100", (("nf4", "computed as gptq, as no row is in it"), ("gptq", "of A100"))),
    ],
)
def test_parts_of_a_format_that_no_row_is_in(
    precision: str, gpu: str, expected: tuple[tuple[str, str], ...]
) -> None:
    origins = {"gptq": "of A100", "gptq Blackwell": "of Blackwell"}
    origins |= {"int8-sq": "of INT8", "2:4": "of zeros"}
    card = find_gpu(gpu)
    form = card.executes(find_precision(precision))
    assert unfitted_formats(form, card, origins) == expected
    assert format_mark(form, card, origins) == "; ".join(
        f"format {name} not fitted: {source}" for name, source in expected
    )
