"""What is said of each fitted term, held against the file of terms and against what moves when a
term does."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.perf.fitted_terms_cases import (
    A100,
    B200,
    H100,
    H200,
    L40S,
    NIM,
    NVL,
    PCIE,
    calibrated,
    known,
)
from tonnage.api import deployment_of
from tonnage.errors import DataErrors
from tonnage.perf import shipped_json
from tonnage.perf import step_terms as at
from tonnage.perf.fitted_terms import (
    FITTED_TERMS,
    acts_on,
    known_keys,
    terms_by_key,
)
from tonnage.perf.memory import constants_of, weight_bytes
from tonnage.perf.step_terms import TERMS
from tonnage.perf.terms import client_turnaround_s, coefficients, resolve, step_model
from tonnage.perf.terms_file import shipped
from tonnage.spec.calibration import MULTIPLIERS
from tonnage.spec.catalog import find_engine, find_gpu, models
from tonnage.spec.deployment import Deployment
from tonnage.spec.precision import find_precision

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
    ("llama-3.1-8b", H100, "fp8", 1, "tensorrt-llm-0.9", 1, 1),
    ("deepseek-r1", "mi355x", "fp8", 8, "sglang", 1, 1),
    ("deepseek-v3.2", H200, "fp8", 8, "tensorrt-llm-0.9", 1, 1),
    ("deepseek-v4-pro", B200, "mxfp4+rest-fp8", 8, "sglang-0.5", 1, 1),
    ("minimax-m3", B200, "mxfp8", 4, "vllm-0.19", 1, 1),
    ("qwen3.5-397b-a17b", B200, "fp8", 8, "vllm-0.19", 1, 1),
    ("nemotron-3-nano-30b-a3b", H100, "fp8", 1, "vllm-0.19", 1, 1),
)
"""Of every kind that a term is for."""


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
    # a generation has the term, and none of its GPUs an engine that uses it
    of_nvidia = next(d for d in deployments if d.model.name == "llama-3.1-8b")
    of_amd = replace(of_nvidia, gpu=find_gpu("mi300x"))
    for d in (*deployments, apart, of_amd):
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


def test_what_each_factor_multiplies_by_name() -> None:
    """A host's layers are part of its steps; walking a context takes less where the cache is read
    faster."""
    assert acts_on() == {
        "compute": (("compute", 1),),
        "memory": (("memory", 1),),
        "kv_bandwidth": (("kv_bandwidth", 1), ("head_arithmetic", 1), ("walk_s", -1)),
        "allreduce_s": (("allreduce_s", 1),),
        "step_s": (("layer_s", 1), ("step_s", 1)),
        "sequence_s": (("sequence_s", 1), ("response_s", 1)),
        "prefill_s": (("prefill_s", 1), ("prefill_ranks_s", 1)),
        "frontend_s": (("frontend_s", 1),),
        "turnaround_s": (("turnaround_s", 1),),
    }


def test_terms_in_seconds_are_named_so_and_four_are_outside_of_steps() -> None:
    seconds = {term.name for term in FITTED_TERMS if term.unit == "s"}
    assert seconds == {term.name for term in FITTED_TERMS if term.name.endswith("_s")} - {
        "block_bytes_s"
    }
    others = {term.name for term in FITTED_TERMS if not term.in_step}
    assert others == {"frontend_s", "stream_s", "response_s", "turnaround_s"}


def test_keys_of_a_group_as_they_are_suggested() -> None:
    assert known_keys("links") == ("efficiency", "tp{gpus}", "small", "latency", "power", "large")
    assert known_keys("gpus") == (
        "compute",
        "compute_{bits}",
        "compute_{generation}",
        "compute_{generation}_{format}",
        "memory",
        "memory_{bits}",
        "bridge",
        "link",
    )


@pytest.mark.parametrize(
    ("group", "key", "name"),
    [
        ("engines", "compute_8", "compute"),
        ("engines", "compute_blackwell_nvfp4", "compute"),
        ("engines", "compute_blackwell_ultra", None),
        ("engines", "compute_32", None),
        ("engines", "layer_kv_8bit_hopper_s", "layer_kv_8bit_s"),
        ("engines", "layer_kv_8bit_s", None),
        ("engines", "expert_compute_mxfp4 unpacked", "expert_compute"),
        ("engines", "expert_hopper", "expert_generation"),
        ("links", "tp16", "tp"),
        ("links", "tp0", None),
        ("links", "tp", None),
        ("links", "compute", None),
        ("architectures", "kv", "generation_kv"),
        ("shared", "stream_s", None),
    ],
)
def test_which_term_a_key_is_of(group: Any, key: str, name: str | None) -> None:
    term = known().term(group, key)
    assert (None if term is None else term.name) == name
