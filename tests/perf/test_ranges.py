"""What was measured, and the marks of what was not."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from tests.deployments import deployment
from tests.perf.fitted_terms_cases import NIM, calibrated
from tonnage.api import deployment_of
from tonnage.perf.ranges import (
    FIRST_SUPPORT,
    marks,
    nearest_format,
    nearest_gpu,
    nearest_model,
    shipped_ranges,
    sizes_of,
)
from tonnage.perf.terms import step_model
from tonnage.perf.terms_file import shipped
from tonnage.spec.catalog import find_engine, find_gpu, find_model, gpus, models
from tonnage.spec.deployment import Deployment
from tonnage.spec.precision import find_precision
from tools.fit.modern.rows import facts_of, lines_of
from tools.fit.silicon.dense_rows import RULES as DENSE
from tools.fit.silicon.moe_rows import RULES as MOE


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
