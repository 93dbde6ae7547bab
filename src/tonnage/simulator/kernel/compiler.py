"""How the loops are compiled: the one file that knows numba.

``quick_compiler.py`` changes numba's compiler itself. With a numba for which it was not written, or
which lacks something that it needs, numba's own pipeline compiles the same functions: the results
are the same, and the first use takes four times as long (``SLOWER`` says so). The rest is numba's
extension interface: parts of a loop, functions with two forms, and named tuples by reference.

The parts allocate nothing (``driven.py``).
"""

from __future__ import annotations

import inspect
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any

import numba
from numba import njit

from tonnage.errors import TonnageError

PINNED = "0.68.1"
"""The version in ``requirements/core.txt``."""

try:
    from numba.core import cgutils, types
    from numba.core.datamodel import models
    from numba.core.errors import TypingError
    from numba.core.typing.templates import AttributeTemplate
    from numba.extending import (
        infer_getattr,
        intrinsic,
        lower_getattr_generic,
        overload,
        register_jitable,
        register_model,
    )
except ImportError as error:
    raise TonnageError(
        f"numba {numba.__version__} lacks what compiles the simulator ({error}); pip install"
        f" numba=={PINNED}"
    ) from None

VERSIONS = ("0.68.",)
"""Versions of numba that ``quick_compiler.py`` was written for and run with; ``pyproject.toml``
asks for no other."""


def _pipelines() -> dict[str, Any] | None:
    """The compilers of parts, of what Python calls, and of loops; None where numba's own has to
    do.
    """
    if not numba.__version__.startswith(VERSIONS):
        return None
    try:
        from tonnage.simulator.kernel import quick_compiler
    except (ImportError, AttributeError):
        return None
    return {
        "part": quick_compiler.Part,
        "whole": quick_compiler.Whole,
        "loop": quick_compiler.EngineLoop,
    }


_PIPELINES = _pipelines()

SLOWER = (
    ""
    if _PIPELINES
    else (
        f"numba {numba.__version__} is not one that compiles the simulator quickly: the first use"
        f" takes four times as long; pip install numba=={PINNED}"
    )
)
"""What to tell a user whose numba compiles slowly; "" where it does not."""


def _by(kind: str) -> dict[str, Any]:
    return {"pipeline_class": _PIPELINES[kind]} if _PIPELINES else {}


WHOLE: dict[str, Any] = _by("whole")
"""Options of what Python calls."""

LOOP: dict[str, Any] = _by("loop")
"""Options of a loop whose only array-like argument is a machine by reference."""

PART: dict[str, Any] = {
    "_nrt": False,
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
    **_by("part"),
}
"""Options of a part."""

part: Any = partial(njit, forceinline=True, **PART)
"""For a function that becomes part of the loop."""

called: Any = partial(njit, forceinline=False, **PART)
"""For a larger one that may stay a separate function: the registers of the loop are better left to
the rest of it. What is not said here numba takes from the caller."""

jitable: Any = partial(register_jitable, forceinline=True, **PART)
"""For a function of plain numbers that Python calls too, unchanged."""


def two_forms(field: str, without: Callable[..., Any], within: Callable[..., Any]) -> Any:
    """A function for compiled code alone, with one form for machines that have None in a field and
    one for the others.
    """

    def asked(*args: Any) -> Any:
        raise NotImplementedError

    def choose(m: Any, *_: Any) -> Callable[..., Any]:
        return without if isinstance(m.type_of(field), types.NoneType) else within

    setattr(choose, "__signature__", inspect.signature(without))  # noqa: B010 — a function's type does not declare it
    # Not inline="always": numba 0.68 then loses statements of the loop around.
    options: Any = {"forceinline": True, **PART}
    overload(asked, jit_options=options)(choose)
    return asked


# Named tuples by reference: what compiled functions pass to one another of a machine is one address
# instead of all of its arrays. Numba passes a tuple by value: a function that takes a ``Machine``
# of 40 arrays has 300 arguments, which are packed and unpacked at every call, and half of what the
# compiler did was that.

