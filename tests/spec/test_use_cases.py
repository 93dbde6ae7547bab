"""What a use case sets, and what it leaves to the asker."""

from __future__ import annotations

import pytest

from tonnage.spec.deployment import parse_limit
from tonnage.spec.scenario_file import scenario_of
from tonnage.spec.use_cases import PRESETS, Defaults, with_defaults


def test_a_chatbot_is_read_along() -> None:
    found, said = with_defaults(scenario_of({}, {"use_case": "chatbot"}))
    assert (found.mode, found.lengths.isl, found.lengths.osl) == ("streaming", "500", "200")
    assert (found.limits.ttft, found.limits.itl) == ("p95<=1s", "p99<=250ms")
    limits = (parse_limit("ttft", "p95<=1s"), parse_limit("itl", "p99<=250ms"))
    assert said == Defaults(use_case="chatbot", mode="streaming", isl="500", osl="200", limits=limits)


def test_data_generation_takes_35_ms_a_token_in_the_99th_percentile() -> None:
    found, _ = with_defaults(scenario_of({}, {"use_case": "data-generation"}))
    assert (found.limits.itl, found.limits.tpot) == ("p99<=35ms", None)


def test_what_is_said_stands() -> None:
    found, said = with_defaults(scenario_of({}, {"use_case": "rag", "isl": 7, "ttft": ["p50<=9s"], "mode": "streaming"}))
    assert (found.lengths.isl, found.limits.ttft) == (7, ["p50<=9s"])
    assert said == Defaults(use_case="rag", mode=None, isl="", osl="500", limits=(parse_limit("itl", "p99<=250ms"),))


@pytest.mark.parametrize("given", [{"pairs": "p.csv"}, {"trace": "t.csv"}])
def test_lengths_of_a_file_are_left_alone(given: dict[str, str]) -> None:
    found, _ = with_defaults(scenario_of({}, {"use_case": "chatbot", **given}))
    assert (found.lengths.isl, found.lengths.osl) == (None, None)


def test_a_prompt_of_parts_is_not_set() -> None:
    found, _ = with_defaults(scenario_of({}, {"use_case": "rag", "retrieved": "5x400"}))
    assert (found.lengths.isl, found.lengths.osl) == (None, "500")


def test_another_mode_takes_no_limits() -> None:
    found, _ = with_defaults(scenario_of({}, {"use_case": "chatbot", "mode": "sequential"}))
    assert (found.limits.ttft, found.limits.itl) == (None, None)


def test_no_use_case_sets_nothing() -> None:
    scenario = scenario_of({}, {"model": "m"})
    assert with_defaults(scenario) == (scenario, None)


@pytest.mark.parametrize("name", PRESETS)
def test_every_use_case_says_what_it_sets(name: str) -> None:
    found, said = with_defaults(scenario_of({}, {"use_case": name}))
    assert found.mode == PRESETS[name].mode
    assert said is not None
    assert (said.use_case, said.mode) == (name, PRESETS[name].mode)
