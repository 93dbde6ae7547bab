import csv
from dataclasses import replace
from pathlib import Path

import pytest

from tests.deployments import deployment
from tonnage.api import deployment_of
from tonnage.perf import ranges
from tonnage.perf.ranges import coefficient_source, marks, nearest_format, nearest_gpu, nearest_model, shipped_ranges, sizes_of
from tonnage.perf.terms_file import shipped
from tonnage.spec.catalog import find_gpu, find_model, gpus, models
from tonnage.spec.deployment import Deployment
from tonnage.spec.precision import find_precision
from tools.fit.modern.rows import facts_of, lines_of
from tools.fit.silicon.dense_rows import RULES as DENSE
from tools.fit.silicon.moe_rows import RULES as MOE


def test_marks_say_what_was_not_measured() -> None:
    assert marks(deployment()) == ()
    assert marks(deployment(engine="tensorrt-llm-0.15", gpu="a100-pcie-80gb")) == ()
    assert marks(deployment(engine="vllm")) == ()
    assert "vllm" in " ".join(marks(deployment(engine="vllm", gpu="a100-pcie-80gb")))
    (transferred,) = marks(deployment(gpu="h100-pcie-80gb"))
    assert "transferred" in transferred
    (roofline,) = marks(deployment(gpu="gaudi3"))
    assert "datasheet" in roofline
    assert not [mark for mark in marks(deployment(gpu="mi300x", engine="vllm")) if mark.startswith("mi300x")]
    assert "fitted on medians" in marks(deployment(gpu="mi325x", engine="vllm"))[0]
    assert "no 16-bit measurements" in marks(deployment(gpu="b200-sxm-180gb", precision="fp16"))[0]
    assert "transferred from B200" in marks(deployment(gpu="gb200-186gb"))[0]
    (estimated,) = marks(deployment(engine="vllm", precision="tf32"))
    assert estimated.startswith("format tf32 not fitted")
    assert marks(deployment(gpu="l40s", precision="fp16")) == ()  # Mixtral was measured on it


def test_static_batches_are_marked_where_requests_enter_one_by_one() -> None:
    made = [deployment(engine=name) for name in ("nim-2024", "tensorrt-llm-0.9")]
    found = [marks(replace(one, knobs=replace(one.knobs, scheduler="static"))) for one in made]
    assert ["alternate" in " ".join(one) for one in found] == [True, False]


def test_a_precision_that_was_not_measured_on_a_measured_gpu_is_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    own = dict(shipped()["gpus"]["l40s"])
    del own["compute_16"]
    changed = {**shipped(), "gpus": {**shipped()["gpus"], "l40s": own}}
    monkeypatch.setattr(ranges, "shipped", lambda: changed)
    (mark,) = marks(deployment(gpu="l40s", precision="fp16"))
    assert mark == "l40s: no 16-bit measurements; efficiency transferred from the Ada generation"


def test_the_source_names_file_date_and_rows() -> None:
    assert coefficient_source("nim").startswith("perf/coefficients/terms.json of 2026-11-21")
    assert "trtllm_throughput.csv" in coefficient_source("tensorrt-llm-0.15")
    assert "silicon_sample.csv" in coefficient_source("vllm")


def test_latent_attention_is_marked_as_not_fitted() -> None:
    assert (
        marks(deployment(model="deepseek-v3", precision="fp8", tp=8))[-1]
        == "deepseek-v3: latent attention estimated from the datasheet, not fitted"
    )
    (other,) = marks(deployment(model="llama-4-scout", precision="fp8", tp=8))
    assert other == "llama-4-scout: no measurements of this model"


def test_a_model_without_rows_is_marked_unless_one_of_the_same_sizes_has_them() -> None:
    def of_model(name: str) -> list[str]:
        return [mark for mark in marks(deployment(model=name, precision="fp8", tp=8, engine="vllm", gpu="h200-sxm-141gb")) if name in mark]

    assert of_model("qwen3.5-397b-a17b") == of_model("deepseek-v3") == of_model("glm-5.1") == []
    assert of_model("kimi-k3") == ["kimi-k3: no measurements of this model"]


def test_the_nearest_that_was_measured_is_of_the_same_kind() -> None:
    assert nearest_model(find_model("qwen2.5-72b")) == "llama-3-70b"
    assert nearest_model(find_model("gpt-oss-20b")) == "gpt-oss-120b"
    assert nearest_model(find_model("glm-5.3")) == "glm-5"
    of_rows = shipped_ranges().gpus
    assert nearest_gpu(find_gpu("h20-96gb"), ("l40s", "h100-sxm-80gb", "h200-sxm-141gb")).startswith("h")
    assert nearest_gpu(find_gpu("gh200-144gb-hbm3e"), of_rows) == "gh200-96gb-hbm3"
    assert nearest_gpu(find_gpu("gb300-279gb"), ("b200-sxm-180gb", "h100-sxm-80gb")) == "b200-sxm-180gb"
    assert nearest_gpu(find_gpu("gaudi3"), of_rows) == ""
    assert nearest_format(find_precision("w4a8")) == "mxfp4"


DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
PLAIN = ("trtllm_static_batch.csv", "nim_inflight.csv", "trtllm_throughput.csv")


def made(model: str, gpu: str, precision: str) -> Deployment:
    return deployment_of(model=model, gpu=gpu, precision=precision, tp=1, engine="vllm")


def measured() -> tuple[set[str], set[str]]:
    """The models and the GPUs of all rows that a stage of the fit can read, from the files and from the rules of the others."""
    rows = [row for name in PLAIN for row in csv.DictReader((DATA / name).read_text(encoding="utf-8").splitlines())]
    points = lines_of(DATA / "modern" / "agg.csv.gz")
    names = {row["model"] for row in rows} | {row["model"] for row in points} | {*DENSE.models.values(), *MOE.models.values()}
    gpus = {row["gpu"] for row in rows} | {facts_of(row)["gpu"] for row in points} | {*DENSE.gpus.values(), *MOE.gpus.values()}
    return {find_model(name).name for name in names}, {find_gpu(name).name for name in gpus}


@pytest.mark.skipif(not (DATA / "modern" / "agg.csv.gz").is_file(), reason="../shared/data/modern is not there")
def test_every_model_and_gpu_without_rows_is_marked() -> None:
    """All of the catalog: a model in its own format on a measured GPU, and a measured model on every GPU that can run its format."""
    of_models, of_gpus = measured()
    sizes = {sizes_of(find_model(name)) for name in of_models}
    assert (len(of_models), len(of_gpus)) > (25, 15)
    marked = {model.name: marks(made(model.name, "b200", "")) for model in models()}
    says = {name: f"{name}: no measurements of this model" in found for name, found in marked.items()}
    assert [name for name, said in says.items() if said == (sizes_of(find_model(name)) in sizes)] == []
    of_card = {gpu.name: marks(made("llama-3.1-8b", gpu.name, "fp16")) for gpu in gpus() if gpu.name not in of_gpus}
    assert [name for name, found in of_card.items() if not any(mark.startswith(f"{name}: no") for mark in found)] == []
