"""The kernel as Python runs it, without numba: its files are read once more, under another name, beside
a compiler that compiles nothing.

What takes half a minute to compile (the loops of classes and of attention ranks, and those of fleets)
is compared with the reference in milliseconds this way, by the same functions. Whether numba takes them
is another question, for the tests of what is compiled.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from inspect import signature
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from tonnage.simulator import kernel
from tonnage.simulator.kernel import driven

NAME, HERE = "uncompiled_kernel", Path(str(kernel.__file__)).parent


class Note:
    """A record of numpy by attributes, as the kernel reads and writes it; ``back`` writes it where it
    came from."""

    def __init__(self, record: Any) -> None:
        vars(self).update(zip(record.dtype.names, record.item(), strict=True))
        if "seed" in vars(self):
            self.seed = record["seed"]  # of 64 bits, and may be below zero

    def back(self, record: Any) -> None:
        for name, value in vars(self).items():
            record[name] = value


class Notes(list[Any]):
    """An array of records, of one dimension or two; what is written to a place is copied there, so that
    who has that record sees it."""

    def __init__(self, records: Any) -> None:
        super().__init__(map(note_of, records))
        self.size = len(self)

    def __setitem__(self, place: Any, note: Any) -> None:
        vars(self[place]).update(vars(note))

    def back(self, records: Any) -> None:
        for note, record in zip(self, records, strict=True):
            note.back(record)


def note_of(records: Any) -> Any:
    """One record, or an array of them, with attributes."""
    return Notes(records) if records.ndim else Note(records)


PLACES = ("cfg", "state", "step", "slots", "idle")
"""Fields of a machine, or of a fleet, that are records."""

PARTS = ("cache", "ranks", "group", "groups")
"""Fields with a part that has a note of its own."""


def readable(m: Any) -> Any:
    """A machine, or a fleet, whose records have attributes."""
    there = {name: getattr(m, name, None) for name in (*PLACES, *PARTS)}
    changed = {name: note_of(there[name]) for name in PLACES if there[name] is not None}
    for name in PARTS:
        part = there[name]
        if part is not None and not isinstance(part.note, Notes):
            changed[name] = part._replace(note=note_of(part.note))
    return m._replace(**changed)


def write_back(found: Any, m: Any) -> None:
    """Write what has changed in the records where they came from."""
    for name in PLACES:
        if hasattr(m, name):
            getattr(found, name).back(getattr(m, name))
    for name in PARTS:
        part = getattr(m, name, None)
        if part is not None and not isinstance(part.note, Notes):
            getattr(found, name).note.back(part.note)


MACHINES: dict[int, Any] = {}
"""Those of groups, by what stands for their addresses."""


class Loop:
    """``driven.Loop``: nothing is compiled."""

    def address(self, _: Any) -> int:
        return 0

    def enter(self, _: int, m: Any, until: int, cancelled: int) -> None:
        with np.errstate(over="ignore"):
            if m.group is None:
                found = readable(m)
                advance_at(0, found, until, cancelled)
                write_back(found, m)
                return
            members = [MACHINES[at] for at in m.group.at.tolist()]
            note = Notes(m.group.note)
            for at, machine in zip(m.group.at.tolist(), members, strict=True):
                MACHINES[at] = readable(machine._replace(group=m.group._replace(note=note)))
            advance_at(0, MACHINES[int(m.group.at[0])], until, cancelled)
            for at, machine in zip(m.group.at.tolist(), members, strict=True):
                write_back(MACHINES[at], machine)
                MACHINES[at] = machine


def advance_at(_: int, m: Any, until: int, cancelled: int) -> None:
    """``compiler.advance_at``: there is one loop."""
    import_module(f"{NAME}.lockstep").drive(m, until, cancelled)


def drive_fleet(f: Any, *others: Any) -> None:
    """``driven.drive_fleet``: its source, with the uncompiled files."""
    body = driven._build_fleet(0)
    names = {"by_reference": same, "routing": import_module(f"{NAME}.routing")}
    found = readable(f)
    with np.errstate(over="ignore"):
        FunctionType(body.__code__, names, closure=body.__closure__)(found, *others)
    write_back(found, f)


def room_for(_: Any, at: Any) -> Any:
    """``driven.room_for``: the addresses are numbers."""
    at.ravel()[:] = np.arange(at.size)
    return np.zeros((0, 0), np.int64)


def grouped(ranks: Any, knobs: Any) -> list[Any]:
    """``driven.grouped``."""
    group = import_module(f"{NAME}.memory").Group
    note, at = driven.note_of(knobs, (1,)), np.arange(len(ranks))
    machines = [m._replace(group=group(note, at, None)) for m in ranks]
    MACHINES.update(enumerate(machines))
    return machines


def two_forms(field: str, without: Any, within: Any) -> Any:
    """``compiler.two_forms``."""
    signature(without)

    def choose(m: Any, *others: Any) -> Any:
        return (without if getattr(m, field, None) is None else within)(m, *others)

    return choose


def unchanged(*_: Any, **__: Any) -> Callable[[Any], Any]:
    return lambda function: function


def same(value: Any) -> Any:
    return value


STANDS_IN: dict[str, dict[str, Any]] = {
    "compiler": {
        **dict.fromkeys(("part", "called", "jitable", "njit"), unchanged),
        **dict.fromkeys(("whole", "by_reference"), same),
        "two_forms": two_forms,
        "write_at": MACHINES.__setitem__,
        "reference_at": lambda address, _: MACHINES[int(address)],
        "advance_at": advance_at,
    },
    "driven": {
        "grouped": grouped,
        "note_of": driven.note_of,
        "room_for": room_for,
        "drive": Loop(),
        "drive_fleet": drive_fleet,
        "loop_for": lambda _: Loop(),
        "loop_of": lambda **_: Loop(),
        "is_compiled": None,
    },
}
"""What the two files that know numba give the others."""


class Uncompiled(MetaPathFinder, Loader):
    """Finds the files of the kernel under another name."""

    def __init__(self, changed: dict[str, str]) -> None:
        self.changed = changed

    def find_spec(self, name: str, *_: Any) -> ModuleSpec | None:
        return (
            ModuleSpec(name, self, is_package=name == NAME)
            if name.partition(".")[0] == NAME
            else None
        )

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__.partition(".")[2]
        if name in STANDS_IN:
            vars(module).update(STANDS_IN[name])
        elif name:
            path = (HERE.parent if name == "engine" else HERE) / f"{name}.py"
            text = self.changed.get(name) or path.read_text()
            text = text.replace("tonnage.simulator.kernel", NAME)
            text = text.replace("from numba import njit", f"from {NAME}.compiler import njit")
            exec(compile(text, str(path), "exec"), vars(module))


def beside(run: ModuleType, name: str) -> Any:
    """Another file of the uncompiled kernel."""
    return import_module(f"{run.__package__}.{name}")


@contextmanager
def uncompiled(**changed: str) -> Iterator[Any]:
    """The module ``run`` of the kernel, uncompiled; for files of these names other texts.

    ``beside`` has the others, and the engine that is driven from outside as ``engine``."""
    finder = Uncompiled(changed)
    sys.meta_path.insert(0, finder)
    try:
        yield import_module(f"{NAME}.run")
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if name.partition(".")[0] == NAME]:
            del sys.modules[name]
