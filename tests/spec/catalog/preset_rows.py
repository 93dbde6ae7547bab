"""Rows of the presets of engines."""

from __future__ import annotations

from typing import Any

from tonnage.spec.catalog.entries import shipped_yaml


def rows(**change: Any) -> list[dict[str, Any]]:
    return [
        row | change if row["name"] == "vllm-0.12" else row for row in shipped_yaml("engines.yaml")
    ]
