"""Replies as real servers send them, well formed and not, with what must be read from each."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from tonnage.results.outcomes import UNFINISHED_END

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
CLOSING = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


@dataclass(frozen=True, kw_only=True)
class Case:
    """One reply.

    Attributes:
        raw: every byte of it.
        kind: the endpoint's kind.
        texts: output by event.
        tokens, prompt, cached: the usage; -1 where the reply does not say.
        finished, error: as in ``Reply``.
        keep_alive: whether the connection can be used again.
        broken: what the reader must say of it; "" where it is whole.
        failure, detail: why it has no whole output, and a part of the server's words; "" where it
            has one, or an ``error``.
    """

    raw: bytes
    kind: str = "chat"
    texts: list[str] = field(default_factory=list)
    tokens: int = -1
    prompt: int = -1
    cached: int = -1
    finished: bool = True
    error: str = ""
    keep_alive: bool = True
    status: int = 200
    broken: str = ""
    streaming: bool = True
    failure: str = ""
    detail: str = ""


def chunked(*parts: bytes, last: bytes = b"0\r\n\r\n") -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + last


def sse(document: Any, end: bytes = b"\n") -> bytes:
    text = (
        document
        if isinstance(document, bytes)
        else json.dumps(document, ensure_ascii=False).encode()
    )
    return b"data: " + text + end + end


def chat(text: str | None = None, finish: str | None = None, **delta: Any) -> dict[str, Any]:
    if text is not None:
        delta["content"] = text
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return {
        "id": "c-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [choice],
    }


def usage(tokens: int, prompt: int = 7) -> dict[str, Any]:
    counts = {"prompt_tokens": prompt, "completion_tokens": tokens, "total_tokens": prompt + tokens}
    return {
        "id": "c-1",
        "object": "chat.completion.chunk",
        "model": "m",
        "choices": [],
        "usage": counts,
    }


def usage_of_reasoning(tokens: int, reasoning: int, **further: Any) -> bytes:
    counts = usage(tokens)
    return sse(
        {
            **counts,
            "usage": {
                **counts["usage"],
                "completion_tokens_details": {"reasoning_tokens": reasoning},
                **further,
            },
        }
    )


DONE = sse(b"[DONE]")
PLAIN = [
    chat(role="assistant", text=""),
    *(chat(t) for t in (" one", " two", " three")),
    chat("", "stop"),
    usage(3),
]
STREAM = HEAD + chunked(*(sse(d) for d in PLAIN), DONE)
TOOL = {"index": 0, "id": "t", "type": "function", "function": {"name": "f", "arguments": ""}}
ARGUMENTS = {"index": 0, "function": {"arguments": '{"a":1}'}}
CREATED = {"type": "response.created", "response": {"usage": None}}
COMPLETED = {
    "type": "response.completed",
    "response": {
        "usage": {
            "input_tokens": 9,
            "output_tokens": 2,
            "input_tokens_details": {"cached_tokens": 4},
        },
        "error": None,
    },
}
WORDS = {"texts": [" one", " two", " three"], "tokens": 3, "prompt": 7}


def named(document: dict[str, Any]) -> bytes:
    return b"event: " + document["type"].encode() + b"\n" + sse(document)


def whole(document: Any, status: bytes = b"200 OK", extra: bytes = b"") -> bytes:
    body = json.dumps(document).encode()
    return b"HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%s\r\n%s" % (
        status,
        len(body),
        extra,
        body,
    )


def streamed(*parts: bytes, **expected: Any) -> Case:
    """A stream with so many chunks."""
    return Case(raw=HEAD + chunked(*parts), **expected)


CASES: dict[str, Case] = {
    "a plain stream": Case(raw=STREAM, **WORDS),
    "role-only first chunk without content": streamed(
        sse(chat(role="assistant")), sse(chat("x")), DONE, texts=["x"]
    ),
    "all events in one chunk": streamed(b"".join(sse(d) for d in PLAIN) + DONE, **WORDS),
    "an event over several chunks": streamed(
        *(bytes([b]) for b in sse({"choices": [{"delta": {"content": "a"}}]}) + DONE), texts=["a"]
    ),
    "several tokens in an event": streamed(
        sse(chat(" a b c d")),
        sse(chat(" e f g h")),
        sse(usage(8)),
        DONE,
        texts=[" a b c d", " e f g h"],
        tokens=8,
        prompt=7,
    ),
    "UTF-8 over events and pieces": streamed(
        sse(chat("häß")),
        sse(chat("日本")),
        sse(chat("🚢")),
        sse(chat("�")),
        DONE,
        texts=["häß", "日本", "🚢", "�"],
    ),
    "escaped text": streamed(
        *(
            sse(json.dumps(chat(t)).encode())
            for t in ("plain", '"', "\\", "\n", "é", "tab\t", "content")
        ),
        DONE,
        texts=["plain", '"', "\\", "\n", "é", "tab\t", "content"],
    ),
    "text that equals a key": streamed(
        *(sse(chat(t)) for t in ("id", "model", "m", "x")), DONE, texts=["id", "model", "m", "x"]
    ),
    "usage in every event": streamed(
        *(sse({**chat("ab"), "usage": usage(n)["usage"]}) for n in (2, 4, 7)),
        DONE,
        texts=["ab", "ab", "ab"],
        tokens=7,
        prompt=7,
    ),
    "finish with content": streamed(sse(chat("a")), sse(chat("b", "length")), texts=["a", "b"]),
    "empty deltas between": streamed(
        sse(chat("a")),
        sse(chat("")),
        sse(chat()),
        sse(chat(content=None)),
        sse(chat("b")),
        DONE,
        texts=["a", "b"],
    ),
    "reasoning before content": streamed(
        sse(chat(reasoning_content="hm")),
        sse(chat(reasoning="so")),
        sse(chat("x")),
        DONE,
        texts=["hm", "so", "x"],
    ),
    "tool calls": streamed(
        sse(chat(tool_calls=[TOOL])),
        sse(chat(tool_calls=[ARGUMENTS])),
        sse(chat(finish="tool_calls")),
        texts=["f", '{"a":1}'],
    ),
    "comments and pings": streamed(
        b": ping\n\n",
        sse(chat("a")),
        b":\n\n: two\n",
        sse(chat("b")),
        b"retry: 10\nid: 4\n\n",
        DONE,
        texts=["a", "b"],
    ),
    "CR LF lines": streamed(*(sse(d, b"\r\n") for d in PLAIN), sse(b"[DONE]", b"\r\n"), **WORDS),
    "CR lines": streamed(*(sse(d, b"\r") for d in PLAIN), sse(b"[DONE]", b"\r"), **WORDS),
    "mixed line ends": streamed(
        sse(PLAIN[1], b"\r\n"),
        sse(PLAIN[2], b"\n"),
        sse(PLAIN[3], b"\r"),
        sse(usage(3)),
        DONE,
        **WORDS,
    ),
    "no space after the colon": streamed(
        b"data:" + sse(chat("a"))[6:], b"data:[DONE]\n\n", texts=["a"]
    ),
    "data over two lines": streamed(
        b'data: {"choices":[{"index":0,\ndata: "delta":{"content":"a"}}]}\n\n', DONE, texts=["a"]
    ),
    "a byte order mark": streamed(b"\xef\xbb\xbf" + sse(chat("a")), DONE, texts=["a"]),
    "empty data": streamed(b"data: \n\n", b"data\n\n", sse(chat("a")), DONE, texts=["a"]),
    "[DONE] without its empty line": streamed(sse(chat("a")), b"data: [DONE]", texts=["a"]),
    "no [DONE]": streamed(sse(chat("a")), sse(chat(finish="stop")), texts=["a"]),
    "neither a finish reason nor [DONE]": streamed(
        sse(chat("a")), texts=["a"], finished=False, failure=UNFINISHED_END
    ),
    "finish reasons that are empty": streamed(
        sse(chat("a", "")), texts=["a"], finished=False, failure=UNFINISHED_END
    ),
    "an aborted output": streamed(
        sse(chat("a")),
        sse(chat(finish="abort")),
        DONE,
        texts=["a"],
        failure="aborted",
        detail="'abort'",
    ),
    "an abort that a later stop follows": streamed(
        sse(chat("a")),
        sse(chat(finish="abort")),
        sse(chat(finish="stop")),
        texts=["a"],
        failure="aborted",
    ),
    "one of two choices aborted": streamed(
        sse(
            {
                "choices": [
                    {"index": 0, "finish_reason": "error"},
                    {"index": 1, "delta": {"content": "a"}, "finish_reason": "stop"},
                ]
            }
        ),
        texts=["a"],
        failure="ended with an error",
    ),
    "an error of a choice": streamed(
        sse(chat("a")),
        sse(
            {
                "choices": [
                    {
                        "index": 0,
                        "delta": {},
                        "finish_reason": "error",
                        "error": {"code": 502, "message": "no provider"},
                    }
                ]
            }
        ),
        texts=["a"],
        error="no provider",
    ),
    "cancelled by the server": streamed(
        sse(chat("a", "cancelled")), texts=["a"], failure="cancelled by the server"
    ),
    "an output that a filter ended": streamed(sse(chat("a", "content_filter")), texts=["a"]),
    "an event named error": streamed(
        sse(chat("a")),
        b'event: error\ndata: {"message": "over\\nloaded"}\n\n',
        texts=["a"],
        finished=False,
        error="over loaded",
    ),
    "an event named error with plain words": streamed(
        sse(chat("a")),
        b"event:error\r\ndata: worker lost\r\n\r\n",
        DONE,
        texts=["a"],
        error="worker lost",
    ),
    "an event named error without data": streamed(
        sse(chat("a")), b"event: error\n\n", DONE, texts=["a"], error="an error without a message"
    ),
    "events with other names": streamed(
        *(b"event: message\n" + sse(chat(t)) for t in "ab"), DONE, texts=["a", "b"]
    ),
    "an error that is null": streamed(
        sse({**chat("a", "stop"), "error": None}),
        sse({**usage(1), "error": ""}),
        texts=["a"],
        tokens=1,
        prompt=7,
    ),
    "an error that is a message alone": streamed(
        sse({"message": "Not Found", "code": 404}), error="Not Found", finished=False
    ),
    "an error as frameworks write it": streamed(
        sse({"detail": [{"loc": ["body"], "msg": "no"}]}),
        error="[{'loc': ['body'], 'msg': 'no'}]",
        finished=False,
    ),
    "no text at all": streamed(
        sse(chat(role="assistant")),
        sse(chat(finish="stop")),
        usage_of_reasoning(20, 20),
        DONE,
        tokens=20,
        prompt=7,
        failure="no output",
        detail="20 of them reasoning",
    ),
    "a stream of comments": streamed(
        b": ping\n\n", b": ping\n\n", finished=False, failure="no output", detail=": ping"
    ),
    "JSON in place of a stream": Case(
        raw=whole({"error": {"message": "overloaded", "type": "server_error"}}),
        error="overloaded",
        finished=False,
    ),
    "a JSON object in place of a stream": Case(
        raw=whole({"status": "starting"}),
        finished=False,
        failure="JSON in place of a stream",
        detail='"starting"',
    ),
    "a whole reply in place of a stream": Case(
        raw=whole(
            {
                "choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}],
                "usage": usage(2)["usage"],
            }
        ),
        finished=False,
        failure="a whole reply in place of a stream",
    ),
    "an HTML page in place of a stream": Case(
        raw=(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length:"
            b" 61\r\n\r\n<html><head><title>Log  in</title></head><body></body></html>"
        ),
        finished=False,
        failure="an HTML page in place of a stream",
        detail="Log in",
    ),
    "lines of JSON in place of a stream": Case(
        raw=(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nContent-Length:"
            b' 26\r\n\r\n{"response": "a"}\n{"b": 1}'
        ),
        finished=False,
        failure="application/x-ndjson in place of a stream",
    ),
    "nothing in place of a stream": streamed(finished=False, failure="no output"),
    "a call of a function in the old form": streamed(
        sse(chat(function_call={"name": "f", "arguments": ""})),
        sse(chat(function_call={"arguments": "{}"})),
        sse(chat(finish="function_call")),
        texts=["f", "{}"],
    ),
    "contents in parts": streamed(
        sse(chat(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}])),
        sse(
            chat(
                content=[
                    {"type": "text", "text": "a"},
                    {"type": "text", "text": "b"},
                    {"type": "image_url", "image_url": {}},
                ]
            )
        ),
        sse(chat(content=[])),
        DONE,
        texts=["hm", "ab"],
    ),
    "details of reasoning": streamed(
        sse(chat(reasoning_details=[{"type": "reasoning.text", "text": "hm"}])),
        sse(chat(reasoning="so", reasoning_details=[{"type": "reasoning.text", "text": "so"}])),
        sse(chat(reasoning_details=[{"type": "reasoning.encrypted", "data": "b64"}])),
        sse(chat("x")),
        DONE,
        texts=["hm", "so", "x"],
    ),
    "a whole message in the last event": streamed(
        sse(chat("a")),
        sse({"choices": [{"delta": {}, "message": {"content": "a"}, "finish_reason": "stop"}]}),
        texts=["a"],
    ),
    "usage that is null": streamed(
        sse({**chat("a"), "usage": None}), sse({"choices": [], "usage": None}), DONE, texts=["a"]
    ),
    "an error in the stream": streamed(
        sse(chat("a")),
        sse({"error": {"message": "out of\nmemory", "code": 500}}),
        DONE,
        texts=["a"],
        error="out of memory",
    ),
    "vLLM's older error": streamed(sse({"object": "error", "message": "no"}), DONE, error="no"),
    "an error that is a text": streamed(
        sse({"error": "bad input"}), error="bad input", finished=False, kind="generate"
    ),
    "closed by the server": Case(
        raw=CLOSING + b"".join(sse(d) for d in PLAIN) + DONE, keep_alive=False, **WORDS
    ),
    "HTTP/1.0": Case(
        raw=b"HTTP/1.0 200 OK\r\n\r\n" + sse(chat("a")) + DONE, texts=["a"], keep_alive=False
    ),
    "a stated length": Case(
        raw=b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(sse(chat("a")) + DONE)
        + sse(chat("a"))
        + DONE,
        texts=["a"],
    ),
    "an interim response before it": Case(raw=b"HTTP/1.1 100 Continue\r\n\r\n" + STREAM, **WORDS),
    "chunk extensions and trailers": Case(
        raw=HEAD
        + b"".join(b"%x;a=b\r\n%s\r\n" % (len(e), e) for e in (sse(chat("a")), DONE))
        + b"0\r\nX-T: 1\r\n\r\n",
        texts=["a"],
    ),
    "sizes in capitals with zeros": Case(
        raw=HEAD
        + b"".join(b"00%X\r\n%s\r\n" % (len(e), e) for e in (sse(chat("a")), DONE))
        + b"000\r\n\r\n",
        texts=["a"],
    ),
    "two choices": streamed(
        sse({"choices": [{"delta": {"content": "a"}}, {"delta": {"content": "b"}}]}),
        DONE,
        texts=["ab"],
    ),
    "completions": streamed(
        *(sse({"choices": [{"text": t, "finish_reason": None}]}) for t in ("a", "", "b")),
        sse(usage(2)),
        DONE,
        texts=["a", "b"],
        tokens=2,
        prompt=7,
        kind="completions",
    ),
    "responses": streamed(
        named(CREATED),
        *(named({"type": "response.output_text.delta", "delta": t}) for t in ("a", "b")),
        named(COMPLETED),
        texts=["a", "b"],
        tokens=2,
        prompt=9,
        cached=4,
        kind="responses",
    ),
    "a response that failed": streamed(
        named({"type": "response.failed", "response": {"error": {"message": "late"}}}),
        error="late",
        kind="responses",
    ),
    "an error event of responses": streamed(
        named({"type": "error", "message": "broke"}),
        error="broke",
        finished=False,
        kind="responses",
    ),
    "generate": streamed(
        *(sse({"model_name": "m", "text_output": t}) for t in (" a", " b", "c")),
        texts=[" a", " b", "c"],
        finished=False,
        kind="generate",
    ),
    "a whole chat reply": Case(
        raw=whole(
            {
                "choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}],
                "usage": usage(2)["usage"],
            }
        ),
        texts=["hi"],
        tokens=2,
        prompt=7,
        streaming=False,
    ),
    "a whole chunked reply": streamed(
        *(bytes([b]) for b in json.dumps({"choices": [{"message": {"content": "hi"}}]}).encode()),
        texts=["hi"],
        finished=False,
        streaming=False,
    ),
    "a whole chat reply that was aborted": Case(
        raw=whole({"choices": [{"message": {"content": "hi"}, "finish_reason": "abort"}]}),
        texts=["hi"],
        streaming=False,
        failure="aborted",
    ),
    "a whole chat reply without text": Case(
        raw=whole(
            {
                "choices": [{"message": {"content": None}, "finish_reason": "stop"}],
                "usage": usage(0)["usage"],
            }
        ),
        tokens=0,
        prompt=7,
        streaming=False,
        failure="no output",
    ),
    "a response that a filter cut": streamed(
        named({"type": "response.output_text.delta", "delta": "a"}),
        named(
            {
                "type": "response.incomplete",
                "response": {
                    "status": "incomplete",
                    "incomplete_details": {"reason": "content_filter"},
                },
            }
        ),
        texts=["a"],
        kind="responses",
    ),
    "a response that was cancelled": streamed(
        named({"type": "response.output_text.delta", "delta": "a"}),
        named({"type": "response.cancelled", "response": {"status": "cancelled"}}),
        texts=["a"],
        kind="responses",
        failure="cancelled by the server",
    ),
    "a whole response": Case(
        raw=whole(
            {
                "output": [{"content": [{"type": "output_text", "text": "hi"}]}],
                "usage": {"input_tokens": 3, "output_tokens": 2},
            }
        ),
        texts=["hi"],
        tokens=2,
        prompt=3,
        streaming=False,
        kind="responses",
    ),
    "an embedding": Case(
        raw=whole(
            {"data": [{"embedding": [0.1]}], "usage": {"prompt_tokens": 5, "total_tokens": 5}}
        ),
        tokens=0,
        prompt=5,
        streaming=False,
        kind="embeddings",
    ),
    "429": Case(
        raw=whole({"error": {"message": "slow down"}}, b"429 Too Many Requests"),
        status=429,
        finished=False,
    ),
    "500 that closes": Case(
        raw=whole({"error": "x"}, b"500 Internal Server Error", b"Connection: close\r\n"),
        status=500,
        finished=False,
        keep_alive=False,
    ),
    "a redirect": Case(
        raw=b"HTTP/1.1 307 Temporary Redirect\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n",
        status=307,
        finished=False,
    ),
    "a stream cut off in an event": Case(
        raw=HEAD + chunked(sse(chat("a")), sse(chat("b")), last=b"")[:-20],
        texts=["a"],
        broken="cut off",
        finished=False,
        keep_alive=False,
    ),
    "a stream cut off between events": Case(
        raw=HEAD + chunked(sse(chat("a")), last=b""),
        texts=["a"],
        broken="cut off",
        finished=False,
        keep_alive=False,
    ),
    "a closed stream that ends in an event": Case(
        raw=CLOSING + sse(chat("a")) + b'data: {"choices":[{"del',
        texts=["a"],
        broken="not JSON",
        finished=False,
        keep_alive=False,
    ),
    "nothing at all": Case(
        raw=b"", status=0, broken="closed without a reply", finished=False, keep_alive=False
    ),
    "not HTTP": Case(
        raw=b"SSH-2.0-server\r\n\r\n",
        status=0,
        broken="not an HTTP/1.1 response",
        finished=False,
        keep_alive=False,
    ),
    "a chunk size that is none": Case(
        raw=HEAD + b"zz\r\n", broken="Invalid character in chunk size", finished=False
    ),
    "a chunk longer than its size": Case(
        raw=HEAD + b"5\r\n: abcdef\r\n", broken="Expected LF after chunk data", finished=False
    ),
    "a compressed body": Case(
        raw=b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n",
        broken="compressed",
        finished=False,
    ),
    "an event that is not JSON": streamed(sse(b"{oops"), broken="not JSON", finished=False),
    "an event of another shape": streamed(sse({"choices": 7}), broken="not JSON", finished=False),
}
