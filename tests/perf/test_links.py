"""Links over PCIe: how long sums take over them, what states them, and how much less sure they
are."""

import json
import math
import re
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import pytest

import tonnage
from tests.deployments import deployment
from tests.questions import plans_with
from tonnage.api import deployment_of
from tonnage.api.running.plans import planned
from tonnage.errors import InputError, option
from tonnage.perf import step_terms as at
from tonnage.perf.links import (
    LinkTerms,
    add_communication,
    check_split,
    dispatch_terms,
    largest_of,
    link_terms,
    over_pcie,
    staged,
)
from tonnage.perf.prediction_error import regime_of
from tonnage.perf.step import step_seconds
from tonnage.perf.terms import step_model
from tonnage.perf.terms_file import TermGroups
from tonnage.plan.notes import WideOverPcie
from tonnage.report.plans.candidates import larger_text
from tonnage.report.plans.notes import warning_text
from tonnage.spec.catalog import find_gpu, find_model
from tonnage.spec.deployment import Parallelism

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


LINKS = {
    "nvlink": {
        "efficiency": 0.75,
        "large": 2.0,
        "latency": 1.5,
        "power": 0.5,
        "small": 0.6,
        "tp4": 1.1,
    },
    "pcie": {
        "efficiency": 0.5,
        "large": 2.5,
        "latency": 2.0,
        "power": 1.0,
        "small": 0.7,
        "tp4": 1.2,
    },
    "bridge": {
        "efficiency": 0.4,
        "large": 3.0,
        "latency": 1.2,
        "power": 2.0,
        "small": 0.8,
        "tp4": 1.3,
        "tp8": 0.6,
    },
}
ONE_SHOT = {"one_shot": 0.5, "one_shot_tokens": 32.0, "block_bytes_s": 1e9}
BY_NCCL = {"pcie_bytes": 2.0, "pcie_latency": 3.0, "dispatch": 0.5}


def groups_on(
    gpu: str, engine: dict[str, float], own: dict[str, float], **changed: Any
) -> TermGroups:
    """Terms of a generation whose links reach nine tenths and whose latency is 5/4, on GPUs with
    100 GB/s one way over NVLink or a mesh and 32 GB/s over PCIe."""
    card = find_gpu(gpu)
    if card.link != "pcie":
        card = replace(card, link_gb_s=200.0)
    return TermGroups(
        gpu=replace(card, pcie_gb_s=64.0, **changed),
        shared={},
        generation={"link": 0.9, "latency": 1.25},
        own=own,
        engine={"allreduce_s": 4e-6, **engine},
        links=LINKS,
        formats={},
    )


