"""Paths that only one family of engines has: SGLang's native ones, what NIM says of its deployment,
and Triton's generate.

SGLang's are those of python/sglang/srt/entrypoints/http_server.py at 0025436e and
managers/tokenizer_manager.py (0.5), read 2026-11-25; NIM's those of its API reference (NIM LLM
2.1.6, read 2026-11-25): management paths before vLLM. Triton's are those of its generate extension
(docs/protocol/extension_generate.md, recalled), with the inputs of the ensemble that ``deploy
--target triton`` writes.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from tonnage.serve.answer import Answer
from tonnage.serve.app import (
    Service,
    Stream,
    admitted,
    begun,
    counted,
    json_body,
    mixed,
    reply_of,
    saying,
    whole,
)
from tonnage.serve.dialect import Refused
from tonnage.serve.replies import DONE, Reply, event
from tonnage.serve.request import asked_of
from tonnage.serve.simulated import Simulated

if TYPE_CHECKING:
    from starlette.requests import Request


# Output tokens where a request does not say (SGLang's ``SamplingParams.max_new_tokens``)
_OSL = 128

_SAME = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
    "stop",
    "n",
    "ignore_eos",
)
_OTHER = {
    "max_new_tokens": "max_tokens",
    "min_new_tokens": "min_tokens",
    "stop_token_ids": "stop_token_ids",
    "sampling_seed": "seed",
}
_STRUCTURES = {"json_schema": "json", "regex": "regex", "ebnf": "grammar"}


def native_routes(service: Service) -> list[Route]:
    """The routes of the engine that is emulated."""
    routes = {"sglang": _sglang_routes, "nim": _nim_routes, "triton": _triton_routes}.get(
        service.dialect.name
    )
    return [] if routes is None else routes(service)


def _sglang_routes(service: Service) -> list[Route]:
    async def generate(request: Request) -> Response:
        after = await admitted(service, request)
        body = await json_body(request)
        if not isinstance(body, dict):
            raise Refused("the body is no JSON object")
        generation = asked_of(
            "completions", _completion(body), reader=service.reader, limits=service.limits
        )
        reply = reply_of(service, generation, str(body.get("rid") or ""))
        answers = begun(service, generation)
        writer = _Generated(reply)
        if generation.stream:
            return Stream(writer.events(answers), answers, after)
        documents = [
            writer.document(choice.answer, choice.text, choice.ids)
            for choice in await whole(request, reply, answers)
        ]
        alone = len(documents) == 1 and not _several(body)
        return JSONResponse(documents[0] if alone else documents)

    async def healthy(request: Request) -> Response:
        """Generate one token, as SGLang's health check does."""
        generation = asked_of(
            "completions",
            {"prompt": [0], "max_tokens": 1, "temperature": 0},
            reader=service.reader,
            limits=service.limits,
        )
        await whole(
            request, reply_of(service, generation, "HEALTH_CHECK"), begun(service, generation)
        )
        return Response()

    async def flush(request: Request) -> Response:
        cleared = isinstance(service.engines, Simulated) and service.engines.clear()
        words = "Cache flushed.\nPlease check backend logs for more details. "
        words += (
            "(When there are running or waiting requests, the operation will not be performed.)\n"
        )
        return PlainTextResponse(words, status_code=200 if cleared else 400)

    return [
        Route("/generate", counted(service, generate), methods=["POST", "PUT"]),
        *(
            Route(path, counted(service, saying(lambda: _model_info(service))))
            for path in ("/get_model_info", "/model_info")
        ),
        *(
            Route(path, counted(service, saying(lambda: _server_info(service))))
            for path in ("/get_server_info", "/server_info")
        ),
        Route("/health_generate", counted(service, healthy)),
        Route("/flush_cache", counted(service, flush), methods=["GET", "POST"]),
    ]


def _model_info(service: Service) -> dict[str, Any]:
    facts = {
        "model_path": service.model,
        "tokenizer_path": service.model,
        "is_generation": not service.width,
        "weight_version": "default",
    }
    return {
        **facts,
        "preferred_sampling_params": None,
        "has_image_understanding": False,
        "has_audio_understanding": False,
    }


def _server_info(service: Service) -> dict[str, Any]:
    instances = service.engines.fleet.instances if isinstance(service.engines, Simulated) else ()
    loads = [{"num_running_reqs": len(instance.member.engine.running)} for instance in instances]
    return {"model_path": service.model, **service.settings, "internal_states": loads}


def _several(body: Mapping[str, Any]) -> bool:
    """Whether it asks for several prompts, which are answered by a list."""
    ids = body.get("input_ids")
    return isinstance(body.get("text"), list) or bool(ids and isinstance(ids[0], list))


