"""What the tests of sweeps share with others."""

from __future__ import annotations

from typing import Any

ASKED: dict[str, Any] = {
    "model": "llama-3-8b",
    "precision": "fp8",
    "isl": 200,
    "osl": 20,
    "requests": 40,
}
