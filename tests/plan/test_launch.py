"""The command that starts an engine says what was sized, in the engine's own words."""

from __future__ import annotations

import json
import os
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.plans import dense
from tests.plan.start_lines import drawn_plan, faults
from tests.questions import plans_with, question
from tonnage.api.sizing import size_models
from tonnage.cli.main import run
from tonnage.plan.launch import (
    Command,
    command,
    foreign_word,
    needs_drafter,
    with_drafter,
    without_checkpoint,
)
from tonnage.report.plans.screen import brief_lines
from tonnage.sizing.planner import size
from tonnage.spec.catalog import engines, find_engine, find_gpu, usual_offloading
from tonnage.spec.deployment import Parallelism, parse_speculation
from tonnage.spec.engine import default_knobs
from tonnage.spec.kv_tiers import AskedTier


def started(
    engine: str,
    parallelism: Parallelism,
    *,
    kv_8bit: bool = False,
    speculation: str | None = None,
    host: int = 0,
    **knobs: object,
) -> Command:
    spec = find_engine(engine)
    chosen = replace(default_knobs(spec, find_gpu("h100-sxm-80gb"), ranks=1), **knobs)
    return command(
        spec.launch,
        checkpoint="my/model",
        parallelism=parallelism,
        knobs=chosen,
        max_context=4_096,
        kv_8bit=kv_8bit,
        speculation=parse_speculation(speculation),
        offloading=usual_offloading(spec.family),
        tiers=(AskedTier(name="host", size=host),),
    )


def pairs(argv: tuple[str, ...]) -> dict[str, str]:
    """Each flag with the word behind it."""
    return dict(zip(argv, (*argv[1:], ""), strict=True))


def test_tensorrt_llm_is_told_each_gpus_host_memory_in_its_file() -> None:
    found = started("tensorrt-llm-1.2", Parallelism(tp=4), host=800 * 10**9)
    assert found.file["kv_cache_config"]["host_cache_size"] == 200 * 10**9
    assert found.argv == started("tensorrt-llm-1.2", Parallelism(tp=4)).argv


def test_a_plan_holds_the_command_of_its_choice() -> None:
    plan = size(replace(question(engine="vllm", tp="2"), deepen=False, tune=False))
    said = pairs(plan.choice.launch)
    assert said["--tensor-parallel-size"] == "2"
    assert said["--max-model-len"] == "131072", (
        "the model's own: the lengths of a question are a guess at its traffic"
    )
    assert plan.to_json()["choice"]["launch"] == list(plan.choice.pools[0].launch)


