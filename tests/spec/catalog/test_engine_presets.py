"""A preset says what differs from the one that it extends; resolved, every preset is what it was
when each stood alone."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tonnage.errors import DataError
from tonnage.spec.catalog import checkpoints, engines, find_engine
from tonnage.spec.catalog.checkpoints import find_checkpoints, find_maker, listed_checkpoints
from tonnage.spec.catalog.entries import model_shelf, read_presets, shipped_yaml
from tonnage.spec.precision import find_precision

WHOLE = json.loads(
    (Path(__file__).parents[2] / "golden" / "engine-presets.json").read_text(encoding="utf-8")
)
"""Every preset as it stood in the file before presets could extend others."""


def part(found: Any, whole: Any) -> Any:
    """What is there of the keys that there were then: knobs have been added since."""
    return (
        {key: part(found[key], value) for key, value in whole.items()}
        if isinstance(whole, dict)
        else found
    )


def test_every_resolved_preset_equals_the_one_that_stood_alone() -> None:
    found = {engine.name: json.loads(json.dumps(asdict(engine))) for engine in engines()}
    assert {name: part(found[name], whole) for name, whole in WHOLE.items()} == WHOLE
    for change, says in [
        ({"extends": "vllm-9"}, "vllm-0.12: extends: there is no preset 'vllm-9'"),
        ({"extends": "vllm-0.12"}, "vllm-0.12: extends: 'vllm-0.12' extends this preset in turn"),
    ]:
        with pytest.raises(DataError, match=says):
            read_presets(rows(**change), "engines.yaml")


def rows(**change: Any) -> list[dict[str, Any]]:
    return [
        row | change if row["name"] == "vllm-0.12" else row for row in shipped_yaml("engines.yaml")
    ]


# The published checkpoints: every entry says where it was seen, and no name is given twice.


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
