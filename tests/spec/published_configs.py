"""``config.json`` files as their makers publish them, with the billions of parameters of the model
cards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def configs() -> list[tuple[dict[str, Any], float]]:
    """Each file and its billions."""
    entries = json.loads(
        (Path(__file__).parent / "published_configs.json").read_text(encoding="utf-8")
    )
    return [(entry["config"], entry["billions"]) for entry in entries]


def layouts() -> list[dict[str, Any]]:
    """Further files, with billions of parameters of the text decoder and the bytes that a token
    keeps in layers with all of the context."""
    return listed("published_layouts.json")


def files() -> list[dict[str, Any]]:
    """Files of makers and of NVIDIA's quantized checkpoints, as a public package repeats them, less
    what says no size; with the billions of ``published_parameters.yaml``."""
    return listed("published_files.json")


def library() -> list[dict[str, Any]]:
    """The configuration of every decoder of transformers 5.24.0 as its class makes it without
    arguments, less what has no sizes.

    ``parameters`` are those of the library's own modules, made without memory
    (``torch.device("meta")``) on 2026-11-28; of a model that takes images or sound, those of the
    text decoder."""
    return listed("library_configs.json")


def listed(name: str) -> list[dict[str, Any]]:
    """The entries of a file, with lists written as runs of equal values in full."""

    def whole(part: dict[str, Any]) -> Any:
        return (
            [value for value, count in part["runs"] for _ in range(count)]
            if set(part) == {"runs"}
            else part
        )

    entries: list[dict[str, Any]] = json.loads(
        (Path(__file__).parent / name).read_text(encoding="utf-8"), object_hook=whole
    )
    return entries


def config_of(architecture: str) -> dict[str, Any]:
    """The first file of an architecture."""
    return next(config for config, _ in configs() if config["architectures"] == [architecture])
