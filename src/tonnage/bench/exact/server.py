"""The exact server: every reply on its schedule, every write stamped, faults and freezes on demand."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import socket
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from tonnage.bench.alarm import Alarm
from tonnage.bench.exact import replies
from tonnage.bench.exact.connection import Connection
from tonnage.bench.exact.schedule import Fault, Schedule
from tonnage.errors import InputError

LOGGED = 250_000
"""Requests whose stamps are kept; the oldest go first."""


@dataclass(slots=True, eq=False, kw_only=True)
class Served:
    """A request in service, with the stamps of what was written for it (nanoseconds of the monotonic clock)."""

    asked: replies.Asked
    connection: Connection
    fault: Fault
    tokens: int
    received_ns: int
    started_ns: int = -1
    first_ns: int = -1
    last_ns: int = -1
    sends: list[tuple[float, int]] = field(default_factory=list)
    place: int = 0
    event: bytes = b""


class ExactServer:
    """Listens on 127.0.0.1 and answers by its schedule; every method runs on the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, schedule: Schedule, *, host: str = "127.0.0.1", port: int = 0) -> None:
        self._loop = loop
        self._schedule = schedule
        self._alarm = Alarm(loop, self._due)
        self._heap: list[tuple[int, int, Served]] = []
        self._order = itertools.count()
        self._waiting: deque[Served] = deque()
        self._running = 0
        self._received = 0
        self._freeze_ns = -1
        self._connections: set[Connection] = set()
        self.log: deque[tuple[int, int, int, int, int]] = deque(maxlen=LOGGED)
        self._socket = socket.create_server((host, port), backlog=4096)
        self._socket.setblocking(False)
        self.port: int = self._socket.getsockname()[1]
        loop.add_reader(self._socket, self._accept)

    def close(self) -> None:
        """End every connection and listen no more."""
        self._loop.remove_reader(self._socket)
        self._socket.close()
        self._alarm.close()
        for connection in list(self._connections):
            connection.close()

    def _accept(self) -> None:
        for _ in range(256):
            try:
                peer, _ = self._socket.accept()
            except OSError:
                return
            peer.setblocking(False)
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._connections.add(Connection(self._loop, peer, self._asked, self._connections.discard))

    def _asked(self, connection: Connection, method: str, path: str, headers: dict[str, str], body: Any) -> None:
        """Answer a question about the server, or take a request."""
        now = time.monotonic_ns()
        if method == "GET":
            connection.send(self._about(path))
            return
        number = headers.get("x-request-id", "")
        try:
            if not isinstance(body, dict):
                raise InputError("the body is not a JSON object")
            asked = replies.asked_of(path, int(number) if number.isdigit() else -1, body)
        except InputError as error:
            connection.send(replies.document("400 Bad Request", {"error": {"message": str(error)}}))
            return
        self._take(asked, connection, now)

    def _about(self, path: str) -> bytes:
        """The log (which is then empty), or Prometheus metrics by vLLM's names."""
        if path == "/log":
            rows = [list(row) for row in self.log]
            self.log.clear()
            return replies.document("200 OK", {"requests": rows})
        if path == "/metrics":
            counts = {"running": self._running, "waiting": len(self._waiting)}
            return replies.text("200 OK", "".join(f"vllm:num_requests_{name} {value}\n" for name, value in counts.items()))
        return replies.document("404 Not Found", {"error": {"message": f"nothing at {path}"}})

    def _take(self, asked: replies.Asked, connection: Connection, now: int) -> None:
        schedule = self._schedule
        if not self._received and schedule.freeze_s > 0:
            self._freeze_ns = now + round(schedule.freeze_at_s * 1e9)
            self._alarm.set(self._freeze_ns)
        self._received += 1
        fault: Fault = schedule.fault if schedule.fault_every and self._received % schedule.fault_every == 0 else "none"
        if fault == "429":
            connection.send(replies.document("429 Too Many Requests", {"error": {"message": "on purpose"}}))
        elif fault == "500":
            connection.send(replies.document("500 Internal Server Error", {"error": {"message": "on purpose"}}))
        elif fault == "close":
            connection.close()
        elif fault != "hang":
            tokens = 0 if asked.kind == "embeddings" else schedule.tokens or asked.tokens
            served = Served(asked=asked, connection=connection, fault=fault, tokens=tokens, received_ns=now)
            if schedule.slots and self._running >= schedule.slots:
                self._waiting.append(served)
            else:
                self._start(served, now)
                if self._heap[0][2] is served:
                    self._set()

    def _start(self, served: Served, now: int) -> None:
        self._running += 1
        served.started_ns = now
        whole = not served.asked.streaming
        served.sends = [(self._schedule.service_s(served.tokens), served.tokens)] if whole else self._schedule.sends(served.tokens)
        self._plan(served)

    def _plan(self, served: Served) -> None:
        """Put the next event of a request on the heap; the caller sets the alarm."""
        moment = served.started_ns + round(served.sends[served.place][0] * 1e9)
        heapq.heappush(self._heap, (moment, next(self._order), served))

    def _set(self) -> None:
        moments = [self._heap[0][0]] if self._heap else []
        if self._freeze_ns >= 0:
            moments.append(self._freeze_ns)
        if moments:
            self._alarm.set(min(moments))

    def _due(self) -> None:
        """Send everything whose moment has come."""
        now = time.monotonic_ns()
        if 0 <= self._freeze_ns <= now:
            self._freeze_ns = -1
            time.sleep(self._schedule.freeze_s)
            now = time.monotonic_ns()
        heap = self._heap
        while heap and heap[0][0] <= now:
            _, _, served = heapq.heappop(heap)
            self._send(served)
        self._set()

    def _send(self, served: Served) -> None:
        """Send the next event of a request, and what begins and ends its reply with it."""
        place, asked = served.place, served.asked
        size = served.sends[place][1]
        last = place + 1 == len(served.sends)
        if not asked.streaming:
            data = replies.whole(asked, served.tokens)
        else:
            usual = size == self._schedule.tokens_per_event
            if usual and not served.event:
                served.event = replies.event(asked, size)
            data = served.event if usual else replies.event(asked, size)
            if not place:
                data = replies.opening(asked) + data
            if last:
                data += replies.closing(asked, served.tokens)
            elif served.fault in ("cut", "error") and 2 * (place + 1) >= len(served.sends):
                self._break(served, data)
                return
        stamp = time.monotonic_ns()
        served.connection.send(data)
        served.first_ns = stamp if served.first_ns < 0 else served.first_ns
        served.last_ns = stamp
        served.place += 1
        if last or not served.connection.open:
            self._end(served)
        else:
            self._plan(served)

    def _break(self, served: Served, data: bytes) -> None:
        """End a stream in the middle, as its fault says."""
        served.connection.send(data + (replies.failure(served.asked) if served.fault == "error" else b""))
        if served.fault == "cut":
            served.connection.close()
        self._end(served)

    def _end(self, served: Served) -> None:
        self.log.append((served.asked.number, served.received_ns, served.first_ns, served.last_ns, served.tokens))
        self._running -= 1
        if self._waiting:
            # The slot was free when the schedule says so, however late the last write was: so the capacity is exact.
            following = self._waiting.popleft()
            freed = served.started_ns + round(served.sends[-1][0] * 1e9)
            self._start(following, max(min(freed, time.monotonic_ns()), following.received_ns))
