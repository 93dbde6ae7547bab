"""Questions for the tests of the search, small enough to answer in a second."""

from __future__ import annotations

from typing import Any

from tonnage.api.size import ask
from tonnage.sizing.question import Question

SMALL: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "gpu": "h100",
    "precision": "fp8",
    "tp": "1,2",
    "engine": "tensorrt-llm-0.15",
    "isl": 1000,
    "osl": 100,
    "peak_rps": 400,
    "ttft": "p95<=300ms",
}


def question(**changed: Any) -> Question:
    """The small question with other values; None takes one out."""
    return ask(**{name: value for name, value in {**SMALL, **changed}.items() if value is not None}).questions[0]
