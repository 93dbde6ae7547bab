"""Active health checks: each backend is asked every second whether it serves, and now and then for its models."""

from __future__ import annotations

import asyncio
import itertools
import json
import re

import httptools

from tonnage.bench.connection import Target
from tonnage.gateway.backend import Backend
from tonnage.gateway.core import Core

PATH, MODELS = "/health", "/v1/models"
OK = 200
LIST_EVERY = 10
"""Checks between two readings of the models; adapters may come and go."""

FAILURES = 2
"""Checks without an answer in a row after which a backend is down; a refused connection or a status of 500 or more is enough alone."""

MOST = 4_194_304
"""Bytes of an answer that are read."""

_KV_USED = re.compile(rb"^vllm:(?:gpu_cache_usage_perc|kv_cache_usage_perc)(?:\{[^}]*\})? ([0-9.eE+-]+)", re.MULTILINE)


class Health:
    """Checks the backends of a gateway for as long as it runs."""

    def __init__(self, core: Core) -> None:
        """Of a gateway."""
        self._core = core
        self._tasks: list[asyncio.Task[None]] = []

    async def begin(self) -> None:
        """Check every backend once, and then again and again."""
        core = self._core
        await asyncio.gather(*(self._check(backend) for backend in core.backends))
        await asyncio.gather(*(self._list(backend) for backend in core.backends if backend.up))
        self._tasks = [core.loop.create_task(self._watch(backend)) for backend in core.backends]

    async def end(self) -> None:
        """Check no more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _watch(self, backend: Backend) -> None:
        core = self._core
        for check in itertools.count(1):
            was_up = backend.up
            await asyncio.sleep(core.limits.health_s)
            await self._check(backend)
            if core.balancer.policy == "least-kv" and backend.up:
                backend.kv_used = await self._kv_used(backend)
            if backend.up and (not was_up or check % LIST_EVERY == 0):
                await self._list(backend)

    async def _check(self, backend: Backend) -> None:
        """One check; a status under 500 will do, since not every server has the path."""
        try:
            status, _ = await self._get(backend, PATH)
            fault, allowed = "" if 0 < status < 500 else f"status {status}", 1
        except OSError as error:
            fault, allowed = "no connection", 1 if isinstance(error, ConnectionRefusedError) else FAILURES
        if fault:
            backend.failed(fault, allowed=allowed)
        else:
            backend.passed()

    async def _list(self, backend: Backend) -> None:
        """Read the models of a backend that lists them; one that does not may serve any."""
        try:
            status, body = await self._get(backend, MODELS)
            if status == OK:
                backend.models = {str(one["id"]): one for one in json.loads(body)["data"]}
        except (OSError, ValueError, KeyError, TypeError):
            return

    async def _kv_used(self, backend: Backend) -> float:
        """The largest share of a KV cache in use that the backend's metrics name; 0 where they name none."""
        try:
            _, body = await self._get(backend, "/metrics")
            return max((float(found[1]) for found in _KV_USED.finditer(body)), default=0.0)
        except (OSError, ValueError):
            return 0.0

    async def _get(self, backend: Backend, path: str) -> tuple[int, bytes]:
        return await fetch(backend.target, path, self._core.limits.health_timeout_s)


class _Document:
    """A whole response."""

    def __init__(self) -> None:
        self.body = b""
        self.complete = False

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.complete = True


async def fetch(target: Target, path: str, seconds: float) -> tuple[int, bytes]:
    """The status and body of a GET. Raises OSError: no connection, no answer in time, or none that is HTTP."""
    writer: asyncio.StreamWriter | None = None
    document = _Document()
    parser = httptools.HttpResponseParser(document)
    try:
        async with asyncio.timeout(seconds):
            reader, writer = await asyncio.open_connection(target.host, target.port)
            writer.write(f"GET {path} HTTP/1.1\r\nHost: {target.authority}\r\nAccept: */*\r\nConnection: close\r\n\r\n".encode())
            read = 0
            while not document.complete:
                data = await reader.read(65_536)
                read += len(data)
                if not data or read > MOST:
                    break
                parser.feed_data(data)
        return parser.get_status_code(), document.body
    except (TimeoutError, httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
        raise OSError(f"no answer from {target.authority} ({error})") from None
    finally:
        if writer is not None:
            writer.transport.abort()
