"""The client: connections to one server that are kept and used again, exchanges with a time
limit.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Callable
from typing import Any

from tonnage.bench.connection import Connection, Secured, Target
from tonnage.bench.infer import Http2
from tonnage.bench.receiver import Receiver
from tonnage.bench.reply import COMPLETED, TIMED_OUT, Exchange, Reply

SWEEP_S = 0.1  # Interval of the search for requests that have taken too long

REFUSED = "connection refused"


class Client:
    """Sends exchanges and hands each back exactly once, however it ends."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        target: Target,
        *,
        done: Callable[[Exchange], None],
        fresh_reply: Callable[[], Reply],
        timeout_s: float,
        tls: ssl.SSLContext | None = None,
        reuse: bool = True,
    ) -> None:
        """``done`` gets each exchange that is over, on the loop's thread; ``fresh_reply`` makes the
        reply of one that is sent again.
        """
        self._loop = loop
        self._target = target
        self._done = done
        self._fresh_reply = fresh_reply
        self._timeout_ns = round(timeout_s * 1e9)
        self._tls = tls
        self._reuse = reuse
        self._receiver = Receiver(loop)
        self._addresses: list[tuple[int, Any]] = []
        self._idle: list[Connection] = []
        self._busy: dict[Exchange, Connection | asyncio.Task[None]] = {}
        self._sweep: asyncio.TimerHandle | None = loop.call_later(SWEEP_S, self._look_for_late)
        self.connections = 0
        # requests sent again because the server had closed a kept connection before it read them
        self.retries = 0

    @property
    def in_flight(self) -> int:
        """Exchanges that are not over."""
        return len(self._busy)

    def start(self, exchange: Exchange) -> None:
        """Send now, on a kept connection or on a new one."""
        exchange.begun_ns = time.monotonic_ns()
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                self._busy[exchange] = connection
                connection.send(exchange)
                return
        self._connect(exchange)

    def _connect(self, exchange: Exchange) -> None:
        self._busy[exchange] = self._loop.create_task(self._send_on_new(exchange))

    async def _send_on_new(self, exchange: Exchange) -> None:
        try:
            connection = await self._open()
        except ConnectionRefusedError:
            self._over(exchange, REFUSED)
        except ssl.SSLError as error:
            self._over(exchange, "TLS failed", " ".join(str(error.reason or error).split())[:160])
        except OSError as error:
            self._over(
                exchange, "cannot connect", " ".join(str(error.strerror or error).split())[:160]
            )
        else:
            self.connections += 1
            if exchange in self._busy:
                self._busy[exchange] = connection
                connection.send(exchange)
            else:
                connection.close()

    async def _open(self) -> Connection:
        """A new connection, to the first address of the server that takes it."""
        loop, target = self._loop, self._target
        if not self._addresses:
            address_infos = await loop.getaddrinfo(
                target.host, target.port, type=socket.SOCK_STREAM
            )
            self._addresses = [(family, address) for family, _, _, _, address in address_infos]
        refused: OSError = OSError(f"{target.host} has no address")
        for family, address in self._addresses:
            connected = socket.socket(family, socket.SOCK_STREAM)
            try:
                connected.setblocking(False)
                connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                await loop.sock_connect(connected, address)
                secured = (
                    Http2(target.authority)
                    if target.grpc
                    else None
                    if self._tls is None
                    else Secured(self._tls, target.host)
                )
                if secured is not None:
                    await secured.shake_hands(loop, connected)
                return Connection(loop, self.exchanged, self._receiver, connected, secured)
            except ssl.SSLError:
                connected.close()
                raise
            except OSError as error:
                connected.close()
                refused = error
            except BaseException:
                connected.close()
                raise
        raise refused

    def exchanged(self, connection: Connection, exchange: Exchange) -> None:
        """Take a connection back, and hand the exchange on unless it is to be sent again."""
        if exchange.outcome == COMPLETED:
            self._receiver.learn(exchange)
        if connection.usable and self._reuse:
            self._idle.append(connection)
        elif connection.usable:
            connection.close()
        stale = (
            connection.used > 1
            and exchange.outcome == "closed without a reply"
            and not exchange.retried
        )
        if stale and exchange in self._busy:
            exchange.retried, exchange.outcome, exchange.reply = (
                True,
                COMPLETED,
                self._fresh_reply(),
            )
            self.retries += 1
            self._connect(exchange)
        else:
            self._over(exchange)

    def _over(self, exchange: Exchange, outcome: str = COMPLETED, detail: str = "") -> None:
        if self._busy.pop(exchange, None) is None:
            return
        if outcome != COMPLETED:
            exchange.fail(outcome, detail)
        self._done(exchange)

    def _look_for_late(self) -> None:
        """Give up what has taken longer than the time limit."""
        latest = time.monotonic_ns() - self._timeout_ns
        for exchange in [e for e in self._busy if e.begun_ns < latest]:
            self.give_up(exchange, TIMED_OUT)
        self._sweep = self._loop.call_later(SWEEP_S, self._look_for_late)

    def give_up(self, exchange: Exchange, outcome: str) -> None:
        """End an exchange that is not over."""
        at = self._busy.get(exchange)
        if isinstance(at, Connection):
            at.abort(outcome)
        elif at is not None:
            at.cancel()
            self._over(exchange, outcome)

    def give_up_all(self, outcome: str) -> None:
        """End every exchange that is not over."""
        for exchange in list(self._busy):
            self.give_up(exchange, outcome)

    def close(self) -> None:
        """Close what is idle; nothing may be in flight."""
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        for connection in self._idle:
            connection.close()
        self._idle.clear()
        self._receiver.close()
