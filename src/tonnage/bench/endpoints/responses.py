"""OpenAI's responses: a stream of typed events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tonnage.bench.endpoints.endpoint import Delta, Endpoint, error_of, joined, messages, usage_of

_OUTPUT = frozenset(
    (
        "response.output_text.delta",
        "response.reasoning_text.delta",
        "response.reasoning_summary_text.delta",
        "response.refusal.delta",
        "response.function_call_arguments.delta",
    )
)
_ENDS = frozenset(("response.completed", "response.incomplete", "response.failed"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Responses(Endpoint):
    """``POST /v1/responses``: the output comes as ``response.output_text.delta`` and its relatives."""

    kind = "responses"

    @property
    def path(self) -> str:
        """``/v1/responses``."""
        return "/v1/responses"

    def body(self, prompt: str, osl: int) -> dict[str, Any]:
        """The input and the length."""
        return {
            "model": self.model,
            "input": prompt,
            "max_output_tokens": osl,
            **({"min_tokens": osl, "ignore_eos": True} if self.pinned else {}),
            **({"stream": True} if self.streaming else {}),
        }

    def talk(self, said: Sequence[tuple[str, str]], prompt: str, osl: int) -> dict[str, Any]:
        """The conversation so far as messages, and the next question."""
        return {**self.body(prompt, osl), "input": messages(said, prompt)}

    def event(self, document: dict[str, Any]) -> Delta:
        """The delta of an output event, or what the last event says of the whole."""
        kind = document.get("type")
        if kind in _OUTPUT:
            return Delta(text=joined(document.get("delta")))
        if kind in _ENDS:
            response = document.get("response") or {}
            return Delta(finished=True, error=error_of(response), **usage_of(response))
        if kind == "error":
            return Delta(error=error_of({"error": document.get("error") or document.get("message") or "an error without a message"}))
        return Delta(error=error_of(document))

    def whole(self, document: dict[str, Any]) -> Delta:
        """The texts of every item of the output."""
        text = ""
        for item in document.get("output") or ():
            parts = item.get("content") or ()
            text += joined(item.get("arguments"), *(part.get("text") or part.get("refusal") for part in parts))
        return Delta(text=text, finished=True, error=error_of(document), **usage_of(document))
