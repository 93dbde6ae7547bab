"""What the gateway answers itself: health, models, metrics, and what is none of a backend's business."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from typing import Any

from tonnage.gateway.answers import document, refusal, response
from tonnage.gateway.backend import Backend
from tonnage.gateway.core import Core
from tonnage.gateway.metrics import TEXT, text
from tonnage.gateway.request import Request
from tonnage.version import VERSION

PASSED = (b"/v1/", b"/v2/", b"/v2")
"""What the paths of OpenAI and of KServe begin with."""

READY = (b"/health", b"/v1/health/ready")
LIVE = b"/v1/health/live"
METRICS = (b"/metrics", b"/v1/metrics")
MODELS = b"/v1/models"
VERSIONS, METADATA = b"/v1/version", b"/v1/metadata"
"""As NIM has them (docs.nvidia.com/nim, read 2026-11-22), with those of their fields that a gateway can fill."""
OPEN = frozenset((*READY, LIVE, *METRICS))
"""Paths that are answered without a key."""

_UPWARDS = re.compile(rb"(?:/|%2f|\\|%5c)(?:\.|%2e){1,2}(?:/|%2f|\\|%5c|$)", re.IGNORECASE)

Reply = Callable[[bytes], None]


class OwnPaths:
    """Answers requests for a gateway's own paths."""

    def __init__(self, core: Core) -> None:
        """Of a gateway."""
        self._core = core
        self._tasks: set[asyncio.Task[None]] = set()

    def answer(self, request: Request, reply: Reply) -> bool:
        """Answer now or later; False where the request is one for a backend."""
        path, reads = request.path, request.method in (b"GET", b"HEAD")
        close, head = not request.keep, request.method == b"HEAD"
        if reads and path in (*READY, LIVE, *METRICS):
            reply(self._known(path, close, head))
        elif reads and path in (VERSIONS, METADATA):
            reply(document(200, self._about(path), close=close, head=head))
        elif reads and path == MODELS:
            task = self._core.loop.create_task(self._models(request, reply))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        elif _UPWARDS.search(path):
            self._core.counts.refuse(400)
            reply(refusal(400, "the path leads upwards", close=close, head=head))
        elif not (path.startswith(PASSED[:2]) or path == PASSED[2]):
            self._core.counts.refuse(404)
            reply(refusal(404, "there is nothing at this path; the gateway passes on /v1/ and /v2/", close=close, head=head))
        else:
            return False
        return True

    def _known(self, path: bytes, close: bool, head: bool) -> bytes:
        if path in METRICS:
            return response(200, text(self._core), kind=TEXT, close=close, head=head)
        if path == LIVE:
            return document(200, {"object": "health.response", "message": "live"}, close=close, head=head)
        ready = self._core.ready
        message = "ready" if ready else "no backend takes requests" if not self._core.draining else "about to end"
        return document(200 if ready else 503, {"object": "health.response", "message": message}, close=close, head=head)

    def _about(self, path: bytes) -> dict[str, Any]:
        """The gateway's release; or that and the models that its backends have listed."""
        if path == VERSIONS:
            return {"release": VERSION, "api": VERSION}
        core, now = self._core, self._core.loop.time()
        known = {name for backend in core.backends if backend.takes(now) for name in backend.models or ()}
        known |= {alias for alias, model in core.settings.aliases.items() if model in known}
        return {"version": VERSION, "assetInfo": [], "modelInfo": [{"shortName": name, "modelUrl": ""} for name in sorted(known)]}

    async def _models(self, request: Request, reply: Reply) -> None:
        """The models of all backends that take requests, each name once."""
        core, now = self._core, self._core.loop.time()
        serving = [backend for backend in core.backends if backend.takes(now)]
        lists = await asyncio.gather(*(self._listed(backend) for backend in serving))
        found = {str(one["id"]): one for models in lists for one in models or ()}
        found |= {alias: {**found[model], "id": alias} for alias, model in core.settings.aliases.items() if model in found}
        close, head = not request.keep, request.method == b"HEAD"
        if all(models is None for models in lists):
            core.counts.refuse(503)
            reply(refusal(503, "no backend lists its models at the moment", close=close, head=head))
        else:
            reply(document(200, {"object": "list", "data": list(found.values())}, close=close, head=head))

    async def _listed(self, backend: Backend) -> list[dict[str, Any]] | None:
        """The models of one backend; None where it does not say."""
        try:
            status, body = await self._core.ask(backend, MODELS.decode())
            listed = json.loads(body)["data"] if status == 200 else None
            return None if listed is None else [one for one in listed if isinstance(one, dict) and "id" in one]
        except (OSError, ValueError, KeyError, TypeError):
            return None


class Alive:
    """Answers on a port of one worker's own, by which its supervisor sees that it lives; nothing is passed on there."""

    def answer(self, request: Request, reply: Reply) -> bool:
        """Answer now."""
        close, head = not request.keep, request.method == b"HEAD"
        if request.path == LIVE:
            reply(document(200, {"object": "health.response", "message": "live"}, close=close, head=head))
        else:
            reply(refusal(404, "there is nothing at this path", close=close, head=head))
        return True
