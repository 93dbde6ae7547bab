"""Takes a scenario in any of the forms that Python has for it: a file, nested values, a ``Scenario``, or arguments by name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tonnage.spec.scenario import Scenario, to_document

ScenarioLike = Scenario | Mapping[str, Any] | str | Path | None
"""A file (YAML or JSON), nested values as a file holds them, a ``Scenario``, or None to say everything by name."""


def document_of(scenario: ScenarioLike) -> tuple[Mapping[str, Any], str]:
    """The nested values of a scenario, and the file that they came from; empty where there is none.

    Raises:
        InputError: the file cannot be read as a scenario.
    """
    from tonnage.spec.scenario_file import read_document

    if isinstance(scenario, str | Path):
        return read_document(str(scenario)), str(scenario)
    if isinstance(scenario, Scenario):
        return to_document(scenario), ""
    return scenario or {}, ""


def plain(asked: Mapping[str, object]) -> dict[str, Any]:
    """The arguments that were given, as a file would hold them: paths as text, and any iterable as a list."""
    return {name: _plain(value) for name, value in asked.items() if value is not None}


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    return value if isinstance(value, str | int | float | list | dict) else list(value)
