from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.silicon_sample import sample
from tonnage import api
from tonnage.evidence.predict import read_point
from tonnage.evidence.rows import errors
from tonnage.perf.terms import resolve
from tonnage.perf.terms_file import shipped
from tonnage.report.scored import scored
from tonnage.report.writers.terminal import terminal
from tonnage.spec.catalog import find_gpu, find_model
from tonnage.spec.deployment import Parallelism
from tonnage.spec.precision import find_precision
from tools.fit.silicon.moe import OLDER, carried_over, moe_layout, preset, solve_moe
from tools.fit.silicon.moe_rows import degrees, select_moe
from tools.fit.silicon.silicon_rows import SiliconRows
from tools.fit.silicon.table import silicon_table

SPLIT = ("tp_size", "attention_dp_size", "moe_tp_size", "moe_ep_size")


def line(split: tuple[int, int, int, int] = (8, 1, 8, 1), dump: str = "2026-03-25.csv", **changed: str) -> dict[str, str]:
    day = changed.pop("day", "2026-03-01")
    clients = changed.get("clients", "16")
    found = {
        "mode": "agg",
        "model_path": "MiniMaxAI/MiniMax-M2.5",
        "system": "h200_sxm",
        "backend": "vllm",
        "backend_version": "0.18.0",
        "precision": "fp8",
        "batch_size": changed.pop("clients", "16"),
        "isl": "1024",
        "osl": "1024",
        "pp_size": "1",
        "silicon_data_source": f"source_file={dump}; silicon_concurrency={clients}; measured={day}",
        "silicon_ttft_ms": "100.5",
        "silicon_tpot_ms": "12.5",
    }
    return found | {name: str(n) for name, n in zip(SPLIT, split, strict=True)} | changed


@pytest.mark.parametrize(
    ("split", "dump", "ran"),
    [
        ((64, 1, 8, 8), "2026-04-06.csv", (8, 1, 8)),
        ((1, 64, 8, 8), "2026-04-06.csv", (1, 8, 8)),
        ((4, 4, 1, 16), "2026-04-06.csv", (4, 1, 4)),
        ((2, 2, 1, 4), "db", (2, 1, 2)),
        ((16, 1, 4, 4), "2026-04-06.csv", (4, 1, 4)),
        ((1, 8, 1, 8), "2026-03-25.csv", (1, 8, 8)),
        ((8, 1, 8, 1), "2026-04-06.csv", (8, 1, 1)),
        ((4, 1, 2, 2), "2026-03-25.csv", (4, 1, 2)),
    ],
)
def test_degrees_are_those_that_ran(split: tuple[int, int, int, int], dump: str, ran: tuple[int, int, int]) -> None:
    changed = {"silicon_data_source": "db-dump/2026-04-27; silicon_concurrency=16"} if dump == "db" else {}
    assert degrees(line(split, dump, **changed)) == ran


def select(folder: Path, *lines: dict[str, str]) -> tuple[int, dict[str, int]]:
    found = select_moe(sample(folder, *lines))
    return len(found.rows), found.left_out


def test_traps_of_the_file_are_left_out_and_counted(tmp_path: Path) -> None:
    deepseek = {"model_path": "deepseek-ai/DeepSeek-R1", "backend": "trtllm"}
    found = select(
        tmp_path,
        line(),
        line((64, 1, 8, 8), "2026-04-06.csv", **deepseek, day="2025-12-15"),
        line(**deepseek, day="2026-02-05"),
        line(model_path="zai-org/GLM-5"),
        line(model_path="openai/gpt-oss-120b", precision="fp4", system="h100_sxm", day="2025-12-05"),
        line((16, 1, 16, 1)),
        line(silicon_ttft_ms=""),
    )
    assert found == (
        2,
        {
            "multi-token prediction, not said": 1,
            "not one of the models": 1,
            "fewer slots than clients, not said": 1,
            "more GPUs than a server has": 1,
            "no measured value": 1,
        },
    )


