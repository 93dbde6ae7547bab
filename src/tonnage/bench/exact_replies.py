"""What the exact server reads and writes: requests in, and the bytes of a reply for each kind of
endpoint out.

A connection writes at once, without a buffer between a stamp and its packet.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tonnage.errors import InputError

WORD = " tok"  # The text of every token

_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
)
_LAST = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def document(status: str, value: Any) -> bytes:
    """A whole response with a JSON body."""
    body = json.dumps(value).encode()
    return b"HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (
        status.encode(),
        len(body),
        body,
    )


def text(status: str, body: str) -> bytes:
    """A whole response with a plain body."""
    data = body.encode()
    return b"HTTP/1.1 %s\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s" % (
        status.encode(),
        len(data),
        data,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The fields of a request that decide its reply."""

    kind: str
    number: int  # the client's own number of it
    model: str  # as the client named it
    streaming: bool  # whether the reply is a stream
    tokens: int  # output tokens asked for
    prompt: int  # prompt tokens: one for each word
    # whether a stream ends with usage: OpenAI's servers send it where ``stream_options`` asks for
    # it
    usage: bool = True


def parse_request(path: str, number: int, body: dict[str, Any]) -> Request:
    """What a request asks for, by its path and body. Raises InputError: a path or a body that no
    endpoint here takes.
    """
    kind = path.rsplit("/", 1)[-1]
    if path.endswith("/chat/completions"):
        kind, prompt = (
            "chat",
            " ".join(str(message.get("content", "")) for message in body.get("messages", ())),
        )
    elif kind in ("completions", "responses", "embeddings"):
        prompt = str(body.get("prompt", body.get("input", "")))
    elif kind in ("generate", "generate_stream") and "/models/" in path:
        kind, prompt = "generate", str(body.get("text_input", ""))
    else:
        raise InputError(f"no endpoint at {path}")
    tokens = next(
        (
            body[name]
            for name in ("max_tokens", "max_completion_tokens", "max_output_tokens")
            if name in body
        ),
        16,
    )
    if not isinstance(tokens, int) or tokens < 1:
        raise InputError(f"max_tokens: {tokens!r} is not a number of tokens")
    streaming = kind != "embeddings" and body.get("stream") is True
    options = body.get("stream_options")
    return Request(
        kind=kind,
        number=number,
        model=str(body.get("model", "m")),
        streaming=streaming,
        tokens=tokens,
        prompt=len(prompt.split()),
        usage=isinstance(options, dict) and options.get("include_usage") is True,
    )


def opening(request: Request) -> bytes:
    """The beginning of a stream, sent together with its first event: the head, and the role or its
    like.
    """
    if request.kind == "chat":
        return _STREAM_HEAD + chunk(_sse(_chat(request, {"role": "assistant", "content": ""})))
    if request.kind == "responses":
        return _STREAM_HEAD + chunk(
            _named({"type": "response.created", "response": {"id": f"r-{request.number}"}})
        )
    return _STREAM_HEAD


def event(request: Request, tokens: int) -> bytes:
    """One event of ``tokens`` tokens, as a chunk."""
    words = WORD * tokens
    if request.kind == "chat":
        return chunk(_sse(_chat(request, {"content": words})))
    if request.kind == "completions":
        return chunk(_sse(_completion(request, words)))
    if request.kind == "responses":
        return chunk(
            _named({"type": "response.output_text.delta", "output_index": 0, "delta": words})
        )
    return chunk(_sse({"model_name": request.model, "text_output": words}))


def closing(request: Request, tokens: int) -> bytes:
    """The end of a stream, sent together with its last event: finish, usage, and the last chunk."""
    if request.kind == "chat":
        usage = _sse({**_chat(request, {}), "choices": [], "usage": _usage(request, tokens)})
        return (
            chunk(_sse(_chat(request, {"content": ""}, "length")))
            + _where(request, usage)
            + chunk(b"data: [DONE]\n\n")
            + _LAST
        )
    if request.kind == "completions":
        usage = _sse({**_completion(request, ""), "choices": [], "usage": _usage(request, tokens)})
        return _where(request, usage) + chunk(b"data: [DONE]\n\n") + _LAST
    if request.kind == "responses":
        done = {
            "type": "response.completed",
            "response": {"usage": _short_usage(request, tokens), "error": None},
        }
        return chunk(_named(done)) + _LAST
    return _LAST


def _where(request: Request, usage: bytes) -> bytes:
    """The chunk with usage, where it was requested."""
    return chunk(usage) if request.usage else b""


