"""Bodies of requests, understood."""

from __future__ import annotations

from typing import Any

from tonnage.serve.request import Asked, Kind, Limits, asked_of
from tonnage.serve.tokens import Fours, TokenReader

READER = TokenReader(Fours(8_000))


def read(kind: Kind, body: Any, max_context: int = 1000, **more: Any) -> Asked:
    limits = Limits(models=("m",), max_context=max_context, vocabulary=8_000, **more)
    return asked_of(kind, body, reader=READER, limits=limits)
