"""How the loops are compiled: what is passed by reference, what has machine code, and what is
refused."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.deployments import knobs_of
from tonnage.perf.step import StepModel
from tonnage.perf.step_terms import COEFFICIENTS
from tonnage.simulator import kernel
from tonnage.simulator.engine import Engine
from tonnage.simulator.kernel import compiler, run, warm_up
from tonnage.simulator.kernel.driven import drive
from tonnage.simulator.kernel.memory import Machine
from tonnage.spec.workload import Trace

KNOBS = knobs_of(1, 8, block=1)


def machine() -> Machine:
    return Engine(StepModel(coefficients=np.ones(COEFFICIENTS), frontend_s=0.0), KNOBS, 20).machine


def test_the_pinned_numba_is_one_that_the_quick_pipeline_was_written_for() -> None:
    assert compiler.SLOWER == ""
    assert (
        f"numba=={compiler.PINNED} "
        in (Path(__file__).parents[2] / "requirements/core.txt").read_text()
    )
    assert {"pipeline_class"} <= compiler.PART.keys() & compiler.WHOLE.keys()


RENAMED = "import numba.core.untyped_passes as passes; del passes.WithLifting\n"
NEXT = "import numba; numba.__version__ = '0.69.0'\n"
LACKS = "import numba.core.typing.templates as templates; del templates.AttributeTemplate\n"


def python(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A program in a process with a numba cache in a folder."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder), "PYTHONPATH": f"src{os.pathsep}."}
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment
    )


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


def test_a_numba_without_any_one_of_the_methods_that_are_replaced_compiles_as_it_does_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from tonnage.simulator.kernel import quick_compiler

    assert compiler._pipelines()
    for kind, name in [(kind, name) for kind, names in quick_compiler.NEEDED for name in names]:
        with monkeypatch.context() as patch:
            patch.delitem(sys.modules, quick_compiler.__name__)
            patch.delattr(kernel, "quick_compiler")
            for owner in [each for each in kind.__mro__ if name in vars(each)]:
                patch.delattr(owner, name)
            found = compiler._pipelines()
        assert found is None, name


def test_a_numba_without_its_extension_interface_is_refused_with_what_to_install(
    tmp_path: Path,
) -> None:
    done = python(f"{LACKS}import tonnage.simulator.kernel", tmp_path)
    assert "TonnageError" in done.stderr
    assert "pip install numba==" in done.stderr


@pytest.mark.accuracy
def test_without_the_quick_compiler_the_record_is_the_same(tmp_path: Path) -> None:
    done = python(
        f"{RENAMED}from tests.simulator.test_compiled import record\nprint(record())", tmp_path
    )
    assert done.stdout == f"{record()}\n", done.stderr


def record() -> str:
    """What becomes of some requests, in short."""
    warm_up()
    trace = Trace(
        due_ps=np.arange(40) * 10**9,
        isl=np.full(40, 5),
        osl=np.full(40, 7),
        concurrency=0,
        turnaround_ps=0,
    )
    found = run(trace, StepModel(coefficients=np.ones(COEFFICIENTS), frontend_s=0.0), KNOBS, 20)
    return hashlib.sha256(
        found.first_token_ns.tobytes() + found.last_token_ns.tobytes()
    ).hexdigest()


def test_a_loop_is_compiled_once_and_has_an_address() -> None:
    warm_up()
    body, entry = drive.parts
    (made,) = body.overloads.values()
    assert (
        made.library.get_pointer_to_function(made.fndesc.llvm_func_name)
        == drive.address(machine())
        > 0
    )
    assert len(entry.signatures) == 1
