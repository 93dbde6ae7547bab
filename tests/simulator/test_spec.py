"""Requests of an instance are given to its ranks."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tonnage.simulator.spec import rank_traces
from tonnage.spec.workload import ClosedLoop, Lengths, OpenLoop, Workload


@given(
    ranks=st.integers(1, 8),
    clients=st.integers(0, 20),
    requests=st.integers(1, 60),
    seed=st.sampled_from([0, 3]),
)
def test_every_request_goes_to_one_rank_and_clients_keep_theirs(
    ranks: int, clients: int, requests: int, seed: int
) -> None:
    arrivals = ClosedLoop(concurrency=clients) if clients else OpenLoop(rate=3.0)
    lengths = Lengths(mean=100, kind="uniform", std=20)
    trace = Workload(isl=lengths, osl=Lengths(mean=5), arrivals=arrivals, requests=requests).trace(
        seed
    )
    parts = rank_traces(trace, ranks)
    assert sum(len(part) for part in parts) == len(trace)
    assert sorted(np.concatenate([part.isl for part in parts])) == sorted(trace.isl)
    assert len(parts) <= ranks
    assert len({part.seed for part in parts}) == len(parts)
    if clients and requests >= clients:
        assert sum(part.concurrency for part in parts) == clients
    else:
        assert all((part.due_ps[1:] >= part.due_ps[:-1]).all() for part in parts)