@pytest.mark.parametrize(
    ("gpu", "tp", "engine", "own", "changed", "expected"),
    [
        # NVLink: 4 µs · 1.5 · 1.25 · √4 = 15 µs
        ("h100", 5, {}, {}, {}, (67.5e9, 67.5e9, 54e9, 0.5e6, 0.0, 15e-6, 30e-6, 0.0)),
        ("h100", 2, {}, {}, {}, (67.5e9, 67.5e9, 54e9, 16e6, 0.0, 7.5e-6, 15e-6, 0.0)),
        (
            "h100",
            4,
            {"one_shot": 0.5},
            {},
            {},
            (74.25e9, 74.25e9, 50e9, 1e6, 0.0, 7.5e-6 * 3**0.5, 15e-6 * 3**0.5, 0.0),
        ),
        (
            "h100",
            4,
            ONE_SHOT | BY_NCCL,
            {"link": 0.8},
            {},
            (59.4e9, 59.4e9, 40e9, 0.0, 32.0, 7.5e-6 * 3**0.5, 15e-6 * 3**0.5, 1e9),
        ),
        # PCIe: an engine's kernels, and NCCL's, of which a generation's fabric knows nothing
        ("l40s", 4, {}, {}, {}, (17.28e9, 17.28e9, 20.16e9, 0.2e6, 0.0, 30e-6, 75e-6, 0.0)),
        (
            "l40s",
            4,
            ONE_SHOT | BY_NCCL,
            {},
            {},
            (9.6e9, 9.6e9, 11.2e9, 0.2e6, 0.0, 72e-6, 180e-6, 0.0),
        ),
        # through the host's memory
        ("rtx-4090", 2, {}, {}, {}, (16e9, 16e9, 22.4e9, 0.4e6, 0.0, 33e-6, 82.5e-6, 0.0)),
        (
            "rtx-4090",
            4,
            {},
            {},
            {},
            (19.2e9, 19.2e9, 22.4e9, 0.2e6, 0.0, 33e-6 * 3**0.6, 82.5e-6 * 3**0.6, 0.0),
        ),
        # a bridge, none where the rows had none, and two bridged pairs, or four, over PCIe
        ("a100-pcie", 2, {}, {}, {}, (67.5e9, 67.5e9, 54e9, 16e6, 0.0, 7.5e-6, 15e-6, 0.0)),
        (
            "a100-pcie",
            2,
            {},
            {"bridge": 0.0},
            {},
            (14.4e9, 14.4e9, 20.16e9, 0.4e6, 0.0, 10e-6, 25e-6, 0.0),
        ),
        (
            "a100-pcie",
            2,
            {},
            {"bridge": 0.0},
            {"bridged": True},
            (67.5e9, 67.5e9, 54e9, 16e6, 0.0, 7.5e-6, 15e-6, 0.0),
        ),
        (
            "a100-pcie",
            4,
            {},
            {},
            {},
            (14.976e9, 6.912e9, 23.04e9, 0.2e6, 0.0, 54e-6, 162e-6, 0.0),
        ),
        (
            "a100-pcie",
            8,
            {},
            {},
            {},
            (6.912e9, 6.912e9, 23.04e9, 0.1e6, 0.0, 294e-6, 882e-6, 0.0),
        ),
        (
            "rtx-3090",
            2,
            {},
            {},
            {},
            (16e9, 16e9, 22.4e9, 0.4e6, 0.0, 33e-6, 82.5e-6, 0.0),
        ),
        (
            "rtx-3090",
            2,
            {},
            {},
            {"bridged": True},
            (67.5e9, 67.5e9, 54e9, 16e6, 0.0, 7.5e-6, 15e-6, 0.0),
        ),
        # a mesh of eight: a seventh of the links to one other
        (
            "mi300x",
            2,
            {},
            {},
            {},
            (1e11 / 7, 1e11 / 7, 1e11 / 7, 16e6, 0.0, 7.5e-6, 15e-6, 0.0),
        ),
        (
            "mi300x",
            8,
            {},
            {},
            {},
            (67.5e9, 67.5e9, 54e9, 0.5e6, 0.0, 7.5e-6 * 7**0.5, 15e-6 * 7**0.5, 0.0),
        ),
    ],
)
def test_terms_of_all_reduces_by_hand(
    gpu: str,
    tp: int,
    *,
    engine: dict[str, float],
    own: dict[str, float],
    changed: dict[str, Any],
    expected: tuple[float, ...],
) -> None:
    """Bandwidths of large, slow and small ones, the largest small one, tokens of one shot, both
    latencies, and a block's rate."""
    terms = link_terms(groups_on(gpu, engine, own, **changed), tp)
    assert astuple(terms) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("gpu", "gpus", "engine", "own", "expected"),
    [
        ("h100", 4, {}, {"link": 0.8}, (15e-6 * 3**0.5, 59.4e9)),
        ("h100", 5, BY_NCCL, {}, (15e-6, 67.5e9)),
        ("mi300x", 2, {}, {}, (15e-6, 1e11 / 7)),
        ("l40s", 4, {}, {}, (75e-6, 17.28e9)),
    ],
)
def test_a_dispatch_takes_a_large_all_reduce_by_hand(
    gpu: str,
    gpus: int,
    engine: dict[str, float],
    own: dict[str, float],
    expected: tuple[float, float],
) -> None:
    assert dispatch_terms(groups_on(gpu, engine, own), gpus) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("gpu", "tp", "changed", "pcie", "through_host"),
    [
        ("l40s", 1, {}, False, False),
        ("l40s", 2, {}, True, False),
        ("l40s", 2, {"p2p": False}, True, True),
        ("rtx-4090", 1, {}, False, False),
        ("rtx-4090", 2, {}, True, True),
        ("h100", 8, {}, False, False),
        ("a100-pcie", 2, {}, True, False),
        ("a100-pcie", 2, {"bridged": True}, False, False),
        ("a100-pcie", 2, {"bridged": True, "p2p": False}, False, False),
        ("a100-pcie", 4, {"bridged": True, "p2p": False}, True, True),
    ],
)
def test_which_sums_go_over_pcie_and_which_through_the_host(
    gpu: str, tp: int, changed: dict[str, bool], pcie: bool, through_host: bool
) -> None:
    card = replace(find_gpu(gpu), **changed)
    assert (over_pcie(card, tp), staged(card, tp)) == (pcie, through_host)


