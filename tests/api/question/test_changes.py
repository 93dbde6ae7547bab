"""Failures, autoscaling and hourly loads as they are asked for, and what their runs say."""

from __future__ import annotations

import pytest

from tests.api.question.changing import SEASONS_ASKED
from tonnage import api
from tonnage.api.question.changes import autoscale_of, failures_of, seasons_of
from tonnage.api.question.deployment import deployment_of
from tonnage.api.question.simulation import simulation_of
from tonnage.errors import InputError, InputErrors
from tonnage.perf.pipeline import BOOT_S, LINK_BYTES_S, start_seconds, weight_bytes
from tonnage.results.requests import REJECTED
from tonnage.simulator.changes import Failures, Restarts


def test_failures_are_read_or_said_in_a_line() -> None:
    assert failures_of("mtbf=30d repair=2h") == Failures(mtbf_s=30 * 86_400, repair_s=7_200)
    assert failures_of("repair=2h mtbf=30d crews=1 retry=all") == Failures(
        mtbf_s=30 * 86_400, repair_s=7_200, crews=1, retry="all"
    )
    for text, said in [
        ("mtbf=30d", "does not say mtbf and repair"),
        ("mtbf=30d repair=2", "has no unit"),
        ("mtbf=30d repair=2h retry=twice", "retry=twice is none of none, unanswered, all"),
    ]:
        with pytest.raises(InputError, match=said):
            failures_of(text)


def test_a_controller_is_read_and_starts_instances_by_their_weights() -> None:
    deployment = deployment_of(
        model="llama-3.1-8b", gpu="h100-sxm-80gb", precision="fp16", tp=2, engine="vllm"
    )
    assert weight_bytes(deployment) == pytest.approx(16.06e9, rel=0.02)
    rule = autoscale_of("metric=outstanding target=20 max=8", deployment)
    assert (rule.least, rule.most, rule.warm, rule.hold_s, rule.interval_s) == (
        1,
        8,
        0,
        300.0,
        15.0,
    )
    assert (
        rule.start_s
        == start_seconds(deployment)
        == pytest.approx(BOOT_S + weight_bytes(deployment) / LINK_BYTES_S)
    )
    other = autoscale_of(
        "metric=rate target=2.5 min=2 max=8 link=10GB boot=30s hold=10min interval=30s warm=1",
        deployment,
    )
    assert other.start_s == pytest.approx(30 + weight_bytes(deployment) / 10e9)
    assert (other.metric, other.target, other.least, other.instances, other.hold_s) == (
        "rate",
        2.5,
        2,
        9,
        600.0,
    )
    assert autoscale_of("metric=rate target=1 max=1 start=90s", deployment).start_s == 90.0
    for text, said in [
        ("metric=outstanding max=8", "does not say metric, target and max"),
        ("metric=temperature target=1 max=8", "metric=temperature is none of outstanding, rate"),
        ("metric=rate target=1 min=3 max=2", "min=3 and max=2 are not possible"),
    ]:
        with pytest.raises(InputError, match=said):
            autoscale_of(text, deployment)


SCALING_ASKED = {"model": "llama-3.1-8b", "isl": 1000, "osl": 200}


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"peak_rps": 20, "autoscale": True}, "needs the load by the hour; give"),
        ({"requests": 1e6, "within": "8h", "autoscale": True}, "a job has no hours"),
        ({"profile": [1.0] * 24, "broken_hours": "5%"}, "goes with"),
        ({"profile": [1.0] * 24, "autoscale": True, "start_time": "2days"}, "is longer than a day"),
    ],
)
def test_what_cannot_be_scaled_is_refused_in_one_line(asked, words) -> None:
    with pytest.raises(InputErrors) as raised:
        api.ask(**SCALING_ASKED, **asked)
    assert len(raised.value.lines) == 1
    assert words in raised.value.lines[0]


def test_hours_knobs_and_times_are_read() -> None:
    deployment = simulation_of(None, SEASONS_ASKED).deployment
    found = seasons_of(
        "8-20 max_num_tokens=2048 max_batch_size=64; 22-6 max_model_len=4096; drain=30s start=2min",
        deployment,
    )
    assert found.by_hour == (2,) * 6 + (0, 0) + (1,) * 12 + (0, 0, 2, 2)
    assert found.restarts == Restarts(drain_s=30.0, start_s=120.0)
    assert found.contexts == (131_072, 131_072, 4_096)
    assert [one.knobs.max_num_tokens for one in found.deployments] == [8_192, 2_048, 8_192]
    assert found.deployments[1].knobs.max_batch_size == 64
    assert seasons_of("0-24 max_batch_size=8", deployment).restarts.drain_s == 60.0
    for text, words in [
        ("8-20", "sets nothing"),
        ("8-20 max_batch_size=0", "write a whole number from 1"),
        ("8-20 max_batch_size=3; 19-21 max_batch_size=4", "hour 19 has two settings"),
        ("drain=60s", "names no hours"),
    ]:
        with pytest.raises(InputError, match="seasons") as raised:
            seasons_of(text, simulation_of(None, SEASONS_ASKED).deployment)
        assert words in str(raised.value)


def test_requests_longer_than_the_limit_of_the_hour_are_rejected() -> None:
    """A context of 1,050 tokens before 1 h, when 100 of the requests come, and the model's own
    afterwards."""
    run = api.simulate(
        **{**SEASONS_ASKED, "requests": 200, "request_rate": 100 / 3600, "arrivals": "constant"},
        seasons="0-1 max_model_len=1050; drain=10s start=10s",
    )
    assert 97 <= int((run.requests.status == REJECTED).sum()) <= 103
    assert run.fleet.restarts == 1
