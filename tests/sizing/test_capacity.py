"""The highest load inside the limits, held against closed forms and against independent runs."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest

from tonnage import api
from tonnage.errors import DoesNotFit
from tonnage.perf.memory import memory_plan
from tonnage.perf.step import step_seconds
from tonnage.plan.limit import SATURATION
from tonnage.report.wording.limits import bound_text
from tonnage.report.wording.reasons import reason_text
from tonnage.results.metrics import summarize
from tonnage.sizing.loads.capacity import find_capacity, saturation
from tonnage.sizing.loads.instance import Asked, Instance, middle
from tonnage.sizing.loads.limits import worst_limit
from tonnage.spec.deployment import Deployment
from tonnage.spec.speculation import parse_speculation
from tonnage.spec.workload import Lengths


def deployment(**knobs: int) -> Deployment:
    return api.deployment_of(model="llama-3-8b", gpu="h100-sxm-80gb", precision="fp8", tp=1, engine="tensorrt-llm-0.15", knobs=dict(knobs))


def asked(isl: float = 500, osl: float = 50, load: str = "open", **limits: str) -> Asked:
    lengths = (Lengths(mean=isl), Lengths(mean=osl))
    return Asked(isl=lengths[0], osl=lengths[1], slo=api.slo(**limits), load=load, process="poisson", cv=1.0, seed=0)


@pytest.mark.parametrize("factor", [1.5, 3.0])
def test_one_slot_and_one_token_is_an_m_d_1_queue(factor: float) -> None:
    """Mean TTFT = front end + S + ρS / (2 (1 − ρ)), so the rate at a limit is known."""
    d = deployment(max_batch_size=1)
    tokens = 2000
    probe = Instance(d, asked(isl=tokens, osl=1))
    service = step_seconds(probe.step.coefficients, tokens, 1, 0, tokens * tokens, 0)
    limit = probe.step.frontend_s + factor * service
    rho = 2 * (factor - 1) / (2 * (factor - 1) + 1)
    found = find_capacity(Instance(d, asked(isl=tokens, osl=1, ttft=f"mean {limit:.9f}s")))
    assert found.reason is None
    assert found.rate == pytest.approx(rho / service, rel=0.06)
    assert found.saturation == pytest.approx(1 / service, rel=0.01)


def test_the_load_found_meets_the_limit_in_another_run_and_a_higher_one_does_not() -> None:
    question = asked(ttft="p95<=200ms")
    instance = Instance(deployment(), question)
    found = find_capacity(instance)
    assert found.binds is not None
    assert bound_text(found.binds) == "TTFT p95 ≤ 200 ms"
    other = summarize(middle(instance.open(0.97 * found.rate, 3 * 2 * instance.count(found.rate), seed=99)))
    assert worst_limit(other, question.slo) is None
    above = summarize(middle(instance.open(1.1 * found.rate, 3 * 2 * instance.count(found.rate), seed=99)))
    assert worst_limit(above, question.slo) is not None


def test_a_looser_limit_never_carries_less() -> None:
    rates = [find_capacity(Instance(deployment(), asked(tpot=f"mean {ms}ms"))).rate for ms in (8, 12, 20, 40)]
    assert all(a <= b * 1.02 for a, b in pairwise(rates))
    assert rates[-1] > rates[0]


def test_without_limits_saturation_binds() -> None:
    found = find_capacity(Instance(deployment(), asked()))
    assert found.binds == SATURATION
    assert 0.95 < found.rate / found.saturation < 1.0


def test_a_limit_below_the_unloaded_latency_is_refused_with_both_numbers() -> None:
    found = find_capacity(Instance(deployment(), asked(isl=8000, ttft="p95<=20ms")))
    assert found.rate == 0
    assert found.reason is not None
    assert reason_text(found.reason).startswith("TTFT p95 ")
    assert reason_text(found.reason).endswith("> 20 ms at any load")


def test_closed_loop_carries_the_most_clients_inside_the_limit() -> None:
    question = asked(load="closed", e2e="mean 1s")
    instance = Instance(deployment(), question)
    found = find_capacity(instance)
    clients = round(found.concurrency)
    assert worst_limit(summarize(instance.closed(clients, 10 * clients)), question.slo) is None
    more = math.ceil(clients * 1.05) + 1
    assert worst_limit(summarize(instance.closed(more, 10 * more)), question.slo) is not None


def test_littles_law_ties_rate_and_concurrency() -> None:
    found = find_capacity(Instance(deployment(), asked(ttft="p95<=300ms")))
    assert found.concurrency == pytest.approx(found.rate * found.summary.e2e_ms.mean / 1e3)


def test_a_request_larger_than_the_cache_does_not_fit() -> None:
    d = api.deployment_of(model="llama-2-70b", gpu="h100-sxm-80gb", precision="fp8", tp=1, engine="tensorrt-llm-0.15")
    with pytest.raises(DoesNotFit, match="tokens"):
        Instance(replace(d, knobs=replace(d.knobs, kv_fraction=0.001)), asked(isl=4000, osl=50))


def test_windows_are_room_that_a_context_does_not_have() -> None:
    d = api.deployment_of(model="gemma-3-4b", gpu="h100-sxm-80gb", precision="fp8", tp=1, engine="tensorrt-llm-0.15")
    d = replace(d, knobs=replace(d.knobs, kv_fraction=0.003))
    memory = memory_plan(d)
    room = memory.tokens - memory.windows.blocks * d.knobs.tokens_per_block
    assert 1024 < room < memory.tokens
    assert Instance(d, asked(isl=room - 50, osl=50)).batch == 1
    with pytest.raises(DoesNotFit, match=f"one request of {room + 1:,} tokens does not fit the KV cache of {room:,} tokens"):
        Instance(d, asked(isl=room - 49, osl=50))


def test_same_seed_same_answer() -> None:
    first, second = (find_capacity(Instance(deployment(), asked(ttft="p95<=200ms"))) for _ in range(2))
    assert first == second


@pytest.mark.parametrize("speculation", ["eagle k=3 acceptance=0.7", "draft=llama-3.2-1b k=2 acceptance=0.5", "ngram k=4 acceptance=0.2"])
@pytest.mark.parametrize("engine", ["tensorrt-llm-0.15", "sglang"])
def test_closed_forms_hold_with_guesses(engine: str, speculation: str) -> None:
    place = {"model": "llama-3-8b", "gpu": "h100-sxm-80gb", "precision": "fp16", "tp": 1}
    instance = Instance(api.deployment_of(**place, engine=engine, speculation=speculation), asked(isl=300, osl=300))
    assert 0.9 < saturation(instance) / instance.saturation_estimate() < 1.05
    assert instance.alone().tpot_ms.mean / 1e3 == pytest.approx(instance.unloaded_tpot_s(), rel=0.06)


def test_a_slower_step_has_a_slower_drafter() -> None:
    guessing = replace(deployment(), speculation=parse_speculation("draft=llama-3.2-1b k=2 acceptance=0.5"))
    usual, slower = (Instance(guessing, replace(asked(), step_factor=factor)) for factor in (1.0, 1.5))
    assert slower.unloaded_tpot_s() == pytest.approx(1.5 * usual.unloaded_tpot_s(), rel=1e-9)
