"""``tonnage.size`` and ``simulate`` have real arguments: one for each leaf of a scenario, which editors complete."""

from __future__ import annotations

import inspect
from dataclasses import fields
from typing import get_type_hints

import pytest

import tonnage
from tonnage import api
from tonnage.api.facts import LessonArguments
from tonnage.api.question.simulation import OWN
from tonnage.api.question.typed_arguments import SimulateArguments, SizeArguments
from tonnage.errors import InputErrors
from tonnage.simulator.lesson import LessonConfig
from tonnage.spec.scenario import leaves
from tools.typed_arguments import TARGET, module

LEAVES = {leaf.name for leaf in leaves()}


def test_the_arguments_are_those_that_the_scenario_has() -> None:
    """Run ``python -m tools.typed_arguments`` after a change of ``spec/scenario.py``."""
    assert TARGET.read_text(encoding="utf-8") == module()


def test_every_leaf_is_an_argument_of_size_and_nothing_else_but_single_prices() -> None:
    assert set(get_type_hints(SizeArguments)) == LEAVES | {"price"}


def test_every_argument_of_simulate_is_a_leaf_or_its_own() -> None:
    assert set(get_type_hints(SimulateArguments)) - LEAVES == set(OWN) - {"requests", "autoscale"}


def test_every_argument_of_the_lesson_is_a_field_of_its_configuration() -> None:
    assert set(get_type_hints(LessonArguments)) == {part.name for part in fields(LessonConfig)}


@pytest.mark.parametrize(("function", "arguments"), [(tonnage.size, SizeArguments), (tonnage.simulate, SimulateArguments)])
def test_help_and_notebooks_see_every_argument(function: object, arguments: type) -> None:
    found = inspect.signature(function).parameters
    assert list(found) == ["scenario", "progress", *arguments.__annotations__]
    assert {part.kind for name, part in found.items() if name != "scenario"} == {inspect.Parameter.KEYWORD_ONLY}
    assert "float" in str(found["isl"].annotation) or found["isl"].annotation == "Length"


@pytest.mark.parametrize("name", ["Plan", "size", "simulate", "score", "calibrate"])
def test_the_package_has_the_names_that_it_says(name: str) -> None:
    assert name in dir(tonnage)
    assert callable(getattr(tonnage, name))


def test_an_argument_that_there_is_not_is_an_error() -> None:
    with pytest.raises(TypeError, match="peek_rps"):
        api.ask(model="llama-3-8b", peek_rps=3)
    with pytest.raises(InputErrors, match=r"^stream_interval: 'x' is not a whole number"):
        api.ask(model="llama-3-8b", isl=1, osl=1, peak_rps=3, stream_interval="x")
