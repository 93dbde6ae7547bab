"""The exact command and environment of each instance, by a plan and by a profile, on machines that
are described."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.plans import DENSE_CHECKPOINT, dense
from tests.serve.launch.machines import NO_GPU, busy, of
from tonnage.api.running.serve_engine import EngineAsked, machine_profiles, prepare_engine
from tonnage.cli.main import run
from tonnage.errors import DoesNotFit, InputError
from tonnage.perf.memory import memory_plan
from tonnage.plan.plan import Plan
from tonnage.serve.launch import Start
from tonnage.serve.machine import Machine
from tonnage.serve.profiles import Profile, deployed
from tonnage.spec.catalog import find_engine, find_gpu, find_model


def ports(count: int) -> list[int]:
    return list(range(9_000, 9_000 + count))


def start(machine: Machine, **asked: Any) -> Start:
    return prepare_engine(
        EngineAsked(**{"engine": "auto", **asked}), machine, ports=ports, dry=True
    )


@pytest.fixture
def saved(tmp_path: Path) -> Callable[[Plan], Path]:
    def save(plan: Plan) -> Path:
        path = tmp_path / "plan.json"
        path.write_text(json.dumps(plan.to_json()), encoding="utf-8")
        return path

    return save


def changed(plan: Plan, **pool: Any) -> Plan:
    other = replace(plan.candidates[0].pool, **pool)
    return replace(plan, candidates=(replace(plan.candidates[0], pools=(other,)),))


def test_a_plan_is_started_word_by_word(saved: Callable[[Plan], Path]) -> None:
    plan = dense()
    found = start(of(), plan=saved(plan), checkpoint=DENSE_CHECKPOINT)
    launch = plan.candidates[0].pool.launch
    listens = ("--host", "127.0.0.1", "--port", "9003", "--served-model-name", "llama-3.1-8b")
    assert found.instances[3].argv[1:] == ("serve", DENSE_CHECKPOINT, *launch[3:], *listens)
    assert found.instances[3].environment == {
        "VLLM_NO_USAGE_STATS": "1",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": "3",
    }
    assert [one.devices[0].index for one in found.instances] == list(range(8))
    assert found.notes == ()


def test_a_machine_that_holds_fewer_instances_than_the_plan_says_so(
    saved: Callable[[Plan], Path],
) -> None:
    found = start(busy(of(), 0), plan=saved(dense()), checkpoint=DENSE_CHECKPOINT)
    assert [one.environment["CUDA_VISIBLE_DEVICES"] for one in found.instances] == [
        "1",
        "2",
        "3",
        "4",
        "5",
        "6",
        "7",
    ]
    assert found.notes == ("7 of the plan's 8 instances are on this machine.",)
    two = start(
        of(),
        plan=saved(dense()),
        checkpoint=DENSE_CHECKPOINT,
        gpus="5,2",
        instances=2,
        engine_env=["A=b=c"],
    )
    assert [one.environment["CUDA_VISIBLE_DEVICES"] for one in two.instances] == ["2", "5"]
    assert two.instances[0].environment["A"] == "b=c"


@pytest.mark.parametrize(
    ("machine", "pool", "asked", "said"),
    [
        (
            of("a100-sxm-80gb", capability="8.0"),
            {},
            {},
            "is for h100-sxm-80gb, and this machine has a100-sxm-80gb",
        ),
        (NO_GPU, {}, {}, "is for h100-sxm-80gb, and this machine has no GPU"),
        (of(driver="550.54"), {}, {}, "driver 550.54 is too old: vllm-0.32 is built with CUDA 13"),
        (
            of(),
            {"precision": "mxfp8", "engine_preset": "vllm-0.21"},
            {},
            "no matrix units for the block scales of MXFP8",
        ),
        (of(), {"tp": 16}, {}, "an instance takes 16 GPUs, and this machine has 8"),
        (of(), {}, {"engine": "sglang"}, "the plan is for vllm; take vllm or auto"),
        (of(), {}, {"tp": 2}, "tp: a plan says it"),
        (of(), {"engine": "vllm-0.32 + eagle k=3"}, {}, "chose|speculation"),
        (of(), {"launch": ()}, {}, "no command is known"),
        (
            of(),
            {"launch": ("/bin/sh", "-c", "touch canary")},
            {},
            "its command holds '/bin/sh', which Tonnage does not write",
        ),
        (
            of(),
            {"launch": ("vllm", "serve", "a/b", "--trust-remote-code")},
            {},
            "its command holds '--trust-remote-code'",
        ),
    ],
)
def test_a_plan_that_cannot_run_here_is_refused_by_name(
    saved: Callable[[Plan], Path],
    machine: Machine,
    pool: dict[str, Any],
    asked: dict[str, Any],
    said: str,
) -> None:
    plan = changed(dense(), **pool)
    with pytest.raises(InputError, match=said):
        start(machine, plan=saved(plan), checkpoint=DENSE_CHECKPOINT, **asked)


def test_a_drafter_must_be_named(saved: Callable[[Plan], Path]) -> None:
    plan = dense()
    words = '--speculative-config={"method":"eagle","model":"{drafter}","num_speculative_tokens":3}'
    drafting = changed(plan, launch=(*plan.candidates[0].pool.launch, words))
    with pytest.raises(InputError, match="drafter: the plan decodes speculatively"):
        start(of(), plan=saved(drafting), checkpoint=DENSE_CHECKPOINT)
    named = (
        start(of(), plan=saved(drafting), checkpoint=DENSE_CHECKPOINT, drafter="my/eagle")
        .instances[0]
        .argv
    )
    assert '"model":"my/eagle"' in " ".join(named)


def test_a_profile_gets_gpus_that_are_joined() -> None:
    found = start(
        of(),
        engine="vllm",
        model="llama-3.1-70b",
        tp=4,
        instances=2,
        max_model_len=8_192,
        max_batch_size=64,
    )
    assert [one.environment["CUDA_VISIBLE_DEVICES"] for one in found.instances] == [
        "0,1,2,3",
        "4,5,6,7",
    ]
    words = found.instances[0].argv
    said = dict(zip(words, (*words[1:], ""), strict=True))
    assert (said["--tensor-parallel-size"], said["--max-model-len"], said["--max-num-seqs"]) == (
        "4",
        "8192",
        "64",
    )
    assert found.notes == ()
    apart = replace(of(), devices=tuple(replace(one, linked=()) for one in of().devices))
    assert "over PCIe" in start(apart, engine="vllm", model="llama-3.1-70b", tp=4).notes[0]


def test_tensorrt_llm_has_a_file_and_amd_its_own_variable() -> None:
    found = start(of(), engine="tensorrt-llm", model="llama-3.1-8b", tp=1)
    assert found.file["return_perf_metrics"] is True
    # the last part of the checkpoint's name, since it takes no other
    assert found.model == "Llama-3.1-8B-Instruct"
    assert found.instances[0].program(0, "/x/engine.yaml").argv.count("/x/engine.yaml") == 1
    amd = of("mi300x", gib=191.9, capability="")
    amd = replace(
        amd, driver="6.12", devices=tuple(replace(one, vendor="AMD") for one in amd.devices)
    )
    other = start(amd, engine="vllm", model="llama-3.1-8b", tp=1)
    assert other.instances[0].environment["HIP_VISIBLE_DEVICES"] == "0"
    with pytest.raises(InputError, match="runs on GPUs of NVIDIA, and these are of AMD"):
        start(amd, engine="tensorrt-llm", model="llama-3.1-8b")


def test_nim_is_a_container_with_its_own_gpus_and_port(saved: Callable[[Plan], Path]) -> None:
    plan = dense("nim-2024")
    found = start(
        of(count=2),
        plan=saved(plan),
        checkpoint="meta/llama-3.1-8b-instruct:1.8.4",
        engine_env=["NIM_MODEL_PROFILE=x"],
    )
    words = found.instances[1].argv
    assert words[1] == "run"
    assert words[words.index("--gpus") + 1] == '"device=1"'
    assert words[words.index("--publish") + 1] == "127.0.0.1:9001:8000"
    assert words[-3:] == (
        "--env",
        "NIM_MODEL_PROFILE=x",
        "nvcr.io/nim/meta/llama-3.1-8b-instruct:1.8.4",
    )
    assert found.instances[1].path == "/v1/health/ready"
    with pytest.raises(InputError, match="name the image of NIM as owner/name:tag"):
        start(of(), plan=saved(plan))


def test_nim_starts_without_a_plan_on_the_gpus_of_a_profile() -> None:
    image = "registry.example.com/mine/llama:1"
    found = start(
        of(count=4), engine="nim", model="llama-3.1-70b", precision="bf16", tp=4, checkpoint=image
    )
    words = found.instances[0].argv
    assert words[words.index("--gpus") + 1] == '"device=0,1,2,3"'
    assert any(word.startswith("--env=NIM_MAX_MODEL_LEN=") for word in words)
    assert words[-1] == image  # a registry of its own stays as it is
    assert (
        start(of(), engine="nim", model="llama-3.1-8b", checkpoint="meta/llama:1")
        .instances[0]
        .argv[-1]
        == "nvcr.io/nim/meta/llama:1"
    )
    with pytest.raises(InputError, match="name the image of NIM as owner/name:tag"):
        start(of(), engine="nim", model="llama-3.1-8b")


@pytest.mark.parametrize(
    ("image", "driver", "says"),
    [
        ("meta/llama-3.1-8b-instruct:1.8.4", "535.183.01", ""),
        (
            "meta/llama-3.1-8b-instruct:1.8.4",
            "470.57.02",
            "driver 470.57.02 is too old: meta/llama-3.1-8b-instruct:1.8.4 .* CUDA 12",
        ),
        ("nvidia/vllm-model-free-nim:2.1.0", "580.65.06", ""),
        (
            "nvidia/vllm-model-free-nim:2.1.0",
            "560.35.03",
            "CUDA 13, which needs 580.65.06 or newer; update it, or name an image of NIM 1",
        ),
        ("meta/llama-3.1-8b-instruct:latest", "560.35.03", "CUDA 13"),
    ],
)
def test_nim_is_judged_by_the_cuda_of_its_image(image: str, driver: str, says: str) -> None:
    asked = {"engine": "nim", "model": "llama-3.1-8b", "checkpoint": image}
    if not says:
        assert start(of(driver=driver), **asked).instances[0].argv[-1] == f"nvcr.io/nim/{image}"
        return
    with pytest.raises(InputError, match=f"checkpoint: .*{says}"):
        start(of(driver=driver), **asked)


def test_triton_serves_a_repository(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is no model repository"):
        start(of(), engine="triton", model=str(tmp_path))
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.pbtxt").write_text('name: "model"\n', encoding="utf-8")
    (one,) = start(of(), engine="triton", model=str(tmp_path)).instances
    assert one.argv[1:7] == (
        "--model-repository",
        str(tmp_path),
        "--http-address",
        "127.0.0.1",
        "--http-port",
        "9000",
    )
    assert one.environment["CUDA_VISIBLE_DEVICES"] == "0"
    assert one.path == "/v2/health/ready"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A folder that looks like a checkpoint of a small Llama."""
    folder = tmp_path / "small"
    folder.mkdir()
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 512,
        "intermediate_size": 1_408,
        "num_hidden_layers": 8,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "vocab_size": 8_000,
        "max_position_embeddings": 4_096,
        "torch_dtype": "bfloat16",
    }
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def test_without_a_gpu_vllm_runs_on_the_cpu(checkpoint: Path) -> None:
    found = start(
        NO_GPU, model=str(checkpoint), max_model_len=2_048, kv_cache_gb=1, threads=1, instances=2
    )
    assert found.instances[1].argv[1:5] == ("serve", str(checkpoint), "--max-model-len", "2048")
    assert found.instances[1].environment == {
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "OMP_NUM_THREADS": "1",
    }
    with pytest.raises(DoesNotFit, match="exceed the 24 GiB of this machine"):
        start(NO_GPU, model=str(checkpoint), kv_cache_gb=40)