def test_a_measurement_counts_once_whatever_dump_names_its_degrees(tmp_path: Path) -> None:
    count, left_out = select(tmp_path, line((4, 4, 1, 16), "2026-04-06.csv"), line((4, 1, 1, 4)))
    assert (count, left_out) == (1, {"same measurement in another dump": 1})


def test_a_run_far_slower_than_another_of_the_same_is_left_out(tmp_path: Path) -> None:
    slow, slower = line(silicon_tpot_ms="24.0"), line(silicon_tpot_ms="48.0")
    assert select(tmp_path, line(), slow) == (2, {})
    assert select(tmp_path, line(), slow, slower) == (2, {"slowed by something else": 1})
    assert select(tmp_path, line(), line(clients="64", silicon_tpot_ms="48.0")) == (2, {})


def rows_of(folder: Path, *lines: dict[str, str]) -> list[dict[str, object]]:
    select(folder, *lines)
    return [dict(row) for row in select_moe(folder / "silicon_sample.csv").rows]


def test_runs_of_deepseek_with_drafts_are_left_out_by_clients_dump_and_speed(tmp_path: Path) -> None:
    plain = {
        "model_path": "deepseek-ai/DeepSeek-R1",
        "backend": "sglang",
        "system": "b200_sxm",
        "day": "2026-03-25",
        "backend_version": "0.5.9",
    }
    fast = plain | {"silicon_tpot_ms": "8.5"}
    twice = [
        line(dump=dump, **found) for found in (plain, fast, plain | {"clients": "128"}) for dump in ("2026-03-25.csv", "2026-04-06.csv")
    ]
    alone = line(**plain, isl="8192")
    found = rows_of(tmp_path, *twice, alone)
    assert [(row["itl_ms"], row["concurrency"], row["isl"]) for row in found] == [(12.5, 16, 1024)]
    chosen = select_moe(tmp_path / "silicon_sample.csv")
    assert chosen.left_out == {"multi-token prediction, not said": 3, "same measurement in another dump": 3}
    assert chosen.evidence == {"measured-twice": 3, "only-contradicts-us": 3}
    unexplained = {(row["itl_ms"], row["concurrency"], row["isl"]) for row in chosen.unexplained}
    assert unexplained == {(8.5, 16, 1024), (12.5, 128, 1024), (12.5, 16, 8192)}


def test_what_only_contradicts_us_is_scored_apart(tmp_path: Path) -> None:
    """gpt-oss of 2025-11-02 is used again; runs that nothing but the predictions speaks against are scored, and not fitted."""
    gpt_oss = {"model_path": "openai/gpt-oss-120b", "precision": "fp4", "system": "h100_sxm", "clients": "4"}
    untuned = line(model_path="Qwen/Qwen3-235B-A22B-FP8", clients="4", silicon_tpot_ms="40")
    waiting = line(**gpt_oss, day="2025-12-05", silicon_ttft_ms="20000")
    file = sample(tmp_path, line(**gpt_oss, day="2025-11-02"), waiting, untuned, line(silicon_ttft_ms=""))
    chosen = select_moe(file)
    assert [row["model"] for row in chosen.rows] == ["gpt-oss-120b"]
    assert [row["why"] for row in chosen.unexplained] == ["fewer slots than clients, not said", "no tuned kernel"]
    report = api.score(silicon_table(file))
    apart = report.apart["unexplained"]
    assert (report.rows, apart.rows, apart.overall["itl_ms"].n) == (1, 2, 2)
    assert apart.overall["itl_ms"].mape > 5
    assert "2 rows that only contradict the predictions" in apart.remarks[0]
    assert "By evidence: 2 only-contradicts-us, 1 stated-by-source" in report.remarks[1]
    assert "Apart: unexplained\n2 of 2 rows predicted" in terminal(scored(report))


