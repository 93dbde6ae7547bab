"""Reads every socket of a client in rounds, each piece with the moment at which the kernel received
it.

A client that stamps what it reads itself is late by what its loop was late, and must wake for every
piece. Linux notes when each packet came in (``SO_TIMESTAMPNS``, socket(7)) and says so with the
bytes (``recvmsg``): the stamp is true however late it is read. So a receiver that pieces come to
quickly reads them in rounds, a pause apart, and wakes once for many of them. The pause is short
compared with how long requests take and how far their pieces lie apart; sparse pieces, and all of
them where there are no such stamps, are read at once.

Two pieces of one stream that are read together have one stamp. So replies that are complete are
parsed a millisecond at a time, and the sockets are read between, however many replies end at once.
"""

from __future__ import annotations

import asyncio
import select
import socket
import struct
import sys
import time
from collections import deque
from typing import Any, Protocol

from tonnage.bench.reply import Exchange
from tonnage.bench.timer import Alarm

# ``SO_TIMESTAMPNS`` and the kind of the message that carries it, of 64-bit Linux
# (include/uapi/asm-generic/socket.h)
STAMPS = 35
# Pieces of one socket that are read in a round at most: a peer that sends without end must not hold
# up the others
MOST_PIECES = 64
PIECE = 16_384  # Bytes that are read from a socket at once; where there are more, it is read again
# The longest pause between two rounds, and the shortest that saves more than it costs
MOST_PAUSE_NS, LEAST_PAUSE_NS = 2_000_000, 100_000

OF_REQUEST, OF_GAP = 100, 5
"""The pause is at most this part of the time that a request takes, and this part of the time
between two of its pieces."""

SLOWLY = 8  # The pause follows the requests by this part of the difference
EMPTY_ROUNDS = 2  # Rounds without a piece after which the next piece is waited for

SLACK_NS = 1_000_000
"""By which a piece may seem older than the round before it, at which it had not come yet; what
seems older still has a wrong stamp."""

SLICE_NS = 1_000_000  # For which replies are parsed before the sockets are read again
HELD_UP_NS = 20_000  # Between two readings of the clocks; more means that something else ran

_SPEC = struct.Struct("qq")
_clock = time.monotonic_ns


class Readable(Protocol):
    """A connection, as far as it is read."""

    socket: socket.socket
    receive: Any  # the ``recvmsg`` of the socket

    def received(self, ns: int, data: bytes) -> bool:
        """Keep a piece that came at that moment; whether the reply must be looked at now."""

    def look(self) -> None:
        """Parse what has come."""


