"""What a body of the API asks for, and what is refused with an error of vLLM's form."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.serve.dialect import OF_VLLM, Refused
from tonnage.serve.request import PER_MESSAGE, Asked, Counted, Kind, asked_of


def read(kind: Kind, body: Any, max_context: int = 1000) -> Asked:
    return asked_of(kind, body, reader=Counted(lambda text: len(text.split())), max_context=max_context, default_osl=64)


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
    assert asked.isl == 2 + 3 + 2 * PER_MESSAGE
    assert (asked.osl, asked.choices, asked.stream, asked.usage, asked.stop) == (7, 2, True, True, ("x",))


@pytest.mark.parametrize(
    ("prompt", "isl"),
    [("a b c", (3,)), ([5, 6, 7, 8], (4,)), (["a b", "c"], (2, 1)), ([[1, 2], [3]], (2, 1)), ("", (1,))],
)
def test_a_prompt_is_text_or_token_ids_or_a_list_of_them(prompt: Any, isl: tuple[int, ...]) -> None:
    assert tuple(one.tokens for one in read("completions", {"prompt": prompt}).prompts) == isl


@pytest.mark.parametrize(("isl", "osl", "param"), [(100, 1, "input_tokens"), (120, 1, "input_tokens"), (10, 101, "max_tokens")])
def test_what_exceeds_the_context_is_refused_as_vllm_refuses_it(isl: int, osl: int, param: str) -> None:
    with pytest.raises(Refused) as refused:
        read("completions", {"prompt": list(range(isl)), "max_tokens": osl}, max_context=100)
    error = refused.value.to_json(OF_VLLM)["error"]
    assert (error["code"], error["type"], error["param"]) == (400, "BadRequestError", param)
    assert "maximum context length" in error["message"]


def test_an_output_that_the_context_cuts_short_is_as_long_as_it_leaves_room_for() -> None:
    """vLLM 0.32 answered 2,000 tokens after a prompt of 100 with 1,948, in a context of 2,048 (tests/engines/test_shapes.py)."""
    assert read("completions", {"prompt": list(range(90)), "max_tokens": 20}, max_context=100).osl == 10
    assert read("completions", {"prompt": list(range(90)), "max_tokens": 10}, max_context=100).osl == 10


@pytest.mark.parametrize(
    ("kind", "body", "param"),
    [
        ("chat", {}, "messages"),
        ("chat", {"messages": [{"content": "x"}]}, "messages"),
        ("chat", {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages"),
        ("completions", {"prompt": None}, "prompt"),
        ("completions", {"prompt": []}, "prompt"),
        ("completions", {"prompt": "x", "max_tokens": 0}, "max_tokens"),
        ("completions", {"prompt": "x", "max_tokens": True}, "max_tokens"),
        ("completions", {"prompt": "x", "n": 1000}, "n"),
        ("completions", {"prompt": [["x"]]}, "prompt"),
        ("completions", {"prompt": [-1]}, "prompt"),
        ("completions", {"prompt": ["x"] * 129}, "prompt"),
        ("completions", {"prompt": "x", "temperature": 2.1}, "temperature"),
        ("completions", {"prompt": "x", "temperature": "hot"}, "temperature"),
        ("completions", {"prompt": "x", "top_p": 0}, "top_p"),
        ("completions", {"prompt": "x", "top_k": 0.5}, "top_k"),
        ("completions", {"prompt": "x", "seed": True}, "seed"),
        ("completions", {"prompt": "x", "ignore_eos": 1}, "ignore_eos"),
        ("completions", {"prompt": "x", "max_tokens": 4, "min_tokens": 5}, "min_tokens"),
        ("completions", {"prompt": "x", "stop_token_ids": [-1]}, "stop_token_ids"),
        ("completions", {"prompt": "x", "stop_token_ids": 3}, "stop_token_ids"),
        ("completions", {"prompt": "x", "stream": "yes"}, "stream"),
        ("completions", {"prompt": "x", "stop": [""]}, "stop"),
        ("completions", [], "body"),
    ],
)
def test_what_cannot_be_is_refused_by_name(kind: Kind, body: Any, param: str | None) -> None:
    with pytest.raises(Refused) as refused:
        read(kind, body)
    assert refused.value.param == param
    assert refused.value.status == 400


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=8,
)
NAMES = [
    *("prompt", "messages", "max_tokens", "temperature", "top_k", "seed", "min_tokens", "stop_token_ids", "tools", "logprobs"),
    *("n", "stream", "stream_options", "stop", "user", "model"),
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
    assert status == 400


@pytest.mark.parametrize(
    "field",
    [{"logprobs": True}, {"logprobs": 3}, {"tools": [{"type": "function"}]}, {"response_format": {"type": "json_object"}}, {"best_of": 2}],
    ids=lambda field: next(iter(field)),
)
def test_a_real_engine_refuses_what_it_does_not_heed(field: dict[str, Any]) -> None:
    body = {"prompt": "x", **field}
    assert read("completions", body).osl == 64  # the words of a simulated one mean nothing anyway
    with pytest.raises(Refused) as refused:
        asked_of("completions", body, reader=Counted(len), max_context=1000, default_osl=64, real=True)
    assert refused.value.param in field


def test_what_changes_nothing_is_taken_by_a_real_engine_too() -> None:
    body = {"prompt": "x", "logprobs": None, "tools": [], "best_of": 1, "response_format": {"type": "text"}}
    assert asked_of("completions", body, reader=Counted(len), max_context=1000, default_osl=64, real=True).osl == 64


def test_without_a_default_an_answer_may_fill_the_context() -> None:
    assert asked_of("completions", {"prompt": [1] * 300}, reader=Counted(len), max_context=1000, default_osl=0).osl == 700
