"""One connection of the client: keeps what it receives with its stamp, and reads it a moment later.

``received`` does two things: it keeps the bytes, and looks whether the reply may be complete. The
bytes are read after all sockets of the same round have been stamped.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from tonnage.bench.conversations import History, Pieces
from tonnage.bench.endpoints import Endpoint
from tonnage.bench.http_response import BrokenReply
from tonnage.bench.infer import Http2, Tensors
from tonnage.bench.prompts import FilePrompts, Prompts, body_bytes
from tonnage.bench.receiver import Receiver
from tonnage.bench.reply import Exchange, Reply
from tonnage.errors import InputError, option

PIECE = 65_536


class Secured:
    """One encrypted connection. ``ssl.SSLError`` where the peer does not keep to the protocol or
    cannot be trusted.
    """

    def __init__(self, context: ssl.SSLContext, name: str) -> None:
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_hostname=name)

    async def shake_hands(self, loop: asyncio.AbstractEventLoop, connected: socket.socket) -> None:
        """Agree on keys, and check the peer's certificate. Raises ssl.SSLError: not to be trusted;
        OSError: the connection was lost.
        """
        done = False
        while not done:
            try:
                self._tls.do_handshake()
                done = True
            except ssl.SSLWantReadError:
                await self._flush(loop, connected)
                data = await loop.sock_recv(connected, PIECE)
                if data:
                    self._in.write(data)
                else:
                    self._in.write_eof()
        await self._flush(loop, connected)

    async def _flush(self, loop: asyncio.AbstractEventLoop, connected: socket.socket) -> None:
        if data := self._out.read():
            await loop.sock_sendall(connected, data)

    def encrypted(self, data: bytes) -> bytes:
        """Encrypt ``data`` for the wire."""
        self._tls.write(data)
        return self._out.read()

    def answers(self) -> bytes:
        """The bytes that TLS must send in reply to the peer."""
        return self._out.read()

    def decrypted(self, data: bytes) -> tuple[bytes, bool]:
        """What the peer says, and whether this is the end. Raises ssl.SSLError: these bytes are not
        what it should send.
        """
        self._in.write(data)
        parts: list[bytes] = []
        with contextlib.suppress(ssl.SSLWantReadError):
            while True:
                try:
                    part = self._tls.read(PIECE)
                except ssl.SSLZeroReturnError:
                    part = b""
                if not part:
                    return b"".join(parts), True
                parts.append(part)
        return b"".join(parts), False


HELD = 128  # Pieces of an unfinished reply that are kept unread at most
LARGE = 16_384  # Bytes from which a piece is not kept waiting
# What a reply says that its connection ended before it
ENDED_EARLY = ("cut off", "closed without a reply")

_clock = time.monotonic_ns


class Connection:
    """A socket with at most one exchange at a time."""

    __slots__ = (
        *(
            "_eager",
            "_latest_ns",
            "_loop",
            "_looking",
            "_open",
            "_done",
            "_pieces",
            "_receiver",
            "_secured",
            "_unsent",
        ),
        *("exchange", "receive", "socket", "usable", "used"),
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        done: Callable[[Connection, Exchange], None],
        receiver: Receiver,
        connected: socket.socket,
        secured: Secured | Http2 | None = None,
    ) -> None:
        self.socket = connected  # connected, and not blocking
        self.receive = connected.recvmsg
        self._loop = loop
        # called when an exchange is over; ``usable`` says whether the connection can carry another
        self._done = done
        self._receiver = receiver
        self._secured = secured
        self._open = self.usable = True  # usable: whether it can carry another
        self._eager = True
        self._latest_ns = -1
        self._looking = False
        self._unsent = b""
        self._pieces: list[tuple[int, bytes]] = []
        self.exchange: Exchange | None = None  # the one in flight; None between two
        self.used = 0  # how many it has carried
        receiver.add(self)

    def send(self, exchange: Exchange) -> None:
        """Send a request; its reply ends in ``done``."""
        self.exchange = exchange
        self.used += 1
        self._eager = True
        exchange.sent_ns = self._latest_ns = _clock()
        if self._open:
            self._unsent = (
                exchange.data if self._secured is None else self._secured.encrypted(exchange.data)
            )
            self._write()
        if not self._open and not self._looking:
            self._looking = True
            self._loop.call_soon(self.look)

    def _write(self) -> None:
        """Hand over what the kernel takes; the rest follows when it takes more."""
        try:
            sent = self.socket.send(self._unsent)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError:
            self._loop.remove_writer(self.socket)
            return  # the end of the connection is read, after what had come before it
        if sent < len(self._unsent):
            self._unsent = self._unsent[sent:]
            self._loop.add_writer(self.socket, self._write)
        elif self._unsent:
            self._unsent = b""
            self._loop.remove_writer(self.socket)

    def received(self, ns: int, data: bytes) -> bool:
        """Keep a piece that came at ``ns``, not before the last one; none: the peer has ended.
        Whether the reply must be read now.
        """
        ended = not data
        if self._secured is not None and data:
            try:
                data, ended = self._secured.decrypted(data)
            except ssl.SSLError:
                data, ended = b"", True
            if not ended and (answers := self._secured.answers()):
                self._unsent += answers
                self._write()
        pieces = self._pieces
        if data:
            ns = max(ns, self._latest_ns)
            self._latest_ns = ns
            pieces.append((ns, data))
        if ended:  # what had come before is still read
            self.close()
            return self.exchange is not None
        if (
            data.endswith(b"\r\n\r\n")
            or self._eager
            or len(pieces) > HELD
            or not 8 <= len(data) < LARGE
        ):
            looking, self._looking = self._looking, True
            return not looking
        return False

    def look(self) -> None:
        """Read what has come; the exchange is over once the reply is complete or broken."""
        self._looking = False
        exchange = self.exchange
        if exchange is None:
            if self._pieces:  # bytes that nothing has asked for
                self._pieces = []
                self.close()
            return
        reply = exchange.reply
        try:
            self._read(reply)
            if reply.http.complete:
                reply.end()
                exchange.judge()
                self.usable = self._open and reply.http.keep_alive
            elif self._open:
                # The end of a chunked body shows in its last bytes; of other bodies every piece
                # must be looked at.
                self._eager = "transfer-encoding" not in reply.http.headers
                return
            else:
                reply.end()
                exchange.judge()
        except BrokenReply as broken:
            self.usable = False
            exchange.fail(
                *((str(broken),) if str(broken) in ENDED_EARLY else ("broken reply", str(broken)))
            )
        self._finish(exchange)

    def _read(self, reply: Reply) -> None:
        """Read the pieces that have come."""
        pieces, self._pieces = self._pieces, []
        reply.read(pieces)

    def abort(self, outcome: str) -> None:
        """Give the exchange up and close."""
        exchange = self.exchange
        self.usable = False
        if exchange is not None:
            self.exchange = None
            exchange.fail(outcome)
            with contextlib.suppress(BrokenReply):
                self._read(exchange.reply)
            self._done(self, exchange)
        self.close()

    def close(self) -> None:
        """End the connection at once."""
        if self._open:
            self._open = self.usable = False
            self._receiver.remove(self)
            if self._unsent:
                self._loop.remove_writer(self.socket)
            self.socket.close()

    def _finish(self, exchange: Exchange) -> None:
        self.exchange = None
        self._eager = True
        if not self.usable:
            self.close()
        self._done(self, exchange)


def more_descriptors() -> int:
    """Raise the limit of open files as far as this user may, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    return soft


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A server: where to connect, and what its URL says of the path."""

    host: str  # and port: where to connect
    port: int
    tls: bool = False  # whether the connection is encrypted
    path: str = ""  # what is before an endpoint's own path, without a slash at its end
    grpc: bool = False  # whether requests are calls of gRPC

    @property
    def authority(self) -> str:
        """The value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"


