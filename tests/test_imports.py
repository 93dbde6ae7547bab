"""What is loaded when: heavy parts load when they are used, so that a command answers at once."""

from __future__ import annotations

import subprocess
import sys

import pytest


def loaded_by(statement: str) -> set[str]:
    """The top-level modules that a fresh interpreter holds after a statement."""
    code = (
        f"import sys\n{statement}\nprint('\\nloaded', *sorted({{name.split('.')[0] for name in"
        " sys.modules}))"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    return set(done.stdout.splitlines()[-1].split()[1:])


HELP = (
    "from tonnage.cli.main import main\ntry: main({tokens})\nexcept SystemExit as end: assert not"
    " end.code"
)


def test_the_package_alone_loads_nothing_heavy() -> None:
    heavy = {"numpy", "numba", "pyarrow", "pydantic", "scipy", "plotly", "cyclopts", "rich", "yaml"}
    assert not loaded_by("import tonnage") & heavy


@pytest.mark.parametrize("tokens", [["--help"], ["--version"]])
def test_help_loads_no_numbers(tokens: list[str]) -> None:
    assert not loaded_by(HELP.format(tokens=tokens)) & {
        "numpy",
        "numba",
        "pyarrow",
        "scipy",
        "plotly",
    }


def test_every_function_of_the_interface_is_where_it_is_said_to_be() -> None:
    from tonnage import api

    assert len({getattr(api, name) for name in api.__all__}) == len(dir(api))


def test_the_gateway_needs_no_numbers() -> None:
    asked = (
        "from tonnage.cli.main import run\nassert run(['gateway', '--backend', 'a:1', '--port',"
        " '99999']) == 2"
    )
    assert not loaded_by(f"{asked}\nimport tonnage.gateway.server") & {
        "numba",
        "pyarrow",
        "scipy",
        "plotly",
    }


def test_the_command_line_exits_by_its_code() -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "tonnage", "no-such-verb"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert not done.stdout
