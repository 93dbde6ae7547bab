"""Checkpoints of the catalog: their sources, and what makes one."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest

from tonnage.errors import DataError
from tonnage.spec.catalog import checkpoints, find_engine
from tonnage.spec.catalog.checkpoints import find_checkpoints, find_maker, listed_checkpoints
from tonnage.spec.catalog.entries import model_shelf
from tonnage.spec.precision import find_precision

UNPUBLISHED = {"gpt-43b"}
"""Models of which no checkpoint is public."""


def test_every_checkpoint_has_a_source_and_a_day_and_every_model_one() -> None:
    listed = listed_checkpoints()
    assert [
        name
        for name, times in Counter(one.repository.lower() for one in listed).items()
        if times > 1
    ] == []
    for one in listed:
        assert re.fullmatch(r"[\w.-]+/[\w.-]+", one.repository)
        assert re.fullmatch(r"2026-\d\d-\d\d", one.date)
        assert one.source
        # a checkpoint says nothing of the KV cache that is not its engine's
        assert find_precision(one.format).weights == one.format
    for name, model in model_shelf().by_name.items():
        released = {"fp16", "bf16"} if model.released in ("", "fp16", "bf16") else {model.released}
        assert name in UNPUBLISHED or released & {one.format for one in find_checkpoints(name)}, (
            name
        )


def test_what_makes_a_checkpoint_is_found_by_its_format_and_its_reader() -> None:
    made = {
        engine: find_maker("awq", find_engine(engine))
        for engine in ("vllm", "tensorrt-llm", "atom")
    }
    assert [found and found[1].scheme for found in made.values()] == [
        "W4A16 --asym --format auto_awq",
        "int4_awq",
        None,
    ]
    assert made["vllm"][0].command.format(repository="a/b", scheme="W4A16", folder="/models/c") == (
        "auto-round --model a/b --scheme W4A16 --output_dir /models/c"
    )


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (
            {"repository": "A/B", "format": "fp8", "method": "modelopt", "seen": "aic"},
            "'A/B' is given twice",
        ),
        (
            {"repository": "a/c", "format": "fp8", "method": "magic", "seen": "aic"},
            "no method 'magic'",
        ),
        (
            {"repository": "a/c", "format": "fp8", "method": "modelopt", "seen": "nowhere"},
            "no place 'nowhere'",
        ),
    ],
)
def test_a_damaged_entry_is_named(
    entry: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = {"repository": "a/b", "format": "fp8", "method": "modelopt", "seen": "aic"}
    rows = [{"name": "llama-3.1-8b", "licence": "", "checkpoints": [good, entry]}]
    shipped = checkpoints.shipped_yaml
    monkeypatch.setattr(
        checkpoints,
        "shipped_yaml",
        lambda name: rows if name == "checkpoints.yaml" else shipped(name),
    )
    checkpoints._by_model.cache_clear()
    try:
        with pytest.raises(DataError, match=said):
            listed_checkpoints()
    finally:
        checkpoints._by_model.cache_clear()
