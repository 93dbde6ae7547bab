"""What numba's compiler does with a part of the loop, less what a part has no use for.

Half of the time that the first use of the simulator took went into numba's own Python: passes for closures, ``with`` blocks, literals,
array expressions and parallel loops, none of which a part contains, with an analysis of all variables after each; and the types of calls
such as ``int64 + int64``, found anew 5,600 times, of which some hundreds differ. The machine code is the same to the last byte.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from numba.core import types
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
"""Passes that are left out: a part has no comprehensions, lambdas, ``with``, ``literally``, arithmetic of whole arrays or raised values,
and a branch that is never taken goes when the loop is optimised."""


class QuickCompiler(Compiler):
    """Numba's compiler of one function, with fewer passes, which finds the type of a call once."""

    def define_pipelines(self):
        """Numba's passes in their order, less those that are not used."""
        usual = DefaultPassBuilder.define_nopython_pipeline(self.state)
        manager = PassManager("quick")
        for each, description in usual.passes:
            if each not in UNUSED:
                manager.add_pass(each, description)
        manager.finalize()
        return [manager]

    def _compile_core(self):
        with _remembered():
            return super()._compile_core()


@contextmanager
def _remembered() -> Iterator[None]:
    """While a loop is compiled, which numba does under its lock, the type of a call is found once."""
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
    """``find``, a method of ``types.Function``, which is asked once for each function, arguments and options of the caller."""
    calls: dict[str, dict[tuple[int, ...], tuple[Any, ...]]] = {}
    of_options: dict[int, tuple[Any, dict[tuple[int, ...], tuple[Any, ...]]]] = {}

    def get_call_type(self, context, args, kws):
        options: Any = ConfigStack.top_or_none()  # numba hands them down to what is called
        if id(options) not in of_options:
            of_options[id(options)] = (options, calls.setdefault(repr(options), {}))
        known = of_options[id(options)][1]
        key = (id(self), *map(id, args))
        if key in known and not kws:
            signature, chosen, *_ = known[key]
            self._impl_keys[signature.args] = chosen
            return signature
        signature = find(self, context, args, kws)
        if not kws:
            known[key] = (signature, self._impl_keys[signature.args], self, args)  # who is kept leaves its identity to nobody
        return signature

    get_call_type.remembers = True  # type: ignore[attr-defined]
    return get_call_type
