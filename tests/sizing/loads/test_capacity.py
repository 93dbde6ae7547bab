"""The highest load inside the limits, held against closed forms and against independent runs."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest

from tests.questions import contender, plans_with
from tests.sizing.loads.instances import alone, asked, capacity, found, holding, recording, traffic
from tonnage import api
from tonnage.errors import DoesNotFit
from tonnage.perf.memory import memory_plan
from tonnage.perf.step import step_seconds
from tonnage.plan.limit import SATURATION
from tonnage.plan.reason import BrokenAtAnyLoad
from tonnage.report.plans.candidates import reason_text
from tonnage.report.plans.question import bound_text
from tonnage.results.metrics import summarize
from tonnage.sizing.loads.capacity import find_capacity
from tonnage.sizing.loads.instance import SURE, Instance, middle
from tonnage.sizing.loads.load_scan import worst_limit
from tonnage.sizing.loads.runs import Runs
from tonnage.sizing.planner import size
from tonnage.spec.deployment import Deployment, parse_speculation

few_parts = plans_with("curve")


def deployment(**knobs: int) -> Deployment:
    return api.deployment_of(
        model="llama-3-8b",
        gpu="h100-sxm-80gb",
        precision="fp8",
        tp=1,
        engine="tensorrt-llm-0.15",
        knobs=dict(knobs),
    )


@pytest.mark.parametrize("factor", [1.5, 3.0])
def test_one_slot_and_one_token_is_an_m_d_1_queue(factor: float) -> None:
    """Mean TTFT = front end + S + ρS / (2 (1 − ρ)), so the rate at a limit is known."""
    tokens = 2000
    instance = Instance(deployment(max_batch_size=1), traffic(isl=tokens, osl=1))
    service = step_seconds(instance.step.coefficients, tokens, 1, 0, tokens * tokens, 0)
    limit = instance.step.frontend_s + factor * service
    rho = 2 * (factor - 1) / (2 * (factor - 1) + 1)
    answer = found(instance, api.slo(ttft=f"mean {limit:.9f}s"))
    assert answer.reason is None
    assert answer.rate == pytest.approx(rho / service, rel=0.06)
    assert Runs().saturation(instance) == pytest.approx(1 / service, rel=0.01)


def test_instances_behind_least_outstanding_carry_more_than_an_m_d_1_queue_each_and_less_than_all_their_time() -> (
    None
):
    """With one slot and one token, n of them are an M/D/n queue whose waits are shorter; Ciw and
    SimPy hold the router itself."""
    tokens = 2000
    instance = Instance(deployment(max_batch_size=1), traffic(isl=tokens, osl=1))
    service = step_seconds(instance.step.coefficients, tokens, 1, 0, tokens * tokens, 0)
    slo = api.slo(ttft=f"mean {instance.step.frontend_s + 1.5 * service:.9f}s")
    rates = [found(instance, slo, n).rate * service for n in (1, 2, 4, 8)]
    assert rates == sorted(rates)
    assert rates[0] == pytest.approx(0.5, abs=0.03)
    assert rates[1] > 0.6  # M/D/2 reaches a mean wait of half a service time at 0.7 of its capacity
    assert rates[-1] < 1


def test_the_load_found_meets_the_limit_in_another_run_and_a_higher_one_does_not() -> None:
    instance, slo = Instance(deployment(), traffic()), api.slo(ttft="p95<=200ms")
    answer = found(instance, slo)
    assert answer.binds is not None
    assert bound_text(answer.binds) == "TTFT p95 ≤ 200 ms"
    requests = instance.requests_of(answer.rate, SURE)
    other = summarize(middle(instance.open(0.96 * answer.rate, requests, seed=99)))
    assert worst_limit(other, slo) is None
    above = summarize(middle(instance.open(1.1 * answer.rate, requests, seed=99)))
    assert worst_limit(above, slo) is not None


def test_a_looser_limit_never_carries_less() -> None:
    instance, runs = Instance(deployment(), traffic()), Runs()
    rates = [
        find_capacity(runs, instance, api.slo(tpot=f"mean {ms}ms")).rate for ms in (8, 12, 20, 40)
    ]
    assert all(a <= b for a, b in pairwise(rates))
    assert rates[-1] > rates[0]


def test_without_limits_saturation_binds() -> None:
    instance = Instance(deployment(), traffic())
    answer = found(instance)
    assert answer.binds == SATURATION
    assert 0.95 < answer.rate / Runs().saturation(instance) < 1.0


def test_a_limit_below_the_unloaded_latency_is_refused_with_both_numbers() -> None:
    answer = found(Instance(deployment(), traffic(isl=8000)), api.slo(ttft="p95<=20ms"))
    assert answer.rate == 0
    assert answer.reason is not None
    assert reason_text(answer.reason).startswith("TTFT p95 ")
    assert reason_text(answer.reason).endswith("> 20 ms at any load")


def test_closed_loop_carries_the_most_clients_inside_the_limit() -> None:
    instance, slo = Instance(deployment(), traffic(load="closed")), api.slo(e2e="mean 1s")
    clients = round(found(instance, slo).concurrency)
    assert worst_limit(summarize(instance.closed(clients, 10 * clients)), slo) is None
    more = math.ceil(clients * 1.05) + 1
    assert worst_limit(summarize(instance.closed(more, 10 * more)), slo) is not None


def test_littles_law_ties_rate_and_concurrency() -> None:
    answer = found(Instance(deployment(), traffic()), api.slo(ttft="p95<=300ms"))
    assert answer.concurrency == pytest.approx(answer.rate * answer.summary.e2e_ms.mean / 1e3)


def test_windows_are_room_that_a_context_does_not_have() -> None:
    d = api.deployment_of(
        model="gemma-3-4b", gpu="h100-sxm-80gb", precision="fp8", tp=1, engine="tensorrt-llm-0.15"
    )
    d = replace(d, knobs=replace(d.knobs, kv_fraction=0.003))
    memory = memory_plan(d)
    room = memory.tokens - memory.windows.blocks * d.knobs.tokens_per_block
    assert 1024 < room < memory.tokens
    assert Instance(d, traffic(isl=room - 50, osl=50)).batch == 1
    with pytest.raises(
        DoesNotFit,
        match=f"one request of {room + 1:,} tokens does not fit the KV cache of {room:,} tokens",
    ):
        Instance(d, traffic(isl=room - 49, osl=50))


@pytest.mark.parametrize(
    ("engine", "speculation"),
    [
        ("tensorrt-llm-0.15", "eagle k=3 acceptance=0.7"),
        ("sglang", "draft=llama-3.2-1b k=2 acceptance=0.5"),
        ("sglang", "ngram k=4 acceptance=0.2"),
    ],
)
def test_closed_forms_hold_with_guesses(engine: str, speculation: str) -> None:
    place = {"model": "llama-3-8b", "gpu": "h100-sxm-80gb", "precision": "fp16", "tp": 1}
    instance = Instance(
        api.deployment_of(**place, engine=engine, speculation=speculation),
        traffic(isl=300, osl=300),
    )
    runs = Runs()
    assert 0.9 < runs.saturation(instance) / instance.saturation_estimate() < 1.05
    assert instance.single_client().tpot_ms.mean / 1e3 == pytest.approx(
        instance.unloaded_tpot_s(), rel=0.06
    )


def test_a_slower_step_has_a_slower_drafter() -> None:
    guessing = replace(
        deployment(), speculation=parse_speculation("draft=llama-3.2-1b k=2 acceptance=0.5")
    )
    usual, slower = (
        Instance(guessing, replace(traffic(), step_factor=factor)) for factor in (1.0, 1.5)
    )
    assert slower.unloaded_tpot_s() == pytest.approx(1.5 * usual.unloaded_tpot_s(), rel=1e-9)


@pytest.mark.parametrize("bursts", [False, True])
def test_systems_agree_with_brute_force_over_whole_systems(bursts: bool) -> None:
    one = asked(bursts)
    ready = alone()
    plan = size(one)
    for systems in range(1, plan.choice.systems + 1):
        assert holding(ready, one.recording, 8 * systems) == (systems == plan.choice.systems)


def test_a_trace_that_no_number_of_instances_holds_is_refused() -> None:
    reason = capacity(contender(tp="1", ttft="p95<=1ms"), recording(bursts=False)).reason
    assert isinstance(reason, BrokenAtAnyLoad)
    assert reason.breach.limit.milliseconds == 1
