"""The bodies of the OpenAI API: whole answers and the events of a stream, with the further fields
of an engine.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tonnage.serve.answer import Answer, Call, Piece
from tonnage.serve.dialect import Further
from tonnage.serve.request import Asked
from tonnage.serve.script import logprobs_of
from tonnage.serve.tokens import Prompt, Tokens

DONE = b"data: [DONE]\n\n"
_TEXT = json.JSONEncoder(separators=(",", ":")).encode


def event(document: dict[str, Any], name: str = "") -> bytes:
    """A server-sent event."""
    return (
        (f"event: {name}\n" if name else "").encode()
        + b"data: "
        + _TEXT(document).encode()
        + b"\n\n"
    )


def tokens_of(prompt: int, completion: int) -> dict[str, int]:
    """Counts of tokens."""
    return {
        "prompt_tokens": prompt,
        "total_tokens": prompt + completion,
        "completion_tokens": completion,
    }


@dataclass(slots=True, kw_only=True)
class Made:
    """A choice that has ended."""

    answer: Answer
    text: str = ""  # and reasoning: what it said and thought
    reasoning: str = ""
    # the calls of tools: number, name and arguments
    calls: list[list[str]] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)  # its tokens

    def take(self, piece: Piece, call_id: str) -> None:
        """A further piece; ``call_id`` is the number of a call that begins in it."""
        self.text += piece.text
        self.reasoning += piece.reasoning
        self.ids += piece.ids
        for call in piece.calls:
            if call.name:
                self.calls.append([f"{call_id}{call.place:x}", call.name, ""])
            else:
                self.calls[call.place][2] += call.arguments

    def settle(self) -> None:
        """End the reply: a tool call that was cut short becomes text, as in vLLM."""
        script, count = self.answer.script, self.answer.made
        if (
            script is not None
            and self.answer.finish == "length"
            and count < len(script.head)
            and script.head[count].call >= 0
        ):
            self.text, self.calls = script.tokens.text(self.ids), []

    @property
    def finish(self) -> str:
        """Why it ended: "tool_calls" where it chose itself to call tools."""
        calls = (
            self.calls and self.answer.asked.tool_choice != "named" and self.answer.finish == "stop"
        )
        return "tool_calls" if calls else self.answer.finish


@dataclass(slots=True, kw_only=True)
class Reply:
    """The fields that all parts of one reply have in common."""

    asked: Asked
    id: str  # of the reply; ``call_id`` of the calls of tools in it, which their places follow
    call_id: str
    model: str  # as the server calls it
    created: int  # seconds since 1970
    further: Further  # fields of the engine next to those of the API
    tokens: Tokens
    transfer: dict[str, Any] | None = None  # ``kv_transfer_params`` of the reply; None for none
    _offsets: dict[int, int] = field(default_factory=dict)
    _plain: dict[int, tuple[bytes, bytes]] = field(default_factory=dict)

    @property
    def chat(self) -> bool:
        """Whether the reply answers a chat completion."""
        return self.asked.kind == "chat"

    def whole(self, parts: Sequence[Made]) -> dict[str, Any]:
        """A whole reply."""
        more = self.further
        choices = [self._choice(i, made_choice) for i, made_choice in enumerate(parts)]
        name = "chat.completion" if self.chat else "text_completion"
        rest: dict[str, Any] = {
            **more.reply,
            **(more.chat if self.chat else {}),
            **self._fingerprint(),
        }
        first = parts[0].answer
        if self.chat and self.asked.token_ids:
            rest["prompt_token_ids"] = list(first.prompt.ids)
        if self.chat and self.asked.prompt_logprobs is not None:
            rest["prompt_logprobs"] = self._prompt_logprobs(first)
        if self.transfer is not None:
            rest["kv_transfer_params"] = self.transfer
        return {
            **self._head(name),
            "choices": choices,
            "usage": self.usage(made_choice.answer for made_choice in parts),
            **rest,
        }

    def _choice(self, index: int, output: Made) -> dict[str, Any]:
        more, request, answer = self.further, self.asked, output.answer
        fields: dict[str, Any] = {
            **self._stop_reason(answer.stopped_by),
            **more.choice,
            **({} if self.chat else more.text_choice),
        }
        if self.chat:
            message: dict[str, Any] = {
                "role": request.role,
                "content": request.said + output.text,
                **more.message,
            }
            if output.calls:
                message |= {
                    "content": output.text if output.text or request.tool_choice != "auto" else None
                }
                message["tool_calls"] = [
                    {
                        "id": number,
                        "type": "function",
                        "function": {"name": name, "arguments": arguments},
                    }
                    for number, name, arguments in output.calls
                ]
            if output.reasoning:
                message["reasoning"] = output.reasoning
            payload: dict[str, Any] = {"message": message}
            logprobs = (
                self.chat_logprobs(answer, output.ids, 0) if request.logprobs is not None else None
            )
        else:
            text = output.text
            if request.echo:
                text = self._prompt_text(answer.prompt) + (
                    "" if request.prompt_alone else output.text
                )
            payload = {"text": text}
            logprobs = (
                self._text_logprobs(answer, output.ids, 0, index)
                if request.logprobs is not None
                else None
            )
            if request.token_ids:
                fields["prompt_token_ids"] = list(answer.prompt.ids)
            if request.prompt_logprobs is not None:
                fields["prompt_logprobs"] = self._prompt_logprobs(answer)
        if request.token_ids:
            fields["token_ids"] = output.ids
        return {
            "index": index,
            **payload,
            "logprobs": logprobs,
            "finish_reason": output.finish,
            **fields,
        }

    def begin(self, answers: Sequence[Answer]) -> Iterator[bytes]:
        """The events that begin the choices of a chat: the role of each, and the message that is
        echoed.
        """
        prompt, rest = answers[0].prompt, dict[str, Any](self.further.first)
        if self.asked.token_ids:
            rest["prompt_token_ids"] = list(prompt.ids)
        usage = (
            {"usage": {**tokens_of(prompt.tokens, 0), **self.further.chat_usage}}
            if self.asked.usage_each
            else {}
        )
        parts: list[tuple[dict[str, str], dict[str, Any]]] = [
            ({"role": self.asked.role, "content": ""}, {**usage, **rest})
        ]
        parts += [({"content": self.asked.said}, usage)] if self.asked.said else []
        for delta, more in parts:
            for index in range(len(answers)):
                choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}
                yield event({**self._head(self._chunks), "choices": [choice], **more})

    def part(self, index: int, answer: Answer, piece: Piece, before: int, called: bool) -> bytes:
        """The event of a piece of a choice's answer, which had ``before`` tokens before it and may
        have ``called`` a tool.
        """
        if not (piece.finish or piece.calls or piece.reasoning):
            framing = self._plain.get(index) or self._around(index, answer, piece, before)
            if framing:
                return b"%b%b%b" % (framing[0], _TEXT(piece.text).encode(), framing[1])
        return self._part(index, answer, piece, before, called=called)

    def _around(
        self, index: int, answer: Answer, piece: Piece, before: int
    ) -> tuple[bytes, bytes] | None:
        """The parts of an event before and after its text, where nothing else in it changes."""
        request = self.asked
        if (
            request.usage_each
            or request.token_ids
            or request.logprobs is not None
            or (request.echo and not self.chat)
        ):
            return None
        mark = "\x00"
        head, tail = self._part(
            index, answer, replace(piece, text=mark), before, called=False
        ).split(_TEXT(mark).encode())
        self._plain[index] = head, tail
        return head, tail

    def _part(
        self, index: int, answer: Answer, piece: Piece, before: int, *, called: bool
    ) -> bytes:
        request, more = self.asked, self.further
        rest: dict[str, Any] = self._fingerprint() if piece.finish and not request.usage else {}
        fields: dict[str, Any] = {**more.delta}
        ids = list(piece.ids)
        if request.token_ids:
            fields["token_ids"] = ids
        if self.chat:
            finish = (
                "tool_calls"
                if called and piece.finish == "stop" and request.tool_choice != "named"
                else piece.finish
            )
            logprobs = (
                self.chat_logprobs(answer, ids, before) if request.logprobs is not None else None
            )
            choice = {
                "index": index,
                "delta": self._delta(piece),
                "logprobs": logprobs,
                "finish_reason": finish or None,
            }
            choice |= {**(self._stop_reason(piece.stopped_by) if piece.finish else {}), **fields}
        else:
            text, echoed = piece.text, request.echo and not before
            if echoed:
                text = self._prompt_text(answer.prompt) + ("" if request.prompt_alone else text)
            logprobs = (
                self._text_logprobs(answer, ids, before, index)
                if request.logprobs is not None
                else None
            )
            fields = {**self._stop_reason(piece.stopped_by), **more.text_delta, **fields}
            if echoed or (request.token_ids and not before):
                fields["prompt_token_ids"] = list(answer.prompt.ids)
            choice = {
                "index": index,
                "text": text,
                "logprobs": logprobs,
                "finish_reason": piece.finish or None,
                **fields,
            }
        if request.usage_each:
            usage = tokens_of(answer.prompt.tokens, before + piece.tokens)
            rest = {"usage": {**usage, **(more.chat_usage if self.chat else {})}, **rest}
        return event({**self._head(self._chunks), "choices": [choice], **rest})

    def _delta(self, piece: Piece) -> dict[str, Any]:
        if piece.calls:
            return {"content": None, "tool_calls": [self._call(call) for call in piece.calls]}
        if piece.reasoning:
            return {"reasoning": piece.reasoning, **({"content": piece.text} if piece.text else {})}
        return {"content": piece.text} if piece.text or not piece.finish else {}

    def _call(self, call: Call) -> dict[str, Any]:
        if not call.name:
            return {"index": call.place, "function": {"arguments": call.arguments}}
        number = f"{self.call_id}{call.place:x}"
        return {
            "id": number,
            "type": "function",
            "index": call.place,
            "function": {"name": call.name},
        }

    def last(self, answers: Iterable[Answer]) -> bytes:
        """The event that holds the usage, after the others."""
        usage = {name: value for name, value in self.usage(answers).items() if value is not None}
        return event(
            {**self._head(self._chunks), "choices": [], "usage": usage, **self._fingerprint()}
        )

    def usage(self, answers: Iterable[Answer]) -> dict[str, Any]:
        """Tokens of prompts, of which some were in the prefix cache, and of answers."""
        all_of = list(answers)
        usage: dict[str, Any] = {
            **tokens_of(self.asked.isl, sum(answer.made for answer in all_of)),
            **self.further.usage,
        }
        cached = sum(answer.source.cached for answer in all_of[:: self.asked.choices])
        if cached:
            usage["prompt_tokens_details"] = {"cached_tokens": cached}
        if self.asked.reasons:
            usage["completion_tokens_details"] = {
                "reasoning_tokens": sum(answer.reasoned for answer in all_of)
            }
        return usage

    def _stop_reason(self, stopped_by: str | int) -> dict[str, Any]:
        return (
            {"stop_reason": None if stopped_by == "" else stopped_by}
            if self.further.stop_reason
            else {}
        )

    def _fingerprint(self) -> dict[str, str]:
        return {"system_fingerprint": self.further.fingerprint} if self.further.fingerprint else {}

    @property
    def _chunks(self) -> str:
        return "chat.completion.chunk" if self.chat else "text_completion"

    def _head(self, name: str) -> dict[str, Any]:
        return {"id": self.id, "object": name, "created": self.created, "model": self.model}

    def _prompt_text(self, prompt: Prompt) -> str:
        return "" if self.asked.token_ids else prompt.text or self.tokens.text(prompt.ids)

    # Log probabilities, which are made up.

    def _odds(self, answer: Answer, token: int, place: int, count: int) -> list[tuple[int, float]]:
        greedy = self.asked.sampling.temperature == 0
        key = answer.script.key if answer.script is not None else 0
        alternatives = max(count - 1, 0) if greedy or place < 0 else count
        return logprobs_of(token, key, place, alternatives, self.tokens)

    def _name(self, token: int) -> str:
        return f"token_id:{token}" if self.asked.tokens_as_ids else self.tokens.text([token])

    def chat_logprobs(self, answer: Answer, ids: Sequence[int], first: int) -> dict[str, Any]:
        """The logprobs of some tokens of a chat's answer, from place ``first`` on."""
        count, content = self.asked.logprobs or 0, []
        for place, token in enumerate(ids, first):
            odds = self._odds(answer, token, place, count)
            top = [
                {
                    "token": (name := self._name(alternative)),
                    "logprob": value,
                    "bytes": list(name.encode()),
                }
                for alternative, value in odds[:count]
            ]
            token_bytes = list(self.tokens.text([token]).encode())
            content.append(
                {
                    "token": self._name(token),
                    "logprob": odds[0][1],
                    "bytes": token_bytes,
                    "top_logprobs": top,
                }
            )
        return {"content": content}

    def _text_logprobs(
        self, answer: Answer, ids: Sequence[int], first: int, index: int
    ) -> dict[str, Any]:
        count, offset = self.asked.logprobs or 0, self._offsets.get(index, 0)
        columns: dict[str, list[Any]] = {
            "text_offset": [],
            "token_logprobs": [],
            "tokens": [],
            "top_logprobs": [],
        }
        places: list[tuple[int, int]] = (
            list(enumerate(ids, first)) if not self.asked.prompt_alone else []
        )
        if self.asked.echo and not first:
            places = [
                *(
                    (i - answer.prompt.tokens, prompt_token)
                    for i, prompt_token in enumerate(answer.prompt.ids)
                ),
                *places,
            ]
        for place, token in places:
            odds = (
                None if place == -answer.prompt.tokens else self._odds(answer, token, place, count)
            )
            columns["text_offset"].append(offset)
            columns["tokens"].append(self._name(token))
            columns["token_logprobs"].append(None if odds is None else odds[0][1])
            columns["top_logprobs"].append(
                None
                if odds is None
                else {self._name(alternative): value for alternative, value in odds}
            )
            offset += len(columns["tokens"][-1])
        self._offsets[index] = offset
        return columns

    def _prompt_logprobs(self, answer: Answer) -> list[dict[int, Any] | None]:
        by_place: list[dict[int, Any] | None] = [None]
        for place, token in enumerate(answer.prompt.ids[1:], 1 - answer.prompt.tokens):
            odds = self._odds(answer, token, place, self.asked.prompt_logprobs or 0)
            by_place.append(
                {
                    alternative: {
                        "logprob": value,
                        "rank": rank,
                        "decoded_token": self.tokens.text([alternative]),
                    }
                    for rank, (alternative, value) in enumerate(odds, 1)
                }
            )
        return by_place
