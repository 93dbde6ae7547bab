"""The kinds of endpoint that can be measured, one file each."""

from __future__ import annotations

from typing import Any

from tonnage.bench.endpoints.chat import Chat
from tonnage.bench.endpoints.completions import Completions
from tonnage.bench.endpoints.embeddings import Embeddings
from tonnage.bench.endpoints.endpoint import Delta, Endpoint
from tonnage.bench.endpoints.generate import Generate
from tonnage.bench.endpoints.responses import Responses
from tonnage.errors import InputError, UnknownName, option

__all__ = ["KINDS", "Delta", "Endpoint", "find_endpoint"]

KINDS: dict[str, type[Endpoint]] = {kind.kind: kind for kind in (Chat, Completions, Responses, Embeddings, Generate)}


def find_endpoint(kind: str, *, model: str, streaming: bool = True, pinned: bool = True, extra: dict[str, Any] | None = None) -> Endpoint:
    """An endpoint by the name of its kind.

    Raises:
        UnknownName: no kind of that name.
        InputError: a stream of embeddings.
    """
    if kind not in KINDS:
        raise UnknownName("endpoint type", kind, KINDS)
    if kind == "embeddings" and streaming:
        raise InputError(f"{option('streaming')}: embeddings come in one reply; switch streaming off")
    return KINDS[kind](model=model, streaming=streaming, pinned=pinned, extra=extra or {})
