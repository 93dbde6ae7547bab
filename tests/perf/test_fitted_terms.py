"""What is said of each fitted term, held against the file of terms and against what moves when a term does."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest

from tonnage.api import deployment_of
from tonnage.errors import DataErrors
from tonnage.perf.fitted_terms import FITTED_FORMATS, FITTED_TERMS, Vocabulary, acts_on, terms_by_key, vocabulary
from tonnage.perf.step_terms import TERMS
from tonnage.perf.terms import coefficients, resolve
from tonnage.perf.terms_file import checked, shipped
from tonnage.spec.calibration import MULTIPLIERS
from tonnage.spec.catalog import find_engine
from tonnage.spec.deployment import Deployment
from tools.fit.silicon.dense_terms import silicon_layout
from tools.fit.silicon.moe import moe_layout
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
    """Names of the coefficients that change when a number of the file grows or shrinks, or is no longer 0."""
    number = (shipped()[group][owner] if owner else shipped()[group])[key]
    arrays = []
    for changed in (number, 0.9 * number, 1.1 * number or 1.0):
        members = {**shipped()[group], owner: {**shipped()[group][owner], key: changed}} if owner else {**shipped()[group], key: changed}
        resolved = resolve({**shipped(), group: members}, d.model, d.gpu, d.precision, d.parallelism, find_engine(d.engine).coefficients)
        arrays.append(np.array(coefficients(resolved, d.model, d.gpu, d.precision, d.parallelism, d.knobs)))
    return {TERMS[place].name for other in arrays[1:] for place in np.flatnonzero(other != arrays[0])}


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
    asked = [dict(zip(("model", "gpu", "precision", "tp", "engine", "dp", "ep"), row, strict=True)) for row in DEPLOYMENTS]
    deployments = [deployment_of(**row) for row in asked]
    windowed = next(d for d in deployments if d.model.windowed_layers and d.engine == "nim-2024")
    apart = replace(windowed, model=replace(windowed.model, kv_heads=windowed.model.heads))  # no model of the catalog has both
    for d in (*deployments, apart):
        for group, owner, key, term in terms_by_key(shipped(), known()):
            assert term is not None
            if speaks_for(d, group, owner):
                found[term.name] |= moved_by(d, group, owner, key)
    assert found == {term.name: {one.name for one in TERMS if term.name in one.fed_by} for term in FITTED_TERMS}


def test_coefficients_name_fitted_terms() -> None:
    assert {name for step_term in TERMS for name in step_term.fed_by} <= {term.name for term in FITTED_TERMS if term.in_step}


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
        (("engines", "vllm", "kv_bandwith"), "engines.vllm.kv_bandwith: unknown key; did you mean kv_bandwidth"),
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
