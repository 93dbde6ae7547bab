"""YAML with comments reads back as the values that were written."""

from __future__ import annotations

import yaml
from hypothesis import given
from hypothesis import strategies as st

from tonnage.deploy.yaml_comments import Alias, Noted, noted, plain, yaml_text

SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=30))
LINES = st.lists(st.text(alphabet="abc: #-'\"|>{}[]&*%", max_size=8), min_size=1, max_size=4).map(lambda lines: "\n".join(lines) + "\n")
NOTES = st.text(alphabet="abc # \n", max_size=12)


def values() -> st.SearchStrategy[object]:
    def wider(inner: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
        entries = st.one_of(inner, st.builds(noted, inner, NOTES))
        return st.one_of(
            st.lists(entries, max_size=3), st.dictionaries(st.text(max_size=6).filter(lambda key: key != "<<"), entries, max_size=3)
        )

    return st.recursive(st.one_of(SCALARS, LINES), wider, max_leaves=12)


@given(st.dictionaries(st.text(min_size=1, max_size=6).filter(lambda key: key != "<<"), values(), min_size=1, max_size=4), NOTES)
def test_what_is_written_reads_back(document: dict[str, object], head: str) -> None:
    assert yaml.safe_load(yaml_text(document, head=head)) == plain(document)


def test_comments_stand_before_what_they_speak_of() -> None:
    document = {"a": noted(1, "one"), "b": [noted({"c": noted([2], "two\nthree")}, "item"), {"d": noted("x", "first")}]}
    assert yaml_text(document, head="head") == (
        "# head\n# one\na: 1\nb:\n  # item\n  - # two\n    # three\n    c:\n      - 2\n  # first\n  - d: x\n"
    ).replace("  - # two\n    # three\n    c:", "  # two\n  # three\n  - c:")


def test_an_anchor_is_taken_over() -> None:
    text = yaml_text({"x": Noted(value={"a": 1, "b": 2}, anchor="all"), "y": {"<<": Alias(name="all"), "b": 3}})
    assert yaml.safe_load(text)["y"] == {"a": 1, "b": 3}
    assert "<<: *all" in text


def test_texts_that_yaml_reads_as_something_else_are_quoted() -> None:
    odd = ["yes", "1", "0x10", "8001:22", "1e3", "null", "~", "", " a", "a: b", "# a", "-", "2026-11-22"]
    assert yaml.safe_load(yaml_text({"odd": odd})) == {"odd": odd}
