"""The choice among finished candidates: what is asked least of is least, limits on money, power and
racks hold."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tonnage
from tests.api.question.choice_cases import PRICES, simulated
from tests.plan.candidates import candidate, plan_of
from tests.questions import plans_with, question
from tests.strategies import examples
from tonnage.api.question.choice import chosen
from tonnage.api.question.objectives import budget_of, reserve_of
from tonnage.cost.cost import traffic_of
from tonnage.cost.plan_cost import outlay, rented_job
from tonnage.errors import InputError
from tonnage.plan.candidate import Candidate, by_gpus_needed, mean_latency
from tonnage.plan.cost import WAYS
from tonnage.plan.plan import Plan
from tonnage.plan.reason import OverBudget, OverPower, OverRacks
from tonnage.report.plans.answer import smaller_text
from tonnage.report.plans.question import aim_text
from tonnage.results.metrics import Latencies
from tonnage.sizing.demand import demand_of
from tonnage.sizing.planner import size
from tonnage.spec.scenario import ChoiceAsked, Scenario, StandbyAsked

few_parts = plans_with()


SYSTEMS = {
    "h100-sxm-80gb": "dgx-h100",
    "l40s": "8xl40s",
    "a100-sxm-80gb": "dgx-a100",
    "h200-sxm-141gb": "dgx-h200",
}


OBJECTIVES = ("gpus", "cost", "power", "latency")


DEMAND = demand_of(peak_rps=100.0)


FIRST = question(gpu=",".join(SYSTEMS))


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """A finished plan of some candidates, the fewest GPUs first, as a search leaves it."""
    found = []
    for place in range(draw(st.integers(1, 6))):
        gpu, systems = draw(st.sampled_from(sorted(SYSTEMS))), draw(st.integers(1, 20))
        latency = Latencies(mean=draw(st.floats(1, 1e4)))
        found.append(
            candidate(
                gpu=gpu,
                system=SYSTEMS[gpu],
                engine=f"vllm-0.{place}",
                engine_preset=f"vllm-0.{place}",
                systems=systems,
                systems_exact=systems - 0.5,
                requests_per_second_per_instance=100 / (systems - 0.5) / 8,
                e2e_ms=latency,
            )
        )
    found.sort(key=lambda each: (each.gpus, each.systems_exact))
    return plan_of(DEMAND, *found, limits=())


def searching(more: int) -> Any:
    """A search, of one deployment or all of a GPU type, whose check of a whole fleet asks for so
    many systems more than the best had."""

    def search(asked: Any, rows: bool = True) -> Plan:
        (gpu,), whole = asked.gpus, len(asked.engines) > 1 or asked.engines[0] == FIRST.engines[0]
        alike = [
            each
            for each in ALL
            if each.gpu == gpu.name and (whole or each.engine_preset == asked.engines[0])
        ]
        kept = min(alike, key=lambda each: (each.gpus, each.systems_exact))
        grown = kept.on(systems=kept.systems + more, instances=kept.instances + 8 * more)
        return plan_of(DEMAND, replace(grown, checked=True))

    return search


ALL: list[Candidate] = []


def spent(plan: Plan, each: Candidate) -> Any:
    return outlay(each, traffic_of(plan), PRICES, model="llama-3-8b")


@given(plans(), st.sampled_from(OBJECTIVES), st.integers(0, 2))
@examples(0.6)
def test_the_objective_is_never_worse_than_that_of_the_default_choice(
    plan: Plan, objective: Any, more: int
) -> None:
    ALL[:] = plan.candidates
    found = chosen(
        FIRST,
        plan,
        Scenario(choice=ChoiceAsked(objective=objective)),
        prices=PRICES,
        where=WAYS,
        search=searching(more),
    )
    assert found.choice is not None
    assert plan.choice is not None
    assert len(found.candidates) == len(plan.candidates)
    best, default = spent(found, found.choice), spent(plan, plan.choice)
    if objective == "cost":
        assert best.cheapest_usd_per_year <= default.cheapest_usd_per_year
    elif objective == "power":
        assert (
            best.system_watts * found.choice.systems <= default.system_watts * plan.choice.systems
        )
    elif objective == "gpus":
        assert found.choice.gpus <= plan.choice.gpus
    else:
        assert mean_latency(found.choice) <= mean_latency(plan.choice)
    assert found.choice == plan.choice or found.choice.checked


def types_usd(plan: Plan, gpus: int) -> dict[str, float]:
    """The yearly cost of each GPU type's first deployment in the search's order on so many GPUs."""
    usd: dict[str, float] = {}
    for each in sorted(plan.candidates, key=by_gpus_needed):
        if each.gpus == gpus:
            usd.setdefault(each.gpu, spent(plan, each).own_usd_per_year)
    return usd


@given(plans())
@examples(0.6)
def test_of_equally_few_gpus_the_cheapest_type_is_the_answer(plan: Plan) -> None:
    ALL[:] = plan.candidates
    found = chosen(FIRST, plan, Scenario(), prices=PRICES, where=WAYS, search=searching(0))
    assert found.choice is not None
    usd = types_usd(found, found.choice.gpus)
    assert found.choice.gpus == min(each.gpus for each in plan.candidates)
    assert usd[found.choice.gpu] == min(usd.values())
    assert found.choice.identity == next(
        each.identity for each in plan.candidates if each.gpu == found.choice.gpu
    )


@pytest.mark.parametrize(
    ("model", "asked"),
    [
        ("llama-3-8b", {"isl": 2000, "osl": 200, "peak_rps": 2, "ttft": "p95<=500ms"}),
        ("llama-3.1-8b", {"isl": 500, "osl": 100, "peak_rps": 20, "tpot": "p95<=40ms"}),
        pytest.param(
            *("mistral-7b", {"isl": 300, "osl": 300, "peak_rps": 8, "ttft": "p95<=1s"}),
            marks=pytest.mark.accuracy,
        ),
        ("qwen2.5-7b", {"isl": 1000, "osl": 50, "peak_rps": 3}),
    ],
)
def test_a_small_load_is_answered_by_the_cheapest_system_that_carries_it(
    model: str, asked: dict[str, Any]
) -> None:
    """One system of any type is enough, so that the count of GPUs does not decide."""
    plan = tonnage.size(
        model=model, gpu="b300,h100,l40s", precision="fp8", tp=1, engine="vllm", **asked
    )
    assert plan.choice is not None
    assert (plan.choice.systems, plan.choice.gpus) == (1, 8)
    usd = types_usd(plan, 8)
    assert set(usd) == {"b300-sxm-270gb", "h100-sxm-80gb", "l40s"}
    assert plan.choice.gpu == min(usd, key=lambda gpu: usd[gpu])
    assert plan.choice.checked
    assert plan.runner_up is not None
    assert plan.runner_up.more_usd_per_year > 0
    assert "USD a year: rented GPUs" in smaller_text(plan, plan.choice)


def tying(seed: int) -> dict[str, Any]:
    """A drawn question whose load one system of any type carries; degrees and formats are free."""
    draw = random.Random(seed)
    model, rate = draw.choice(
        [("llama-3.3-70b", 1), ("qwen3-32b", 2), ("gpt-oss-120b", 2), ("llama-3.1-8b", 8)]
    )
    lengths = draw.choice([{"isl": 500, "osl": 300}, {"isl": 4000, "osl": 100}, {}])
    times = draw.choice([0.5, 1, 2])
    load = draw.choice([{"peak_rps": rate * times}, {"mean_rps": rate, "peak_factor": times + 1}])
    use_case = {} if lengths else {"use_case": "rag"}
    return {"model": model, "gpu": "h100,h200,b200,b300", "ttft": "p95<=2s"} | {
        **lengths,
        **load,
        **use_case,
    }


RENTED_FOR_LESS = {  # with TP 1 on rented B300, while the search prefers TP 4 there
    "model": "llama-3.3-70b",
    "gpu": "h100,b300",
    "use_case": "rag",
    "users": 4000,
    "requests_per_user_day": 15,
}


@pytest.mark.parametrize(
    "asked",
    [
        RENTED_FOR_LESS,
        *(pytest.param(tying(seed), marks=pytest.mark.accuracy) for seed in range(9)),
    ],
)
def test_no_runner_up_on_as_many_gpus_costs_less(asked: dict[str, Any]) -> None:
    plan = tonnage.size(**asked)
    assert plan.choice is not None
    assert plan.choice.gpus == 8
    assert plan.runner_up is not None
    assert plan.runner_up.gpus == 8
    assert plan.runner_up.more_usd_per_year >= 0
    usd = types_usd(plan, 8)
    assert plan.choice.gpu == min(usd, key=lambda gpu: usd[gpu])


@given(
    plans(),
    st.sampled_from(OBJECTIVES),
    st.sampled_from(["300k USD", "2m USD", "300k USD/year"]),
    st.sampled_from([None, 15.0, 60.0]),
)
@examples(0.6)
def test_caps_hold_for_every_candidate_that_is_left(
    plan: Plan, objective: Any, budget: str, kw: float | None
) -> None:
    ALL[:] = plan.candidates
    asked = ChoiceAsked(objective=objective, budget=budget, max_kw=kw, max_racks=3)
    found = chosen(
        FIRST, plan, Scenario(choice=asked), prices=PRICES, where=WAYS, search=searching(1)
    )
    usd, of = budget_of(budget)
    for each in found.candidates:
        money = spent(found, each)
        assert (money.purchase_usd if of == "purchase" else money.cheapest_usd_per_year) <= usd
        assert kw is None or money.system_watts * each.systems / 1e3 <= kw
        assert each.systems <= 3 * max(1, 42_000 // money.system_watts)
    assert len(found.candidates) + len(found.rejected) == len(plan.candidates)
    assert all(
        isinstance(each.reason, OverBudget | OverPower | OverRacks) for each in found.rejected
    )


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_of_real_candidates_the_choice_is_the_best_and_was_checked_as_a_fleet(
    objective: Any,
) -> None:
    asked, plan = simulated()
    found = chosen(
        asked,
        plan,
        Scenario(choice=ChoiceAsked(objective=objective)),
        prices=PRICES,
        where=WAYS,
        search=size,
    )
    assert plan.choice is not None
    values = {
        "gpus": lambda each: each.gpus,
        "cost": lambda each: spent(plan, each).cheapest_usd_per_year,
        "power": lambda each: spent(plan, each).system_watts * each.systems,
        "latency": mean_latency,
    }
    measure: Any = values[objective]
    assert measure(found.choice) == min(map(measure, found.candidates))
    assert measure(found.choice) <= measure(plan.choice)
    assert found.choice.checked
    assert found.fleet_check.systems == found.choice.systems
    assert {each.identity for each in found.candidates} == {
        each.identity for each in plan.candidates
    }
    assert Plan.from_json(found.to_json()) == found


def test_the_cheapest_choice_for_a_job_is_that_whose_rented_job_costs_least() -> None:
    """L40S cost less to own for a year; H200 are done so much sooner that a job on rented ones
    costs less."""
    asked = question(
        gpu="h200,l40s", tp="1", peak_rps=None, ttft=None, mode="offline", requests=2e5, within="2h"
    )
    plan = size(asked)
    found = chosen(
        asked,
        plan,
        Scenario(choice=ChoiceAsked(objective="cost")),
        prices=PRICES,
        where=WAYS,
        search=size,
    )
    owned = chosen(
        asked,
        plan,
        Scenario(choice=ChoiceAsked(objective="cost")),
        prices=PRICES,
        where=("on-prem",),
        search=size,
    )
    assert found.choice is not None
    assert (found.choice.gpu, owned.choice.gpu) == ("h200-sxm-141gb", "l40s")  # type: ignore[union-attr]
    assert rented_job(found, found.choice, PRICES, 0) == min(
        rented_job(found, each, PRICES, 0) or 0.0 for each in found.candidates
    )
    assert aim_text(found) == "lowest cost"


def test_a_power_cap_makes_room_for_a_system_within_the_same_kw() -> None:
    """A DGX H100 may draw 10.2 kW, and 8.6 kW where each of its GPUs is held to 500 W."""
    asked = {"gpu": "h100", "tp": "1", "peak_rps": 40, "engine": "tensorrt-llm-0.15"}
    fitting = []
    for cap in (None, "500W"):
        first = question(**asked, power_cap=cap)
        found = chosen(
            first,
            size(first),
            Scenario(choice=ChoiceAsked(max_kw=9)),
            prices=PRICES,
            where=("on-prem",),
            search=size,
        )
        fitting.append(found.choice)
    assert fitting[0] is None
    assert fitting[1].gpu_limit is not None
    assert fitting[1].power.high <= 500


def test_budgets_and_reserves() -> None:
    for text, usd in [
        ("$1.5m", (1_500_000, "purchase")),
        ("200k USD/year", (200_000, "year")),
        ("5k USD/month", (60_000, "year")),
        ("$400,000", (400_000, "purchase")),
    ]:
        assert budget_of(text) == usd
    for text in ["500k EUR", "much", "", "0", "-3k USD", "5k USD/week", "5k p.m. or so"]:
        with pytest.raises(
            InputError,
            match=r"budget: .* is not a budget in US dollars; write for example 500k USD",
        ):
            budget_of(text)
    for asked, message in [
        (StandbyAsked(availability="99.9%"), "availability: goes with mtbf and repair_time"),
        (StandbyAsked(mtbf="8000h"), "mtbf: goes with repair_time"),
    ]:
        with pytest.raises(InputError, match=message):
            reserve_of(asked)
