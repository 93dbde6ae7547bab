"""The question of simulate."""

from __future__ import annotations

import pytest

from tests.api.chatbot import BASE, asked
from tests.api.question.changing import SEASONS_ASKED
from tonnage import api
from tonnage.api.question.simulation import simulation_of
from tonnage.errors import InputError, InputErrors
from tonnage.spec.arrivals import HourlyArrivals


def test_a_share_of_the_memory_names_the_engine_where_nobody_does() -> None:
    assert asked().engines == ("tensorrt-llm-1.2", "vllm-0.32")
    assert asked(gpu_memory_utilization=0.95).engines == ("vllm-0.32",)
    both = asked(gpu_memory_utilization="95%", engine="vllm,tensorrt-llm")
    assert (both.engines, both.shares) == (
        ("vllm-0.32", "tensorrt-llm-1.2"),
        (("gpu_memory_utilization", 0.95),),
    )
    with pytest.raises(
        InputError,
        match=(
            r"mem_fraction_static: vllm-0\.32 has no such setting; write gpu_memory_utilization 0.8"
            r" or engine"
        ),
    ):
        asked(mem_fraction_static=0.8, engine="vllm")
    knobs = [
        api.simulation_of(
            None, {**BASE, "peak_rps": None, "request_rate": 1, "mem_fraction_static": 0.8}
        ).deployment.knobs
    ]
    assert [(one.kv_rule, one.kv_fraction) for one in knobs] == [("mem_fraction_static", 0.8)]


ASKED = {"model": "llama-3.1-8b", "isl": "1000", "osl": "100"}


def test_a_simulation_takes_them_by_name() -> None:
    day = [1.0] * 12 + [3.0] * 12
    hourly = {**ASKED, "arrivals": "profile", "profile": day}
    made = simulation_of(
        None, {**hourly, "autoscale": "metric=rate target=1 max=3", "ttft": "p95<=1s"}
    )
    assert made.autoscale is not None
    assert (made.instances, made.workloads[0].arrivals, made.limits[0].seconds) == (
        3,
        HourlyArrivals(hours=tuple(day)),
        1.0,
    )
    slower = simulation_of(None, {**hourly, "request_rate": 1.0})
    assert slower.workloads[0].arrivals.rate == pytest.approx(1.0)
    for wrong, said in (
        (
            {"request_rate": 1, "instances": 2, "autoscale": "metric=rate target=1 max=3"},
            "says how many there are",
        ),
        ({"concurrency": 1, "fail": "mtbf=1h repair=1s"}, "share an open loop"),
        ({"arrivals": "profile"}, "needs the hourly loads"),
    ):
        with pytest.raises((InputError, InputErrors), match=said):
            simulation_of(None, {**ASKED, **wrong})


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"fail": "mtbf=1h repair=1min"}, "without"),
        ({"disaggregated": "1:1"}, "neither fail nor change"),
        ({"turns": 2}, "cannot be combined with shared prompts"),
        ({"instances": 600}, "more than 1,000"),
    ],
)
def test_what_does_not_go_with_seasons_is_refused(asked, words: str) -> None:
    with pytest.raises((InputError, InputErrors), match=words):
        simulation_of(None, {**SEASONS_ASKED, "seasons": "8-20 max_batch_size=8", **asked})


def test_a_run_that_ends_before_the_first_change_is_refused() -> None:
    night = {**SEASONS_ASKED, "seasons": "8-20 max_batch_size=8"}
    with pytest.raises(InputError, match=r"50 requests at 1/s end before the first change, at 8 h"):
        simulation_of(None, night)
    with pytest.raises(InputError, match=r"give requests 32400 or more"):
        simulation_of(None, {**night, "requests": 28_799})
    for enough in ({"requests": 28_800}, {"seasons": "0-24 max_batch_size=8"}):
        assert simulation_of(None, {**night, **enough}).seasons is not None
