"""The application of the page, and the server that runs it on this machine alone."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import (
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
)
from starlette.routing import Route

from tonnage.errors import InputError, TonnageError, in_python, option
from tonnage.page import files_view, http_api, lesson_view, measure_view, size_view
from tonnage.page.shell import Guard, faults, page
from tonnage.page.workspace import Desk

if TYPE_CHECKING:
    from starlette.requests import Request

VIEWS = (size_view, lesson_view, measure_view, files_view, http_api)
HOST = "127.0.0.1"
OWN = (
    "page.css",
    "page.js",
    "lesson.js",
    "drag.js",
    "files.js",
    "measure.js",
    "htmx.min.js",
    "uPlot.iife.min.js",
    "uPlot.min.css",
)
# Everything that a page loads: the name of its address, its package and its file
ASSETS = {
    "report.css": ("tonnage.report.writers", "page.css"),
    "report.js": ("tonnage.report.writers", "page.js"),
} | {name: ("tonnage.page", f"static/{name}") for name in OWN}


def application(desk: Desk, port: int) -> Starlette:
    """The page and its HTTP interface."""

    @asynccontextmanager
    async def life(app: Starlette) -> AsyncIterator[None]:
        warming = asyncio.ensure_future(desk.worker.answer("warm"))
        yield
        warming.cancel()
        await desk.close()

    routes = [
        Route("/", first),
        Route("/token", token_checked, methods=["POST"]),
        Route("/static/{name:str}", asset),
    ]
    hosts = frozenset(f"{name}:{port}" for name in (HOST, "localhost", "[::1]"))
    app = Starlette(
        routes=[*routes, *(route for view in VIEWS for route in view.routes())],
        middleware=[Middleware(Guard, token=desk.token, hosts=hosts)],
        exception_handlers={InputError: wrong, TonnageError: wrong, OSError: not_written},
        lifespan=life,
    )
    app.state.desk = desk
    return app


async def first(request: Request) -> Response:
    """The first view. The browser keeps the part of the printed address behind the "#", the token,
    for its script.
    """
    return RedirectResponse("/size")


async def token_checked(request: Request) -> Response:
    """Answer with no content: the guard has checked the token."""
    return Response(status_code=204)


async def asset(request: Request) -> Response:
    """A script or a style."""
    location = ASSETS.get(request.path_params["name"])
    if location is None:
        return PlainTextResponse("not found", status_code=404)
    package, name = location
    media = "text/css" if name.endswith(".css") else "text/javascript"
    return Response(
        files(package).joinpath(name).read_bytes(),
        media_type=media,
        headers={"cache-control": "no-cache"},
    )


async def wrong(request: Request, error: Exception) -> Response:
    """The faults of a request: as JSON for a program, as a page for a person."""
    lines = [
        in_python(line)
        for line in (error.marked if isinstance(error, TonnageError) else str(error)).splitlines()
    ]
    if request.url.path.startswith("/api/"):
        return JSONResponse({"errors": lines}, status_code=422)
    return HTMLResponse(page("size", "Not possible", faults(lines)), status_code=422)


async def not_written(request: Request, error: Exception) -> Response:
    """The fault of a file that cannot be read or written."""
    why = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
    return await wrong(
        request,
        InputError(
            f"a file of the run folder cannot be read or written ({why}); see that it has room and"
            " rights"
        ),
    )


def serve(folder: Path, *, port: int, ready: Callable[[str], None]) -> None:
    """Serve a run folder until SIGINT or SIGTERM; port 0 takes a free one, and ``ready`` hears the
    address. Raises InputError.
    """
    import uvicorn

    from tonnage.serve.bounded_headers import BoundedHeaders, silence_ended_requests

    desk = Desk(folder)
    try:
        listening = socket.create_server((HOST, port))
    except OSError as error:
        raise InputError(
            f"{option('port')}: cannot listen on {HOST}:{port} ({error.strerror}); choose another"
        ) from None
    number = listening.getsockname()[1]
    os.chdir(desk.folder)
    more: dict[str, Any] = {
        "log_level": "warning",
        "access_log": False,
        "timeout_graceful_shutdown": 1,
        "http": BoundedHeaders,
    }
    config = uvicorn.Config(application(desk, number), **more)
    silence_ended_requests()
    with listening:
        ready(f"http://{HOST}:{number}/#token={desk.token}")
        uvicorn.Server(config).run(sockets=[listening])
