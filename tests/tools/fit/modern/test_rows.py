"""The points of 2026: which lines are used, and what their runs had set."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import numpy as np
import pytest

from tonnage.perf.terms_file import shipped
from tonnage.spec.catalog import find_engine
from tools.fit.modern.fit import (
    MOST_CLIENTS,
    MOVED,
    Older,
    by_class,
    first_without,
    floor,
    is_moved,
    newest,
    older_without,
    thinned,
)
from tools.fit.modern.layout import KINDS, modern_layout
from tools.fit.modern.rows import is_released, select_modern
from tools.fit.terms import GENERATIONS, STATIC

COLUMNS = (
    "source,model,gpu,gpus,tp,ep,dp,engine,engine_version,precision,kv_precision,spec_decoding,isl,osl,concurrency,"
    "ttft_ms_mean,ttft_ms_median,tpot_ms_mean,tpot_ms_median,output_tokens_per_s,tier,date"
)
VALUES = (
    "inferencex-dump-2026-07-20,MiniMax-M2.5,MI355X,4.0,4.0,1.0,1.0,vllm,v0.15.1 .."
    " v0.22.0,fp8,,none,1024,1024,64.0,,,,20.0,3000.0,B,2025-09-29..2026-07-18"
)
LINE = dict(zip(COLUMNS.split(","), VALUES.split(","), strict=True))
CLOUDRIFT = {
    "source": "cloudrift-deplodock",
    "gpu": "H200-SXM",
    "model": "GLM-4.6",
    "tp": "8.0",
    "date": "2026-01",
}


def sample(folder: Path, *changes: dict[str, str]) -> Path:
    file = folder / "agg.csv.gz"
    with gzip.open(file, "wt", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, list(LINE))
        writer.writeheader()
        writer.writerows([LINE | change for change in changes])
    return file


def test_formats_and_presets_are_those_of_the_run(tmp_path: Path) -> None:
    for change, precision in [
        ({"precision": "fp4"}, "mxfp4+kv-fp16"),
        ({"precision": "fp4", "gpu": "B200-SXM"}, "nvfp4+experts+kv-fp16"),
        ({"precision": "fp4", "gpu": "B200-SXM", "kv_precision": "fp8"}, "nvfp4+experts+kv-fp8"),
        (
            {"model": "DeepSeek-V4-Pro", "precision": "fp8", "gpu": "H200-SXM", "tp": "8.0"},
            "mxfp4+rest-fp8+kv-fp16",
        ),
        ({"model": "DeepSeek-R1", "engine": "sglang", "tp": "8.0"}, "fp8+kv-fp8"),
        ({"model": "Kimi-K2.5", "precision": "int4", "tp": "8.0"}, "int4-g32+experts+kv-fp16"),
    ]:
        (row,) = select_modern(sample(tmp_path, change)).rows
        assert row["precision"] == precision
    for change, preset in [
        ({}, "vllm-0.32"),
        (CLOUDRIFT, "vllm-0.12"),
        (CLOUDRIFT | {"date": "2026-03-09"}, "vllm-0.19"),
        (
            {
                "model": "DeepSeek-R1",
                "engine": "tensorrt-llm",
                "gpu": "B200-SXM",
                "tp": "8.0",
                "date": "2025-12-15",
            },
            "tensorrt-llm-1.1",
        ),
        (
            {
                "model": "DeepSeek-R1",
                "engine": "tensorrt-llm",
                "gpu": "B200-SXM",
                "tp": "8.0",
                "date": "20260522",
            },
            "tensorrt-llm-1.2",
        ),
        ({"model": "GLM-5", "engine": "sglang", "tp": "8.0", "osl": "8192"}, "sglang-0.5"),
    ]:
        (row,) = select_modern(sample(tmp_path, change)).rows
        assert find_engine(row["engine"]).name == preset


def test_the_newest_run_of_a_configuration_counts_and_few_points_of_a_deployment(
    tmp_path: Path,
) -> None:
    day = {"concurrency": "8", "source": "inferencex-app"}
    dated = [
        day | {"date": "20260301", "tpot_ms_mean": "9"},
        day | {"date": "20260501", "tpot_ms_mean": "7"},
    ]
    rows = newest(
        select_modern(sample(tmp_path, *dated, {"concurrency": "8", "tpot_ms_mean": "11"})).rows
    )
    # another version is another curve
    assert [(row["engine"], row["itl_ms"]) for row in rows] == [("vllm", 11.0), ("vllm-0.19", 7.0)]
    many = [{"concurrency": str(clients)} for clients in range(1, 40)]
    rows = select_modern(sample(tmp_path, *many, {"concurrency": "2048"})).rows
    assert len(thinned(rows, 5)) == 5
    assert all(row["concurrency"] <= MOST_CLIENTS for row in thinned(rows, 100))
    assert thinned(rows, 5) == thinned(rows, 5)


def test_terms_of_the_stage_move_no_older_model_on_other_gpus(tmp_path: Path) -> None:
    qwen = {"model": "Qwen3.5-397B-A17B", "engine": "sglang", "gpu": "B200-SXM"}
    rows = select_modern(sample(tmp_path, {}, {"gpu": "B200-SXM"}, qwen, {"gpu": "B300-SXM"})).rows
    assert [is_moved(row) for row in rows] == [True, False, True, True]
    layout = modern_layout(shipped())
    moved = layout.terms(layout.start + 0.1)
    same = layout.terms(layout.start)
    assert moved["gpus"] == same["gpus"]
    assert moved["links"] == same["links"]
    for group, names in MOVED.items():
        assert {name for name in same[group] if moved[group][name] != same[group][name]} == set(
            names
        )
    assert {
        name for name in same["shared"] if moved["shared"][name] != same["shared"][name]
    } == set(KINDS)
    assert np.isfinite(layout.start).all()


@pytest.mark.parametrize(
    ("versions", "released"),
    [
        ("", True),
        ("v0.15.1 .. v0.22.0", True),
        ("deepseekv4-cu130 .. v0.25.0", True),
        ("glm5-hopper .. v0.5.12-cu130", True),
        ("v0.20.1@sha256:9eff9734a30b .. v0.25.1", True),
        ("lmsysorg/sglang:v0.5.9-rocm700-mi35x", True),
        ("nvcr.io/nvidia/tensorrt-llm/release:1.2.0rc6.post2", True),
        ("rocm7.2.2_ubuntu24.04_py3.12_pytorch_release_2.10.0_atom0.1.2.post", True),
        ("vllm/vllm-openai:latest", True),
        ("v0.22.0 .. nightly-09663abde0f5", False),
        ("lmsysorg/sglang:nightly-dev-20260402-d7256eb6", False),
        ("deepseek-v4-mi35x", False),
        ("deepseek-v4-b300@sha256:26e116bd .. nightly-dev-cu13-20260610-f332e526", False),
        ("feat-deepseek_v4-9aa3715 .. feat-deepseek_v4-c185066", False),
        ("rocm/atom:rocm7.2.3_ubuntu24.04_py3.12_pytorch_release_2.10.0_atom20260511", False),
        ("rocm7.2.2_atom0.1.2.post .. nightly_202606161823", False),
    ],
)
def test_a_point_is_released_by_its_newest_image(
    versions: str, released: bool, tmp_path: Path
) -> None:
    assert is_released(versions) is released
    assert (
        select_modern(sample(tmp_path, {"engine_version": versions})).rows[0]["released"]
        is released
    )


def test_the_floor_is_what_one_run_decides_for_the_next_of_the_same_configuration() -> None:
    """Three loads on three days: twice as slow after 200 days, the same after ten."""
    base = {
        "model": "glm-5",
        "gpu": "h200-sxm-141gb",
        "family": "sglang",
        "precision": "fp8",
        "tp": 8,
        "dp": 1,
        "ep": 1,
        "isl": 1024,
    }
    days = {"2026-01-01": 10.0, "2026-01-11": 10.0, "2026-07-20": 20.0}
    rows = [
        base
        | {
            "osl": 1024,
            "day": day,
            "concurrency": clients,
            "itl_ms": times * clients,
            "engine": day,
        }
        for day, times in days.items()
        for clients in (1, 2, 4)
    ]
    found = floor(rows)
    assert found["NVIDIA, within 14 days"]["near"] == 100
    assert found["NVIDIA, 100 days and more apart"]["near"] == 0
    assert found["NVIDIA, 100 days and more apart"]["too much"] == 100


def test_classes_are_judged_apart() -> None:
    loads = [
        (("curve", 1), clients, 10.0 * clients, times * clients)
        for clients in (1.0, 2.0, 4.0)
        for times in (10.0,)
    ]
    first = [(("curve", 2), clients, 20.0 * clients, 10.0 * clients) for clients in (1.0, 2.0, 4.0)]
    judged = [("released, AMD", load, 1.0, ("a",), True) for load in loads] + [
        ("first support, AMD", load, 1.0, ("b",), holds)
        for load, holds in zip(first, (True, False, None), strict=True)
    ]
    found = by_class(judged)
    assert (found["released, AMD"]["TPOT mean"], found["released, AMD"]["near"]) == (0.0, 100)
    assert found["released, AMD"]["TPOT inside"] == 100
    assert found["first support, AMD"]["TPOT inside"] == 50
    assert (
        found["first support, AMD"]["TPOT mean"],
        found["first support, AMD"]["TPOT bias"],
        found["first support, AMD"]["near"],
    ) == (
        50,
        -50,
        0,
    )


def test_a_fold_without_the_older_files_keeps_their_terms() -> None:
    terms = shipped()
    assert older_without(terms, Older(), ("model", "deepseek-r1")) is terms


def test_a_fold_without_a_gpu_fits_the_first_stage_again_without_its_rows() -> None:
    times = {"h100-sxm-80gb": 1.0, "a100-sxm-80gb": 2.0}
    rows = [
        {
            "model": "llama-2-7b",
            "gpu": gpu,
            "precision": "fp16",
            "tp": 1,
            "isl": 128,
            "osl": 128,
            "batch": batch,
        }
        | {"ttft_ms": 10.0 * slower, "itl_ms": 8.0 * slower}
        for gpu, slower in times.items()
        for batch in (1, 8)
    ]
    terms = shipped()
    assert first_without(terms, {STATIC: rows}, "mi300x") is terms
    without = first_without(terms, {STATIC: rows}, "a100-sxm-80gb")
    assert "a100-sxm-80gb" in terms["gpus"]
    assert "a100-sxm-80gb" not in without["gpus"]
    ampere = without["architectures"]["Ampere"]
    # its start value: nothing is known of it
    assert ampere["memory_16"] == pytest.approx(GENERATIONS["Ampere"]["memory_16"][0])
    assert without["engines"]["vllm"] == terms["engines"]["vllm"]
