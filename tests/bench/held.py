"""Conversations that are held with a server that repeats what it hears."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tonnage.api.bench import bench
from tonnage.bench.benchmark import Measured

ASKED: dict[str, Any] = {
    "model": "m",
    "isl": 20,
    "osl": 5,
    "selftest": False,
    "metrics_url": ["none"],
}


def measured(url: str, output: Path | None = None, **asked: Any) -> Measured:
    (found,) = bench(url=url, output=output, **{**ASKED, **asked})
    return found
