"""Matrices in a format: the bytes that are read, the rates, and what unpacking costs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.perf.format_cases import coefficients, deployment
from tonnage.errors import DataError
from tonnage.perf import step_terms as at
from tonnage.perf.matrices import matrix_rate, shares
from tonnage.perf.memory import kv_bytes_per_token, weight_bytes
from tonnage.perf.step import batch_seconds, step_seconds
from tonnage.perf.terms import resolve, step_model
from tonnage.perf.terms_file import shipped
from tonnage.spec.catalog import find_gpu, find_model
from tonnage.spec.deployment import Parallelism
from tonnage.spec.precision import PRECISIONS

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
