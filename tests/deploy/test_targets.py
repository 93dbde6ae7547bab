"""Targets: their files, and the nearest of the plan's deployments."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.deploy.plans import DENSE_CHECKPOINT, dense, experts, started
from tests.deploy.pools import pooled
from tests.deploy.written import asked
from tonnage.cli.main import run
from tonnage.deploy.targets import deployed, target_files, write_folder
from tonnage.errors import InputError
from tonnage.spec.targets import TARGETS


def test_a_folder_is_written_whole_or_not_at_all(
    plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "mine").write_text("x", encoding="utf-8")
    assert run([*asked(plan, folder), "--checkpoint", DENSE_CHECKPOINT]) == 2
    assert "is there already and not an empty folder" in capsys.readouterr().err
    assert [path.name for path in folder.iterdir()] == ["mine"]
    with pytest.raises(InputError, match="cannot be written"):
        write_folder(tmp_path / "other", {"a": "x", "a/b": "y"})
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("name", ["../victim", "a/../../victim", "{}/victim"])
def test_no_file_is_written_outside_of_the_folder(name: str, tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("whole", encoding="utf-8")
    with pytest.raises(InputError, match="leads out of"):
        write_folder(tmp_path / "out", {"a": "x", name.format(tmp_path): "evil"})
    assert [path.name for path in tmp_path.iterdir()] == ["victim"]
    assert (tmp_path / "victim").read_text(encoding="utf-8") == "whole"


HERE = Path(__file__).parent / "golden"

CASES = {
    "dense-compose": ("compose", dense, DENSE_CHECKPOINT),
    "dense-kubernetes": ("kubernetes", dense, DENSE_CHECKPOINT),
    "experts-kubernetes": ("kubernetes", experts, None),
    "experts-ray-serve": ("ray-serve", experts, None),
    "dense-kserve": ("kserve", dense, DENSE_CHECKPOINT),
    "dense-llm-d": ("llm-d", dense, DENSE_CHECKPOINT),
    "dense-dynamo": ("dynamo", dense, DENSE_CHECKPOINT),
    "dense-nim": ("nim", dense, "meta/llama-3.1-8b-instruct:2.1.5"),
    "dense-triton": ("triton", dense, DENSE_CHECKPOINT),
    "tensorrt-llm-triton": ("triton", partial(dense, "tensorrt-llm-1.2"), DENSE_CHECKPOINT),
}


@pytest.mark.parametrize("case", CASES)
def test_files_of_a_target_golden(case: str) -> None:
    target, plan, checkpoint = CASES[case]
    files = target_files(deployed(plan(), target, checkpoint=checkpoint), target)
    folder = HERE / case
    if os.environ.get("TONNAGE_GOLDEN") == "write":
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
    kept = {
        str(path.relative_to(folder)): path.read_text(encoding="utf-8")
        for path in folder.rglob("*")
        if path.is_file()
    }
    assert files == kept


def test_the_deployment_of_a_target_is_the_nearest_of_the_plan() -> None:
    pool = experts().candidates[0].pool
    assert pool.knobs is not None
    command = started("sglang-0.5.9", pool.model, pool.parallelism, pool.knobs, kv_8bit=False)
    halved = replace(
        experts().candidates[0], pools=(replace(pool, engine_preset="sglang-0.5.9", **command),)
    )
    other = replace(dense().candidates[0].pool, model="deepseek-v3", precision="fp16")
    plan = replace(experts(), candidates=(halved, replace(halved, pools=(other,))))
    assert deployed(plan, "kubernetes", checkpoint="my/own").checkpoint == "my/own"
    assert deployed(plan, "ray-serve").pool.precision == "fp16"
    with pytest.raises(InputError, match="no other deployment of the plan runs on ray-serve"):
        deployed(plan, "ray-serve", checkpoint="my/own-fp8")
    choice = dense("sglang-0.5.9").candidates[0]
    vllm = dense().candidates[0]
    elsewhere = replace(vllm, pools=(replace(vllm.pool, gpu="h200-sxm-141gb", system="dgx-h200"),))
    wider = replace(vllm, pools=(replace(vllm.pool, precision="fp16"),))
    plan = replace(dense(), candidates=(choice, elsewhere, wider, vllm))
    taken = deployed(plan, "ray-serve")
    assert taken.choice == vllm
    assert taken.plan.candidates == (vllm, choice, elsewhere, wider)
    assert (taken.plan.curve, taken.plan.autoscaling) == ((), None)  # which are of the choice
    assert (
        deployed(replace(plan, candidates=(choice, elsewhere, wider)), "ray-serve").choice == wider
    )
    assert deployed(replace(plan, candidates=(choice, elsewhere)), "ray-serve").choice == elsewhere


def test_a_target_without_pools_takes_the_nearest_deployment_with_one_or_says_what_to_type() -> (
    None
):
    plan = pooled()
    taken = deployed(replace(plan, candidates=(*plan.candidates, *dense().candidates)), "compose")
    assert taken.choice == dense().candidates[0]
    assert taken.why == "compose does not run two pools, prefill and decode"
    for target in [name for name, runs in TARGETS.items() if not runs.pools]:
        said = (
            f"{target} does not run two pools, prefill and decode; write target llm-d or target"
            " dynamo$"
        )
        with pytest.raises(InputError, match=said):
            deployed(pooled(), target, checkpoint=DENSE_CHECKPOINT)
