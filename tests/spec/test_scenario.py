"""A number that no leaf allows is refused in the same words by every door, and by the schema."""

from __future__ import annotations

import math

import pytest

import tonnage
from tonnage.errors import InputError
from tonnage.spec.scenario import Leaf, leaves, simulated_leaves
from tonnage.spec.scenario_file import json_schema

QUESTION = {
    "model": "llama-3.1-8b",
    "isl": 1000,
    "osl": 100,
    "peak_rps": 2,
    "ttft": "p95<=1s",
    "gpu": "h100-sxm-80gb",
}
SIMULATED = {"model": "llama-3.1-8b", "isl": 1000, "osl": 100, "concurrency": 4}
BOUNDED = [leaf for leaf in leaves() if leaf.bounds is not None and leaf.number is not None]


def beyond(leaf: Leaf) -> list[float]:
    """A number below the bounds of a leaf, and where they have an end one above."""
    assert leaf.bounds is not None
    assert leaf.number is not None
    low = leaf.bounds.least if leaf.bounds.above else leaf.bounds.least - 1
    return [
        leaf.number(low),
        *([] if math.isinf(leaf.bounds.most) else [leaf.number(leaf.bounds.most + 1)]),
    ]


@pytest.mark.parametrize("leaf", BOUNDED, ids=lambda leaf: leaf.name)
def test_size_refuses_what_the_leaf_does_not_allow(leaf: Leaf) -> None:
    for value in beyond(leaf):
        with pytest.raises(InputError) as error:
            tonnage.size(**{**QUESTION, leaf.name: value})
        assert f"{leaf.name}: {leaf.fault(value)}" in str(error.value).splitlines()


@pytest.mark.parametrize(
    "leaf",
    [leaf for leaf in simulated_leaves() if leaf.bounds is not None],
    ids=lambda leaf: leaf.name,
)
def test_simulate_refuses_it_in_the_same_words(leaf: Leaf) -> None:
    for value in beyond(leaf) if leaf.number is not None else ():
        with pytest.raises(InputError) as error:
            tonnage.simulate(**{**SIMULATED, leaf.name: value})
        assert f"{leaf.name}: {leaf.fault(value)}" in str(error.value).splitlines()


def test_the_schema_has_the_bounds() -> None:
    definitions = json_schema()["$defs"]
    assert definitions["SearchAsked"]["properties"]["front_ends"]["maximum"] == 1_000
    assert definitions["SearchAsked"]["properties"]["mem_fraction_static"]["exclusiveMinimum"] == 0


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        ({"front_ends": 5000}, "front_ends: 5000 is not a number of API servers; write 1 to 1,000"),
        (
            {"gpu_memory_utilization": 95},
            "gpu_memory_utilization: 95 is not a share of the memory; write a number above 0, at most 1",
        ),
        ({"seed": -1}, "seed: -1 is not a seed; write 0 or more"),
        (
            {"max_batch_size": 5 * 10**9},
            "max_batch_size: 5000000000 is too large; write at most 1,000,000,000",
        ),
    ],
)
def test_what_one_reads(flags: dict[str, float], line: str) -> None:
    with pytest.raises(InputError) as error:
        tonnage.size(**{**QUESTION, **flags})
    assert line in str(error.value)
