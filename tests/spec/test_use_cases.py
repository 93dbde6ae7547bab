"""What a use case sets, and what it leaves to the asker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tonnage import api
from tonnage.errors import InputError
from tonnage.plan.notes import UseCaseDefaults
from tonnage.report.plans.notes import note_text
from tonnage.spec.deployment import parse_limit
from tonnage.spec.lengths import parse_part
from tonnage.spec.scenario import LengthsAsked, UseCase
from tonnage.spec.scenario_file import scenario_of
from tonnage.spec.use_cases import PARTS, PRESETS, Defaults, with_defaults


def test_a_chatbot_is_read_along_and_what_is_said_stands() -> None:
    found, said = with_defaults(scenario_of({}, {"use_case": "chatbot"}))
    assert (found.mode, found.lengths.isl, found.lengths.osl) == ("streaming", "500", "200")
    assert (found.limits.ttft, found.limits.itl) == ("p95<=1s", "p99<=250ms")
    limits = (parse_limit("ttft", "p95<=1s"), parse_limit("itl", "p99<=250ms"))
    assert said == Defaults(
        use_case="chatbot", mode="streaming", isl="500", osl="200", limits=limits
    )
    found, said = with_defaults(
        scenario_of({}, {"use_case": "rag", "isl": 7, "ttft": ["p50<=9s"], "mode": "streaming"})
    )
    assert (found.lengths.isl, found.limits.ttft) == (7, ["p50<=9s"])
    assert said == Defaults(
        use_case="rag", mode=None, isl="", osl="500", limits=(parse_limit("itl", "p99<=250ms"),)
    )


def test_the_parts_of_rag_are_its_prompt() -> None:
    split = PRESETS["rag"].parts
    assert split is not None
    parts = [parse_part(str(getattr(split, name)), "") for name in ("isl", *PARTS)]
    assert sum(count * tokens for count, tokens in parts) == float(PRESETS["rag"].isl)
    found, said = with_defaults(
        scenario_of({}, {"use_case": "rag", "retrieved": "10x400", "system_prompt": "300words"})
    )
    assert found.lengths == LengthsAsked(
        isl="100", osl="500", retrieved="10x400", system_prompt="300words", history="3x300"
    )
    assert (said.isl, said.parts) == ("100", {"history": "3x300"})


def test_the_plan_says_what_was_understood_of_the_parts() -> None:
    for given, parts in [
        ({"turns": 3}, {"retrieved": "5x400", "shared_prefix": "500"}),
        ({"shared_prefix": 800}, {"retrieved": "5x400", "history": "3x300"}),
        ({"turns": 3, "shared_prefix": 800}, {"retrieved": "5x400"}),
        ({"turns": 3, "system_prompt": 400}, {"retrieved": "5x400"}),
        ({}, {}),
    ]:
        _, said = with_defaults(scenario_of({}, {"use_case": "rag", **given}))
        assert (said.isl, said.parts) == ("100" if parts else "3500", parts)
    asked = {"use_case": "rag", "retrieved": "5x400", "system_prompt": "300words"}
    (question,) = api.ask(model="llama-3.1-8b", peak_rps=5, **asked).questions
    assert question.isl.mean == 100 + 400 + 5 * 400 + 3 * 300
    assert [note_text(note) for note in question.remarks][:2] == [
        (
            "The use case rag sets: mode streaming, question 100 tokens, OSL 500 tokens, chat"
            " history 3x300 tokens, TTFT p95 ≤ 2 s, ITL p99 ≤ 250 ms."
        ),
        (
            "Every prompt is 3,300 tokens longer than what is asked: 400 system prompt + 5 × 400"
            " retrieved passages + 3 × 300 chat history."
        ),
    ]


UNITS = {"isl": "900words", "osl": "800chars"}
FLAGS: dict[str, dict[str, Any]] = {
    "parts": {"system_prompt": "300words", "retrieved": "5x400", "history": "3x1,000chars"},
    "turns": {"turns": "2-4", "think_time": "30s"},
    "shared prefix": {"shared_prefix": "1k", "shared_prefix_share": "50%"},
    "tools": {"tool_calls": 2, "tool_tokens": "300words"},
    "pairs": {"pairs": Path(__file__).parents[2] / "examples" / "lengths.csv"},
    "mixture": {"mixture": "chatbot 70%, 4000/300 30%"},
    "words and characters": UNITS,
    "one of them": {"isl": "2k"},
}
OF_A_JOB = ("turns", "tools")
"""What no job has: its requests follow no other."""


@pytest.mark.parametrize("flags", FLAGS)
@pytest.mark.parametrize("name", PRESETS)
def test_every_use_case_takes_every_form_of_lengths(name: UseCase, flags: str) -> None:
    job = PRESETS[name].mode == "offline"
    asked: dict[str, Any] = {"model": "llama-3.1-8b", "use_case": name, **FLAGS[flags]}
    asked |= {"requests": "1M", "within": "8 hours"} if job else {"peak_rps": 5}
    if job and flags in OF_A_JOB:
        with pytest.raises(InputError, match="the requests of a job are all there at its start"):
            api.ask(**asked)
        return
    (question,) = api.ask(**asked).questions
    assert question.mode == PRESETS[name].mode
    assert question.isl.mean > 0
    assert any(isinstance(note, UseCaseDefaults) for note in question.remarks)
