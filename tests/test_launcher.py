"""./tonnage on a checkout that has never run: its environment is made once, whole, and in silence
on stdout."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
import tomllib
from pathlib import Path

import pytest

import tonnage

ROOT = Path(__file__).parents[1]
PROGRAM = """
import os, sys
print("ran", *sys.argv[1:], "in", os.getcwd())
sys.exit(7 if "fail" in sys.argv else 0)
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout in a folder with spaces in its name, whose requirements are empty."""
    root = tmp_path / "a check out"
    (root / "src" / "tonnage").mkdir(parents=True)
    (root / "src" / "tonnage" / "__init__.py").touch()
    (root / "src" / "tonnage" / "__main__.py").write_text(PROGRAM)
    (root / "requirements").mkdir()
    for name in ("environment.py", "environment.sh"):
        shutil.copy(ROOT / "requirements" / name, root / "requirements" / name)
    for name in ("core", "fit"):
        (root / "requirements" / f"{name}.txt").write_text("# nothing\n")
    (root / "tools" / "fit").mkdir(parents=True)
    (root / "tools" / "fit" / "__main__.py").write_text(PROGRAM.replace('"ran"', '"fitted"'))
    for launcher in ("tonnage", "fit"):
        shutil.copy(ROOT / launcher, root / launcher)
    return root


def run(
    program: Path, *arguments: str, cwd: Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program, *arguments],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.mark.install
def test_made_once_then_silent_and_again_when_the_pins_change(
    checkout: Path, tmp_path: Path
) -> None:
    link = tmp_path / "bin" / "ton"
    link.parent.mkdir()
    link.symlink_to(os.path.relpath(checkout / "tonnage", link.parent))
    (tmp_path / "os.py").write_text(
        "raise RuntimeError('a file of the folder that one stands in was imported')"
    )

    first = run(link, "size", "--name", "two words", cwd=tmp_path)
    assert first.stdout == f"ran size --name two words in {tmp_path}\n"
    assert "making .venv" in first.stderr
    assert "ready" in first.stderr

    second = run(checkout / "tonnage", "fail", cwd=checkout)
    assert (second.returncode, second.stderr) == (7, "")

    assert run(checkout / "tonnage", "calibrate", cwd=checkout).stderr == ""  # the core is enough
    fit = run(checkout / "fit", "some data", cwd=checkout)
    assert fit.stdout == f"fitted some data in {checkout}\n"
    assert "making" not in fit.stderr
    assert "ready" in fit.stderr
    assert run(checkout / "fit", cwd=checkout).stderr == ""
    assert run(checkout / "tonnage", cwd=checkout).stderr == ""

    (checkout / "requirements" / "core.txt").write_text("# other pins\n")
    assert "making .venv" in run(checkout / "tonnage", cwd=checkout).stderr
    assert not (checkout / ".venv" / "fit.txt").exists()


@pytest.mark.install
def test_two_first_uses_at_once_make_it_once(checkout: Path) -> None:
    both = [
        subprocess.Popen(
            [checkout / "tonnage", str(i)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for i in range(2)
    ]
    ends = [process.communicate(timeout=300) for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert all(out.startswith(f"ran {i} in") for i, (out, _) in enumerate(ends))
    assert sum("making .venv" in err for _, err in ends) == 1


@pytest.mark.install
def test_killed_in_the_middle_it_is_made_again(checkout: Path) -> None:
    process = subprocess.Popen(
        [checkout / "tonnage"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    while not (checkout / ".venv" / "bin" / "python").exists():
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    again = run(checkout / "tonnage", "x", cwd=checkout)
    assert again.returncode == 0
    assert "making .venv" in again.stderr


@pytest.mark.install
def test_pins_that_cannot_be_installed_leave_one_line_and_nothing_taken_for_whole(
    checkout: Path,
) -> None:
    (checkout / "requirements" / "core.txt").write_text(
        "no-such-package==1.0 --hash=sha256:" + "0" * 64 + "\n"
    )
    for _ in range(2):
        end = run(checkout / "tonnage", cwd=checkout, PIP_NO_INDEX="1")
        assert end.returncode == 1
        assert end.stdout == ""
        assert end.stderr.splitlines()[-1].startswith("tonnage: could not make .venv: ")


def test_without_a_python_one_line_says_which(checkout: Path, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in ("sh", "cmp", "dirname", "readlink"):
        (tools / tool).symlink_to(shutil.which(tool) or tool)
    (tools / "python3").write_text("#!/bin/sh\nexit 1\n")
    (tools / "python3").chmod(0o755)
    end = run(checkout / "tonnage", cwd=checkout, PATH=str(tools))
    assert end.returncode == 1
    assert len(end.stderr.splitlines()) == 1
    assert "Python 3.11" in end.stderr


@pytest.mark.install
def test_this_checkout_runs_from_its_pins_within_600_megabytes(tmp_path: Path) -> None:
    end = run(ROOT / "tonnage", "--version", cwd=tmp_path)
    assert (end.returncode, end.stdout.strip()) == (0, tonnage.__version__)
    if not (ROOT / ".venv" / "fit.txt").exists():
        assert (
            sum(path.lstat().st_size for path in (ROOT / ".venv").rglob("*") if not path.is_dir())
            <= 600e6
        )


@pytest.mark.parametrize("name", ["core", "dev", "fit", "vllm", "aiconfigurator", "ray", "router"])
def test_every_requirement_is_pinned_and_comes_from_no_address(name: str) -> None:
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    for logical in text.replace("\\\n", " ").splitlines():
        assert logical.startswith("#") or "==" in logical.split("--hash")[0]
        assert (
            logical.startswith("#")
            or name not in ("core", "aiconfigurator")
            or "--hash=sha256:" in logical
        )
    assert "://" not in text
    assert "index" not in text


def test_the_pins_are_those_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    core = {
        line.split("==")[0]
        for line in (ROOT / "requirements" / "core.txt").read_text().splitlines()
        if "==" in line
    }
    dev = {
        line.split("==")[0]
        for line in (ROOT / "requirements" / "dev.txt").read_text().splitlines()
        if "==" in line
    }
    assert {
        re.split("[<>=]", name)[0].lower() for name in project["project"]["dependencies"]
    } <= core
    assert {name.lower() for name in project["dependency-groups"]["dev"]} <= dev
    assert "scipy" not in core