TERMS = LinkTerms(
    bytes_s=1e9,
    slow_bytes_s=0.5e9,
    small_bytes_s=2e9,
    small_bytes=1e6,
    one_shot_tokens=32.0,
    small_s=1e-6,
    large_s=3e-6,
    block_bytes_s=1e9,
)
OF_FOUR = {
    "comm_step": 6e-6,
    "comm_small": 6 * 2000 * 3 / 2e9,
    "small_tokens": 500.0,
    "one_shot_to": 32.0,
    "comm_large": 18e-6,
    "comm_token": 6 * 2000 * 1.5 / 1e9,
    "comm_slow": 6 * 2000 * 1.5 / 1e9,
    "slow_to": 67_108_864 / 2000,
    # 1,000 = 8 · 125; blocks of 1,024 threads that take 16 bytes from each of four GPUs
    "starved": 6 * 2 * 125 * 65_536 / 1e9,
    "starved_from": 16 * 65_536 / 2000,
    "starved_to": 4000.0,
}
SCALED = ("comm_step", "comm_small", "comm_large", "comm_token", "comm_slow", "starved")


@pytest.mark.parametrize(
    ("sizes", "split", "changed", "expected"),
    [
        ({}, Parallelism(tp=4), {}, OF_FOUR),
        (
            {"parallel_block": True},
            Parallelism(tp=4),
            {},
            OF_FOUR | {name: OF_FOUR[name] / 2 for name in SCALED},
        ),
        # of two layers of experts only attention is summed
        (
            {"experts": 8, "dense_layers": 1},
            Parallelism(tp=4, dp=2),
            {},
            OF_FOUR | {name: OF_FOUR[name] * 4 / 6 for name in SCALED},
        ),
        (
            {"joint_norms": True},
            Parallelism(tp=4),
            {},
            OF_FOUR | {"comm_step": 9e-6, "comm_large": 21e-6},
        ),
        (
            {},
            Parallelism(tp=4),
            {"slow_bytes_s": 1e9},
            OF_FOUR | {"comm_slow": 0.0, "slow_to": 0.0},
        ),
        (
            {},
            Parallelism(tp=4),
            {"slow_bytes_s": 2e9, "block_bytes_s": 0.0},
            OF_FOUR
            | dict.fromkeys(("comm_slow", "slow_to", "starved", "starved_from", "starved_to"), 0.0),
        ),
        (
            {},
            Parallelism(tp=2),
            {},
            OF_FOUR
            | {"comm_small": 6e-6, "comm_token": 12e-6, "comm_slow": 12e-6}
            | dict.fromkeys(("starved", "starved_from", "starved_to"), 0.0),
        ),
        (
            {},
            Parallelism(tp=3),
            {},
            OF_FOUR
            | {"comm_small": 12e-6, "comm_token": 16e-6, "comm_slow": 16e-6}
            | {
                "starved": OF_FOUR["starved"] * 3 / 4,
                "starved_from": OF_FOUR["starved_from"] * 3 / 4,
            },
        ),
        # 1,040 = 16 · 65, 2,080 bytes of a token
        (
            {"hidden": 1040},
            Parallelism(tp=4),
            {},
            OF_FOUR
            | {name: OF_FOUR[name] * 1.04 for name in ("comm_small", "comm_token", "comm_slow")}
            | {
                name: OF_FOUR[name] / 1.04
                for name in ("small_tokens", "slow_to", "starved_from", "starved_to")
            }
            | {"starved": OF_FOUR["starved"] * 65 / 125},
        ),
        # 23 · 64: a block gets 23 of 24
        (
            {"hidden": 1472},
            Parallelism(tp=4),
            {},
            OF_FOUR
            | {name: OF_FOUR[name] * 1.472 for name in ("comm_small", "comm_token", "comm_slow")}
            | {name: OF_FOUR[name] / 1.472 for name in ("small_tokens", "slow_to")}
            | dict.fromkeys(("starved", "starved_from", "starved_to"), 0.0),
        ),
    ],
)
def test_all_reduces_of_a_step_by_hand(
    sizes: dict[str, Any], split: Parallelism, changed: dict[str, float], expected: dict[str, float]
) -> None:
    """Three layers of width 1,000, with two sums each, on four GPUs: a small one moves three
    copies, a large one twice three quarters of one."""
    model = replace(find_model("llama-3.1-8b"), **{"layers": 3, "hidden": 1000, **sizes})
    c = [0.0] * at.COEFFICIENTS
    add_communication(c, replace(TERMS, **changed), model, split)
    assert {at.TERMS[place].name: c[place] for place in range(len(c)) if c[place]} == pytest.approx(
        {name: value for name, value in expected.items() if value}, rel=1e-12
    )


