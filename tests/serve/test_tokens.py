"""Tokens of a simulated engine."""

from __future__ import annotations

from tests.serve.bodies import read


def test_a_chat_that_goes_on_begins_with_the_tokens_of_what_was_said() -> None:
    first = [{"role": "user", "content": "one two three"}]
    then = [
        *first,
        {"role": "assistant", "content": " day way"},
        {"role": "user", "content": "four"},
    ]
    before, after = (read("chat", {"messages": said}).prompts[0].ids for said in (first, then))
    assert after[: len(before)] == before
