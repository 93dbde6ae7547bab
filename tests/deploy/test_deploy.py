"""``tonnage deploy``: a folder that is written whole or not at all, and what is refused by name."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.deploy.plans import DENSE_CHECKPOINT, dense
from tonnage.cli.main import run
from tonnage.deploy.service import service_of
from tonnage.deploy.targets import write_folder
from tonnage.errors import InputError
from tonnage.plan.plan import Plan


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(dense().to_json()), encoding="utf-8")
    return path


def asked(plan: Path, folder: Path, *further: str, target: str = "kubernetes") -> list[str]:
    return ["deploy", str(plan), "--target", target, "--output", str(folder), *further]


def test_a_folder_with_the_plan_in_it_is_written(plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "a" / "b"
    assert run([*asked(plan, folder), "--checkpoint", DENSE_CHECKPOINT, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert set(said["files"]) == {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert Plan.from_json(json.loads((folder / "plan.json").read_text(encoding="utf-8"))) == dense()
    page = (folder / "README.md").read_text(encoding="utf-8")
    block = page.split("```sh\n")[1].split("```")[0].replace("\\\n", "")
    assert len(block.strip().splitlines()) == 5
    assert "tonnage bench" in block
    assert "tonnage compare run plan.json" in block
    assert [path for path in folder.parent.iterdir() if path != folder] == []
    assert (said["checkpoint"], said["notes"]) == (DENSE_CHECKPOINT, [f"The engine loads `{DENSE_CHECKPOINT}`, given with `--checkpoint`."])


def test_what_is_there_is_left_alone(plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "mine").write_text("x", encoding="utf-8")
    assert run([*asked(plan, folder), "--checkpoint", DENSE_CHECKPOINT]) == 2
    assert "is there already and not an empty folder" in capsys.readouterr().err
    assert [path.name for path in folder.iterdir()] == ["mine"]


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        write_folder(tmp_path / "out", {"a": "x", "a/b": "y"})
    assert list(tmp_path.iterdir()) == []


def test_an_empty_folder_is_filled(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    write_folder(tmp_path / "out", {"a/b": "y"})
    assert (tmp_path / "out" / "a" / "b").read_text(encoding="utf-8") == "y"


@pytest.mark.parametrize(
    ("further", "said"),
    [
        (
            ("nomad", DENSE_CHECKPOINT),
            "--target: no files are written for 'nomad'; there are compose, kubernetes, kserve, llm-d, dynamo, ray-serve, nim, triton",
        ),
        (("kubernetes", "a b"), "--checkpoint: 'a b' is no name of a checkpoint"),
    ],
)
def test_what_cannot_be_is_refused_by_name(
    plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], further: tuple[str, ...], said: str
) -> None:
    folder = tmp_path / "out"
    target, *checkpoint = further
    assert run([*asked(plan, folder, target=target), *(("--checkpoint", *checkpoint) if checkpoint else ())]) == 2
    assert said in capsys.readouterr().err
    assert not folder.exists()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"gpu": "mi300x", "system": "8x mi300x"}, "supports only NVIDIA GPUs, not mi300x by AMD"),
        ({"launch": ()}, "no command or image is known for vllm-0.32"),
        ({"gpus_per_system": 0}, "an instance of 1 GPUs spans several systems"),
    ],
)
def test_a_plan_that_no_target_can_hold_is_refused(changed: dict[str, object], said: str) -> None:
    found = dense()
    pool = replace(found.candidates[0].pool, **changed)
    other = replace(found, candidates=(replace(found.candidates[0], pools=(pool,)),))
    with pytest.raises(InputError, match=said):
        service_of(other, checkpoint=DENSE_CHECKPOINT)
    with pytest.raises(InputError, match="chose nothing"):
        service_of(replace(found, candidates=()))


def test_a_drafter_stands_in_the_command() -> None:
    plan = dense()
    words = '--speculative-config={"method":"eagle","model":"{drafter}","num_speculative_tokens":3}'
    pool = replace(plan.candidates[0].pool, launch=(*plan.candidates[0].pool.launch, words))
    drafting = replace(plan, candidates=(replace(plan.candidates[0], pools=(pool,)),))
    assert '"model":"my/eagle"' in " ".join(service_of(drafting, checkpoint=DENSE_CHECKPOINT, drafter="my/eagle").argv)
    with pytest.raises(InputError, match="name the drafter's checkpoint"):
        service_of(drafting, checkpoint=DENSE_CHECKPOINT)
    with pytest.raises(InputError, match="the plan's command takes none"):
        service_of(plan, checkpoint=DENSE_CHECKPOINT, drafter="my/eagle")
