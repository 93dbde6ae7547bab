"""Chats and completions of the OpenAI API: from a request to a reply, whole or as a stream."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from tonnage.serve.answer import Answer
from tonnage.serve.dialect import OF_VLLM, Dialect, Refused
from tonnage.serve.faults import HEADER, Faults
from tonnage.serve.metrics import Metrics
from tonnage.serve.replies import DONE, Made, Reply, event
from tonnage.serve.request import Asked, Kind, Limits, asked_of
from tonnage.serve.rules import broken_json
from tonnage.serve.tokens import NO_TEXT, Reader, Tokens
from tonnage.serve.transfer import Transfers
from tonnage.spec.typed_values import DEEPEST
from tonnage.version import VERSION

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send


LARGEST_BODY = 32 * 2**20  # Bytes of a request's body

TOO_MANY = 429


class Engines(Protocol):
    """The engines that answer: simulated instances, or a real one."""

    @property
    def metrics(self) -> Metrics:
        """The server's own metrics."""

    @property
    def waiting(self) -> int:
        """Requests in the engines' queues."""

    @property
    def broken(self) -> str:
        """Why nothing is answered any more; "" while it is."""

    def answers(self, wish: Asked) -> list[Answer]:
        """An answer for each choice to each prompt, not begun yet. Raises Refused: what this engine
        does not take.
        """

    def close(self) -> None:
        """The server has ended."""


def _set() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


@dataclass(slots=True, kw_only=True)
class Service:
    """The model and engines that the application serves, with their settings."""

    engines: Engines
    reader: Reader  # makes prompts of texts
    tokens: Tokens
    limits: Limits  # of every request
    # requests that may be in the engines' queues when another comes; 0 for no limit
    most_waiting: int = 0
    started: int = 0  # seconds since 1970
    faults: Faults | None = None  # what goes wrong on purpose; None for nothing
    # how errors are worded, and what replies have next to the fields of the API
    dialect: Dialect = OF_VLLM
    transfers: Transfers | None = None  # of KV caches from and to other servers; None for none
    # is not set while the engines sleep: requests wait for it
    awake: asyncio.Event = field(default_factory=_set)
    busy: int = 0  # requests that are being answered
    # what ``/server_info`` says; empty for no such path
    settings: Mapping[str, Any] = field(default_factory=dict)
    # of the vectors of a model that embeds, which answers nothing else; 0 for one that generates
    width: int = 0
    version: str = VERSION  # of the engine whose ways it has

    @property
    def model(self) -> str:
        """The name that it serves the model by."""
        return self.limits.models[0]


class Cut(Exception):
    """A stream is broken off on purpose: the connection ends without the end of the body."""


