"""The bodies of the OpenAI API: whole answers and the events of a stream."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tonnage.serve.asked import Kind

DONE = b"data: [DONE]\n\n"


def usage(prompt: int, completion: int) -> dict[str, int]:
    """The tokens of a request."""
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def event(document: dict[str, Any]) -> bytes:
    """A server-sent event."""
    return b"data: " + json.dumps(document, separators=(",", ":")).encode() + b"\n\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What all parts of one reply have in common.

    Attributes:
        kind: the endpoint.
        id: of the reply.
        model: as the server calls it.
        created: seconds since 1970.
    """

    kind: Kind
    id: str
    model: str
    created: int

    def whole(self, choices: list[tuple[str, str]], prompt: int, completion: int) -> dict[str, Any]:
        """A whole reply: text and finish reason of each choice."""
        made = []
        for i, (text, finish) in enumerate(choices):
            said = {"message": {"role": "assistant", "content": text}} if self.kind == "chat" else {"text": text}
            made.append({"index": i, **said, "logprobs": None, "finish_reason": finish})
        name = "chat.completion" if self.kind == "chat" else "text_completion"
        return {**self._head(name), "choices": made, "usage": usage(prompt, completion)}

    def chunk(self, index: int, text: str | None, finish: str | None = None) -> dict[str, Any]:
        """A part of the stream; without text, the role that begins a chat."""
        if self.kind == "chat":
            delta = {"role": "assistant", "content": ""} if text is None else {"content": text}
            choice: dict[str, Any] = {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish}
        else:
            choice = {"index": index, "text": text or "", "logprobs": None, "finish_reason": finish}
        return {**self._head(self._chunks), "choices": [choice]}

    def last(self, prompt: int, completion: int) -> dict[str, Any]:
        """The part that holds the usage, behind the others."""
        return {**self._head(self._chunks), "choices": [], "usage": usage(prompt, completion)}

    @property
    def _chunks(self) -> str:
        return "chat.completion.chunk" if self.kind == "chat" else "text_completion"

    def _head(self, name: str) -> dict[str, Any]:
        return {"id": self.id, "object": name, "created": self.created, "model": self.model}
