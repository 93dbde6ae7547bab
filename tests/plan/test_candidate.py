"""What a candidate shows of its pools."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.plan.plan_cases import ANY
from tests.plan.plans import PLANS, filled
from tests.strategies import examples
from tonnage.errors import InputError
from tonnage.plan.candidate import Candidate, Pool
from tonnage.plan.document import json_of
from tonnage.plan.plan import SCHEMA, Plan

FEW = settings(ANY, max_examples=examples(0.05).max_examples)
"""For what no value of the plan can change; to draw one takes a tenth of a second."""


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
    names = (
        "gpu",
        "system",
        "gpus_per_system",
        "precision",
        "tp",
        "pp",
        "dp",
        "ep",
        "engine",
        "knobs",
        "instances",
        "systems",
        "launch",
    )
    assert {name: shown[name] for name in names} == {name: pool[name] for name in names}


@FEW
@given(plan=PLANS, first=filled(Pool), second=filled(Pool), choice=one_pool())
def test_two_pools_show_what_adds_up_and_what_they_agree_on(
    plan: Plan, first: Pool, second: Pool, choice: Candidate
) -> None:
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
    alike = replace(
        choice, pools=(first, replace(first, role="decode", instances=first.instances + 1))
    )
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
