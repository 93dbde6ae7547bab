"""A question of a chatbot."""

from __future__ import annotations

from typing import Any

from tonnage import api
from tonnage.sizing.question import Question

BASE: dict[str, Any] = {"model": "llama-3.1-8b", "isl": 2000, "osl": 200, "peak_rps": 5}


def asked(**values: Any) -> Question:
    (question,) = api.ask(None, **{**BASE, **values}).questions
    return question
