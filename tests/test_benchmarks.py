"""./benchmark lists the benchmarks and runs one; those that the pages name are there."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
import subprocess
from pathlib import Path

import pytest

from benchmarks import utilisation
from tonnage.sizing.beyond import CLOSED_TIMES, GROWTH, STEADY
from tonnage.sizing.loads.runs import Runs
from tools.fit.processes import Processes

ROOT = Path(__file__).parents[1]
DATA = ROOT.parent / "shared" / "data"
NAMED = re.compile(r"\./benchmark (\w+)")
PAGES = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])


def benchmark(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([ROOT / "benchmark", *arguments], capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture(scope="module")
def listed() -> dict[str, str]:
    done = benchmark()
    assert done.returncode == 0
    return dict(line.split(maxsplit=1) for line in done.stdout.splitlines()[2:])


def test_the_list_says_what_each_is_for(listed: dict[str, str]) -> None:
    assert len(listed) > 20
    assert listed["scale"].startswith("What a simulated request costs")
    assert "prefix_traffic" not in listed  # a part of balance


@pytest.mark.accuracy
def test_each_finds_what_it_imports(listed: dict[str, str]) -> None:
    for name in listed:
        assert callable(importlib.import_module(f"benchmarks.{name}").main), name


def test_what_they_and_the_tools_import_of_the_package_is_there() -> None:
    """Imports inside functions too, which no test of an import reaches."""
    files = [*(ROOT / "benchmarks").glob("*.py"), *(ROOT / "tools").rglob("*.py")]
    froms = {
        (node.module, name.name)
        for file in files
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tonnage")
        for name in node.names
    }
    assert len(froms) > 100
    absent = {
        (module, name)
        for module, name in froms
        if not hasattr(importlib.import_module(module), name) and importlib.util.find_spec(f"{module}.{name}") is None
    }
    assert absent == set()


@pytest.mark.accuracy
@pytest.mark.skipif(not DATA.is_dir(), reason=f"THE MEASURED FILES ARE ABSENT: no {DATA}; the errors near saturation are not checked")
def test_what_plans_say_near_saturation_is_what_the_benchmark_finds() -> None:
    """On the rows of NIM, each without its group: the only ones that state a p95, and a third of what the figures of open loops are of."""
    with Processes(2) as processes:
        rows = utilisation.of_nim(DATA, processes)
    assert utilisation.closed_growth(rows) == pytest.approx(CLOSED_TIMES, abs=0.1)
    growth = dict(GROWTH)
    longer = utilisation.longer_waits(rows, Runs())
    assert list(longer) == list(growth)
    assert longer[STEADY] == pytest.approx(growth[STEADY], abs=0.15)
    assert growth[0.9] / 2 < longer[0.9] < 2 * growth[0.9]


def test_every_one_that_a_page_or_a_benchmark_names_is_listed(listed: dict[str, str]) -> None:
    files = [*PAGES, *sorted((ROOT / "benchmarks").glob("*.py"))]
    named = {(file.name, name) for file in files for name in NAMED.findall(file.read_text(encoding="utf-8"))}
    assert len(named) > 50
    assert {(file, name) for file, name in named if name not in listed} == set()


def test_an_unknown_one_is_one_line_and_exit_code_2() -> None:
    done = benchmark("speed")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "benchmark: there is no benchmark 'speed'; ./benchmark lists those that there are\n"
