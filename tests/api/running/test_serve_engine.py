"""Real engines: which profile is taken, and what cannot be started."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.serve.launch.machines import NO_GPU, busy, of
from tests.serve.launch.started import BIG
from tonnage.api.running.serve_engine import EngineAsked, machine_profiles, prepare_engine
from tonnage.errors import InputError
from tonnage.serve.machine import Machine


def test_the_order_is_that_of_nim() -> None:
    first = [
        one
        for one in machine_profiles(EngineAsked(engine="auto", model=BIG), of())
        if one.kind == "runnable"
    ]
    assert [one.family for one in first] == sorted(
        (one.family for one in first), key=["tensorrt-llm", "vllm", "sglang"].index
    )
    ours = [one for one in first if one.family == "vllm"]
    assert [one.bits for one in ours] == sorted(one.bits for one in ours)
    same = [one for one in ours if one.precision == "fp8"]
    assert [one.name for one in same] == [
        "vllm-fp8-tp8-pp1-latency",
        "vllm-fp8-tp4-pp1-latency",
        "vllm-fp8-tp2-pp1-throughput",
    ]
    taken = prepare_engine(EngineAsked(engine="auto", model=BIG), of(), dry=True)
    # the author publishes none in fewer bits
    assert taken.why.startswith("tensorrt-llm-bf16-tp8-pp1-latency, by NIM's order")
    narrow = prepare_engine(EngineAsked(engine="auto", model=BIG, precision="fp8"), of(), dry=True)
    # the published one that TensorRT-LLM reads
    assert "nvidia/Llama-3.1-70B-Instruct-FP8" in narrow.instances[0].argv
    named = prepare_engine(
        EngineAsked(engine="auto", model=BIG, precision="fp8", checkpoint="a/b-fp8"), of(), dry=True
    )
    assert named.why.startswith("tensorrt-llm-fp8-tp8-pp1-latency")


@pytest.mark.parametrize(
    ("asked", "machine", "said"),
    [
        (
            {"model": BIG, "profile": "vllm-bf16-tp2-pp1-throughput"},
            of(),
            "the KV cache holds .* say max_model_len",
        ),
        ({"model": BIG, "profile": "nothing"}, of(), "there is no 'nothing'"),
        ({"model": "deepseek-v3"}, of(count=1), "no profile runs on this machine; the nearest"),
        (
            {"model": BIG, "precision": "w4a8"},
            of("a100-sxm-80gb", capability="8.0"),
            "no FP8 matrix units for w4a8",
        ),
        ({"model": BIG, "precision": "int8-wo"}, of(), "no checkpoint in that format is known"),
        ({"model": BIG, "gpus": "0,9"}, of(), "there is no GPU 9"),
        ({"model": "llama-3.1-8b", "gpus": "3"}, busy(of(), 3), "others use 40 of 80 GiB of GPU 3"),
        (
            {"model": "llama-3.1-8b", "instances": 9, "tp": 1},
            of(),
            "9 instances of 1 GPUs each need 9; 8 are free",
        ),
        ({"model": "llama-3.1-8b", "gpus": "a"}, of(), "are no numbers of GPUs"),
        ({"model": "llama-3.1-8b", "engine_env": ["X"]}, of(), "'X' is no variable"),
        ({"model": "llama-3.1-8b", "tp": 2}, NO_GPU, "says nothing on a machine without a GPU"),
        ({}, of(), "model: is needed"),
    ],
)
def test_what_cannot_be_is_refused_by_name(
    asked: dict[str, object], machine: Machine, said: str
) -> None:
    with pytest.raises(InputError, match=said):
        prepare_engine(EngineAsked(engine="vllm", **asked), machine, dry=True)


def test_an_engine_that_is_not_installed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match="tensorrt-llm is not installed: there is no 'trtllm-serve' in"
    ):
        prepare_engine(
            EngineAsked(engine="tensorrt-llm", model="llama-3.1-8b", engine_path=tmp_path), of()
        )
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
    found = prepare_engine(
        EngineAsked(engine="auto", model="llama-3.1-8b", engine_path=tmp_path), of()
    )
    # the only one that is installed, though TensorRT-LLM would come first
    assert found.instances[0].argv[0] == str(program)
    assert found.why.startswith("vllm-bf16-tp8")
