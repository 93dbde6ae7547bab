"""A request as the gateway holds it: its bytes, and what a policy may know of it."""

from __future__ import annotations

import json
import re
import zlib
from dataclasses import dataclass, replace

BYTES_PER_TOKEN = 4
"""Bytes of a body that count as one prompt token; the gateway has no tokenizer."""

DEFAULT_OUTPUT = 256
"""Output tokens that are assumed of a request that sets no limit."""

MOST_OUTPUT = 1_000_000

_INFERENCE = re.compile(rb"/v1/(?:chat/)?completions|/v1/embeddings|/v2/models/.+/infer")
"""Paths whose POST asks for a computation and leaves nothing behind."""

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
    """One request, complete.

    Attributes:
        method, target: as the client wrote them.
        headers: in order, names as the client wrote them.
        body: whole.
        version: of HTTP, "1.1" or "1.0".
        keep: whether the client's connection goes on after the response.
    """

    method: bytes
    target: bytes
    headers: Headers
    body: bytes
    version: str
    keep: bool

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
        """The limit that the body names, wherever it stands in it; 256 without one, 0 without a body."""
        if not self.body:
            return 0
        found = _OUTPUT.search(self.body)
        return min(int(found[1]), MOST_OUTPUT) if found else DEFAULT_OUTPUT

    @property
    def hedged(self) -> bool:
        """Whether it may be sent to two backends at once, because neither keeps anything of it."""
        return self.method in (b"GET", b"HEAD") or (self.method == b"POST" and _INFERENCE.fullmatch(self.path) is not None)

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
        """The model that the body of a POST names at its top; "" where it names none.

        A body is parsed only where the word occurs more than once.
        """
        found = _MODEL.findall(self.body) if self.body else []
        try:
            named = json.loads(found[0]) if len(found) == 1 else json.loads(self.body).get("model", "") if found else ""
        except (ValueError, AttributeError, RecursionError):
            return ""
        return named if isinstance(named, str) else ""

    def renamed(self, model: str) -> Request:
        """The same request for another model: its name is the only part of the body that changes."""
        name = json.dumps(model).encode()
        if len(_MODEL.findall(self.body)) == 1:
            body = _MODEL.sub(lambda found: found[0][: found.start(1) - found.start(0)] + name, self.body)
        else:
            body = json.dumps({**json.loads(self.body), "model": model}).encode()
        return replace(self, body=body)

    def without_key(self) -> Request:
        """The same request without the client's key, which is for the gateway."""
        kept = [line for line in self.headers if line[0].lower() not in (b"authorization", b"x-api-key")]
        return replace(self, headers=kept)

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
