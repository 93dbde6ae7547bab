"""OpenAI's text completions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tonnage.bench.endpoints.endpoint import Delta, Endpoint, error_of, joined, usage_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Completions(Endpoint):
    """``POST /v1/completions``: the prompt is plain text, and no template is added to it."""

    kind = "completions"

    @property
    def path(self) -> str:
        """``/v1/completions``."""
        return "/v1/completions"

    def body(self, prompt: str, osl: int) -> dict[str, Any]:
        """The prompt, the length, and usage in the last event of a stream."""
        return {
            "model": self.model,
            "prompt": prompt,
            "max_tokens": osl,
            **({"min_tokens": osl, "ignore_eos": True} if self.pinned else {}),
            **({"stream": True, "stream_options": {"include_usage": True}} if self.streaming else {}),
        }

    def talk(self, said: Sequence[tuple[str, str]], prompt: str, osl: int) -> dict[str, Any]:
        """Everything that was said, a line each, and the next question."""
        return self.body("\n".join([*(part for pair in said for part in pair), prompt]), osl)

    def event(self, document: dict[str, Any]) -> Delta:
        """The text of every choice."""
        choices = document.get("choices") or ()
        text = joined(*(choice.get("text") for choice in choices))
        finished = any(choice.get("finish_reason") is not None for choice in choices)
        return Delta(text=text, finished=finished, error=error_of(document), **usage_of(document))

    def whole(self, document: dict[str, Any]) -> Delta:
        """The same shape as an event."""
        return self.event(document)
