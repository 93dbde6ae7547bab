"""Plain values, as a YAML or JSON file holds them, read as the values of a class: the one gate for
files.

A class that may be read is made by ``strict``: a key that it does not have is then an error, so
that a misspelt key cannot leave its field at a default in silence. Values are read strictly: a text
is no number. All faults are reported at once, each with the file, the entry and the path of the
field.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    TypeVar,
    cast,
    dataclass_transform,
    get_args,
    get_type_hints,
)

from tonnage.errors import HIDDEN, DataErrors, InputError, Several

if TYPE_CHECKING:
    from pydantic import TypeAdapter


T = TypeVar("T")

# pydantic's rule for a class that is read from a file: an unknown key is an error
FORBID = {"extra": "forbid"}


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def strict(kind: type[T]) -> type[T]:
    """A frozen, slotted, keyword-only dataclass that refuses unknown keys, unless a base has
    another rule of pydantic's.
    """
    if not hasattr(kind, "__pydantic_config__"):
        setattr(kind, "__pydantic_config__", FORBID)  # noqa: B010 — a class does not declare it
    return dataclass(frozen=True, slots=True, kw_only=True)(kind)


@dataclass(frozen=True, slots=True)
class AsPairs:
    """Says of a field of pairs that a file writes them as keys with values."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """The mapping, and then its items."""
        from pydantic_core import core_schema

        mapping = handler.generate_schema(dict[str, get_args(get_args(source)[0])[1]])  # type: ignore[misc]
        return core_schema.no_info_after_validator_function(
            lambda parsed: tuple(parsed.items()), mapping
        )


Pairs = Annotated[tuple[tuple[str, T], ...], AsPairs()]


def about(
    text: str,
    *,
    default: Any = None,
    negative: bool = True,
    several: bool = False,
    aliases: tuple[str, ...] = (),
) -> Any:
    """A field that is also a flag of the command: ``negative`` switches have a "no" form,
    ``several`` take all values that follow.

    ``aliases`` are the names of the same flag in other tools; a single letter follows one hyphen.
    """
    return field(
        default=default,
        metadata={"about": text, "negative": negative, "several": several, "aliases": aliases},
    )


WANTED = {
    "missing": "is missing",
    "string_type": "is not a text",
    "bool_type": "is neither true nor false",
    **dict.fromkeys(("int_type", "int_from_float"), "is not a whole number"),
    "float_type": "is not a number",
    "finite_number": "is not a finite number",
    **dict.fromkeys(("tuple_type", "list_type"), "is not a list"),
    **dict.fromkeys(("dict_type", "dataclass_type"), "does not hold keys with values"),
}
"""What is wrong, in our words, by pydantic's name for it."""


@cache
def adapter(kind: Any) -> TypeAdapter[Any]:
    """Pydantic's reader of a class, made once."""
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def read_as(kind: type[T], values: object, where: str, error: type[Several] = DataErrors) -> T:
    """Plain values as a value of the class ``kind``; faults raise ``error``: ``DataErrors`` for
    shipped files, else ``InputErrors``.
    """
    value, faults = attempt(kind, values, where)
    if value is None or faults:
        raise error(faults)
    return value


def read_entries(
    kind: type[T], rows: object, where: str, error: type[Several] = DataErrors
) -> tuple[T, ...]:
    """The entries of a file that is a list, each as a value of the class ``kind`` and named by its
    ``name`` in messages.

    Raises DataErrors, InputErrors: everything that is wrong with any of them, one line each.
    """
    if not isinstance(rows, list):
        raise error([f"{where}: is not a list of entries"])
    read = [
        attempt(kind, row, f"{where}: {_name(row, place)}")
        for place, row in enumerate(rows, start=1)
    ]
    error.raise_if([fault for _, faults in read for fault in faults])
    return tuple(value for value, _ in read if value is not None)


def _name(row: object, place: int) -> str:
    name = row.get("name") if isinstance(row, Mapping) else None
    return name if isinstance(name, str) else f"entry {place}"


def attempt(kind: type[T], values: object, where: str) -> tuple[T | None, list[str]]:
    """A value of the class, or None and what is wrong, one line each."""
    from pydantic import ValidationError

    try:
        text = json.dumps(values, default=str)  # YAML makes dates of what looks like one
    except (TypeError, ValueError, RecursionError) as error:
        return None, [f"{where}: cannot be read: {error}"]
    try:
        value: T = adapter(cast("Hashable", kind)).validate_json(text, strict=True)
    except ValidationError as error:
        return None, list(_lines(error.errors(include_url=False), kind, where))
    return value, []


