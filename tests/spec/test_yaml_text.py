"""YAML is plain values, each key once, whichever parser reads it."""

from __future__ import annotations

import pytest

from tonnage.errors import InputError
from tonnage.spec.typed_values import parse_yaml


@pytest.mark.parametrize("shipped", [False, True])
def test_plain_values_are_read(shipped: bool) -> None:
    text = "a: &x {b: 1, c: [2, x]}\nd: *x\ne: 2026-11-21"
    found = parse_yaml(text, "f", shipped=shipped)
    assert found["a"] == found["d"] == {"b": 1, "c": [2, "x"]}
    assert str(found["e"]) == "2026-11-21"


@pytest.mark.parametrize("shipped", [False, True])
@pytest.mark.parametrize(
    ("text", "says"),
    [("a: 1\na: 2", r"^f:1: is not YAML: 'a' is given twice"), ("a: [1", "^f:"), ("!!python/object:os.x {}", "^f:1: is not YAML")],
)
def test_what_is_no_plain_yaml_is_refused_with_its_line(text: str, says: str, shipped: bool) -> None:
    with pytest.raises(InputError, match=says):
        parse_yaml(text, "f", shipped=shipped)


def test_nesting_without_end_is_refused() -> None:
    with pytest.raises(InputError, match=r"^f: is not YAML that can be read"):
        parse_yaml("[" * 5000, "f")
