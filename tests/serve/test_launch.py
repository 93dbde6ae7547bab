from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.plans import DENSE_CHECKPOINT, dense
from tests.serve.launch.machines import NO_GPU, busy, of
from tonnage.api.running.serve_engine import EngineAsked, prepare_engine
from tonnage.errors import DoesNotFit, InputError
from tonnage.plan.plan import Plan
from tonnage.serve.launch import Start
from tonnage.serve.machine import Machine


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