def parse_url(url: str, *schemes: str) -> Target:
    """Read "127.0.0.1:8000" or "https://host/prefix"; ``schemes`` may add "grpc". Raises
    InputError: no address, or one with a password.
    """
    where = option("url")
    text = url if "://" in url else f"http://{url}"
    example = "write for example http://127.0.0.1:8000"
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise InputError(f"{where}: '{url}' is not a URL; {example}") from None
    if parts.scheme not in ("http", "https", *schemes):
        raise InputError(f"{where}: '{url}' has the scheme '{parts.scheme}'; {example}")
    if "@" in parts.netloc:
        raise InputError(
            f"{where}: holds a user name or password; give a key in the environment"
            f" ({option('api_key_env')})"
        )
    if not parts.hostname or not text.isprintable() or " " in text:
        raise InputError(f"{where}: '{url}' names no host; {example}")
    if parts.query or parts.fragment:
        raise InputError(
            f"{where}: '{url}' has a query or fragment; give the server's address alone, {example}"
        )
    tls = parts.scheme == "https"
    grpc = parts.scheme == "grpc"
    return Target(
        host=parts.hostname,
        port=port or (443 if tls else 8001 if grpc else 80),
        tls=tls,
        path=parts.path.rstrip("/"),
        grpc=grpc,
    )


