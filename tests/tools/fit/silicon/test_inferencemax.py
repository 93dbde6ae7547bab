"""What the scripts set, by what a row tells; the expected values were read in the scripts, not in the code."""

from typing import Any

import pytest

from tools.fit.silicon.inferencemax import run_of

ROW = {
    "model": "minimax-m2.5",
    "gpu": "b200-sxm-180gb",
    "precision": "fp8",
    "engine": "vllm-0.19",
    "tp": 4,
    "dp": 1,
    "ep": 1,
    "concurrency": 64,
}
LENGTHS = {"isl": 8192, "osl": 1024}


def run(day: str = "2026-04-03", **changed: Any) -> dict[str, Any]:
    return run_of(ROW | LENGTHS | changed, day)


def test_minimax_on_b200_before_and_after_it_was_tuned() -> None:
    before, after = run("2026-03-28"), run("2026-04-03")
    assert before == {"slots": 64, "budget": 0, "stream": 1, "kv_fraction": 0.95, "precision": "fp8+kv-fp16", "ep": 4}
    assert after == {"slots": 1024, "budget": 16384, "stream": 20, "kv_fraction": 0.9, "precision": "fp8", "graphs": 2048}


@pytest.mark.parametrize(
    ("changed", "day", "expected"),
    [
        ({"gpu": "h200-sxm-141gb"}, "2026-03-27", {"precision": "fp8+kv-fp16", "kv_fraction": 0.95}),
        ({"gpu": "h200-sxm-141gb", "tp": 8}, "2026-03-27", {"precision": "fp8+kv-fp16", "ep": 8}),
        ({"gpu": "h100-sxm-80gb"}, "2026-03-27", {"precision": "fp8+kv-fp16", "kv_fraction": 0.9}),
        ({"precision": "nvfp4+experts"}, "2026-04-03", {"stream": 1, "budget": 0}),
        ({"precision": "nvfp4+experts"}, "2026-04-08", {"stream": 20, "budget": 16384}),
        ({"model": "kimi-k2.5", "precision": "nvfp4+experts"}, "2026-03-27", {"stream": 1}),
        ({"model": "kimi-k2.5", "precision": "nvfp4+experts"}, "2026-04-20", {"stream": 20, "graphs": 2048}),
        ({"model": "kimi-k2.5", "precision": "nvfp4+experts", "gpu": "b300-sxm-270gb"}, "2026-04-20", {"stream": 1}),
        ({"model": "kimi-k2.5", "precision": "gptq+experts"}, "2026-03-24", {"kv_fraction": 0.95, "ep": 1}),
        ({"model": "kimi-k2.5", "precision": "nvfp4+experts", "ep": 4}, "2026-03-27", {"ep": 1}),
        ({"model": "gpt-oss-120b", "precision": "mxfp4"}, "2025-11-02", {"precision": "mxfp4", "budget": 8192, "graphs": 2048}),
        ({"model": "gpt-oss-120b", "precision": "mxfp4"}, "2026-02-25", {"precision": "mxfp4+kv-fp8", "budget": 8192}),
        ({"model": "gpt-oss-120b", "gpu": "h200-sxm-141gb"}, "2026-03-27", {"precision": "mxfp4"}),
    ],
)
def test_vllm(changed: dict[str, Any], day: str, expected: dict[str, Any]) -> None:
    found = run(day, **changed)
    assert {name: found[name] for name in expected} == expected


DEEPSEEK = {"model": "deepseek-r1", "engine": "tensorrt-llm-1.2"}
GPTOSS = {"model": "gpt-oss-120b", "engine": "tensorrt-llm-1.2"}


@pytest.mark.parametrize(
    ("changed", "day", "expected"),
    [
        (
            {"engine": "tensorrt-llm-1.1", "model": "gpt-oss-120b"},
            "2026-02-05",
            {"budget": 20000, "stream": 20, "precision": "mxfp4+kv-fp8"},
        ),
        (GPTOSS | {"gpu": "h200-sxm-141gb"}, "2025-12-15", {"precision": "mxfp4", "slots": 64}),
        (DEEPSEEK, "2026-02-03", {"budget": 8320, "stream": 10, "kv_fraction": 0.8}),
        (DEEPSEEK | {"concurrency": 4}, "2026-02-03", {"budget": 8320}),
        (DEEPSEEK | {"concurrency": 128}, "2026-02-03", {"budget": 8384}),
        (DEEPSEEK | {"gpu": "h200-sxm-141gb"}, "2025-12-15", {"kv_fraction": 0.75, "precision": "fp8+kv-fp16"}),
        (DEEPSEEK | {"dp": 8, "tp": 1}, "2026-02-03", {"rank_wait": 60}),
        (GPTOSS | {"dp": 2, "tp": 1}, "2026-02-05", {"rank_wait": 50}),
        (DEEPSEEK | {"isl": 1024}, "2026-01-29", {"wait_steps": 40, "wait_ratio": 0.8, "budget": 8192}),
        (DEEPSEEK | {"isl": 1024}, "2025-12-15", {"budget": 1152}),
    ],
)
def test_tensorrt_llm(changed: dict[str, Any], day: str, expected: dict[str, Any]) -> None:
    found = run(day, **changed)
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize(
    "changed", [{"isl": 1024, "concurrency": 32}, {}, {"isl": 1024, "precision": "nvfp4+experts"}, {"isl": 1024, "gpu": "h200-sxm-141gb"}]
)
def test_tensorrt_llm_waits_where_its_script_says_so(changed: dict[str, Any]) -> None:
    assert "wait_steps" not in run("2026-02-03", **DEEPSEEK, **changed)
    assert "wait_steps" not in run("2025-12-15", **DEEPSEEK, isl=1024)