def _lines(faults: Iterable[Any], kind: Any, where: str) -> Iterable[str]:
    for fault in faults:
        loc = [str(part) for part in fault["loc"]]
        place = f"{where}: {'.'.join(loc)}" if loc else where
        if fault["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
            yield f"{place}: unknown key; {_nearest(kind, loc)}"
            continue
        problem = WANTED.get(fault["type"]) or str(fault["msg"]).lower()
        yield (
            f"{place}: {problem}"
            if fault["type"] == "missing"
            else f"{place}: {_shown(fault['input'])} {problem}"
        )


def _nearest(kind: Any, loc: list[str]) -> str:
    """The keys that come near the last of ``loc``, or all that its class has."""
    for name in loc[:-1]:
        kind = get_type_hints(kind).get(name, kind) if is_dataclass(kind) else kind
        kind = _class_in(kind) or kind
    keys = [part.name for part in fields(kind)] if is_dataclass(kind) else []
    near = difflib.get_close_matches(loc[-1], keys, n=2, cutoff=0.6)
    return f"did you mean {' or '.join(near)}?" if near else f"known here: {', '.join(keys)}"


def _class_in(kind: Any) -> Any:
    """The first dataclass that an annotation names, such as that of ``dict[str, Switch] | None``;
    None without one.
    """
    return (
        kind
        if is_dataclass(kind)
        else next((inner for part in get_args(kind) if (inner := _class_in(part))), None)
    )


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


# YAML as plain values: no objects, and a key that is given twice is refused rather than
# overwritten.


MOST_VALUES = 500_000
"""Values of a document with every alias in its place. A YAML text of 316 bytes can stand for
billions."""

DEEPEST = 100
"""Levels of a document. What reads, compares and writes documents goes a level deeper with each
call."""

MOST_DIGITS = 40
"""Digits of a whole number."""


def bounded(document: Any, where: str) -> Any:
    """A document of YAML or JSON as it is.

    Raises InputError: with every alias in its place it has more than ``MOST_VALUES`` values or
    ``DEEPEST`` levels, a number of more than ``MOST_DIGITS`` digits, or a text with a hidden
    character.
    """
    count, waiting = 0, [(document, 1)]
    while waiting:
        value, level = waiting.pop()
        count += 1
        if count > MOST_VALUES or level > DEEPEST:
            what = (
                f"{DEEPEST} levels"
                if level > DEEPEST
                else f"{MOST_VALUES:,} values, counted with its aliases (*name)"
            )
            raise InputError(f"{where}: has more than {what}; write fewer of them")
        if isinstance(value, str):
            if hidden := HIDDEN.search(value):
                raise InputError(
                    f"{where}: holds the hidden character U+{ord(hidden[0]):04X} in"
                    f" {_shown(value)}; remove it"
                )
        elif isinstance(value, dict):
            waiting += ((part, level + 1) for pair in value.items() for part in pair)
        elif isinstance(value, list | tuple):
            waiting += ((part, level + 1) for part in value)
        elif isinstance(value, int) and abs(value) >= 10**MOST_DIGITS:
            raise InputError(
                f"{where}: holds a number of more than {MOST_DIGITS} digits; write a smaller one"
            )
    return document


def parse_json(text: str | bytes, where: str, again: str = "give a JSON file") -> Any:
    """The plain values of a JSON text. Raises InputError: it is not JSON, or not ``bounded``; the
    message ends with what to give.
    """
    try:
        return bounded(json.loads(text), where)
    except RecursionError:
        raise InputError(f"{where}: has more than {DEEPEST} levels; {again}") from None
    except ValueError as error:
        why = (
            error
            if isinstance(error, json.JSONDecodeError | UnicodeDecodeError)
            else "it holds a number of thousands of digits"
        )
        raise InputError(f"{where}: is no JSON ({why}); {again}") from None


def parse_yaml(text: str, where: str, *, shipped: bool = False) -> Any:
    """The plain values of a YAML text; ``shipped`` files are read by the parser in C, which bounds
    no hostile file's nesting.

    Raises InputError: the text is not YAML, gives a key twice, nests too deeply or repeats itself
    by aliases beyond ``MOST_VALUES``; the message names the line.
    """
    import yaml

    try:
        document = yaml.load(text, Loader=_loader(shipped))
        return document if shipped else bounded(document, where)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        at = f":{mark.line + 1}" if mark else ""
        raise InputError(
            f"{where}{at}: is not YAML: {getattr(error, 'problem', None) or 'it cannot be read'}"
        ) from None
    except (RecursionError, ValueError) as error:
        raise InputError(
            f"{where}: is not YAML that can be read: {str(error) or 'nested too deeply'}"
        ) from None


@cache
def _loader(fast: bool) -> Any:
    """A safe loader that refuses a key given twice."""
    import yaml

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader) if fast else yaml.SafeLoader

    class Unique(base):  # type: ignore[misc]
        """YAML without objects and without silent repeats."""

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            keys = [self.construct_object(key, deep=True) for key, _ in node.value]
            twice = [key for place, key in enumerate(keys) if key in keys[:place]]
            if twice:
                raise yaml.constructor.ConstructorError(
                    None, None, f"'{twice[0]}' is given twice", node.start_mark
                )
            mapping: dict[Any, Any] = super().construct_mapping(node, deep)
            return mapping

    def number(loader: Any, node: Any) -> Any:
        """Read whole numbers; "1:2" is a text, as in YAML 1.2, and not 62, as in YAML 1.1."""
        return node.value if ":" in node.value else loader.construct_yaml_int(node)

    Unique.add_constructor("tag:yaml.org,2002:int", number)
    return Unique
