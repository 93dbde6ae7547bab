from __future__ import annotations

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
