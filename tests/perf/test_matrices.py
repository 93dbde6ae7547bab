from dataclasses import replace

import pytest

from tests.deployments import array, deployment
from tonnage.perf import step_terms as at
from tonnage.perf.step import batch_seconds
from tonnage.perf.terms import resolve
from tonnage.perf.terms_file import shipped


@pytest.mark.parametrize(
    ("model", "precision", "engine", "passes"),
    [
        ("gpt-j-6b", "fp16", "tensorrt-llm-0.9", 20),  # written, pow, 6 products and sums, tanh (8 kernels), read
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
    per_element = shipped()["shared"]["activation"] * 2 * d.model.layers / (d.gpu.memory_bandwidth_gb_s * 1e9)
    elements = array(model=model, precision=precision, engine=engine)[at.ACTIVATION] / per_element
    assert (elements - 8 * d.model.hidden - d.model.heads * d.model.head_dim) / d.model.inner == pytest.approx(passes)


def test_linear_work_is_split_over_the_gpus() -> None:
    one, four = array(tp=1), array(tp=4)
    for place in (at.LINEAR_FLOPS, at.LINEAR_BYTES, at.HEAD_BYTES, at.ATTENTION):
        assert four[place] == pytest.approx(one[place] / 4)
    assert one[at.COMM_STEP] == one[at.COMM_TOKEN] == 0.0
    assert four[at.COMM_STEP] > 0.0
    assert four[at.HOST_STEP] == one[at.HOST_STEP]


def test_fp8_halves_the_weights_and_helps_large_batches() -> None:
    wide, narrow = array(precision="fp16"), array(precision="fp8")
    assert narrow[at.LINEAR_BYTES] == pytest.approx(wide[at.LINEAR_BYTES] / 2, rel=0.15)
    assert batch_seconds(narrow, 8192, 8) < 0.75 * batch_seconds(wide, 8192, 8)


def test_a_lower_power_limit_lowers_the_efficiencies() -> None:
    """Half the watts on the same chip: arithmetic loses about a fifth (the cube root of power), reading less; watts unknown, nothing."""
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


def test_a_generation_known_by_one_card_has_its_efficiencies_at_that_card() -> None:
    d = deployment(gpu="b200-sxm-180gb", precision="fp8", engine="vllm")
    card, unknown = (resolve(shipped(), d.model, gpu, d.precision, d.parallelism, "vllm") for gpu in (d.gpu, replace(d.gpu, tdp_w=None)))
    assert (card.matrices.compute, card.matrices.memory) == pytest.approx((unknown.matrices.compute, unknown.matrices.memory), rel=1e-3)
