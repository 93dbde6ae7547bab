"""The loops of one engine and of a fleet behind numba, compiled on first use and kept on disk where
there is a place for it.

A loop holds no interpreter lock, so that threads run several engines at once, and it allocates
nothing, so that numba's counting of references (``_nrt``) is left out: it made the loop ten times
slower. Python and the loop of a fleet call the loop of one engine by its address, so that it is
compiled once.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit, typeof, types
from numba.core.caching import NullCache

from tonnage import units
from tonnage.perf import step, step_terms
from tonnage.results import requests
from tonnage.simulator import autoscaler, request, router, rules
from tonnage.simulator.kernel import lockstep, routing
from tonnage.simulator.kernel.compiler import (
    LOOP,
    LOOPS,
    WHOLE,
    Reference,
    advance_at,
    by_reference,
    write_at,
)
from tonnage.simulator.kernel.memory import GROUP, Group, Machine
from tonnage.simulator.kernel.schedulers import CODES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tonnage.spec.deployment import EngineKnobs


def _fingerprint() -> int:
    """Checksum of what the compiled loop is made of, sources and codes: a change in any of it
    compiles the loop again.
    """
    other_sources = [
        Path(str(module.__file__))
        for module in (autoscaler, request, rules, router, step, step_terms, requests, units)
    ]
    files = [*sorted(Path(__file__).parent.glob("*.py")), *other_sources]
    return zlib.crc32(b"".join([repr(CODES).encode(), *(file.read_bytes() for file in files)]))


def compiled(function: Callable[..., Any], **options: Any) -> Any:
    """A function behind numba, kept on disk if any place for it can be written."""
    compiler: Any = njit
    options |= {"nogil": True, "_nrt": False, "no_cfunc_wrapper": True}
    options = WHOLE | options
    try:
        dispatcher = compiler(cache=True, **options)(function)
    except RuntimeError:  # no place for a cache
        return compiler(**options)(function)
    cache = dispatcher._cache
    # Numba's method makes the compiler ready and then calls this one, which takes a fifth of the
    # time.
    cache.load_overload = getattr(cache, "_load_overload", cache.load_overload)
    return dispatcher


def _builder(name: str) -> Callable[[int], Callable[..., Any]]:
    """Makes the loop of one engine, or of ranks in lockstep, under its own name in numba's cache,
    with ``version`` in its key there.
    """

    def build(version: int) -> Callable[..., Any]:
        def drive(m, until, cancelled):
            lockstep.drive(m, until, cancelled)
            return version

        drive.__name__ = drive.__qualname__ = name
        return drive

    return build


def _build_write(version: int) -> Callable[..., Any]:
    """Build the function that puts a machine where the loop of its group finds it."""

    def write(m, address):
        write_at(address, by_reference(m))
        return version

    return write


def _build_entry(version: int) -> Callable[..., Any]:
    """Build the function that takes a machine apart and calls the loop at an address."""

    def enter(address, m, until, cancelled):
        advance_at(address, by_reference(m), until, cancelled)
        return version

    return enter


class Loop:
    """A compiled loop, for machines of one type.

    Attributes:
        name: what tells it from others in numba's cache.
        enter: ``lockstep.drive`` for Python: called with its ``address``, a machine, the instant up
            to which it is driven, and the row of a request to let go of instead, else NOBODY.
        parts: its separately compiled parts: the loop, and its entry.
    """

    def __init__(self, name: str, version: int) -> None:
        """Note the source; nothing is compiled yet."""
        self.name = name
        body = compiled(_builder(name)(version), no_cpython_wrapper=True, **LOOP)
        self.enter = compiled(_build_entry(version))
        self.parts: tuple[Any, Any] = (body, self.enter)
        self._address = 0
        self._once = threading.Lock()

    @property
    def signatures(self) -> list[Any]:
        """The argument types for which it is compiled in this process, or loaded."""
        return list(self.parts[0].signatures)

    def expected(self, m: Machine) -> int:
        """Allow that what is compiled calls the loop of such machines at an address, without
        compiling it; 0, where there is none.
        """
        LOOPS.add(Reference(typeof(m)))
        return 0

    def address(self, m: Machine) -> int:
        """Where the loop is in memory, for ``enter`` and ``advance_at``; compiled or loaded, for
        machines like ``m``, when it is first asked for.
        """
        with self._once:
            if self._address == 0:
                body, entry = self.parts
                kind: Any = typeof(m)
                signature = (Reference(kind), types.int64, types.int64)
                LOOPS.add(signature[0])
                body.compile(signature)
                entry.compile((types.int64, kind, types.int64, types.int64))
                # machines of another type are refused: the address is that of a loop for this one
                entry.disable_compile()
                compiled_loop = body.overloads[signature]
                self._address = compiled_loop.library.get_pointer_to_function(
                    compiled_loop.fndesc.llvm_func_name
                )
        return self._address


VERSION = _fingerprint()

_LOOPS = {
    (shares, ranks): Loop(name, VERSION)
    for shares, ranks, name in (
        (False, False, "drive"),
        (True, False, "drive_shared"),
        (False, True, "drive_ranked"),
    )
}
_GROUPS = {key: Loop(f"{loop.name}_ranks", VERSION) for key, loop in _LOOPS.items()}

drive = _LOOPS[False, False]
"""The loop of machines that have neither a cache nor classes or deadlines."""

write = compiled(_build_write(VERSION))


def loop_of(*, shares: bool = False, ranks: bool = False, grouped: bool = False) -> Loop:
    """The loop of an engine; each is compiled when it is first asked for in a run that is not
    small.

    ``shares``: its requests have something in common; ``ranks``: they differ by class or deadline;
    ``grouped``: ranks go in lockstep.
    """
    return (_GROUPS if grouped else _LOOPS)[shares, ranks]


def loop_for(m: Machine) -> Loop:
    """The loop of a machine."""
    return loop_of(
        shares=m.cache is not None, ranks=m.ranks is not None, grouped=m.group is not None
    )


def note_of(knobs: EngineKnobs, shape: tuple[int, ...]) -> NDArray[np.void]:
    """Records of the type ``GROUP`` for attention ranks that nothing has happened to."""
    note = np.zeros(shape, GROUP)
    note["wait"], note["padded"] = (
        knobs.rank_wait_steps,
        knobs.graph_tokens if knobs.pads_ranks else -1,
    )
    return note


def grouped(ranks: Sequence[Machine], knobs: EngineKnobs) -> list[Machine]:
    """Idle machines as the attention ranks of one instance; whichever is driven, all are."""
    note = note_of(knobs, (1,))
    at, room = np.zeros(len(ranks), np.int64), np.zeros((0, 0), np.int64)
    room = room_for(ranks[0]._replace(group=Group(note, at, room)), at)
    machines = [m._replace(group=Group(note, at, room)) for m in ranks]
    for m, address in zip(machines, at.tolist(), strict=True):
        write(m, address)
    return machines


def room_for(m: Machine, at: NDArray[np.int64]) -> NDArray[np.int64]:
    """Memory for as many machines like this one as ``at`` has entries, where their addresses are
    noted.
    """
    context = write.targetctx
    words = -(-context.get_abi_sizeof(context.get_value_type(typeof(m))) // 8)
    room = np.zeros((at.size, words), np.int64)
    at.ravel()[:] = room.ctypes.data + 8 * words * np.arange(at.size)
    return room


def _build_fleet(version: int) -> Callable[..., Any]:
    """The loop of a fleet, with ``version`` as part of its key in numba's cache."""

    def drive_fleet(f, view, memory, router, until):
        fleet = by_reference(f)
        routing.route(fleet, view, memory, by_reference(router), until)
        if until == f.rows.sent.size and f.stop[0] == 0:
            routing.drain(fleet)
        return version

    return drive_fleet


drive_fleet = compiled(_build_fleet(VERSION))
"""``routing.route``, and after the last request ``routing.drain``; it is compiled when a large
fleet is first simulated."""


def is_compiled(loop: Any = drive) -> bool:
    """Whether a run starts at once: compiled in this process, or found in numba's cache on disk."""
    parts = loop.parts if isinstance(loop, Loop) else (loop,)
    return all(part.signatures or _is_on_disk(part) for part in parts)


def is_kept(part: Any) -> bool:
    """Whether what is compiled is written to disk, where another process finds it."""
    return not isinstance(part._cache, NullCache)


def _is_on_disk(part: Any) -> bool:
    """Whether numba's cache has it, for this processor."""
    try:
        cache = part._cache
        index = cache._cache_file._load_index()
        return any(key[1:] == cache._index_key(None, part.targetctx.codegen())[1:] for key in index)
    except (AttributeError, ImportError, OSError):
        return False
