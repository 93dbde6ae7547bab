"""The application of the page, and the server that runs it on this machine alone."""

from __future__ import annotations

import asyncio
import hmac
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from tonnage.errors import InputError, TonnageError, in_python, option
from tonnage.page import files_view, http_api, lesson_view, measure_view, size_view
from tonnage.page.desk import Desk
from tonnage.page.shell import COOKIE, Guard, desk_of, faults, page

if TYPE_CHECKING:
    from starlette.requests import Request

VIEWS = (size_view, lesson_view, measure_view, files_view, http_api)
HOST = "127.0.0.1"
OWN = ("page.css", "page.js", "lesson.js", "drag.js", "files.js", "measure.js", "htmx.min.js", "uPlot.iife.min.js", "uPlot.min.css")
# Everything that a page loads: the name of its address, its package and its file
ASSETS = {"report.css": ("tonnage.report.writers", "page.css"), "report.js": ("tonnage.report.writers", "page.js")} | {
    name: ("tonnage.page", f"static/{name}") for name in OWN
}


def application(desk: Desk, port: int) -> Starlette:
    """The page and its HTTP interface."""

    @asynccontextmanager
    async def life(app: Starlette) -> AsyncIterator[None]:
        warming = asyncio.ensure_future(desk.worker.answer("warm"))
        yield
        warming.cancel()
        await desk.close()

    hosts = frozenset(f"{name}:{port}" for name in (HOST, "localhost", "[::1]"))
    app = Starlette(
        routes=[Route("/", first), Route("/static/{name:str}", asset), *(route for one in VIEWS for route in one.routes())],
        middleware=[Middleware(Guard, token=desk.token, hosts=hosts)],
        exception_handlers={InputError: wrong, TonnageError: wrong},
        lifespan=life,
    )
    app.state.desk = desk
    return app


async def first(request: Request) -> Response:
    """The first view; with the token of the printed address, a cookie that keeps it."""
    response = RedirectResponse("/size")
    told, desk = request.query_params.get("token", ""), desk_of(request)
    if told and hmac.compare_digest(told.encode(), desk.token.encode()):
        response.set_cookie(COOKIE, desk.token, httponly=True, samesite="strict")
    return response


async def asset(request: Request) -> Response:
    """A script or a style."""
    found = ASSETS.get(request.path_params["name"])
    if found is None:
        return PlainTextResponse("not found", status_code=404)
    package, name = found
    media = "text/css" if name.endswith(".css") else "text/javascript"
    return Response(files(package).joinpath(name).read_bytes(), media_type=media, headers={"cache-control": "no-cache"})


async def wrong(request: Request, error: Exception) -> Response:
    """The faults of a request: as JSON for a program, as a page for a person."""
    lines = [in_python(line) for line in (error.marked if isinstance(error, TonnageError) else str(error)).splitlines()]
    if request.url.path.startswith("/api/"):
        return JSONResponse({"errors": lines}, status_code=422)
    return HTMLResponse(page("size", "Not possible", faults(lines)), status_code=422)


def serve(folder: Path, *, port: int, ready: Callable[[str], None]) -> None:
    """Serve a run folder until SIGINT or SIGTERM; port 0 takes a free one, and ``ready`` hears the address. Raises InputError."""
    import uvicorn

    try:
        listening = socket.create_server((HOST, port))
    except OSError as error:
        raise InputError(f"{option('port')}: cannot listen on {HOST}:{port} ({error.strerror}); choose another") from None
    number = listening.getsockname()[1]
    desk = Desk(folder)
    os.chdir(desk.folder)
    config = uvicorn.Config(application(desk, number), log_level="warning", access_log=False, timeout_graceful_shutdown=1)
    with listening:
        ready(f"http://{HOST}:{number}/?token={desk.token}")
        uvicorn.Server(config).run(sockets=[listening])
