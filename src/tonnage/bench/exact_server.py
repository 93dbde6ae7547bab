"""A server that answers at known moments, and keeps the moments at which it wrote."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tonnage.bench import exact_replies
from tonnage.bench.arguments import Fault
from tonnage.bench.exact_replies import Connection
from tonnage.bench.timer import Alarm
from tonnage.errors import InputError, TonnageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The schedule of every reply."""

    ttft_s: float = 0.05  # from the start of service to the first token
    itl_s: float = 0.01  # between two tokens
    tokens: int = 0  # output tokens of every reply; 0 for as many as the request asks for
    # how many of them one event carries; it is sent when the last of them is due
    tokens_per_event: int = 1
    slots: int = 0  # requests in service at once, the others wait in order; 0 for no limit
    # and freeze_s: after so long from the first request the server does nothing at all for so long
    freeze_at_s: float = 0.0
    freeze_s: float = 0.0
    # what happens to every ``fault_every``-th request: a 429 or 500, a stream cut off in the
    # middle, an error event in the middle, no answer ever, or a connection closed without one
    fault: Fault = "none"
    fault_every: int = 0  # 0 for never

    def service_s(self, tokens: int) -> float:
        """Seconds of service of a reply of ``tokens`` tokens."""
        return self.ttft_s + max(tokens - 1, 0) * self.itl_s

    def sends(self, tokens: int) -> list[tuple[float, int]]:
        """When each event leaves, in seconds from the start of service, and how many tokens it
        carries.
        """
        sizes = [
            min(self.tokens_per_event, tokens - start)
            for start in range(0, tokens, self.tokens_per_event)
        ]
        events, sent = [], 0
        for size in sizes:
            sent += size
            events.append((self.service_s(sent), size))
        return events


LOGGED = 250_000  # Requests whose stamps are kept; the oldest go first


@dataclass(slots=True, eq=False, kw_only=True)
class Served:
    """A request in service, with the stamps of what was written for it (nanoseconds of the
    monotonic clock).
    """

    request: exact_replies.Request
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

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        schedule: Schedule,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
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
            self._connections.add(
                Connection(self._loop, peer, self._on_request, self._connections.discard)
            )

    def _on_request(
        self, connection: Connection, method: str, path: str, headers: dict[str, str], body: Any
    ) -> None:
        """Answer a question about the server, or take a request."""
        now = time.monotonic_ns()
        if method == "GET":
            connection.send(self._about(path))
            return
        number = headers.get("x-request-id", "")
        try:
            if not isinstance(body, dict):
                raise InputError("the body is not a JSON object")
            request = exact_replies.parse_request(
                path, int(number) if number.isdigit() else -1, body
            )
        except InputError as error:
            connection.send(
                exact_replies.document("400 Bad Request", {"error": {"message": str(error)}})
            )
            return
        self._take(request, connection, now)

    def _about(self, path: str) -> bytes:
        """The log (which is then empty), or Prometheus metrics by vLLM's names."""
        if path == "/log":
            rows = [list(row) for row in self.log]
            self.log.clear()
            return exact_replies.document("200 OK", {"requests": rows})
        if path == "/metrics":
            counts = {"running": self._running, "waiting": len(self._waiting)}
            return exact_replies.text(
                "200 OK",
                "".join(f"vllm:num_requests_{name} {value}\n" for name, value in counts.items()),
            )
        return exact_replies.document("404 Not Found", {"error": {"message": f"nothing at {path}"}})

    def _take(self, request: exact_replies.Request, connection: Connection, now: int) -> None:
        schedule = self._schedule
        if not self._received and schedule.freeze_s > 0:
            self._freeze_ns = now + round(schedule.freeze_at_s * 1e9)
            self._alarm.set(self._freeze_ns)
        self._received += 1
        fault: Fault = (
            schedule.fault
            if schedule.fault_every and self._received % schedule.fault_every == 0
            else "none"
        )
        if fault == "429":
            connection.send(
                exact_replies.document(
                    "429 Too Many Requests", {"error": {"message": "on purpose"}}
                )
            )
        elif fault == "500":
            connection.send(
                exact_replies.document(
                    "500 Internal Server Error", {"error": {"message": "on purpose"}}
                )
            )
        elif fault == "close":
            connection.close()
        elif fault != "hang":
            tokens = 0 if request.kind == "embeddings" else schedule.tokens or request.tokens
            served = Served(
                request=request, connection=connection, fault=fault, tokens=tokens, received_ns=now
            )
            if schedule.slots and self._running >= schedule.slots:
                self._waiting.append(served)
            else:
                self._start(served, now)
                if self._heap[0][2] is served:
                    self._set()

    def _start(self, served: Served, now: int) -> None:
        self._running += 1
        served.started_ns = now
        whole = not served.request.streaming
        served.sends = (
            [(self._schedule.service_s(served.tokens), served.tokens)]
            if whole
            else self._schedule.sends(served.tokens)
        )
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
        place, request = served.place, served.request
        size = served.sends[place][1]
        last = place + 1 == len(served.sends)
        if not request.streaming:
            data = exact_replies.whole(request, served.tokens)
        else:
            usual = size == self._schedule.tokens_per_event
            if usual and not served.event:
                served.event = exact_replies.event(request, size)
            data = served.event if usual else exact_replies.event(request, size)
            if not place:
                data = exact_replies.opening(request) + data
            if last:
                data += exact_replies.closing(request, served.tokens)
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
        served.connection.send(
            data + (exact_replies.failure(served.request) if served.fault == "error" else b"")
        )
        if served.fault == "cut":
            served.connection.close()
        self._end(served)

    def _end(self, served: Served) -> None:
        self.log.append(
            (
                served.request.number,
                served.received_ns,
                served.first_ns,
                served.last_ns,
                served.tokens,
            )
        )
        self._running -= 1
        if self._waiting:
            # The slot was free when the schedule says so, however late the last write was: so the
            # capacity is exact.
            following = self._waiting.popleft()
            freed = served.started_ns + round(served.sends[-1][0] * 1e9)
            self._start(following, max(min(freed, time.monotonic_ns()), following.received_ns))