BASE = {
    "vllm": (
        "vllm serve my/model --tensor-parallel-size 1 --max-num-seqs 1024 --max-num-batched-tokens"
        " 8192 --max-model-len 4096 --gpu-memory-utilization 0.92 --max-cudagraph-capture-size 512"
        " --enable-chunked-prefill --async-scheduling"
    ),
    "sglang": (
        "python -m sglang.launch_server --model-path my/model --tp-size 1 --max-running-requests"
        " 1024 --chunked-prefill-size 8192 --context-length 4096 --mem-fraction-static 0.83"
    ),
    "tensorrt-llm": (
        "trtllm-serve my/model --backend pytorch --tp_size 1 --max_batch_size 2048 --max_num_tokens"
        " 8192 --max_seq_len 4096 --kv_cache_free_gpu_memory_fraction 0.9 --extra_llm_api_options"
        " engine.yaml"
    ),
}
SPECULATIVE = '--speculative-config={"method":"%s","model":"{drafter}","num_speculative_tokens":3}'
KNOBS: list[tuple[str, dict[str, object], str, str]] = [
    ("vllm", {"tp": 4}, "--tensor-parallel-size 4", "--tensor-parallel-size 1"),
    ("vllm", {"pp": 2}, "--pipeline-parallel-size 2", ""),
    ("vllm", {"dp": 8}, "--data-parallel-size 8", ""),
    ("vllm", {"ep": 2}, "--enable-expert-parallel", ""),
    ("vllm", {"max_batch_size": 96}, "--max-num-seqs 96", "--max-num-seqs 1024"),
    (
        "vllm",
        {"max_num_tokens": 4_000},
        "--max-num-batched-tokens 4000",
        "--max-num-batched-tokens 8192",
    ),
    ("vllm", {"chunked_prefill": False}, "--no-enable-chunked-prefill", "--enable-chunked-prefill"),
    ("vllm", {"overlap_schedule": False}, "--no-async-scheduling", "--async-scheduling"),
    ("vllm", {"kv_fraction": 0.8}, "--gpu-memory-utilization 0.8", "--gpu-memory-utilization 0.92"),
    ("vllm", {"kv_8bit": True}, "--kv-cache-dtype=fp8", ""),
    (
        "vllm",
        {"graph_tokens": 1_024},
        "--max-cudagraph-capture-size 1024",
        "--max-cudagraph-capture-size 512",
    ),
    ("vllm", {"graph_tokens": 0}, "", "--max-cudagraph-capture-size 512"),
    ("vllm", {"stream_interval": 4}, "--stream-interval 4", ""),
    ("vllm", {"front_ends": 2}, "--api-server-count 2", ""),
    ("vllm", {"speculation": "eagle k=3 acceptance=0.7"}, SPECULATIVE % "eagle", ""),
    ("vllm", {"speculation": "medusa k=3 acceptance=0.7"}, SPECULATIVE % "medusa", ""),
    (
        "vllm",
        {"speculation": "draft=llama-3.2-1b k=3 acceptance=0.7"},
        SPECULATIVE % "draft_model",
        "",
    ),
    (
        "vllm",
        {"speculation": "mtp k=1 acceptance=0.7"},
        '--speculative-config={"method":"mtp","num_speculative_tokens":1}',
        "",
    ),
    (
        "vllm",
        {"speculation": "ngram k=4 acceptance=0.5"},
        '--speculative-config={"method":"ngram","num_speculative_tokens":4,"prompt_lookup_max":4}',
        "",
    ),
    ("sglang", {"tp": 4}, "--tp-size 4", "--tp-size 1"),
    ("sglang", {"pp": 2}, "--pp-size 2", ""),
    (
        "sglang",
        {"dp": 2},
        (
            "--tp-size 2 --dp-size 2 --max-running-requests 2048 --chunked-prefill-size 16384"
            " --enable-dp-attention"
        ),
        "--tp-size 1 --max-running-requests 1024 --chunked-prefill-size 8192",
    ),
    ("sglang", {"ep": 8}, "--ep-size 8", ""),
    ("sglang", {"max_batch_size": 96}, "--max-running-requests 96", "--max-running-requests 1024"),
    (
        "sglang",
        {"max_num_tokens": 4_000},
        "--chunked-prefill-size 4000",
        "--chunked-prefill-size 8192",
    ),
    (
        "sglang",
        {"chunked_prefill": False},
        "--chunked-prefill-size -1 --max-prefill-tokens 8192",
        "--chunked-prefill-size 8192",
    ),
    ("sglang", {"overlap_schedule": False}, "--disable-overlap-schedule", ""),
    ("sglang", {"kv_fraction": 0.7}, "--mem-fraction-static 0.7", "--mem-fraction-static 0.83"),
    ("sglang", {"kv_8bit": True}, "--kv-cache-dtype=fp8_e4m3", ""),
    ("sglang", {"stream_interval": 4}, "--stream-interval 4", ""),
    ("sglang", {"receive_interval": 4}, "--scheduler-recv-interval 4", ""),
    ("sglang", {"front_ends": 2}, "--tokenizer-worker-num 2", ""),
    (
        "sglang",
        {"speculation": "eagle k=3 acceptance=0.7"},
        (
            "--speculative-algorithm EAGLE --speculative-draft-model-path {drafter}"
            " --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4"
        ),
        "",
    ),
    ("tensorrt-llm", {"tp": 4}, "--tp_size 4", "--tp_size 1"),
    ("tensorrt-llm", {"pp": 2}, "--pp_size 2", ""),
    ("tensorrt-llm", {"ep": 2}, "--ep_size 2", ""),
    ("tensorrt-llm", {"max_batch_size": 96}, "--max_batch_size 96", "--max_batch_size 2048"),
    ("tensorrt-llm", {"max_num_tokens": 4_000}, "--max_num_tokens 4000", "--max_num_tokens 8192"),
    (
        "tensorrt-llm",
        {"kv_fraction": 0.8},
        "--kv_cache_free_gpu_memory_fraction 0.8",
        "--kv_cache_free_gpu_memory_fraction 0.9",
    ),
    ("tensorrt-llm", {"front_ends": 2}, "--num_postprocess_workers 2", ""),
]


