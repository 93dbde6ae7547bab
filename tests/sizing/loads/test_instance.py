"""One deployment under load: closed forms, and what no run exceeds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.in_turn import in_turn
from tests.questions import contender, contenders, question
from tests.sizing.loads.load_scan_cases import Curve, limit, rate_of
from tonnage.sizing.loads.instance import QUICK, SURE, Instance
from tonnage.sizing.loads.runs import Runs, saturation_rate
from tonnage.sizing.loads.trial import MARGIN, rate_bound


@pytest.mark.parametrize(
    ("lengths", "engine"),
    in_turn(
        [(1000, 100), (200, 400), ("lognormal:2000,1500", "lognormal:200,200")],
        ["tensorrt-llm-0.15", "vllm"],
    ),
)
def test_no_deployment_completes_more_than_its_closed_form_allows(
    engine: str, lengths: tuple[object, object]
) -> None:
    for one in contenders(
        question(
            isl=lengths[0], osl=lengths[1], engine=engine, tp="1,4", gpu="h100,l40s", ttft=None
        )
    ):
        # with a front end, which may limit
        assert one.runs.saturation(one.instance) < rate_bound(one.instance, ())
        bare = Instance(one.instance.deployment, one.instance.traffic)
        bare.spec = replace(bare.spec, step=bare.step.in_process)
        assert 0.85 < Runs().saturation(bare) / bare.saturation_estimate() < MARGIN


def test_a_busy_engine_completes_at_a_constant_rate() -> None:
    one = contender(tp="1", ttft=None).instance
    runs = [
        saturation_rate(one.open(1.3 * one.saturation_estimate(), requests, 0))
        for requests in (12_000, 24_000)
    ]
    assert runs[0] == pytest.approx(runs[1], rel=0.03)
    assert one.requests_of(1.0, SURE) >= 16_000


@pytest.mark.parametrize("target", [0.3, 2.0, 77.7, 130.0, 640.0, 999.0])
@pytest.mark.parametrize("care", [QUICK, SURE])
@pytest.mark.parametrize("begin", [1000.0, 80.0, 1.0])
def test_a_rising_latency_is_read_between_two_loads_wherever_the_search_begins(
    target: float, care: Any, begin: float
) -> None:
    """A power of the load is a straight line in logarithms, so that what is read is exact."""
    found = Curve(lambda rate, length: rate, begin=begin).highest(limit(target), care=care)
    assert rate_of(found) == pytest.approx(target, rel=1e-6)
