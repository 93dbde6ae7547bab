"""The file of terms: its keys, and the efficiencies that hold for one GPU alone."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from tests.perf.fitted_terms_cases import A100, H100, NIM, calibrated, known
from tonnage.errors import DataError, DataErrors
from tonnage.perf import step_terms as at
from tonnage.perf.fitted_terms import terms_by_key
from tonnage.perf.terms import step_model
from tonnage.perf.terms_file import (
    ACTS_ON,
    OF_THE_GPU,
    calibrated_for,
    calibration_mark,
    checked,
    confirms,
    engine_terms,
    groups_of,
    overlaid,
    own_terms_of,
    shipped,
    with_own_terms,
)
from tonnage.spec.calibration import MULTIPLIERS, Calibration
from tonnage.spec.catalog import find_gpu
from tonnage.spec.deployment import Parallelism
from tonnage.spec.precision import find_precision
from tonnage.spec.step_times import StepSource
from tools.fit.silicon.dense_terms import silicon_layout
from tools.fit.silicon.moe import moe_layout
from tools.fit.terms import layout


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (
            ("engines", "vllm", "kv_bandwith"),
            "engines.vllm.kv_bandwith: unknown key; did you mean kv_bandwidth",
        ),
        (
            ("engines", "vllm", "expert_layers"),
            "engines.vllm.expert_layers: unknown key; did you mean expert_layer_s or expert_layer?",
        ),
        (("gpus", "l40s", "compute_9"), "gpus.l40s.compute_9: unknown key"),
        (("engine",), "engine: unknown key; did you mean engines"),
    ],
)
def test_a_misspelt_key_is_refused_by_its_path(path: tuple[str, ...], message: str) -> None:
    document = copy.deepcopy(shipped())
    place = document
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = 1.0
    with pytest.raises(DataErrors) as caught:
        checked(document, "terms.json")
    assert str(caught.value).startswith(f"terms.json: {message}")
    assert len(caught.value.lines) == 1


LAYOUTS = {
    "TensorRT-LLM of 2024": layout([(H100, "8"), (A100, "16")]),
    "current engines": silicon_layout(shipped()),
    "experts": moe_layout(shipped(), {"vllm", "sglang", "tensorrt-llm-1.1"}),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_fit_moves_only_what_is_described(name: str) -> None:
    terms = LAYOUTS[name].terms(LAYOUTS[name].start)
    assert [path for *path, term in terms_by_key(terms, known()) if term is None] == []


def test_every_factor_has_something_to_act_on_and_leaves_the_shipped_terms_alone() -> None:
    assert set(ACTS_ON) == set(MULTIPLIERS)
    before = repr(shipped())
    for name in MULTIPLIERS:
        c = Calibration(preset="nim-2024", gpu="l40s", multipliers=((name, 2.0),), data="")
        assert overlaid(shipped(), c, "l40s") != shipped()
    assert repr(shipped()) == before


def test_the_efficiencies_of_a_gpu_hold_for_it_alone() -> None:
    other = calibrated(gpu="a100-sxm-80gb", compute=0.5, memory=0.5, step_s=2.0)
    c, plain = step_model(other).coefficients, step_model(NIM).coefficients
    assert c[at.LINEAR_FLOPS] == plain[at.LINEAR_FLOPS]
    assert c[at.HOST_STEP] == pytest.approx(2 * plain[at.HOST_STEP])
    assert set(OF_THE_GPU) == {"compute", "memory"}


GROUPS: dict[str, Any] = {
    "shared": {"attention": 0.5, "power_compute": 0.3, "power_memory": 0.2, "norm": 1.6},
    "architectures": {
        "*": {"compute_8": 0.5, "memory_16": 0.6, "attention": 0.9, "link": 0.8},
        "Hopper": {"compute_8": 0.7},
    },
    "gpus": {"h100-sxm-80gb": {"compute": 1.1}, "l40s": {"memory": 0.9}},
    "siblings": {"h200-sxm-141gb": "h100-sxm-80gb", "l4": "l40s"},
    "links": {"nvlink": {"small": 0.5}},
    "formats": {"awq": {"compute": 0.8}},
    "engines": {
        "mine": {
            "compute": 0.9,
            "compute_16": 0.8,
            "memory_8": 0.7,
            "compute_blocks": 0.6,
            "attention": 0.95,
            "kv_8bit_hopper": 0.7,
            "kv_single": 0.5,
            "kv_bandwidth": 0.4,
            "walk_s": 1e-9,
            "layer_s": 1e-5,
            "allreduce_s": 3e-6,
            "step_s": 1e-3,
            "sequence_s": 1e-5,
            "expert_compute": 0.3,
            "expert_layer_s": 1e-6,
        },
        "other": {"step_s": 2.0},
    },
}


def test_ones_own_terms_in_place_of_the_shipped_ones_by_hand() -> None:
    """Shares of the datasheet for both widths, seconds that stand for all of the host's, and
    nothing of the generation, of the GPU or of its power; what the engine says of experts stays."""
    before = copy.deepcopy(GROUPS)
    own = {
        "compute": 0.51,
        "memory": 0.52,
        "attention": 0.53,
        "kv_bandwidth": 0.54,
        "step_s": 0.004,
        "sequence_s": 1e-4,
        "prefill_s": 0.005,
        "frontend_s": 0.006,
        "turnaround_s": 0.007,
    }
    engine = {
        "expert_compute": 0.3,
        "allreduce_s": 3e-6,
        "head_arithmetic": 0.0,
        "kv_8bit": 1.0,
        "kv_single": 1.0,
        "walk_s": 0.0,
        "layer_s": 0.0,
        "stream_s": 0.0,
        "step_s": 0.004,
        "sequence_s": 1e-4,
        "prefill_s": 0.005,
        "frontend_s": 0.006,
        "turnaround_s": 0.007,
        "kv_bandwidth": 0.54,
    }
    rates = {"compute_8": 0.51, "compute_16": 0.51, "memory_8": 0.52, "memory_16": 0.52}
    expected = {
        **before,
        "shared": {"attention": 0.53, "power_compute": 0.0, "power_memory": 0.0, "norm": 1.6},
        "architectures": {"*": {"attention": 1.0, "link": 0.8, **rates}},
        "gpus": {},
        "siblings": {},
        "engines": {"mine": engine, "other": {"step_s": 2.0}},
    }
    assert with_own_terms(GROUPS, own, "mine") == expected
    faster = with_own_terms(GROUPS, own | {"allreduce_s": 9e-6}, "mine")
    assert faster["engines"]["mine"] == engine | {"allreduce_s": 9e-6}
    assert before == GROUPS
    c = Calibration(preset="mine", gpu="l40s", multipliers=(), data="d", terms=tuple(own.items()))
    assert overlaid(GROUPS, c, "l40s") == expected
    assert overlaid(GROUPS, c, "l4") is GROUPS
    assert overlaid(GROUPS, replace(c, preset="no"), "l40s") is GROUPS


def test_factors_over_the_shipped_terms_by_hand() -> None:
    """Those of the GPU hold for it alone, even where the engine has no such term; the others are
    of terms that the engine has. A faster cache walks faster, too."""
    factors = {"compute": 2.0, "memory": 3.0, "kv_bandwidth": 4.0, "step_s": 5.0, "prefill_s": 6.0}
    c = Calibration(preset="mine", gpu="l40s", multipliers=tuple(factors.items()), data="d")
    mine = GROUPS["engines"]["mine"]
    everywhere = mine | {
        "kv_bandwidth": 1.6,
        "walk_s": 0.25e-9,
        "step_s": 5e-3,
        "layer_s": 5e-5,
    }
    on_it = everywhere | {"compute": 1.8, "memory": 3.0}
    for gpu, engine in (("l4", everywhere), ("l40s", on_it)):
        laid = overlaid(GROUPS, c, gpu)
        assert laid["engines"]["mine"] == pytest.approx(engine)
        assert {**laid, "engines": 0} == {**GROUPS, "engines": 0}
        assert laid["engines"]["other"] == {"step_s": 2.0}


@pytest.mark.parametrize(
    ("gpu", "generation", "own"),
    [
        ("h100", {"compute_8": 0.7}, {"compute": 1.1}),
        ("h200", {"compute_8": 0.7}, {"compute": 1.1}),
        ("l4", {}, {"memory": 0.9}),
        ("a100", {}, {}),
    ],
)
def test_which_groups_speak_for_a_gpu(
    gpu: str, generation: dict[str, float], own: dict[str, float]
) -> None:
    groups = groups_of(GROUPS, find_gpu(gpu), "mine")
    assert groups.generation == GROUPS["architectures"]["*"] | generation
    assert groups.own == own
    assert (groups.shared, groups.engine) == (GROUPS["shared"], GROUPS["engines"]["mine"])
    assert (groups.links, groups.formats) == (GROUPS["links"], GROUPS["formats"])
    with pytest.raises(DataError, match="no terms of the engine preset 'yours'"):
        engine_terms(GROUPS, "yours")


def test_the_kernels_of_a_generation_are_named_by_its_first_word() -> None:
    names = ("h100", "b300", "mi355x", "rtx-5090")
    kernels = [groups_of(GROUPS, find_gpu(name), "mine").kernels for name in names]
    assert kernels == ["hopper", "blackwell", "cdna4", "rtx"]


MINE = Calibration(
    preset="-".join(("nim", "2024")),  # as a file says it, which is no other for being read
    gpu="h100-sxm-80gb",
    multipliers=(("step_s", 1.1),),
    data="10 points",
    deployments=("llama-3-8b fp16+kv-fp8 tp2", "llama-3-8b fp8 tp4"),
)
KEPT = replace(MINE, multipliers=(), left_out=(("itl_ms", 0.1, 2), ("ttft_ms", 0.1, 6)))
OWN = replace(MINE, multipliers=(), terms=(("step_s", 1.0),))
ELSEWHERE = replace(NIM, gpu=find_gpu("l40s"))
TABLE = StepSource(name="x.csv")


@pytest.mark.parametrize(
    ("changed", "calibration", "preset", "counts", "own", "mark"),
    [
        ({}, None, "nim-2024", False, False, ""),
        ({}, MINE, "nim-2024", True, False, "calibrated on 10 points"),
        (
            {},
            MINE,
            "vllm",
            False,
            False,
            "not calibrated: the measurements are of 'nim-2024', this is 'vllm'",
        ),
        (
            {"gpu": ELSEWHERE.gpu},
            MINE,
            "nim-2024",
            False,
            False,
            "calibrated on 10 points: the engine's terms only, for those of the GPU are of"
            " h100-sxm-80gb",
        ),
        (
            {"parallelism": Parallelism(tp=4)},
            MINE,
            "nim-2024",
            False,
            False,
            "calibrated on 10 points",
        ),
        (
            {"parallelism": Parallelism(tp=4), "precision": find_precision("fp8")},
            MINE,
            "nim-2024",
            True,
            False,
            "calibrated on 10 points",
        ),
        (
            {"precision": find_precision("fp16+kv-int8")},
            MINE,
            "nim-2024",
            True,
            False,
            "calibrated on 10 points",
        ),
        ({"step_source": TABLE}, MINE, "nim-2024", False, False, "calibrated on 10 points"),
        (
            {},
            KEPT,
            "nim-2024",
            True,
            False,
            "confirmed: 10 points gave nothing that predicts better than the shipped terms",
        ),
        (
            {},
            replace(KEPT, left_out=KEPT.left_out[:1]),
            "nim-2024",
            False,
            False,
            "not calibrated: 10 points gave nothing that predicts better than the shipped terms",
        ),
        ({}, OWN, "nim-2024", True, True, "terms fitted to 10 points"),
        ({}, OWN, "vllm", False, False, None),
        ({"step_source": TABLE}, OWN, "nim-2024", False, False, "terms fitted to 10 points"),
        (
            {"gpu": ELSEWHERE.gpu},
            OWN,
            "nim-2024",
            False,
            False,
            "not calibrated: the terms fitted to 10 points are of h100-sxm-80gb alone",
        ),
    ],
)
def test_what_a_calibration_is_to_a_deployment(
    changed: dict[str, Any],
    calibration: Calibration | None,
    preset: str,
    *,
    counts: bool,
    own: bool,
    mark: str | None,
) -> None:
    d = replace(NIM, calibration=calibration, **changed)
    assert calibrated_for(d, preset) == counts
    assert own_terms_of(d, preset) == own
    assert mark is None or calibration_mark(d, preset) == mark


def test_what_confirms_the_shipped_terms() -> None:
    assert confirms(KEPT)
    assert not confirms(replace(KEPT, left_out=(("ttft_ms", 0.1, 5),)))
    assert not confirms(replace(KEPT, multipliers=MINE.multipliers))


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("shared", "norm"), -0.1, "shared.norm: -0.1 is no number from 0"),
        (("links", "pcie", "large"), float("inf"), "links.pcie.large: inf is no number from 0"),
        (
            ("engines", "vllm", "zzz"),
            1.0,
            "engines.vllm.zzz: unknown key; every term is described in perf/fitted_terms.py",
        ),
        (("origins", "date"), 7, "origins.date: "),
        (
            ("origins", "engine_rows", "vllm", "where"),
            "x",
            "origins.engine_rows.vllm.where: unknown key",
        ),
    ],
)
def test_values_that_are_none_are_refused(
    path: tuple[str, ...], value: object, message: str
) -> None:
    document = copy.deepcopy(shipped())
    place = document
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    with pytest.raises(DataErrors) as caught:
        checked(document, "terms.json")
    assert str(caught.value).startswith(f"terms.json: {message}")


def test_a_number_may_be_nothing() -> None:
    document = copy.deepcopy(shipped())
    document["shared"]["norm"] = 0.0
    assert checked(document, "terms.json") is document
