"""Active health checks: each backend is asked every second whether it serves."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import ssl

from tonnage.gateway.backend import Backend
from tonnage.gateway.core import Core
from tonnage.gateway.fetch import said

PATH, MODELS = "/health", "/v1/models"
OK = 200
LIST_EVERY = 10
"""Checks between two readings of the models; adapters may come and go."""
FAILURES = 2
"""Checks without an answer in a row after which a backend is down; a refused connection or a status of 500 or more is enough alone."""

FOLLOW_S = 0.2
"""Between two looks at what other workers have found out."""

_KV_USED = re.compile(rb"^vllm:(?:gpu_cache_usage_perc|kv_cache_usage_perc)(?:\{[^}]*\})? ([0-9.eE+-]+)", re.MULTILINE)


class Health:
    """Checks the backends of a gateway for as long as it runs; of several workers, whoever finds a check due makes it for all."""

    def __init__(self, core: Core) -> None:
        """Of a gateway."""
        self._core = core
        self._tasks: list[asyncio.Task[None]] = []

    async def begin(self) -> None:
        """Check every backend once, and then again and again."""
        core = self._core
        await asyncio.gather(*(self._check(i) for i in range(len(core.backends))))
        await asyncio.gather(*(self._list(backend) for backend in core.backends if backend.up))
        self._tasks = [core.loop.create_task(self._watch(i)) for i in range(len(core.backends))]
        if core.counts.place.workers > 1:
            self._tasks.append(core.loop.create_task(self._follow()))

    async def end(self) -> None:
        """Check no more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _watch(self, i: int) -> None:
        core, backend = self._core, self._core.backends[i]
        for check in itertools.count(1):
            was_up = backend.was_up
            await asyncio.sleep(core.limits.health_s)
            if self._due(i):
                await self._check(i)
                if core.balancer.policy == "least-kv" and backend.up:
                    core.counts.kv_used[i] = await self._kv_used(backend)
            if backend.up and (not was_up or check % LIST_EVERY == 0):
                await self._list(backend)

    def _due(self, i: int) -> bool:
        """Whether no other worker has checked a backend lately."""
        core = self._core
        return core.counts.place.workers == 1 or core.loop.time() - core.counts.checked[i] > 0.9 * core.limits.health_s

    async def _check(self, i: int) -> None:
        """One check; a status under 500 will do, since not every server has the path."""
        core, backend = self._core, self._core.backends[i]
        core.counts.checked[i] = core.loop.time()
        try:
            status, _ = await core.ask(backend, PATH)
            fault, allowed = "" if 0 < status < 500 else f"status {status}", 1
        except (ConnectionRefusedError, ssl.SSLCertVerificationError) as error:
            fault, allowed = said(error), 1
        except OSError as error:
            fault, allowed = said(error), FAILURES
        if fault:
            backend.failed(fault, allowed=allowed)
        else:
            backend.passed()
        self._notice(backend)

    async def _follow(self) -> None:
        """Notice what other workers have found out."""
        while True:
            await asyncio.sleep(FOLLOW_S)
            for backend in self._core.backends:
                self._notice(backend)

    def _notice(self, backend: Backend) -> None:
        """Take this worker's requests back from a backend that is no longer up."""
        was_up, backend.was_up = backend.was_up, backend.up
        if was_up and not backend.was_up:
            for upstream in list(backend.busy):
                upstream.withdraw()

    async def _list(self, backend: Backend) -> None:
        """Read the models of a backend that says them; one that does not may serve any."""
        try:
            status, body = await self._core.ask(backend, MODELS)
            if status == OK:
                backend.models = frozenset(str(one["id"]) for one in json.loads(body)["data"])
        except (OSError, ValueError, KeyError, TypeError):
            return

    async def _kv_used(self, backend: Backend) -> float:
        """The largest share of a KV cache in use that the backend's metrics name; 0 where they name none."""
        try:
            _, body = await self._core.ask(backend, "/metrics")
            return max((float(found[1]) for found in _KV_USED.finditer(body)), default=0.0)
        except (OSError, ValueError):
            return 0.0
