"""A client's bytes read as requests, strictly and within bounds; what could be read in two ways is refused."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import httptools

from tonnage.gateway.request import Headers, Request
from tonnage.gateway.settings import Limits

METHODS = (b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS")


class Refused(Exception):
    """A request that is not served; the connection ends with the answer.

    Attributes:
        status: of the answer.
    """

    def __init__(self, status: int, message: str) -> None:
        """With the status of the answer and its sentence."""
        super().__init__(message)
        self.status = status


class RequestReader:
    """Feeds httptools and keeps what it finds.

    httptools itself refuses both Content-Length and Transfer-Encoding, two Content-Lengths, bare CR or LF, folded lines, spaces before
    a colon and control characters; this class refuses what it lets pass.

    Attributes:
        ready: complete requests, in order.
        begun: whether a request has begun that is not complete.
        in_body: whether its headers are complete.
        expects: whether it waits for "100 Continue" before it sends its body.
    """

    def __init__(self, limits: Limits) -> None:
        """Nothing read yet."""
        self._limits = limits
        self._parser = httptools.HttpRequestParser(self)
        self._refused: Refused | None = None
        self._clear()
        self._upgrading: Request | None = None
        self._upgraded = False
        self.ready: deque[Request] = deque()
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
        """Read a piece.

        Raises:
            Refused: what cannot be served; nothing more may be fed.
        """
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
        """Read the body of a request that asks for another protocol; httptools ends such a request with its head.

        An upgrade may be ignored (RFC 9110, 7.8): the request is served, and the connection ends with it.
        """
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