def of_change(engine: str, changed: dict[str, object]) -> Command:
    degrees = {name: changed[name] for name in ("tp", "pp", "dp", "ep") if name in changed}
    return started(
        engine,
        Parallelism(**degrees),
        **{name: value for name, value in changed.items() if name not in degrees},
    )


@pytest.mark.parametrize(("engine", "changed", "added", "gone"), KNOBS)
def test_each_knob_says_exactly_this(
    engine: str, changed: dict[str, object], added: str, gone: str
) -> None:
    base = BASE[engine].split()
    assert list(started(engine, Parallelism()).argv) == base
    found = list(of_change(engine, changed).argv)
    assert [word for word in found if word not in base] == [
        word for word in added.split() if word not in base
    ]
    assert [word for word in base if word not in found] == [
        word for word in gone.split() if word not in found
    ]
    assert " ".join(added.split()[:2]) in " ".join(found)


FILE_BASE = {
    "enable_chunked_prefill": True,
    "kv_cache_config": {"tokens_per_block": 32},
    "stream_interval": 1,
    "disable_overlap_scheduler": False,
    "enable_attention_dp": False,
}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, {}),
        ({"chunked_prefill": False}, {"enable_chunked_prefill": False}),
        ({"tokens_per_block": 64}, {"kv_cache_config": {"tokens_per_block": 64}}),
        ({"kv_8bit": True}, {"kv_cache_config": {"tokens_per_block": 32, "dtype": "fp8"}}),
        ({"stream_interval": 4}, {"stream_interval": 4}),
        ({"overlap_schedule": False}, {"disable_overlap_scheduler": True}),
        ({"dp": 2}, {"enable_attention_dp": True}),
        (
            {"batch_wait_steps": 20, "batch_wait_ratio": 0.9},
            {"batch_wait_timeout_iters": 20, "batch_wait_max_tokens_ratio": 0.9},
        ),
        (
            {"speculation": "mtp k=2 acceptance=0.7"},
            {"speculative_config": {"decoding_type": "MTP", "num_nextn_predict_layers": 2}},
        ),
        (
            {"speculation": "eagle k=3 acceptance=0.7"},
            {
                "speculative_config": {
                    "decoding_type": "Eagle",
                    "max_draft_len": 3,
                    "speculative_model_dir": "{drafter}",
                }
            },
        ),
    ],
)
def test_each_knob_of_the_file_says_exactly_this(
    changed: dict[str, object], said: dict[str, object]
) -> None:
    found = of_change("tensorrt-llm", changed).file
    assert {name: value for name, value in found.items() if name != "return_perf_metrics"} == {
        **FILE_BASE,
        **said,
    }


def test_a_drafter_is_named_and_a_method_that_an_engine_does_not_know_has_no_command() -> None:
    eagle = of_change("vllm", {"speculation": "eagle k=3 acceptance=0.7"})
    assert needs_drafter(eagle)
    assert '"model":"my/eagle"' in with_drafter(eagle, "my/eagle").argv[-1]
    file = of_change("tensorrt-llm", {"speculation": "eagle k=3 acceptance=0.7"})
    assert (
        with_drafter(file, "my/eagle").file["speculative_config"]["speculative_model_dir"]
        == "my/eagle"
    )
    assert not needs_drafter(of_change("vllm", {"speculation": "ngram k=3 acceptance=0.7"}))
    assert of_change("vllm", {"speculation": "redrafter k=3 acceptance=0.7"}) == Command()
    assert started("tensorrt-llm-0.9", Parallelism()) == Command()


