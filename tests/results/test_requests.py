"""Records of requests: the bins of their gaps."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tonnage.results.requests import (
    COMPLETED,
    FAILED,
    GAP_BINS,
    POSITION_BUCKETS,
    REJECTED,
    STATUS_NAMES,
    UNFINISHED,
    Requests,
    Turns,
    gap_edges_ns,
)
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


def test_bins_are_a_percent_wide_from_a_microsecond_on() -> None:
    edges = gap_edges_ns()
    assert edges is gap_edges_ns()
    assert not edges.flags.writeable
    assert (len(edges), POSITION_BUCKETS) == (2400, 24)
    assert edges[:4].tolist() == [0, 1010, 1020, 1030]
    assert edges[1000] == round(1000 * 1.01**1000)
    assert edges.dtype == np.int64


def test_a_status_has_its_name() -> None:
    codes = (COMPLETED, REJECTED, UNFINISHED, FAILED)
    names = [STATUS_NAMES[code] for code in codes]
    assert names == ["completed", "rejected", "unfinished", "failed"]
    assert len(STATUS_NAMES) == 4


def test_some_requests_have_their_own_columns_and_the_gaps_of_all() -> None:
    names = ("due_ns", "sent_ns", "first_token_ns", "last_token_ns", "isl", "osl", "cached_tokens")
    names += ("instance", "status", "preemptions", "row", "admitted_ns", "prefilled_ns")
    columns = {name: np.arange(4) + 10 * place for place, name in enumerate(names)}
    turns = Turns(session=np.arange(4), first=np.arange(4) > 1, alone_ns=np.arange(4) - 1)
    gaps = np.ones((POSITION_BUCKETS, GAP_BINS), np.int64)
    record = Requests(**columns, gaps=gaps, window_ns=7, turns=turns)
    part = record.some(np.array([3, 1]))
    assert (len(record), len(part), part.window_ns) == (4, 2, 7)
    for name in names:
        assert getattr(part, name).tolist() == columns[name][[3, 1]].tolist(), name
    assert part.turns is not None
    assert part.turns.session.tolist() == [3, 1]
    assert part.turns.first.tolist() == [True, False]
    assert part.turns.alone_ns.tolist() == [2, 0]
    assert part.gaps is gaps
    measured = Requests(**{name: columns[name] for name in names[:10]}, gaps=gaps)
    part = measured.some(slice(1, 3))
    assert part.isl.tolist() == [41, 42]
    assert (part.window_ns, part.row, part.turns) == (-1, None, None)
    assert part.admitted_ns is None
    assert part.prefilled_ns is None
