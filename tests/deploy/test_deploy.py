"""``tonnage deploy``: a folder that is written whole or not at all, and what is refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from tests.deploy.plans import DENSE_CHECKPOINT, dense
from tests.deploy.written import asked
from tonnage.cli.main import run
from tonnage.plan.plan import Plan

if TYPE_CHECKING:
    import pytest


def test_a_folder_with_the_plan_in_it_is_written(
    plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "a" / "b"
    assert run([*asked(plan, folder), "--checkpoint", DENSE_CHECKPOINT, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert set(said["files"]) == {
        str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()
    }
    assert Plan.from_json(json.loads((folder / "plan.json").read_text(encoding="utf-8"))) == dense()
    page = (folder / "README.md").read_text(encoding="utf-8")
    block = page.split("```sh\n")[1].split("```")[0].replace("\\\n", "")
    assert len(block.strip().splitlines()) == 5
    assert "tonnage bench" in block
    assert "tonnage compare run plan.json" in block
    assert [path for path in folder.parent.iterdir() if path != folder] == []
    assert (said["checkpoint"], said["notes"]) == (
        DENSE_CHECKPOINT,
        [f"The engine loads `{DENSE_CHECKPOINT}`, given with `--checkpoint`."],
    )


def test_what_cannot_be_is_refused_by_name(
    plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for target, checkpoint, said in (
        (
            "nomad",
            DENSE_CHECKPOINT,
            (
                "--target: no files are written for 'nomad'; there are compose, kubernetes, kserve,"
                " llm-d, dynamo, "
            ),
        ),
        ("kubernetes", "a b", "--checkpoint: 'a b' is no name of a checkpoint"),
    ):
        assert run([*asked(plan, tmp_path / "out", target=target), "--checkpoint", checkpoint]) == 2
        assert said in capsys.readouterr().err
        assert not (tmp_path / "out").exists()
