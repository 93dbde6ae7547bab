"""What every request must be: for this server by name, from its own pages, and with the token where it changes anything."""

from __future__ import annotations

import hmac
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE, HEADER = "tonnage-token", "x-tonnage-token"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'"
)
SAFE = ("GET", "HEAD", "OPTIONS")
COMPUTES = "/api/"
"""Paths whose POST changes nothing."""


class Guard:
    """Checks requests before the application gets them."""

    def __init__(self, app: ASGIApp, *, token: str, hosts: frozenset[str]) -> None:
        """Guard an application: ``hosts`` may ask for it, and what changes anything needs the ``token`` in a cookie or a header."""
        self.app, self.token, self.hosts = app, token, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request, or pass it on and say on its response what a page may do."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refused = self._refused(scope["method"], scope["path"], headers)
        if refused:
            await PlainTextResponse(f"{refused[1]}\n", status_code=refused[0])(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                said = MutableHeaders(raw=message["headers"])
                if said.get("content-security-policy") is None:
                    said["content-security-policy"] = POLICY
                elif not said["content-security-policy"]:
                    del said["content-security-policy"]
                said["x-content-type-options"] = "nosniff"
                said["referrer-policy"] = "no-referrer"
                said["cross-origin-resource-policy"] = "same-origin"
            await send(message)

        await self.app(scope, receive, guarded)

    def _refused(self, method: str, path: str, headers: Headers) -> tuple[int, str] | None:
        """The status and the reason of a refusal."""
        if headers.get("host", "").lower() not in self.hosts:
            return 421, "this server answers under its own name alone"
        origin = headers.get("origin")
        if origin is not None and origin.lower() not in {f"http://{host}" for host in self.hosts}:
            return 403, "asked from a page of another origin"
        if headers.get("sec-fetch-site") == "cross-site" and (method not in SAFE or headers.get("sec-fetch-mode") != "navigate"):
            return 403, "asked from a page of another site"
        if method not in SAFE and not path.startswith(COMPUTES) and not self.knows(headers):
            return 401, "needs the token: open the address that tonnage ui printed"
        return None

    def knows(self, headers: Headers) -> bool:
        """Whether a request has the token."""
        return has_token(headers, self.token)


def has_token(headers: Headers, token: str) -> bool:
    """Whether a request has the token, in its cookie or its header."""
    try:
        kept = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        kept = None
    told = headers.get(HEADER) or (kept.value if kept is not None else "")
    return hmac.compare_digest(told.encode(), token.encode())
