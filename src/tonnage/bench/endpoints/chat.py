"""OpenAI's chat completions, as vLLM, SGLang, TensorRT-LLM, NIM and hosted services speak them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tonnage.bench.endpoints.endpoint import Delta, Endpoint, error_of, joined, messages, usage_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Chat(Endpoint):
    """``POST /v1/chat/completions``: the prompt is one message of the user."""

    kind = "chat"

    @property
    def path(self) -> str:
        """``/v1/chat/completions``."""
        return "/v1/chat/completions"

    def body(self, prompt: str, osl: int) -> dict[str, Any]:
        """One user message, the length, and usage in the last event of a stream."""
        return {
            "model": self.model,
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": osl,
            **({"min_tokens": osl, "ignore_eos": True} if self.pinned else {}),
            **({"stream": True, "stream_options": {"include_usage": True}} if self.streaming else {}),
        }

    def talk(self, said: Sequence[tuple[str, str]], prompt: str, osl: int) -> dict[str, Any]:
        """The conversation so far as messages, and the next question."""
        return {**self.body(prompt, osl), "messages": messages(said, prompt)}

    def event(self, document: dict[str, Any]) -> Delta:
        """Content, reasoning, refusals and tool calls of every choice; a role alone is no output."""
        return _delta(document, "delta")

    def whole(self, document: dict[str, Any]) -> Delta:
        """The message of every choice."""
        return _delta(document, "message")


def _delta(document: dict[str, Any], name: str) -> Delta:
    text, finished = "", False
    for choice in document.get("choices") or ():
        part = choice.get(name) or {}
        text += joined(part.get("reasoning_content") or part.get("reasoning"), part.get("content"), part.get("refusal"))
        for call in part.get("tool_calls") or ():
            function = call.get("function") or {}
            text += joined(function.get("name"), function.get("arguments"))
        finished = finished or choice.get("finish_reason") is not None
    return Delta(text=text, finished=finished, error=error_of(document), **usage_of(document))
