"""The loops behind numba: what they take, where they are kept, and when they are compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tests.simulator.kernel.compared import ENGINE, MODEL
from tests.simulator.kernel.compilers import KNOBS
from tonnage.perf.step import StepModel
from tonnage.perf.step_terms import COEFFICIENTS
from tonnage.results.requests import COMPLETED
from tonnage.simulator.engine import Engine
from tonnage.simulator.kernel import driven, run, warm_up
from tonnage.simulator.kernel.driven import drive
from tonnage.simulator.kernel.memory import Machine
from tonnage.spec.workload import Lengths, OpenLoop, Workload

if TYPE_CHECKING:
    import pytest


def test_read_only_columns_are_taken() -> None:
    trace = Workload(
        isl=Lengths(mean=5), osl=Lengths(mean=5), arrivals=OpenLoop(rate=2), requests=5
    ).trace(0)
    for column in (trace.due_ps, trace.isl, trace.osl):
        column.setflags(write=False)
    signatures = len(driven.drive.signatures)
    assert (run(trace, MODEL, ENGINE, 100).status == COMPLETED).all()
    assert len(driven.drive.signatures) == max(signatures, 1)


def test_the_kernel_works_where_nothing_can_be_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_cache(*, cache: bool = False, **options: Any) -> Any:
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return lambda function: function

    monkeypatch.setattr(driven, "njit", without_cache)
    assert driven.compiled(driven._builder("drive")(1)).__name__ == "drive"


def machine() -> Machine:
    return Engine(StepModel(coefficients=np.ones(COEFFICIENTS), frontend_s=0.0), KNOBS, 20).machine


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
