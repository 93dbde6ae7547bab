"""The commands of engines whose parsers no tier runs, as a golden file, with the version and the day that their flags were read from.

vLLM's commands are read by its own parser in the engines tier (``tests/engines/test_launch_flags.py``). A changed command is seen here
and held against the engine's own sources; then ``TONNAGE_GOLDEN=write`` writes it.
"""

from __future__ import annotations

import json
import os
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

from tonnage.plan.launch import command
from tonnage.spec.catalog import engines, find_gpu
from tonnage.spec.deployment import Parallelism, parse_speculation
from tonnage.spec.engine import default_knobs

GOLDEN = Path(__file__).parents[1] / "golden" / "launch-commands.json"
CASES: dict[str, tuple[Parallelism, dict[str, Any]]] = {
    "one GPU": (Parallelism(), {}),
    "TP 4 with limits": (Parallelism(tp=4), {"max_batch_size": 128, "max_num_tokens": 4_096}),
    "TP 8, PP 2": (Parallelism(tp=8, pp=2), {}),
    "DP 8, EP 8": (Parallelism(dp=8, ep=8), {}),
    "whole prompts": (Parallelism(), {"chunked_prefill": False, "max_num_tokens": 16_384}),
}

SERVE_OPTIONS: dict[str, type] = {
    "--backend": str,
    "--tp_size": int,
    "--pp_size": int,
    "--ep_size": int,
    "--max_batch_size": int,
    "--max_num_tokens": int,
    "--max_seq_len": int,
    "--kv_cache_free_gpu_memory_fraction": float,
    "--num_postprocess_workers": int,
    "--extra_llm_api_options": str,
}
"""Options that trtllm-serve's own command line has, with the types that it reads them as: TensorRT-LLM, tensorrt_llm/commands/serve.py at
00209af1, read on 2026-11-22."""


def commands() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for engine in engines():
        if engine.launch is None or engine.family == "vllm":
            continue
        made: dict[str, Any] = {}
        for name, (split, knobs) in CASES.items():
            chosen = replace(default_knobs(engine, find_gpu("h100-sxm-80gb"), split.dp), **knobs)
            started = command(engine.launch, checkpoint="my/model", parallelism=split, knobs=chosen, max_context=4_096, kv_8bit=True)
            made[name] = {"command": shlex.join(started.argv), **({"file": started.file} if started.file else {})}
        asked = parse_speculation("eagle k=3 acceptance=0.7")
        if any(method == "eagle" for method, _ in engine.launch.speculation):
            chosen = default_knobs(engine, find_gpu("h100-sxm-80gb"))
            started = command(
                engine.launch, checkpoint="my/model", parallelism=Parallelism(), knobs=chosen, max_context=4_096, speculation=asked
            )
            made["EAGLE"] = {"command": shlex.join(started.argv), **({"file": started.file} if started.file else {})}
        found[engine.name] = {"read from": engine.launch.source, "on": engine.launch.date, "commands": made}
    return found


def test_commands_are_those_that_were_read_from_the_engines_sources() -> None:
    made = commands()
    if os.environ.get("TONNAGE_GOLDEN") == "write":
        GOLDEN.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    assert json.loads(GOLDEN.read_text(encoding="utf-8")) == made
    assert {"sglang", "tensorrt-llm", "nim"} <= {name.rsplit("-", 1)[0] for name in made}
    assert all(one["read from"] and one["on"] for one in made.values())


def test_trtllm_serve_has_every_option_that_it_is_given() -> None:
    started = [one["commands"] for name, one in commands().items() if name.startswith("tensorrt-llm")]
    assert started
    for made in (each for named in started for each in named.values()):
        program, model, *rest = shlex.split(made["command"])
        assert (program, model) == ("trtllm-serve", "my/model")
        assert len(rest) % 2 == 0
        for flag, value in zip(rest[::2], rest[1::2], strict=True):
            SERVE_OPTIONS[flag](value)
