"""What is said of each fitted term, held against the file of terms and against what moves when a
term does."""

from __future__ import annotations

import copy
import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.deployments import deployment
from tonnage.api import deployment_of
from tonnage.errors import DataErrors
from tonnage.perf import shipped_json
from tonnage.perf import step_terms as at
from tonnage.perf.fitted_terms import (
    FITTED_FORMATS,
    FITTED_TERMS,
    Vocabulary,
    acts_on,
    terms_by_key,
    vocabulary,
)
from tonnage.perf.memory import constants_of, weight_bytes
from tonnage.perf.ranges import (
    marks,
    nearest_format,
    nearest_gpu,
    nearest_model,
    shipped_ranges,
    sizes_of,
)
from tonnage.perf.step_terms import TERMS
from tonnage.perf.terms import client_turnaround_s, coefficients, resolve, step_model
from tonnage.perf.terms_file import ACTS_ON, OF_THE_GPU, checked, overlaid, shipped
from tonnage.spec.calibration import MULTIPLIERS, Calibration
from tonnage.spec.catalog import find_engine, find_gpu, find_model, gpus, models
from tonnage.spec.deployment import Deployment
from tonnage.spec.precision import find_precision
from tools.fit.modern.rows import facts_of, lines_of
from tools.fit.silicon.dense_rows import RULES as DENSE
from tools.fit.silicon.dense_terms import silicon_layout
from tools.fit.silicon.moe import moe_layout
from tools.fit.silicon.moe_rows import RULES as MOE
from tools.fit.terms import layout

H100, A100, H200, B200, NVL, L40S, PCIE = (
    "h100-sxm-80gb",
    "a100-sxm-80gb",
    "h200-sxm-141gb",
    "b200-sxm-180gb",
    "h100-nvl-94gb",
    "l40s",
    "a100-pcie-80gb",
)

DEPLOYMENTS = (
    # model, GPU, precision, TP, engine, attention ranks, groups of experts
    ("gpt-j-6b", A100, "fp16", 1, "tensorrt-llm-0.9", 1, 1),
    ("llama-2-70b", NVL, "fp8", 4, "tensorrt-llm-0.9", 1, 1),
    ("falcon-180b", H100, "fp8", 8, "tensorrt-llm-0.9", 1, 1),
    ("mixtral-8x7b", H100, "fp8", 4, "tensorrt-llm-0.9", 1, 1),
    ("llama-3-8b", A100, "fp16", 2, "nim-2024", 1, 1),
    ("llama-3-8b", H100, "fp8", 2, "nim-2024", 1, 1),
    ("llama-3-8b", PCIE, "fp16", 2, "nim-2024", 1, 1),
    ("llama-3-8b", PCIE, "fp16", 4, "nim-2024", 1, 1),
    ("llama-2-7b", L40S, "fp8", 2, "nim-2024", 1, 1),
    ("mixtral-8x7b", H100, "fp8", 2, "tensorrt-llm-0.10", 1, 1),
    ("mixtral-8x7b", H100, "fp8", 8, "tensorrt-llm-1.1", 1, 1),
    ("qwen3-32b", H100, "fp8", 4, "tensorrt-llm-1.1", 1, 1),
    ("qwen3-32b", B200, "nvfp4", 1, "vllm-0.10", 1, 1),
    ("gpt-oss-20b", H100, "mxfp4", 1, "vllm-0.10", 1, 1),
    ("llama-3-8b", L40S, "fp16", 4, "vllm", 1, 1),
    ("qwen3-32b", H100, "fp8", 1, "vllm-0.12", 1, 1),
    ("gemma-3-27b", H100, "fp8", 4, "nim-2024", 1, 1),
    ("gpt-oss-120b", H100, "mxfp4", 1, "vllm-0.19", 1, 1),
    ("qwen3-235b-a22b", H200, "fp8", 2, "vllm-0.19", 4, 8),
    ("qwen3-235b-a22b", B200, "fp8", 4, "tensorrt-llm-1.1", 2, 8),
    ("qwen3-235b-a22b", L40S, "fp8", 4, "vllm-0.19", 2, 8),
    ("deepseek-r1", H200, "fp8", 8, "sglang-0.5", 1, 1),
    ("deepseek-r1", B200, "nvfp4", 1, "tensorrt-llm-1.1", 8, 8),
    ("deepseek-v3.2", H200, "fp8", 8, "vllm-0.19", 1, 1),
    ("minimax-m2.5", "mi355x", "fp8", 2, "vllm-0.19", 1, 1),
    ("gpt-oss-120b", "mi300x", "mxfp4", 1, "vllm-0.19", 1, 1),
    ("llama-3.1-8b", "mi300x", "fp8", 1, "tensorrt-llm-0.9", 1, 1),
    ("deepseek-r1", "mi355x", "fp8", 8, "sglang", 1, 1),
    ("deepseek-v3.2", H200, "fp8", 8, "tensorrt-llm-0.9", 1, 1),
    ("deepseek-v4-pro", B200, "mxfp4+rest-fp8", 8, "sglang-0.5", 1, 1),
    ("minimax-m3", B200, "mxfp8", 4, "vllm-0.19", 1, 1),
    ("qwen3.5-397b-a17b", B200, "fp8", 8, "vllm-0.19", 1, 1),
    ("nemotron-3-nano-30b-a3b", H100, "fp8", 1, "vllm-0.19", 1, 1),
)
"""Of every kind that a term is for."""


