"""Values as JSON, and back: one rule for every class of a plan.

A class that derives from ``Shown`` names properties in ``DERIVED`` that its JSON shows next to its
fields, for readers who want the answer without following it, such as ``choice.gpu`` for
``choice.pools[0].gpu``. They are never a second source: reading compares the whole document with
the values that were read from it.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Annotated, Any, ClassVar, TypeVar, cast

from tonnage.errors import InputError, InputErrors
from tonnage.spec.scenario import Scenario, to_document
from tonnage.spec.typed_values import adapter

T = TypeVar("T")


def json_of(value: Any) -> Any:
    """A value of a plan as JSON values: objects, lists, numbers, texts and None."""
    if isinstance(value, Scenario):
        return to_document(value)
    if is_dataclass(value):
        left_out = value.WHERE_ASKED if isinstance(value, Shown) else ()
        names = [
            part.name
            for part in fields(value)
            if part.name not in left_out or getattr(value, part.name) is not None
        ]
        document = {name: json_of(getattr(value, name)) for name in names}
        derived: tuple[str, ...] = value.derived() if isinstance(value, Shown) else ()
        return document | {name: json_of(getattr(value, name)) for name in derived}
    if isinstance(value, Mapping):
        return {str(key): json_of(part) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return [json_of(part) for part in value]
    return value.item() if hasattr(value, "item") else value


class Shown:
    """A value whose JSON also shows some of its properties."""

    __slots__ = ()
    # ``first_difference`` refuses what is neither a field nor a property
    __pydantic_config__: ClassVar = {"extra": "ignore"}

    DERIVED: ClassVar[tuple[str, ...]] = ()
    # fields that the JSON has only where they hold something
    WHERE_ASKED: ClassVar[tuple[str, ...]] = ()

    def derived(self) -> tuple[str, ...]:
        """The properties that the JSON of this value shows."""
        return self.DERIVED


class Saved(Shown):
    """A value that fills a file, which begins with its schema."""

    __slots__ = ()
    SCHEMA: ClassVar[str]
    DERIVED: ClassVar[tuple[str, ...]] = ("schema",)

    @property
    def schema(self) -> str:
        """Name and version of the JSON form."""
        return self.SCHEMA

    def to_json(self) -> dict[str, Any]:
        """Convert the whole to one JSON object."""
        document: dict[str, Any] = json_of(self)
        return {"schema": document.pop("schema"), **document}


AGAIN = "give the plan as tonnage size --json wrote it"


def read_back(kind: type[T], document: Mapping[str, Any], name: str) -> T:
    """The value that ``json_of`` wrote. Raises InputErrors: everything that cannot be used, each
    with its path.
    """
    from pydantic import ValidationError

    try:
        value: T = adapter(cast("Hashable", kind)).validate_python(document)
    except ValidationError as error:
        places = {
            ".".join(map(str, fault["loc"])) or name: fault["msg"]
            for fault in error.errors(include_url=False)
        }
        raise InputErrors(
            f"{place}: {message}; {AGAIN}" for place, message in places.items()
        ) from None
    difference = first_difference(document, json_of(value))
    if difference is not None:
        raise InputError(f"{difference[0]}: {difference[1]}; {AGAIN}")
    return value


def first_difference(
    document: Any, shown: Any, path: tuple[str, ...] = ()
) -> tuple[str, str] | None:
    """Where a document says something other than the values that were read from it, and what is
    wrong there.

    What the document leaves out is no difference: it was filled in.
    """
    if path and path[-1] == "asked":
        return None
    if isinstance(document, Mapping) and isinstance(shown, Mapping):
        for key, value in document.items():
            if key not in shown:
                return ".".join((*path, str(key))), "is an unknown key"
            difference = first_difference(value, shown[key], (*path, str(key)))
            if difference is not None:
                return difference
        return None
    if (
        isinstance(document, list | tuple)
        and isinstance(shown, list)
        and len(document) == len(shown)
    ):
        pairs = enumerate(zip(document, shown, strict=True))
        return next(
            (
                difference
                for i, (item, shown_item) in pairs
                if (difference := first_difference(item, shown_item, (*path, str(i)))) is not None
            ),
            None,
        )
    same = document == shown and isinstance(document, bool) == isinstance(shown, bool)
    return (
        None
        if same
        else (
            ".".join(path),
            f"{document!r} contradicts the rest of the plan, which makes it {shown!r}",
        )
    )


@dataclass(frozen=True, slots=True)
class Tagged:
    """Says of a union of classes by which field pydantic tells them apart; pydantic loads only when
    a plan is read.
    """

    field: str

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """The union as a tagged one."""
        from pydantic import Field

        return handler.generate_schema(Annotated[source, Field(discriminator=self.field)])
