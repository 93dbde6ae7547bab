import pytest

from tests.deployments import array, deployment
from tonnage.perf import step_terms as at
from tonnage.perf.step import batch_seconds
from tonnage.perf.terms import resolve
from tonnage.perf.terms_file import shipped


def test_all_reduces_over_pcie_are_dearer() -> None:
    assert array(gpu="l40s", tp=4)[at.COMM_TOKEN] > 3 * array(gpu="h100-sxm-80gb", tp=4)[at.COMM_TOKEN]
    assert array(gpu="h100-nvl-94gb", tp=4)[at.COMM_TOKEN] > 3 * array(gpu="h100-nvl-94gb", tp=2)[at.COMM_TOKEN]


def test_an_all_reduce_of_an_odd_width_is_left_with_few_blocks() -> None:
    """Falcon's 14,848 is 512 · 29: at TP 8 a two-shot message above 70 tokens and below 8 MB has one block per 29 · 16 KB and rank."""
    falcon = array(model="falcon-180b", tp=8, engine="tensorrt-llm-0.9")
    assert falcon[at.STARVED_FROM] == pytest.approx(16 * 1024 * 16 * 8 / (2 * 14848))
    assert falcon[at.STARVED_TO] == pytest.approx(8e6 / (2 * 14848))
    rate = shipped()["engines"]["tensorrt-llm-0.9"]["block_bytes_s"]
    assert falcon[at.STARVED] == pytest.approx(80 * 2 * 29 * 1024 * 16 * 8 / rate)
    assert array(model="falcon-180b", tp=4, engine="tensorrt-llm-0.9")[at.STARVED] == pytest.approx(falcon[at.STARVED] / 2)
    for what in (
        {"model": "llama-2-70b"},  # a power of two
        {"model": "falcon-180b", "tp": 2},  # one-shot up to 16 MB
        {"model": "falcon-180b", "gpu": "l40s"},  # NCCL over PCIe
        {"model": "falcon-180b", "engine": "vllm"},  # another kernel
    ):
        assert array(**({"tp": 8, "engine": "tensorrt-llm-0.9"} | what))[at.STARVED] == 0.0


def test_two_bridged_pairs_are_slow_below_64_mib() -> None:
    """4,096 tokens of Llama 2 70B are 64 MiB; below, an all-reduce reaches what one of eight GPUs does."""
    pairs, eight = (array(model="llama-2-70b", gpu="h100-nvl-94gb", precision="fp8", tp=tp, engine="tensorrt-llm-0.9") for tp in (4, 8))
    assert pairs[at.SLOW_TO] == 4096
    moved = (2 * 3 / 4) / (2 * 7 / 8)
    assert pairs[at.COMM_TOKEN] + pairs[at.COMM_SLOW] == pytest.approx(eight[at.COMM_TOKEN] * moved)
    assert batch_seconds(pairs, 4096, 1) < batch_seconds(pairs, 4095, 1)
    for what in ({"gpu": "h100-nvl-94gb", "tp": 2}, {"gpu": "l40s", "tp": 4}, {"gpu": "h100-sxm-80gb", "tp": 4}):
        assert array(**({"model": "llama-2-70b", "precision": "fp8"} | what))[at.COMM_SLOW] == 0.0


@pytest.mark.parametrize(("gpu", "tp"), [("h100-sxm-80gb", 4), ("l40s", 4), ("h100-nvl-94gb", 2), ("b200", 8), ("mi300x", 8)])
def test_small_messages_reach_less_than_large_ones(gpu: str, tp: int) -> None:
    d = deployment(gpu=gpu, precision="fp8", tp=tp, engine="tensorrt-llm-0.9")
    links = resolve(shipped(), d.model, d.gpu, d.precision, d.parallelism, d.engine).links
    assert 0 < links.small_bytes_s < links.bytes_s


def test_two_gpus_of_a_mesh_have_the_wires_between_them() -> None:
    def reached(tp: int, gpu: str) -> float:
        d = deployment(gpu=gpu, precision="fp8", tp=tp, engine="tensorrt-llm-0.9")
        return resolve(shipped(), d.model, d.gpu, d.precision, d.parallelism, "tensorrt-llm-0.9").links.bytes_s

    assert reached(2, "gh200-96gb-hbm3") == 150e9
    assert reached(4, "gh200-96gb-hbm3") == reached(4, "h200-sxm-141gb")