def request_head(
    target: Target, path: str, *, key: str = "", headers: tuple[tuple[str, str], ...] = ()
) -> bytes:
    """What all POST requests share, up to the content length. Raises InputError: characters that no
    header may hold.
    """
    lines = [
        f"POST {target.path}{path} HTTP/1.1",
        f"Host: {target.authority}",
        "Content-Type: application/json",
        "Accept: text/event-stream, application/json",
        "Accept-Encoding: identity",
        "User-Agent: tonnage-bench",
        *([f"Authorization: Bearer {key}"] if key else []),
        *(f"{name}: {value}" for name, value in headers),
    ]
    if any(not line.isascii() or not line.isprintable() for line in lines):
        raise InputError(
            f"{option('api_key_env')}, {option('header')}: a key or header holds characters that"
            " HTTP does not allow; write printable ASCII"
        )
    return ("\r\n".join(lines) + "\r\n").encode("ascii")


def request_bytes(head: bytes, number: int, body: bytes, further: bytes = b"") -> bytes:
    """One request; its number travels in ``X-Request-Id``, so that a server's log can be laid next
    to the client's.
    """
    return b"%s%sX-Request-Id: %d\r\nContent-Length: %d\r\n\r\n%s" % (
        head,
        further,
        number,
        len(body),
        body,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """The endpoint and the connection settings of a run."""

    target: Target
    endpoint: Endpoint  # the kind of endpoint and the model
    prompts: Prompts | FilePrompts | Tensors  # makes the prompts, or the tensors of an inference
    # the part of a request that is the same for all (``request_head``); holds the key, so it is
    # never shown
    head: bytes
    timeout_s: float = 600.0  # of one request, from the moment it was begun
    tls: ssl.SSLContext | None = None  # for an encrypted connection
    reuse: bool = True  # whether connections carry several requests
    warmup: int = 0  # requests before the run that are not recorded
    headers: tuple[str, ...] = ()  # the names of further headers, for the record of the run
    # certificates to trust, where they are not the system's; a worker makes its own ``tls`` of them
    ca_file: Path | None = None
    workers: int = 1
    # whether requests are turns of conversations, so that answers are kept until their conversation
    # is over
    talks: bool = False
    # and step: of a worker, the number of its first request and the distance to its next, among
    # those of all workers
    first: int = 0
    step: int = 1

    def exchange(self, number: int, isl: int, osl: int) -> Exchange:
        """Make a request ready to be sent; numbers below 0 are of the warm-up."""
        among_all = (
            self.first + number * self.step if number >= 0 else number * self.step - self.first
        )
        if isinstance(self.prompts, Tensors):
            further, body = self.prompts.body(isl, self.endpoint.extra)
        else:
            further, body = (
                b"",
                body_bytes(
                    self.endpoint.sent(self.endpoint.body(self.prompts.text(among_all, isl), osl))
                ),
            )
        data = request_bytes(self.head, among_all, body, further)
        return Exchange(number=number, isl=isl, osl=osl, data=data, reply=self.reply())

    def turn(
        self,
        place: int,
        isl: int,
        osl: int,
        *,
        text: str,
        pieces: Pieces,
        before: int,
        history: History,
    ) -> Exchange:
        """One turn of a conversation, by its place among all, with tokens of its new part and of
        its answer.

        ``text`` is the user's message, "" where it is made of the ``pieces`` of a recorded session;
        ``before`` are the tokens of the conversation until then, which ``history`` holds. Its
        number is given when it is sent.
        """
        prompt = (
            self.prompts.of_pieces(pieces, isl)
            if pieces and isinstance(self.prompts, Prompts)
            else text
        )
        question = prompt or self.prompts.text(place, isl)
        data = request_bytes(
            self.head,
            place,
            body_bytes(self.endpoint.sent(self.endpoint.talk(history, question, osl))),
        )
        exchange = Exchange(number=-1, isl=before + isl, osl=osl, data=data, reply=self.reply())
        exchange.question = question
        return exchange

    def reply(self) -> Reply:
        """An empty reply; its text is kept only where it is needed again: to count its tokens, or
        for the next turn.
        """
        return Reply(self.endpoint, keep_text=self.talks or self.prompts.counter is not None)
