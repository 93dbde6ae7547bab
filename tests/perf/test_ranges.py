"""What was measured, and the marks of what was not."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.deployments import deployment
from tests.perf.fitted_terms_cases import NIM, calibrated
from tonnage.api import deployment_of
from tonnage.perf import ranges
from tonnage.perf.ranges import (
    FIRST_SUPPORT,
    coefficient_source,
    differs,
    first_support,
    fitted_engine,
    kind_of,
    marks,
    measured_model,
    nearest_format,
    nearest_gpu,
    nearest_model,
    second_opinion,
    shipped_ranges,
    sizes_of,
)
from tonnage.perf.terms import step_model
from tonnage.perf.terms_file import shipped
from tonnage.spec.catalog import find_engine, find_gpu, find_model, gpus, models
from tonnage.spec.deployment import (
    Deployment,
    Parallelism,
    parse_adapters,
    parse_speculation,
)
from tonnage.spec.hardware import clocked
from tonnage.spec.precision import find_precision
from tools.fit.modern.rows import facts_of, lines_of
from tools.fit.silicon.dense_rows import RULES as DENSE
from tools.fit.silicon.moe_rows import RULES as EXPERTS


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
    """A deployment on the newest vLLM that runs on the GPU."""
    engine = "vllm-0.19" if find_engine("vllm").excluded(find_gpu(gpu)) else "vllm"
    return deployment_of(model=model, gpu=gpu, precision=precision, tp=1, engine=engine)


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
        | {*DENSE.models.values(), *EXPERTS.models.values()}
    )
    gpus = (
        {row["gpu"] for row in rows}
        | {facts_of(row)["gpu"] for row in points}
        | {*DENSE.gpus.values(), *EXPERTS.gpus.values()}
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


def test_what_only_first_images_ran_is_marked_as_first_support() -> None:
    named = shipped()["origins"]["first_support"]
    assert named
    for name in named:
        family, model, precision, gpu = name.split()
        of_first = deployment(model=model, gpu=gpu, precision=precision, tp=8, engine=family)
        assert [mark for mark in marks(of_first) if FIRST_SUPPORT in mark] == [
            f"{model} {precision} on {gpu}: {FIRST_SUPPORT}"
        ]
    assert not any(
        FIRST_SUPPORT in mark
        for mark in marks(deployment(model="gpt-oss-120b", precision="mxfp4", engine="vllm"))
    )


@pytest.mark.parametrize(
    ("preset", "gpu", "fitted"),
    [
        ("vllm", "h100-sxm-80gb", True),
        ("vllm", "l40s", False),
        ("nim-2024", "l40s", True),
        ("tensorrt-llm-0.10", "h100-sxm-80gb", False),
    ],
)
def test_which_engines_were_fitted_to_a_gpu(preset: str, gpu: str, fitted: bool) -> None:
    assert fitted_engine(preset, gpu) == fitted


def test_which_models_were_measured() -> None:
    """Also another checkpoint of the same sizes, and none with one layer more."""
    model = find_model("llama-3.1-70b")
    assert measured_model(model)
    assert measured_model(replace(model, name="mine"))
    for sizes in ({"layers": 81}, {"hidden": 8200}, {"ffn": 28_680}, {"vocab": 9}, {"kv_heads": 4}):
        assert not measured_model(replace(model, name="mine", **sizes))
    experts = find_model("mixtral-8x7b")
    assert measured_model(replace(experts, name="mine"))
    for sizes in ({"experts": 16}, {"experts_per_token": 3}, {"ffn": 9}):
        assert not measured_model(replace(experts, name="mine", **sizes))


def test_kinds_of_models_and_their_rows() -> None:
    kinds = {"llama-3-8b": "dense", "mixtral-8x7b": "experts", "deepseek-v3": "latent attention"}
    for name, kind in kinds.items():
        assert kind_of(find_model(name)) == kind
        d = deployment(model=name, precision="fp8", engine="vllm")
        loads = shipped_ranges().of(d)
        assert loads == shipped_ranges().loads[shipped_ranges().generation(d)].get(kind)
    generation = shipped_ranges().generation(deployment(engine="vllm"))
    of_gpus = shipped_ranges().by_gpu(generation)
    parts = shipped_ranges().loads[generation].values()
    assert of_gpus["h100-sxm-80gb"] == sum(part.rows.get("h100-sxm-80gb", 0) for part in parts)
    assert sum(of_gpus.values()) == sum(sum(part.rows.values()) for part in parts)
    assert coefficient_source("nim").startswith("perf/coefficients/terms.json of 20")
    assert "engine terms 'nim-2024': 212 rows of nim_inflight.csv" in coefficient_source("nim")


@pytest.mark.parametrize(
    ("gpu", "among", "nearest"),
    [
        # of the same generation before one of the same kernels
        ("b300", ("b200", "gb300-279gb"), "gb300-279gb"),
        ("b300", ("b200", "h100"), "b200"),
        ("b300", ("h100", "a100"), ""),
        # its sibling, where that is among them, before one with nearer rates
        ("l4", ("rtx-4080", "l40s"), "l40s"),
        ("l4", ("rtx-4090", "rtx-4060-ti-16gb"), "rtx-4060-ti-16gb"),
        ("h200", ("h100", "h20-96gb", "h100-nvl"), "h100"),
    ],
)
def test_the_nearest_gpu(gpu: str, among: tuple[str, ...], nearest: str) -> None:
    names = [find_gpu(name).name for name in among]
    assert nearest_gpu(find_gpu(gpu), names) == (find_gpu(nearest).name if nearest else "")


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("int8-sq", "fp8"),
        ("nvfp4-a8", "mxfp4"),
        ("int4-g32", "gptq"),
        ("int2-g64", "gptq"),
        ("tf32", "bf16"),
        ("nvfp4", "nvfp4"),
        ("mxfp8", "fp8"),
    ],
)
def test_the_nearest_format_multiplies_in_as_many_bits(name: str, nearest: str) -> None:
    """And of these has the nearest weights; of 32 bits those of 16 are nearest."""
    assert nearest_format(find_precision(name)) == nearest


MOE = {"model": "minimax-m2.5", "gpu": "b200", "precision": "fp8", "tp": 4, "engine": "vllm"}


@pytest.mark.parametrize(
    ("what", "changed", "ratio"),
    [
        (MOE, {}, 1.5),
        (MOE, {"parallelism": Parallelism(tp=4, pp=2)}, 1.0),
        (MOE, {"adapters": parse_adapters("rank=16 adapters=4")}, 1.0),
        (MOE, {"gpu": clocked(find_gpu("b200"), 0.8)}, 1.0),
        (MOE, {"calibration": calibrated(step_s=2.0).calibration}, 1.0),
        # of a dense model that was measured its own rows say more
        (MOE | {"model": "llama-3.1-8b"}, {}, 1.0),
        (MOE | {"model": "phi-4"}, {}, 1.5),
    ],
)
def test_when_there_is_a_second_opinion(
    what: dict[str, Any], changed: dict[str, Any], ratio: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    d = replace(deployment(**what), **changed)
    monkeypatch.setattr(ranges.kernels, "ratio_to", lambda *_: 1.5)
    monkeypatch.setattr(ranges.kernels, "covers", lambda _: True)
    assert second_opinion.__wrapped__(d) == ratio
    monkeypatch.setattr(ranges.kernels, "covers", lambda _: False)
    assert second_opinion.__wrapped__(d) == 1.0


@pytest.mark.parametrize(
    ("ratio", "larger"), [(1.0, 1.0), (1.19, 1.0), (1.2, 1.2), (3.0, 3.0), (0.84, 1.0), (0.5, 2.0)]
)
def test_from_which_ratio_on_two_step_models_differ(
    ratio: float, larger: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranges, "second_opinion", lambda _: ratio)
    assert differs(deployment()) == larger


@pytest.mark.parametrize(
    ("what", "changed", "expected"),
    [
        (
            {"engine": "vllm"},
            {"speculation": parse_speculation("ngram k=2 acceptance=0.5")},
            [ranges.DRAFTING_MARK],
        ),
        (
            {"engine": "vllm"},
            {"adapters": parse_adapters("rank=16 adapters=4")},
            [ranges.ADAPTERS_MARK],
        ),
        (
            {"engine": "tensorrt-llm-0.10"},
            {},
            ["tensorrt-llm-0.10: no row of this version; its terms are those of tensorrt-llm-0.9"],
        ),
        (
            {"model": "mixtral-8x7b", "tp": 2},
            {"parallelism": Parallelism(tp=1, dp=2)},
            [
                "nim-2024: expert parallelism and data-parallel attention estimated from the"
                " datasheet, not fitted"
            ],
        ),
        (
            {"model": "deepseek-r1", "tp": 8, "gpu": "h200"},
            {},
            ["deepseek-r1: latent attention estimated from the datasheet, not fitted"],
        ),
        (
            {"gpu": "l40s", "precision": "gptq"},
            {},
            ["format gptq not fitted: " + shipped()["origins"]["formats"]["gptq"]],
        ),
        (
            {"model": "llama-3-8b"},
            {"model": replace(find_model("llama-3-8b"), architecture="Odd", layout="llama")},
            [
                "llama-3-8b: its architecture Odd is not known: counted by its fields alone;"
                " nearest known layout llama"
            ],
        ),
    ],
)
def test_marks_of_what_is_estimated(
    what: dict[str, Any], changed: dict[str, Any], expected: list[str]
) -> None:
    assert list(marks(replace(deployment(**what), **changed))) == expected


def test_first_support_is_of_a_model_a_format_a_gpu_and_an_engine() -> None:
    family, model, precision, gpu = shipped()["origins"]["first_support"][0].split()
    first = deployment(model=model, gpu=gpu, precision=precision, tp=8, engine=family)
    assert first_support(first)
    assert first_support(replace(first, precision=find_precision(f"{precision}+kv-fp8")))
    assert not first_support(replace(first, precision=find_precision("fp16")))
    assert not first_support(replace(first, gpu=find_gpu("l40s")))
    assert not first_support(replace(first, engine=find_engine("tensorrt-llm-0.9").name))
