"""A gateway without a network: its backends, a client that sends messages, and a pool that answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from tonnage.bench.connection import Target
from tonnage.gateway.server import Gateway
from tonnage.gateway.settings import Limits, Settings


def made(count: int = 2, policy: str = "round-robin", **limits: Any) -> Gateway:
    """A gateway before so many backends that are up, on ports 8001, 8002 …"""
    targets = tuple((Target(host="h", port=8001 + place), 1.0) for place in range(count))
    gateway = Gateway(Settings(backends=targets, policy=policy, limits=Limits(**limits)))
    for backend in gateway.backends:
        backend.up = True
    return gateway


def page(response: Any) -> tuple[int, Any]:
    return response.status_code, json.loads(response.body)


class Client:
    """What a client sends, message by message; then it stays, or leaves."""

    def __init__(self, *messages: dict[str, Any], stays: bool = True) -> None:
        self.messages, self.stays = list(messages), stays
        self.sent: list[dict[str, Any]] = []

    async def receive(self) -> dict[str, Any]:
        if self.messages:
            return self.messages.pop(0)
        if self.stays:
            await asyncio.sleep(60)
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.sent.append(dict(message))

    @property
    def answer(self) -> tuple[int, str]:
        """The status and the words of a refusal."""
        document = json.loads(b"".join(part.get("body", b"") for part in self.sent))
        return self.sent[0]["status"], document["error"]["message"]


def scope(path: str = "/v1/completions", **changed: Any) -> dict[str, Any]:
    usual = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode()}
    return {**usual, "query_string": b"", "headers": [], **changed}


def part(body: bytes, *, more: bool = False) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


class Pool:
    """A pool of connections that answers so."""

    def __init__(self, status: int, headers: list[tuple[bytes, bytes]], pieces: list[Any]) -> None:
        self.status, self.headers, self.pieces = status, headers, pieces
        self.requests: list[Any] = []
        self.closed = 0

    async def handle_async_request(self, request: Any) -> Any:
        self.requests.append(request)
        return self

    async def aiter_stream(self) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            if isinstance(piece, BaseException):
                raise piece
            if isinstance(piece, float):
                await asyncio.sleep(piece)
            else:
                yield piece

    async def aclose(self) -> None:
        self.closed += 1
