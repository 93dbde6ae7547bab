"""What ``pip install .`` would put into a wheel, as setuptools reads it from pyproject.toml."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LISTED = """
import json, sys, warnings
warnings.simplefilter("ignore")
from setuptools import Distribution
distribution = Distribution({"script_name": "setup.py"})
distribution.parse_config_files()
distribution.get_command_obj("egg_info").egg_base = sys.argv[1]
command = distribution.get_command_obj("build_py")
command.ensure_finalized()
data = [f"{folder}/{name}" for _, folder, _, names in command.data_files for name in names]
print(json.dumps(sorted({*(file for _, _, file in command.find_all_modules()), *data})))
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    aside = str(tmp_path_factory.mktemp("egg"))
    end = subprocess.run([sys.executable, "-c", LISTED, aside], cwd=ROOT, capture_output=True, text=True, check=True, timeout=120)
    found: list[str] = json.loads(end.stdout.splitlines()[-1])
    return found


def test_it_holds_the_package_and_its_data(files: list[str]) -> None:
    modules = {path.relative_to(ROOT).as_posix() for path in (ROOT / "src").rglob("*.py")}
    assert modules <= set(files)
    assert {f"src/tonnage/perf/coefficients/{name}.json" for name in ("terms", "residuals", "ranges", "memory")} <= set(files)
    assert any(name.startswith("src/tonnage/spec/catalog/") and name.endswith(".yaml") for name in files)


def test_it_holds_neither_the_fit_nor_the_rules_of_its_data_sets(files: list[str]) -> None:
    assert [name for name in files if not name.startswith("src/tonnage/")] == []
    rules = {path.name for path in (ROOT / "tools").rglob("*.yaml")}
    assert [name for name in files if Path(name).name in rules] == []
    sources = {name: (ROOT / name).read_text(encoding="utf-8") for name in files if name.endswith(".py")}
    lore = ("InferenceMAX's scripts", "silicon_ttft_ms", "least_squares(residuals, x[free]")
    assert [name for name, text in sources.items() if any(word in text for word in lore)] == []


def test_no_extra_asks_for_what_only_the_fit_needs() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *(name for extra in project["optional-dependencies"].values() for name in extra)]
    assert not any(name.startswith("scipy") for name in wanted)
