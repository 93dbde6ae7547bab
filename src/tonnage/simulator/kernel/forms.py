"""Functions of which the type of a machine decides, when its loop is compiled, which form becomes part of it.

A machine without a prefix cache, or without ranks, has None in that place: its loop is compiled and runs as if there were no such thing.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from numba.core import types
from numba.extending import overload

from tonnage.simulator.kernel.inlined import PART


def two_forms(field: str, without: Callable[..., Any], within: Callable[..., Any]) -> Any:
    """A function for compiled code alone, with one form for machines that have None in a field and one for the others."""

    def asked(*args: Any) -> Any:
        raise NotImplementedError

    def choose(m: Any, *_: Any) -> Callable[..., Any]:
        return without if isinstance(m.type_of(field), types.NoneType) else within

    setattr(choose, "__signature__", inspect.signature(without))  # noqa: B010 — a function's type does not declare it
    # Not inline="always": numba 0.68 then loses statements of the loop around.
    options: Any = {"forceinline": True, **PART}
    overload(asked, jit_options=options)(choose)
    return asked
