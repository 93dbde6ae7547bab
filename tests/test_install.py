"""`pip install .` into an empty environment, far from the checkout: what a user gets, and that it
works."""

from __future__ import annotations

import json
import os
import re
import resource
import shlex
import shutil
import socket
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

from tests.test_docs import examples_of

pytestmark = pytest.mark.install
ROOT = Path(__file__).parents[1]
HELP_CPU_S = 0.4
IMPORT_CPU_S = 0.1


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """A program that sees nothing of this checkout, and may keep compiled bytecode as a user's
    does."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "PYTHONHOME")
    }
    return subprocess.run(
        command, cwd=cwd, env=kept, capture_output=True, text=True, check=True, timeout=600
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy: building leaves folders behind."""
    copy = tmp_path_factory.mktemp("copy") / "tonnage"
    shutil.copytree(
        ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
    )
    shutil.copytree(ROOT / "tools", copy / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy / name)
    built = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", built, ".", cwd=copy)
    return next(built.glob("tonnage-*.whl"))


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ``bin`` folder of an environment that held nothing before."""
    folder = tmp_path_factory.mktemp("user")
    run(sys.executable, "-m", "venv", folder / "venv", cwd=folder)
    run(folder / "venv" / "bin" / "python", "-m", "pip", "install", wheel, cwd=folder)
    return folder / "venv" / "bin"


def test_the_wheel_holds_the_package_alone_and_nothing_of_the_fit(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        sources = {name: archive.read(name).decode() for name in names if name.endswith(".py")}
    assert {name.split("/")[0].split("-")[0] for name in names} == {"tonnage"}
    assert not [name for name in names if "fit" in Path(name).parts or "tools" in Path(name).parts]
    assert not [
        name
        for name, source in sources.items()
        if re.search(r"^\s*(from|import) (tools|scipy)\b", source, re.MULTILINE)
    ]
    assert {"tonnage/perf/coefficients/terms.json", "tonnage/py.typed"} <= set(names)


def test_every_data_file_of_the_package_is_in_the_wheel(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if name.startswith("tonnage/")}
    package = ROOT / "src"
    files = {
        path.relative_to(package).as_posix()
        for path in (package / "tonnage").rglob("*")
        if path.is_file()
    }
    assert {name for name in files if "__pycache__" not in name} == inside


def test_the_core_takes_what_contributing_allows(environment: Path) -> None:
    files = [one for one in environment.parent.rglob("*") if one.is_file() and not one.is_symlink()]
    assert sum(one.stat().st_blocks * 512 for one in files) < 600 * 2**20  # as du -sm counts


def test_size_works_in_an_environment_that_was_empty(environment: Path, tmp_path: Path) -> None:
    asked = (
        "--model",
        "llama-3.1-8b",
        "--isl",
        "1000",
        "--osl",
        "100",
        "--peak-rps",
        "50",
        "--gpu",
        "h100-sxm-80gb",
        "--json",
    )
    plan = json.loads(run(environment / "tonnage", "size", *asked, cwd=tmp_path).stdout)
    assert plan["choice"]["systems"] >= 1
    assert list(tmp_path.iterdir()) == []


def test_the_question_of_the_readme_has_the_answer_of_the_readme(
    environment: Path, tmp_path: Path
) -> None:
    example = next(
        one
        for one in list(examples_of(ROOT / "README.md"))
        if one.command.startswith("./tonnage size ") and one.shown
    )
    _, *words = shlex.split(example.command)
    shown = next(line for line in example.shown.values() if line.startswith("Answer"))
    printed = run(environment / "tonnage", *words, cwd=tmp_path).stdout
    answer = re.search(r"Answer +(\d+ × \S+ \(\d+ GPUs)", shown)
    assert answer[1] in printed
    assert json.loads((tmp_path / "plan.json").read_text())["provenance"]["tonnage"] == version(
        ROOT
    )


def version(root: Path) -> str:
    found = re.search(r'VERSION = "(.*)"', (root / "src" / "tonnage" / "version.py").read_text())
    return found[1]


def cpu_seconds(*command: str | Path, cwd: Path) -> float:
    """The least CPU time of five runs; the first compiles bytecode."""
    found = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        run(*command, cwd=cwd)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(found)


def test_help_and_import_are_quick(environment: Path, tmp_path: Path) -> None:
    assert cpu_seconds(environment / "tonnage", "--help", cwd=tmp_path) <= HELP_CPU_S
    assert cpu_seconds(environment / "python", "-c", "import tonnage", cwd=tmp_path) <= IMPORT_CPU_S


FIXTURE = """
import json, urllib.request
from tonnage.testing import simulated_engine
with simulated_engine(model="llama-3.1-8b", speed=10, runner="RUNNER") as url:
    asked = urllib.request.Request(url + "PATH", json.dumps(BODY).encode(), {"content-type": "application/json"})
    print(urllib.request.urlopen(asked).read().decode())
"""


@pytest.mark.parametrize(
    ("runner", "path", "body"),
    [
        ("generate", "/v1/completions", {"prompt": "a tale", "max_tokens": 3, "ignore_eos": True}),
        ("pooling", "/v1/embeddings", {"input": "a tale"}),
    ],
)
def test_a_simulated_engine_in_five_lines(
    environment: Path, tmp_path: Path, runner: str, path: str, body: object
) -> None:
    """``tonnage.testing`` as someone else's test has it."""
    text = FIXTURE.replace("RUNNER", runner).replace("PATH", path).replace("BODY", repr(body))
    reply = json.loads(run(environment / "python", "-c", text, cwd=tmp_path).stdout)
    assert len(reply["choices" if runner == "generate" else "data"]) == 1
    assert reply["usage"]["completion_tokens"] == (3 if runner == "generate" else 0)


def test_the_workflow_of_the_examples(environment: Path, tmp_path: Path) -> None:
    steps = yaml.safe_load((ROOT / "examples/ci/github-workflow.yaml").read_text(encoding="utf-8"))[
        "jobs"
    ]["client"]["steps"]
    shutil.copy(ROOT / "examples/ci/test_client.py", tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    words = [
        step["run"].replace("./tonnage ", "").replace("8000", port)
        for step in steps
        if "run" in step
    ]
    path = {**os.environ, "PATH": f"{environment}:{os.environ['PATH']}"}
    path.pop("PYTHONPATH", None)
    script = "set -e; trap 'kill $(jobs -p)' EXIT\n" + "\n".join(words)
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env=path,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
    assert json.loads(done.stdout.splitlines()[-1])["usage"]["completion_tokens"] == 5
