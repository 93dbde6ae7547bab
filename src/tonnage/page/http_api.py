"""``/api/v1``: the questions of the command over HTTP, for programs; a client that leaves ends its
job.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import aclosing
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tonnage import api
from tonnage.api.question.confined_paths import check_inside
from tonnage.api.question.typed_arguments import SimulateArguments
from tonnage.errors import InputError, InputErrors
from tonnage.page.fields import command_of
from tonnage.page.shell import EVENTS, desk_of, event, streamed
from tonnage.page.workspace import Desk
from tonnage.report.plans.diff import diff_json, differences
from tonnage.report.plans.plan_document import plans_of
from tonnage.results.store import json_text
from tonnage.spec.scenario import flat
from tonnage.spec.scenario_file import json_schema
from tonnage.spec.typed_values import parse_json
from tonnage.version import VERSION

if TYPE_CHECKING:
    from pydantic import BaseModel
    from starlette.requests import Request

LARGEST_BODY = 16 * 2**20  # bytes
LOOKS_S = 0.25  # seconds between two looks at whether a client is still there
NUMBERS = ("tp", "dp", "ep", "isl", "osl")
MEMORY = ("model", "gpu", "precision", "engine", "speculation", "lora", *NUMBERS)

T = TypeVar("T")


def routes() -> list[Route]:
    """What the interface answers to."""
    return [
        Route("/api/v1/size", size, methods=["POST"]),
        Route("/api/v1/simulate", simulate, methods=["POST"]),
        Route("/api/v1/memory", memory),
        Route("/api/v1/compare", compare, methods=["POST"]),
        Route("/api/v1/catalog", catalog),
        Route("/api/v1/openapi.json", described),
    ]


async def document_of(request: Request) -> dict[str, Any]:
    """The JSON object of a body. Raises InputError: it is too large, or none."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > LARGEST_BODY:
            raise InputError(f"the body is larger than {LARGEST_BODY:,} bytes; send less")
        parts.append(part)
    document = parse_json(b"".join(parts), "the body", "send one JSON object")
    if not isinstance(document, dict):
        raise InputError("the body is not a JSON object of a question; see /api/v1/openapi.json")
    return document


