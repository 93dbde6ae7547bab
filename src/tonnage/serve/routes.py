"""The paths of a server, as an ASGI application."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tonnage.serve.app import Handler, Service, check_type, completed, counted, seen
from tonnage.serve.control import control_routes
from tonnage.serve.dialect import Refused
from tonnage.serve.embeddings import embedding_routes
from tonnage.serve.messages import message_routes
from tonnage.serve.native import native_routes
from tonnage.serve.published import VLLM
from tonnage.serve.responses import response_routes
from tonnage.serve.utilities import utility_routes

if TYPE_CHECKING:
    from starlette.requests import Request

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")


def application(service: Service) -> Starlette:
    """The application."""

    async def chat(request: Request) -> Response:
        return await completed(service, "chat", request)

    async def completions(request: Request) -> Response:
        return await completed(service, "completions", request)

    async def invocations(request: Request) -> Response:
        """SageMaker's path, which takes the bodies of both."""
        check_type(request)
        try:
            body = json.loads(await request.body())
        except json.JSONDecodeError as error:
            raise Refused(f"JSON decode error: {error}", kind="Bad Request") from None
        return await completed(service, "chat" if isinstance(body, dict) and "messages" in body else "completions", request, body)

    async def metrics(request: Request) -> Response:
        newer = (request.method, request.url.path) == ("GET", "/metrics") and service.dialect.published is VLLM
        version = "1.0.0" if newer else "0.0.4"
        return Response(service.engines.metrics.text(), media_type=f"text/plain; version={version}; charset=utf-8")

    async def not_there(request: Request, error: Exception) -> Response:
        status, detail = (error.status_code, error.detail) if isinstance(error, HTTPException) else (500, "Internal Server Error")
        response = JSONResponse({"detail": detail}, status_code=status, headers=getattr(error, "headers", None))
        seen(service, request, response, time.monotonic(), "none")
        return response

    posts: dict[str, Handler] = {"/v1/chat/completions": chat, "/v1/completions": completions, "/invocations": invocations}
    generating = [Route(path, counted(service, handler), methods=["POST"]) for path, handler in posts.items()]
    generating += [*response_routes(service), *message_routes(service)]
    routes = embedding_routes(service) if service.width else generating
    routes += [*native_routes(service), *utility_routes(service), *control_routes(service)]
    for route in routes:
        (route.methods or set()).discard("HEAD")  # Starlette adds it to GET, and no engine does
    pages = {"/metrics": None, "/metrics/": None, service.dialect.published.path: None}
    routes += [Route(path, metrics, methods=METHODS) for path in pages]
    origins = Middleware(CORSMiddleware, allow_methods=["*"], allow_headers=["*"])
    return Starlette(routes=routes, middleware=[origins], exception_handlers={HTTPException: not_there})
