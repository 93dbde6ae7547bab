"""HTTP as the gateway reads and writes it: requests of clients, responses of backends."""

from __future__ import annotations

import json
import re
import zlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any

import httptools

from tonnage.gateway.settings import Limits

BYTES_PER_TOKEN = 4  # Bytes of a body that count as one prompt token; the gateway has no tokenizer
DEFAULT_OUTPUT = 256  # Output tokens that are assumed of a request that sets no limit

MOST_OUTPUT = 1_000_000

HOP_BY_HOP = frozenset(
    b"connection keep-alive proxy-connection proxy-authenticate proxy-authorization te trailer transfer-encoding upgrade".split()
)
"""Headers that say something of one connection alone (RFC 9110, 7.6.1)."""

_OWN = HOP_BY_HOP | {b"host", b"content-length", b"expect"}
_OUTPUT = re.compile(rb'"max_(?:completion_|output_)?tokens"\s*:\s*(\d{1,9})')
_USER = re.compile(rb'"user"\s*:\s*"((?:[^"\\]|\\.){1,512})"')

_MODEL = re.compile(rb'"model"\s*:\s*("(?:[^"\\]|\\.){0,512}")')

Headers = list[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request, complete."""

    method: bytes  # and target: as the client wrote them
    target: bytes
    headers: Headers  # in order, names as the client wrote them
    body: bytes
    version: str  # of HTTP, "1.1" or "1.0"
    keep: bool  # whether the client's connection goes on after the response

    @property
    def path(self) -> bytes:
        """The target without its query."""
        return self.target.partition(b"?")[0]

    @property
    def prompt_tokens(self) -> int:
        """An estimate: the body's length over 4."""
        return len(self.body) // BYTES_PER_TOKEN

    @property
    def output_tokens(self) -> int:
        """The limit that the body names, wherever it is in it; 256 without one, 0 without a body."""
        if not self.body:
            return 0
        found = _OUTPUT.search(self.body)
        return min(int(found[1]), MOST_OUTPUT) if found else DEFAULT_OUTPUT

    @property
    def session(self) -> int:
        """32 bits of the ``x-session-id`` header, else of the body's ``user``; -1 without either."""
        for name, value in self.headers:
            if name.lower() == b"x-session-id":
                return zlib.crc32(value)
        found = _USER.search(self.body)
        return zlib.crc32(found[1]) if found else -1

    @property
    def model(self) -> str:
        """The model that the body of a POST names at its top, "" for none; parsed only where the word occurs more than once."""
        found = _MODEL.findall(self.body) if self.body else []
        try:
            named = json.loads(found[0]) if len(found) == 1 else json.loads(self.body).get("model", "") if found else ""
        except (ValueError, AttributeError, RecursionError):
            return ""
        return named if isinstance(named, str) else ""

    def wire(self, authority: bytes) -> bytes:
        """The request as a backend gets it: hop-by-hop headers removed, framed by its length, the body untouched."""
        dropped = _OWN | connection_options(self.headers)
        lines = [b"%s %s HTTP/1.1\r\nHost: %s\r\n" % (self.method, self.target, authority)]
        lines += [b"%s: %s\r\n" % line for line in self.headers if line[0].lower() not in dropped]
        if self.body or self.method in (b"POST", b"PUT", b"PATCH"):
            lines.append(b"Content-Length: %d\r\n" % len(self.body))
        return b"".join([*lines, b"\r\n", self.body])


def connection_options(headers: Headers) -> set[bytes]:
    """What the Connection header names: lower-case names of headers that go no further, and words such as ``close``."""
    return {word.strip().lower() for name, value in headers if name.lower() == b"connection" for word in value.split(b",")}


METHODS = (b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS")


class Refused(Exception):
    """A request that is not served; the connection ends with the answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class RequestReader:
    """Feeds httptools and keeps what it finds.

    httptools itself refuses both Content-Length and Transfer-Encoding, two Content-Lengths, bare CR or LF, folded lines, spaces before
    a colon and control characters; this class refuses what it lets pass.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._parser = httptools.HttpRequestParser(self)
        self._refused: Refused | None = None
        self._clear()
        self._upgrading: Request | None = None
        self._upgraded = False
        self.ready: deque[Request] = deque()  # complete requests, in order
        # begun: whether a request has begun that is not complete; in_body: whether its headers are complete; expects: whether it waits for
        # "100 Continue" before it sends its body
        self.begun = self.in_body = self.expects = False

    def _clear(self) -> None:
        self._target = b""
        self._headers: Headers = []
        self._head_bytes = 0
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._method, self._version, self._keep = b"", "1.1", True
        self._began_now = True

    @property
    def held(self) -> int:
        """Bytes of bodies that have been read and not served."""
        return (self._body_bytes if self.in_body else 0) + sum(len(request.body) for request in self.ready)

    def close(self) -> None:
        """Let go of what has been read: the parser and this object hold each other, and a body may be large."""
        self._clear()
        self.begun = self.in_body = False
        self.ready.clear()
        self.__dict__.pop("_parser", None)

    def feed(self, data: bytes) -> None:
        """Read a piece. Raises Refused: what cannot be served; nothing more may be fed."""
        self._began_now = False
        try:
            self._parse(data)
        except httptools.HttpParserError as error:
            raise self._refused or Refused(400, f"no valid HTTP request ({error})") from None
        if self._refused is not None:
            raise self._refused
        if self.begun and not self.in_body and not self._began_now:
            self._head_bytes += len(data)
            if self._head_bytes > self._limits.headers + self._limits.line:
                raise Refused(431, f"the headers are longer than {self._limits.headers:,} bytes")

    def _parse(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if self.ready and self._upgrading is None and self._refused is None:
                self._without_upgrade(self.ready.pop(), data[upgrade.args[0] :])

    def _without_upgrade(self, request: Request, rest: bytes) -> None:
        """Read the body of a request that asks for another protocol: httptools stops at its head; an upgrade may be ignored (RFC 9110)."""
        self._upgrading = replace(request, keep=False)
        framing = [b"%s: %s\r\n" % line for line in request.headers if line[0].lower() in (b"content-length", b"transfer-encoding")]
        self._parser = httptools.HttpRequestParser(self)
        self._parse(b"POST / HTTP/1.1\r\nHost: none\r\n" + b"".join(framing) + b"\r\n" + rest)

    def _refuse(self, status: int, message: str) -> None:
        if self._refused is None:
            self._refused = Refused(status, message)

    def on_message_begin(self) -> None:
        """A request begins."""
        self._clear()
        self.begun, self.in_body = True, False

    def on_url(self, url: bytes) -> None:
        """A piece of its target."""
        self._target += url
        if len(self._target) > self._limits.line:
            self._refuse(414, f"the request's target is longer than {self._limits.line:,} bytes")

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header, or a trailer, which is read and dropped."""
        if self.in_body:
            self._body_bytes += len(name) + len(value)
            return
        self._headers.append((name, value))
        if len(self._headers) > self._limits.header_lines:
            self._refuse(431, f"there are more than {self._limits.header_lines} headers")

    def on_headers_complete(self) -> None:
        """All headers are there: look at them before any of the body is kept."""
        self.in_body = True
        self._method, self._version = self._parser.get_method(), self._parser.get_http_version()
        self._keep = self._parser.should_keep_alive() and self._version == "1.1"
        size = sum(len(name) + len(value) + 4 for name, value in self._headers)
        if size > self._limits.headers:
            self._refuse(431, f"the headers are longer than {self._limits.headers:,} bytes")
        self._check()

    def _check(self) -> None:
        values: dict[bytes, list[bytes]] = {}
        for name, value in self._headers:
            values.setdefault(name.lower(), []).append(value.strip())
        coding = values.get(b"transfer-encoding", [])
        length = values.get(b"content-length", [])
        if self._version not in ("1.0", "1.1"):
            self._refuse(505, f"HTTP/{self._version} is not spoken here")
        elif self._method not in METHODS:
            self._refuse(405, "this method is not passed on")
        elif not self._target.startswith(b"/") or not all(0x21 <= byte <= 0x7E for byte in self._target):
            self._refuse(400, "the target is not a path of printable characters")
        elif (len(values.get(b"host", [])) != 1 and self._version == "1.1") or len(values.get(b"host", [])) > 1:
            self._refuse(400, "there must be one Host header")
        elif coding and (length or self._version == "1.0" or [word.lower() for word in coding] != [b"chunked"]):
            self._refuse(400, "the body's framing is not clear")
        elif length and int(length[0]) > self._limits.body:
            self._refuse(413, f"the body is longer than {self._limits.body:,} bytes")
        self.expects = self._refused is None and [v.lower() for v in values.get(b"expect", [])] == [b"100-continue"]

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._body_bytes += len(body)
        if self._body_bytes > self._limits.body:
            self._body.clear()
            self._refuse(413, f"the body is longer than {self._limits.body:,} bytes")
        elif self._refused is None:
            self._body.append(body)

    def on_message_complete(self) -> None:
        """The request is whole."""
        self.begun = self.in_body = self.expects = False
        if self._refused is not None:
            return
        if self._upgrading is not None:
            if not self._upgraded:
                self.ready.append(replace(self._upgrading, body=b"".join(self._body)))
            self._upgraded = True
            return
        self.ready.append(
            Request(
                method=self._method,
                target=self._target,
                headers=self._headers,
                body=b"".join(self._body),
                version=self._version,
                keep=self._keep,
            )
        )
        self._body = []


NO_BODY = (204, 304)


class BrokenResponse(Exception):
    """A backend sent what is no HTTP response, or one that the gateway does not pass on."""


class Reading:
    """What the parser has seen of a response; bodies are looked through for their end and not kept."""

    def __init__(self) -> None:
        self.reason = b""
        self.headers: Headers = []
        self.complete = False
        self.overrun = False

    def on_message_begin(self) -> None:
        """A response begins; after a complete one it is one that nobody asked for."""
        self.overrun = self.complete

    def on_status(self, status: bytes) -> None:
        """A piece of the reason phrase."""
        self.reason += status

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer of a chunked body."""
        self.headers.append((name, value))

    def on_message_complete(self) -> None:
        """The response is whole."""
        self.complete = True


class Unchunking(Reading):
    """The same with the body's bytes kept until they are taken: for clients that do not know chunks."""

    def __init__(self) -> None:
        super().__init__()
        self._parts: list[bytes] = []

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._parts.append(body)

    def take(self) -> bytes:
        """What has come since the last call."""
        parts, self._parts = self._parts, []
        return b"".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """A status line and its headers."""

    status: int  # and reason: of the status line
    reason: bytes
    headers: Headers
    chunked: bool  # whether the body is in chunks
    until_close: bool  # whether it ends with the connection
    keep: bool  # whether the connection to the backend can carry another request

    def wire(self, *, close: bool, chunked: bool) -> bytes:
        """The head as the client gets it: hop-by-hop headers removed, the others as they were."""
        dropped = HOP_BY_HOP | connection_options(self.headers)
        lines = [b"HTTP/1.1 %d %s\r\n" % (self.status, self.reason)]
        lines += [b"%s: %s\r\n" % line for line in self.headers if line[0].lower() not in dropped]
        if chunked:
            lines.append(b"Transfer-Encoding: chunked\r\n")
        if close:
            lines.append(b"Connection: close\r\n")
        return b"".join([*lines, b"\r\n"])


def read_head(data: bytes, reading: Reading, *, bodiless: bool) -> tuple[Head, Callable[[bytes], None]]:
    """Read a head up to its empty line; it, and what takes the body. Raises BrokenResponse: no HTTP response, another transfer coding."""
    parser = httptools.HttpResponseParser(reading)
    try:
        parser.feed_data(data)
        status, version = parser.get_status_code(), parser.get_http_version()
    except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
        raise BrokenResponse(f"no HTTP response ({error})") from None
    if not data.startswith(b"HTTP/1."):
        raise BrokenResponse("no HTTP response")
    coding = [value.strip().lower() for name, value in reading.headers if name.lower() == b"transfer-encoding"]
    if coding not in ([], [b"chunked"]):
        raise BrokenResponse("a transfer coding other than chunked")
    if bodiless or status in NO_BODY:
        reading.complete = True
    sized = any(name.lower() == b"content-length" for name, _ in reading.headers)
    until_close = not (reading.complete or coding or sized)
    words = connection_options(reading.headers)
    keep = version == "1.1" and b"close" not in words and not until_close
    head = Head(
        status=status,
        reason=reading.reason,
        headers=list(reading.headers),
        chunked=bool(coding) and not reading.complete,
        until_close=until_close,
        keep=keep,
    )
    return head, parser.feed_data


JSON = "application/json"


def response(status: int, body: bytes, *, kind: str = JSON, close: bool = False, later: bool = False, head: bool = False) -> bytes:
    """A whole response; ``later`` adds ``Retry-After``, and ``head`` leaves out the body."""
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", f"Content-Type: {kind}", f"Content-Length: {len(body)}"]
    if later:
        lines.append("Retry-After: 1")
    if close:
        lines.append("Connection: close")
    return "\r\n".join([*lines, "", ""]).encode() + (b"" if head else body)


def document(status: int, value: Any, *, close: bool = False, head: bool = False) -> bytes:
    """A response with a JSON body."""
    return response(status, json.dumps(value).encode(), close=close, head=head)


KINDS = {404: "not_found_error", 429: "rate_limit_error"}


def refusal(status: int, message: str, *, close: bool = False, head: bool = False) -> bytes:
    """An error in the form of the OpenAI API; 429 and 503 say when to come again."""
    kind = KINDS.get(status, "invalid_request_error" if status < 500 else "server_error")
    body = json.dumps({"error": {"message": message, "type": kind, "param": None, "code": status}}).encode()
    return response(status, body, close=close, later=status in (429, 503), head=head)
