"""The bodies of the OpenAI API: whole answers and the events of a stream, with the further fields of an engine."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tonnage.serve.request import Kind

if TYPE_CHECKING:
    from tonnage.serve.dialect import Further

DONE = b"data: [DONE]\n\n"


def event(document: dict[str, Any]) -> bytes:
    """A server-sent event."""
    return b"data: " + json.dumps(document, separators=(",", ":")).encode() + b"\n\n"


def _tokens(prompt: int, completion: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "total_tokens": prompt + completion, "completion_tokens": completion}


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A choice that has ended.

    Attributes:
        text: of it.
        finish: why it ended.
        stopped_by: the stop text that ended it, if one did.
    """

    text: str
    finish: str
    stopped_by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What all parts of one reply have in common.

    Attributes:
        kind: the endpoint.
        id: of the reply.
        model: as the server calls it.
        created: seconds since 1970.
        further: fields of the engine next to those of the API.
        usage_last: whether a stream ends with the usage.
        usage_each: whether every event of it has the usage so far.
    """

    kind: Kind
    id: str
    model: str
    created: int
    further: Further
    usage_last: bool = False
    usage_each: bool = False

    def whole(self, choices: Sequence[Made], prompt: int, completion: int) -> dict[str, Any]:
        """A whole reply."""
        more, chat = self.further, self.kind == "chat"
        made = []
        for i, one in enumerate(choices):
            said = {"message": {"role": "assistant", "content": one.text, **more.message}} if chat else {"text": one.text}
            own = {**self._stop_reason(one.stopped_by), **more.choice, **({} if chat else more.text_choice)}
            made.append({"index": i, **said, "logprobs": None, "finish_reason": one.finish, **own})
        name = "chat.completion" if chat else "text_completion"
        rest = {**more.reply, **(more.chat if chat else {}), **self._fingerprint()}
        return {**self._head(name), "choices": made, "usage": self._usage(prompt, completion), **rest}

    def chunk(
        self, index: int, text: str | None, finish: str | None = None, stopped_by: str = "", *, tokens: tuple[int, int] = (0, 0)
    ) -> dict[str, Any]:
        """A part of the stream; without text, the role that begins a chat.

        Args:
            index: of the choice.
            text: of the part.
            finish: why the choice ends with it; None where it goes on.
            stopped_by: the stop text that ended it, if one did.
            tokens: of the prompt, and of the choice so far.
        """
        more = self.further
        choice: dict[str, Any]
        rest: dict[str, Any] = self._fingerprint() if finish and not self.usage_last else {}
        if self.kind == "chat" and text is None:
            choice = {"index": index, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
            rest = dict(more.first)
        elif self.kind == "chat":
            choice = {"index": index, "delta": {"content": text}, "logprobs": None, "finish_reason": finish, **more.delta}
            if finish:
                choice |= self._stop_reason(stopped_by)
        else:
            own = {**self._stop_reason(stopped_by), **more.text_delta, **more.delta}
            choice = {"index": index, "text": text or "", "logprobs": None, "finish_reason": finish, **own}
        if self.usage_each:
            rest["usage"] = {**_tokens(*tokens), **(more.chat_usage if self.kind == "chat" else {})}
        return {**self._head(self._chunks), "choices": [choice], **rest}

    def last(self, prompt: int, completion: int) -> dict[str, Any]:
        """The part that holds the usage, behind the others."""
        return {**self._head(self._chunks), "choices": [], "usage": _tokens(prompt, completion), **self._fingerprint()}

    def _usage(self, prompt: int, completion: int) -> dict[str, Any]:
        return {**_tokens(prompt, completion), **self.further.usage}

    def _stop_reason(self, stopped_by: str) -> dict[str, Any]:
        return {"stop_reason": stopped_by or None} if self.further.stop_reason else {}

    def _fingerprint(self) -> dict[str, str]:
        return {"system_fingerprint": self.further.fingerprint} if self.further.fingerprint else {}

    @property
    def _chunks(self) -> str:
        return "chat.completion.chunk" if self.kind == "chat" else "text_completion"

    def _head(self, name: str) -> dict[str, Any]:
        return {"id": self.id, "object": name, "created": self.created, "model": self.model}
