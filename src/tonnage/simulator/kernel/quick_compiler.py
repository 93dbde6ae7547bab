"""What Tonnage changes inside numba's compiler, for the versions in ``compiler.VERSIONS``:
everything here may be renamed by the next one.

Numba optimises every function with all that it calls and makes machine code of it, so that what is
deep in the loop would be compiled again for each function above it. Here a part is compiled as far
as LLVM's code, and once, in the loop, to machine code. Passes for closures, ``with`` blocks,
literals, array expressions and parallel loops are left out, since no part contains any, and the
type of a call such as ``int64 + int64`` is found once instead of 5,600 times. The machine code is
the same to the last byte.

CPU seconds to compile the loop of one engine (two cores, x86_64, Python 3.11.7, numba 0.68.1,
2026-11-24, two to four runs in turns): 7.4 to 7.8 as it is; 30.4 and 33.7 with numba's own
pipeline; 8.6 to 9.2 with all passes; 8.5 to 9.5 without the memory of call types.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from numba.core import types
from numba.core.codegen import CPUCodegen, JITCodeLibrary
from numba.core.compiler import Compiler, DefaultPassBuilder
from numba.core.compiler_machinery import PassManager
from numba.core.targetconfig import ConfigStack
from numba.core.typed_passes import DumpParforDiagnostics, InlineOverloads, NopythonRewrites
from numba.core.untyped_passes import (
    DeadBranchPrune,
    FindLiterallyCalls,
    InlineClosureLikes,
    LiteralPropagationSubPipelinePass,
    LiteralUnroll,
    MakeFunctionToJitFunction,
    RewriteDynamicRaises,
    RewriteSemanticConstants,
    WithLifting,
)

UNUSED = frozenset(
    {
        DeadBranchPrune,
        DumpParforDiagnostics,
        FindLiterallyCalls,
        InlineClosureLikes,
        InlineOverloads,
        LiteralPropagationSubPipelinePass,
        LiteralUnroll,
        MakeFunctionToJitFunction,
        NopythonRewrites,
        RewriteDynamicRaises,
        RewriteSemanticConstants,
        WithLifting,
    }
)
"""Passes that are left out: a part has no comprehensions, lambdas, ``with``, ``literally``,
arithmetic of whole arrays or raised values, and a branch that is never taken goes when the loop is
optimised."""


NEEDED = (
    (CPUCodegen, ("_module_pass_manager", "_pass_builder")),
    (Compiler, ("_compile_core", "define_pipelines")),
    (ConfigStack, ("top_or_none",)),
    (DefaultPassBuilder, ("define_nopython_pipeline",)),
    (
        JITCodeLibrary,
        (
            "_ensure_finalized",
            "_finalize_dynamic_globals",
            "_finalize_final_module",
            "_optimize_final_module",
        ),
    ),
    (JITCodeLibrary, ("_optimize_functions", "enable_object_caching", "get_pointer_to_function")),
    (PassManager, ("add_pass", "finalize")),
    (types.Function, ("get_call_type",)),
)
"""Methods of numba that are called or replaced below."""

if missing := [
    f"{kind.__name__}.{name}" for kind, names in NEEDED for name in names if not hasattr(kind, name)
]:
    raise ImportError(f"numba has no {missing[0]}")


class QuickCompiler(Compiler):
    """Numba's compiler of one function, with fewer passes, which finds the type of a call once."""

    def define_pipelines(self):
        """Numba's passes in their order, without unused ones."""
        usual = DefaultPassBuilder.define_nopython_pipeline(self.state)
        manager = PassManager("quick")
        for compiler_pass, description in usual.passes:
            if compiler_pass not in UNUSED:
                manager.add_pass(compiler_pass, description)
        manager.finalize()
        return [manager]

    def _compile_core(self):
        with _remembered():
            return super()._compile_core()


@contextmanager
def _remembered() -> Iterator[None]:
    """While a loop is compiled, which numba does under its lock, the type of a call is found
    once.
    """
    kind: Any = types.Function
    usual = kind.get_call_type
    if hasattr(usual, "remembers"):
        yield
        return
    kind.get_call_type = _remembering(usual)
    try:
        yield
    finally:
        kind.get_call_type = usual


def _remembering(find: Any) -> Any:
    """``find``, a method of ``types.Function``, which numba calls once for each function, arguments
    and options of the caller.
    """
    calls: dict[str, dict[tuple[int, ...], tuple[Any, ...]]] = {}
    of_options: dict[int, tuple[Any, dict[tuple[int, ...], tuple[Any, ...]]]] = {}

    def get_call_type(self, context, args, kws):
        options: Any = ConfigStack.top_or_none()  # numba hands them down to what is called
        if id(options) not in of_options:
            of_options[id(options)] = (options, calls.setdefault(repr(options), {}))
        remembered = of_options[id(options)][1]
        key = (id(self), *map(id, args))
        if key in remembered and not kws:
            signature, chosen, *_ = remembered[key]
            self._impl_keys[signature.args] = chosen
            return signature
        signature = find(self, context, args, kws)
        if not kws:
            # who is kept leaves its identity to nobody
            remembered[key] = (signature, self._impl_keys[signature.args], self, args)
        return signature

    get_call_type.remembers = True  # type: ignore[attr-defined]
    return get_call_type


_REFUSED = ctypes.cast(ctypes.pythonapi.PyErr_BadArgument, ctypes.c_void_p).value or 0


class _PartLibrary(JITCodeLibrary):
    """Code that is simplified function by function, and linked."""

    def _optimize_functions(self, ll_module):
        """Optimise below numba's level 3, which splits a loop in two where a setting is the same in
        every iteration.
        """
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
        """What Python would call: there is no machine code, and a call from Python is a
        TypeError.
        """
        self._ensure_finalized()
        return _REFUSED

    @property
    def codegen(self):
        """Takes environments: nothing in memory needs one."""
        return self

    def set_env(self, env_name, env):
        """See ``codegen``."""


class _WholeLibrary(JITCodeLibrary):
    """Code with all of its parts, optimised once; loops over arrays are short here, and vectors
    only make the code longer.
    """

    def _optimize_final_module(self):
        manager, builder = self._codegen._module_pass_manager(loop_vectorize=False)
        manager.run(self._final_module, builder)


class Part(QuickCompiler):
    """The compiler of a part."""

    def __init__(self, typing_context, target_context, library, *others):
        """Takes numba's arguments; its library is linked and makes no machine code."""
        super().__init__(
            typing_context,
            target_context,
            library or _PartLibrary(target_context.codegen(), "part"),
            *others,
        )


class Whole(QuickCompiler):
    """The compiler of what Python calls."""

    def __init__(self, typing_context, target_context, library, *others):
        """Takes numba's arguments; its library is optimised once, with all of its parts."""
        if library is None:
            library = _WholeLibrary(target_context.codegen(), "whole")
            library.enable_object_caching()
        super().__init__(typing_context, target_context, library, *others)


class EngineLoop(Whole):
    """Writing to an array does not write to the machine, which has only its address: so addresses
    are not read again.
    """

    def __init__(self, typing_context, target_context, library, args, return_type, flags, *others):
        """Takes the same arguments; its pointers have no aliases."""
        flags.noalias = True
        super().__init__(typing_context, target_context, library, args, return_type, flags, *others)
