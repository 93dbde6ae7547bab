"""Bytes of the exact server's replies."""

from __future__ import annotations

import pytest

from tonnage.bench.exact_replies import closing, parse_request


def test_the_exact_server_sends_usage_where_it_is_asked_for() -> None:
    """As OpenAI's servers do: a stream without ``stream_options`` ends without it."""
    plain = {"model": "m", "max_tokens": 3, "stream": True, "messages": [{"content": "a b"}]}
    asked = {**plain, "stream_options": {"include_usage": True}}
    without, with_it = (
        closing(parse_request("/v1/chat/completions", 0, body), 3) for body in (plain, asked)
    )
    assert b"usage" not in without
    assert b'"completion_tokens": 3' in with_it
    assert without.endswith(b"0\r\n\r\n")
    assert b"[DONE]" in without
    assert [
        with_it.count(word) for word in (b'"finish_reason": "length"', b'"usage"', b"[DONE]")
    ] == [1, 1, 1]
    assert with_it.index(b"finish_reason") < with_it.index(b'"usage"') < with_it.index(b"[DONE]")


@pytest.mark.parametrize("options", [{}, {"stream_options": {"include_usage": True}}])
def test_a_stream_of_words_ends_with_its_usage_where_that_is_requested(
    options: dict[str, object],
) -> None:
    ending = closing(
        parse_request(
            "/v1/completions",
            0,
            {"model": "m", "max_tokens": 3, "stream": True, "prompt": "a b", **options},
        ),
        3,
    )
    assert ending.count(b'"completion_tokens": 3') == len(options)
    assert ending.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
