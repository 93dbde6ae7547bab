"""Settings by the hour are read, and what cannot be is one clear line."""

from __future__ import annotations

from typing import Any

import pytest

from tonnage import api
from tonnage.api.question.changes import seasons_of
from tonnage.api.question.simulation import simulation_of
from tonnage.errors import InputError, InputErrors
from tonnage.results.requests import REJECTED
from tonnage.simulator.changes import Restarts

ASKED: dict[str, Any] = {"model": "llama-3.1-8b", "engine": "vllm", "isl": 1000, "osl": 100, "request_rate": 1, "requests": 50}


def test_hours_knobs_and_times_are_read() -> None:
    deployment = simulation_of(None, ASKED).deployment
    found = seasons_of("8-20 max_num_tokens=2048 max_batch_size=64; 22-6 max_model_len=4096; drain=30s start=2min", deployment)
    assert found.by_hour == (2,) * 6 + (0, 0) + (1,) * 12 + (0, 0, 2, 2)
    assert found.restarts == Restarts(drain_s=30.0, start_s=120.0)
    assert found.contexts == (131_072, 131_072, 4_096)
    assert [one.knobs.max_num_tokens for one in found.deployments] == [8_192, 2_048, 8_192]
    assert found.deployments[1].knobs.max_batch_size == 64
    assert seasons_of("0-24 max_batch_size=8", deployment).restarts.drain_s == 60.0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("8-20", "sets nothing"),
        ("8-20 colour=3", "is not understood"),
        ("8-20 max_batch_size=0", "write a whole number from 1"),
        ("8-25 max_batch_size=3", "is not a part of a day"),
        ("noon max_batch_size=3", "are no hours"),
        ("8-20 max_batch_size=3; 19-21 max_batch_size=4", "hour 19 has two settings"),
        ("drain=60s", "names no hours"),
        ("8-20 max_batch_size=3; drain=soon", "drain"),
    ],
)
def test_what_is_no_season_is_refused(text: str, words: str) -> None:
    with pytest.raises(InputError, match="seasons") as raised:
        seasons_of(text, simulation_of(None, ASKED).deployment)
    assert words in str(raised.value)


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
        simulation_of(None, {**ASKED, "seasons": "8-20 max_batch_size=8", **asked})


def test_requests_longer_than_the_limit_of_the_hour_are_rejected() -> None:
    """A context of 1,050 tokens before 1 h, when 100 of the requests come, and the model's own afterwards."""
    run = api.simulate(
        **{**ASKED, "requests": 200, "request_rate": 100 / 3600, "arrivals": "constant"},
        seasons="0-1 max_model_len=1050; drain=10s start=10s",
    )
    assert 97 <= int((run.requests.status == REJECTED).sum()) <= 103
    assert run.fleet is not None
    assert run.fleet.restarts == 1
