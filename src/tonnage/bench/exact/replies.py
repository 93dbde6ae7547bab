"""The bytes that the exact server sends for each kind of endpoint."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tonnage.errors import InputError

WORD = " tok"
"""The text of every token."""

_STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_LAST = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def document(status: str, value: Any) -> bytes:
    """A whole response with a JSON body."""
    body = json.dumps(value).encode()
    return b"HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (status.encode(), len(body), body)


def text(status: str, body: str) -> bytes:
    """A whole response with a plain body."""
    data = body.encode()
    return b"HTTP/1.1 %s\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s" % (status.encode(), len(data), data)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a request asks for.

    Attributes:
        kind: the endpoint's kind.
        number: the client's own number of it.
        model: as the client named it.
        streaming: whether the reply is a stream.
        tokens: output tokens asked for.
        prompt: prompt tokens: one for each word.
        usage: whether a stream ends with usage: OpenAI's servers send it where ``stream_options`` asks for it.
    """

    kind: str
    number: int
    model: str
    streaming: bool
    tokens: int
    prompt: int
    usage: bool = True


def asked_of(path: str, number: int, body: dict[str, Any]) -> Asked:
    """What a request asks for, by its path and body.

    Raises:
        InputError: a path or a body that no endpoint here takes.
    """
    kind = path.rsplit("/", 1)[-1]
    if path.endswith("/chat/completions"):
        kind, prompt = "chat", " ".join(str(message.get("content", "")) for message in body.get("messages", ()))
    elif kind in ("completions", "responses", "embeddings"):
        prompt = str(body.get("prompt", body.get("input", "")))
    elif kind in ("generate", "generate_stream") and "/models/" in path:
        kind, prompt = "generate", str(body.get("text_input", ""))
    else:
        raise InputError(f"no endpoint at {path}")
    tokens = next((body[name] for name in ("max_tokens", "max_completion_tokens", "max_output_tokens") if name in body), 16)
    if not isinstance(tokens, int) or tokens < 1:
        raise InputError(f"max_tokens: {tokens!r} is not a number of tokens")
    streaming = kind != "embeddings" and body.get("stream") is True
    options = body.get("stream_options")
    return Asked(
        kind=kind,
        number=number,
        model=str(body.get("model", "m")),
        streaming=streaming,
        tokens=tokens,
        prompt=len(prompt.split()),
        usage=isinstance(options, dict) and options.get("include_usage") is True,
    )


def opening(asked: Asked) -> bytes:
    """What a stream begins with, sent together with its first event: head, and the role or its like."""
    if asked.kind == "chat":
        return _STREAM_HEAD + chunk(_sse(_chat(asked, {"role": "assistant", "content": ""})))
    if asked.kind == "responses":
        return _STREAM_HEAD + chunk(_named({"type": "response.created", "response": {"id": f"r-{asked.number}"}}))
    return _STREAM_HEAD


def event(asked: Asked, tokens: int) -> bytes:
    """One event of so many tokens, as a chunk."""
    words = WORD * tokens
    if asked.kind == "chat":
        return chunk(_sse(_chat(asked, {"content": words})))
    if asked.kind == "completions":
        return chunk(_sse(_completion(asked, words)))
    if asked.kind == "responses":
        return chunk(_named({"type": "response.output_text.delta", "output_index": 0, "delta": words}))
    return chunk(_sse({"model_name": asked.model, "text_output": words}))


def closing(asked: Asked, tokens: int) -> bytes:
    """What a stream ends with, sent together with its last event: finish, usage, and the last chunk."""
    if asked.kind == "chat":
        usage = _sse({**_chat(asked, {}), "choices": [], "usage": _usage(asked, tokens)})
        return chunk(_sse(_chat(asked, {"content": ""}, "length"))) + _where(asked, usage) + chunk(b"data: [DONE]\n\n") + _LAST
    if asked.kind == "completions":
        usage = _sse({**_completion(asked, ""), "choices": [], "usage": _usage(asked, tokens)})
        return _where(asked, usage) + chunk(b"data: [DONE]\n\n") + _LAST
    if asked.kind == "responses":
        done = {"type": "response.completed", "response": {"usage": _short_usage(asked, tokens), "error": None}}
        return chunk(_named(done)) + _LAST
    return _LAST


def _where(asked: Asked, usage: bytes) -> bytes:
    """The chunk with usage, where it was asked for."""
    return chunk(usage) if asked.usage else b""


def failure(asked: Asked) -> bytes:
    """An error in the middle of a stream, and the stream's end."""
    error: dict[str, Any] = {"error": "on purpose"} if asked.kind == "generate" else {"error": {"message": "on purpose", "code": 500}}
    if asked.kind == "responses":
        return chunk(_named({"type": "error", "message": "on purpose"})) + _LAST
    return chunk(_sse(error)) + _LAST


def whole(asked: Asked, tokens: int) -> bytes:
    """A reply that is not a stream."""
    words = WORD * tokens
    bodies: dict[str, Any] = {
        "chat": {
            "choices": [{"message": {"role": "assistant", "content": words}, "finish_reason": "length"}],
            "usage": _usage(asked, tokens),
        },
        "completions": {"choices": [{"text": words, "finish_reason": "length"}], "usage": _usage(asked, tokens)},
        "responses": {"output": [{"content": [{"type": "output_text", "text": words}]}], "usage": _short_usage(asked, tokens)},
        "embeddings": {"data": [{"embedding": [0.0] * 8}], "usage": {"prompt_tokens": asked.prompt}},
        "generate": {"model_name": asked.model, "text_output": words},
    }
    return document("200 OK", bodies[asked.kind])


def _sse(value: Any) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def _named(value: dict[str, Any]) -> bytes:
    return b"event: " + str(value["type"]).encode() + b"\n" + _sse(value)


def _chat(asked: Asked, delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return {
        "id": f"chatcmpl-{asked.number:032x}",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": asked.model,
        "choices": [choice],
    }


def _completion(asked: Asked, words: str) -> dict[str, Any]:
    choice = {"index": 0, "text": words, "logprobs": None, "finish_reason": None}
    return {"id": f"cmpl-{asked.number:032x}", "object": "text_completion", "created": 1, "model": asked.model, "choices": [choice]}


def _usage(asked: Asked, tokens: int) -> dict[str, int]:
    return {"prompt_tokens": asked.prompt, "completion_tokens": tokens, "total_tokens": asked.prompt + tokens}


def _short_usage(asked: Asked, tokens: int) -> dict[str, int]:
    return {"input_tokens": asked.prompt, "output_tokens": tokens, "total_tokens": asked.prompt + tokens}
