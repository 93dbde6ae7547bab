"""The OpenAI API of a fleet, as an ASGI application."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tonnage.serve.answer import Answer
from tonnage.serve.dialect import OF_VLLM, Dialect, Refused
from tonnage.serve.replies import DONE, Made, Reply, event
from tonnage.serve.request import Asked, Kind, asked_of
from tonnage.version import VERSION

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

    from tonnage.serve.faults import Fault, Faults
    from tonnage.serve.metrics import Metrics
    from tonnage.serve.request import Reader

LARGEST_BODY = 32 * 2**20
"""Bytes of a request's body."""

TOO_MANY = 429

_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Engines(Protocol):
    """What answers: simulated instances, or a real engine."""

    @property
    def metrics(self) -> Metrics:
        """Of the server."""

    @property
    def waiting(self) -> int:
        """Requests in the engines' queues."""

    @property
    def broken(self) -> str:
        """Why nothing is answered any more; "" while it is."""

    def answers(self, asked: Asked) -> list[Answer]:
        """An answer for each choice to each prompt, not begun yet.

        Raises:
            Refused: what this engine does not take.
        """

    def close(self) -> None:
        """The server has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """What the application serves.

    Attributes:
        engines: what answers.
        reader: makes prompts of texts.
        model: the name that it serves the model by.
        max_context: longest prompt plus output; 0 for no limit.
        default_osl: output tokens of a request that sets no limit; 0 for as many as the context leaves.
        real: whether a model answers, so that what would change its answers and is not heeded is refused.
        most_waiting: requests that may be in the engines' queues when another comes; 0 for no limit.
        started: seconds since 1970.
        faults: what goes wrong on purpose; None for nothing.
        dialect: how errors are worded, and what replies have next to the fields of the API.
    """

    engines: Engines
    reader: Reader
    model: str
    max_context: int
    default_osl: int
    real: bool = False
    most_waiting: int = 0
    started: int = 0
    faults: Faults | None = None
    dialect: Dialect = OF_VLLM


class Cut(Exception):
    """A stream is broken off on purpose: the connection ends without the end of the body."""


class Stream(Response):
    """Events as they are made; when the client leaves, its answers are let go."""

    def __init__(self, events: AsyncIterator[bytes], answers: list[Answer], cut_after: int = 0) -> None:
        """Stream ``events``.

        Args:
            events: of the answers.
            answers: to let go when the client leaves.
            cut_after: tokens after which the stream breaks off; 0 for never.
        """
        super().__init__(media_type="text/event-stream", headers={"cache-control": "no-cache"})
        del self.headers["content-length"]
        self._events = events
        self._answers = answers
        self._cut_after = cut_after

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send every event as a body part of its own."""
        watch = asyncio.ensure_future(_left(receive, self._answers))
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            async for part in self._events:
                await send({"type": "http.response.body", "body": part, "more_body": True})
                if self._cut_after and _total(self._answers) >= self._cut_after:
                    raise Cut
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            watch.cancel()
            for answer in self._answers:
                answer.end()


async def _left(receive: Receive, answers: list[Answer]) -> None:
    """Wait until the client leaves, and tell its answers."""
    while (await receive())["type"] != "http.disconnect":
        pass
    for answer in answers:
        answer.leave()


def application(service: Service) -> Starlette:
    """The application.

    Args:
        service: what it serves.
    """
    numbers = itertools.count()

    async def chat(request: Request) -> Response:
        return _counted(await _answered(service, "chat", request, next(numbers)), request)

    async def completions(request: Request) -> Response:
        return _counted(await _answered(service, "completions", request, next(numbers)), request)

    def _counted(response: Response, request: Request) -> Response:
        service.engines.metrics.responded(request.url.path, response.status_code)
        return response

    async def models(request: Request) -> Response:
        one = service.dialect.model(service.model, service.started, service.max_context)
        return JSONResponse({"object": "list", "data": [one]})

    async def metrics(request: Request) -> Response:
        return Response(service.engines.metrics.text(), media_type=_METRICS_TYPE)

    async def well(request: Request) -> Response:
        return Response(service.engines.broken, status_code=503 if service.engines.broken else 200)

    async def version(request: Request) -> Response:
        return JSONResponse({"version": VERSION})

    async def not_there(request: Request, error: Exception) -> Response:
        status, detail = (error.status_code, error.detail) if isinstance(error, HTTPException) else (500, "Internal Server Error")
        return JSONResponse({"detail": detail}, status_code=status)

    routes = [
        Route("/v1/chat/completions", chat, methods=["POST"]),
        Route("/v1/completions", completions, methods=["POST"]),
        Route("/v1/models", models),
        *(Route(path, metrics) for path in {"/metrics": None, service.dialect.published.path: None}),
        Route("/version", version),
        *(Route(path, well) for path in ("/health", "/v1/health/live", "/v1/health/ready")),
    ]
    return Starlette(routes=routes, exception_handlers={HTTPException: not_there})