def test_a_folder_is_loaded_in_its_own_format_and_a_compiled_engine_is_refused(
    checkpoint: Path,
) -> None:
    found = start(of(), engine="vllm", model=str(checkpoint))
    assert found.why.startswith("vllm-bf16-tp")
    assert found.instances[0].argv[2] == str(checkpoint)
    assert found.model == "small"
    (checkpoint / "rank0.engine").write_bytes(b"")
    with pytest.raises(InputError, match="compiled for one kind of GPU"):
        start(of(), engine="vllm", model=str(checkpoint))


def test_the_command_shows_it_and_starts_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "machine.yaml"
    path.write_text(yaml.safe_dump(json.loads(json.dumps(of().to_json()))), encoding="utf-8")
    where = ["serve", "--engine", "vllm", "--model", "llama-3.1-70b", "--machine", str(path)]
    assert run([*where, "--list-profiles", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert {one["kind"] for one in said["profiles"]} == {"runnable", "low memory", "incompatible"}
    assert run([*where, "--list-profiles"]) == 0
    assert "Runs here with a shorter context" in capsys.readouterr().out
    assert run([*where, "--dry-run", "--tp", "4"]) == 0
    shown = capsys.readouterr().out
    assert "CUDA_VISIBLE_DEVICES=0,1,2,3" in shown
    assert "--tensor-parallel-size 4" in shown
    assert run([*where, "--dry-run", "--tp", "4", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["instances"][0]["gpus"] == [0, 1, 2, 3]
    assert run(where) == 2
    assert "--machine: belongs to --list-profiles or --dry-run" in capsys.readouterr().err
    assert run(["serve", "--engine", "vllm", "--model", "x", "--fault", "500 share=0.1"]) == 2
    assert "--fault: says nothing to --engine vllm" in capsys.readouterr().err


# Which profiles run on a described machine, which is chosen, and what is refused by name.

BIG = "llama-3.1-70b"


def found(machine: Machine, *, engine: str = "vllm", **asked: object) -> dict[str, Profile]:
    return {
        one.name: one
        for one in machine_profiles(EngineAsked(engine=engine, **{"model": BIG, **asked}), machine)
    }


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
