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

_KV_USED = re.compile(rb"^vllm:(?:gpu_cache_usage_perc|kv_cache_usage_perc)(?:\{[^}]*\})? ([0-9.eE+-]+)", re.MULTILINE)


class Health:
    """Checks the backends of a gateway for as long as it runs."""

    def __init__(self, core: Core) -> None:
        """Of a gateway."""
        self._core = core
        self._tasks: list[asyncio.Task[None]] = []

    async def begin(self) -> None:
        """Check every backend once, and then again and again."""
        await asyncio.gather(*(self._check(backend) for backend in self._core.backends))
        await asyncio.gather(*(self._list(backend) for backend in self._core.backends if backend.up))
        self._tasks = [self._core.loop.create_task(self._watch(i)) for i in range(len(self._core.backends))]

    async def end(self) -> None:
        """Check no more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _watch(self, i: int) -> None:
        core, backend = self._core, self._core.backends[i]
        for check in itertools.count(1):
            was_up = backend.up
            await asyncio.sleep(core.limits.health_s)
            await self._check(backend)
            if backend.up and (not was_up or check % LIST_EVERY == 0):
                await self._list(backend)
            if core.balancer.policy == "least-kv" and backend.up:
                core.balancer.kv_used[i] = await self._kv_used(backend)

    async def _check(self, backend: Backend) -> None:
        """One check; a status under 500 will do, since not every server has the path."""
        try:
            status, _ = await self._core.ask(backend, PATH)
            surely, passed, fault = True, 0 < status < 500, f"status {status}"
        except (ConnectionRefusedError, ssl.SSLCertVerificationError) as error:
            surely, passed, fault = True, False, said(error)
        except OSError as error:
            surely, passed, fault = False, False, said(error)
        if passed:
            backend.up, backend.failures, backend.fault = True, 0, ""
            return
        backend.fault = fault
        backend.failures += 1
        if backend.up and (surely or backend.failures >= FAILURES):
            backend.up = False
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
