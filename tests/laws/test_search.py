"""Laws of a sizing: what more load, tighter limits and more choice may never do to its answer."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.questions import best, contender, question
from tests.strategies import examples
from tonnage.plan.demand import Demand
from tonnage.results.metrics import summarize
from tonnage.sizing.loads.instance import QUICK
from tonnage.sizing.search.deployment_capacity import Sized

ONE = {"tp": 1}
"""A single deployment of the small question; with the engine's own knobs a search takes a tenth of
a second."""

RATES = st.sampled_from([40, 100, 250, 600])
LIMITS = st.sampled_from([150, 250, 400, 900])


@cache
def chosen(**asked: Any) -> Sized:
    """The answer to the small question with other values, by short runs."""
    return best(replace(question(**{**ONE, **asked}), tune=False), care=QUICK)


def limit(ttft_ms: int) -> str:
    return f"p95<={ttft_ms}ms"


@examples(0.2)
@given(rate=RATES, more=RATES)
def test_more_load_never_needs_fewer_systems(rate: int, more: int) -> None:
    some, all_of_it = chosen(peak_rps=rate), chosen(peak_rps=rate + more)
    assert all_of_it.systems >= some.systems
    assert all_of_it.gpus_exact > some.gpus_exact


@examples(0.2)
@given(rate=RATES, factor=st.sampled_from([2, 3]))
def test_a_multiple_of_the_load_needs_that_multiple_of_the_systems(rate: int, factor: int) -> None:
    assert chosen(peak_rps=factor * rate).gpus_exact == pytest.approx(
        factor * chosen(peak_rps=rate).gpus_exact, rel=0.02
    )


@examples(0.2)
@given(tight=LIMITS, loose=LIMITS)
def test_a_tighter_limit_never_needs_fewer_systems(tight: int, loose: int) -> None:
    tight, loose = sorted((tight, loose))
    assert chosen(ttft=limit(tight)).gpus_exact >= chosen(ttft=limit(loose)).gpus_exact * 0.999


@examples(0.2)
@given(ttft=LIMITS, e2e=st.sampled_from(["p95<=1.5s", "p95<=3s"]))
def test_a_second_limit_never_needs_fewer_systems(ttft: int, e2e: str) -> None:
    assert (
        chosen(ttft=limit(ttft), e2e=e2e).gpus_exact >= chosen(ttft=limit(ttft)).gpus_exact * 0.999
    )


@pytest.mark.parametrize(("name", "less", "more"), [("isl", 500, 2000), ("osl", 50, 200)])
def test_longer_requests_need_more_systems(name: str, less: int, more: int) -> None:
    assert chosen(**{name: more}).gpus_exact > chosen(**{name: less}).gpus_exact


def test_a_shared_prefix_never_needs_more_systems() -> None:
    """The same 1,000 tokens of every prompt, of which a cache holds 800."""
    assert (
        chosen(isl=200, shared_prefix=800, engine="vllm").gpus_exact
        < chosen(engine="vllm").gpus_exact
    )


@pytest.mark.parametrize("spare", [1, 3])
def test_spare_systems_come_on_top(spare: int) -> None:
    assert chosen(spare=spare).gpus - chosen().gpus == spare * chosen().ready.trial.system.gpus
    assert chosen(spare=spare).gpus_exact == chosen().gpus_exact


def test_a_higher_confidence_never_needs_fewer_systems() -> None:
    exact = [chosen(confidence=level).gpus_exact for level in (0.5, 0.8, 0.95)]
    assert exact == sorted(exact)
    assert exact[0] < exact[-1]


def test_a_wider_choice_never_needs_more_gpus() -> None:
    alone = [chosen(gpu=gpu).gpus for gpu in ("h100", "l40s")]
    assert chosen(gpu="h100,l40s").gpus <= min(alone)


def test_a_faster_gpu_never_needs_more_gpus() -> None:
    assert chosen(gpu="h200").gpus_exact <= chosen(gpu="h100").gpus_exact
    assert chosen(gpu="h100").gpus_exact < chosen(gpu="a100-sxm-80gb", precision="fp16").gpus_exact


def test_more_replicas_of_the_same_requests_a_user_are_the_rate() -> None:
    """5,000 people with 20 requests a day in 8 hours: 100,000 requests in 28,800 s on average."""
    demand = question(peak_rps=None, users=5000, requests_per_user_day=20, peak_factor=1).demand
    assert demand.peak_requests_per_second == pytest.approx(5000 * 20 / (8 * 3600))


@examples(0.2)
@given(rate=RATES, factor=st.sampled_from([2.0, 5.0]))
def test_a_peak_factor_multiplies_the_mean(rate: int, factor: float) -> None:
    asked = question(peak_rps=None, mean_rps=rate, peak_factor=factor).demand
    assert isinstance(asked, Demand)
    assert asked.peak_requests_per_second == pytest.approx(rate * factor)


@examples(0.2)
@given(rate=st.sampled_from([5.0, 20.0, 60.0]), more=st.sampled_from([1.5, 3.0]))
def test_a_busier_instance_is_never_faster(rate: float, more: float) -> None:
    """The p95 of the TTFT and the mean E2E of one instance over its load."""
    instance = contender(**ONE).instance
    some, most = (summarize(instance.open(load, 2000, seed=1)) for load in (rate, rate * more))
    for metric, statistic in (("ttft", "p95"), ("e2e", "mean")):
        assert most.statistic_ms(metric, statistic) >= some.statistic_ms(metric, statistic) * 0.98
