"""Anthropic's Messages API, in the form in which vLLM answers it: read as a chat, and its answer
written as blocks.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tonnage.serve.answer import Answer
from tonnage.serve.app import Service, Stream, admitted, begun, counted, json_body, reply_of, whole
from tonnage.serve.dialect import Refused
from tonnage.serve.replies import Made, Reply, event
from tonnage.serve.request import Asked, asked_of
from tonnage.serve.rules import checked, value_error

if TYPE_CHECKING:
    from starlette.requests import Request


PATH = "/v1/messages"


def message_routes(service: Service) -> list[Route]:
    """The routes of these paths."""

    async def create(request: Request) -> Response:
        after = await admitted(service, request)
        body = checked(PATH, await json_body(request))
        _check(body)
        try:
            generation = asked_of(
                "chat", _chat_body(body), reader=service.reader, limits=service.limits
            )
            reply = reply_of(
                service,
                generation,
                f"chatcmpl-{request.headers.get('x-request-id') or secrets.token_hex(8)}",
            )
            answers = begun(service, generation)
            if generation.stream:
                return Stream(_events(reply, generation, answers[0]), answers, after)
            return JSONResponse(
                _whole(reply, generation, (await whole(request, reply, answers))[0])
            )
        except Refused as error:
            return _error(error)

    async def count(request: Request) -> Response:
        body = checked(f"{PATH}/count_tokens", await json_body(request))
        try:
            generation = asked_of(
                "chat",
                {**_chat_body(body), "max_tokens": 1},
                reader=service.reader,
                limits=service.limits,
            )
        except Refused as error:
            return _error(error)
        return JSONResponse(
            {
                "input_tokens": generation.isl,
                "context_management": {"original_input_tokens": generation.isl},
            }
        )

    handlers = {PATH: create, f"{PATH}/count_tokens": count}
    return [
        Route(path, counted(service, handler), methods=["POST"])
        for path, handler in handlers.items()
    ]


def _error(error: Refused) -> JSONResponse:
    return JSONResponse(
        {"type": "error", "error": {"type": error.kind, "message": str(error)}},
        status_code=error.status,
    )


def _check(body: Mapping[str, Any]) -> None:
    """Check what vLLM checks along with the schema."""
    max_tokens, thinking = body["max_tokens"], body.get("thinking") or {}
    if not body["model"]:
        raise value_error("Model is required", body["model"], "model")
    if max_tokens <= 0:
        raise value_error("max_tokens must be positive", max_tokens, "max_tokens")
    if thinking.get("type") == "enabled" and thinking["budget_tokens"] >= max_tokens:
        raise value_error("thinking.budget_tokens must be less than max_tokens", body)
    choice = body.get("tool_choice") or {}
    if choice.get("type") == "tool" and not choice.get("name"):
        raise value_error("tool_choice.name is required when type is 'tool'", choice, "tool_choice")


def _chat_body(request_body: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the request to one of the chat API."""
    messages = (
        [{"role": "system", "content": _text(request_body["system"])}]
        if request_body.get("system")
        else []
    )
    for message in request_body["messages"]:
        messages += _messages(message["role"], message["content"], request_body["model"])
    body: dict[str, Any] = {
        "model": request_body["model"],
        "messages": messages,
        "stream": bool(request_body.get("stream")),
    }
    same = {
        "max_tokens": "max_completion_tokens",
        "temperature": "temperature",
        "top_p": "top_p",
        "top_k": "top_k",
        "stop_sequences": "stop",
    }
    body |= {
        name: request_body[key] for key, name in same.items() if request_body.get(key) is not None
    }
    if request_body.get("tools"):
        body["tools"] = [
            {
                "type": "function",
                "function": {
                    "name": tool["name"],
                    "parameters": tool.get("input_schema") or {"type": "object"},
                },
            }
            for tool in request_body["tools"]
        ]
        choice = request_body.get("tool_choice") or {"type": "auto"}
        if choice["type"] == "tool" and choice["name"] not in [
            tool["name"] for tool in request_body["tools"]
        ]:
            raise Refused(f"The tool with name '{choice['name']}' is not found in the tools list.")
        kinds: dict[str, Any] = {"auto": "auto", "any": "required", "none": "none"}
        kinds["tool"] = {"type": "function", "function": {"name": choice.get("name")}}
        body["tool_choice"] = kinds[choice["type"]]
        body["parallel_tool_calls"] = not choice.get("disable_parallel_tool_use")
    return body


def _text(content: Any) -> str:
    return (
        content
        if isinstance(content, str)
        else "\n".join(block.get("text") or "" for block in content or [])
    )


