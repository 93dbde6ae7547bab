"""Triton's and KServe's generate extension of the v2 protocol, as the TensorRT-LLM and vLLM backends serve it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from tonnage.bench.endpoints.endpoint import Delta, Endpoint, error_of, joined


@dataclass(frozen=True, slots=True, kw_only=True)
class Generate(Endpoint):
    """``POST /v2/models/MODEL/generate_stream``, or ``generate`` where the reply is not streamed.

    The protocol carries no usage and no ``[DONE]``: tokens are counted from the text, and the reply ends with the stream.
    """

    kind = "generate"

    @property
    def path(self) -> str:
        """``/v2/models/MODEL/generate_stream`` or ``/v2/models/MODEL/generate``."""
        return f"/v2/models/{quote(self.model, safe='')}/{'generate_stream' if self.streaming else 'generate'}"

    def body(self, prompt: str, osl: int) -> dict[str, Any]:
        """Inputs by the names that both backends know; ``min_length`` is what TensorRT-LLM calls the least output."""
        return {
            "text_input": prompt,
            "max_tokens": osl,
            **({"min_length": osl} if self.pinned else {}),
            **({"stream": True} if self.streaming else {}),
        }

    def event(self, document: dict[str, Any]) -> Delta:
        """The text of ``text_output``."""
        output = document.get("text_output")
        parts = output if isinstance(output, list) else (output,)
        return Delta(text=joined(*parts), error=error_of(document))

    def whole(self, document: dict[str, Any]) -> Delta:
        """The same shape as an event."""
        return self.event(document)