def test_ranks_that_only_the_configuration_tells(tmp_path: Path) -> None:
    asked = {"system": "b300_sxm", "precision": "fp4", "clients": "64"}
    source = "db-dump/2026-04-27; config_id={}; silicon_concurrency=64; measured=2026-04-21T00:00:00.000Z"
    lines = [line((2, 2, 1, 4), **asked, silicon_data_source=source.format(n), silicon_tpot_ms=str(n)) for n in (726, 727)]
    found = rows_of(tmp_path, *lines)
    assert [(row["tp"], row["dp"], row["ep"]) for row in found] == [(2, 1, 2), (1, 2, 2)]


def test_short_prompts_of_nvidias_runs_share_a_step(tmp_path: Path) -> None:
    qwen = {"model_path": "Qwen/Qwen3-235B-A22B-FP8", "backend": "trtllm", "system": "h100_sxm", "dump": "/Users/one.csv"}
    short, long = line(**qwen, isl="128"), line(**qwen, isl="2048")
    assert [row["budget"] for row in rows_of(tmp_path, short, long)] == [512 + 16, 2048 + 16]


def test_versions_have_presets_of_their_own(tmp_path: Path) -> None:
    deepseek = {"model_path": "deepseek-ai/DeepSeek-R1", "system": "h200_sxm", "day": "2025-12-15"}
    versions = (("trtllm", "1.1.0rc2.post2"), ("trtllm", "1.2.0rc6.post2"), ("trtllm", ""), ("sglang", "0.5.6"), ("sglang", "0.5.9"))
    lines = [line(**deepseek, backend=b, backend_version=v, silicon_tpot_ms=str(20 + n)) for n, (b, v) in enumerate(versions)]
    engines = [row["engine"] for row in rows_of(tmp_path, *lines)]
    assert engines == ["tensorrt-llm-1.1", "tensorrt-llm-1.2", "tensorrt-llm-1.1", "sglang-0.5", "sglang-0.5.9"]


def test_gpt_oss_on_b200_was_a_version_ahead(tmp_path: Path) -> None:
    gptoss = {"model_path": "openai/gpt-oss-120b", "backend": "trtllm", "backend_version": "", "precision": "fp4", "day": "2025-11-02"}
    lines = [line((4, 1, 4, 1), **gptoss, system=system, silicon_tpot_ms=system[1:4]) for system in ("b200_sxm", "h200_sxm")]
    assert [row["engine"] for row in rows_of(tmp_path, *lines)] == ["tensorrt-llm-1.2", "tensorrt-llm-1.1"]


def test_attention_ranks_that_only_the_script_tells(tmp_path: Path) -> None:
    deepseek = {"model_path": "deepseek-ai/DeepSeek-R1", "system": "b200_sxm", "precision": "fp4", "backend": "trtllm"}
    asked = deepseek | {"isl": "8192", "osl": "1024", "clients": "64", "day": "2025-11-02"}
    (row,) = rows_of(tmp_path, line((8, 1, 8, 1), **asked))
    assert (row["tp"], row["dp"], row["ep"]) == (1, 8, 8)
    assert read_point(row).deployment.parallelism == Parallelism(tp=1, dp=8, ep=8)


Row = dict[str, object]


def rows() -> list[Row]:
    found: list[Row] = []
    for model, engine, precision in (("minimax-m2.5", "vllm-0.19", "fp8"), ("qwen3-235b-a22b", "tensorrt-llm-1.1", "fp8")):
        for clients in (2, 16, 64):
            for isl in (200, 2000):
                what = {"model": model, "gpu": "h200-sxm-141gb", "precision": precision, "engine": engine, "tp": 8, "dp": 1, "ep": 8}
                run = {"isl": isl, "osl": 40, "concurrency": clients, "spread": 0.0, "slots": 64, "budget": 8192}
                found.append({**what, **run, "ttft_ms": 1.0, "itl_ms": 1.0})
    return found


