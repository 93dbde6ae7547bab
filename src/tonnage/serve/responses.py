"""OpenAI's Responses API, in the form in which vLLM answers it: read as a chat, and its answer
written as items.
"""

from __future__ import annotations

import os
import secrets
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tonnage.serve.answer import Answer
from tonnage.serve.app import Service, Stream, admitted, begun, counted, json_body, reply_of, whole
from tonnage.serve.dialect import Refused
from tonnage.serve.replies import Made, Reply, event
from tonnage.serve.request import Asked, asked_of, check_model
from tonnage.serve.rules import check_salt, checked, refusal

if TYPE_CHECKING:
    from starlette.requests import Request


PATH = "/v1/responses"
# vLLM stores responses only where this variable of its environment is 1; so does this server
STORES = "VLLM_ENABLE_RESPONSES_API_STORE"
KEPT = 1_000  # Responses that later ones may follow on

_NOTHING = (
    *(
        "prompt",
        "top_logprobs",
        "kv_transfer_params",
        "ec_transfer_params",
        "input_messages",
        "output_messages",
    ),
    *(
        _SAID := (
            "max_tool_calls",
            "previous_response_id",
            "user",
            "metadata",
            "reasoning",
            "text",
            "instructions",
        )
    ),
)
_AS_CHAT = (
    *(
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "presence_penalty",
        "frequency_penalty",
        "repetition_penalty",
        "seed",
        "logit_bias",
    ),
    *(
        "stop",
        "stop_token_ids",
        "ignore_eos",
        "include_stop_str_in_output",
        "structured_outputs",
        "cache_salt",
        "include_reasoning",
    ),
)
"""Fields that are those of a chat."""


