"""OpenAI's embeddings: one reply, no output tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tonnage.bench.endpoints.endpoint import Delta, Endpoint, error_of, usage_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Embeddings(Endpoint):
    """``POST /v1/embeddings``: the reply has no tokens, so that only its end-to-end latency means something."""

    kind = "embeddings"

    @property
    def path(self) -> str:
        """``/v1/embeddings``."""
        return "/v1/embeddings"

    def body(self, prompt: str, osl: int) -> dict[str, Any]:
        """The text to embed."""
        return {"model": self.model, "input": prompt}

    def event(self, document: dict[str, Any]) -> Delta:
        """The same as a whole reply: embeddings are not streamed."""
        return self.whole(document)

    def whole(self, document: dict[str, Any]) -> Delta:
        """Whether there is a vector, and the usage; the server counts no output tokens."""
        error = error_of(document)
        if not error and not document.get("data"):
            error = "a reply without an embedding"
        return Delta(finished=True, error=error, tokens=0, prompt=usage_of(document).get("prompt", -1))