# The commands of engines whose parsers no tier runs, as a golden file, with the version and the day
# that their flags were read from.


GOLDEN = Path(__file__).parents[1] / "golden" / "launch-commands.json"
CASES: dict[str, tuple[Parallelism, dict[str, Any]]] = {
    "one GPU": (Parallelism(), {}),
    "TP 4 with limits": (Parallelism(tp=4), {"max_batch_size": 128, "max_num_tokens": 4_096}),
    "TP 8, PP 2": (Parallelism(tp=8, pp=2), {}),
    "DP 8, EP 8": (Parallelism(dp=8, ep=8), {}),
    "whole prompts": (Parallelism(), {"chunked_prefill": False, "max_num_tokens": 16_384}),
}


def commands() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for engine in engines():
        if engine.launch is None or engine.family == "vllm":
            continue
        made: dict[str, Any] = {}
        for name, (split, knobs) in CASES.items():
            chosen = replace(default_knobs(engine, find_gpu("h100-sxm-80gb"), split.dp), **knobs)
            started = command(
                engine.launch,
                checkpoint="my/model",
                parallelism=split,
                knobs=chosen,
                max_context=4_096,
                kv_8bit=True,
            )
            made[name] = {
                "command": shlex.join(started.argv),
                **({"file": started.file} if started.file else {}),
            }
        asked = parse_speculation("eagle k=3 acceptance=0.7")
        if any(method == "eagle" for method, _ in engine.launch.speculation):
            chosen = default_knobs(engine, find_gpu("h100-sxm-80gb"), ranks=1)
            started = command(
                engine.launch,
                checkpoint="my/model",
                parallelism=Parallelism(),
                knobs=chosen,
                max_context=4_096,
                speculation=asked,
            )
            made["EAGLE"] = {
                "command": shlex.join(started.argv),
                **({"file": started.file} if started.file else {}),
            }
        found[engine.name] = {
            "read from": engine.launch.source,
            "on": engine.launch.date,
            "commands": made,
        }
    return found


def test_commands_are_those_that_were_read_from_the_engines_sources() -> None:
    made = commands()
    if os.environ.get("TONNAGE_GOLDEN") == "write":
        GOLDEN.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    assert json.loads(GOLDEN.read_text(encoding="utf-8")) == made
    assert {"sglang", "tensorrt-llm", "nim"} <= {name.rsplit("-", 1)[0] for name in made}
    assert all(one["read from"] and one["on"] for one in made.values())


LEAVES_OUT = plans_with()


@pytest.mark.parametrize(
    "place",
    [
        0,
        1,
        3,
        6,
        *(pytest.param(place, marks=pytest.mark.accuracy) for place in (2, 4, 5, *range(7, 60))),
    ],
)
def test_the_engine_starts_with_the_plans_own_flags(place: int) -> None:
    """``./check --engines`` has vLLM's parser read those of 200."""
    plan = drawn_plan(place)
    assert plan is None or list(faults(plan)) == []


@pytest.mark.parametrize(
    ("model", "tp", "reported"),
    [
        ("qwen3.6-27b", "1", 614),
        ("nemotron-3-super-120b-a12b", "2", 524),
        ("glm-5.3-flash", "4", 2_048),
        ("kimi-linear-48b-a3b", "2", 2_048),
    ],
)
def test_no_more_sequences_are_started_than_have_states(model: str, tp: str, reported: int) -> None:
    """The fewest pages of states that vLLM reported of each; of the others, what the pool has room
    for."""
    asked = {
        "model": model,
        "tp": tp,
        "gpu": "h200" if tp == "4" else "h100",
        "engine": "vllm",
        "precision": "fp8",
    }
    (plan,) = size_models(
        **asked, isl=2_000, osl=500, peak_rps=4, ttft="p95<=2s", max_batch_size="2048"
    )
    slots = int(pairs(plan.choice.launch)["--max-num-seqs"])
    assert 16 <= slots <= reported
    assert slots == plan.choice.pool.knobs.max_batch_size
    assert list(faults(plan)) == []


