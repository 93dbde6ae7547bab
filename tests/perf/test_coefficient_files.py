"""The files of constants and of held-out errors are read strictly: what is misspelt is named by its path. See also test_fitted_terms.py."""

from __future__ import annotations

import copy
import csv
import shutil
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from tests.deployments import deployment
from tonnage import perf
from tonnage.api import deployment_of
from tonnage.errors import DataError, DataErrors
from tonnage.perf import memory as reserves
from tonnage.perf import ranges, residuals, shipped_json
from tonnage.perf import step_terms as at
from tonnage.perf.memory import constants_of, memory_constants, weight_bytes
from tonnage.perf.ranges import coefficient_source, marks, nearest_format, nearest_gpu, nearest_model, shipped_ranges, sizes_of
from tonnage.perf.residuals import residuals_of, shipped_residuals
from tonnage.perf.terms import client_turnaround_s, step_model
from tonnage.perf.terms_file import ACTS_ON, OF_THE_GPU, overlaid, shipped
from tonnage.spec.calibration import MULTIPLIERS, Calibration
from tonnage.spec.catalog import find_gpu, find_model, gpus, models
from tonnage.spec.deployment import Deployment
from tonnage.spec.precision import find_precision
from tools.fit.modern.rows import facts_of, lines_of
from tools.fit.silicon.dense_rows import RULES as DENSE
from tools.fit.silicon.moe_rows import RULES as MOE

MEMORY, RESIDUALS = shipped_json("memory.json", ""), shipped_json("residuals.json", "")


def changed(document: dict[str, Any], *path: str, value: Any = 1.0) -> dict[str, Any]:
    """The document with one value at a path, which may be new."""
    found = copy.deepcopy(document)
    place = found
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    return found


def renamed(document: dict[str, Any], old: str, new: str) -> dict[str, Any]:
    return {new if name == old else name: value for name, value in document.items()}


def test_a_misspelt_constant_of_memory_is_refused() -> None:
    with pytest.raises(DataErrors) as caught:
        constants_of(renamed(MEMORY, "fp8_gb", "fp8_gib"), "memory.json")
    assert set(caught.value.lines) == {"memory.json: fp8_gb: is missing", "memory.json: fp8_gib: unknown key; did you mean fp8_gb?"}


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (("activation_mlp", "fnn"), "activation_mlp.fnn: unknown key; did you mean ffn"),
        (("context_gb", "Hoper"), "context_gb.Hoper: no GPU is of this generation"),
        (("communication_gb", "nvlink Amper"), "communication_gb.nvlink Amper: no GPUs are joined so"),
    ],
)
def test_so_is_any_other_key_of_memory(path: tuple[str, ...], message: str) -> None:
    with pytest.raises(DataErrors, match=message):
        constants_of(changed(MEMORY, *path), "memory.json")


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("quantile",), {}, "quantile: unknown key; did you mean quantiles"),
        (("quantiles", "itl"), {}, "quantiles.itl: unknown key"),
        (("quantiles", "itl_ms", "heavy, prompts"), [0.0] * 9, "quantiles.itl_ms.heavy, prompts: unknown key"),
        (("quantiles", "itl_ms", "heavy"), [0.0] * 8, "quantiles.itl_ms.heavy: holds no 9 quantiles"),
        (("stretch", "ttft_ms", "havy"), 1.0, "stretch.ttft_ms.havy: unknown key"),
        (("unseen_gpu", "ttft_ms", "static"), "1", "unseen_gpu.ttft_ms.static: '1' is not a number"),
        (("widths", "computes"), 0.1, "widths.computes: unknown key"),
    ],
)
def test_a_key_that_no_prediction_asks_for_is_refused(path: tuple[str, ...], value: object, message: str) -> None:
    with pytest.raises(DataErrors, match=message):
        residuals_of(changed(RESIDUALS, *path, value=value))


def test_what_is_read_is_what_is_written() -> None:
    table, memory = shipped_residuals(), memory_constants()
    assert {metric: {key: list(v) for key, v in by.items()} for metric, by in table.quantiles.items()} == RESIDUALS["quantiles"]
    assert table.stretch == RESIDUALS["stretch"]
    assert table.widths == RESIDUALS["widths"]
    assert memory.context_gb == MEMORY["context_gb"]
    assert memory.activation_mlp.ffn == MEMORY["activation_mlp"]["ffn"]


READERS = {"memory.json": reserves.memory_constants, "residuals.json": residuals.shipped_residuals}


@pytest.mark.parametrize(("text", "said"), [("{", "Expecting"), ("[1]", "is no object"), (None, "No such file")])
@pytest.mark.parametrize("name", READERS)
def test_a_damaged_file_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, text: str | None, said: str) -> None:
    shutil.copytree(str(resources.files("tonnage.perf") / "coefficients"), tmp_path / "coefficients")
    (tmp_path / "coefficients" / name).unlink()
    if text is not None:
        (tmp_path / "coefficients" / name).write_text(text, encoding="utf-8")
    monkeypatch.setattr(perf.resources, "files", lambda package: tmp_path)
    with pytest.raises(DataError, match=rf"perf/coefficients/{name}: .*{said}") as caught:
        READERS[name].__wrapped__()
    assert "\n" not in str(caught.value)


