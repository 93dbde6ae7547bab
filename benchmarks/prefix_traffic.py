"""Conversations of several turns over workers that keep the KV cache of a part of them: how much of
the prompts a balancer lets be reused.

``./benchmark balance --only prefixes`` runs it. A worker is this file as a program:

    python benchmarks/prefix_traffic.py PORT

It answers completions like an engine with a prefix cache, and counts: its cache holds 1,500 blocks
of 64 characters, the least recently used ones go first; one prompt is read at a time, 0.2 ms for
each block that is not in the cache; then an answer takes 40 ms. The conversations that are held at
once fit into the caches of three workers, if each stays with one, and not into that of one.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
import urllib.request
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from starlette.requests import Request

BLOCK, CAPACITY = 64, 1_500
READ_S, ANSWER_S = 0.0002, 0.04
SYSTEM = "You are a helpful assistant of a company that sells tons of things. " * 8
CONVERSATIONS, TURNS, AT_ONCE = 90, 6, 24
QUESTION_WORDS = 60
ANSWER = " the answer to this is long enough to matter" * 8


class Cache:
    """Blocks by their hash, each over everything before it; the least recently used ones are
    dropped.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        """Empty, for so many blocks."""
        self._held: OrderedDict[int, None] = OrderedDict()
        self._capacity = capacity
        self.asked = self.hit = 0

    def read(self, text: str) -> int:
        """Take a prompt in; how many of its whole blocks had to be computed."""
        chained, missing, blocks, broken = 0, 0, len(text) // BLOCK, False
        for place in range(0, len(text) - BLOCK + 1, BLOCK):
            chained = hash((chained, text[place : place + BLOCK]))
            broken = broken or chained not in self._held
            missing += broken
            self._held[chained] = None
            self._held.move_to_end(chained)
        while len(self._held) > self._capacity:
            self._held.popitem(last=False)
        self.asked += blocks
        self.hit += blocks - missing
        return missing


def application() -> Any:
    """The worker as an ASGI application."""
    from starlette.applications import Starlette
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    cache, reading, served = Cache(), asyncio.Lock(), [0]

    async def complete(request: Request) -> JSONResponse:
        body = await request.json()
        served[0] += 1
        async with reading:
            await asyncio.sleep(READ_S * cache.read(str(body["prompt"])))
        await asyncio.sleep(ANSWER_S)
        choice = {"index": 0, "text": ANSWER, "finish_reason": "stop", "logprobs": None}
        return JSONResponse(
            {
                "id": "cmpl-1",
                "object": "text_completion",
                "created": 0,
                "model": "m",
                "choices": [choice],
            }
        )

    async def counts(request: Request) -> JSONResponse:
        return JSONResponse({"asked": cache.asked, "hit": cache.hit, "served": served[0]})

    async def models(request: Request) -> JSONResponse:
        return JSONResponse({"object": "list", "data": [{"id": "m", "object": "model"}]})

    async def health(request: Request) -> JSONResponse:
        return JSONResponse({})

    routes = [
        Route("/v1/completions", complete, methods=["POST"]),
        Route("/counts", counts),
        Route("/v1/models", models),
    ]
    return Starlette(routes=[*routes, Route("/health", health)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Reused:
    """What came of one run.

    Attributes:
        share: of the prompts' blocks, those that were in the cache of the worker that got them.
        makespan_s: from the first request to the last answer.
        uneven: requests of the busiest worker over the mean of all.
    """

    share: float
    makespan_s: float
    uneven: float


@asynccontextmanager
async def _connection(
    port: int,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def _ask(port: int, prompt: str, session: str) -> str:
    body = json.dumps({"model": "m", "prompt": prompt, "max_tokens": 64, "user": session}).encode()
    head = (
        "POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type:"
        f" application/json\r\nX-Session-Id: {session}\r\n"
    )
    async with _connection(port) as (reader, writer):
        writer.write(
            f"{head}Connection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
        )
        data = await asyncio.wait_for(reader.read(-1), 60)
    if not data.startswith(b"HTTP/1.1 200"):
        raise RuntimeError(data[:200].decode(errors="replace"))
    return ANSWER


async def talk(port: int, seed: int) -> float:
    """All conversations, so many at once; seconds from the first request to the last answer."""
    slots = asyncio.Semaphore(AT_ONCE)
    began = time.monotonic()

    async def one(number: int) -> None:
        chance = random.Random(f"{seed}/{number}")
        async with slots:
            text = SYSTEM
            for _ in range(TURNS):
                text += " user: " + " ".join(
                    str(chance.randrange(10**6)) for _ in range(QUESTION_WORDS)
                )
                text += await _ask(port, text, f"{seed}-{number}")
                await asyncio.sleep(chance.random() * 0.1)

    await asyncio.gather(*(one(number) for number in range(CONVERSATIONS)))
    return time.monotonic() - began


def reused(url: str, workers: list[str], seed: int) -> Reused:
    """Hold the conversations through a balancer; what the workers counted meanwhile."""
    before = [_counts(worker) for worker in workers]
    makespan = asyncio.run(talk(int(url.rpartition(":")[2]), seed))
    found = [
        {name: one[name] - old[name] for name in one}
        for one, old in zip(map(_counts, workers), before, strict=True)
    ]
    served = [one["served"] for one in found]
    return Reused(
        share=sum(one["hit"] for one in found) / sum(one["asked"] for one in found),
        makespan_s=makespan,
        uneven=max(served) * len(served) / sum(served),
    )


def _counts(worker: str) -> dict[str, int]:
    with urllib.request.urlopen(f"{worker}/counts", timeout=10) as answer:
        return dict(json.load(answer))


if __name__ == "__main__":
    import uvicorn

    uvicorn.run(
        application(),
        host="127.0.0.1",
        port=int(sys.argv[1]),
        log_level="warning",
        access_log=False,
    )
