"""The loops behind numba: what they take, where they are kept, and when they are compiled."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numba.core.caching import NullCache

from tests.deployments import knobs_of
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


def machine() -> Machine:
    return Engine(StepModel(coefficients=np.ones(COEFFICIENTS), frontend_s=0.0), KNOBS, 20).machine


def test_each_kind_of_machine_has_its_loop_with_a_name_of_its_own() -> None:
    kinds = list(product((False, True), repeat=3))
    names = {}
    for shares, ranks, grouped in kinds:
        if not (shares and ranks):
            loop = driven.loop_of(shares=shares, ranks=ranks, grouped=grouped)
            names[shares, ranks, grouped] = loop.name
            m = SimpleNamespace(
                cache=1 if shares else None,
                ranks=1 if ranks else None,
                group=1 if grouped else None,
            )
            assert driven.loop_for(m) is loop
    assert names == {
        (False, False, False): "drive",
        (False, False, True): "drive_ranks",
        (False, True, False): "drive_ranked",
        (False, True, True): "drive_ranked_ranks",
        (True, False, False): "drive_shared",
        (True, False, True): "drive_shared_ranks",
    }
    assert driven.loop_of() is drive


def test_a_loop_that_is_only_expected_is_not_compiled() -> None:
    loop = driven.Loop("never", 1)
    assert loop.expected(machine()) == 0
    assert loop.signatures == []
    assert driven.Reference(driven.typeof(machine())) in driven.LOOPS
    assert [function.__name__ for function in loop.parts] == ["never", "enter"]
    loop.parts = (part(compiled=True), part())
    assert loop.signatures == ["some"]


@pytest.mark.parametrize(("pads", "padded"), [(True, 40), (False, -1)])
def test_nothing_has_happened_to_the_attention_ranks_of_a_new_instance(
    pads: bool, padded: int
) -> None:
    knobs = knobs_of(2, 8, rank_wait_steps=5, pads_ranks=pads, graph_tokens=40)
    note = driven.note_of(knobs, (3, 1))
    assert note.shape == (3, 1)
    assert (note["wait"] == 5).all()
    assert (note["padded"] == padded).all()
    others = set(note.dtype.names) - {"wait", "padded"}
    assert not any(note[name].any() for name in others)


def part(*keys: tuple[str, ...], compiled: bool = False, error: Exception | None = None) -> Any:
    """What numba makes of a function, with an index on disk of entries for these processors."""

    def load() -> dict[tuple[str, ...], str]:
        if error is not None:
            raise error
        return dict.fromkeys((("arguments", *key) for key in keys), "a file")

    return SimpleNamespace(
        signatures=["some"] if compiled else [],
        targetctx=SimpleNamespace(codegen=lambda: "m"),
        _cache=SimpleNamespace(
            _cache_file=SimpleNamespace(_load_index=load),
            _index_key=lambda arguments, codegen: (arguments, codegen, "code"),
        ),
    )


def test_a_run_starts_at_once_where_all_parts_are_compiled_or_on_disk_for_this_processor() -> None:
    here, other = ("m", "code"), [("l", "code"), ("n", "code"), ("m", "other"), ("m", "bode")]
    for is_there, made in (
        (True, part(compiled=True)),
        (True, part(here)),
        (True, part(*other, here)),
        (False, part()),
        (False, part(*other)),
        (False, part(here, error=OSError())),
        (False, part(here, error=ImportError())),
        (False, SimpleNamespace(signatures=[])),
    ):
        assert driven.is_compiled(made) is is_there
        loop = driven.Loop("never", 1)
        for parts in ((made, part(here)), (part(here), made)):
            loop.parts = parts
            assert driven.is_compiled(loop) is is_there
    assert driven.is_kept(part())
    assert not driven.is_kept(SimpleNamespace(_cache=NullCache()))


def test_a_change_of_whatever_is_compiled_compiles_again(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Path] = []
    contents = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: read.append(path) or contents(path))
    assert driven._fingerprint() == driven.VERSION
    package = Path(str(driven.__file__)).parents[2]
    compiled = [package / "units.py", *(package / "simulator/kernel").glob("*.py")]
    for file in ("simulator/autoscaler", "simulator/request", "simulator/rules"):
        compiled.append(package / f"{file}.py")
    for file in ("simulator/router", "perf/step", "perf/step_terms", "results/requests"):
        compiled.append(package / f"{file}.py")
    assert sorted(read) == sorted(compiled)
    monkeypatch.setattr(driven, "CODES", {})
    assert driven._fingerprint() != driven.VERSION


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
