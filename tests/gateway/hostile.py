"""Clients that idle, drip, send too much, leave, or smuggle, against a gateway that is a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.gateway.fakes import get, post
from tests.gateway.test_bounds import SMUGGLED
from tonnage.bench.connection import more_descriptors

BODY = json.dumps({"prompt": "a b c", "max_tokens": 4}).encode()
STREAM = json.dumps({"prompt": "a b c", "max_tokens": 20, "stream": True}).encode()
PATIENT_S = 30.0

POOLED_S = 5.0
"""After so long without requests, the gateway has closed its idle connections to backends."""

OVERSIZE = {
    "a target": get("/v1/" + "a" * 9_000),
    "headers": get("/v1/x", "A: " + "a" * 70_000),
    "many headers": get("/v1/x", *(f"A{i}: 1" for i in range(200))),
    "a body that says so": b"POST /v1/x HTTP/1.1\r\nHost: a\r\nContent-Length: 99000000\r\n\r\n",
    "a body in chunks": b"POST /v1/x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + b"100000\r\n%s\r\n" % (b"a" * 2**20) * 33,
}


@dataclass(frozen=True, kw_only=True)
class Used:
    """What a process holds: resident memory in MB, descriptors."""

    memory_mb: float
    descriptors: int


def used_by(pid: int) -> Used:
    """By a process now."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return Used(memory_mb=pages * os.sysconf("SC_PAGE_SIZE") / 1e6, descriptors=len(list(Path(f"/proc/{pid}/fd").iterdir())))


@contextmanager
def gateway_process(*flags: str) -> Iterator[tuple[int, int]]:
    """A gateway with these flags on a free port; its process id and port."""
    command = [sys.executable, "-m", "tonnage", "gateway", *flags, "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            line = process.stderr.readline() if process.stderr else ""
            found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
            if found is None:
                raise RuntimeError(line)
            yield process.pid, int(found[1])
        finally:
            process.terminate()
            process.wait(timeout=30)


async def asks(port: int, data: bytes) -> tuple[int, bytes]:
    """One request on a connection of its own: the status and all that came; status 0 where nothing did."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    found = b""
    try:
        with contextlib.suppress(OSError):
            writer.write(data)
            found = await asyncio.wait_for(reader.read(-1), PATIENT_S)
    finally:
        writer.close()
    return int(found[9:12] or 0), found


async def status_of(port: int, data: bytes) -> int:
    """The status of the first answer; the connection may go on after it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data)
        return int((await asyncio.wait_for(reader.read(65_536), PATIENT_S))[9:12] or 0)
    finally:
        writer.close()


async def leaves(port: int, after_s: float, *headers: str) -> None:
    """Ask for a stream and go away."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(post(STREAM, "/v1/completions", *headers))
    with contextlib.suppress(TimeoutError, OSError, EOFError):
        await asyncio.wait_for(reader.readexactly(200_000), after_s)
    writer.transport.abort()


async def drips(port: int, pause_s: float = 0.5) -> int:
    """Send a request byte by byte; the status that ends it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    read = asyncio.create_task(reader.read(-1))
    try:
        with contextlib.suppress(OSError):
            for byte in post(BODY, "/v1/completions", "X: " + "x" * 200):
                writer.write(bytes([byte]))
                if (await asyncio.wait({read}, timeout=pause_s))[0]:
                    break
        return int((await asyncio.wait_for(read, PATIENT_S))[9:12] or 0)
    finally:
        writer.close()


async def reads_slowly(port: int, seconds: float, *headers: str) -> None:
    """Ask for a stream, read nothing of it for a while, and then all."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1_024)
    writer.write(post(STREAM, "/v1/completions", "Connection: close", *headers))
    await asyncio.sleep(seconds)
    with contextlib.suppress(OSError):
        await asyncio.wait_for(reader.read(-1), PATIENT_S)
    writer.close()


@dataclass(frozen=True, kw_only=True)
class Withstood:
    """What a gateway came through.

    Attributes:
        idle: connections that stood at once without a request.
        before, during, after: what it held before them, with them, and when all had gone.
        alone_ms, crowded_ms: median time of a short request without and with them.
        dripping, oversize, smuggled: the statuses that such requests got.
        left: requests that clients who left have left running.
        reached: requests of all these that a backend was sent, by the gateway's count; only those of clients who left should be.
    """

    idle: int
    before: Used
    during: Used
    after: Used
    alone_ms: float
    crowded_ms: float
    dripping: Counter[int]
    oversize: Counter[int]
    smuggled: Counter[int]
    left: int
    reached: int


async def _median_ms(port: int) -> float:
    found = []
    for _ in range(50):
        began = time.perf_counter()
        status, _ = await asks(port, post(BODY, "/v1/completions", "Connection: close"))
        if status != 200:
            raise RuntimeError(f"status {status}")
        found.append(1e3 * (time.perf_counter() - began))
    return statistics.median(found)


async def _counts(port: int) -> tuple[int, int]:
    """Requests in flight, and all that backends were sent."""
    _, page = await asks(port, get("/metrics", "Connection: close"))
    now = re.search(rb"^tonnage_gateway_in_flight ([0-9.]+)", page, re.MULTILINE)
    ended = re.findall(rb"^tonnage_gateway_requests_total\{[^}]*\} ([0-9.]+)", page, re.MULTILINE)
    return int(float(now[1])) if now else -1, int(sum(map(float, ended)))


async def withstand(pid: int, port: int, idle: int) -> Withstood:
    """Everything at one gateway, in turn; about 25 seconds."""
    more_descriptors()
    alone = await _median_ms(port)
    before = used_by(pid)
    crowd = []
    for _ in range(0, idle, 500):
        crowd += await asyncio.gather(*(asyncio.open_connection("127.0.0.1", port) for _ in range(min(500, idle - len(crowd)))))
    await asyncio.sleep(0.5)
    standing = sum(not reader.at_eof() for reader, _ in crowd)
    during, crowded = used_by(pid), await _median_ms(port)
    _, sent = await _counts(port)
    dripping = Counter(await asyncio.gather(*(drips(port) for _ in range(200))))
    oversize = Counter([(await asks(port, data))[0] for data in OVERSIZE.values() for _ in range(5)])
    smuggled = Counter([await status_of(port, data) for data in SMUGGLED.values()])
    _, after_all = await _counts(port)
    await asyncio.gather(*(leaves(port, 0.001 * (i % 100)) for i in range(300)))
    for _, writer in crowd:
        writer.transport.abort()
    await asyncio.sleep(POOLED_S)
    left, _ = await _counts(port)
    return Withstood(
        idle=standing,
        before=before,
        during=during,
        after=used_by(pid),
        alone_ms=alone,
        crowded_ms=crowded,
        dripping=dripping,
        oversize=oversize,
        smuggled=smuggled,
        left=left,
        reached=after_all - sent,
    )
