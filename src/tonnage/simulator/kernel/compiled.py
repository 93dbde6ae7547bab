"""The loops of one engine and of a fleet behind numba, and whether they are compiled yet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba.core.caching import NullCache

from tonnage.simulator.kernel import routing
from tonnage.simulator.kernel.compiler import by_reference
from tonnage.simulator.kernel.driven import VERSION, Loop, compiled, drive

__all__ = ["drive", "drive_fleet", "is_compiled", "is_kept"]


def _build_fleet(version: int) -> Callable[..., Any]:
    """The loop of a fleet, with ``version`` as part of its key in numba's cache."""

    def drive_fleet(f, view, memory, asked, until):
        fleet = by_reference(f)
        routing.route(fleet, view, memory, by_reference(asked), until)
        if until == f.rows.sent.size and f.stop[0] == 0:
            routing.drain(fleet)
        return version

    return drive_fleet


drive_fleet = compiled(_build_fleet(VERSION))
"""``routing.route``, and after the last request ``routing.drain``; it is compiled when a large fleet is first simulated."""


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