def test_a_start_line_names_a_repository_or_says_that_the_name_is_tonnages() -> None:
    (plan,) = size_models(
        model="llama-3.1-8b",
        gpu="h100",
        engine="vllm",
        isl=500,
        osl=100,
        peak_rps=1,
        precision="fp16,mxfp8",
    )
    assert plan.choice.launch[2] == "meta-llama/Llama-3.1-8B-Instruct"
    assert "Start        vllm serve meta-llama/" in "\n".join(brief_lines([plan]))
    (half,) = size_models(
        model="llama-3.1-8b",
        gpu="h100",
        engine="vllm",
        isl=500,
        osl=100,
        peak_rps=1,
        precision="fp8",
        where="on-prem",
    )
    assert "/" in half.choice.launch[2]
    (unnamed,) = size_models(
        model="gpt-j-6b", gpu="h100", engine="vllm", isl=500, osl=100, peak_rps=1, precision="awq"
    )
    assert unnamed.choice.launch[2] == "gpt-j-6b"
    assert "(gpt-j-6b is Tonnage's name: put the checkpoint's in its place)" in "\n".join(
        brief_lines([unnamed])
    )


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm", "nim-2024"])
def test_a_command_is_found_again_without_its_checkpoint(engine: str) -> None:
    spec = find_engine(engine)
    started = command(
        spec.launch,
        checkpoint="some/repository",
        parallelism=Parallelism(tp=2),
        knobs=default_knobs(spec, find_gpu("h100"), ranks=1),
        max_context=100,
    )
    words = spec.launch.quantizing("fp8")
    bare = without_checkpoint((*started.argv, *words), spec.launch, "llama-3.1-8b", "fp8")
    assert bare == tuple(word.replace("some/repository", "llama-3.1-8b") for word in started.argv)


def test_a_context_that_the_pool_has_no_room_for_is_refused() -> None:
    asked = {
        "model": "llama-3.1-8b",
        "gpu": "l4",
        "tp": "1",
        "pp": "1",
        "engine": "vllm",
        "precision": "fp16",
    }
    (plan,) = size_models(**asked, isl=500, osl=100, peak_rps=1, max_model_len=120_000)
    assert plan.choice is None
    assert [type(one.reason).__name__ for one in plan.rejected][:1] == ["CannotRun"]
    assert "max_model_len: 120,000 tokens do not fit the KV cache" in str(
        plan.rejected[0].reason.error
    )


@pytest.mark.parametrize("preset", ["vllm-0.32", "sglang-0.5.9", "tensorrt-llm-1.2", "nim-2024"])
def test_a_command_that_a_preset_does_not_write_is_refused(preset: str) -> None:
    """A plan is a file that comes from anywhere, and the words of its command are run."""
    pool = dense(preset).choice.pool
    assert foreign_word(pool) == ""
    assert foreign_word(replace(pool, launch=("/bin/sh", *pool.launch[1:]))) == "/bin/sh"
    for words in (
        ("--trust-remote-code",),
        ("--model", "evil/repo"),
        ("--middleware", "evil.module"),
        ("$(touch canary)",),
    ):
        assert foreign_word(replace(pool, launch=(*pool.launch, *words))) != ""
        assert (
            foreign_word(replace(pool, launch=(*pool.launch[:1], *words, *pool.launch[1:]))) != ""
        )
    for number, word in enumerate(pool.launch):
        assert (
            foreign_word(
                replace(
                    pool,
                    launch=(
                        *pool.launch[:number],
                        word + "; touch canary",
                        *pool.launch[number + 1 :],
                    ),
                )
            )
            != ""
        )
    assert (
        foreign_word(replace(pool, launch_file={**pool.launch_file, "load_format": "evil"}))
        == "load_format: evil"
    )


def test_a_value_that_is_not_the_knobs_is_refused() -> None:
    pool = dense().choice.pool
    place = pool.launch.index("--max-num-batched-tokens") + 1
    changed = (*pool.launch[:place], str(pool.knobs.max_num_tokens + 1), *pool.launch[place + 1 :])
    assert foreign_word(replace(pool, launch=changed)) == "--max-num-batched-tokens"


