"""A plan is one JSON object: it reads back as it was, and refuses what is not its own."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.plan.candidates import candidate
from tests.plan.plans import PLANS, filled
from tests.strategies import examples
from tonnage.errors import InputError
from tonnage.plan.candidate import Candidate, Pool
from tonnage.plan.document import json_of
from tonnage.plan.fleet import AtPeak, Fleet, fleet
from tonnage.plan.plan import SCHEMA, Plan
from tonnage.plan.sensitivity import pareto
from tonnage.results.metrics import Latencies

ANY = settings(
    examples(0.15),
    phases=(Phase.reuse, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.large_base_example],
)
FEW = settings(ANY, max_examples=examples(0.05).max_examples)
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


# The rule from a capacity to a number of systems.


def carrying(load: float, rate: float, gpus: int = 1) -> Fleet:
    """The fewest systems of 8 GPUs."""
    return fleet(gpus, 8).carrying(load, rate)


def test_course_example_needs_five_systems_and_is_4_806_exactly() -> None:
    need = carrying(199.77, 5.195428)
    assert round(need.exactly(199.77, 5.195428), 3) == 4.806
    assert (need.systems, need.instances, need.gpus) == (5, 40, 40)
    assert math.isclose(need.utilisation(199.77, 5.195428), 199.77 / (5.195428 * 40))
    assert carrying(0.3 * 8, 0.1).systems == 3
    need = carrying(1.0, 0.9, 16)
    assert (need.systems, need.instances, need.systems_per_instance, need.instances_per_system) == (
        4,
        2,
        2,
        1,
    )
    assert need.of(3).instances == 1


@given(load=st.floats(1e-3, 1e6), rate=st.floats(1e-3, 1e4), tp=st.sampled_from([1, 2, 4, 8]))
def test_systems_cover_the_load_and_one_fewer_would_not(load: float, rate: float, tp: int) -> None:
    need = carrying(load, rate, tp)
    per_system = rate * 8 / tp
    assert need.systems * per_system >= load * (1 - 1e-6)
    assert need.systems == 1 or (need.systems - 1) * per_system < load
    assert need.instances == need.systems * 8 // tp


@given(instances=st.integers(1, 500), gpus=st.integers(1, 24))
def test_systems_hold_the_instances_and_one_fewer_would_not(instances: int, gpus: int) -> None:
    need = fleet(gpus, 8).holding(instances)
    assert need.instances >= instances
    assert need.of(need.systems - need.systems_per_instance).instances < instances


# Nobody on the front is beaten on both; everybody else is.


def one(systems: int, late: float) -> Candidate:
    return candidate(systems=systems, e2e_ms=Latencies(mean=late))


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), min_size=1, max_size=8))
def test_front_is_what_no_other_beats(points: list[tuple[int, int]]) -> None:
    candidates = [one(systems, float(late)) for systems, late in points]
    found = pareto(candidates)
    front = [p for p, point in zip(points, found, strict=True) if point.front_gpus]
    assert len(set(front)) == len(front)
    for point in points:
        beaten = any(
            other[0] <= point[0] and other[1] <= point[1] and other != point for other in points
        )
        assert (point in front) != beaten
    assert [p.chosen for p in found] == [True] + [False] * (len(points) - 1)


def test_cost_has_its_own_front_where_it_is_known() -> None:
    slow, fast = (one(n, late) for n, late in ((1, 9.0), (4, 2.0)))
    found = pareto([slow, fast], {1: 5.0, 0: 10.0})
    assert [p.front_gpus for p in found] == [True, True]
    assert [p.front_cost for p in found] == [False, True]
    assert not any(p.front_cost for p in pareto([slow, fast]))
    first, second = one(1, 9.0), one(2, 2.0)
    peaks = tuple(
        replace(
            each,
            at_peak=AtPeak(
                requests_per_second_per_instance=1.0,
                ttft_ms=Latencies(),
                itl_ms=Latencies(),
                tpot_ms=Latencies(),
                e2e_ms=Latencies(mean=late),
                utilisation=0.5,
                instances=1,
            ),
        )
        for each, late in ((first, 1.0), (second, 1.5))
    )
    assert [p.front_gpus for p in pareto([first, second])] == [True, True]
    found = pareto(peaks)
    assert [p.front_gpus for p in found] == [True, False]
    assert [p.e2e_ms for p in found] == [1.0, 1.5]
