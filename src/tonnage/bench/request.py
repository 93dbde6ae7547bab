"""A request as bytes: the server that it goes to, its head and body, and what stays the same over all loads of a measurement."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from tonnage.bench.endpoints import Endpoint
from tonnage.bench.infer import Tensors
from tonnage.bench.prompts import PromptMaker, body_bytes
from tonnage.bench.reply import Exchange, Reply
from tonnage.errors import InputError, option


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A server: where to connect, and what its URL says of the path.

    Attributes:
        host, port: where to connect.
        tls: whether the connection is encrypted.
        path: what is before an endpoint's own path, without a slash at its end.
    """

    host: str
    port: int
    tls: bool = False
    path: str = ""

    @property
    def authority(self) -> str:
        """The value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"


def parse_url(url: str) -> Target:
    """Read "http://127.0.0.1:8000", "localhost:8000" or "https://host/prefix".

    Raises:
        InputError: another scheme, no host, a port that is none, or a password inside the URL.
    """
    where = option("url")
    text = url if "://" in url else f"http://{url}"
    example = "write for example http://127.0.0.1:8000"
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise InputError(f"{where}: '{url}' is not a URL; {example}") from None
    if parts.scheme not in ("http", "https"):
        raise InputError(f"{where}: '{url}' has the scheme '{parts.scheme}'; {example}")
    if "@" in parts.netloc:
        raise InputError(f"{where}: holds a user name or password; give a key in the environment ({option('api_key_env')})")
    if not parts.hostname or not text.isprintable() or " " in text:
        raise InputError(f"{where}: '{url}' names no host; {example}")
    if parts.query or parts.fragment:
        raise InputError(f"{where}: '{url}' has a query or fragment; give the server's address alone, {example}")
    tls = parts.scheme == "https"
    return Target(host=parts.hostname, port=port or (443 if tls else 80), tls=tls, path=parts.path.rstrip("/"))


def request_head(target: Target, path: str, *, key: str = "", headers: tuple[tuple[str, str], ...] = ()) -> bytes:
    """Everything of a POST request that is the same for all of them: method, path and headers, up to the content length.

    Raises:
        InputError: a key or a header with characters that no header may hold.
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
            f"{option('api_key_env')}, {option('header')}: a key or header holds characters that HTTP does not allow; write printable ASCII"
        )
    return ("\r\n".join(lines) + "\r\n").encode("ascii")


def request_bytes(head: bytes, number: int, body: bytes, further: bytes = b"") -> bytes:
    """One request; its number travels in ``X-Request-Id``, so that a server's log can be laid next to the client's.

    Args:
        head: what all requests share.
        number: of the request.
        body: what it carries.
        further: header lines of this body alone.
    """
    return b"%s%sX-Request-Id: %d\r\nContent-Length: %d\r\n\r\n%s" % (head, further, number, len(body), body)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """How requests are made and sent.

    Attributes:
        target: the server.
        endpoint: the kind of endpoint and the model.
        prompts: makes the prompts, or the tensors of an inference.
        head: the part of a request that is the same for all (``request_head``); holds the key, so it is never shown.
        timeout_s: of one request, from the moment it was begun.
        tls: for an encrypted connection.
        reuse: whether connections carry several requests.
        warmup: requests before the run that are not recorded.
        headers: the names of further headers, for the record of the run.
        ca_file: certificates to trust, where they are not the system's; a worker makes its own ``tls`` of them.
        workers: client processes.
        talks: whether requests are turns of conversations, so that answers are kept until their conversation is over.
        first, step: of a worker, the number of its first request and the distance to its next, among those of all workers.
    """

    target: Target
    endpoint: Endpoint
    prompts: PromptMaker
    head: bytes
    timeout_s: float = 600.0
    tls: ssl.SSLContext | None = None
    reuse: bool = True
    warmup: int = 0
    headers: tuple[str, ...] = ()
    ca_file: Path | None = None
    workers: int = 1
    talks: bool = False
    first: int = 0
    step: int = 1

    def exchange(self, number: int, isl: int, osl: int) -> Exchange:
        """One request, ready to be sent; below 0 are those of the warm-up."""
        among_all = self.first + number * self.step if number >= 0 else number * self.step - self.first
        if isinstance(self.prompts, Tensors):
            further, body = self.prompts.body(isl, self.endpoint.extra)
        else:
            further, body = b"", body_bytes(self.endpoint.body(self.prompts.text(among_all, isl), osl), self.endpoint.extra)
        data = request_bytes(self.head, among_all, body, further)
        return Exchange(number=number, isl=isl, osl=osl, data=data, reply=self.reply())

    def turn(self, place: int, isl: int, osl: int, *, text: str, before: int, history: Sequence[tuple[str, str]]) -> Exchange:
        """One turn of a conversation (``talk_conductor.TurnMaker``); its number is given when it is sent."""
        question = text or self.prompts.text(place, isl)
        data = request_bytes(self.head, place, body_bytes(self.endpoint.talk(history, question, osl), self.endpoint.extra))
        exchange = Exchange(number=-1, isl=before + isl, osl=osl, data=data, reply=self.reply())
        exchange.question = question
        return exchange

    def reply(self) -> Reply:
        """An empty reply; its text is kept only where it is needed again: to count its tokens, or for the next turn."""
        return Reply(self.endpoint, keep_text=self.talks or self.prompts.counter is not None)