@pytest.mark.accuracy
def test_the_fit_finds_terms_again_that_made_the_rows() -> None:
    """Rows made with twice the arithmetic and a different time per layer: the fit comes back to their times from its start."""
    made = rows()
    layout = moe_layout(shipped(), {preset(row) for row in made})
    x = layout.start.copy()
    x[layout.names.index("expert_compute")] += 0.5
    x[layout.names.index("expert_layer")] += 0.3
    parts = SiliconRows(made)
    parts.simulate(layout.terms(x))
    for name in ("ttft_ms", "itl_ms"):
        for row, value in zip(made, parts.simulated(name).tolist(), strict=True):
            row[name] = value
    before, after = (errors(SiliconRows(made), t)["itl_ms"] for t in (layout.terms(layout.start), solve_moe(layout, made)))
    assert np.abs(before).mean() > 0.03
    assert np.abs(after).mean() < 0.4 * np.abs(before).mean()


def test_an_engine_without_a_correction_has_what_all_share_and_dense_terms_stay() -> None:
    layout = moe_layout(shipped(), {"vllm", "tensorrt-llm-1.1"})
    x = layout.start.copy()
    x[layout.names.index("expert_rows")] += 1.0
    x[layout.names.index("vllm.expert_rows")] += 0.1
    found = layout.terms(x)["engines"]
    assert found["vllm"]["expert_rows"] == pytest.approx(found["tensorrt-llm-1.1"]["expert_rows"] * np.exp(0.1))
    for term, value in shipped()["engines"]["vllm"].items():
        if not term.startswith(("expert_", "latent_", "dispatch")):
            assert found["vllm"][term] == value
    assert found["nim-2024"] == shipped()["engines"]["nim-2024"]


def test_what_blackwell_saves_per_layer_holds_where_experts_are_fused() -> None:
    layout = moe_layout(shipped(), {"vllm", "tensorrt-llm-1.1"})
    x = layout.start.copy()
    x[layout.names.index("expert_layer")] += 0.5
    x[layout.names.index("expert_layer_blackwell")] -= 0.2
    terms = layout.terms(x)

    def layer_s(engine: str, precision: str, gpu: str = "b200") -> float:
        formats, of = find_gpu(gpu).executes(find_precision(precision)), (find_model("deepseek-r1"), find_gpu(gpu))
        found = resolve(terms, *of, formats, Parallelism(tp=8), engine)
        return found.experts.layer_s / (terms["engines"][engine]["layer_s"] * terms["architectures"][of[1].arch].get("layer", 1.0)) + 1

    whole, saved = np.exp(0.5), np.exp(0.3)
    for gpu in ("b200", "b300"):
        assert [layer_s("tensorrt-llm-1.1", p, gpu) for p in ("fp8", "nvfp4+experts")] == pytest.approx([whole, saved])
        assert [layer_s("vllm", p, gpu) for p in ("fp8", "nvfp4+experts", "gptq+experts")] == pytest.approx([saved, saved, whole])
    assert layer_s("vllm", "fp8", "h200") == pytest.approx(whole)


def test_without_the_file_the_shipped_terms_stay() -> None:
    found = carried_over(shipped())
    assert found["engines"] == shipped()["engines"]
    assert found["report"] == shipped()["report"]


def test_an_older_version_is_corrected_from_the_next_one() -> None:
    layout = moe_layout(shipped(), {"sglang", "sglang-0.5.9", "vllm"})
    x = layout.start.copy()
    x[layout.names.index("sglang-0.5.9.expert_layer")] += 0.2
    x[layout.names.index("sglang.expert_layer")] += 0.1
    before, after = (layout.terms(values)["engines"] for values in (layout.start, x))
    factors = {name: after[name]["expert_layer"] / before[name]["expert_layer"] for name in layout.engines}
    assert factors == pytest.approx({"sglang": np.exp(0.3), "sglang-0.5.9": np.exp(0.2), "vllm": 1.0})
    x[layout.names.index(f"{OLDER}.expert_layer")] += 0.4
    all_older = layout.terms(x)["engines"]
    shared = {name: all_older[name]["expert_layer"] / after[name]["expert_layer"] for name in layout.engines}
    assert shared == pytest.approx({"sglang": np.exp(0.4), "sglang-0.5.9": 1.0, "vllm": 1.0})
    alone = moe_layout(shipped(), {"sglang", "vllm"})
    assert "sglang-0.5.9.expert_layer" not in alone.names