def _messages(role: str, content: Any, model: str) -> list[dict[str, Any]]:
    """A message, and one more for each result of a tool in it."""
    if isinstance(content, str):
        return [{"role": role, "content": content}]
    results, texts, calls = [], [], []
    for block in content:
        if block["type"] == "tool_result":
            results.append(
                {
                    "role": "tool",
                    "tool_call_id": block.get("tool_use_id") or "",
                    "content": _text(block.get("content")),
                }
            )
        elif block["type"] == "tool_use":
            function = {
                "name": block.get("name") or "",
                "arguments": json.dumps(block.get("input") or {}),
            }
            calls.append({"id": block.get("id") or "", "type": "function", "function": function})
        elif block["type"] in ("text", "thinking", "redacted_thinking"):
            texts.append(block.get("text") or "")
        else:
            raise Refused(f"{model} is not a multimodal model")
    spoken = (
        [{"role": role, "content": "\n".join(texts), **({"tool_calls": calls} if calls else {})}]
        if texts or calls
        else []
    )
    return results + spoken


def _stopped(answer: Answer, called: bool) -> dict[str, Any]:
    reason = {"length": "max_tokens", "stop": "tool_use" if called else "end_turn"}.get(
        answer.finish, "end_turn"
    )
    if isinstance(answer.stopped_by, str) and answer.stopped_by:
        return {"stop_reason": "stop_sequence", "stop_sequence": answer.stopped_by}
    return {"stop_reason": reason, "stop_sequence": None}


def _usage(wish: Asked, answer: Answer, output: int) -> dict[str, int]:
    cached = answer.source.cached
    usage = {"input_tokens": wish.isl - cached, "output_tokens": output}
    return {**usage, **({"cache_read_input_tokens": cached} if cached else {})}


def _whole(reply: Reply, wish: Asked, output: Made) -> dict[str, Any]:
    content: list[dict[str, Any]] = []
    if output.reasoning:
        content.append(
            {"type": "thinking", "thinking": output.reasoning, "signature": secrets.token_hex(16)}
        )
    if output.text or not output.calls:
        content.append({"type": "text", "text": output.text})
    for number, name, arguments in output.calls:
        content.append(
            {"type": "tool_use", "id": number, "name": name, "input": _object(arguments)}
        )
    stopped = {
        name: value
        for name, value in _stopped(output.answer, bool(output.calls)).items()
        if value is not None
    }
    head = {
        "id": reply.id,
        "type": "message",
        "role": "assistant",
        "content": content,
        "model": reply.model,
    }
    return {**head, **stopped, "usage": _usage(wish, output.answer, output.answer.made)}


def _object(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:  # cut short by max_tokens
        return {}


async def _events(reply: Reply, wish: Asked, answer: Answer) -> AsyncIterator[bytes]:
    """The events of a stream: a block begins where the kind of text changes, or at a call of a
    tool.
    """
    begun, block, kind, called = False, -1, "", False

    def one(name: str, **more: Any) -> bytes:
        return event({"type": name, **more}, name)

    try:
        async for piece in answer.pieces():
            if not begun:
                begun = True
                message: dict[str, Any] = {
                    "id": reply.id,
                    "type": "message",
                    "role": "assistant",
                    "content": [],
                    "model": reply.model,
                }
                message |= {
                    "stop_reason": None,
                    "stop_sequence": None,
                    "usage": _usage(wish, answer, 0),
                }
                yield one("message_start", message=message)
            parts: list[tuple[str, str, Any]] = []
            if piece.reasoning:
                parts.append(
                    ("thinking", "", {"type": "thinking_delta", "thinking": piece.reasoning})
                )
            if piece.text:
                parts.append(("text", "", {"type": "text_delta", "text": piece.text}))
            for call in piece.calls:
                delta = (
                    None
                    if call.name
                    else {"type": "input_json_delta", "partial_json": call.arguments}
                )
                parts.append((f"tool_use {call.place}", call.name, delta))
            for what, name, delta in parts:
                if what != kind:
                    if kind:
                        yield one("content_block_stop", index=block)
                    kind, block = what, block + 1
                    yield one(
                        "content_block_start", content_block=_opened(reply, what, name), index=block
                    )
                    called = called or bool(name)
                if delta is not None:
                    yield one("content_block_delta", delta=delta, index=block)
    except Refused as error:
        yield one("error", error={"type": error.kind, "message": str(error)})
        return
    if kind:
        yield one("content_block_stop", index=block)
    yield one(
        "message_delta", delta=_stopped(answer, called), usage=_usage(wish, answer, answer.made)
    )
    yield one("message_stop")


def _opened(reply: Reply, what: str, name: str) -> dict[str, Any]:
    if what == "thinking":
        return {"type": "thinking", "thinking": "", "signature": ""}
    if what == "text":
        return {"type": "text", "text": ""}
    return {
        "type": "tool_use",
        "id": f"{reply.call_id}{int(what.split()[1]):x}",
        "name": name,
        "input": {},
    }