class Stream(Response):
    """Events as they are made; when the client leaves, its answers are let go."""

    def __init__(
        self, events: AsyncIterator[bytes], answers: list[Answer], cut_after: int = 0
    ) -> None:
        """Stream the events of answers, which are let go when the client leaves, and break off
        after so many tokens; 0 for never.
        """
        super().__init__(media_type="text/event-stream")
        self.headers["content-type"] = "text/event-stream; charset=utf-8"
        del self.headers["content-length"]
        self._events = events
        self._answers = answers
        self._cut_after = cut_after
        self.ended: Callable[[], None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send every event as a separate body part."""
        watch = asyncio.ensure_future(left(receive, self._answers))
        try:
            await send(
                {
                    "type": "http.response.start",
                    "status": self.status_code,
                    "headers": self.raw_headers,
                }
            )
            async for part in self._events:
                await send({"type": "http.response.body", "body": part, "more_body": True})
                if (
                    self._cut_after
                    and sum(answer.made for answer in self._answers) >= self._cut_after
                ):
                    raise Cut
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            watch.cancel()
            for answer in self._answers:
                answer.end()
            if self.ended is not None:
                self.ended()


async def left(receive: Receive, answers: list[Answer]) -> None:
    """Wait until the client leaves, and tell its answers."""
    while (await receive())["type"] != "http.disconnect":
        pass
    for answer in answers:
        answer.leave()


Handler = Callable[["Request"], Awaitable[Response]]


def counted(service: Service, handler: Handler) -> Handler:
    """Wrap a handler: its refusals are answered, and its responses counted."""

    async def answered(request: Request) -> Response:
        service.busy += 1
        began = time.monotonic()
        try:
            response = await handler(request)
        except Refused as error:
            headers = {"retry-after": "1"} if error.status == TOO_MANY else None
            response = JSONResponse(
                error.to_json(service.dialect), status_code=error.status, headers=headers
            )
        finally:
            service.busy -= 1
        if isinstance(response, Stream):
            response.ended = lambda: seen(service, request, response, began)
        else:
            seen(service, request, response, began)
        return response

    return answered


def saying(make: Callable[[], Any]) -> Handler:
    """A handler that answers every request with the same document."""

    async def said(request: Request) -> Response:
        return JSONResponse(make())

    return said


def seen(
    service: Service, request: Request, response: Response, began: float, handler: str = ""
) -> None:
    """Count a response that has ended to a request that came at ``began`` (``time.monotonic``);
    ``handler`` is its path as declared.
    """
    path = handler or getattr(request.scope.get("route"), "path", request.url.path)
    sizes = (
        int(headers.get("content-length") or 0) for headers in (request.headers, response.headers)
    )
    received, sent = sizes
    seconds = time.monotonic() - began
    service.engines.metrics.http.responded(
        request.method, path, response.status_code, seconds=seconds, received=received, sent=sent
    )


async def completed(service: Service, kind: Kind, request: Request, body: Any = None) -> Response:
    """The reply to a chat or a completion. Raises Refused: with the error that the client gets."""
    after = await admitted(service, request)
    came_at = time.monotonic()
    body = await json_body(request) if body is None else body
    generation = replace(
        asked_of(kind, body, reader=service.reader, limits=service.limits),
        came_at=came_at,
        rank=_rank(request),
    )
    body_id = body.get("request_id") if isinstance(body.get("request_id"), str) else None
    number = request.headers.get("x-request-id", body_id or secrets.token_hex(8))
    reply = reply_of(service, generation, f"{'chatcmpl' if kind == 'chat' else 'cmpl'}-{number}")
    transfers = service.transfers
    if transfers is not None and generation.transfer:
        generation = replace(
            await transfers.received(generation),
            offered_as=reply.id if transfers.offers(generation) else "",
        )
    answers = begun(service, generation)
    if generation.stream:
        return Stream(_events(generation, reply, answers, service.dialect), answers, after)
    ended = await whole(request, reply, answers)
    if transfers is not None and generation.offered_as:
        reply.transfer = transfers.offered(generation.offered_as, *request.scope["server"])
    return JSONResponse(reply.whole(ended))


def _rank(request: Request) -> int | None:
    """The engine that a client chose, by vLLM's header."""
    header = request.headers.get("x-data-parallel-rank", "").strip()
    return int(header) if header.lstrip("-").isdigit() else None


async def admitted(service: Service, request: Request) -> int:
    """Wait until the engines are awake; tokens after which the stream breaks off, 0 for never.
    Raises Refused: a fault on demand.
    """
    await service.awake.wait()
    fault = None if service.faults is None else service.faults.next(request.headers.get(HEADER, ""))
    if fault is None:
        return 0
    if fault.kind == "stall":
        await asyncio.sleep(fault.end_s - fault.start_s)
        return 0
    if fault.kind == "429":
        raise Refused(
            "Rate limit reached; a fault on demand.", status=TOO_MANY, kind="RateLimitError"
        )
    if fault.kind == "500":
        raise Refused(
            "Internal server error; a fault on demand.", status=500, kind="InternalServerError"
        )
    return fault.after


def check_type(request: Request) -> None:
    """Refuse a body that says it is no JSON."""
    if (
        request.headers.get("content-type", "").partition(";")[0].strip().lower()
        != "application/json"
    ):
        raise Refused(
            "1 validation error:\n  Unsupported Media Type: Only 'application/json' is allowed",
            kind="Bad Request",
        )


async def json_body(request: Request) -> Any:
    """The JSON body. Raises Refused: it is too large, or no JSON; HTTPException: as ``parsed``."""
    check_type(request)
    body = await body_of(request)
    try:
        document = parsed(body)
    except json.JSONDecodeError as error:
        raise broken_json(body, error) from None
    if document is None:
        raise broken_json(b"", None)
    return document


async def body_of(request: Request) -> bytes:
    """The bytes of a body. Raises Refused: they are too many."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > LARGEST_BODY:
            raise Refused(f"the body is larger than {LARGEST_BODY:,} bytes", status=413)
        parts.append(part)
    return b"".join(parts)


_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def parsed(body: bytes) -> Any:
    """The JSON value of a body.

    Raises json.JSONDecodeError: it is no JSON; Refused: a text without UTF-8 (a lone surrogate);
    HTTPException: it is nested too deeply, or holds a number of thousands of digits, over which
    what reads and answers it would stumble.
    """
    try:
        document = json.loads(body)
        if _SURROGATE.search(body):
            json.dumps(document, ensure_ascii=False).encode()
        if body.count(b"[") + body.count(b"{") <= DEEPEST or _depth(document) <= DEEPEST:
            return document
    except json.JSONDecodeError:
        raise
    except UnicodeEncodeError:
        raise Refused(NO_TEXT) from None
    except (ValueError, RecursionError):
        pass
    raise HTTPException(400, "There was an error parsing the body")


def _depth(document: Any) -> int:
    depth, level = 0, [document]
    while level:
        depth += 1
        inner = (
            part
            for value in level
            for part in (value.values() if isinstance(value, dict) else value)
        )
        level = [part for part in inner if isinstance(part, dict | list)]
    return depth


def begun(service: Service, wish: Asked) -> list[Answer]:
    """Send a request to the engines and return its answers. Raises Refused: the queue is full, or
    what the engine does not take.
    """
    if service.most_waiting and service.engines.waiting >= service.most_waiting:
        service.engines.metrics.refused()
        raise Refused(
            "too many requests are waiting; try again later", status=503, kind="Service Unavailable"
        )
    answers = service.engines.answers(wish)
    for answer in answers:
        answer.begin()
    return answers


def reply_of(service: Service, wish: Asked, number: str) -> Reply:
    """The fields that all parts of a reply have in common."""
    call_id, now = f"chatcmpl-tool-{secrets.token_hex(7)}", int(time.time())
    return Reply(
        asked=wish,
        id=number,
        call_id=call_id,
        model=wish.model,
        created=now,
        further=service.dialect.further,
        tokens=service.tokens,
    )


async def whole(request: Request, reply: Reply, parts: list[Answer]) -> list[Made]:
    """Answers that have ended; when the client leaves, they are let go. Raises Refused: the engine
    cannot answer.
    """
    watch = asyncio.ensure_future(left(request.receive, parts))
    try:
        return await asyncio.gather(*(ended(answer, reply.call_id) for answer in parts))
    finally:
        watch.cancel()
        for answer in parts:
            answer.end()


async def ended(answer: Answer, call_id: str = "") -> Made:
    """An answer, once it has ended. Raises Refused: the engine cannot answer."""
    collected = Made(answer=answer)
    async for piece in answer.pieces():
        collected.take(piece, call_id)
    collected.settle()
    return collected


async def _events(
    wish: Asked, reply: Reply, parts: list[Answer], dialect: Dialect
) -> AsyncIterator[bytes]:
    """Every event of a stream; the choices of one request are mixed as they come."""
    begun = [wish.kind != "chat"]
    try:
        if len(parts) == 1:
            async for part in events_of(reply, 0, parts, begun):
                yield part
        else:
            async for part in mixed([events_of(reply, i, parts, begun) for i in range(len(parts))]):
                yield part
    except Refused as error:
        yield event(error.to_json(dialect))
        yield DONE
        return
    if wish.usage:
        yield reply.last(parts)
    yield DONE


async def events_of(
    reply: Reply, index: int, parts: list[Answer], begun: list[bool]
) -> AsyncIterator[bytes]:
    """The events of one choice; the last one says why it ended.

    The roles that begin a chat come with the first token of any choice and not before, as from a
    real engine: some clients take it for that.
    """
    answer, sends_all = parts[index], reply.asked.token_ids or reply.asked.logprobs is not None
    before, called = 0, False
    async for piece in answer.pieces():
        if not begun[0]:
            begun[0] = True
            for part in reply.begin(parts):
                yield part
        called = called or bool(piece.calls)
        if piece.finish or sends_all or not piece.silent:
            yield reply.part(index, answer, piece, before, called)
        before = answer.made


async def mixed(streams: list[AsyncIterator[bytes]]) -> AsyncIterator[bytes]:
    """The parts of several streams in the order in which they come."""
    queue: asyncio.Queue[bytes | BaseException | None] = asyncio.Queue()

    async def pour(stream: AsyncIterator[bytes]) -> None:
        try:
            async for part in stream:
                queue.put_nowait(part)
            queue.put_nowait(None)
        except Refused as error:
            queue.put_nowait(error)

    tasks = [asyncio.ensure_future(pour(stream)) for stream in streams]
    open_streams = len(tasks)
    try:
        while open_streams:
            part = await queue.get()
            if isinstance(part, BaseException):
                raise part
            if part is None:
                open_streams -= 1
            else:
                yield part
    finally:
        for task in tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Refused):
                await task
