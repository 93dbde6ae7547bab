"""What the source must not do and import-linter cannot see; its contracts in pyproject.toml hold
the floors and the imports.

Floors 0 to 4 answer the same everywhere and at any time: no environment, no call of a clock, no
chance without a seed. No file is long, and no function.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from benchmarks.house import blocks, mirrored, statements, way
from tests.conftest import LONGEST

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "tonnage"
MOST_STATEMENTS = 350
MOST_STATEMENTS_OF_A_FUNCTION = 48
FLOORS_0_TO_4 = (
    "units.py",
    "errors.py",
    "spec",
    "results",
    "formats",
    "workload",
    "plan",
    "perf",
    "simulator",
    "sizing",
    "evidence",
    "cost",
)
CALLS_OF_THE_MOMENT = {
    "now",
    "utcnow",
    "today",
    "urandom",
    "getenv",
    "perf_counter",
    "monotonic",
    "gethostname",
}
SEEDED = {
    "RandomState",
    "Generator",
    "SeedSequence",
    "PCG64",
    "PCG64DXSM",
    "Philox",
    "SFC64",
    "MT19937",
    "BitGenerator",
    "default_rng",
}


def test_the_files_that_begin_are_there() -> None:
    files = [
        ROOT / "tests" / Path(name).with_name(f"test_{Path(name).name}.py")
        for name in LONGEST.split()
    ]
    assert [file for file in files if not file.is_file()] == []


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def sources() -> list[Path]:
    roots = [PACKAGE / name for name in FLOORS_0_TO_4]
    return sorted(
        path for root in roots for path in ([root] if root.is_file() else root.rglob("*.py"))
    )


def imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        module = node.module or ""
        return [module, *(f"{module}.{alias.name}" for alias in node.names)]
    return []


def faults(tree: ast.AST) -> list[str]:
    """Each clock, environment, network and unseeded chance that a module touches."""
    found = []
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        found += [
            f"{line}: imports {name}"
            for name in imported(node)
            if name in {"os.environ", "os.getenv", "urllib.request"}
        ]
        if (
            isinstance(node, ast.Attribute)
            and node.attr in {"environ", "argv"}
            and ast.unparse(node) in {"os.environ", "sys.argv"}
        ):
            found.append(f"{line}: reads {ast.unparse(node)}")
        of_random = (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Attribute)
            and node.value.attr == "random"
        )
        if (
            of_random
            and node.attr not in SEEDED
            and ast.unparse(node.value) in {"np.random", "numpy.random"}
        ):
            found.append(f"{line}: chance without a seed, {ast.unparse(node)}")
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
            if name in CALLS_OF_THE_MOMENT:
                found.append(f"{line}: calls {ast.unparse(node.func)}")
            if name in SEEDED - {"Generator"} and not node.args and not node.keywords:
                found.append(f"{line}: {name} without a seed")
    return found


def test_floors_0_to_4_read_no_clock_environment_or_network() -> None:
    word = re.compile("|".join((*CALLS_OF_THE_MOMENT, *SEEDED, "environ|argv|urllib|random")))
    read = [path for path in sources() if word.search(path.read_text(encoding="utf-8"))]
    assert len(read) > 20
    found = {path.relative_to(PACKAGE).as_posix(): faults(parsed(path)) for path in read}
    assert {name: these for name, these in found.items() if these} == {}


Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions_of(tree: ast.Module) -> list[Function]:
    return [node for node in blocks(tree) if isinstance(node, Function)]


@pytest.mark.parametrize("folder", ["src", "tools", "tests", "benchmarks", "requirements"])
def test_no_file_is_over_350_statements_and_no_function_over_48(folder: str) -> None:
    files, functions = dict[Path, int](), dict[tuple[Path, str], int]()
    for path in (ROOT / folder).rglob("*.py"):
        tree = parsed(path)
        files[path] = statements(tree)
        # a function of fewer lines has no more statements, so the others are not counted; the line
        # of its name is one
        functions |= {
            (path, node.name): 1 + statements(node)
            for node in functions_of(tree)
            if (node.end_lineno or 0) - node.lineno > MOST_STATEMENTS_OF_A_FUNCTION
        }
    assert files
    assert {path: count for path, count in files.items() if count > MOST_STATEMENTS} == {}
    most = MOST_STATEMENTS_OF_A_FUNCTION
    assert {name: count for name, count in functions.items() if count > most} == {}


MOST_FRAMES, MOST_FILES = 19, 8
"""From a command to the first simulated step; both may only fall."""


def test_the_way_of_a_question_is_the_page_about_it() -> None:
    frames = way()
    files = list(dict(frames))
    page = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    section = re.search(r"\n## Read these (\d+) files\n(.*?)\n## ", page, re.DOTALL)
    assert section is not None
    assert re.findall(r"^\| `([\w/]+\.py)` \|", section[2], re.MULTILINE) == files
    assert int(section[1]) == len(files) <= MOST_FILES
    assert len(frames) <= MOST_FRAMES


def test_what_numba_compiles_takes_at_most_six_arguments() -> None:
    """State has names: a machine, a request, the settings, and not an array for each of their
    parts."""
    compiled = [
        (
            path.name,
            node.name,
            len(node.args.args) + len(node.args.posonlyargs) + len(node.args.kwonlyargs),
        )
        for path in (PACKAGE / "simulator" / "kernel").rglob("*.py")
        for node in functions_of(parsed(path))
        if any(
            re.match(r"(part|small|called|njit)\b", ast.unparse(decorator))
            for decorator in node.decorator_list
        )
    ]
    assert len(compiled) > 30
    assert [function for function in compiled if function[2] > 6] == []


def test_no_file_is_named_after_nothing() -> None:
    nothing = {"utils", "util", "helpers", "helper", "common", "manager", "misc"}
    assert [path for path in (ROOT / "src").rglob("*") if path.stem in nothing] == []


@pytest.mark.parametrize(
    "source",
    [
        "import time\ntime.monotonic()",
        "from datetime import datetime\ndatetime.now()",
        "import os\nx = os.environ['HOME']",
        "from os import getenv",
        "import urllib.request",
        "from urllib import request",
        "import numpy as np\nnp.random.normal()",
        "import numpy as np\nnp.random.default_rng()",
        "from numpy.random import RandomState\nRandomState()",
    ],
)
def test_the_reader_of_sources_sees_each_fault(source: str) -> None:
    assert faults(ast.parse(source))


@pytest.mark.parametrize(
    "source",
    [
        "from datetime import date\ndate(2026, 1, 1)",
        "import numpy as np\nnp.random.default_rng(1)",
        "import urllib.parse",
    ],
)
def test_the_reader_of_sources_lets_the_rest_pass(source: str) -> None:
    assert faults(ast.parse(source)) == []


UNMIRRORED = 53
"""Modules without a test file of their name; the number may only fall."""


def test_tests_of_a_module_are_in_the_file_of_its_name() -> None:
    tested, modules = mirrored()
    assert modules - tested <= UNMIRRORED, "tests/ROOM/test_MODULE.py tests ROOM/MODULE.py"
    assert modules - tested > UNMIRRORED - 10, "lower the number to today's"
