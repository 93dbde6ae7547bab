"""What the tests of score share with others."""

from __future__ import annotations

from typing import Any

CLOSED = {
    "model": "llama-3-8b",
    "gpu": "h100-sxm-80gb",
    "precision": "fp16",
    "tp": 1,
    "isl": 200,
    "osl": 20,
    "concurrency": 4,
}


def rows(**measured: float) -> list[dict[str, Any]]:
    return [CLOSED | {"line": 2, "requests": 20} | measured]
