from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.simulator.kernel.compilers import RENAMED, python
from tonnage.simulator.kernel import compiler


def test_the_pinned_numba_is_one_that_the_quick_pipeline_was_written_for() -> None:
    assert compiler.SLOWER == ""
    assert (
        f"numba=={compiler.PINNED} "
        in (Path(__file__).parents[3] / "requirements/core.txt").read_text()
    )
    assert {"pipeline_class"} <= compiler.PART.keys() & compiler.WHOLE.keys()


NEXT = "import numba; numba.__version__ = '0.69.0'\n"
LACKS = "import numba.core.typing.templates as templates; del templates.AttributeTemplate\n"


@pytest.mark.parametrize("change", [RENAMED, NEXT])
def test_a_numba_with_other_internals_compiles_without_them_and_says_so(
    change: str, tmp_path: Path
) -> None:
    shown = "compiler.SLOWER, compiler.WHOLE, 'pipeline_class' in compiler.PART"
    done = python(
        f"{change}from tonnage.simulator.kernel import compiler\nprint({shown})", tmp_path
    )
    assert "four times as long" in done.stdout, done.stderr
    assert done.stdout.strip().endswith("{} False")


def test_a_numba_without_its_extension_interface_is_refused_with_what_to_install(
    tmp_path: Path,
) -> None:
    done = python(f"{LACKS}import tonnage.simulator.kernel", tmp_path)
    assert "TonnageError" in done.stderr
    assert "pip install numba==" in done.stderr


NOT_PARTS = {"asked", "choose", "drive", "write", "enter", "drive_fleet"}
"""Functions without types that numba takes by other ways than a decorator."""


@pytest.mark.parametrize("file", sorted(Path(compiler.__file__).parent.glob("*.py")), ids=str)
def test_what_the_loops_call_is_compiled_with_them(file: Path) -> None:
    """A function of the kernel without types is for compiled code alone, and says so; one that does
    not is found out by numba only where a loop is compiled that calls it."""
    if file.name in ("compiler.py", "quick_compiler.py"):
        return
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.FunctionDef) and node.name not in NOT_PARTS:
            arguments = node.args.args
            typed = node.returns is not None or not arguments
            decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
            compiled = decorators in (
                ["part()"],
                ["called()"],
                ["jitable()"],
                ["njit(inline='always')"],
            )
            assert compiled != typed, node.name
