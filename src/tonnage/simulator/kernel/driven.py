"""The loop of one engine behind numba, compiled on first use and kept on disk where there is a place for it.

It holds no interpreter lock, so that threads run several engines at once, and it allocates nothing, so that numba's counting of
references (``_nrt``) is left out: it made the loop ten times slower. The loop of a fleet calls it as it stands: it is compiled once.
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
from tonnage.simulator import autoscaler, happened, ratio, router
from tonnage.simulator.kernel import loop
from tonnage.simulator.kernel.schedulers import CODES


def _fingerprint() -> int:
    """Checksum of what the compiled loop is made of, sources and codes: a change in any of it compiles the loop anew."""
    others = [Path(str(module.__file__)) for module in (autoscaler, happened, ratio, router, step, step_terms, requests, units)]
    files = [*sorted(Path(__file__).parent.glob("*.py")), *others]
    return zlib.crc32(b"".join([repr(CODES).encode(), *(file.read_bytes() for file in files)]))


def compiled(drive: Callable[..., Any]) -> Any:
    """A loop behind numba, kept on disk if any place for it can be written."""
    compiler: Any = njit
    try:
        return compiler(nogil=True, cache=True, _nrt=False)(drive)
    except RuntimeError:  # no place for a cache
        return compiler(nogil=True, _nrt=False)(drive)


def _build(version: int) -> Callable[..., Any]:
    """The loop of one engine, with ``version`` as part of its key in numba's cache."""

    def drive(m, until, cancelled):
        loop.drive(m, until, cancelled)
        return version

    return drive


def _build_shared(version: int) -> Callable[..., Any]:
    """The loop of one engine whose requests have something in common, which nobody cancels."""

    def drive_shared(m, until):
        loop.advance(m, until)
        loop.settle(m)
        return version

    return drive_shared


VERSION = _fingerprint()

drive = compiled(_build(VERSION))
"""``loop.drive``: takes a ``Machine``, an instant, and the row of a request to let go of (else NOBODY, or IN_A_FLEET)."""

drive_shared = compiled(_build_shared(VERSION))
"""``loop.advance`` of a ``Machine`` with a cache up to an instant; it is compiled when prompts first have something in common."""
