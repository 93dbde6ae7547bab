"""Named tuples by reference: what compiled functions pass to one another of a machine is one address instead of all of its arrays.

Numba passes a tuple by value: a function that takes a ``Machine`` of 40 arrays has 300 arguments, which are packed and unpacked at every
call, and half of what the compiler did was that.
"""

from __future__ import annotations

import zlib
from typing import Any

from numba.core import cgutils, types
from numba.core.datamodel import models
from numba.core.errors import TypingError
from numba.core.typing.templates import AttributeTemplate
from numba.extending import infer_getattr, intrinsic, lower_getattr_generic, register_model

_written_out: Any = intrinsic  # a decorator that its types say nothing about


class Reference(types.Type):
    """The address of a named tuple.

    Attributes:
        to: the type of the tuple.
    """

    def __init__(self, to: Any) -> None:
        self.to = to
        super().__init__(f"Reference({to.instance_class.__name__}, {zlib.crc32(str(to).encode()):x})")

    @property
    def key(self) -> Any:
        """What tells it from others."""
        return self.to

    def type_of(self, name: str) -> Any:
        """The type of a field: a tuple in the tuple is a reference again; None where there is no such field."""
        if name not in self.to.fields:
            return None
        field = self.to.types[self.to.fields.index(name)]
        return Reference(field) if isinstance(field, types.BaseNamedTuple) else field


@register_model(Reference)
class _ReferenceModel(models.PrimitiveModel):
    """A pointer to the tuple as numba keeps it."""

    def __init__(self, manager, reference):
        super().__init__(manager, reference, manager.lookup(reference.to).get_value_type().as_pointer())


@infer_getattr
class _Fields(AttributeTemplate):
    """The types of the fields."""

    key = Reference

    def generic_resolve(self, value, attr):  # type: ignore[override]
        return value.type_of(attr)


@lower_getattr_generic(Reference)
def _load(context, builder, reference, address, name):
    """A field: loaded, or the address of a tuple in the tuple."""
    place = cgutils.gep_inbounds(builder, address, 0, reference.to.fields.index(name))
    return place if isinstance(reference.type_of(name), Reference) else builder.load(place)


@_written_out
def by_reference(typing_context, value):
    """Keep a tuple in the memory of the function that calls this, and return its address; not to be returned from there."""

    def keep(context, builder, signature, arguments):
        return cgutils.alloca_once_value(builder, arguments[0])

    return Reference(value)(value), keep


@_written_out
def whole(typing_context, reference):
    """The tuple itself, with all of its fields."""

    def load(context, builder, signature, arguments):
        return builder.load(arguments[0])

    return reference.to(reference), load


LOOPS: set[Reference] = set()
"""The machines for which there is a loop that can be called by its address."""


@_written_out
def advance_at(typing_context, address, m, until, cancelled):
    """Call the loop that lies at an address with a machine by reference, an instant and the row of a request to let go of."""
    if m not in LOOPS:
        raise TypingError(f"there is no loop for a machine of the type {m}")
    signature = types.int64(types.int64, m, types.int64, types.int64)

    def call(context, builder, signature, arguments):
        convention, kinds = context.call_conv, signature.args[1:]
        kind = convention.get_function_type(signature.return_type, kinds)
        function = builder.inttoptr(arguments[0], kind.as_pointer())
        status, result = convention.call_function(builder, function, signature.return_type, kinds, arguments[1:])
        with cgutils.if_unlikely(builder, status.is_error):
            convention.return_status_propagate(builder, status)
        return result

    return signature, call
