"""A preset says what differs from the one that it extends; resolved, every preset is what it was when each stood alone."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tonnage.errors import DataError, DataErrors
from tonnage.spec.catalog import engines
from tonnage.spec.catalog.engine_presets import read_presets
from tonnage.spec.catalog.entries import shipped_yaml

WHOLE = json.loads((Path(__file__).parents[2] / "golden" / "engine-presets.json").read_text(encoding="utf-8"))
"""Every preset as it stood in the file before presets could extend others."""


def part(found: Any, whole: Any) -> Any:
    """What is there of the keys that there were then: knobs have been added since."""
    return {key: part(found[key], value) for key, value in whole.items()} if isinstance(whole, dict) else found


@pytest.mark.parametrize("name", sorted(WHOLE))
def test_a_resolved_preset_equals_the_one_that_stood_alone(name: str) -> None:
    (found,) = (engine for engine in engines() if engine.name == name)
    plain = json.loads(json.dumps(asdict(found)))
    assert part(plain, WHOLE[name]) == WHOLE[name]


def test_no_preset_was_lost() -> None:
    assert {engine.name for engine in engines()} >= set(WHOLE)


def test_no_preset_repeats_what_it_takes_over() -> None:
    rows = {row["name"]: row for row in shipped_yaml("engines.yaml")}
    whole = {engine.name: asdict(engine) | asdict(engine.knobs) for engine in engines()}
    for name, row in rows.items():
        if "extends" in row:
            parent = json.loads(json.dumps(whole[row["extends"]]))
            plain = json.loads(json.dumps(row, default=str))
            assert not [key for key in plain if key not in ("name", "notes") and plain[key] == parent.get(key)], name


def rows(**change: Any) -> list[dict[str, Any]]:
    return [row | change if row["name"] == "vllm-0.12" else row for row in shipped_yaml("engines.yaml")]


def test_a_preset_takes_over_all_but_its_names_and_notes() -> None:
    found = {engine.name: (engine, aliases) for engine, aliases in read_presets(rows(notes="", since="0.11.5"), "e")}
    (child, names), (parent, _) = found["vllm-0.12"], found["vllm-0.10"]
    assert (child.since, child.notes, names) == ("0.11.5", "", ())
    assert (child.by_memory, child.vendors, child.knobs.graph_tokens) == (parent.by_memory, parent.vendors, 512)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"extends": "vllm-9"}, "vllm-0.12: extends: there is no preset 'vllm-9'"),
        ({"extends": "vllm-0.12"}, "vllm-0.12: extends: 'vllm-0.12' extends this preset in turn"),
    ],
)
def test_what_cannot_be_extended_is_refused(change: dict[str, Any], says: str) -> None:
    with pytest.raises(DataError, match=says):
        read_presets(rows(**change), "engines.yaml")


def test_presets_that_extend_each_other_are_refused() -> None:
    changed = [row | {"extends": "vllm-0.32"} if row["name"] == "vllm-0.10" else row for row in shipped_yaml("engines.yaml")]
    with pytest.raises(DataError, match="in turn"):
        read_presets(changed, "engines.yaml")


def test_a_misspelt_knob_is_refused() -> None:
    with pytest.raises(DataErrors, match=r"engines\.yaml: vllm-0\.12: max_num_token: unknown key; did you mean max_num_tokens"):
        read_presets(rows(max_num_token=5), "engines.yaml")
    with pytest.raises(DataErrors, match=r"vllm-0\.12: by_memory\.0\.except: unknown key; known here: min_gib, excluded"):
        read_presets(
            rows(by_memory=[{"min_gib": 1, "max_batch_size": 1, "max_num_tokens": 1, "except": "a100"}]),
            "engines.yaml",
        )
