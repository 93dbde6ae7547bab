"""A plan is one JSON object: it reads back as it was, and refuses what is not its own."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.plan.plan_cases import ANY
from tests.plan.plans import PLANS
from tonnage.errors import InputError
from tonnage.plan.plan import Plan


@ANY
@given(plan=PLANS)
def test_a_plan_reads_back_as_it_was(plan: Plan) -> None:
    document = plan.to_json()
    assert Plan.from_json(document) == plan
    text = json.dumps(document, allow_nan=False)
    again = Plan.from_json(json.loads(text))
    assert again == plan
    assert json.dumps(again.to_json()) == text


def keys(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every object in a document."""
    found = [path] if isinstance(value, dict) else []
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return found + [below for name, each in inner for below in keys(each, (*path, name))]


OPEN = ("prices", "coefficients", "step_factors", "launch_file")
"""What holds names of the asker's or of an engine's own."""


@ANY
@given(plan=PLANS, data=st.data())
def test_an_unknown_key_is_refused_wherever_it_stands(plan: Plan, data: st.DataObject) -> None:
    document = plan.to_json()
    places = [
        path
        for path in keys(document)
        if not set(path) & set(OPEN) and path[-1:] not in (("systems",), ("after",), ("usd",))
    ]
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
