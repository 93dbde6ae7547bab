import itertools

import numpy as np
import pytest

from tests.deployments import array, deployment
from tonnage.perf.step import batch_seconds, step_seconds
from tonnage.perf.terms import client_turnaround_s, resolve, step_model
from tonnage.perf.terms_file import shipped
from tonnage.spec.catalog import engines, find_engine, find_gpu, gpus
from tonnage.spec.hardware import Gpu
from tonnage.spec.precision import PRECISIONS, find_precision


def test_every_gpu_precision_and_engine_of_the_catalog_has_a_price() -> None:
    for gpu in gpus():
        for name, precision in PRECISIONS.items():
            if not gpu.supports(precision):
                continue
            for engine in engines():
                model = step_model(deployment(gpu=gpu.name, precision=name, tp=2, engine=engine.name))
                assert np.isfinite(model.coefficients).all(), (gpu.name, name, engine.name)
                assert (model.coefficients >= 0).all()
                assert 0 <= model.frontend_s < 0.1
                decode = step_seconds(model.coefficients, 0, 0, 8, 0, 8000)
                assert 1e-4 < decode < 1.0, (gpu.name, name, engine.name)


@pytest.mark.parametrize("gpu", ["a100-sxm-80gb", "h100-sxm-80gb", "h200-sxm-141gb", "l40s", "b200-sxm-180gb"])
@pytest.mark.parametrize("engine", ["nim", "tensorrt-llm-0.15", "tensorrt-llm-0.9", "vllm"])
def test_no_efficiency_is_above_the_datasheet(gpu: str, engine: str) -> None:
    for precision in ("fp16", "fp8"):
        if not find_gpu(gpu).supports(find_precision(precision)):
            continue
        d = deployment(gpu=gpu, precision=precision, tp=4, engine=engine)
        t = resolve(shipped(), d.model, d.gpu, d.precision, d.parallelism, find_engine(engine).coefficients)
        m = t.matrices
        for efficiency in (m.compute, m.compute_16, m.memory, m.memory_16, t.attention[0].prefill):
            assert 0.2 < efficiency < 1.0
        assert 0.3 < t.attention[0].kv_bandwidth <= 1.2  # a share of it can come from the cache
        assert t.links.bytes_s < d.gpu.tp_link_bytes_s(4)
        assert t.matrices.norm >= 1.0


def test_more_bandwidth_decodes_faster_and_more_arithmetic_prefills_faster() -> None:
    h100, h200, a100 = (array(gpu=g) for g in ("h100-sxm-80gb", "h200-sxm-141gb", "a100-sxm-80gb"))
    assert batch_seconds(h200, 1, 1) < batch_seconds(h100, 1, 1) < batch_seconds(a100, 1, 1)
    assert step_seconds(h100, 8000, 1, 0, 64_000_000, 0) < 0.6 * step_seconds(a100, 8000, 1, 0, 64_000_000, 0)


HALVED = ("rtx-4090", "rtx-5090")
"""GeForce cards halve 16- and 8-bit products alone, so that their watts per TFLOP/s say nothing of clocks in 4 bits."""


def outgrows(more: Gpu, less: Gpu) -> bool:
    """Whether a GPU has at least what another one has, in rates, bandwidth and watts, behind the same link, and no rows of its own."""
    alike = all(getattr(more, name) == getattr(less, name) for name in ("vendor", "link", "link_gb_s", "mesh_gpus"))
    figures = ("fp16_tflops", "fp8_tflops", "fp4_tflops", "memory_bandwidth_gb_s", "tdp_w")
    judged = more.name not in shipped()["gpus"] and less.name not in HALVED
    return alike and judged and all((getattr(more, name) or 0.0) >= (getattr(less, name) or 0.0) for name in figures)


@pytest.mark.parametrize("precision", ["fp16", "fp8", "nvfp4", "mxfp4", "nvfp4+experts"])
def test_a_gpu_that_has_more_of_everything_is_never_slower_unless_its_rows_say_so(precision: str) -> None:
    model, tp = ("deepseek-r1", 8) if "experts" in precision else ("llama-2-70b", 4)
    loads = [(0, 0, 1, 0, 1000), (0, 0, 64, 0, 64_000), (4096, 2, 0, 2 * 2048**2, 0), (1000, 4, 500, 4 * 250**2, 400_000)]
    pairs = [(more, less) for more, less in itertools.permutations(gpus(), 2) if outgrows(more, less)]
    assert ("b300-sxm-270gb", "b200-sxm-180gb") in {(more.name, less.name) for more, less in pairs}
    for more, less in pairs:
        forms = {gpu.executes(find_precision(precision)).arithmetic for gpu in (more, less) if gpu.supports(find_precision(precision))}
        if len(forms) != 1 or not (more.supports(find_precision(precision)) and less.supports(find_precision(precision))):
            continue
        for engine in ("vllm", "atom" if more.vendor == "AMD" else "tensorrt-llm"):
            two = [array(model=model, gpu=gpu.name, precision=precision, tp=tp, engine=engine) for gpu in (more, less)]
            for load in loads:
                seconds = [step_seconds(c, *load) for c in two]
                assert seconds[0] <= 1.001 * seconds[1], (more.name, less.name, engine, load)


@pytest.mark.parametrize("tp", [2, 4, 8])
def test_longer_steps_of_a_real_deployment_never_cost_less(tp: int) -> None:
    for gpu in ("h100-sxm-80gb", "l40s", "a100-pcie-80gb"):
        c = array(model="llama-3-70b", gpu=gpu, precision="fp16", tp=tp)
        times = [batch_seconds(c, t, 8) for t in range(8, 4000)]
        assert all(b >= a for a, b in itertools.pairwise(times))


PUBLISHED = [
    ("h100-sxm-80gb", "bf16", 6.44, 4.37e-5),
    ("h100-sxm-80gb", "bf16+kv-fp8", 6.58, 2.37e-5),
    ("b200-sxm-180gb", "bf16", 3.93, 1.80e-5),
    ("b200-sxm-180gb", "bf16+kv-fp8", 3.96, 9.72e-6),
]
"""vllm.ai/blog, 2026-04-22: milliseconds a token of Llama 3.1 8B without context on one GPU, and more of them per token of context."""


@pytest.mark.parametrize(("gpu", "precision", "alone_ms", "per_token_ms"), PUBLISHED)
def test_what_vllm_published_of_0_19_comes_out(gpu: str, precision: str, alone_ms: float, per_token_ms: float) -> None:
    """No row of the fit is of this version with a dense model. Start values were taken from some of these figures: the FP8 cache on the
    H100, and 16 bits alone on the B200; not from 16 bits on the H100, nor from what context adds on the B200.
    """
    c, context = array(model="llama-3.1-8b", gpu=gpu, precision=precision, engine="vllm-0.19"), 100_000
    alone, full = (1e3 * step_seconds(c, 0, 0, 1, 0, tokens) for tokens in (0, context))
    assert alone == pytest.approx(alone_ms, rel=0.05)
    assert (full - alone) / context == pytest.approx(per_token_ms, rel=0.17)


def test_only_the_closed_loop_of_nim_has_a_serial_turnaround() -> None:
    assert client_turnaround_s(deployment()) == pytest.approx(1.6e-3)
    assert client_turnaround_s(deployment(engine="tensorrt-llm-0.15")) == 0.0
