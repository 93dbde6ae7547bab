"""YAML with comments reads back."""

from __future__ import annotations

import yaml
from hypothesis import given
from hypothesis import strategies as st

from tonnage.deploy.yaml_comments import noted, plain, yaml_text

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=30),
)

LINES = st.lists(st.text(alphabet="abc: #-'\"|>{}[]&*%", max_size=8), min_size=1, max_size=4).map(
    lambda lines: "\n".join(lines) + "\n"
)
NOTES = st.text(alphabet="abc # \n", max_size=12)


def values() -> st.SearchStrategy[object]:
    def wider(inner: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
        entries = st.one_of(inner, st.builds(noted, inner, NOTES))
        return st.one_of(
            st.lists(entries, max_size=3),
            st.dictionaries(
                st.text(max_size=6).filter(lambda key: key != "<<"), entries, max_size=3
            ),
        )

    return st.recursive(st.one_of(SCALARS, LINES), wider, max_leaves=12)


@given(
    st.dictionaries(
        st.text(min_size=1, max_size=6).filter(lambda key: key != "<<"),
        values(),
        min_size=1,
        max_size=4,
    ),
    NOTES,
)
def test_what_is_written_reads_back(document: dict[str, object], head: str) -> None:
    assert yaml.safe_load(yaml_text(document, head=head)) == plain(document)
