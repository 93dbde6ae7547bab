"""``tonnage.size`` and ``simulate`` have real arguments: one for each leaf of a scenario, which
editors complete."""

from __future__ import annotations

import inspect
from dataclasses import fields
from typing import get_type_hints

import pytest

import tonnage
from tonnage import api
from tonnage.api.facts import LessonArguments
from tonnage.api.question.typed_arguments import SimulateArguments, SizeArguments
from tonnage.errors import InputErrors
from tonnage.simulator.lesson import LessonConfig
from tools.typed_arguments import TARGET, module


def test_help_and_notebooks_see_every_argument() -> None:
    for function, arguments in [
        (tonnage.size, SizeArguments),
        (tonnage.simulate, SimulateArguments),
    ]:
        found = inspect.signature(function).parameters
        assert list(found) == ["scenario", "progress", *arguments.__annotations__]
        assert {part.kind for name, part in found.items() if name != "scenario"} == {
            inspect.Parameter.KEYWORD_ONLY
        }
        assert "float" in str(found["isl"].annotation) or found["isl"].annotation == "Length"
    assert TARGET.read_text(encoding="utf-8") == module()
    assert set(get_type_hints(LessonArguments)) == {part.name for part in fields(LessonConfig)}
    with pytest.raises(TypeError, match="peek_rps"):
        api.ask(model="llama-3-8b", peek_rps=3)
    with pytest.raises(InputErrors, match=r"^stream_interval: 'x' is not a whole number"):
        api.ask(model="llama-3-8b", isl=1, osl=1, peak_rps=3, stream_interval="x")


# The Python interface says what the command says.


def test_a_schedule_that_overlaps_and_graphs_of_long_steps_reach_the_engine() -> None:
    def ttft_ms(**knobs: bool | int) -> float:
        place = {"model": "llama-3.1-8b", "engine": "vllm", "precision": "fp8", "tp": 4}
        run = tonnage.simulate(**place, isl=600, osl=100, request_rate=5.0, requests=300, **knobs)
        found: float = run.to_json()["ttft_ms"]["mean"]
        return found

    ahead, after, graphed = ttft_ms(), ttft_ms(overlap_schedule=False), ttft_ms(graph_tokens=2048)
    assert after < ahead
    assert graphed < ahead
    assert ttft_ms(overlap_schedule=True, graph_tokens=512) == ahead
