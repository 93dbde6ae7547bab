"""Links over PCIe: how long sums take over them, what states them, and how much less sure they
are."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tonnage
from tests.questions import plans_with
from tonnage.api import deployment_of
from tonnage.api.running.plans import planned
from tonnage.errors import InputError, option
from tonnage.perf import step_terms as at
from tonnage.perf.prediction_error import regime_of
from tonnage.perf.step import step_seconds
from tonnage.perf.terms import step_model
from tonnage.plan.notes import WideOverPcie
from tonnage.report.plans.candidates import larger_text
from tonnage.report.plans.notes import warning_text
from tonnage.spec.catalog import find_gpu

few_parts = plans_with()

TOPOLOGY = """\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity\tNUMA Affinity
GPU0\t X \t{near}\t{far}\t{far}\t0-31\t0
GPU1\t{near}\t X \t{far}\t{far}\t0-31\t0
GPU2\t{far}\t{far}\t X \t{near}\t32-63\t1
GPU3\t{far}\t{far}\t{near}\t X \t32-63\t1

Legend:
  X    = Self
"""


def decode_s(gpu: str, tp: int, link: str | None = None, sequences: int = 16) -> float:
    d = deployment_of(
        model="qwen2.5-32b", gpu=gpu, precision="bf16", tp=tp, engine="vllm", link=link
    )
    return step_seconds(step_model(d).coefficients, 0, 0, sequences, 0, sequences * 1000)


def test_sums_through_the_memory_of_the_host_take_longer_and_fewer_lanes_longer_still() -> None:
    usual, staged = (decode_s("l40s", 4, link) for link in (None, "p2p-off"))
    assert staged > 1.2 * usual
    assert decode_s("l40s", 4, "pcie4-x16") == usual
    assert decode_s("l40s", 4, "pcie4-x8,p2p-off") > staged
    assert decode_s("l40s", 1, "p2p-off") == decode_s("l40s", 1)
    assert decode_s("rtx-4090", 4, "p2p-off") == decode_s("rtx-4090", 4), (
        "GeForce has no peer access as it is"
    )


def test_cards_with_a_bridge_are_faster_than_without() -> None:
    assert (
        decode_s("a100-pcie-80gb", 2, "bridge")
        < decode_s("a100-pcie-80gb", 2, "pcie4-x16")
        < decode_s("a100-pcie-80gb", 2, "p2p-off")
    )


@pytest.mark.parametrize(
    ("near", "far", "tp", "same_as"),
    [
        ("PIX", "PHB", 4, "pcie4-x16"),
        ("PIX", "SYS", 2, "pcie4-x16"),
        ("PIX", "SYS", 4, "p2p-off"),
        ("NODE", "SYS", 2, "p2p-off"),
        ("NV12", "NV12", 2, "bridge"),
        ("NV12", "SYS", 4, "p2p-off"),
    ],
)
def test_a_topology_says_which_link_the_first_gpus_have(
    tmp_path: Path, near: str, far: str, tp: int, same_as: str
) -> None:
    file = tmp_path / "topo.txt"
    file.write_text(TOPOLOGY.format(near=near, far=far))
    assert decode_s("a100-pcie-80gb", tp, str(file)) == decode_s("a100-pcie-80gb", tp, same_as)


@pytest.mark.parametrize(
    ("gpu", "link", "message"),
    [
        ("h100-sxm-80gb", "pcie5-x16", "h100-sxm-80gb is joined by nvlink"),
        ("l40s", "bridge", "l40s takes no NVLink bridge; write pcie4-x16"),
        ("l40s", "pcie7-x16", "'pcie7-x16' is not a link; write pcie, pcie4-x16"),
        ("l40s", "pcie4-x16,", "'' is not a link"),
    ],
)
def test_a_link_that_cannot_be_is_refused_with_what_to_write(
    gpu: str, link: str, message: str
) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        decode_s(gpu, 2, link)


@pytest.mark.parametrize(
    ("path", "words"), [("PIX", "pcie"), ("SYS", "p2p-off"), ("NV12", "bridge")]
)
def test_a_plan_keeps_what_a_topology_says_and_is_read_without_the_file(
    tmp_path: Path, path: str, words: str
) -> None:
    file = tmp_path / "topo.txt"
    file.write_text(TOPOLOGY.format(near=path, far=path))
    asked: Any = {
        "model": "qwen2.5-32b",
        "gpu": "a100-pcie-80gb",
        "tp": 2,
        "isl": 500,
        "osl": 100,
        "peak_rps": 1.0,
        "tpot": "p95<=80ms",
    }
    plan = tonnage.size(**asked, precision="bf16", engine="vllm", link=str(file))
    file.unlink()
    (tmp_path / "plan.json").write_text(json.dumps(plan.to_json()))
    assert plan.asked is not None
    assert plan.asked.search.link == words
    gpu = deployment_of(
        model="qwen2.5-32b", gpu="a100-pcie-80gb", precision="bf16", tp=2, engine="vllm", link=words
    ).gpu
    assert planned(tmp_path / "plan.json").deployment.gpu == gpu
    assert plan.choice is not None
    assert (
        plan.choice.systems_exact
        == tonnage.size(**asked, precision="bf16", engine="vllm", link=words).choice.systems_exact
    )


def test_a_file_without_a_topology_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "topo.txt"
    file.write_text("no devices were found\n")
    with pytest.raises(
        InputError,
        match="no table of two GPUs or more; write the output of nvidia-smi topo -m to it",
    ):
        decode_s("l40s", 2, str(file))


@pytest.mark.parametrize(
    ("gpu", "wider"), [("l40s", True), ("a100-pcie-80gb", True), ("h100-sxm-80gb", False)]
)
def test_intervals_are_wider_over_pcie(gpu: str, wider: bool) -> None:
    d = [
        deployment_of(model="qwen2.5-32b", gpu=gpu, precision="bf16", tp=tp, engine="vllm")
        for tp in (1, 2)
    ]
    assert ["pcie" in regime_of(one, isl=1000, osl=200, clients=16).apart for one in d] == [
        False,
        wider,
    ]


def test_the_first_screen_names_one_larger_card_and_what_it_costs() -> None:
    asked = {
        "model": "llama-3.1-8b",
        "precision": "fp16",
        "engine": "vllm",
        "isl": 500,
        "osl": 100,
        "peak_rps": 1.0,
        "itl": "p95<=60ms",
    }
    alone = tonnage.size(gpu="rtx-4090", tp=2, **asked)
    (warning,) = [one for one in alone.warnings if isinstance(one, WideOverPcie)]
    assert (warning.tp, warning.staged, warning.link_gb_s) == (2, True, 32.0)
    larger, card = (find_gpu(name) for name in (warning.larger, "rtx-4090"))
    assert larger.memory_gb >= 2 * card.memory_gb
    assert larger.memory_bandwidth_gb_s >= card.memory_bandwidth_gb_s
    text = warning_text(warning) + larger_text(alone, warning)
    assert "TP 2 over PCIe on rtx-4090" in text
    assert (
        f"measure, or prefer one larger card ({option('gpu')} {warning.larger} sizes and prices it)"
        in text
    )
    both = replace(
        alone, candidates=(*alone.candidates, *tonnage.size(gpu="l40s", tp=1, **asked).candidates)
    )
    assert "prefer one larger card: l40s at TP 1 needs 8 GPUs" in warning_text(
        warning
    ) + larger_text(both, warning)
    assert tonnage.size(gpu="l40s", tp=1, **asked).warnings == ()


def test_two_gpus_of_a_mesh_of_eight_have_a_seventh_of_their_links() -> None:
    """MI300X: 448 GB/s one way to all seven others, 64 GB/s to each; eight GPUs use all of them."""
    two, eight = (
        deployment_of(model="llama-3.3-70b", gpu="mi300x", precision="fp8", tp=tp, engine="vllm")
        for tp in (2, 8)
    )
    bytes_of_a_token = 2 * 80 * 2 * 8192  # sums, bytes of an element, hidden
    assert step_model(two).coefficients[at.COMM_TOKEN] == pytest.approx(bytes_of_a_token / 64e9)
    assert step_model(eight).coefficients[at.COMM_TOKEN] > bytes_of_a_token * 2 * 7 / 8 / 448e9
    for gpu in ("mi325x", "mi350x", "mi355x"):
        assert find_gpu(gpu).tp_link_bytes_s(2) == pytest.approx(
            find_gpu(gpu).link_gb_s / 2 / 7 * 1e9
        )


@pytest.mark.parametrize(("gpu", "engine"), [("b200", "vllm"), ("mi355x", "sglang")])
def test_hyper_connections_and_compressed_layers_take_what_was_timed_on_every_gpu(
    gpu: str, engine: str
) -> None:
    d = deployment_of(model="deepseek-v4-pro", gpu=gpu, tp=8, engine=engine)
    plain = replace(d, model=replace(d.model, residual_streams=1))
    whole, without = (step_model(which).coefficients for which in (d, plain))
    assert whole[at.HOST_STEP] - without[at.HOST_STEP] == pytest.approx(31e-6 * 61)
    assert whole[at.BOUNDED] > 0.15e-6 * 61