async def while_there(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """What the work finds; it is cancelled when the client leaves."""
    task = asyncio.ensure_future(work)
    while not task.done():
        await asyncio.wait({task}, timeout=LOOKS_S)
        if not task.done() and await request.is_disconnected():
            task.cancel()
    return await task


async def size(request: Request) -> Response:
    """The plan of a scenario."""
    document, desk = await document_of(request), desk_of(request)
    check_inside(document, desk.folder)
    leaf_values = flat(document)
    command = (
        ""
        if any(isinstance(value, dict) for value in leaf_values.values())
        else command_of(leaf_values)
    )
    today = datetime.now(tz=UTC).date().isoformat()
    return await _worked(
        request, desk, "size", arguments={}, scenario=document, command=command, today=today
    )


async def simulate(request: Request) -> Response:
    """One simulated deployment under one load or several."""
    document, desk = await document_of(request), desk_of(request)
    check_inside(document, desk.folder)
    scenario = document.pop("scenario", None)
    if not isinstance(scenario, dict | None):
        raise InputError("scenario: is not an object; send the keys of a scenario file")
    from pydantic import ValidationError

    try:
        _arguments().model_validate_json(json.dumps(document), strict=True)
    except ValidationError as error:
        faults = {
            str(problem["loc"][0]): problem["msg"] for problem in error.errors(include_url=False)
        }
        raise InputErrors(
            f"{name[:40]}: {message}; see /api/v1/openapi.json" for name, message in faults.items()
        ) from None
    return await _worked(request, desk, "simulate", scenario=scenario, arguments=document)


@cache
def _arguments() -> type[BaseModel]:
    """The arguments of ``simulate`` as a model of pydantic."""
    from pydantic import ConfigDict, create_model

    hints = get_type_hints(SimulateArguments)
    fields: dict[str, Any] = {name: (hint | None, None) for name, hint in hints.items()}
    return create_model("Simulation", __config__=ConfigDict(extra="forbid"), **fields)


async def _worked(request: Request, desk: Desk, kind: str, **given: Any) -> Response:
    """The answer of a job; with its progress as server-sent events where the client takes them."""
    if EVENTS in request.headers.get("accept", ""):
        return streamed(_events(desk, kind, given))
    last = await while_there(request, desk.worker.answer(kind, **given))
    if "answer" in last:
        return Response(last["answer"], media_type="application/json")
    return JSONResponse(
        {"errors": last.get("faults", ["cancelled"])},
        status_code=500 if last.get("broken") else 422,
    )


async def _events(desk: Desk, kind: str, arguments: dict[str, Any]) -> AsyncIterator[str]:
    async with aclosing(desk.worker.run(kind, **arguments)) as run:
        async for message in run:
            if "progress" in message:
                yield event(
                    "progress",
                    json.dumps(
                        dict(zip(("done", "total", "name"), message["progress"], strict=True))
                    ),
                )
            elif "decided" in message or "answer" in message:
                yield event(*next(iter(message.items())))
            else:
                yield event("errors", json.dumps(message.get("faults", [])))


async def memory(request: Request) -> Response:
    """Where the memory of a GPU goes."""
    parameters: dict[str, Any] = dict(request.query_params)
    check_inside(parameters, desk_of(request).folder)
    unknown = sorted(set(parameters) - set(MEMORY))
    InputErrors.raise_if(
        [f"{name[:40]}: unknown; known are {', '.join(MEMORY)}" for name in unknown]
    )
    for name in NUMBERS:
        if name in parameters:
            text = parameters[name]
            if not (text.isascii() and text.isdigit() and len(text) < 9 and int(text) > 0):
                raise InputError(f"{name}: '{text[:20]}' is not a number of them; write 1 or more")
            parameters[name] = int(text)
    if not parameters.get("model"):
        raise InputError("model: missing; for example ?model=llama-3.1-8b")
    return await _or_errors(lambda: api.memory(**parameters).to_json())


async def compare(request: Request) -> Response:
    """What two plans say differently."""
    document = await document_of(request)

    def compared() -> dict[str, Any]:
        first, second = (plans_of(document.get(name), name) for name in ("first", "second"))
        if len(first) != 1 or len(second) != 1:
            raise InputError("first, second: hold several models; give one plan each")
        return diff_json(differences(first[0], second[0]))

    return await _or_errors(compared)


async def catalog(request: Request) -> Response:
    """Entries of the catalog."""
    text = request.query_params.get("text", "")[:200]
    return await _or_errors(lambda: api.catalog(text))


async def _or_errors(make: Callable[[], Any]) -> Response:
    return Response(
        await run_in_threadpool(lambda: json_text(make())), media_type="application/json"
    )


async def described(request: Request) -> Response:
    """The interface in OpenAPI's words."""
    return JSONResponse(openapi())


@cache
def openapi() -> dict[str, Any]:
    """The interface, with the scenario's JSON Schema as it is."""
    scenario, arguments = json_schema(), _arguments().model_json_schema()
    definitions = {**scenario.pop("$defs", {}), **arguments.pop("$defs", {})}
    scenario.pop("$schema", None)
    components = {
        **definitions,
        "Scenario": scenario,
        "Simulation": arguments,
        "Plan": {"type": "object"},
    }
    text = json.dumps(components).replace("#/$defs/", "#/components/schemas/")
    comparison = {
        "type": "object",
        "required": ["first", "second"],
        "properties": {name: _ref("Plan") for name in ("first", "second")},
    }
    memory_ = [
        _parameter(name, "integer" if name in NUMBERS else "string", required=name == "model")
        for name in MEMORY
    ]
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Tonnage",
            "version": VERSION,
            "description": "The questions of the command tonnage over HTTP.",
        },
        "paths": {
            "/api/v1/size": {
                "post": _posted("The plan of a scenario", _ref("Scenario"), streams=True)
            },
            "/api/v1/simulate": {
                "post": _posted("A deployment under load", _ref("Simulation"), streams=True)
            },
            "/api/v1/memory": {"get": _got("Where the memory of a GPU goes", memory_)},
            "/api/v1/compare": {"post": _posted("What two plans say differently", comparison)},
            "/api/v1/catalog": {
                "get": _got("Entries of the catalog", [_parameter("text", "string")])
            },
        },
        "components": {"schemas": json.loads(text)},
    }


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _parameter(name: str, kind: str, *, required: bool = False) -> dict[str, Any]:
    return {
        "name": name,
        "in": "query",
        "required": required,
        "schema": {"type": kind, **({"minimum": 1} if kind == "integer" else {})},
    }


def _answers(*, streams: bool = False) -> dict[str, Any]:
    content: dict[str, Any] = {"application/json": {"schema": {"type": "object"}}}
    if streams:
        content[EVENTS] = {"schema": {"type": "string"}}
    errors = {
        "type": "object",
        "properties": {"errors": {"type": "array", "items": {"type": "string"}}},
    }
    return {
        "200": {"description": "The answer", "content": content},
        "422": {
            "description": "What cannot be used, a line each",
            "content": {"application/json": {"schema": errors}},
        },
    }


def _posted(summary: str, schema: dict[str, Any], *, streams: bool = False) -> dict[str, Any]:
    body = {"required": True, "content": {"application/json": {"schema": schema}}}
    return {"summary": summary, "requestBody": body, "responses": _answers(streams=streams)}


def _got(summary: str, parameters: list[dict[str, Any]]) -> dict[str, Any]:
    return {"summary": summary, "parameters": parameters, "responses": _answers()}
