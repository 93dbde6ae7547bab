"""What a file says is read strictly: an unknown key, or a value of another kind, is told with its
place, all at once."""

from __future__ import annotations

import re
from dataclasses import asdict, fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.bench.arguments import BenchArguments, ExactArguments
from tonnage.errors import DataErrors, InputError, TonnageError
from tonnage.gateway.settings import GatewayArguments
from tonnage.spec.catalog.entries import gpu_shelf, model_shelf, system_shelf
from tonnage.spec.hardware import Gpu, System
from tonnage.spec.model import Model
from tonnage.spec.typed_values import parse_yaml, read_as, read_entries, strict


@strict
class Inner:
    width: int


@strict
class Outer:
    name: str
    inner: Inner | None = None
    rate: float = 1.0


def test_every_fault_is_told_with_file_entry_and_path() -> None:
    rows = [
        {"name": "good"},
        {"name": "bad", "inner": {"widht": 3}, "rates": 1, "rate": "fast"},
        {"rate": 1},
        7,
    ]
    with pytest.raises(DataErrors) as caught:
        read_entries(Outer, rows, "f.yaml")
    assert caught.value.messages == (
        "f.yaml: bad: inner.width: is missing",
        "f.yaml: bad: inner.widht: unknown key; did you mean width?",
        "f.yaml: bad: rate: 'fast' is not a number",
        "f.yaml: bad: rates: unknown key; did you mean rate?",
        "f.yaml: entry 3: name: is missing",
        "f.yaml: entry 4: 7 does not hold keys with values",
    )


KEYS = st.text(max_size=5) | st.sampled_from(["name", "inner"])


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)


@given(PLAIN)
def test_any_values_are_read_or_refused_line_by_line(values: Any) -> None:
    lines: list[str] = []
    try:
        assert isinstance(read_as(Outer, values, "f"), Outer)
    except TonnageError as error:
        lines = str(error).splitlines()
    assert all(line.startswith(("f:", "and ")) for line in lines)


@pytest.mark.parametrize(
    ("kind", "entry"),
    [
        (Gpu, next(iter(gpu_shelf().by_name.values()))),
        (System, next(iter(system_shelf().by_name.values()))),
        (Model, next(iter(model_shelf().by_name.values()))),
    ],
)
def test_every_key_of_an_entry_can_be_misspelt_but_not_read(kind: type, entry: Any) -> None:
    written = asdict(entry)
    assert read_as(kind, written, "f")
    for key, value in written.items():
        other = {name: kept for name, kept in written.items() if name != key} | {f"{key}x": value}
        with pytest.raises(DataErrors, match=f"{key}x: unknown key"):
            read_as(kind, other, "f")


@pytest.mark.parametrize("levels", [6, 9, 40])
def test_aliases_that_stand_for_millions_of_values_are_refused_at_once(levels: int) -> None:
    lines = [
        "a0: &a0 [x,x,x,x,x,x,x,x,x,x]",
        *(f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]" for n in range(1, levels)),
    ]
    with pytest.raises(
        InputError, match=r"file\.yaml: has more than 500,000 values, counted with its aliases"
    ):
        parse_yaml("\n".join(lines), "file.yaml")
    assert parse_yaml("a: &a [1, 2]\nb: *a\n", "file.yaml") == {"a": [1, 2], "b": [1, 2]}


@pytest.mark.parametrize("arguments", [BenchArguments, ExactArguments, GatewayArguments])
def test_a_default_that_a_help_text_states_is_the_default(arguments: Any) -> None:
    words = {True: "on", False: "off"}
    stated = 0
    for field in fields(arguments):
        match = re.search(r"\(default: (\S+)\)", field.metadata["about"])
        if match and field.default is not None:
            shown = words[field.default] if isinstance(field.default, bool) else field.default
            assert match[1] == (f"{shown:g}" if isinstance(shown, float) else str(shown)), field
            stated += 1
    assert stated >= 3
