"""What holds where nothing is said: defaults of classes and functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Any


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