def known() -> Vocabulary:
    return vocabulary(shipped()["architectures"], {*shipped()["formats"], *FITTED_FORMATS})


def moved_by(d: Deployment, group: str, owner: str, key: str) -> set[str]:
    """Names of the coefficients that change when a number of the file grows or shrinks, or is no
    longer 0."""
    number = (shipped()[group][owner] if owner else shipped()[group])[key]
    arrays = []
    for changed in (number, 0.9 * number, 1.1 * number or 1.0):
        members = (
            {**shipped()[group], owner: {**shipped()[group][owner], key: changed}}
            if owner
            else {**shipped()[group], key: changed}
        )
        resolved = resolve(
            {**shipped(), group: members},
            d.model,
            d.gpu,
            d.precision,
            d.parallelism,
            find_engine(d.engine).coefficients,
        )
        arrays.append(
            np.array(coefficients(resolved, d.model, d.gpu, d.precision, d.parallelism, d.knobs))
        )
    return {
        TERMS[place].name for other in arrays[1:] for place in np.flatnonzero(other != arrays[0])
    }


def speaks_for(deployment: Deployment, group: str, owner: str) -> bool:
    """Whether an owner of the group may have anything to do with a deployment."""
    d = deployment
    own = {
        "shared": ("",),
        "architectures": ("*", d.gpu.arch),
        "gpus": (d.gpu.name,),
        "links": tuple(shipped()["links"]),
        "engines": (find_engine(d.engine).coefficients,),
        "formats": tuple(shipped()["formats"]),
    }
    return owner in own[group]


def test_a_fitted_term_moves_the_coefficients_that_name_it() -> None:
    found: dict[str, set[str]] = {term.name: set() for term in FITTED_TERMS}
    asked = [
        dict(zip(("model", "gpu", "precision", "tp", "engine", "dp", "ep"), row, strict=True))
        for row in DEPLOYMENTS
    ]
    deployments = [deployment_of(**row, host_speed=0.5) for row in asked]
    windowed = next(d for d in deployments if d.model.windowed_layers and d.engine == "nim-2024")
    # no model of the catalog has both
    apart = replace(windowed, model=replace(windowed.model, kv_heads=windowed.model.heads))
    for d in (*deployments, apart):
        for group, owner, key, term in terms_by_key(shipped(), known()):
            assert term is not None
            if speaks_for(d, group, owner):
                found[term.name] |= moved_by(d, group, owner, key)
    assert found == {
        term.name: {one.name for one in TERMS if term.name in one.fed_by} for term in FITTED_TERMS
    }