def _completion(request_body: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the request to a completion."""
    if (request_body.get("text") is None) == (request_body.get("input_ids") is None):
        raise Refused("Either text, input_ids or input_embeds should be provided.")
    parameters = request_body.get("sampling_params") or {}
    if not isinstance(parameters, dict):
        raise Refused("sampling_params: several are not taken; write one object for all prompts")
    body: dict[str, Any] = {
        "prompt": request_body["input_ids"]
        if request_body.get("text") is None
        else request_body["text"],
        "stream": bool(request_body.get("stream")),
    }
    body |= {name: parameters[name] for name in _SAME if parameters.get(name) is not None}
    body |= {
        openai_name: parameters[name]
        for name, openai_name in _OTHER.items()
        if parameters.get(name) is not None
    }
    structures = {
        openai_name: parameters[name]
        for name, openai_name in _STRUCTURES.items()
        if parameters.get(name)
    }
    body |= {"structured_outputs": structures} if structures else {}
    return {"max_tokens": _OSL, **body}


class _Generated:
    """Writes the answers to a request."""

    def __init__(self, reply: Reply) -> None:
        self._reply, self._began = reply, time.monotonic()

    def document(self, answer: Answer, text: str, ids: list[int]) -> dict[str, Any]:
        """Write the answer as far as it has come."""
        finish: dict[str, Any] | None = {"type": answer.finish} if answer.finish else None
        if finish is not None and answer.finish == "length":
            finish["length"] = answer.asked.osl
        elif finish is not None and answer.stopped_by != "":
            finish["matched"] = answer.stopped_by
        meta: dict[str, Any] = {
            "id": self._reply.id or f"{id(answer):032x}",
            "finish_reason": finish,
            "prompt_tokens": answer.prompt.tokens,
        }
        meta |= {
            "weight_version": "default",
            "num_retractions": answer.source.preemptions,
            "completion_tokens": answer.made,
        }
        meta |= {"cached_tokens": answer.source.cached}
        if answer.finish:
            meta["e2e_latency"] = time.monotonic() - self._began
        return {"text": text, "output_ids": ids, "meta_info": meta}

    async def events(self, answers: list[Answer]) -> AsyncIterator[bytes]:
        """Every answer as far as it has come, at each of its pieces."""
        try:
            async for part in mixed(
                [self._of(i, answer, len(answers)) for i, answer in enumerate(answers)]
            ):
                yield part
        except Refused as error:
            yield event({"error": {"message": str(error)}})
        yield DONE

    async def _of(self, index: int, answer: Answer, of: int) -> AsyncIterator[bytes]:
        text, ids = "", list[int]()
        async for piece in answer.pieces():
            text += piece.text
            ids += piece.ids
            yield event(
                {**self.document(answer, text, ids), **({"index": index} if of > 1 else {})}
            )


def _nim_routes(service: Service) -> list[Route]:
    profile = f"{service.model}-simulated"
    licence = {
        "name": "LICENSE",
        "path": "",
        "sha": "",
        "size": 0,
        "url": "",
        "type": "file",
        "content": "",
    }
    documents: dict[str, dict[str, Any]] = {
        f"/v1/health/{state}": {"object": "health.response", "message": state, "status": state}
        for state in ("live", "ready")
    }
    documents["/v1/metadata"] = {
        "version": service.version,
        "selectedModelProfileId": profile,
        "modelInfo": [{"shortName": f"{service.model}:{profile}", "modelUrl": ""}],
        "licenseInfo": licence,
        "assetInfo": [],
        "repository_override": "",
    }
    manifest = f"profiles:\n- id: {profile}\n  model: {service.model}\n"
    documents["/v1/manifest"] = {"manifest_file": manifest, "repository_override": ""}
    documents["/v1/version"] = {"release": service.version, "api": "1.0.0"}
    return [Route(path, saying(partial(dict, document))) for path, document in documents.items()]


def _triton_routes(service: Service) -> list[Route]:
    model, named = (
        f"/v2/models/{service.model}",
        {"model_name": service.model, "model_version": "1"},
    )

    async def generate(request: Request) -> Response:
        after = await admitted(service, request)
        request_body = await json_body(request)
        if not isinstance(request_body, dict) or not isinstance(
            request_body.get("text_input"), str
        ):
            raise Refused("expected a text as input 'text_input'")
        streamed, least = request.url.path.endswith("_stream"), request_body.get("min_length")
        body = {
            "prompt": request_body["text_input"],
            "stream": streamed,
            "max_tokens": request_body.get("max_tokens", _OSL),
        }
        body |= {"min_tokens": least, "ignore_eos": True} if least else {}
        generation = asked_of("completions", body, reader=service.reader, limits=service.limits)
        reply = reply_of(service, generation, "")
        answers = begun(service, generation)
        if streamed:
            return Stream(texts(answers[0]), answers, after)
        (choice,) = await whole(request, reply, answers)
        return JSONResponse({**named, "text_output": choice.text})

    async def texts(answer: Answer) -> AsyncIterator[bytes]:
        async for piece in answer.pieces():
            yield event({**named, "text_output": piece.text})

    ready = (f"/v2/health/{state}" for state in ("live", "ready"))
    return [
        *(
            Route(f"{model}/{verb}", counted(service, generate), methods=["POST"])
            for verb in ("generate", "generate_stream")
        ),
        *(Route(path, counted(service, saying(dict))) for path in (*ready, f"{model}/ready")),
    ]
