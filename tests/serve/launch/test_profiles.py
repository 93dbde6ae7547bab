"""Which profiles run on a described machine, which is chosen, and what is refused by name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.serve.launch.machines import NO_GPU, busy, of
from tonnage.api.running.serve_engine import EngineAsked, machine_profiles, prepare_engine
from tonnage.errors import InputError
from tonnage.perf.memory import memory_plan
from tonnage.serve.machine import Machine
from tonnage.serve.profiles import Profile, deployed
from tonnage.spec.catalog import find_engine, find_gpu, find_model

BIG = "llama-3.1-70b"


def found(machine: Machine, *, engine: str = "vllm", **asked: object) -> dict[str, Profile]:
    return {one.name: one for one in machine_profiles(EngineAsked(engine=engine, **{"model": BIG, **asked}), machine)}


def test_each_profile_is_runnable_or_short_of_memory_or_incompatible_with_the_reason() -> None:
    each = found(of())
    assert each["vllm-bf16-tp4-pp1-throughput"].kind == "runnable"
    assert each["vllm-bf16-tp8-pp1-latency"].kind == "runnable"
    short = each["vllm-bf16-tp2-pp1-throughput"]
    plan = memory_plan(deployed(find_model(BIG), find_gpu("h100-sxm-80gb"), find_engine("vllm"), "bf16", 2))
    assert (short.kind, short.context) == ("low memory", plan.tokens)
    assert short.needs_bytes > 80e9
    assert each["vllm-bf16-tp1-pp1-throughput"].kind == "incompatible"
    assert "do not fit" in each["vllm-bf16-tp1-pp1-throughput"].why
    needs = each["vllm-bf16-tp1-pp1-throughput"].needs_bytes
    big = find_gpu("h100-sxm-80gb")
    for gib, runs in ((needs + 2**21, True), (needs - 2**26, False)):
        plan = memory_plan(replace(deployed(find_model(BIG), big, find_engine("vllm"), "bf16", 1), gpu=replace(big, memory_bytes=gib)))
        assert (plan.tokens >= find_model(BIG).max_context) is runs
    assert "no FP4 matrix units" in each["vllm-nvfp4-tp8-pp1-throughput"].why
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
    assert found(of(), max_model_len=context + 16)["vllm-bf16-tp2-pp1-throughput"].kind == "low memory"


@pytest.mark.parametrize(
    ("machine", "engine", "said"),
    [
        (of(driver="570.86.15"), "vllm", "driver 570.86.15 is too old: vllm-0.32 is built with CUDA 13, which needs 580.65.06 or newer"),
        (of("v100-sxm2-32gb", gib=32, capability="7.0"), "vllm", "compute capability 7.0, and vllm-0.32 needs 7.5"),
        (of("t4", gib=15, capability="7.5"), "tensorrt-llm", "compute capability 7.5, and tensorrt-llm-1.2 needs 8.0"),
        (of(count=2), "vllm", "needs 8 GPUs, and the machine has 2"),
        (busy(of(), 3, 4), "vllm", "needs 8 GPUs, and others use 2 of 8"),
    ],
)
def test_why_a_profile_does_not_run(machine: Machine, engine: str, said: str) -> None:
    assert any(said in one.why for one in found(machine, engine=engine).values())


def test_the_order_is_that_of_nim() -> None:
    first = [one for one in machine_profiles(EngineAsked(engine="auto", model=BIG), of()) if one.kind == "runnable"]
    assert [one.family for one in first] == sorted((one.family for one in first), key=["tensorrt-llm", "vllm", "sglang"].index)
    ours = [one for one in first if one.family == "vllm"]
    assert [one.bits for one in ours] == sorted(one.bits for one in ours)
    same = [one for one in ours if one.precision == "fp8"]
    assert [one.name for one in same] == ["vllm-fp8-tp8-pp1-latency", "vllm-fp8-tp4-pp1-latency", "vllm-fp8-tp2-pp1-throughput"]
    taken = prepare_engine(EngineAsked(engine="auto", model=BIG), of(), dry=True)
    assert taken.why.startswith("tensorrt-llm-bf16-tp8-pp1-latency, by NIM's order")  # the author publishes none in fewer bits
    narrow = prepare_engine(EngineAsked(engine="auto", model=BIG, precision="fp8"), of(), dry=True)
    assert "nvidia/Llama-3.1-70B-Instruct-FP8" in narrow.instances[0].argv  # the published one that TensorRT-LLM reads
    named = prepare_engine(EngineAsked(engine="auto", model=BIG, precision="fp8", checkpoint="a/b-fp8"), of(), dry=True)
    assert named.why.startswith("tensorrt-llm-fp8-tp8-pp1-latency")


@pytest.mark.parametrize(
    ("asked", "machine", "said"),
    [
        ({"model": BIG, "profile": "vllm-bf16-tp2-pp1-throughput"}, of(), "the KV cache holds .* say max_model_len"),
        ({"model": BIG, "profile": "nothing"}, of(), "there is no 'nothing'"),
        ({"model": "deepseek-v3"}, of(count=1), "no profile runs on this machine; the nearest"),
        ({"model": BIG, "precision": "nvfp4"}, of(), "no FP4 matrix units for nvfp4"),
        ({"model": BIG, "precision": "int8-wo"}, of(), "no checkpoint in that format is known"),
        ({"model": BIG, "gpus": "0,9"}, of(), "there is no GPU 9"),
        ({"model": "llama-3.1-8b", "gpus": "3"}, busy(of(), 3), "others use 40 of 80 GiB of GPU 3"),
        ({"model": "llama-3.1-8b", "instances": 9, "tp": 1}, of(), "9 instances of 1 GPUs each need 9; 8 are free"),
        ({"model": "llama-3.1-8b", "gpus": "a"}, of(), "are no numbers of GPUs"),
        ({"model": "llama-3.1-8b", "engine_env": ["X"]}, of(), "'X' is no variable"),
        ({"model": "llama-3.1-8b", "tp": 2}, NO_GPU, "says nothing on a machine without a GPU"),
        ({}, of(), "model: is needed"),
    ],
)
def test_what_cannot_be_is_refused_by_name(asked: dict[str, object], machine: Machine, said: str) -> None:
    with pytest.raises(InputError, match=said):
        prepare_engine(EngineAsked(engine="vllm", **asked), machine, dry=True)


def test_an_engine_that_is_not_installed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="tensorrt-llm is not installed: there is no 'trtllm-serve' in"):
        prepare_engine(EngineAsked(engine="tensorrt-llm", model="llama-3.1-8b", engine_path=tmp_path), of())
    with pytest.raises(InputError, match="none of tensorrt-llm, vllm, sglang is installed here"):
        prepare_engine(EngineAsked(engine="auto", model="llama-3.1-8b", engine_path=tmp_path), of())
    with pytest.raises(InputError, match="sglang needs a GPU, and a driver shows none"):
        prepare_engine(EngineAsked(engine="sglang", model="llama-3.1-8b"), NO_GPU)
    with pytest.raises(InputError, match="there is no 'tritonserver'"):
        prepare_engine(EngineAsked(engine="triton", model="repository", engine_path=tmp_path), of())
    program = tmp_path / "bin" / "vllm"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n", encoding="utf-8")
    program.chmod(0o755)
    found = prepare_engine(EngineAsked(engine="auto", model="llama-3.1-8b", engine_path=tmp_path), of())
    assert found.instances[0].argv[0] == str(program)  # the only one that is installed, though TensorRT-LLM would come first
    assert found.why.startswith("vllm-bf16-tp8")