LONGEST_S = 86_400.0


def serve(
    schedule: Schedule, *, host: str = "127.0.0.1", port: int = 0, seconds: float = LONGEST_S
) -> None:
    """Serve until SIGINT or SIGTERM, or for ``seconds``; prints where it listens, once it does.
    Raises OSError: the port is taken.
    """
    import uvloop

    async def run() -> None:
        loop = asyncio.get_running_loop()
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        server = ExactServer(loop, schedule, host=host, port=port)
        print(f"listening on http://{host}:{server.port}", flush=True)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), seconds)
        server.close()

    uvloop.run(run())


@contextmanager
def exact_server(schedule: Schedule, *, seconds: float = 600.0) -> Iterator[str]:
    """The URL of an exact server in its own process, until the block or ``seconds`` end. Raises
    TonnageError: it did not start.
    """
    command = [
        sys.executable,
        "-m",
        "tonnage.bench.exact_server",
        json.dumps(asdict(schedule)),
        str(seconds),
    ]
    # found from any folder, also where PYTHONPATH is relative
    here = str(Path(__file__).parents[2])
    paths = os.pathsep.join([here, *filter(None, [os.environ.get("PYTHONPATH")])])
    # the server ends with its standard input, however this process ends
    environment = {**os.environ, "PYTHONPATH": paths}
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
    try:
        line = process.stdout.readline() if process.stdout else ""
        if not line.startswith("listening on "):
            raise TonnageError(
                "the exact server did not start; let tonnage bench selftest serve it alone to"
                " see why"
            )
        yield line.removeprefix("listening on ").strip()
    finally:
        process.terminate()
        process.wait(timeout=30)
        for pipe in (process.stdin, process.stdout):
            if pipe:
                pipe.close()


def _end_with_parent() -> None:
    """Exit as soon as the parent closes its end of standard input."""
    # not by ``sys.stdin``, whose lock a thread may not hold where the process ends
    while os.read(0, 4_096):
        pass
    os._exit(0)


if __name__ == "__main__":
    threading.Thread(target=_end_with_parent, daemon=True).start()
    serve(Schedule(**json.loads(sys.argv[1])), seconds=float(sys.argv[2]))
