"""What a body of the API asks for; what is refused, and how, is in tests/engines/test_conformance.py."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.serve.dialect import Refused
from tonnage.serve.request import Asked, Kind, Limits, asked_of
from tonnage.serve.tokens import PER_CHAT, PER_MESSAGE, Fours, TokenReader

READER = TokenReader(Fours(8_000))


def read(kind: Kind, body: Any, max_context: int = 1000, **more: Any) -> Asked:
    limits = Limits(models=("m",), max_context=max_context, vocabulary=8_000, **more)
    return asked_of(kind, body, reader=READER, limits=limits)


def test_a_chat_counts_its_messages_and_what_a_template_adds() -> None:
    body = {
        "model": "m",
        "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": [{"type": "text", "text": "one two three"}]}],
        "max_completion_tokens": 7,
        "max_tokens": 9,
        "stream": True,
        "stream_options": {"include_usage": True},
        "stop": "x",
        "n": 2,
    }
    asked = read("chat", body)
    assert asked.isl == 2 + 4 + 2 * PER_MESSAGE + PER_CHAT
    assert (asked.osl, asked.choices, asked.stream, asked.usage, asked.stop) == (7, 2, True, True, ("x",))


@pytest.mark.parametrize(("prompt", "isl"), [("a b c", (2,)), ([5, 6, 7, 8], (4,)), (["a b", "c"], (1, 1)), ([[1, 2], [3]], (2, 1))])
def test_a_prompt_is_text_or_token_ids_or_a_list_of_them(prompt: Any, isl: tuple[int, ...]) -> None:
    assert tuple(one.tokens for one in read("completions", {"prompt": prompt}).prompts) == isl


def test_an_output_that_the_context_cuts_short_is_as_long_as_it_leaves_room_for() -> None:
    """vLLM 0.32 answered 2,000 tokens after a prompt of 100 with 1,948, in a context of 2,048."""
    assert read("completions", {"prompt": list(range(90)), "max_tokens": 20}, max_context=100).osl == 10
    assert read("completions", {"prompt": list(range(90)), "max_tokens": 10}, max_context=100).osl == 10
    assert read("completions", {"prompt": [1] * 300}).osl == 16
    assert read("chat", {"messages": [{"role": "user", "content": "x" * 400}]}).osl == 1000 - 106
    assert read("chat", {"messages": [{"role": "user", "content": "x"}]}, default_osl=64).osl == 64


def test_a_chat_that_goes_on_begins_with_the_tokens_of_what_was_said() -> None:
    first = [{"role": "user", "content": "one two three"}]
    then = [*first, {"role": "assistant", "content": " day way"}, {"role": "user", "content": "four"}]
    before, after = (read("chat", {"messages": said}).prompts[0].ids for said in (first, then))
    assert after[: len(before)] == before


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=8,
)
NAMES = [
    *("prompt", "messages", "max_tokens", "temperature", "top_k", "seed", "min_tokens", "stop_token_ids", "tools", "logprobs"),
    *("n", "stream", "stream_options", "stop", "user", "model", "tool_choice", "response_format", "structured_outputs", "logit_bias"),
]


@given(kind=st.sampled_from(["chat", "completions"]), body=st.dictionaries(st.sampled_from(NAMES), JSON) | JSON)
def test_any_body_is_understood_or_refused(kind: Kind, body: Any) -> None:
    try:
        asked = read(kind, body)
    except Refused as error:
        status = error.status
    else:
        assert min(one.tokens for one in asked.prompts) >= 1
        assert asked.osl >= 1
        return
    assert status in (400, 404)


@pytest.mark.parametrize(
    "field",
    [{"logprobs": 3}, {"response_format": {"type": "json_object"}}, {"echo": True}, {"structured_outputs": {"regex": "a"}}],
    ids=lambda field: next(iter(field)),
)
def test_a_real_engine_refuses_what_it_does_not_heed(field: dict[str, Any]) -> None:
    body = {"prompt": "x", **field}
    assert read("completions", body).osl == 16
    with pytest.raises(Refused) as refused:
        read("completions", body, real=True)
    assert refused.value.param in field


def test_what_changes_nothing_is_taken_by_a_real_engine_too() -> None:
    assert read("completions", {"prompt": "x", "logprobs": None, "response_format": {"type": "text"}}, real=True).osl == 16
