"""The files of two plans, letter by letter. ``TONNAGE_GOLDEN=write`` writes those that differ."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest

from tests.deploy.plans import DENSE_CHECKPOINT, dense, experts
from tonnage.deploy.targets import deployed, target_files

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
    kept = {str(path.relative_to(folder)): path.read_text(encoding="utf-8") for path in folder.rglob("*") if path.is_file()}
    assert files == kept
