"""The kernel as Python runs it, without numba: its files are read once more, under another name, beside
a compiler that compiles nothing.

What takes half a minute to compile (the loops of classes and of attention ranks) is compared with the
reference in milliseconds this way, by the same functions. Whether numba takes them is another question,
for the tests of what is compiled.
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
from types import ModuleType
from typing import Any

import numpy as np

from tonnage.simulator import kernel

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


class Notes(list[Note]):
    """An array of records."""

    def __init__(self, records: Any) -> None:
        super().__init__(map(Note, records))
        self.size = len(self)

    def back(self, records: Any) -> None:
        for note, record in zip(self, records, strict=True):
            note.back(record)


PLACES = {"cfg": Note, "state": Note, "step": Note, "slots": Notes}
"""Fields of a machine that are records."""


def readable(m: Any) -> Any:
    """A machine whose records have attributes."""
    m = m._replace(**{name: kind(getattr(m, name)) for name, kind in PLACES.items()})
    if m.cache is not None:
        m = m._replace(cache=m.cache._replace(note=Note(m.cache.note)))
    if m.ranks is not None:
        m = m._replace(ranks=m.ranks._replace(note=Notes(m.ranks.note)))
    return m


def write_back(found: Any, m: Any) -> None:
    for name in PLACES:
        getattr(found, name).back(getattr(m, name))
    if m.cache is not None:
        found.cache.note.back(m.cache.note)
    if m.ranks is not None:
        found.ranks.note.back(m.ranks.note)


MACHINES: dict[int, Any] = {}
"""Those of groups, by what stands for their addresses."""


class Loop:
    """``driven.Loop``: nothing is compiled."""

    def address(self, _: Any) -> int:
        return 0

    def enter(self, _: int, m: Any, until: int, cancelled: int) -> None:
        drive = import_module(f"{NAME}.lockstep").drive
        with np.errstate(over="ignore"):
            if m.group is None:
                found = readable(m)
                drive(found, until, cancelled)
                write_back(found, m)
                return
            members = [MACHINES[at] for at in m.group.at.tolist()]
            note = Notes(m.group.note)
            for at, machine in zip(m.group.at.tolist(), members, strict=True):
                MACHINES[at] = readable(machine._replace(group=m.group._replace(note=note)))
            drive(MACHINES[int(m.group.at[0])], until, cancelled)
            for at, machine in zip(m.group.at.tolist(), members, strict=True):
                write_back(MACHINES[at], machine)
                MACHINES[at] = machine


def grouped(ranks: Any, knobs: Any) -> list[Any]:
    """``driven.grouped``."""
    memory = import_module(f"{NAME}.memory")
    note, at = np.zeros(1, memory.GROUP), np.arange(len(ranks))
    note["wait"], note["padded"] = (
        knobs.rank_wait_steps,
        knobs.graph_tokens if knobs.pads_ranks else -1,
    )
    machines = [m._replace(group=memory.Group(note, at, None)) for m in ranks]
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
        "advance_at": None,
    },
    "driven": {"grouped": grouped, "loop_for": lambda _: Loop(), "is_compiled": None},
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
            path = HERE / f"{name}.py"
            text = self.changed.get(name) or path.read_text()
            text = text.replace("tonnage.simulator.kernel", NAME)
            text = text.replace("from numba import njit", f"from {NAME}.compiler import njit")
            exec(compile(text, str(path), "exec"), vars(module))


@contextmanager
def uncompiled(**changed: str) -> Iterator[Any]:
    """The module ``run`` of the kernel, uncompiled; for files of these names other texts."""
    finder = Uncompiled(changed)
    sys.meta_path.insert(0, finder)
    try:
        yield import_module(f"{NAME}.run")
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if name.partition(".")[0] == NAME]:
            del sys.modules[name]
