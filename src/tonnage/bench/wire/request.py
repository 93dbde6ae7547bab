"""Where requests go, and a request as bytes."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from tonnage.errors import InputError, option


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A server: where to connect, and what its URL says of the path.

    Attributes:
        host, port: where to connect.
        tls: whether the connection is encrypted.
        path: what stands before an endpoint's own path, without a slash at its end.
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


def request_bytes(head: bytes, number: int, body: bytes) -> bytes:
    """One request; its number travels in ``X-Request-Id``, so that a server's log can be laid beside the client's."""
    return b"%sX-Request-Id: %d\r\nContent-Length: %d\r\n\r\n%s" % (head, number, len(body), body)
