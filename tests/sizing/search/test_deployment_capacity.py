"""One deployment and the question: what it carries, and the systems that it takes."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from tests.questions import plans_with, question
from tests.sizing.loads.instances import alone, asked, capacity, holding, recording
from tonnage.plan.reason import BrokenAtAnyLoad
from tonnage.sizing.planner import size

few_parts = plans_with("curve")

RISING = ("ttft_ms", "tpot_ms", "e2e_ms")


@pytest.mark.parametrize(
    ("model", "gpu", "limits", "peak"),
    [
        pytest.param(
            "llama-3.1-8b",
            "h100-sxm-80gb",
            {"ttft": "p95<=500ms", "itl": "p99<=100ms"},
            1834,
            marks=pytest.mark.accuracy,
        ),
        pytest.param("llama-3.1-8b", "l40s", {"e2e": "p95<=20s"}, 60, marks=pytest.mark.accuracy),
        ("gpt-j-6b", "a100-sxm-80gb", {"ttft": "mean<=1s"}, 200),
    ],
)
def test_no_point_beyond_the_limit_is_inside_or_faster_than_the_limit(
    model: str, gpu: str, limits: dict[str, str], peak: float
) -> None:
    plan = size(
        question(
            model=model,
            gpu=gpu,
            tp="1",
            precision="fp16",
            isl="600+-300",
            osl="250+-80",
            peak_rps=peak,
            **limits,
        )
    )
    marked = {p.mark: p for p in plan.curve if p.mark}
    limit = marked["limit"]
    assert marked["peak"].requests_per_second_per_instance * plan.choice.instances == pytest.approx(
        peak
    )
    assert limit.requests_per_second_per_8_gpus == pytest.approx(
        plan.choice.requests_per_second_per_8_gpus
    )
    assert (limit.ttft_ms, limit.inside_limits) == (plan.choice.ttft_ms, True)
    assert len(plan.curve) >= 8
    beyond = [
        p
        for p in plan.curve
        if p.requests_per_second_per_instance > limit.requests_per_second_per_instance
    ]
    assert not [p for p in beyond if p.inside_limits]
    for point in beyond:
        assert all(getattr(point, name).mean >= getattr(limit, name).mean for name in RISING), point
    own = [p for p in plan.curve if p.mark != "peak"]
    assert all(
        p.inside_limits
        for p in own
        if p.requests_per_second_per_instance < 0.9 * limit.requests_per_second_per_instance
    )
    for lower, higher in pairwise(own):
        assert all(getattr(higher, name).mean > 0.98 * getattr(lower, name).mean for name in RISING)


@pytest.mark.parametrize("bursts", [False, True])
def test_instances_agree_with_brute_force(bursts: bool) -> None:
    one = asked(bursts)
    ready = alone()
    found = capacity(ready, one.recording)
    saturation = ready.runs.saturation(ready.instance)
    # the rest of the last instance is not needed, but no half can be had
    count = math.ceil(one.recording.mean_rps / found.rate)

    def holds(instances: int) -> bool:
        return holding(ready, one.recording, instances)

    fewest = next(n for n in range(1, 200) if n * saturation >= one.recording.mean_rps and holds(n))
    assert count == fewest


def test_what_an_instance_carries_is_no_fraction_of_a_whole_number() -> None:
    """A recording a little denser needs a little more, not an instance more or none."""
    ready = alone()
    traffic = recording(bursts=True)
    exact = [
        traffic.mean_rps * f / capacity(ready, traffic.at_mean(f * traffic.mean_rps)).rate
        for f in (0.9, 1.0, 1.1)
    ]
    assert exact == sorted(exact)
    assert len(set(exact)) == 3
    assert not all(float(number).is_integer() for number in exact)


def test_a_single_instance_carries_more_than_a_thin_recording() -> None:
    ready = alone()
    thin = recording(bursts=False, rps=2.0)
    found = capacity(ready, thin)
    assert found.rate > 5 * thin.mean_rps
    assert holding(ready, thin.at_mean(found.rate), 1)


def test_what_a_single_client_breaks_as_predicted_is_not_called_unsure(few_parts: None) -> None:
    """Sixteen bits of 8 billion weights take an L40S some 20 ms a token, and an H100 some 6."""
    plan = size(
        question(
            model="llama-3.1-8b",
            gpu="h100,l40s",
            tp="1",
            precision="fp16",
            isl="200",
            osl="50",
            peak_rps=20,
            itl="p99<=12ms",
        )
    )
    assert plan.choice.gpu == "h100-sxm-80gb"
    reasons = [row.reason for row in plan.rejected if row.gpu == "l40s"]
    assert reasons
    assert {type(reason) for reason in reasons} == {BrokenAtAnyLoad}
