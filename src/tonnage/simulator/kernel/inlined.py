"""How the parts of a loop are compiled: each by itself as far as LLVM's code, and once, in the loop, to machine code.

Numba optimises every function with all that it calls and makes machine code of it, so that what lies deep in the loop would be compiled
again for each function above it: three quarters of the time that the first use of the simulator took. ``part`` and ``called`` leave out
what nobody runs, and ``WHOLE`` is for the loop into which they are linked. Both are pipelines of numba's own compiler with another library
of code; with a numba whose insides nobody has looked at (``KNOWN``) they are left out, which costs time and changes no result.

The parts allocate nothing (``driven.py``).
"""

from __future__ import annotations

import ctypes
from functools import partial
from typing import Any

import numba
from numba import njit
from numba.core.codegen import JITCodeLibrary
from numba.extending import register_jitable

from tonnage.simulator.kernel.passes import QuickCompiler

KNOWN = numba.__version__.startswith("0.68.")
"""Whether this is a version for which the classes below were written."""


_REFUSED = ctypes.cast(ctypes.pythonapi.PyErr_BadArgument, ctypes.c_void_p).value or 0


class _PartLibrary(JITCodeLibrary):
    """Code that is simplified function by function, and linked."""

    def _optimize_functions(self, ll_module):
        """Not numba's level 3, which makes two loops of one where a setting is the same in all of its turns."""
        ll_module.data_layout = self._codegen._data_layout
        builder = self._codegen._pass_builder(opt=2)
        manager = builder.getFunctionPassManager()
        for function in ll_module.functions:
            if not function.is_declaration:
                manager.run(function, builder)

    def _optimize_final_module(self):
        """Left to the loop."""

    def _finalize_final_module(self):
        self._finalize_dynamic_globals()
        self._finalized = True

    def get_pointer_to_function(self, name):
        """What Python would call: there is no machine code, and a call from Python is a TypeError."""
        self._ensure_finalized()
        return _REFUSED

    @property
    def codegen(self):
        """Who is told of environments: there is nothing in memory that needs one."""
        return self

    def set_env(self, env_name, env):
        """See ``codegen``."""


class _WholeLibrary(JITCodeLibrary):
    """Code with all of its parts, optimised once; loops over arrays are short here, and vectors only make the code longer."""

    def _optimize_final_module(self):
        manager, builder = self._codegen._module_pass_manager(loop_vectorize=False)
        manager.run(self._final_module, builder)


class _Part(QuickCompiler):
    def __init__(self, typing_context, target_context, library, *others):
        super().__init__(typing_context, target_context, library or _PartLibrary(target_context.codegen(), "part"), *others)


class _Whole(QuickCompiler):
    def __init__(self, typing_context, target_context, library, *others):
        if library is None:
            library = _WholeLibrary(target_context.codegen(), "whole")
            library.enable_object_caching()
        super().__init__(typing_context, target_context, library, *others)


class _Loop(_Whole):
    """Whoever writes to an array does not write to the machine, which has only its address: so addresses are not read again."""

    def __init__(self, typing_context, target_context, library, args, return_type, flags, *others):
        flags.noalias = True
        super().__init__(typing_context, target_context, library, args, return_type, flags, *others)


WHOLE: dict[str, Any] = {"pipeline_class": _Whole} if KNOWN else {}
"""Options of what Python calls."""

LOOP: dict[str, Any] = {"pipeline_class": _Loop} if KNOWN else {}
"""Options of a loop whose only array-like argument is a machine by reference."""

PART: dict[str, Any] = {"_nrt": False, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
PART |= {"pipeline_class": _Part} if KNOWN else {}
"""Options of a part."""

part: Any = partial(njit, forceinline=True, **PART)
"""For a function that becomes part of the loop."""

called: Any = partial(njit, forceinline=False, **PART)
"""For a larger one that may stay a function of its own: the registers of the loop are better left to the rest of it. What is not said here
numba takes from the caller."""

jitable: Any = partial(register_jitable, forceinline=True, **PART)
"""For a function of plain numbers that Python calls too, as it stands."""
