"""Records of requests: the bins of their gaps."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tonnage.results.requests import GAP_BINS, POSITION_BUCKETS, gap_edges_ns
from tonnage.results.store import gap_counts


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 2**40), min_size=1, max_size=50))
def test_gaps_fall_into_the_bins_of_the_record(gaps: list[int]) -> None:
    positions = np.arange(1, len(gaps) + 1)
    found = gap_counts(np.array(gaps, dtype=np.int64), positions)
    assert found.shape == (POSITION_BUCKETS, GAP_BINS)
    assert found.sum() == len(gaps)
    edges = gap_edges_ns()
    for gap, position in zip(gaps, positions, strict=True):
        index = int(np.searchsorted(edges, gap, side="right")) - 1
        assert edges[index] <= gap
        assert found[int(position).bit_length() - 1, index] >= 1
