"""A service of models that are not LLMs, for ``tonnage simulate`` and ``tonnage size``: its file says everything."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tonnage.cli.printing import print_answer
from tonnage.errors import DONE, NO_ANSWER, InputError, option

TAKEN = ("requests", "seed", "json")
"""Flags that a service takes beside its file."""


def is_service(scenario: Path | None) -> bool:
    """Whether the file holds a service and no question about an LLM."""
    if scenario is None:
        return False
    from tonnage.spec.service import is_service as found

    return found(scenario)


def simulate_service(path: Path, asked: Mapping[str, Any], *, json: bool) -> None:
    """Print what a service does under its traffic."""
    from tonnage import api
    from tonnage.report.simulated import served

    _refuse(asked)
    result = api.simulate_service(path, requests=asked.get("requests"), seed=asked.get("seed"))
    print_answer(lambda: served(result), result.to_json, json=json)


def size_service(path: Path, asked: Mapping[str, Any], *, json: bool) -> int:
    """Print how many servers a service needs; the exit code."""
    from tonnage import api
    from tonnage.report.simulated import sized

    _refuse(asked)
    requests = asked.get("requests")
    answer = api.size_servers(path, requests=None if requests is None else int(requests), seed=asked.get("seed"))
    print_answer(lambda: sized(answer), answer.to_json, json=json)
    return DONE if answer.servers else NO_ANSWER


def _refuse(asked: Mapping[str, Any]) -> None:
    for name, value in asked.items():
        if name not in TAKEN and value not in (None, False):
            raise InputError(f"{option(name)}: a service of models that are not LLMs has no such setting; its file says everything")
