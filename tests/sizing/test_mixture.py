"""One pool under several use cases: whose each request is, and the worst limit."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sizing.mixtures import asked
from tonnage.results.metrics import gap_percentile_ns
from tonnage.results.requests import GAP_BINS, gap_edges_ns
from tonnage.sizing.mixture import Mixture, MixtureRun
from tonnage.sizing.use_cases import _case


def test_the_books_of_a_mixture_know_whose_each_request_is() -> None:
    cases = [_case(one, one.plan.candidates[0]) for one in (asked("chat"), asked("documents"))]
    run = Mixture([case for case in cases if case is not None]).run(5)
    assert (run.owners == (run.record.isl > 2_000)).all()
    share = (run.owners == 1).mean()
    assert share == pytest.approx(7.2 / 107.2, rel=0.02)


def test_the_worst_limit_is_the_one_that_is_exceeded_by_the_largest_factor() -> None:
    def worst(*used: float | None) -> Any:
        uses = [
            (SimpleNamespace(limit=place, value_ms=each, used=each),)
            for place, each in enumerate(used)
        ]
        cases = [SimpleNamespace(name=f"case {place}") for place in range(len(used))]
        return MixtureRun.worst.func(
            SimpleNamespace(uses=uses, mixture=SimpleNamespace(cases=cases))
        )  # type: ignore[arg-type]

    assert worst(1.0, None, 0.5) is None
    assert [worst(*used)[0] for used in ((1.2, 1.5, 1.1), (1.01, None, 0.9), (0.2, 1.4, 1.39))] == [
        "case 1",
        "case 0",
        "case 1",
    ]


@given(
    st.lists(st.integers(1, 500), min_size=1, max_size=60),
    st.lists(st.integers(1, 500), max_size=60),
    st.sampled_from([50, 90, 95, 99]),
)
@settings(max_examples=40)
def test_the_bound_on_one_use_cases_gaps_is_no_less_than_its_percentile(
    own: list[int], others: list[int], p: int
) -> None:
    """Of any own gaps among all: the (1 − (1 − p)/share)-th percentile of all bounds the p-th of
    its own."""
    milliseconds = np.array(own + others) * 1_000_000
    every, mine = (np.zeros((1, GAP_BINS), dtype=np.int64) for _ in range(2))
    bins = np.searchsorted(gap_edges_ns(), milliseconds, side="right") - 1
    np.add.at(every[0], bins, 1)
    np.add.at(mine[0], bins[: len(own)], 1)
    most = min(1.0, (1 - p / 100) * len(own) / len(milliseconds))
    assert gap_percentile_ns(every, 100 * (1 - most)) >= gap_percentile_ns(mine, p)
