"""Backends that do as they are told, and a client that speaks in bytes, all on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tonnage import api
from tonnage.gateway.server import Running, gateway
from tonnage.gateway.settings import Limits, Settings

if TYPE_CHECKING:
    from prometheus_client.samples import Sample

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@dataclass(frozen=True, kw_only=True)
class Got:
    """A request as a backend received it."""

    head: bytes
    body: bytes

    @property
    def line(self) -> bytes:
        return self.head.split(b"\r\n")[0]

    @property
    def headers(self) -> dict[bytes, bytes]:
        lines = [line.partition(b": ") for line in self.head.split(b"\r\n")[1:] if line]
        return {name.lower(): value for name, _, value in lines}


Answer = Callable[["Fake", Got, asyncio.StreamWriter], Awaitable[None]]


async def fine(fake: Fake, got: Got, writer: asyncio.StreamWriter) -> None:
    writer.write(OK)


def replies(data: bytes) -> Answer:
    async def answer(fake: Fake, got: Got, writer: asyncio.StreamWriter) -> None:
        writer.write(data)

    return answer


def closes(data: bytes = b"") -> Answer:
    """Write this much and end the connection."""

    async def answer(fake: Fake, got: Got, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()
        writer.close()

    return answer


async def silent(fake: Fake, got: Got, writer: asyncio.StreamWriter) -> None:
    """Never answer."""


NO_KEY = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n"


def listed(models: tuple[str, ...] | None) -> bytes:
    """A list of models; without any, 404."""
    if models is None:
        return b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
    body = json.dumps(
        {"object": "list", "data": [{"id": name, "object": "model"} for name in models]}
    ).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


class Fake:
    """A backend; its health checks pass unless it is frozen, it lists ``models``, and everything
    else goes to ``answer``.

    Attributes:
        key: what must authorize a reading of its models; b"" for anyone.
    """

    def __init__(self, answer: Answer = fine, models: tuple[str, ...] | None = None) -> None:
        self.answer = answer
        self.models = models
        self.key = b""
        self.got: list[Got] = []
        self.connections = 0
        self.lost = 0
        self.frozen = False
        self.port = 0
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def open(self) -> int:
        """Connections that have not ended."""
        return len(self._writers)

    async def begin(self) -> Fake:
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", self.port, reuse_address=True
        )
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def end(self) -> None:
        """Die as a killed process does: nothing listens, every connection is reset."""
        if self._server is not None:
            self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        self.connections += 1
        try:
            while not writer.is_closing():
                head = await reader.readuntil(b"\r\n\r\n")
                length = [
                    int(line.partition(b":")[2])
                    for line in head.split(b"\r\n")
                    if line.lower().startswith(b"content-length:")
                ]
                got = Got(head=head, body=await reader.readexactly(length[0]) if length else b"")
                if self.frozen:
                    continue
                if got.line.startswith(b"GET /health "):
                    writer.write(OK)
                    continue
                if got.line.startswith(b"GET /v1/models "):
                    keyed = got.headers.get(b"authorization", b"") == self.key
                    writer.write(listed(self.models) if keyed or not self.key else NO_KEY)
                    continue
                self.got.append(got)
                await self.answer(self, got, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            self.lost += 1
        finally:
            self._writers.discard(writer)
            writer.close()


@asynccontextmanager
async def before(
    *answers: Answer,
    policy: str = "round-robin",
    weights: tuple[float, ...] = (),
    models: tuple[tuple[str, ...] | None, ...] = (),
    **limits: Any,
) -> AsyncIterator[tuple[Running, list[Fake]]]:
    """A gateway before one fake for each answer, which list ``models``."""
    fakes = [
        await Fake(answer, listing).begin()
        for answer, listing in zip(answers, models or (None,) * len(answers), strict=True)
    ]
    asked = [
        f"{fake.url}={weight}"
        for fake, weight in zip(fakes, weights or (1.0,) * len(fakes), strict=True)
    ]
    settings = api.gateway_settings(backends=asked, policy=policy, port=0)
    tight = {"health_s": 0.2, **limits}
    try:
        async with gateway(
            Settings(backends=settings.backends, policy=policy, port=0, limits=Limits(**tight))
        ) as running:
            yield running, fakes
    finally:
        for fake in fakes:
            await fake.end()


def post(body: bytes = b"{}", path: str = "/v1/completions", *headers: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: gateway", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


def get(path: str, *headers: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: gateway", *headers, "", ""]).encode()


class Talk:
    """One connection to the gateway."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def head(self) -> bytes:
        """Its first line, and the headers with their names in lower case."""
        line, *headers = (await self.reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
        parts = [header.partition(b":") for header in headers]
        return b"\r\n".join([line, *(name.lower() + colon + value for name, colon, value in parts)])

    async def one(self) -> tuple[int, bytes]:
        """The status and body of a response that says its length."""
        head = await self.head()
        lengths = [
            line.partition(b":")[2]
            for line in head.split(b"\r\n")
            if line.lower().startswith(b"content-length:")
        ]
        return int(head.split()[1]), await self.reader.readexactly(int(lengths[0]))

    async def body(self) -> bytes:
        """The body of a response in chunks, after its head."""
        parts = []
        while size := int((await self.reader.readuntil(b"\r\n")).split(b";")[0], 16):
            parts.append(await self.reader.readexactly(size))
            await self.reader.readexactly(2)
        await self.reader.readexactly(2)
        return b"".join(parts)

    async def ask(self, data: bytes) -> tuple[int, bytes]:
        self.writer.write(data)
        return await self.one()

    async def rest(self) -> bytes:
        """Everything until the gateway ends the connection."""
        return await self.reader.read()


@asynccontextmanager
async def talk(running: Running) -> AsyncIterator[Talk]:
    reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
    try:
        yield Talk(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def asked(running: Running, data: bytes) -> tuple[int, bytes]:
    """One request on a connection of its own."""
    async with talk(running) as client:
        return await client.ask(data)


async def until(true: Callable[[], bool], seconds: float = 3.0) -> None:
    """Wait until something is so.

    Raises:
        TimeoutError: it was not within the time.
    """
    async with asyncio.timeout(seconds):
        while not true():
            await asyncio.sleep(0.01)


def outcomes(running: Running) -> dict[str, int]:
    """Requests by how they ended, over all backends; those with none are left out."""
    total: dict[str, int] = {}
    for sample in samples_of(running, "tonnage_gateway_requests_total"):
        if sample.value:
            total[sample.labels["outcome"]] = total.get(sample.labels["outcome"], 0) + int(
                sample.value
            )
    return total


def counted(running: Running, name: str) -> int:
    """A counter's sum over its labels."""
    return int(sum(sample.value for sample in samples_of(running, name)))


def samples_of(running: Running, name: str) -> list[Sample]:
    families = running.gateway.counts.registry.collect()
    return [sample for family in families for sample in family.samples if sample.name == name]