class Receiver:
    """Reads connections and hands each those pieces that came for it; runs on the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._connections: dict[int, Readable] = {}
        self._epoll = select.epoll() if sys.platform == "linux" else None
        self._alarm = Alarm(loop, self._tick)
        self._pause_ns = 0
        self._last_ns = _clock()
        self._earliest_ns = 0
        self._empty = 0
        self._stamped = False
        self._looks: deque[Readable] = deque()
        self._later = False
        self._waiting = False
        self._wait()

    def add(self, connection: Readable) -> None:
        """Read a connection from now on."""
        descriptor = connection.socket.fileno()
        self._connections[descriptor] = connection
        if self._epoll is None:
            self._loop.add_reader(descriptor, self._read_one, descriptor)
        else:
            connection.socket.setsockopt(socket.SOL_SOCKET, STAMPS, 1)
            self._epoll.register(descriptor, select.EPOLLIN)

    def remove(self, connection: Readable) -> None:
        """Read a connection no more; its socket is still open."""
        descriptor = connection.socket.fileno()
        if self._connections.pop(descriptor, None) is None:
            return
        if self._epoll is None:
            self._loop.remove_reader(descriptor)
        else:
            self._epoll.unregister(descriptor)

    def learn(self, exchange: Exchange) -> None:
        """Fit the pause to an exchange that is over."""
        reply = exchange.reply
        took = reply.last_ns - exchange.sent_ns
        if took > 0 and self._stamped:
            fits = min(
                MOST_PAUSE_NS, took // OF_REQUEST, took // (OF_GAP * max(len(reply.times), 1))
            )
            self._pause_ns += (fits - self._pause_ns) // SLOWLY

    def close(self) -> None:
        """Read nothing more."""
        for connection in list(self._connections.values()):
            self.remove(connection)
        self._alarm.close()
        if self._epoll is not None:
            if self._waiting:
                self._loop.remove_reader(self._epoll.fileno())
            self._epoll.close()
            self._epoll = None
        self._looks.clear()

    def _wait(self) -> None:
        """Let the next piece begin a round."""
        if self._epoll is not None:
            self._waiting = True
            self._loop.add_reader(self._epoll.fileno(), self._round)

    def _round(self) -> None:
        """A piece has come; where the one before it is not long ago, the next are read after a
        pause.
        """
        before, now = self._last_ns, _clock()
        if (
            self._epoll is not None
            and self._pause_ns >= LEAST_PAUSE_NS
            and now - before < self._pause_ns
        ):
            self._waiting = False
            self._loop.remove_reader(self._epoll.fileno())
            self._empty = 0
            self._alarm.set(now + self._pause_ns)
        self._poll()

    def _tick(self) -> None:
        """The pause is over."""
        if self._empty < EMPTY_ROUNDS and self._pause_ns >= LEAST_PAUSE_NS:
            self._alarm.set(_clock() + self._pause_ns)
        else:
            self._wait()
        self._empty = 0 if self._poll() else self._empty + 1

    def _poll(self) -> bool:
        """Read every socket that has something; whether one had."""
        now = _clock()
        events = self._epoll.poll(0, len(self._connections) + 1) if self._epoll is not None else []
        if events:
            self._last_ns = now
            self._read(events, now)
        if self._looks and not self._later:
            self._look()
        return bool(events)

    def _read_one(self, descriptor: int) -> None:
        """Read a socket, where sockets cannot be read in rounds."""
        self._read([(descriptor, 0)], 0)
        self._poll()

    def _look(self) -> None:
        """Let connections parse what they have, for a moment; the rest follows once the sockets
        have been read again.
        """
        until, looks = _clock() + SLICE_NS, self._looks
        while looks:
            looks.popleft().look()
            if looks and _clock() >= until:
                self._later = True
                self._loop.call_soon(self._go_on)
                return

    def _go_on(self) -> None:
        self._later = False
        self._poll()

    def _read(self, ready: list[tuple[int, int]], polled_ns: int) -> None:
        """Stamp and keep a piece of each of these sockets, and note the connections whose reply may
        be complete.
        """
        earliest, self._earliest_ns = self._earliest_ns, polled_ns - SLACK_NS
        now, offset = _now_and_offset()
        connections = self._connections
        for descriptor, _ in ready:
            connection = connections.get(descriptor)
            if connection is None:
                continue
            for _ in range(MOST_PIECES):
                try:
                    data, messages, _, _ = connection.receive(PIECE, 64)
                except (BlockingIOError, InterruptedError):
                    break
                except OSError:
                    data, messages = b"", []
                stamp = now
                if messages and messages[0][1] == STAMPS:
                    self._stamped = True
                    seconds, nanoseconds = _SPEC.unpack(messages[0][2])
                    stamp = seconds * 1_000_000_000 + nanoseconds + offset
                # it came during this round, or the wall clock was set
                if not earliest <= stamp <= now:
                    stamp = min(stamp, _clock()) if stamp > now else _clock()
                if connection.received(stamp, data):
                    self._looks.append(connection)
                if len(data) < PIECE:
                    break


def _now_and_offset() -> tuple[int, int]:
    """The moment on the monotonic clock, and what to add for the wall clock's; read again where the
    process was held up between the two.
    """
    while True:
        before, wall, after = _clock(), time.time_ns(), _clock()
        if after - before < HELD_UP_NS:
            return after, before - wall
