"""Requests of an instance are given to its ranks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.deployments import knobs_of
from tests.simulator.kernel.hand_worked import trace_of
from tests.strategies import coefficient_array
from tonnage.perf.step import StepModel
from tonnage.results.requests import ROW_COLUMNS, SIMULATED_COLUMNS
from tonnage.simulator.reference import run_reference
from tonnage.simulator.spec import pooled, rank_traces
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


def test_two_instances_are_one_record_in_order_of_arrival() -> None:
    """The second instance's requests come between those of the first; each column keeps to its row."""
    step = StepModel(coefficients=coefficient_array(host_step=0.001, norm=1.0), frontend_s=0.0)
    parts = [
        run_reference(trace_of(*rows), step, knobs_of(8, 64), 100).requests
        for rows in (((0, 10, 3), (20, 11, 2)), ((5, 12, 4), (20, 13, 1)))
    ]
    parts = [replace(part, prefilled_ns=part.first_token_ns - 7) for part in parts]
    whole, order = pooled(parts), [0, 2, 1, 3]
    assert whole.instance.tolist() == [0, 1, 0, 1]
    assert whole.due_ns.tolist() == [0, 5_000_000, 20_000_000, 20_000_000]
    assert whole.isl.tolist() == [10, 12, 11, 13]
    for name in (*ROW_COLUMNS, *SIMULATED_COLUMNS):
        columns = [getattr(part, name) for part in parts]
        if name != "instance" and columns[0] is not None:
            assert getattr(whole, name).tolist() == np.concatenate(columns)[order].tolist(), name
    assert whole.prefilled_ns is not None
    assert (whole.gaps == parts[0].gaps + parts[1].gaps).all()
    half = pooled([parts[0], replace(parts[1], prefilled_ns=None)])
    assert half.prefilled_ns is None
    assert half.admitted_ns is not None
