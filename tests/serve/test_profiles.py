"""Profiles of a model on a machine: runnable, short of memory, or incompatible, with the reason."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.serve.launch.machines import busy, of
from tests.serve.launch.started import BIG, found
from tonnage.perf.memory import memory_plan
from tonnage.serve.machine import Machine
from tonnage.serve.profiles import deployed
from tonnage.spec.catalog import find_engine, find_gpu, find_model


def test_each_profile_is_runnable_or_short_of_memory_or_incompatible_with_the_reason() -> None:
    each = found(of())
    assert each["vllm-bf16-tp4-pp1-throughput"].kind == "runnable"
    assert each["vllm-bf16-tp8-pp1-latency"].kind == "runnable"
    short = each["vllm-bf16-tp2-pp1-throughput"]
    plan = memory_plan(
        deployed(find_model(BIG), find_gpu("h100-sxm-80gb"), find_engine("vllm"), "bf16", 2)
    )
    assert (short.kind, short.context) == ("low memory", plan.tokens)
    assert short.needs_bytes > 80e9
    assert each["vllm-bf16-tp1-pp1-throughput"].kind == "incompatible"
    assert "do not fit" in each["vllm-bf16-tp1-pp1-throughput"].why
    needs = each["vllm-bf16-tp1-pp1-throughput"].needs_bytes
    big = find_gpu("h100-sxm-80gb")
    for gib, runs in ((needs + 2**21, True), (needs - 2**26, False)):
        plan = memory_plan(
            replace(
                deployed(find_model(BIG), big, find_engine("vllm"), "bf16", 1),
                gpu=replace(big, memory_bytes=gib),
            )
        )
        assert (plan.tokens >= find_model(BIG).max_context) is runs
    assert "FP4" not in each["vllm-nvfp4-tp8-pp1-latency"].why
    assert (
        "no FP4 matrix units"
        in found(of(), engine="tensorrt-llm")["tensorrt-llm-nvfp4-tp8-pp1-throughput"].why
    )
    assert each["vllm-bf16-tp4-pp1-throughput"].checkpoint == "meta-llama/Llama-3.1-70B-Instruct"
    assert each["vllm-fp8-tp4-pp1-latency"].checkpoint == ""


def test_the_memory_is_the_drivers_word_not_the_catalogs() -> None:
    name = "vllm-bf16-tp2-pp1-throughput"
    needs = found(of())[name].needs_bytes
    assert found(of(gib=1.001 * needs / 2**30))[name].kind == "runnable"
    assert found(of(gib=0.99 * needs / 2**30))[name].kind == "low memory"


def test_the_context_that_would_fit_fits() -> None:
    context = found(of())["vllm-bf16-tp2-pp1-throughput"].context
    again = found(of(), max_model_len=context)["vllm-bf16-tp2-pp1-throughput"]
    assert again.kind == "runnable"
    assert (
        found(of(), max_model_len=context + 16)["vllm-bf16-tp2-pp1-throughput"].kind == "low memory"
    )


@pytest.mark.parametrize(
    ("machine", "engine", "said"),
    [
        (
            of(driver="570.86.15"),
            "vllm",
            (
                "driver 570.86.15 is too old: vllm-0.32 is built with CUDA 13, which needs"
                " 580.65.06 or newer"
            ),
        ),
        (
            of("v100-sxm2-32gb", gib=32, capability="7.0"),
            "vllm",
            "compute capability 7.0, and vllm-0.32 needs 7.5",
        ),
        (
            of("t4", gib=15, capability="7.5"),
            "tensorrt-llm",
            "compute capability 7.5, and tensorrt-llm-1.2 needs 8.0",
        ),
        (of(count=2), "vllm", "needs 8 GPUs, and the machine has 2"),
        (busy(of(), 3, 4), "vllm", "needs 8 GPUs, and others use 2 of 8"),
    ],
)
def test_why_a_profile_does_not_run(machine: Machine, engine: str, said: str) -> None:
    assert any(said in one.why for one in found(machine, engine=engine).values())
