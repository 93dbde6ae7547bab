"""What ./check runs of the tests, by the functions of the script."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def called(function: str, folder: Path, *words: str) -> list[str]:
    """The lines that a function of the script prints in a folder."""
    script = (ROOT / "check").read_text(encoding="utf-8")
    match = re.search(rf"^{function}\(\) \{{.*?^\}}", script, re.MULTILINE | re.DOTALL)
    assert match is not None
    done = subprocess.run(
        ["sh", "-euc", f'{match[0]}\n{function} "$@"', "sh", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A commit of a module and of two test files."""
    for path, text in {
        "src/tonnage/plan/plan.py": "",
        "src/tonnage/units.py": "",
        "tests/test_units.py": "",
        "tests/plan/test_plan.py": "def test_a_lesson(): ...",
        "tests/cost/test_year.py": "def test_more(): ...",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    words = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "all"]):
        subprocess.run([*words, *command], cwd=tmp_path, check=True)
    return tmp_path


def test_a_word_names_the_files_that_have_it_in_text_or_path(checkout: Path) -> None:
    assert called("named", checkout, "-k", "lesson") == ["tests/plan/test_plan.py"]
    assert called("named", checkout, "-k", "year") == ["tests/cost/test_year.py"]
    assert called("named", checkout, "-k", "lesson or more") == []
    assert called("named", checkout, "tests/plan") == []


def test_quick_takes_the_folders_of_what_changed(checkout: Path) -> None:
    assert called("changed", checkout) == []
    (checkout / "src/tonnage/plan/plan.py").write_text("x = 1")
    (checkout / "tests/cost/test_new.py").write_text("")
    assert called("changed", checkout) == ["tests/cost/test_new.py", "tests/plan"]
    (checkout / "src/tonnage/units.py").write_text("x = 1")
    assert called("changed", checkout)[-1] == "tests/test_units.py"
