"""``config.json`` files as their makers publish them, with the billions of parameters of the model cards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def configs() -> list[tuple[dict[str, Any], float]]:
    """Each file and its billions."""
    entries = json.loads((Path(__file__).parent / "published_configs.json").read_text(encoding="utf-8"))
    return [(entry["config"], entry["billions"]) for entry in entries]


def config_of(architecture: str) -> dict[str, Any]:
    """The first file of an architecture."""
    return next(config for config, _ in configs() if config["architectures"] == [architecture])
