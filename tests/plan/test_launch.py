"""The command that starts an engine says what was sized, in the engine's own words."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from tests.questions import question
from tonnage.plan.launch import FILE, SETTINGS, Command, command
from tonnage.sizing.planner import size
from tonnage.spec.catalog import engines, find_engine, find_gpu
from tonnage.spec.deployment import EngineKnobs, Parallelism
from tonnage.spec.engine import default_knobs


def started(engine: str, parallelism: Parallelism, *, kv_8bit: bool = False, **knobs: object) -> Command:
    spec = find_engine(engine)
    chosen = replace(default_knobs(spec, find_gpu("h100-sxm-80gb")), **knobs)
    return command(spec.launch, checkpoint="my/model", parallelism=parallelism, knobs=chosen, max_context=4_096, kv_8bit=kv_8bit)


def pairs(argv: tuple[str, ...]) -> dict[str, str]:
    """Each flag with the word behind it."""
    return dict(zip(argv, (*argv[1:], ""), strict=True))


def test_vllm_is_told_degrees_limits_and_switches() -> None:
    found = started("vllm", Parallelism(tp=4), max_batch_size=128, max_num_tokens=4_096, kv_8bit=True)
    assert found.argv[:3] == ("vllm", "serve", "my/model")
    said = pairs(found.argv)
    assert (said["--tensor-parallel-size"], said["--max-num-seqs"], said["--max-num-batched-tokens"]) == ("4", "128", "4096")
    assert said["--max-model-len"] == "4096"
    assert {"--enable-chunked-prefill", "--kv-cache-dtype=fp8"} <= set(found.argv)
    assert not {"--pipeline-parallel-size", "--data-parallel-size", "--enable-expert-parallel"} & set(found.argv)
    assert "--no-enable-chunked-prefill" in started("vllm", Parallelism(), chunked_prefill=False).argv
    wide = started("vllm", Parallelism(tp=1, dp=8, ep=8)).argv
    assert "--enable-expert-parallel" in wide
    assert pairs(wide)["--data-parallel-size"] == "8"
    assert found.file == {}


def test_sglang_counts_attention_ranks_among_its_tensor_parallel_gpus() -> None:
    said = started("sglang", Parallelism(tp=2, dp=4, ep=8))
    assert (pairs(said.argv)["--tp-size"], pairs(said.argv)["--dp-size"], pairs(said.argv)["--ep-size"]) == ("8", "4", "8")
    assert "--enable-dp-attention" in said.argv
    alone = started("sglang", Parallelism(tp=2))
    assert not {"--enable-dp-attention", "--dp-size", "--max-prefill-tokens"} & set(alone.argv)
    whole = pairs(started("sglang", Parallelism(), chunked_prefill=False, max_num_tokens=16_384).argv)
    assert (whole["--chunked-prefill-size"], whole["--max-prefill-tokens"]) == ("-1", "16384")


def test_tensorrt_llm_reads_the_rest_from_a_file() -> None:
    found = started("tensorrt-llm-1.2", Parallelism(tp=2), overlap_schedule=False)
    assert found.argv[:2] == ("trtllm-serve", "my/model")
    assert pairs(found.argv)["--extra_llm_api_options"] == FILE
    assert found.file["kv_cache_config"] == {"tokens_per_block": 32}
    assert found.file["disable_overlap_scheduler"] is True
    assert found.file["enable_attention_dp"] is False


def test_nim_is_a_container_whose_image_comes_last() -> None:
    found = started("nim", Parallelism(tp=2)).argv
    assert found[:2] == ("docker", "run")
    assert found[-1] == "nvcr.io/nim/my/model"
    assert pairs(found)["--gpus"] == "2"
    assert "--env=NIM_MAX_MODEL_LEN=4096" in found


def test_an_engine_that_nobody_knows_to_start_has_no_command() -> None:
    assert started("tensorrt-llm-0.9", Parallelism()) == Command()


@pytest.mark.parametrize("name", [engine.name for engine in engines() if engine.launch is not None])
def test_every_preset_names_settings_that_exist(name: str) -> None:
    launch = find_engine(name).launch
    assert launch is not None
    known = {part.name for kind in (EngineKnobs, Parallelism) for part in fields(kind)} | set(SETTINGS)
    assert {setting for pairs_ in (launch.values, launch.switches, launch.file_keys) for setting, _ in pairs_} <= known
    assert started(name, Parallelism(tp=2)).argv


def test_a_plan_holds_the_command_of_its_choice() -> None:
    plan = size(replace(question(engine="vllm", tp="2"), deepen=False, tune=False))
    assert plan.choice is not None
    said = pairs(plan.choice.launch)
    assert said["--tensor-parallel-size"] == "2"
    assert said["--max-model-len"] == "1100"
    assert plan.to_json()["choice"]["launch"] == list(plan.choice.pools[0].launch)
