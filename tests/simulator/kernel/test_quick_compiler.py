"""Without what is changed inside numba, it compiles as it does itself, and the record is the same."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.simulator.kernel.compilers import KNOBS, RENAMED, python
from tonnage.perf.step import StepModel
from tonnage.perf.step_terms import COEFFICIENTS
from tonnage.simulator import kernel
from tonnage.simulator.kernel import compiler, run, warm_up
from tonnage.spec.workload import Trace


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


@pytest.mark.accuracy
def test_without_the_quick_compiler_the_record_is_the_same(tmp_path: Path) -> None:
    done = python(
        f"{RENAMED}from tests.simulator.kernel.test_quick_compiler import record\nprint(record())",
        tmp_path,
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
