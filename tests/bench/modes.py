"""A server on this machine whose replies are as odd as real ones: the name of the model picks
how."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tests.bench.corpus import DONE, HEAD, chat, sse, usage, usage_of_reasoning, whole

TOKENS = 20
Steps = list[tuple[float, bytes]]
"""What is written when: seconds after the request, in chunks of a chunked body where the mode has
no head of its own."""


@dataclass(frozen=True, kw_only=True)
class Mode:
    """One way to answer, and what must be said of it.

    Attributes:
        steps: the body, from the seconds to the first token and between two.
        head: what comes before it; the body is chunked where it is None.
        end: what comes behind it; the connection is closed or reset behind "close" and "reset".
        failure: why every request failed; "" where every one completed.
        detail: a part of the server's words on the failure.
        ttft, e2e: in tokens' time: TTFT is ``first`` + ttft gaps, E2E ``first`` + e2e gaps.
        tpot: TPOT in gaps; None where it means nothing.
        osl: tokens of each output.
        reason, note: a part of what the verdict must hold; a reason makes the run invalid.
    """

    steps: Callable[[float, float], Steps]
    head: bytes | None = None
    end: str = "terminated"
    failure: str = ""
    detail: str = ""
    ttft: float = 0.0
    e2e: float = TOKENS - 1
    tpot: float | None = 1.0
    osl: int = TOKENS
    reason: str = ""
    note: str = ""
    flags: tuple[str, ...] = field(default=())


def text(place: int) -> str:
    return f"a{place} "


def usage_chunk(tokens: int = TOKENS) -> bytes:
    return sse(usage(tokens))


Made = Callable[[int], Any]
END = (sse(chat(finish="length")), usage_chunk(), DONE)


def timed(
    made: Made,
    first: float,
    gap: float,
    *,
    count: int = TOKENS,
    before: bytes = b"",
    end: tuple[bytes, ...] = END,
) -> Steps:
    """So many events a gap apart, with something before the first and something behind the last."""
    events = [made(place) for place in range(count)]
    steps = [
        (first + place * gap, event if isinstance(event, bytes) else sse(event))
        for place, event in enumerate(events)
    ]
    head = [(first / 10, before)] if before else []
    return [*head, *steps, (first + (count - 1) * gap, b"".join(end))]


def plain(
    made: Made = lambda place: chat(text(place)), **how: Any
) -> Callable[[float, float], Steps]:
    return partial(_plain, made, how)


def _plain(made: Made, how: dict[str, Any], first: float, gap: float) -> Steps:
    return timed(made, first, gap, **how)


def at_once(first: float, gap: float) -> Steps:
    moment = first + (TOKENS - 1) * gap
    return [(moment, b"".join(sse(chat(text(place))) for place in range(TOKENS)) + b"".join(END))]


def late_usage(first: float, gap: float) -> Steps:
    last = first + (TOKENS - 1) * gap
    return [
        *timed(lambda place: chat(text(place)), first, gap, end=(sse(chat(finish="length")),)),
        (last + 40 * gap, usage_chunk() + DONE),
    ]


def two_choices(place: int) -> bytes:
    return b"".join(
        sse({"choices": [{"index": k, "delta": {"content": text(place)}}]}) for k in (0, 1)
    )


def thinking(place: int) -> Any:
    if place < TOKENS // 2:
        return chat(
            content=[{"type": "thinking", "thinking": [{"type": "text", "text": text(place)}]}]
        )
    return chat(content=[{"type": "text", "text": text(place)}])


def split(first: float, gap: float) -> Steps:
    """Every event in two writes that cut a character of three bytes."""
    steps: Steps = []
    for place in range(TOKENS):
        event = sse(chat("日"))
        cut = event.index("日".encode()) + 1
        steps += [(first + place * gap, event[:cut]), (first + place * gap, event[cut:])]
    return [*steps, (first + (TOKENS - 1) * gap, b"".join(END))]


def refusing(status: bytes, document: Any, extra: bytes = b"") -> bytes:
    return whole(document, status, extra)


nothing: Callable[[float, float], Steps] = lambda first, gap: []  # noqa: E731 a body of nothing
FAILED_STREAM = {"e2e": 0.0, "tpot": None}
HTML = b"<html><head><title>502 Bad  Gateway</title></head><body><h1>nginx</h1></body></html>"
PLAIN_OK = b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s"

MODES: dict[str, Mode] = {
    "ok": Mode(steps=plain()),
    "role": Mode(steps=plain(before=sse(chat(role="assistant")))),
    "empty": Mode(steps=plain(before=sse(chat("", role="assistant")))),
    "null content": Mode(
        steps=plain(
            lambda place: chat(text(place), tool_calls=None, reasoning_content=None),
            before=sse(chat(content=None)),
        )
    ),
    "null choices": Mode(
        steps=plain(lambda place: sse(chat(text(place))) + sse({"choices": None}))
    ),
    "reasoning": Mode(
        steps=plain(
            lambda place: chat(**{"reasoning_content" if place < 10 else "content": text(place)})
        )
    ),
    "reasoning that is counted and sent": Mode(
        steps=plain(
            lambda place: chat(**{"reasoning" if place < 10 else "content": text(place)}),
            end=(sse(chat(finish="stop")), usage_of_reasoning(TOKENS, 10), DONE),
        )
    ),
    "details of reasoning": Mode(
        steps=plain(
            lambda place: (
                chat(reasoning_details=[{"type": "reasoning.text", "text": text(place)}])
                if place < 10
                else chat(text(place))
            )
        )
    ),
    "hidden": Mode(
        steps=plain(end=(sse(chat(finish="stop")), usage_of_reasoning(220, 200), DONE)),
        note="were not sent",
    ),
    "hidden and counted apart": Mode(
        steps=plain(
            end=(
                sse(chat(finish="stop")),
                usage_of_reasoning(TOKENS, 200, total_tokens=7 + TOKENS + 200),
                DONE,
            )
        ),
        note="were not sent",
    ),
    "hidden without a word": Mode(
        steps=plain(end=(sse(chat(finish="stop")), usage_chunk(1000), DONE)), note="were not sent"
    ),
    "hidden summaries": Mode(
        steps=plain(
            lambda place: (
                chat(reasoning_details=[{"type": "reasoning.summary", "summary": "Let me see "}])
                if not place
                else chat(text(place))
            ),
            end=(sse(chat(finish="stop")), usage_of_reasoning(220, 200), DONE),
        ),
        note="were not sent",
    ),
    "parts": Mode(steps=plain(thinking)),
    "tool calls": Mode(
        steps=plain(
            lambda place: chat(
                tool_calls=[
                    {
                        "index": 0,
                        "function": {"arguments": text(place)}
                        if place
                        else {"name": "f", "arguments": ""},
                    }
                ]
            ),
            end=(sse(chat(finish="tool_calls")), usage_chunk(), DONE),
        )
    ),
    "a call in the old form": Mode(
        steps=plain(
            lambda place: chat(
                function_call={"arguments": text(place)}
                if place
                else {"name": "f", "arguments": ""}
            ),
            end=(sse(chat(finish="function_call")), usage_chunk(), DONE),
        )
    ),
    "no usage": Mode(
        steps=plain(end=(sse(chat(finish="length")), DONE)), note="counted as one an event"
    ),
    "usage null": Mode(
        steps=plain(
            lambda place: {**chat(text(place)), "usage": None},
            end=(sse(chat(finish="length")), DONE),
        ),
        note="counted as one an event",
    ),
    "usage of zeros": Mode(
        steps=plain(end=(sse(chat(finish="stop")), usage_chunk(0), DONE)),
        reason="0 tokens long by the server's count",
    ),
    "usage in every event": Mode(
        steps=plain(lambda place: {**chat(text(place)), "usage": usage(place + 1)["usage"]})
    ),
    "usage on the last content": Mode(
        steps=plain(
            lambda place: (
                chat(text(place))
                if place < TOKENS - 1
                else {**chat(text(place), "length"), "usage": usage(TOKENS)["usage"]}
            ),
            end=(),
        )
    ),
    "late usage": Mode(steps=late_usage),
    "usage of too few": Mode(
        steps=plain(end=(sse(chat(finish="stop")), usage_chunk(5), DONE)),
        osl=5,
        tpot=19 / 4,
        reason="were pinned (5 tokens",
    ),
    "batches": Mode(
        steps=lambda first, gap: timed(lambda place: chat("a b c d "), first, 4 * gap, count=5),
        e2e=16,
        tpot=16 / 19,
        note="4.00 tokens an event",
    ),
    "batches of events": Mode(
        steps=lambda first, gap: timed(
            lambda place: sse(chat(text(place))) * 4, first, 4 * gap, count=5
        ),
        e2e=16,
        tpot=16 / 19,
        note="came together with the one before",
    ),
    "comments and CR LF": Mode(
        steps=plain(
            lambda place: (
                b": ping\r\n\r\nevent: message\r\nid: 1\r\ndata:"
                + json.dumps(chat(text(place))).encode()
                + b"\r\n\r\n"
            ),
            before=b"retry: 3000\n\n: ping\n\n",
        )
    ),
    "split characters": Mode(steps=split),
    "a stop that came early": Mode(
        steps=plain(end=(sse(chat(finish="stop")), usage_chunk(3), DONE), count=3),
        osl=3,
        e2e=2,
        reason="were pinned (3 tokens for 20 on average)",
    ),
    "more than asked": Mode(
        steps=plain(end=(sse(chat(finish="stop")), usage_chunk(40), DONE), count=40),
        osl=40,
        e2e=39,
        reason="were pinned",
    ),
    "lengths as they come": Mode(
        steps=plain(end=(sse(chat(finish="stop")), usage_chunk(3), DONE), count=3),
        osl=3,
        e2e=2,
        flags=("--no-pin-output",),
    ),
    "a filter": Mode(steps=plain(end=(sse(chat(finish="content_filter")), usage_chunk(), DONE))),
    "no [DONE]": Mode(steps=plain(end=(sse(chat(finish="length")), usage_chunk()))),
    "an early finish": Mode(
        steps=plain(
            lambda place: chat(text(place), "length" if place > 10 else None),
            end=(usage_chunk(), DONE),
        )
    ),
    "the end twice": Mode(steps=plain(end=(*END[:2], *END))),
    "a whole message behind it": Mode(
        steps=plain(
            end=(
                sse(
                    {
                        "choices": [
                            {"delta": {}, "message": {"content": "a0 a1 "}, "finish_reason": "stop"}
                        ]
                    }
                ),
                usage_chunk(),
                DONE,
            )
        )
    ),
    "all at once": Mode(
        steps=at_once, ttft=TOKENS - 1, tpot=None, reason="with all their tokens at one moment"
    ),
    "one giant event": Mode(
        steps=lambda first, gap: timed(
            lambda place: chat("a " * TOKENS), first + 19 * gap, 0, count=1
        ),
        ttft=TOKENS - 1,
        tpot=None,
        reason="with all their tokens at one moment",
    ),
    "two choices": Mode(
        steps=plain(two_choices, end=(sse(chat(finish="length")), usage_chunk(2 * TOKENS), DONE)),
        osl=2 * TOKENS,
        tpot=(TOKENS - 1) / (2 * TOKENS - 1),
        note="several outputs side by side",
    ),
    "HTTP/1.0": Mode(steps=plain(), head=b"HTTP/1.0 200 OK\r\n\r\n", end="close"),
    # requests that fail
    "an abort": Mode(
        steps=plain(end=(sse(chat(finish="abort")), usage_chunk(3), DONE), count=3),
        failure="aborted",
    ),
    "an error for a finish": Mode(
        steps=plain(end=(sse(chat(finish="error")), DONE), count=3), failure="ended with an error"
    ),
    "an end without a word": Mode(steps=plain(end=(), count=3), failure="ended without a finish"),
    "an end with usage alone": Mode(
        steps=plain(end=(usage_chunk(3),), count=3), failure="ended without a finish"
    ),
    "an error in the middle": Mode(
        steps=plain(end=(sse({"error": {"message": "engine died", "code": 500}}), DONE), count=3),
        failure="error in the reply",
        detail="engine died",
    ),
    "an event named error": Mode(
        steps=plain(end=(b'event: error\ndata: {"message": "worker lost"}\n\n', DONE), count=3),
        failure="error in the reply",
        detail="worker lost",
    ),
    "no text": Mode(
        steps=plain(end=END, count=0, before=sse(chat(role="assistant"))),
        failure="no output",
        detail="20 output tokens",
    ),
    "no stream but an error": Mode(
        steps=nothing,
        head=whole({"error": {"message": "overloaded"}}),
        end="",
        failure="error in the reply",
        detail="overloaded",
    ),
    "no stream but a whole reply": Mode(
        steps=nothing,
        head=whole(
            {"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}], **usage(TOKENS)}
        ),
        end="",
        failure="a whole reply in place of a stream",
    ),
    "no stream but a page": Mode(
        steps=nothing,
        head=PLAIN_OK % (b"text/html", len(HTML), HTML),
        end="",
        failure="an HTML page in place of a stream",
        detail="502 Bad Gateway",
    ),
    "a field that it does not take": Mode(
        steps=nothing,
        head=refusing(
            b"400 Bad Request",
            {"error": {"message": "Unrecognized request argument supplied: min_tokens"}},
        ),
        end="",
        failure="HTTP 400",
        detail="Unrecognized request argument",
        note="pin_output=False",
    ),
    "an option that it does not take": Mode(
        steps=nothing,
        head=refusing(
            b"422 Unprocessable Entity",
            {
                "detail": [
                    {"loc": ["body", "stream_options"], "msg": "Extra inputs are not permitted"}
                ]
            },
        ),
        end="",
        failure="HTTP 422",
        detail="stream_options",
        note="omit_inputs stream_options",
    ),
    "too busy": Mode(
        steps=nothing,
        head=refusing(b"503 Service Unavailable", {"message": "try later"}, b"Retry-After: 7\r\n"),
        end="",
        failure="HTTP 503",
        detail="try later (Retry-After: 7)",
    ),
    "compressed": Mode(
        steps=nothing,
        head=b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\nxx",
        end="",
        failure="broken reply",
        detail="compressed",
    ),
    "a reset": Mode(steps=plain(end=(), count=3), end="reset", failure="cut off"),
    "no last chunk": Mode(steps=plain(end=(), count=3), end="close", failure="cut off"),
}


class ModeServer:
    """Answers in the mode that the model's name says."""

    def __init__(self, first_s: float, gap_s: float) -> None:
        self.first, self.gap = first_s, gap_s
        self.bodies: list[dict[str, Any]] = []

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self.one(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request; whether the connection can carry another."""
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(
            (
                int(line.split(b":")[1])
                for line in head.split(b"\r\n")
                if line.lower().startswith(b"content-length")
            ),
            0,
        )
        if head.startswith(b"GET"):
            writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
            return True
        body = json.loads(await reader.readexactly(length))
        self.bodies.append(body)
        mode, began = MODES[body["model"]], time.monotonic()
        writer.write(HEAD if mode.head is None else mode.head)
        for after, data in mode.steps(self.first, self.gap):
            await asyncio.sleep(began + after - time.monotonic())
            writer.write(
                data if mode.head else b"%x\r\n%s\r\n" % (len(data), data) if data else b""
            )
        await writer.drain()
        if mode.end == "reset":
            writer.transport.abort()
        if mode.end == "terminated":
            writer.write(b"0\r\n\r\n")
        return mode.end in ("terminated", "")


@contextmanager
def mode_server(first_s: float = 0.1, gap_s: float = 0.01) -> Iterator[tuple[str, ModeServer]]:
    """Its URL while it lasts, and the server, which keeps the bodies of all requests."""
    server, loop, ready = ModeServer(first_s, gap_s), asyncio.new_event_loop(), threading.Event()
    listening: list[asyncio.Server] = []

    async def start() -> None:
        listening.append(await asyncio.start_server(server.answer, "127.0.0.1", 0))
        ready.set()

    async def stop() -> None:
        listening[0].close()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.sleep(0)

    def run() -> None:
        asyncio.set_event_loop(loop)
        loop.run_until_complete(start())
        loop.run_forever()
        loop.run_until_complete(stop())
        loop.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert ready.wait(10)
    try:
        yield f"http://127.0.0.1:{listening[0].sockets[0].getsockname()[1]}", server
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
