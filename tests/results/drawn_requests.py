"""Records of requests, drawn."""

from __future__ import annotations

from hypothesis import strategies as st

from tonnage.results.requests import COMPLETED, FAILED

requests = st.lists(
    st.tuples(
        st.integers(0, 5000),
        st.integers(0, 900),
        st.integers(0, 9000),
        st.integers(1, 40),
        st.sampled_from([COMPLETED, FAILED]),
    ),
    min_size=1,
    max_size=60,
)
