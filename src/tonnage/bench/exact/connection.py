"""One client of the exact server: requests in, bytes out at once, without a buffer between a stamp and its packet."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import Callable
from typing import Any

MAX_REQUEST = 67_108_864


class Connection:
    """A socket that is read as HTTP/1.1 requests and written to directly.

    ``send`` calls the kernel before it returns, so that a stamp taken before it is the earliest moment at which a client
    could have seen the bytes. What the kernel does not take waits and follows in order.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        peer: socket.socket,
        asked: Callable[[Connection, str, str, dict[str, str], Any], None],
        closed: Callable[[Connection], None],
    ) -> None:
        self._loop = loop
        self._peer = peer
        self._asked = asked
        self._closed = closed
        self._read = bytearray()
        self._waiting = bytearray()
        self.open = True
        loop.add_reader(peer, self._readable)

    def send(self, data: bytes) -> None:
        """Write now; nothing happens on a connection that has ended."""
        if not self.open:
            return
        sent = 0
        if not self._waiting:
            try:
                sent = self._peer.send(data)
            except (BlockingIOError, InterruptedError):
                sent = 0
            except OSError:
                self.close()
                return
        if sent < len(data):
            if not self._waiting:
                self._loop.add_writer(self._peer, self._writable)
            self._waiting += data[sent:]

    def close(self) -> None:
        """End the connection."""
        if not self.open:
            return
        self.open = False
        self._loop.remove_reader(self._peer)
        self._loop.remove_writer(self._peer)
        self._peer.close()
        self._closed(self)

    def _writable(self) -> None:
        with contextlib.suppress(BlockingIOError, InterruptedError):
            try:
                sent = self._peer.send(self._waiting)
            except OSError:
                self.close()
                return
            del self._waiting[:sent]
        if not self._waiting:
            self._loop.remove_writer(self._peer)

    def _readable(self) -> None:
        try:
            data = self._peer.recv(262_144)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        self._read += data
        if not data or len(self._read) > MAX_REQUEST:
            self.close()
            return
        while self.open and self._one():
            pass

    def _one(self) -> bool:
        """Hand on one complete request; False where none is there."""
        end = self._read.find(b"\r\n\r\n")
        if end < 0:
            return False
        first, *lines = bytes(self._read[:end]).decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        words = first.split(" ")
        length = headers.get("content-length", "0")
        if len(words) != 3 or not length.isdigit():
            self.close()
            return False
        stop = end + 4 + int(length)
        if len(self._read) < stop:
            return False
        body = bytes(self._read[end + 4 : stop])
        del self._read[:stop]
        try:
            value = json.loads(body) if body else {}
        except ValueError:
            value = None
        self._asked(self, words[0], words[1], headers, value)
        return True
