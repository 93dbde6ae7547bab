"""How the parts of the loop are compiled; they allocate nothing (``compiled.py``)."""

from __future__ import annotations

from functools import partial
from typing import Any

from numba import njit

part: Any = partial(njit, forceinline=True, _nrt=False, no_cpython_wrapper=True, no_cfunc_wrapper=True)
"""For a function that is compiled by itself and becomes part of the loop in its machine code."""

small: Any = partial(njit, inline="always")
"""For one of a few lines, which becomes part of its callers before they are compiled: less to compile where it is short."""

called: Any = partial(njit, _nrt=False, no_cpython_wrapper=True, no_cfunc_wrapper=True)
"""For a larger one that stays a function of its own: the registers of the loop are better left to the rest of it."""
