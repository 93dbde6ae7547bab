"""What the views share: head and navigation, the question of a request, server-sent events, and
what every request must be.
"""

from __future__ import annotations

import hmac
from html import escape
from typing import TYPE_CHECKING

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, StreamingResponse

from tonnage.deploy.targets import TARGETS
from tonnage.page.fields import Flat, question_of
from tonnage.version import VERSION

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from tonnage.page.workspace import Desk

# Path and name of each view, in the order of the navigation
VIEWS = (
    ("size", "Size"),
    ("what-if", "What if"),
    ("compare", "Compare"),
    ("lesson", "Lesson"),
    ("measure", "Measure"),
    ("files", "Files"),
)

MARK = (
    '<svg class="logo" viewBox="0 0 24 24" aria-hidden="true"><rect x="3" y="13" width="4"'
    ' height="8" rx="1"/><rect x="10" y="8" width="4" height="13" rx="1"/><rect x="17" y="3"'
    ' width="4" height="18" rx="1"/></svg>'
)
HTMX = (
    '{"includeIndicatorStyles": false, "allowEval": false, "selfRequestsOnly": true,'
    ' "historyCacheSize": 0, "defaultSettleDelay": 0}'
)


def page(
    active: str,
    title: str,
    inside: str,
    *,
    query: str = "",
    scripts: tuple[str, ...] = (),
    styles: tuple[str, ...] = (),
) -> str:
    """A view as a whole page.

    Args:
        active: path of the view.
        query: of the question, which the links to the other views that take one carry along.
        scripts, styles: names of further ones.
    """
    links = ""
    for path, name in VIEWS:
        carried = f"?{escape(query)}" if query and path in ("size", "what-if") else ""
        current = ' aria-current="page"' if path == active else ""
        links += f'<li><a href="/{path}{carried}"{current}>{name}</a></li>'
    more = "".join(f'<script src="/static/{name}" defer></script>\n' for name in scripts)
    more += "".join(f'<link rel="stylesheet" href="/static/{name}">\n' for name in styles)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<meta name=\"htmx-config\" content='{HTMX}'>\n"
        f"<title>{escape(title)} – Tonnage</title>\n"
        '<link rel="icon" href="data:,">\n'
        '<link rel="stylesheet" href="/static/report.css">\n<link rel="stylesheet"'
        ' href="/static/page.css">\n'
        '<script src="/static/htmx.min.js" defer></script>\n<script src="/static/report.js"'
        " defer></script>\n"
        f'<script src="/static/page.js" defer></script>\n{more}</head>\n<body class="app">\n'
        '<a class="skip" href="#main">To the content</a>\n'
        f'<header class="bar"><a class="brand" href="/size">{MARK}<span>Tonnage</span></a>'
        f'<nav class="views" aria-label="Views"><ul>{links}</ul></nav></header>\n'
        f'<main id="main" class="{escape(active)}">\n{inside}</main>\n'
        f'<footer class="foot">Tonnage {VERSION} · runs on this machine, asks no other</footer>\n'
        '<div id="tip" role="status" hidden></div>\n</body>\n</html>\n'
    )


def faults(lines: list[str] | tuple[str, ...]) -> str:
    """What is wrong with a question, one line each."""
    listed = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return (
        '<div class="faults" role="alert"><p>This cannot be answered'
        f" yet:</p><ul>{listed}</ul></div>"
    )


# What the page's script shows where the browser has no token, or one of another server
NEEDS_TOKEN = (
    '<p class="faults" data-needs-token hidden>This needs the token: open the address that tonnage'
    " ui printed.</p>\n"
)


def button(label: str, *, href: str, kind: str = "quiet") -> str:
    """A link that looks like a button."""
    return f'<a class="button {kind}" href="{escape(href)}">{escape(label)}</a>'


def deploy_links(query: str) -> str:
    """An archive of files for each target."""
    links = "".join(
        f'<a href="/deploy.zip?target={target}&amp;{escape(query)}">{target}</a>'
        for target in TARGETS
    )
    return (
        '<details class="menu"><summary'
        f' class="button">Deploy</summary><div>{links}</div></details>'
    )


HEADER = "x-tonnage-token"  # no cookie, which every port of 127.0.0.1 would get
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src"
    " 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
EVENTS = "text/event-stream"
SAFE = ("GET", "HEAD", "OPTIONS")
COMPUTES = "/api/"  # paths whose POST changes nothing


class Guard:
    """Checks requests before the application gets them."""

    def __init__(self, app: ASGIApp, *, token: str, hosts: frozenset[str]) -> None:
        """Guard an application: ``hosts`` may ask for it, and what changes anything needs the
        ``token`` in a header.
        """
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
                response_headers = MutableHeaders(raw=message["headers"])
                if response_headers.get("content-security-policy") is None:
                    response_headers["content-security-policy"] = POLICY
                elif not response_headers["content-security-policy"]:
                    del response_headers["content-security-policy"]
                response_headers["x-content-type-options"] = "nosniff"
                response_headers["referrer-policy"] = "no-referrer"
                response_headers["cross-origin-resource-policy"] = "same-origin"
            await send(message)

        await self.app(scope, receive, guarded)

    def _refused(self, method: str, path: str, headers: Headers) -> tuple[int, str] | None:
        if headers.get("host", "").lower() not in self.hosts:
            return 421, "this server answers under its own name alone"
        origin = headers.get("origin")
        if origin is not None and origin.lower() not in {f"http://{host}" for host in self.hosts}:
            return 403, "asked from a page of another origin"
        from_elsewhere = headers.get("sec-fetch-site", "same-origin") in ("cross-site", "same-site")
        if from_elsewhere and (method not in SAFE or headers.get("sec-fetch-mode") != "navigate"):
            return 403, "asked from a page of another site"
        if (
            method in SAFE
            or path.startswith(COMPUTES)
            or hmac.compare_digest(headers.get(HEADER, "").encode(), self.token.encode())
        ):
            return None
        return 401, "needs the token: open the address that tonnage ui printed"


def desk_of(request: Request) -> Desk:
    """The desk of the server."""
    desk: Desk = request.app.state.desk
    return desk


def asked_of(request: Request, query: str | None = None) -> Flat:
    """The question of a link, or of a query that is a part of it. Raises InputError: it holds what
    no question has.
    """
    return question_of(request.url.query if query is None else query)


def event(kind: str, data: str) -> str:
    """One server-sent event."""
    lines = "".join(f"data: {line}\n" for line in data.splitlines() or [""])
    return f"event: {kind}\n{lines}\n"


def streamed(events: AsyncIterator[str]) -> StreamingResponse:
    """Server-sent events as they come."""
    return StreamingResponse(events, media_type=EVENTS, headers={"cache-control": "no-store"})