def test_coefficients_name_fitted_terms() -> None:
    assert {name for step_term in TERMS for name in step_term.fed_by} <= {
        term.name for term in FITTED_TERMS if term.in_step
    }


def test_every_term_of_the_package_is_described_and_every_description_is_of_one() -> None:
    seen = {term.name for _, _, _, term in terms_by_key(shipped(), known()) if term is not None}
    assert seen == {term.name for term in FITTED_TERMS}
    assert len(FITTED_TERMS) == len(seen)


def test_every_factor_of_a_calibration_multiplies_a_term() -> None:
    assert set(acts_on()) == set(MULTIPLIERS)
    for factor, terms in acts_on().items():
        assert all(power in (1, -1) for _, power in terms)
        assert factor in [name for name, _ in terms]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (
            ("engines", "vllm", "kv_bandwith"),
            "engines.vllm.kv_bandwith: unknown key; did you mean kv_bandwidth",
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


# The files of constants and of held-out errors are read strictly: what is misspelt is named by its
# path. See also test_fitted_terms.py.


MEMORY, RESIDUALS = shipped_json("memory.json", ""), shipped_json("residuals.json", "")


def renamed(document: dict[str, Any], old: str, new: str) -> dict[str, Any]:
    return {new if name == old else name: value for name, value in document.items()}


def test_a_misspelt_constant_of_memory_is_refused() -> None:
    with pytest.raises(DataErrors) as caught:
        constants_of(renamed(MEMORY, "fp8_gb", "fp8_gib"), "memory.json")
    assert set(caught.value.lines) == {
        "memory.json: fp8_gb: is missing",
        "memory.json: fp8_gib: unknown key; did you mean fp8_gb?",
    }


NIM = deployment_of(
    model="llama-3-8b", gpu="h100-sxm-80gb", precision="fp16", tp=2, engine="nim-2024"
)


def calibrated(
    deployment: Deployment = NIM, gpu: str = "h100-sxm-80gb", **multipliers: float
) -> Deployment:
    found = Calibration(
        preset="nim-2024",
        gpu=gpu,
        multipliers=tuple(multipliers.items()),
        data="10 points of my.csv",
    )
    return replace(deployment, calibration=found)


MOVES = {
    "compute": (at.LINEAR_FLOPS, 0.5),
    "memory": (at.LINEAR_BYTES, 0.5),
    "kv_bandwidth": (at.CONTEXT, 0.5),
    "allreduce_s": (at.COMM_STEP, 2.0),
    "step_s": (at.HOST_STEP, 2.0),
    "sequence_s": (at.HOST_SEQUENCE, 2.0),
    "prefill_s": (at.EAGER, 2.0),
}


@pytest.mark.parametrize("name", MOVES)
def test_each_factor_moves_its_own_seconds(name: str) -> None:
    place, ratio = MOVES[name]
    before, after = step_model(NIM).coefficients, step_model(calibrated(**{name: 2.0})).coefficients
    assert after[place] / before[place] == pytest.approx(ratio, rel=1e-9)
    assert after[at.ATTENTION] == before[at.ATTENTION]


def test_front_end_and_turnaround_are_scaled_too() -> None:
    assert step_model(calibrated(frontend_s=3.0)).frontend_s == pytest.approx(
        3 * step_model(NIM).frontend_s
    )
    assert client_turnaround_s(calibrated(turnaround_s=0.5)) == pytest.approx(
        0.5 * client_turnaround_s(NIM)
    )


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


def test_another_engine_is_untouched_and_says_so() -> None:
    other = deployment_of(
        model="llama-3-8b", gpu="h100-sxm-80gb", precision="fp16", tp=2, engine="vllm"
    )
    with_it = calibrated(other, step_s=2.0)
    assert step_model(with_it).coefficients.tolist() == step_model(other).coefficients.tolist()
    assert any("not calibrated" in mark for mark in marks(with_it))


def test_marks_say_what_was_calibrated_on_what() -> None:
    assert "calibrated on 10 points of my.csv" in marks(calibrated(step_s=2.0))
    assert any("terms only" in mark for mark in marks(calibrated(gpu="l40s", step_s=2.0)))
    assert any("not calibrated" in mark for mark in marks(calibrated()))
    assert not any("calibrated" in mark for mark in marks(NIM))


# Weights as published: the totals of ``models.csv`` times the bytes of the released format, scales
# included, within 3 %.

SIZES = Path(__file__).resolve().parents[3] / "shared" / "data" / "modern" / "models.csv"
TABLES = 2.0
"""Bytes of a weight of embeddings, output head and router, which checkpoints keep in 16 bits."""

# bytes of a weight in routed experts and of the others, scales included, by the first format that
# the table has for a model
RELEASED = {
    "": (2.0, 2.0),  # Qwen3.8: nobody says
    "bf16": (2.0, 2.0),
    "fp8 block": (1.0, 1.0),
    "fp8 block 128x128": (1.0, 1.0),
    "fp8 block (official), EXL3/NVFP4 community": (1.0, 1.0),
    "mxfp8 (MiniMax-M3-MXFP8)": (8.25 / 8, 8.25 / 8),
    "experts fp4 (mxfp4), rest fp8": (4.25 / 8, 1.0),
    "routed experts mxfp4, rest bf16": (4.25 / 8, 2.0),
    "mxfp4 experts, rest bf16": (4.25 / 8, 2.0),
    "int4 QAT experts": (4.5 / 8, 2.0),
    "int4 QAT": (4.5 / 8, 2.0),
    "nvidia NVFP4": (4.5 / 8, 2.0),
    "NVFP4": (4.5 / 8, 4.5 / 8),
}


def published_bytes(row: dict[str, str]) -> float:
    """Bytes of a checkpoint from the columns of the table alone: experts and the rest in their
    formats, two tables in 16 bits at least."""
    narrow, wide = RELEASED[row["released_precision"].partition(";")[0]]
    count = {
        name: float(row[name] or 0)
        for name in ("experts", "moe_layers", "expert_inter", "expert_latent", "hidden", "vocab")
    }
    total = float(row["params_total_b"]) * 1e9
    experts = (
        count["experts"]
        * count["moe_layers"]
        * 3
        * (count["expert_latent"] or count["hidden"])
        * count["expert_inter"]
    )
    experts = 0.0 if narrow == wide else experts
    tables = count["vocab"] * count["hidden"] * (1 if row["tie_embeddings"] == "True" else 2)
    return experts * narrow + (total - experts - tables) * wide + tables * TABLES


@pytest.mark.skipif(not SIZES.is_file(), reason="../shared/data/modern is not there")
def test_weights_of_every_model_are_those_of_the_released_format() -> None:
    with SIZES.open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    found = {
        row["model"]: weight_bytes(
            deployment_of(
                model=row["model"], gpu="b200-sxm-180gb", tp=1, engine="vllm", precision=""
            )
        )
        for row in rows
    }
    off = {row["model"]: found[row["model"]] / published_bytes(row) - 1 for row in rows}
    assert len(off) == 45
    assert {name: error for name, error in off.items() if abs(error) > 0.03} == {}


@pytest.mark.parametrize(
    "model",
    [model for model in models() if model.date == "2026-11-22"],
    ids=lambda model: model.name,
)
def test_every_model_of_2026_has_weights_in_its_own_format(model) -> None:
    precision = find_precision(model.usual_precision)
    tables = model.embedding_parameters + model.further_embeddings + model.router_parameters
    found = weight_bytes(
        deployment_of(model=model.name, gpu="b200-sxm-180gb", tp=1, engine="vllm", precision="")
    )
    least, most = (
        tables * TABLES + (model.parameters - tables) * size
        for size in (precision.weight_bytes, TABLES)
    )
    assert least * 0.999 <= found <= most * 1.001
    assert found < 1.03 * least or precision.experts_only


def test_marks_say_what_was_not_measured() -> None:
    assert (
        marks(deployment())
        == marks(deployment(engine="vllm"))
        == marks(deployment(gpu="l40s", precision="fp16"))
        == ()
    )
    assert "vllm" in " ".join(marks(deployment(engine="vllm", gpu="a100-pcie-80gb")))
    assert "fitted on medians" in marks(deployment(gpu="mi325x", engine="vllm"))[0]
    for changed, said in (
        ({"gpu": "h100-pcie-80gb"}, "transferred"),
        ({"gpu": "gaudi3"}, "datasheet"),
        ({"engine": "vllm", "precision": "tf32"}, "format tf32 not fitted"),
        (
            {"model": "llama-4-scout", "precision": "fp8", "tp": 8},
            "llama-4-scout: no measurements of this model",
        ),
    ):
        (mark,) = marks(deployment(**changed))
        assert said in mark


def test_the_nearest_that_was_measured_is_of_the_same_kind() -> None:
    assert nearest_model(find_model("qwen2.5-72b")) == "llama-3-70b"
    assert nearest_model(find_model("gpt-oss-20b")) == "gpt-oss-120b"
    assert nearest_model(find_model("glm-5.3")) == "glm-5"
    of_rows = shipped_ranges().gpus
    assert nearest_gpu(
        find_gpu("h20-96gb"), ("l40s", "h100-sxm-80gb", "h200-sxm-141gb")
    ).startswith("h")
    assert nearest_gpu(find_gpu("gh200-144gb-hbm3e"), of_rows) == "gh200-96gb-hbm3"
    assert (
        nearest_gpu(find_gpu("gb300-279gb"), ("b200-sxm-180gb", "h100-sxm-80gb"))
        == "b200-sxm-180gb"
    )
    assert nearest_gpu(find_gpu("gaudi3"), of_rows) == ""
    assert nearest_format(find_precision("w4a8")) == "mxfp4"


DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
PLAIN = ("trtllm_static_batch.csv", "nim_inflight.csv", "trtllm_throughput.csv")


def made(model: str, gpu: str, precision: str) -> Deployment:
    return deployment_of(model=model, gpu=gpu, precision=precision, tp=1, engine="vllm")


def measured() -> tuple[set[str], set[str]]:
    """The models and the GPUs of all rows that a stage of the fit can read, from the files and from
    the rules of the others."""
    rows = [
        row
        for name in PLAIN
        for row in csv.DictReader((DATA / name).read_text(encoding="utf-8").splitlines())
    ]
    points = lines_of(DATA / "modern" / "agg.csv.gz")
    names = (
        {row["model"] for row in rows}
        | {row["model"] for row in points}
        | {*DENSE.models.values(), *MOE.models.values()}
    )
    gpus = (
        {row["gpu"] for row in rows}
        | {facts_of(row)["gpu"] for row in points}
        | {*DENSE.gpus.values(), *MOE.gpus.values()}
    )
    return {find_model(name).name for name in names}, {find_gpu(name).name for name in gpus}


@pytest.mark.skipif(
    not (DATA / "modern" / "agg.csv.gz").is_file(), reason="../shared/data/modern is not there"
)
def test_every_model_and_gpu_without_rows_is_marked() -> None:
    """All of the catalog: a model in its own format on a measured GPU, and a measured model on
    every GPU that can run its format."""
    of_models, of_gpus = measured()
    sizes = {sizes_of(find_model(name)) for name in of_models}
    assert (len(of_models), len(of_gpus)) > (25, 15)
    marked = {model.name: marks(made(model.name, "b200", "")) for model in models()}
    says = {
        name: f"{name}: no measurements of this model" in found for name, found in marked.items()
    }
    assert [
        name for name, said in says.items() if said == (sizes_of(find_model(name)) in sizes)
    ] == []
    of_card = {
        gpu.name: marks(made("llama-3.1-8b", gpu.name, "fp16"))
        for gpu in gpus()
        if gpu.name not in of_gpus
    }
    assert [
        name
        for name, found in of_card.items()
        if not any(mark.startswith(f"{name}: no") for mark in found)
    ] == []
