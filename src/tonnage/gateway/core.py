"""What all connections of a gateway share: its backends, the policy between them, and the health checks that ask them every second."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from collections import Counter, OrderedDict
from collections.abc import Collection, MutableSequence, Sequence
from typing import Protocol

import httptools

from tonnage.bench.connection import Target
from tonnage.gateway.backend import Backend
from tonnage.gateway.http import BYTES_PER_TOKEN, Request
from tonnage.gateway.settings import Settings
from tonnage.simulator.router import ROUTERS, View, memory_of
from tonnage.simulator.router import Request as Seen

BLOCK = 256  # Bytes of a block; a prefix is remembered in whole blocks
MOST_BLOCKS = 200_000  # Blocks that are remembered; those not seen for longest are forgotten first
MOST_PER_REQUEST = 1_024  # Blocks of one request that are looked at: 256 KiB of its prompt


class Prefixes:
    """A memory of block hashes; each hash covers everything from the prompt's beginning to the block's end."""

    def __init__(self) -> None:
        self._sent: OrderedDict[int, int] = OrderedDict()

    def blocks(self, body: bytes) -> list[int]:
        """The hashes of a body's whole blocks, from its prompt on: what is before it, such as the model, says nothing."""
        start = max(body.find(b'"messages"'), body.find(b'"prompt"'), 0)
        found, chained = [], 0
        for place in range(start, min(len(body) - BLOCK, start + MOST_PER_REQUEST * BLOCK) + 1, BLOCK):
            chained = hash((chained, body[place : place + BLOCK]))
            found.append(chained)
        return found

    def match(self, blocks: list[int], matched: MutableSequence[int]) -> None:
        """Write down, for each backend, how many tokens of these blocks were sent there before, as an unbroken prefix."""
        left = (1 << len(matched)) - 1
        for i in range(len(matched)):
            matched[i] = 0
        for number, block in enumerate(blocks, start=1):
            left &= self._sent.get(block, 0)
            if not left:
                return
            for i in range(len(matched)):
                if left >> i & 1:
                    matched[i] = number * BLOCK // BYTES_PER_TOKEN

    def sent(self, blocks: list[int], backend: int) -> None:
        """Remember that they were sent to a backend."""
        for block in blocks:
            self._sent[block] = self._sent.get(block, 0) | 1 << backend
            self._sent.move_to_end(block)
        while len(self._sent) > MOST_BLOCKS:
            self._sent.popitem(last=False)


class Balancer:
    """A policy, and the lists that it reads."""

    def __init__(self, backends: Sequence[Backend], policy: str, seed: int = 0) -> None:
        count = len(backends)
        self.policy = policy  # its name in ``ROUTERS``
        self._backends = backends
        self._route = ROUTERS[policy]
        self._memory = memory_of(count, seed)
        self._memory.last[0] = count - 1
        self._prefixes = Prefixes() if policy == "prefix-aware" else None
        self._number = 0
        self._available, self._matched = [0] * count, [0] * count
        self._requests, self._tokens, self._kv_used = [0] * count, [0] * count, [0.0] * count
        weights = [one.weight for one in backends]
        self._view = View(self._available, self._requests, self._tokens, self._kv_used, self._matched, weights)

    def choose(self, request: Request, now: float, tried: Collection[int] = (), model: str = "") -> int:
        """The number of the backend that gets a request; -1 where none takes any."""
        for i, backend in enumerate(self._backends):
            self._requests[i], self._tokens[i], self._kv_used[i] = backend.requests, backend.tokens, backend.kv_used
            self._available[i] = backend.takes(now) and i not in tried and backend.serves(model)
        blocks = self._prefixes.blocks(request.body) if self._prefixes else []
        if self._prefixes:
            self._prefixes.match(blocks, self._matched)
        seen = Seen(self._number, request.session if self.policy == "session" else -1, request.prompt_tokens)
        chosen = self._route(self._view, seen, self._memory)
        self._number += 1
        if self._prefixes and chosen >= 0:
            self._prefixes.sent(blocks, chosen)
        return chosen


class Swept(Protocol):
    """A client's connection, as the sweep sees it."""

    deadline: float

    def expire(self) -> None:
        """Its deadline has passed."""

    def close(self) -> None:
        """End it at once."""


class Core:
    """Shared by all connections; every method runs on the loop's thread."""

    def __init__(self, settings: Settings, loop: asyncio.AbstractEventLoop) -> None:
        self.limits = settings.limits
        self.loop = loop
        self.backends = [Backend(target, weight) for target, weight in settings.backends]
        self.balancer = Balancer(self.backends, settings.policy, settings.seed)
        self.clients: set[Swept] = set()
        self.draining = False  # whether the gateway is about to end
        # held: bytes of bodies that are held, including partly received ones; in_flight: requests that are being served; retries:
        # requests that went to a second backend
        self.held = self.in_flight = self.retries = 0
        self.refused: Counter[int] = Counter()  # requests that the gateway answered itself with an error, by status

    @property
    def ready(self) -> bool:
        """Whether some backend takes requests, and the gateway is not about to end."""
        now = self.loop.time()
        return not self.draining and any(backend.takes(now) for backend in self.backends)

    def sweep(self) -> None:
        """End what has taken too long; called a few times a second."""
        now, limits = self.loop.time(), self.limits
        for client in [client for client in self.clients if client.deadline <= now]:
            client.expire()
        for backend in self.backends:
            backend.close_idle(now - limits.pooled_s)
            for upstream in list(backend.busy):
                if upstream.fresh or upstream.paused:
                    upstream.fresh = False
                    upstream.deadline = now + limits.idle_s
                elif upstream.deadline <= now:
                    upstream.fail("it took too long", again=False)

    def close(self) -> None:
        """End every connection at once."""
        for client in list(self.clients):
            client.close()
        for backend in self.backends:
            for upstream in [*backend.idle, *backend.busy]:
                upstream.close()
            backend.idle.clear()


PATH, MODELS = "/health", "/v1/models"
OK = 200
LIST_EVERY = 10  # Checks between two readings of the models; adapters may come and go

FAILURES = 2
"""Checks without an answer in a row after which a backend is down; a refused connection or a status of 500 or more is enough alone."""

MOST = 4_194_304  # Bytes of an answer that are read

_KV_USED = re.compile(rb"^vllm:(?:gpu_cache_usage_perc|kv_cache_usage_perc)(?:\{[^}]*\})? ([0-9.eE+-]+)", re.MULTILINE)


class Health:
    """Checks the backends of a gateway for as long as it runs."""

    def __init__(self, core: Core) -> None:
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
