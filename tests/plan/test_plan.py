"""A plan is one JSON object: it reads back as it was, and refuses what is not its own."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.plan.plans import PLANS, filled
from tests.strategies import examples
from tonnage.errors import InputError
from tonnage.plan.candidate import Candidate
from tonnage.plan.document import Shown, json_of
from tonnage.plan.plan import SCHEMA, Plan
from tonnage.plan.pool import Pool

ANY = settings(
    examples(0.3), phases=(Phase.reuse, Phase.generate), suppress_health_check=[HealthCheck.too_slow, HealthCheck.large_base_example]
)
FEW = settings(ANY, max_examples=examples(0.1).max_examples)
"""For what no value of the plan can change; to draw one takes a tenth of a second."""


@ANY
@given(plan=PLANS)
def test_a_plan_reads_back_as_it_was(plan: Plan) -> None:
    document = plan.to_json()
    assert Plan.from_json(document) == plan
    text = json.dumps(document, allow_nan=False)
    again = Plan.from_json(json.loads(text))
    assert again == plan
    assert json.dumps(again.to_json()) == text


def one_pool() -> st.SearchStrategy[Candidate]:
    return filled(Candidate, pools=st.tuples(filled(Pool)))


@FEW
@given(plan=PLANS, choice=one_pool())
def test_the_choice_shows_the_names_of_its_only_pool(plan: Plan, choice: Candidate) -> None:
    document = replace(plan, candidates=(choice,)).to_json()
    shown, pool = document["choice"], document["choice"]["pools"][0]
    assert next(iter(document)) == "schema"
    assert document["schema"] == SCHEMA
    assert shown == document["candidates"][0]
    names = ("gpu", "system", "gpus_per_system", "precision", "tp", "pp", "dp", "ep", "engine", "knobs", "instances", "systems", "launch")
    assert {name: shown[name] for name in names} == {name: pool[name] for name in names}


@FEW
@given(plan=PLANS, first=filled(Pool), second=filled(Pool), choice=one_pool())
def test_two_pools_show_what_adds_up_and_what_they_agree_on(plan: Plan, first: Pool, second: Pool, choice: Candidate) -> None:
    second = replace(second, gpu=f"{first.gpu} 2", system=f"{first.system} 2")
    both = replace(choice, pools=(first, second))
    plan = replace(plan, candidates=(both,))
    shown = plan.to_json()["choice"]
    assert shown["instances"] == first.instances + second.instances
    assert shown["systems"] == first.systems + second.systems
    assert "gpu" not in shown
    assert Plan.from_json(plan.to_json()) == plan
    with pytest.raises(ValueError, match="2 pools"):
        _ = both.gpu
    alike = replace(choice, pools=(first, replace(first, role="decode", instances=first.instances + 1)))
    assert alike.systems == first.systems
    assert json_of(alike)["gpu"] == alike.gpu == first.gpu
    assert json_of(alike)["instances"] == 2 * first.instances + 1


@FEW
@given(plan=PLANS, choice=one_pool())
def test_a_shown_name_that_contradicts_the_pool_is_refused(plan: Plan, choice: Candidate) -> None:
    document = replace(plan, candidates=(choice,)).to_json()
    document["candidates"][0]["systems"] += 1
    with pytest.raises(InputError, match=r"candidates\.0\.systems: .* contradicts"):
        Plan.from_json(document)
    document["candidates"][0]["systems"] -= 1
    document["choice"]["pools"][0]["tp"] += 1
    with pytest.raises(InputError, match=r"choice\.pools\.0\.tp: .* contradicts"):
        Plan.from_json(document)


def keys(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every object in a document."""
    found = [path] if isinstance(value, dict) else []
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return found + [below for name, each in inner for below in keys(each, (*path, name))]


OPEN = ("prices", "coefficients", "step_factors", "launch_file")
"""What holds names of the asker's or of an engine's own."""


@ANY
@given(plan=PLANS, data=st.data())
def test_an_unknown_key_is_refused_wherever_it_stands(plan: Plan, data: st.DataObject) -> None:
    document = plan.to_json()
    places = [path for path in keys(document) if not set(path) & set(OPEN) and path[-1:] not in (("systems",), ("after",), ("usd",))]
    place: Any = document
    for name in data.draw(st.sampled_from(places)):
        place = place[name]
    place["mesh_gpus"] = 8
    with pytest.raises(InputError):
        Plan.from_json(document)


@pytest.mark.parametrize("schema", ["tonnage-plan/1", "tonnage-plan/2"])
def test_another_schema_is_refused_by_its_name(schema: str) -> None:
    with pytest.raises(InputError, match=f"schema: {schema} was written by another version"):
        Plan.from_json({"schema": schema})


@pytest.mark.parametrize("document", [{}, {"schema": 2}, {"schema": "openapi"}])
def test_what_is_no_plan_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="schema: no plan"):
        Plan.from_json(document)


def test_every_class_of_a_plan_is_frozen_slotted_and_refuses_unknown_keys() -> None:
    seen: set[type] = set()
    waiting: list[Any] = [Plan]
    while waiting:
        kind = waiting.pop()
        for each in getattr(kind, "__args__", ()):
            waiting.append(each)
        if not (isinstance(kind, type) and is_dataclass(kind)) or kind in seen or not kind.__module__.startswith("tonnage.plan"):
            continue
        seen.add(kind)
        from typing import get_type_hints

        waiting += get_type_hints(kind).values()
        assert kind.__dataclass_params__.frozen, kind
        assert hasattr(kind, "__slots__"), kind
        derives = issubclass(kind, Shown)
        assert kind.__pydantic_config__ == {"extra": "ignore" if derives else "forbid"}, kind
        assert all(part.kw_only for part in fields(kind)), kind
    assert len(seen) > 60
