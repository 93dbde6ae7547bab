"""What the scripts set, by what a row tells; the expected values were read in the scripts, not in the code."""

from typing import Any

import pytest

from tonnage.sizing.fitting.inferencemax import run_of

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
    assert after == {"slots": 1024, "budget": 16384, "stream": 20, "kv_fraction": 0.9, "precision": "fp8"}


@pytest.mark.parametrize(
    ("changed", "day", "expected"),
    [
        ({"gpu": "h200-sxm-141gb"}, "2026-03-27", {"precision": "fp8+kv-fp16", "kv_fraction": 0.95}),
        ({"gpu": "h100-sxm-80gb"}, "2026-03-27", {"precision": "fp8+kv-fp16", "kv_fraction": 0.9}),
        ({"precision": "nvfp4+experts"}, "2026-04-03", {"stream": 1, "budget": 0}),
        ({"precision": "nvfp4+experts"}, "2026-04-08", {"stream": 20, "budget": 16384}),
        ({"model": "kimi-k2.5", "precision": "nvfp4+experts"}, "2026-03-27", {"stream": 1}),
        ({"model": "kimi-k2.5", "precision": "nvfp4+experts"}, "2026-04-20", {"stream": 20}),
        ({"model": "kimi-k2.5", "precision": "nvfp4+experts", "gpu": "b300-sxm-270gb"}, "2026-04-20", {"stream": 1}),
        ({"model": "kimi-k2.5", "precision": "gptq+experts"}, "2026-03-24", {"kv_fraction": 0.95, "ep": 1}),
        ({"model": "kimi-k2.5", "precision": "nvfp4+experts", "ep": 4}, "2026-03-27", {"ep": 1}),
        ({"model": "gpt-oss-120b", "precision": "mxfp4"}, "2025-11-02", {"precision": "mxfp4", "budget": 8192}),
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
        (DEEPSEEK | {"dp": 8, "tp": 1}, "2026-02-03", {"receive": 60}),
        (GPTOSS | {"dp": 2, "tp": 1}, "2026-02-05", {"receive": 50}),
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


SGLANG = {"model": "deepseek-r1", "engine": "sglang-0.5.9", "tp": 8}


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
