"""What the official client does with a server, whichever engine answers there: the same requests,
the same shapes."""

from __future__ import annotations

import functools
from typing import Any

import openai
import pytest

Shape = Any
"""A document with the types of its values in place of them."""

QUIET = {
    "system_fingerprint",
    "service_tier",
    "prompt_token_ids",
    "token_ids",
    "kv_transfer_params",
    "stop_reason",
    "prompt_logprobs",
}
"""Fields that one engine gives and another does not, and that clients need not read."""


@functools.cache
def client(url: str) -> openai.OpenAI:
    """A client that does not try again; one for each server, whose connections the collector does
    not close in another test."""
    return openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=60)


def shape(value: Any) -> Shape:
    """The shape of a document: keys and types."""
    if isinstance(value, dict):
        return {
            name: shape(one)
            for name, one in sorted(value.items())
            if one is not None and name not in QUIET
        }
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return type(value).__name__


def completes(url: str, model: str) -> dict[str, Shape]:
    """Whole answers of both endpoints, checked; their shapes."""
    c = client(url)
    text = c.completions.create(
        model=model,
        prompt="the quick brown fox",
        max_tokens=6,
        temperature=0,
        extra_body={"ignore_eos": True},
    )
    assert text.choices[0].finish_reason == "length"
    assert text.usage.completion_tokens == 6
    assert text.usage.total_tokens == text.usage.prompt_tokens + 6
    chat = c.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": "the fox"}],
        max_tokens=5,
        temperature=0,
        extra_body={"ignore_eos": True},
    )
    assert chat.choices[0].message.role == "assistant"
    assert isinstance(chat.choices[0].message.content, str)
    assert chat.usage.completion_tokens == 5
    ids = c.completions.create(
        model=model, prompt=[5, 6, 7], max_tokens=2, extra_body={"ignore_eos": True}
    )
    assert ids.usage.prompt_tokens == 3
    several = c.completions.create(
        model=model,
        prompt=["the", "the fox"],
        n=2,
        max_tokens=2,
        seed=1,
        extra_body={"ignore_eos": True},
    )
    assert [choice.index for choice in several.choices] == [0, 1, 2, 3]
    assert several.usage.completion_tokens == 8
    return {"completion": shape(text.model_dump()), "chat": shape(chat.model_dump())}


def streams(url: str, model: str) -> dict[str, Shape]:
    """Streams of both endpoints, checked against the whole answers; the shapes of their chunks."""
    c = client(url)
    asked: Any = {
        "model": model,
        "max_tokens": 8,
        "temperature": 0,
        "stream_options": {"include_usage": True},
    }
    more = {"ignore_eos": True}
    chunks = list(c.completions.create(prompt="the quick", stream=True, extra_body=more, **asked))
    assert chunks[-1].usage.completion_tokens == 8
    assert [x.choices[0].finish_reason for x in chunks if x.choices][-1] == "length"
    messages: Any = [{"role": "user", "content": "the quick"}]
    chat = list(c.chat.completions.create(messages=messages, stream=True, extra_body=more, **asked))
    assert chat[0].choices[0].delta.role == "assistant"
    assert chat[-1].usage.completion_tokens == 8
    assert not chat[-1].choices
    return {"completion": shape(chunks[1].model_dump()), "chat": shape(chat[1].model_dump())}


def refuses(url: str, model: str) -> None:
    """Errors arrive as the client's own classes, with the API's words."""
    c = client(url)
    with pytest.raises(openai.NotFoundError, match="does not exist"):
        c.completions.create(model="another", prompt="x")
    with pytest.raises(openai.BadRequestError, match="max_model_len"):
        c.completions.create(model=model, prompt="x", max_tokens=10_000_000)
    with pytest.raises(openai.BadRequestError):
        c.completions.create(model=model, prompt="x", temperature=7)
    with pytest.raises(openai.BadRequestError):
        c.chat.completions.create(model=model, messages=[])


def leaves(url: str, model: str) -> None:
    """A client that closes its stream after a few tokens."""
    stream = client(url).completions.create(
        model=model, prompt="the", max_tokens=1500, stream=True, extra_body={"ignore_eos": True}
    )
    for count, _ in enumerate(stream):
        if count == 3:
            break
    stream.close()
