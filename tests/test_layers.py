"""Floors 0 to 4 are the same everywhere and at any time: what they must not touch, read from their source."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "tonnage"
FLOORS_0_TO_4 = ("units.py", "errors.py", "spec", "results", "plan", "perf", "simulator", "sizing", "validation", "calibration", "cost")
CLOCK_OR_NETWORK = {
    *("time", "sched", "random", "secrets", "uuid", "getpass", "locale", "socket", "ssl", "asyncio", "http", "ftplib", "smtplib"),
    *("urllib.request", "urllib3", "requests", "httpx", "httpx2", "aiohttp", "uvloop", "websockets", "grpc", "huggingface_hub"),
}
CALLS_OF_THE_MOMENT = {"now", "utcnow", "today", "urandom", "getenv", "perf_counter", "monotonic", "gethostname"}
SEEDED = {"RandomState", "Generator", "SeedSequence", "PCG64", "PCG64DXSM", "Philox", "SFC64", "MT19937", "BitGenerator", "default_rng"}


def sources() -> list[Path]:
    roots = [PACKAGE / name for name in FLOORS_0_TO_4]
    return sorted(path for root in roots for path in ([root] if root.is_file() else root.rglob("*.py")))


def imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        module = node.module or ""
        return [module, *(f"{module}.{alias.name}" for alias in node.names)]
    return []


def is_or_is_in(name: str, module: str) -> bool:
    return name == module or name.startswith(f"{module}.")


def faults(tree: ast.AST) -> list[str]:
    """Each clock, environment, network and unseeded chance that a module touches."""
    found = []
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        found += [f"{line}: imports {name}" for name in imported(node) if any(is_or_is_in(name, bad) for bad in CLOCK_OR_NETWORK)]
        found += [f"{line}: imports {name}" for name in imported(node) if name in {"os.environ", "os.getenv"}]
        if isinstance(node, ast.Attribute) and ast.unparse(node) in {"os.environ", "sys.argv"}:
            found.append(f"{line}: reads {ast.unparse(node)}")
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in {"np.random", "numpy.random"} and node.attr not in SEEDED:
            found.append(f"{line}: chance without a seed, {ast.unparse(node)}")
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func).rsplit(".", 1)[-1]
            if name in CALLS_OF_THE_MOMENT:
                found.append(f"{line}: calls {ast.unparse(node.func)}")
            if name in SEEDED - {"Generator"} and not node.args and not node.keywords:
                found.append(f"{line}: {name} without a seed")
    return found


@pytest.mark.parametrize("path", sources(), ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_floors_0_to_4_read_no_clock_environment_or_network(path: Path) -> None:
    assert faults(ast.parse(path.read_text())) == []


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_the_package_uses_neither_scipy_nor_the_tools_of_developers(path: Path) -> None:
    names = [name for node in ast.walk(ast.parse(path.read_text())) for name in imported(node)]
    assert [name for name in names if is_or_is_in(name, "scipy") or is_or_is_in(name, "tools")] == []


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_no_file_is_over_500_lines_or_named_after_nothing(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 500
    assert path.stem not in {"utils", "util", "helpers", "helper", "common", "manager", "misc"}


@pytest.mark.parametrize(
    "source",
    [
        "import time",
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
    ["from datetime import date\ndate(2026, 1, 1)", "import numpy as np\nnp.random.default_rng(1)", "import urllib.parse"],
)
def test_the_reader_of_sources_lets_the_rest_pass(source: str) -> None:
    assert faults(ast.parse(source)) == []
