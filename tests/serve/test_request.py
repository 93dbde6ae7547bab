"""Requests of the OpenAI API, read and checked."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.serve.bodies import read
from tonnage.serve.dialect import Refused
from tonnage.serve.request import Kind
from tonnage.serve.tokens import PER_CHAT, PER_MESSAGE


def test_a_chat_counts_its_messages_and_what_a_template_adds() -> None:
    body = {
        "model": "m",
        "messages": [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": [{"type": "text", "text": "one two three"}]},
        ],
        "max_completion_tokens": 7,
        "max_tokens": 9,
        "stream": True,
        "stream_options": {"include_usage": True},
        "stop": "x",
        "n": 2,
    }
    asked = read("chat", body)
    assert asked.isl == 2 + 4 + 2 * PER_MESSAGE + PER_CHAT
    assert (asked.osl, asked.choices, asked.stream, asked.usage, asked.stop) == (
        7,
        2,
        True,
        True,
        ("x",),
    )


def test_an_output_that_the_context_cuts_short_is_as_long_as_it_leaves_room_for() -> None:
    """vLLM 0.32 answered 2,000 tokens after a prompt of 100 with 1,948, in a context of 2,048."""
    assert (
        read("completions", {"prompt": list(range(90)), "max_tokens": 20}, max_context=100).osl
        == 10
    )
    assert (
        read("completions", {"prompt": list(range(90)), "max_tokens": 10}, max_context=100).osl
        == 10
    )
    assert read("completions", {"prompt": [1] * 300}).osl == 16
    assert read("chat", {"messages": [{"role": "user", "content": "x" * 400}]}).osl == 1000 - 106
    assert read("chat", {"messages": [{"role": "user", "content": "x"}]}, default_osl=64).osl == 64


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.floats(allow_nan=False)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=8,
)

NAMES = [
    *(
        "prompt",
        "messages",
        "max_tokens",
        "temperature",
        "top_k",
        "seed",
        "min_tokens",
        "stop_token_ids",
        "tools",
        "logprobs",
    ),
    *(
        "n",
        "stream",
        "stream_options",
        "stop",
        "user",
        "model",
        "tool_choice",
        "response_format",
        "structured_outputs",
        "logit_bias",
    ),
]


@given(
    kind=st.sampled_from(["chat", "completions"]),
    body=st.dictionaries(st.sampled_from(NAMES), JSON) | JSON,
)
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
