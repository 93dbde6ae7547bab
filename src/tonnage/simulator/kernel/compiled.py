"""The loop behind numba, compiled on first use and kept on disk where the installation or the user's cache folder can be written.

It holds no interpreter lock, so that threads run several engines at once, and it allocates nothing, so that numba's counting of
references (``_nrt``) is left out: it made the loop ten times slower.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba import njit

from tonnage import units
from tonnage.perf import step, step_terms
from tonnage.results import requests
from tonnage.simulator import happened, ratio, router
from tonnage.simulator.kernel import loop, routing
from tonnage.simulator.kernel.schedulers import CODES


def _fingerprint() -> int:
    """Checksum of what the compiled loop is made of, sources and codes: a change in any of it compiles the loop anew."""
    others = [Path(str(module.__file__)) for module in (happened, ratio, router, step, step_terms, requests, units)]
    files = [*sorted(Path(__file__).parent.glob("*.py")), *others]
    return zlib.crc32(b"".join([repr(CODES).encode(), *(file.read_bytes() for file in files)]))


def _build(version: int) -> Callable[..., Any]:
    """The loop of one engine, with ``version`` as part of its key in numba's cache."""

    def drive(m, until, cancelled):
        loop.drive(m, until, cancelled)
        return version

    return drive


def _build_fleet(version: int) -> Callable[..., Any]:
    """The loop of a fleet, in the same way; 0 where no instance was available."""

    def drive(f, view, memory, asked, until):
        served = routing.route(f, view, memory, asked, until)
        if served and until == f.rows.sent.size and f.stop[0] == 0:
            routing.drain(f)
        return version if served else 0

    return drive


def _compiled(drive: Callable[..., Any]) -> Any:
    """A loop behind numba, kept on disk if any place for it can be written."""
    compiler: Any = njit
    try:
        return compiler(nogil=True, cache=True, _nrt=False)(drive)
    except RuntimeError:  # no place for a cache
        return compiler(nogil=True, _nrt=False)(drive)


_VERSION = _fingerprint()

drive = _compiled(_build(_VERSION))
"""``loop.drive``: takes a ``Machine``, an instant, and the row of a request to let go of (else -1)."""

drive_fleet = _compiled(_build_fleet(_VERSION))
"""``routing.route``, and after the last request ``routing.drain``; it is compiled when a large fleet is first simulated."""


def is_compiled(loop: Any = drive) -> bool:
    """Whether a run starts at once: compiled in this process, or found in numba's cache on disk."""
    if loop.signatures:
        return True
    try:
        cache = loop._cache
        index = cache._cache_file._load_index()
        return any(key[1:] == cache._index_key(None, loop.targetctx.codegen())[1:] for key in index)
    except (AttributeError, OSError):
        return False