def test_the_largest_of_some_normal_draws_is_as_tables_have_it() -> None:
    """Expected values of normal order statistics (Harter 1961): 0.56, 0.85, 1.03 and 1.42."""
    for count, largest in ((1, 0.0), (2, 0.56419), (3, 0.84628), (4, 1.02938), (8, 1.42360)):
        assert largest_of(count) == pytest.approx(largest, abs=0.03)
    assert largest_of(2) > 0.5
    assert math.isfinite(largest_of(1))


@pytest.mark.parametrize(
    ("model", "split", "words"),
    [
        (
            "llama-3-8b",
            Parallelism(tp=1, pp=2),
            "pp: pipeline parallelism of 2 is not estimated here; use 1",
        ),
        (
            "llama-3-8b",
            Parallelism(tp=3),
            "tp: llama-3-8b with 32 query and 8 key/value heads cannot be split over 3 GPUs;"
            " use 1, 2, 4, 8, 16",
        ),
        ("deepseek-v3", Parallelism(tp=8, ep=0), "ep: must be 1 or more, not 0"),
        ("deepseek-v3", Parallelism(tp=8, dp=-1, ep=-2), "dp: must be 1 or more, not -2"),
        (
            "mixtral-8x7b",
            Parallelism(tp=8, dp=2, ep=1),
            "ep: experts of width 24 cannot be split over 16 GPUs; use a larger ep",
        ),
        (
            "mixtral-8x7b",
            Parallelism(tp=32, ep=2),
            "ep: experts of width 24 cannot be split over 16 GPUs; use a larger ep",
        ),
        (
            "mixtral-8x7b",
            Parallelism(tp=2, dp=3, ep=4),
            "ep: 4 groups of experts do not divide TP 2 × DP 3 = 6 GPUs; use 1, 2",
        ),
    ],
)
def test_degrees_that_are_refused(model: str, split: Parallelism, words: str) -> None:
    d = deployment(model)
    narrow = replace(d.model, ffn=24) if d.model.is_moe and d.model.experts == 8 else d.model
    with pytest.raises(InputError) as error:
        check_split(replace(d, model=narrow, parallelism=split))
    assert str(error.value) == words


@pytest.mark.parametrize(
    ("model", "split"),
    [
        ("llama-3-8b", Parallelism(tp=16)),
        ("mixtral-8x7b", Parallelism(tp=16)),
        ("mixtral-8x7b", Parallelism(tp=4, dp=2, ep=8)),
        ("mixtral-8x7b", Parallelism(tp=1, dp=8, ep=1)),
        ("mixtral-8x7b", Parallelism(tp=8, ep=2)),
    ],
)
def test_degrees_that_are_allowed(model: str, split: Parallelism) -> None:
    """Experts of width 24 go over 16 GPUs where tensor parallelism alone splits them."""
    d = deployment(model)
    narrow = replace(d.model, ffn=24) if d.model.is_moe else d.model
    check_split(replace(d, model=narrow, parallelism=split))