def failure(request: Request) -> bytes:
    """An error in the middle of a stream, and the stream's end."""
    error: dict[str, Any] = (
        {"error": "on purpose"}
        if request.kind == "generate"
        else {"error": {"message": "on purpose", "code": 500}}
    )
    if request.kind == "responses":
        return chunk(_named({"type": "error", "message": "on purpose"})) + _LAST
    return chunk(_sse(error)) + _LAST


def whole(request: Request, tokens: int) -> bytes:
    """A reply that is not a stream."""
    words = WORD * tokens
    bodies: dict[str, Any] = {
        "chat": {
            "choices": [
                {"message": {"role": "assistant", "content": words}, "finish_reason": "length"}
            ],
            "usage": _usage(request, tokens),
        },
        "completions": {
            "choices": [{"text": words, "finish_reason": "length"}],
            "usage": _usage(request, tokens),
        },
        "responses": {
            "output": [{"content": [{"type": "output_text", "text": words}]}],
            "usage": _short_usage(request, tokens),
        },
        "embeddings": {
            "data": [{"embedding": [0.0] * 8}],
            "usage": {"prompt_tokens": request.prompt},
        },
        "generate": {"model_name": request.model, "text_output": words},
    }
    return document("200 OK", bodies[request.kind])


def _sse(value: Any) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def _named(value: dict[str, Any]) -> bytes:
    return b"event: " + str(value["type"]).encode() + b"\n" + _sse(value)


def _chat(request: Request, delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return {
        "id": f"chatcmpl-{request.number:032x}",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": request.model,
        "choices": [choice],
    }


def _completion(request: Request, words: str) -> dict[str, Any]:
    choice = {"index": 0, "text": words, "logprobs": None, "finish_reason": None}
    return {
        "id": f"cmpl-{request.number:032x}",
        "object": "text_completion",
        "created": 1,
        "model": request.model,
        "choices": [choice],
    }


def _usage(request: Request, tokens: int) -> dict[str, int]:
    return {
        "prompt_tokens": request.prompt,
        "completion_tokens": tokens,
        "total_tokens": request.prompt + tokens,
    }


def _short_usage(request: Request, tokens: int) -> dict[str, int]:
    return {
        "input_tokens": request.prompt,
        "output_tokens": tokens,
        "total_tokens": request.prompt + tokens,
    }


MAX_REQUEST = 67_108_864


class Connection:
    """A socket that is read as HTTP/1.1 requests and written to directly.

    ``send`` calls the kernel before it returns, so that a stamp taken before it is the earliest
    moment at which a client could have seen the bytes. What the kernel does not take waits and
    follows in order.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        peer: socket.socket,
        request: Callable[[Connection, str, str, dict[str, str], Any], None],
        closed: Callable[[Connection], None],
    ) -> None:
        self._loop = loop
        self._peer = peer
        self._on_request = request
        self._closed = closed
        self._read = bytearray()
        self._waiting = bytearray()
        self.open = True
        loop.add_reader(peer, self._readable)

    def send(self, data: bytes) -> None:
        """Write now; nothing happens on a connection that has ended."""
        if not self.open:
            return
        sent = 0
        if not self._waiting:
            try:
                sent = self._peer.send(data)
            except (BlockingIOError, InterruptedError):
                sent = 0
            except OSError:
                self.close()
                return
        if sent < len(data):
            if not self._waiting:
                self._loop.add_writer(self._peer, self._writable)
            self._waiting += data[sent:]

    def close(self) -> None:
        """End the connection."""
        if not self.open:
            return
        self.open = False
        self._loop.remove_reader(self._peer)
        self._loop.remove_writer(self._peer)
        self._peer.close()
        self._closed(self)

    def _writable(self) -> None:
        try:
            sent = self._peer.send(self._waiting)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.close()
            return
        del self._waiting[:sent]
        if not self._waiting:
            self._loop.remove_writer(self._peer)

    def _readable(self) -> None:
        try:
            data = self._peer.recv(262_144)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        self._read += data
        if not data or len(self._read) > MAX_REQUEST:
            self.close()
            return
        while self.open and self._hand_on_request():
            pass

    def _hand_on_request(self) -> bool:
        """Hand on one complete request; False where none is there."""
        end = self._read.find(b"\r\n\r\n")
        if end < 0:
            return False
        first, *lines = bytes(self._read[:end]).decode("latin-1").split("\r\n")
        headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines)
        }
        words = first.split(" ")
        length = headers.get("content-length", "0")
        if len(words) != 3 or not length.isdigit():
            self.close()
            return False
        stop = end + 4 + int(length)
        if len(self._read) < stop:
            return False
        body = bytes(self._read[end + 4 : stop])
        del self._read[:stop]
        try:
            value = json.loads(body) if body else {}
        except ValueError:
            value = None
        self._on_request(self, words[0], words[1], headers, value)
        return True