_written_out: Any = intrinsic  # a decorator that its types say nothing about


class Reference(types.Type):
    """The address of a named tuple.

    Attributes:
        to: the type of the tuple.
    """

    def __init__(self, to: Any) -> None:
        self.to = to
        super().__init__(
            f"Reference({to.instance_class.__name__}, {zlib.crc32(str(to).encode()):x})"
        )

    @property
    def key(self) -> Any:
        """The key that tells this compilation from others."""
        return self.to

    def type_of(self, name: str) -> Any:
        """The type of a field: a tuple in the tuple is a reference again; None where there is no
        such field.
        """
        if name not in self.to.fields:
            return None
        field = self.to.types[self.to.fields.index(name)]
        return Reference(field) if isinstance(field, types.BaseNamedTuple) else field


@register_model(Reference)
class _ReferenceModel(models.PrimitiveModel):
    """A pointer to the tuple as numba keeps it."""

    def __init__(self, manager, reference):
        super().__init__(
            manager, reference, manager.lookup(reference.to).get_value_type().as_pointer()
        )


@infer_getattr
class _Fields(AttributeTemplate):
    """The types of the fields."""

    key = Reference

    def generic_resolve(self, value, attr):  # type: ignore[override]
        return value.type_of(attr)


MADE_OUTSIDE = ("Cache",)
"""Tuples that no compiled function makes. Their fields do not change during a run, and are loaded
once, not after every write to an array: a fifth of the time of recorded sessions."""


@lower_getattr_generic(Reference)
def _load(context, builder, reference, address, name):
    """A field: loaded, or the address of a tuple in the tuple."""
    place = cgutils.gep_inbounds(builder, address, 0, reference.to.fields.index(name))
    if isinstance(reference.type_of(name), Reference):
        return place
    loaded = builder.load(place)
    if reference.to.instance_class.__name__ in MADE_OUTSIDE:
        loaded.set_metadata("invariant.load", builder.module.add_metadata([]))
    return loaded


@_written_out
def by_reference(typing_context, value):
    """Keep a tuple in the memory of the function that calls this, and return its address; not to be
    returned from there.
    """

    def keep(context, builder, signature, arguments):
        return cgutils.alloca_once_value(builder, arguments[0])

    return Reference(value)(value), keep


@_written_out
def whole(typing_context, reference):
    """The tuple itself, with all of its fields."""

    def load(context, builder, signature, arguments):
        return builder.load(arguments[0])

    return reference.to(reference), load


@_written_out
def write_at(typing_context, address, reference):
    """Write the tuple itself, with all of its fields, to an address."""

    def write(context, builder, signature, arguments):
        place = builder.inttoptr(arguments[0], context.get_value_type(reference))
        builder.store(builder.load(arguments[1]), place)
        return context.get_dummy_value()

    return types.void(types.int64, reference), write


@_written_out
def reference_at(typing_context, address, like):
    """The tuple at an address, by reference; ``like`` is a reference to one of its type."""

    def take(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], context.get_value_type(like))

    return like(types.int64, like), take


LOOPS: set[Reference] = set()
"""The machines for which there is a loop that can be called by its address."""


@_written_out
def advance_at(typing_context, address, m, until, cancelled):
    """Call the loop that is at an address with a machine by reference, an instant and the row of a
    request to let go of.
    """
    if m not in LOOPS:
        raise TypingError(f"there is no loop for a machine of the type {m}")
    signature = types.int64(types.int64, m, types.int64, types.int64)

    def call(context, builder, signature, arguments):
        convention, kinds = context.call_conv, signature.args[1:]
        kind = convention.get_function_type(signature.return_type, kinds)
        function = builder.inttoptr(arguments[0], kind.as_pointer())
        status, result = convention.call_function(
            builder, function, signature.return_type, kinds, arguments[1:]
        )
        with cgutils.if_unlikely(builder, status.is_error):
            convention.return_status_propagate(builder, status)
        return result

    return signature, call
