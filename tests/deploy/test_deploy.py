"""``tonnage deploy``: a folder that is written whole or not at all, and what is refused by name."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.deploy.plans import DENSE_CHECKPOINT, dense, experts
from tests.deploy.written import asked
from tonnage.cli.main import run
from tonnage.deploy.service import service_of
from tonnage.deploy.targets import deployed, target_files, write_folder
from tonnage.deploy.yaml_comments import noted, plain, yaml_text
from tonnage.errors import InputError
from tonnage.plan.plan import Plan


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


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {"gpu": "mi300x", "system": "8x mi300x"},
            "writes only NVIDIA GPUs for nim, not mi300x by AMD",
        ),
        ({"launch": ()}, "no command or image is known for vllm-0.32"),
        ({"gpus_per_system": 0}, "an instance of 1 GPUs spans several machines"),
    ],
)
def test_a_plan_that_no_target_can_hold_is_refused(changed: dict[str, object], said: str) -> None:
    found = dense()
    pool = replace(found.candidates[0].pool, **changed)
    other = replace(found, candidates=(replace(found.candidates[0], pools=(pool,)),))
    with pytest.raises(InputError, match=said):
        deployed(other, "nim", checkpoint=DENSE_CHECKPOINT)
    with pytest.raises(InputError, match="chose nothing"):
        service_of(replace(found, candidates=()))


def test_a_drafter_stands_in_the_command() -> None:
    plan = dense()
    words = '--speculative-config={"method":"eagle","model":"{drafter}","num_speculative_tokens":3}'
    pool = replace(plan.candidates[0].pool, launch=(*plan.candidates[0].pool.launch, words))
    drafting = replace(plan, candidates=(replace(plan.candidates[0], pools=(pool,)),))
    assert '"model":"my/eagle"' in " ".join(
        service_of(drafting, checkpoint=DENSE_CHECKPOINT, drafter="my/eagle").argv
    )
    with pytest.raises(InputError, match="name the drafter's checkpoint"):
        service_of(drafting, checkpoint=DENSE_CHECKPOINT)
    with pytest.raises(InputError, match="the plan's command takes none"):
        service_of(plan, checkpoint=DENSE_CHECKPOINT, drafter="my/eagle")


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


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=30),
)


LINES = st.lists(st.text(alphabet="abc: #-'\"|>{}[]&*%", max_size=8), min_size=1, max_size=4).map(
    lambda lines: "\n".join(lines) + "\n"
)


NOTES = st.text(alphabet="abc # \n", max_size=12)


def values() -> st.SearchStrategy[object]:
    def wider(inner: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
        entries = st.one_of(inner, st.builds(noted, inner, NOTES))
        return st.one_of(
            st.lists(entries, max_size=3),
            st.dictionaries(
                st.text(max_size=6).filter(lambda key: key != "<<"), entries, max_size=3
            ),
        )

    return st.recursive(st.one_of(SCALARS, LINES), wider, max_leaves=12)


@given(
    st.dictionaries(
        st.text(min_size=1, max_size=6).filter(lambda key: key != "<<"),
        values(),
        min_size=1,
        max_size=4,
    ),
    NOTES,
)
def test_what_is_written_reads_back(document: dict[str, object], head: str) -> None:
    assert yaml.safe_load(yaml_text(document, head=head)) == plain(document)
