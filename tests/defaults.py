"""What holds where nothing is said: defaults of classes and functions, and of which kind classes are."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

SOURCE = Path(__file__).parents[1] / "src"


def of_class(kind: Any) -> dict[str, Any]:
    """The default of each field that has one."""
    made = {
        field.name: field.default if field.default_factory is MISSING else field.default_factory()
        for field in fields(kind)
    }
    return {name: value for name, value in made.items() if value is not MISSING}


def of_function(function: Callable[..., Any]) -> dict[str, Any]:
    """The default of each argument that has one."""
    parameters = inspect.signature(function).parameters.values()
    return {part.name: part.default for part in parameters if part.default is not part.empty}


def records(*modules: ModuleType) -> Iterator[Any]:
    """The dataclasses that modules define."""
    for module in modules:
        for kind in vars(module).values():
            if isinstance(kind, type) and is_dataclass(kind) and kind.__module__ == module.__name__:
                yield kind


def shape(kind: Any) -> set[str]:
    """Of which kind a dataclass is, in the words of its decorator."""
    parameters = kind.__dataclass_params__
    words = {name for name in ("frozen", "eq", "order") if getattr(parameters, name)}
    if "__slots__" in vars(kind):
        words.add("slots")
    return words | {"kw_only"} if all(field.kw_only for field in fields(kind)) else words


SHAPE = {"frozen", "eq", "slots", "kw_only"}
"""Of which kind a record is as a rule: nothing changes it, and its fields are written by name."""


def unlike(names: dict[str, Any], room: str) -> dict[str, set[str]]:
    """The records of a room that are of another kind, and in what; every module of the room with a
    record has to be among the names."""
    prefix = f"tonnage.{room}."
    modules = [
        part
        for part in names.values()
        if isinstance(part, ModuleType) and f"{part.__name__}.".startswith(prefix)
    ]
    assert {module.__name__ for module in modules} == {
        ".".join(file.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
        for file in (SOURCE / "tonnage" / room).rglob("*.py")
        if "@dataclass" in file.read_text(encoding="utf-8")
    }
    return {
        f"{kind.__module__}.{kind.__name__}".removeprefix(prefix): SHAPE ^ shape(kind)
        for kind in records(*modules)
        if shape(kind) != SHAPE
    }