FP4, SHORT, LONG_ANSWERS = {"precision": "nvfp4+experts"}, {"isl": 1024}, {"isl": 1024, "osl": 8192}
RANKS = {"tp": 1, "dp": 8, "ep": 8, "rank_wait": 60}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (FP4 | {"concurrency": 32}, {}),
        (FP4, RANKS),
        (FP4 | SHORT | {"concurrency": 8}, {}),
        (FP4 | SHORT | {"concurrency": 16}, {"ep": 8}),
        (FP4 | SHORT | {"concurrency": 255}, {"ep": 8}),
        (FP4 | SHORT | {"concurrency": 256}, RANKS),
        (FP4 | LONG_ANSWERS | {"concurrency": 16}, {}),
        (FP4 | LONG_ANSWERS | {"concurrency": 32}, {"ep": 8}),
        (FP4 | SHORT | {"concurrency": 32, "tp": 4}, {}),
        (FP4 | SHORT | {"tp": 4}, {"ep": 4}),
        (FP4 | {"tp": 4}, RANKS | {"dp": 4, "ep": 4}),
        (FP4 | SHORT | {"tp": 2}, {}),
        ({"concurrency": 4}, {"ep": 8}),
        ({"concurrency": 64}, {"ep": 8}),
        ({"concurrency": 65}, RANKS),
        (SHORT, RANKS),
        ({"gpu": "h200-sxm-141gb"}, RANKS),
        ({"gpu": "h200-sxm-141gb"} | SHORT, {"ep": 8}),
        ({"isl": 4000}, {}),
    ],
)
def test_what_the_scripts_of_october_2025_chose_for_deepseek_on_tensorrt_llm(changed: dict[str, Any], expected: dict[str, Any]) -> None:
    asked = {"tp": 8} | DEEPSEEK | changed
    found = run("2025-11-02", **asked)
    assert {name: found[name] for name in ("tp", "dp", "ep", "rank_wait") if name in found} == expected
    assert not {"tp", "dp", "ep"} & set(run("2025-12-15", **asked))


def test_the_budget_of_ranks_on_h200_counts_the_clients_of_one() -> None:
    h200 = {"tp": 8, "gpu": "h200-sxm-141gb", "concurrency": 512}
    assert run("2025-11-02", **DEEPSEEK | h200)["budget"] == 8320  # 64 + 8192 + 64
    assert run("2025-11-02", **DEEPSEEK | h200 | {"gpu": "b200-sxm-180gb"})["budget"] == 8768


SGLANG = {"model": "deepseek-r1", "engine": "sglang-0.5.9", "tp": 8}


def test_sglang_spread_experts_in_fp4_before_rows_said_so() -> None:
    assert run("2025-11-10", **SGLANG | FP4)["ep"] == 8
    assert "ep" not in run("2025-11-18", **SGLANG | FP4)
    assert "ep" not in run("2025-11-10", **SGLANG)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, {"receive": 30, "slots": 128, "budget": 32768, "stream": 30}),
        ({"concurrency": 8}, {"receive": 10}),
        ({"tp": 4}, {"receive": 10, "slots": 32, "budget": 8192, "kv_fraction": 0.95}),
        ({"precision": "nvfp4+experts"}, {"receive": 30, "slots": 256, "budget": 16384, "stream": 10}),
        ({"gpu": "h200-sxm-141gb"}, {"slots": 256, "budget": 32768, "precision": "fp8+kv-fp16"}),
        ({"gpu": "h200-sxm-141gb", "isl": 1024}, {"slots": 512}),
    ],
)
def test_sglang(changed: dict[str, Any], expected: dict[str, Any]) -> None:
    found = run("2026-03-25", **SGLANG | changed)
    assert {name: found[name] for name in expected} == expected
    assert ("receive" in found) == ("gpu" not in changed)
    assert "ttft_ms" not in found
    assert run("2025-11-10", **SGLANG | changed)["ttft_ms"] is None