class Kept(OrderedDict[str, tuple[dict[str, Any], list[Any]]]):
    """The last responses, each with the messages of its conversation; none where the server stores
    none.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stores = os.environ.get(STORES, "0") not in ("", "0")

    def keep(self, response: dict[str, Any], messages: list[Any]) -> None:
        """Keep one, and forget the oldest."""
        self[response["id"]] = response, messages
        if len(self) > KEPT:
            self.popitem(last=False)

    def of(self, number: str) -> tuple[dict[str, Any], list[Any]]:
        """Look a response up. Raises Refused: it is not there."""
        if number not in self:
            words = f"Response with id '{number}' not found."
            raise Refused(words, status=404, kind="invalid_request_error", param="response_id")
        return self[number]


def response_routes(service: Service) -> list[Route]:
    """The routes of these paths."""
    store = Kept()

    async def create(request: Request) -> Response:
        after = await admitted(service, request)
        posted = await json_body(request)
        if isinstance(posted, dict):
            check_response(posted)
        fields = checked(PATH, posted)
        check_model(fields.get("model"), service.limits)
        if fields.get("background") and not store.stores:
            words = (
                "therefore does not support the background mode. To enable these features, set the"
                f" environment variable `{STORES}=1`"
            )
            words = (
                f"This vLLM engine does not support `store=True` and {words} when launching the"
                " vLLM server."
            )
            raise Refused(words, kind="invalid_request_error", param="background")
        body = _chat_body(fields, store)
        try:
            generation = asked_of("chat", body, reader=service.reader, limits=service.limits)
        except Refused as error:  # the same limit has another name here
            words = str(error).replace("max_completion_tokens", "max_output_tokens")
            param = "max_output_tokens" if error.param == "max_completion_tokens" else error.param
            raise Refused(words, status=error.status, kind=error.kind, param=param) from None
        reply = reply_of(
            service, generation, posted.get("request_id") or f"resp_{secrets.token_hex(8)}"
        )
        answers = begun(service, generation)
        writer = Writer(
            reply=reply, asked=generation, said=fields, messages=body["messages"], kept=store
        )
        if fields.get("stream"):
            return Stream(writer.events(answers[0]), answers, after)
        return JSONResponse(writer.ended((await whole(request, reply, answers))[0]))

    async def found(request: Request) -> Response:
        return JSONResponse(store.of(request.path_params["number"])[0])

    async def cancelled(request: Request) -> Response:
        store.of(request.path_params["number"])
        raise Refused(
            "Cannot cancel a synchronous response.",
            kind="invalid_request_error",
            param="response_id",
        )

    return [
        Route(PATH, counted(service, create), methods=["POST"]),
        Route(f"{PATH}/{{number}}", counted(service, found)),
        Route(f"{PATH}/{{number}}/cancel", counted(service, cancelled), methods=["POST"]),
    ]


def check_response(body: dict[str, Any]) -> None:
    """Refuse before the schema is read, and set what vLLM sets there. Raises Refused: the first
    thing that is wrong.
    """
    if body.get("background") and not body.get("store", True):
        raise refusal("background can only be used when `store` is true", "background")
    if body.get("prompt") is not None:
        raise refusal("prompt template is not supported", "prompt")
    check_salt(body)
    choice, tools = body.get("tool_choice", "auto"), body.get("tools") or []
    named = (
        choice.get("name")
        if isinstance(choice, Mapping) and choice.get("type") in ("function", "custom")
        else None
    )
    if choice == "required" and not tools:
        raise refusal(
            "Tool choice 'required' must be specified with 'tools' parameter.", "tool_choice"
        )
    if named is not None and named not in [
        tool.get("name") for tool in tools if isinstance(tool, Mapping)
    ]:
        raise refusal("Tool choice 'function' not found in 'tools' parameter.", "tool_choice")
    for item in body["input"] if isinstance(body.get("input"), list) else []:
        for part in (
            item["content"]
            if isinstance(item, dict) and isinstance(item.get("content"), list)
            else []
        ):
            if isinstance(part, dict) and part.get("type") == "input_image":
                part.setdefault("detail", "auto")


def _chat_body(request_body: Mapping[str, Any], stored: Kept) -> dict[str, Any]:
    """Convert the request to one of the chat API."""
    messages: list[Any] = (
        [{"role": "system", "content": request_body["instructions"]}]
        if request_body.get("instructions")
        else []
    )
    if request_body.get("previous_response_id"):
        messages += stored.of(request_body["previous_response_id"])[1]
    prompt_input = request_body["input"]
    messages += (
        [{"role": "user", "content": prompt_input}]
        if isinstance(prompt_input, str)
        else [_message(item) for item in prompt_input]
    )
    body: dict[str, Any] = {
        "model": request_body.get("model"),
        "messages": messages,
        "max_completion_tokens": request_body.get("max_output_tokens"),
    }
    body |= {name: request_body[name] for name in _AS_CHAT if request_body.get(name) is not None}
    form = (request_body.get("text") or {}).get("format") or {}
    if form.get("type") == "json_schema":
        body["response_format"] = {
            "type": "json_schema",
            "json_schema": {"name": form["name"], "schema": form.get("schema")},
        }
    elif form.get("type") == "json_object":
        body["response_format"] = {"type": "json_object"}
    tools = [tool for tool in request_body.get("tools") or [] if tool.get("type") == "function"]
    if tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {"name": tool["name"], "parameters": tool.get("parameters")},
            }
            for tool in tools
        ]
        choice: Any = request_body.get("tool_choice") or "auto"
        named = isinstance(choice, Mapping) and choice.get("type") == "function"
        body["tool_choice"] = (
            {"type": "function", "function": {"name": choice["name"]}} if named else choice
        )
        body["parallel_tool_calls"] = request_body.get("parallel_tool_calls") is not False
    if "message.output_text.logprobs" in (request_body.get("include") or []):
        body |= {"logprobs": True, "top_logprobs": request_body.get("top_logprobs") or 0}
    return {name: value for name, value in body.items() if value is not None}


def _message(item: Any) -> dict[str, Any]:
    """An item of the input as a message of a chat."""
    kind = item.get("type") or "message"
    if kind == "item_reference":
        raise refusal(f"Unsupported input item type: {kind}", "input")
    if kind == "function_call":
        function = {"name": item["name"], "arguments": item["arguments"]}
        return {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": item["call_id"], "type": "function", "function": function}],
        }
    if kind == "function_call_output":
        return {"role": "tool", "tool_call_id": item["call_id"], "content": str(item["output"])}
    content = item.get("content")
    if content is not None and not isinstance(content, str):
        content = [
            (
                part
                if part.get("type") == "input_image"
                else {"type": "text", "text": part.get("text") or ""}
            )
            for part in content
        ]
    return {"role": item.get("role") or "assistant", "content": content or ""}


@dataclass(slots=True, kw_only=True)
class Writer:
    """Writes one response."""

    reply: Reply  # what its parts have in common
    asked: Asked  # the request, as a chat
    said: Mapping[str, Any]
    messages: list[Any]  # of the chat
    kept: Kept  # where it is kept when it has ended

    def body(
        self, status: str, output: list[Any], usage: Any = None, incomplete: Any = None
    ) -> dict[str, Any]:
        """The response as it is at a moment."""
        fields, request, echoed = self.said, self.asked, dict.fromkeys(_NOTHING)
        echoed |= {name: fields.get(name) for name in _SAID}
        echoed["top_logprobs"] = request.logprobs
        return {
            "id": self.reply.id,
            "created_at": self.reply.created,
            "incomplete_details": incomplete,
            "model": self.reply.model,
            "object": "response",
            "output": output,
            "parallel_tool_calls": fields.get("parallel_tool_calls") is not False,
            "temperature": request.sampling.temperature,
            "tool_choice": fields.get("tool_choice") or "auto" if fields.get("tools") else "none",
            "tools": [_tool(tool) for tool in fields.get("tools") or []],
            "top_p": request.sampling.top_p,
            "background": bool(fields.get("background")),
            "max_output_tokens": request.osl,
            "service_tier": fields.get("service_tier") or "auto",
            "status": status,
            "truncation": fields.get("truncation") or "disabled",
            "usage": usage,
            "presence_penalty": request.sampling.presence_penalty,
            "frequency_penalty": request.sampling.frequency_penalty,
            **echoed,
        }

    def ended(self, result: Made, items: list[dict[str, Any]] | None = None) -> dict[str, Any]:
        """The response that has ended; later ones may follow on it."""
        output = self._output(result) if items is None else items
        cut = result.answer.finish == "length"
        response = self.body(
            "incomplete" if cut else "completed",
            output,
            self._usage(result),
            {"reason": "max_output_tokens"} if cut else None,
        )
        if self.kept.stores and self.said.get("store") is not False:
            self.kept.keep(
                response,
                [
                    *self.messages,
                    *(_message(item) for item in output if item["type"] != "reasoning"),
                ],
            )
        return response

    def _output(self, output: Made) -> list[dict[str, Any]]:
        items = [_reasoning(output.reasoning)] if output.reasoning else []
        if output.text or not output.calls:
            logprobs = (
                self.reply.chat_logprobs(output.answer, output.ids, 0)["content"]
                if self.asked.logprobs is not None
                else None
            )
            items.append(_spoken(f"msg_{secrets.token_hex(8)}", output.text, logprobs))
        return items + [_called(f"fc_{secrets.token_hex(8)}", *call) for call in output.calls]

    def _usage(self, output: Made) -> dict[str, Any]:
        answer = output.answer
        read = {
            "cached_tokens": answer.source.cached,
            "cache_write_tokens": 0,
            "input_tokens_per_turn": [],
            "cached_tokens_per_turn": [],
        }
        by_turn: dict[str, Any] = {"output_tokens_per_turn": [], "tool_output_tokens_per_turn": []}
        wrote = {"reasoning_tokens": answer.reasoned, "tool_output_tokens": 0, **by_turn}
        input_counts = {"input_tokens": self.asked.isl, "input_tokens_details": read}
        made_of = {"output_tokens": answer.made, "output_tokens_details": wrote}
        return {**input_counts, **made_of, "total_tokens": self.asked.isl + answer.made}

    async def events(self, answer: Answer) -> AsyncIterator[bytes]:
        """The events of a stream: an item begins where the kind of text changes, or at a call of a
        tool.
        """
        stream = _Items(self.reply)
        collected = Made(answer=answer)
        for name in ("response.created", "response.in_progress"):
            yield stream.event(name, response=self.body("in_progress", []))
        try:
            async for piece in answer.pieces():
                collected.take(piece, self.reply.call_id)
                if piece.reasoning:
                    for part in stream.say("reasoning", piece.reasoning):
                        yield part
                if piece.text:
                    if self.asked.logprobs is not None:
                        stream.odds += (
                            odds := self.reply.chat_logprobs(
                                answer, piece.ids, answer.made - piece.tokens
                            )["content"]
                        )
                    for part in stream.say(
                        "message", piece.text, odds=odds if self.asked.logprobs is not None else []
                    ):
                        yield part
                for call in piece.calls:
                    for part in stream.say(f"call {call.place}", call.arguments, call.name):
                        yield part
        except Refused as error:
            yield stream.event(
                "error", code=str(error.status), message=str(error), param=error.param
            )
            return
        for part in stream.close():
            yield part
        yield stream.event("response.completed", response=self.ended(collected, stream.items))


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    further = (
        "strict",
        "allowed_callers",
        "async",
        "defer_loading",
        "description",
        "output_schema",
    )
    return {**dict.fromkeys(further if tool.get("type") == "function" else ()), **tool}


def _unspelled(odds: Mapping[str, Any]) -> dict[str, Any]:
    """Log probabilities in an event of a piece, without the bytes."""
    return {name: value for name, value in odds.items() if name != "bytes"}


def _spoken(
    number: str, text: str, logprobs: Any = None, status: str = "completed"
) -> dict[str, Any]:
    content = (
        [{"annotations": [], "text": text, "type": "output_text", "logprobs": logprobs}]
        if status == "completed"
        else []
    )
    return {
        "id": number,
        "content": content,
        "role": "assistant",
        "status": status,
        "type": "message",
        "phase": None,
    }


def _called(
    number: str, call: str, name: str, arguments_text: str, status: str = "completed"
) -> dict[str, Any]:
    item = {
        "arguments": arguments_text,
        "call_id": call,
        "name": name,
        "type": "function_call",
        "id": number,
    }
    return {**item, "async": None, "caller": None, "namespace": None, "status": status}


def _reasoning(text: str, number: str = "", status: str | None = None) -> dict[str, Any]:
    content = [{"text": text, "type": "reasoning_text"}] if text else []
    item = {
        "id": number or f"rs_{secrets.token_hex(8)}",
        "summary": [],
        "type": "reasoning",
        "content": content,
    }
    return {**item, "encrypted_content": None, "status": status}


class _Items:
    """The items of a stream, one after another, and the events that tell of them."""

    def __init__(self, reply: Reply) -> None:
        self.items: list[dict[str, Any]] = []
        self._reply, self._sequence = reply, 0
        self._what = self._number = self._text = self._name = ""
        self.odds: list[dict[str, Any]] = []

    def event(self, name: str, /, **more: Any) -> bytes:
        """An event with its place in the stream."""
        self._sequence += 1
        return event({**more, "sequence_number": self._sequence - 1, "type": name}, name)

    def say(
        self, what: str, text: str, name: str = "", odds: Sequence[dict[str, Any]] = ()
    ) -> list[bytes]:
        """More of an item, or the first of another."""
        events = []
        if what != self._what:
            events += self.close()
            self._what, self._text, self._name = what, "", name
            self._number = f"{ {'m': 'msg', 'r': 'rs', 'c': 'fc'}[what[0]] }_{secrets.token_hex(8)}"
            events.append(
                self.event(
                    "response.output_item.added",
                    item=self._item("in_progress"),
                    output_index=len(self.items),
                )
            )
            if what[0] != "c":
                begun = (
                    "response.content_part.added"
                    if what[0] == "m"
                    else "response.reasoning_part.added"
                )
                events.append(self.event(begun, **self._at, part=self._part("", [])))
        if text:
            self._text += text
            events.append(self._delta(text, odds))
        return events

    def close(self) -> list[bytes]:
        """The end of the item that is under way."""
        if not self._what:
            return []
        at, item, events = self._at, self._item("completed"), []
        if self._what[0] == "c":
            place = {"item_id": self._number, "output_index": len(self.items)}
            events.append(
                self.event(
                    "response.function_call_arguments.done",
                    arguments=self._text,
                    **place,
                    name=self._name,
                )
            )
        elif self._what[0] == "m":
            events.append(
                self.event("response.output_text.done", **at, logprobs=[], text=self._text)
            )
            events.append(
                self.event(
                    "response.content_part.done",
                    **at,
                    part=self._part(self._text, self.odds or None),
                )
            )
        else:
            events.append(self.event("response.reasoning_text.done", **at, text=self._text))
            events.append(
                self.event("response.reasoning_part.done", **at, part=self._part(self._text, None))
            )
        events.append(
            self.event("response.output_item.done", item=item, output_index=len(self.items))
        )
        self.items.append(item)
        self._what = ""
        return events

    @property
    def _at(self) -> dict[str, Any]:
        return {"content_index": 0, "item_id": self._number, "output_index": len(self.items)}

    def _part(self, text: str, logprobs: Any) -> dict[str, Any]:
        if self._what[0] == "r":
            return {"text": text, "type": "reasoning_text"}
        return {"annotations": [], "text": text, "type": "output_text", "logprobs": logprobs}

    def _delta(self, text: str, odds: Sequence[dict[str, Any]]) -> bytes:
        if self._what[0] == "c":
            name = "response.function_call_arguments.delta"
            return self.event(name, delta=text, item_id=self._number, output_index=len(self.items))
        if self._what[0] == "r":
            return self.event("response.reasoning_text.delta", **self._at, delta=text)
        short = [
            _unspelled(
                {
                    **odd,
                    "top_logprobs": [
                        _unspelled(alternative) for alternative in odd["top_logprobs"]
                    ],
                }
            )
            for odd in odds
        ]
        return self.event("response.output_text.delta", **self._at, delta=text, logprobs=short)

    def _item(self, status: str) -> dict[str, Any]:
        if self._what[0] == "c":
            call = f"{self._reply.call_id}{int(self._what.split()[1]):x}"
            return _called(self._number, call, self._name, self._text, status)
        if self._what[0] == "r":
            return _reasoning(self._text, self._number, status)
        return _spoken(self._number, self._text, self.odds or None, status)