async def _answered(service: Service, kind: Kind, request: Request, number: int) -> Response:
    fault = None if service.faults is None else service.faults.next()
    try:
        if fault is not None and fault.kind != "cut":
            raise _failing(fault)
        asked = asked_of(
            kind,
            await _body(request),
            reader=service.reader,
            max_context=service.max_context,
            default_osl=service.default_osl,
            real=service.real,
        )
        if asked.model not in ("", service.model):
            raise Refused(f"The model `{asked.model}` does not exist.", status=404, kind="NotFoundError", param="model")
        if service.most_waiting and service.engines.waiting >= service.most_waiting:
            service.engines.metrics.refused()
            raise Refused("too many requests are waiting; try again later", status=503, kind="Service Unavailable")
        return await _reply(service, asked, request, number, cut_after=0 if fault is None else fault.after)
    except Refused as error:
        headers = {"retry-after": "1"} if error.status == TOO_MANY else None
        return JSONResponse(error.to_json(service.dialect), status_code=error.status, headers=headers)


def _failing(fault: Fault) -> Refused:
    if fault.kind == "429":
        return Refused("Rate limit reached; a fault on demand.", status=TOO_MANY, kind="RateLimitError")
    return Refused("Internal server error; a fault on demand.", status=500, kind="InternalServerError")


async def _body(request: Request) -> Any:
    """The JSON body.

    Raises:
        Refused: it is too large, or no JSON.
    """
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > LARGEST_BODY:
            raise Refused(f"the body is larger than {LARGEST_BODY:,} bytes", status=413)
        parts.append(part)
    try:
        return json.loads(b"".join(parts))
    except (ValueError, RecursionError):
        raise Refused("the body is not JSON", kind="Bad Request", param="body") from None


async def _reply(service: Service, asked: Asked, request: Request, number: int, *, cut_after: int) -> Response:
    head = "chatcmpl" if asked.kind == "chat" else "cmpl"
    reply = Reply(
        kind=asked.kind,
        id=f"{head}-{number}",
        model=service.model,
        created=int(time.time()),
        further=service.dialect.further,
        usage_last=asked.usage,
        usage_each=asked.usage_each,
    )
    made = service.engines.answers(asked)
    for answer in made:
        answer.begin()
    if asked.stream:
        return Stream(_events(asked, reply, made, service.dialect), made, cut_after)
    watch = asyncio.ensure_future(_left(request.receive, made))
    try:
        texts = await asyncio.gather(*(whole_text(answer) for answer in made))
    finally:
        watch.cancel()
        for answer in made:
            answer.end()
    ended = [Made(text=text, finish=one.finish, stopped_by=one.stopped_by) for text, one in zip(texts, made, strict=True)]
    return JSONResponse(reply.whole(ended, asked.isl, _total(made)))


async def whole_text(answer: Answer) -> str:
    """The text of an answer, once it has ended.

    Raises:
        Refused: the engine cannot answer.
    """
    return "".join([piece async for piece in answer.pieces()])


def _total(made: list[Answer]) -> int:
    return sum(answer.made for answer in made)


async def _events(asked: Asked, reply: Reply, made: list[Answer], dialect: Dialect) -> AsyncIterator[bytes]:
    """Every event of a stream; the choices of one request are mixed as they come."""
    try:
        if len(made) == 1:
            async for part in events_of(reply, 0, made[0]):
                yield part
        else:
            async for part in _mixed([events_of(reply, i, answer) for i, answer in enumerate(made)]):
                yield part
    except Refused as error:
        yield event(error.to_json(dialect))
        return
    if asked.usage:
        yield event(reply.last(asked.isl, _total(made)))
    yield DONE


async def events_of(reply: Reply, index: int, answer: Answer) -> AsyncIterator[bytes]:
    """The events of one choice; the last one says why it ended.

    The role that begins a chat comes with the first token and not before, as from a real engine: some clients take it for that.
    """
    begun = reply.kind != "chat"
    async for piece in answer.pieces():
        if not begun:
            begun = True
            yield event(reply.chunk(index, None, tokens=(answer.isl, 0)))
        yield event(reply.chunk(index, piece, answer.finish or None, answer.stopped_by, tokens=(answer.isl, answer.made)))


async def _mixed(streams: list[AsyncIterator[bytes]]) -> AsyncIterator[bytes]:
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
    left = len(tasks)
    try:
        while left:
            part = await queue.get()
            if isinstance(part, BaseException):
                raise part
            if part is None:
                left -= 1
            else:
                yield part
    finally:
        for task in tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Refused):
                await task
