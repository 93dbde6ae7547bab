"""What an engine answers besides generating: models, health, tokens, and the description of its API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from tonnage.serve.app import Service, counted, json_body, saying
from tonnage.serve.dialect import Refused
from tonnage.serve.request import check_model, prompt_of_chat
from tonnage.serve.schema import checked, document
from tonnage.serve.transfer import FETCHED
from tonnage.version import VERSION

if TYPE_CHECKING:
    from starlette.requests import Request

_ENABLES = "--enable-scale-out"
_RENDERS = ("/v1/completions/", "/v1/chat/completions/")
_SCALE_OUT = ("/inference/v1/generate", *(path + name for path in _RENDERS for name in ("render", "derender")))
_PAGE = """<!DOCTYPE html><html><head><title>{title}</title></head><body><h1>{title}</h1><p>The API is described in
<a href="/openapi.json">/openapi.json</a>:</p><ul>{paths}</ul></body></html>"""


def utility_routes(service: Service) -> list[Route]:
    """The routes of these paths."""

    async def well(request: Request) -> Response:
        return Response(service.engines.broken, status_code=503 if service.engines.broken else 200)

    async def tokenize(request: Request) -> Response:
        return JSONResponse(_tokenized(service, await json_body(request)))

    async def detokenize(request: Request) -> Response:
        said = checked("/detokenize", await json_body(request))
        check_model(said.get("model"), service.limits)
        below = next((one for one in said["tokens"] if one < 0), None)
        if below is not None:
            raise Refused(f"Token id {below} is out of vocabulary")
        return JSONResponse({"prompt": service.tokens.text([one for one in said["tokens"] if one < service.tokens.size])})

    async def closed(request: Request) -> Response:
        words = f"Scale-out endpoints are disabled. Restart vllm serve with {_ENABLES} to enable them."
        raise Refused(words, status=403, kind="PermissionDeniedError")

    async def fetched(request: Request) -> Response:
        found = None if service.transfers is None else service.transfers.fetched(request.path_params["name"])
        return JSONResponse(found, status_code=404 if found is None else 200)

    async def shown(request: Request) -> Response:
        paths = "".join(f"<li>{path}</li>" for path in document()["paths"])
        return HTMLResponse(_PAGE.format(title=f"{service.dialect.name}, simulated by tonnage {VERSION}", paths=paths))

    return [
        Route("/v1/models", counted(service, saying(lambda: {"object": "list", "data": _cards(service)}))),
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
        Route("/is_scaling_elastic_ep", saying(lambda: {"is_scaling_elastic_ep": False}), methods=["POST"]),
        *(Route(path, counted(service, closed), methods=["POST"]) for path in _SCALE_OUT),
    ]


def _cards(service: Service) -> list[dict[str, Any]]:
    """The models and the adapters that are loaded."""
    limits, card = service.limits, service.dialect.model
    found = [card(name, service.started, limits.max_context) for name in limits.models]
    for one in limits.adapters.values():
        own = card(one.name, service.started, 0)
        found.append({**own, **({"root": one.path, "parent": service.model, "max_model_len": None} if "root" in own else {})})
    return found


def _tokenized(service: Service, body: Any) -> dict[str, Any]:
    """The tokens of a text or of a chat."""
    said = checked("/tokenize", body)
    if said.get("continue_final_message") and said.get("add_generation_prompt"):
        raise Refused("Cannot set both `continue_final_message` and `add_generation_prompt` to True.")
    check_model(said.get("model"), service.limits)
    if "messages" in said:
        ids = prompt_of_chat(said, service.reader).ids
    else:
        ids = service.reader.text(said["prompt"], special=said["add_special_tokens"]).ids if said["prompt"] else ()
    strings = [service.tokens.text([one]) for one in ids] if said.get("return_token_strs") else None
    return {"count": len(ids), "max_model_len": service.limits.max_context, "tokens": list(ids), "token_strs": strings}
