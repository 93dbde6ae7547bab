"""The loop of one engine behind numba, compiled on first use and kept on disk where there is a place for it.

It holds no interpreter lock, so that threads run several engines at once, and it allocates nothing, so that numba's counting of
references (``_nrt``) is left out: it made the loop ten times slower. Python and the loop of a fleet call it by its address, so that it
is compiled once.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numba import njit, typeof, types

from tonnage import units
from tonnage.perf import step, step_terms
from tonnage.results import requests
from tonnage.simulator import autoscaler, ratio, request, router
from tonnage.simulator.kernel import loop
from tonnage.simulator.kernel.compiler import LOOP, LOOPS, WHOLE, Reference, advance_at, by_reference
from tonnage.simulator.kernel.memory import NOBODY
from tonnage.simulator.kernel.schedulers import CODES

if TYPE_CHECKING:
    from tonnage.simulator.kernel.memory import Machine


def _fingerprint() -> int:
    """Checksum of what the compiled loop is made of, sources and codes: a change in any of it compiles the loop again."""
    others = [Path(str(module.__file__)) for module in (autoscaler, request, ratio, router, step, step_terms, requests, units)]
    files = [*sorted(Path(__file__).parent.glob("*.py")), *others]
    return zlib.crc32(b"".join([repr(CODES).encode(), *(file.read_bytes() for file in files)]))


def compiled(function: Callable[..., Any], **options: Any) -> Any:
    """A function behind numba, kept on disk if any place for it can be written."""
    compiler: Any = njit
    options |= {"nogil": True, "_nrt": False, "no_cfunc_wrapper": True}
    options = WHOLE | options
    try:
        return compiler(cache=True, **options)(function)
    except RuntimeError:  # no place for a cache
        return compiler(**options)(function)


def _build(version: int) -> Callable[..., Any]:
    """The loop of one engine, with ``version`` as part of its key in numba's cache."""

    def drive(m, until, cancelled):
        loop.drive(m, until, cancelled)
        return version

    return drive


def _build_shared(version: int) -> Callable[..., Any]:
    """The loop of one engine whose requests have something in common, which nobody cancels."""

    def drive_shared(m, until, cancelled):
        loop.advance(m, until)
        loop.settle(m)
        return version

    return drive_shared


def _build_ranked(version: int) -> Callable[..., Any]:
    """The loop of one engine that looks at classes or deadlines, whose requests nobody cancels.

    Of another name than the one above, since ``is_compiled`` finds a loop in numba's cache by its function.
    """

    def drive_ranked(m, until, cancelled):
        loop.advance(m, until)
        loop.settle(m)
        return version

    return drive_ranked


def _build_entry(version: int) -> Callable[..., Any]:
    """What Python calls: it takes a machine apart and calls the loop at an address."""

    def enter(address, m, until, cancelled):
        advance_at(address, by_reference(m), until, cancelled)
        return version

    return enter


class Loop:
    """A compiled loop, for machines of one type: those with a prefix cache, or those without.

    Attributes:
        parts: what is compiled of it, by itself each: the loop, and its entry from Python.
    """

    def __init__(self, build: Callable[[int], Callable[..., Any]], version: int) -> None:
        """Nothing is compiled yet."""
        body = compiled(build(version), no_cpython_wrapper=True, **LOOP)
        self.parts: tuple[Any, Any] = (body, compiled(_build_entry(version)))
        self._address = 0
        self._once = threading.Lock()

    @property
    def signatures(self) -> list[Any]:
        """For which arguments it is compiled in this process, or loaded."""
        return list(self.parts[0].signatures)

    def expected(self, m: Machine) -> int:
        """Allow that what is compiled calls the loop of such machines at an address, without compiling it; 0, where nothing lies."""
        LOOPS.add(Reference(typeof(m)))
        return 0

    def address(self, m: Machine) -> int:
        """Where the loop is in memory, for ``advance_at``; it is compiled or loaded when it is first asked for.

        Args:
            m: any machine of its type.
        """
        with self._once:
            if self._address == 0:
                body, entry = self.parts
                kind: Any = typeof(m)
                signature = (Reference(kind), types.int64, types.int64)
                LOOPS.add(signature[0])
                body.compile(signature)
                entry.compile((types.int64, kind, types.int64, types.int64))
                entry.disable_compile()  # machines of another type are refused: the address is that of a loop for this one
                made = body.overloads[signature]
                self._address = made.library.get_pointer_to_function(made.fndesc.llvm_func_name)
        return self._address

    def __call__(self, m: Machine, until: int, cancelled: int = NOBODY) -> None:
        """``loop.drive``: up to an instant; ``cancelled`` is the row of a request to let go of instead, else NOBODY."""
        self.parts[1](self._address or self.address(m), m, until, cancelled)


VERSION = _fingerprint()

drive = Loop(_build, VERSION)
"""``loop.drive`` of machines without a cache."""

drive_shared = Loop(_build_shared, VERSION)
"""``loop.advance`` of machines with a cache; it is compiled when prompts first have something in common."""

drive_ranked = Loop(_build_ranked, VERSION)
"""``loop.advance`` of machines with ranks; it is compiled when priorities or deadlines are first asked for in a run that is not small."""
