"""How the loops are compiled: what is passed by reference, what has machine code, and what is refused."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numba import njit, typeof, types
from numba.core.errors import TypingError

from tests.deployments import knobs_of
from tonnage.perf.step import StepModel
from tonnage.perf.step_terms import COEFFICIENTS
from tonnage.simulator import kernel
from tonnage.simulator.engine import Engine
from tonnage.simulator.kernel import compiler, driven, run, warm_up
from tonnage.simulator.kernel.blocks import blocks_of
from tonnage.simulator.kernel.compiler import Reference, advance_at, by_reference
from tonnage.simulator.kernel.driven import Loop, drive
from tonnage.simulator.kernel.memory import Machine
from tonnage.spec.workload import Trace

KNOBS = knobs_of(1, 8, block=1)


def machine() -> Machine:
    return Engine(StepModel(coefficients=np.ones(COEFFICIENTS), frontend_s=0.0), KNOBS, 20).machine


def test_the_pinned_numba_is_one_that_the_quick_pipeline_was_written_for() -> None:
    assert compiler.SLOWER == ""
    assert f"numba=={compiler.PINNED} " in (Path(__file__).parents[2] / "requirements/core.txt").read_text()
    assert {"pipeline_class"} <= compiler.PART.keys() & compiler.WHOLE.keys()


RENAMED = "import numba.core.untyped_passes as passes; del passes.WithLifting\n"
NEXT = "import numba; numba.__version__ = '0.69.0'\n"
LACKS = "import numba.core.typing.templates as templates; del templates.AttributeTemplate\n"


def python(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A program in a process with a numba cache in a folder."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder), "PYTHONPATH": f"src{os.pathsep}."}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)


@pytest.mark.parametrize("change", [RENAMED, NEXT])
def test_a_numba_with_other_internals_compiles_without_them_and_says_so(change: str, tmp_path: Path) -> None:
    shown = "compiler.SLOWER, compiler.WHOLE, 'pipeline_class' in compiler.PART"
    done = python(f"{change}from tonnage.simulator.kernel import compiler\nprint({shown})", tmp_path)
    assert "four times as long" in done.stdout, done.stderr
    assert done.stdout.strip().endswith("{} False")


def test_a_numba_without_any_one_of_the_methods_that_are_replaced_compiles_as_it_does_itself(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_numba_without_its_extension_interface_is_refused_with_what_to_install(tmp_path: Path) -> None:
    done = python(f"{LACKS}import tonnage.simulator.kernel", tmp_path)
    assert "TonnageError" in done.stderr
    assert "pip install numba==" in done.stderr


@pytest.mark.accuracy
def test_without_the_quick_compiler_the_record_is_the_same(tmp_path: Path) -> None:
    done = python(f"{RENAMED}from tests.simulator.test_compiled import record\nprint(record())", tmp_path)
    assert done.stdout == f"{record()}\n", done.stderr


def record() -> str:
    """What becomes of some requests, in short."""
    warm_up()
    trace = Trace(due_ps=np.arange(40) * 10**9, isl=np.full(40, 5), osl=np.full(40, 7), concurrency=0, turnaround_ps=0)
    found = run(trace, StepModel(coefficients=np.ones(COEFFICIENTS), frontend_s=0.0), KNOBS, 20)
    return hashlib.sha256(found.first_token_ns.tobytes() + found.last_token_ns.tobytes()).hexdigest()


def test_a_loop_is_compiled_once_and_has_an_address() -> None:
    warm_up()
    body, entry = drive.parts
    (made,) = body.overloads.values()
    assert made.library.get_pointer_to_function(made.fndesc.llvm_func_name) == drive.address(machine()) > 0
    assert len(entry.signatures) == 1


def test_a_part_of_a_loop_is_not_called_from_python() -> None:
    with pytest.raises(TypeError):
        blocks_of(5, 2)
    assert blocks_of.py_func(5, 2) == 3


def test_a_machine_of_another_type_is_refused() -> None:
    warm_up()
    m = machine()
    with pytest.raises(TypeError, match="No matching definition"):
        drive(m._replace(stop=np.zeros(1, np.int32)), 0)


def test_a_reference_knows_the_fields_of_its_tuple() -> None:
    to = Reference(typeof(machine()))
    assert to.type_of("nothing") is None
    assert to.type_of("stop") == types.Array(types.int64, 1, "C")
    assert isinstance(to.type_of("rows"), Reference)
    assert to.type_of("rows").type_of("preemptions") == types.Array(types.int32, 1, "C")
    assert to == Reference(typeof(machine())) != Reference(typeof(machine()._replace(stop=np.zeros(1, np.int32))))


def test_no_loop_is_called_with_what_it_was_not_compiled_for() -> None:
    class Other(NamedTuple):
        numbers: Any
        name: int

    @njit
    def call(address, other):
        return advance_at(address, by_reference(other), 0, 0)

    with pytest.raises(TypingError, match="no loop for a machine of the type"):
        call(drive.address(machine()), Other(np.zeros(1), 1))


def test_threads_that_come_at_once_find_one_loop() -> None:
    warm_up()
    fresh = Loop("drive", driven.VERSION)
    m = machine()
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: fresh.address(m), range(4)))
    assert len(set(found)) == 1


def test_the_type_of_a_call_is_found_once_and_numba_is_left_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    from tonnage.simulator.kernel.quick_compiler import QuickCompiler  # not above: ``record`` is also for a numba without it

    usual: Any = types.Function.get_call_type
    asked: list[str] = []

    def find(self: Any, *args: Any) -> Any:
        asked.append(str(self))
        return usual(self, *args)

    monkeypatch.setattr(types.Function, "get_call_type", find)

    def sums(a: int, b: int) -> int:
        return ((a + b) + (a + b)) + max(a + b, b + a)

    assert njit(sums)(2, 3) == 15
    often = asked.count("Function(<built-in function add>)")
    asked.clear()
    assert njit(pipeline_class=QuickCompiler)(sums)(2, 3) == 15
    assert asked.count("Function(<built-in function add>)") == 1 < often
    found: Any = types.Function.get_call_type
    assert found is find