FOREIGN = {
    "--trust-remote-code": (1, ("--trust-remote-code",)),
    "--model": (1, ("--model", "evil/repo")),
    "--middleware": (1, ("--middleware", "evil.module")),
    "/tmp/evil": (0, ("/tmp/evil",)),
}
"""The word that is refused: from which word of the command on others stand, and which."""


@pytest.mark.parametrize("word", FOREIGN)
@pytest.mark.parametrize(
    "target", ["compose", "kubernetes", "kserve", "llm-d", "dynamo", "ray-serve"]
)
def test_no_target_writes_the_words_of_a_foreign_plan(
    target: str, word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = dense()
    pool = plan.choice.pool
    place, words = FOREIGN[word]
    launch = (*words, *pool.launch[1:]) if place == 0 else (*pool.launch, *words)
    evil = replace(plan.choice, pools=(replace(pool, launch=launch),))
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(replace(plan, candidates=(evil,)).to_json()), encoding="utf-8")
    assert run(["deploy", str(file), "--target", target, "--output", str(tmp_path / "out")]) == 2
    assert f"'{word}', which Tonnage does not write" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("changed", "context"),
    [
        ({"model": "llama-3.1-8b", "isl": 500, "osl": 100}, 131_072),
        ({"model": "qwen3-32b", "isl": 500, "osl": 100}, 40_960),
        ({"model": "llama-3.1-8b", "isl": 500, "osl": 100, "max_model_len": 4_000}, 4_000),
    ],
)
def test_the_context_is_the_models_where_the_pool_surely_holds_it(
    changed: dict[str, Any], context: int
) -> None:
    """The lengths of a question are within 20 % of a mean, and production has a tail."""
    (plan,) = size_models(gpu="h100", precision="fp8", engine="vllm", tp=2, peak_rps=1, **changed)
    assert plan.choice is not None
    assert pairs(plan.choice.launch)["--max-model-len"] == str(context)


def test_a_context_beyond_the_pool_is_cut_to_four_fifths_of_it() -> None:
    plan = size_models(
        model="llama-3.1-8b",
        gpu="l4",
        precision="fp16",
        engine="vllm",
        tp=1,
        isl=500,
        osl=100,
        peak_rps=1,
    )[0]
    assert plan.choice is not None
    context = int(pairs(plan.choice.launch)["--max-model-len"])
    assert 720 < context <= 0.8 * plan.choice.pool.kv_tokens < 131_072


@pytest.mark.parametrize(
    ("engine", "precision", "word"),
    [
        ("vllm", "fp8", "--kv-cache-dtype=fp8"),
        ("vllm", "fp8+kv-fp16", "--kv-cache-dtype=bfloat16"),
        ("vllm-0.10", "fp8+kv-fp16", ""),  # takes no declaration over
        ("sglang", "fp8+kv-fp16", "--kv-cache-dtype=bf16"),
        ("vllm", "fp16", ""),
        ("tensorrt-llm", "fp8+kv-fp16", ""),
    ],
)
def test_the_engine_keeps_the_kv_cache_that_was_counted(
    engine: str, precision: str, word: str
) -> None:
    """NVIDIA's checkpoint in FP8 declares a KV cache in FP8; TensorRT-LLM has no flag against that,
    and the plan says so."""
    (plan,) = size_models(
        model="llama-3.1-8b",
        gpu="h100",
        engine=engine,
        isl=500,
        osl=100,
        peak_rps=1,
        precision=precision,
        tp="1",
    )
    pool = plan.choice.pool
    assert [part for part in pool.launch if "kv-cache-dtype" in part] == [word] * bool(word)
    assert foreign_word(pool) == ""
    assert ("kv-cache-of-checkpoint" in {warning.rule for warning in plan.warnings}) == (
        engine == "tensorrt-llm"
    )
    assert ("kv_cache_quant_algo" in "\n".join(brief_lines([plan]))) == (engine == "tensorrt-llm")