NIM = deployment_of(model="llama-3-8b", gpu="h100-sxm-80gb", precision="fp16", tp=2, engine="nim-2024")


def calibrated(deployment: Deployment = NIM, gpu: str = "h100-sxm-80gb", **multipliers: float) -> Deployment:
    found = Calibration(preset="nim-2024", gpu=gpu, multipliers=tuple(multipliers.items()), data="10 points of my.csv")
    return replace(deployment, calibration=found)


MOVES = {
    "compute": (at.LINEAR_FLOPS, 0.5),
    "memory": (at.LINEAR_BYTES, 0.5),
    "kv_bandwidth": (at.CONTEXT, 0.5),
    "allreduce_s": (at.COMM_STEP, 2.0),
    "step_s": (at.HOST_STEP, 2.0),
    "sequence_s": (at.HOST_SEQUENCE, 2.0),
    "prefill_s": (at.HOST_PREFILL, 2.0),
}


@pytest.mark.parametrize("name", MOVES)
def test_each_factor_moves_its_own_seconds(name: str) -> None:
    place, ratio = MOVES[name]
    before, after = step_model(NIM).coefficients, step_model(calibrated(**{name: 2.0})).coefficients
    assert after[place] / before[place] == pytest.approx(ratio, rel=1e-9)
    assert after[at.ATTENTION] == before[at.ATTENTION]


def test_front_end_and_turnaround_are_scaled_too() -> None:
    assert step_model(calibrated(frontend_s=3.0)).frontend_s == pytest.approx(3 * step_model(NIM).frontend_s)
    assert client_turnaround_s(calibrated(turnaround_s=0.5)) == pytest.approx(0.5 * client_turnaround_s(NIM))


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
    other = deployment_of(model="llama-3-8b", gpu="h100-sxm-80gb", precision="fp16", tp=2, engine="vllm")
    with_it = calibrated(other, step_s=2.0)
    assert step_model(with_it).coefficients.tolist() == step_model(other).coefficients.tolist()
    assert any("not calibrated" in mark for mark in marks(with_it))


def test_marks_say_what_was_calibrated_on_what() -> None:
    assert "calibrated on 10 points of my.csv" in marks(calibrated(step_s=2.0))
    assert any("terms only" in mark for mark in marks(calibrated(gpu="l40s", step_s=2.0)))
    assert any("not calibrated" in mark for mark in marks(calibrated()))
    assert not any("calibrated" in mark for mark in marks(NIM))


# Weights as published: the totals of ``models.csv`` times the bytes of the released format, scales included, within 3 %.

SIZES = Path(__file__).resolve().parents[3] / "shared" / "data" / "modern" / "models.csv"
TABLES = 2.0
"""Bytes of a weight of embeddings, output head and router, which checkpoints keep in 16 bits."""

# bytes of a weight in routed experts and of the others, scales included, by the first format that the table has for a model
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
    """Bytes of a checkpoint from the columns of the table alone: experts and the rest in their formats, two tables in 16 bits at least."""
    narrow, wide = RELEASED[row["released_precision"].partition(";")[0]]
    count = {name: float(row[name] or 0) for name in ("experts", "moe_layers", "expert_inter", "expert_latent", "hidden", "vocab")}
    total = float(row["params_total_b"]) * 1e9
    experts = count["experts"] * count["moe_layers"] * 3 * (count["expert_latent"] or count["hidden"]) * count["expert_inter"]
    experts = 0.0 if narrow == wide else experts
    tables = count["vocab"] * count["hidden"] * (1 if row["tie_embeddings"] == "True" else 2)
    return experts * narrow + (total - experts - tables) * wide + tables * TABLES


@pytest.mark.skipif(not SIZES.is_file(), reason="../shared/data/modern is not there")
def test_weights_of_every_model_are_those_of_the_released_format() -> None:
    with SIZES.open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    found = {
        row["model"]: weight_bytes(deployment_of(model=row["model"], gpu="b200-sxm-180gb", tp=1, engine="vllm", precision=""))
        for row in rows
    }
    off = {row["model"]: found[row["model"]] / published_bytes(row) - 1 for row in rows}
    assert len(off) == 45
    assert {name: error for name, error in off.items() if abs(error) > 0.03} == {}


@pytest.mark.parametrize("model", [model for model in models() if model.date == "2026-11-22"], ids=lambda model: model.name)
def test_every_model_of_2026_has_weights_in_its_own_format(model) -> None:
    precision = find_precision(model.usual_precision)
    tables = model.embedding_parameters + model.further_embeddings + model.router_parameters
    found = weight_bytes(deployment_of(model=model.name, gpu="b200-sxm-180gb", tp=1, engine="vllm", precision=""))
    least, most = (tables * TABLES + (model.parameters - tables) * size for size in (precision.weight_bytes, TABLES))
    assert least * 0.999 <= found <= most * 1.001
    assert found < 1.03 * least or precision.experts_only


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
