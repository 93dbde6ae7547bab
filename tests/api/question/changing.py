"""Simulations that change."""

from __future__ import annotations

from typing import Any

SEASONS_ASKED: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "engine": "vllm",
    "isl": 1000,
    "osl": 100,
    "request_rate": 1,
    "requests": 50,
}
