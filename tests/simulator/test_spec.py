"""Requests of an instance are given to its ranks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.deployments import deployment, knobs_of
from tests.simulator.kernel.hand_worked import trace_of
from tests.strategies import MS, coefficient_array
from tonnage.perf.memory import memory_plan
from tonnage.perf.step import StepModel
from tonnage.perf.terms import step_model
from tonnage.results.requests import ROW_COLUMNS, SIMULATED_COLUMNS, Turns
from tonnage.simulator.reference import run_reference
from tonnage.simulator.spec import engine_spec, pooled, rank_traces, spec_of
from tonnage.simulator.tiers import Tier
from tonnage.spec.deployment import Parallelism, Windows
from tonnage.spec.sessions import ENDLESS, of_rows
from tonnage.spec.workload import ClosedLoop, Lengths, OpenLoop, Trace, Workload


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


COLUMNS = {
    "isl": np.arange(1, 8),
    "osl": np.arange(11, 18),
    "turnaround_ps": 5,
    "seed": 10,
    "contents": of_rows([[(number, ENDLESS)] for number in range(7)]),
}


def test_the_ranks_of_an_open_loop_take_its_requests_in_turn_by_hand() -> None:
    trace = Trace(due_ps=np.arange(7) * MS, concurrency=0, **COLUMNS)
    parts = rank_traces(trace, 3)
    assert [part.isl.tolist() for part in parts] == [[1, 4, 7], [2, 5], [3, 6]]
    assert [part.osl.tolist() for part in parts] == [[11, 14, 17], [12, 15], [13, 16]]
    assert [(part.due_ps // MS).tolist() for part in parts] == [[0, 3, 6], [1, 4], [2, 5]]
    assert [(part.seed, part.concurrency, part.turnaround_ps, part.contents) for part in parts] == [
        (30, 0, 5, None),
        (31, 0, 5, None),
        (32, 0, 5, None),
    ]
    assert [len(part) for part in rank_traces(trace, 9)] == [1] * 7
    [whole] = rank_traces(trace, 1)
    assert whole is trace


def test_the_ranks_of_a_closed_loop_take_its_clients_in_turn_by_hand() -> None:
    """Client 0 sends requests 0, 3 and 6, client 1 sends 1 and 4, client 2 sends 2 and 5."""
    trace = Trace(due_ps=np.full(7, -1), concurrency=3, **COLUMNS)
    parts = rank_traces(trace, 2)
    assert [part.isl.tolist() for part in parts] == [[1, 3, 4, 6, 7], [2, 5]]
    assert [part.concurrency for part in parts] == [2, 1]
    assert [part.isl.tolist() for part in rank_traces(trace, 5)] == [[1, 4, 7], [2, 5], [3, 6]]
    assert [part.seed for part in rank_traces(trace, 5)] == [50, 51, 52]
    [two] = rank_traces(trace, 1)
    assert two.concurrency == 3


def test_the_sessions_of_two_instances_are_told_apart_by_hand() -> None:
    """Sessions 0 and 1 of the first instance, 0 of the second, which is then the third of all."""
    step = StepModel(coefficients=coefficient_array(host_step=0.001, norm=1.0), frontend_s=0.0)
    first, second = (
        run_reference(trace_of(*rows), step, knobs_of(8, 64), 100).requests
        for rows in (((0, 10, 3), (20, 11, 2), (40, 9, 2)), ((5, 12, 4), (50, 13, 1)))
    )
    turns = [
        Turns(session=np.array([0, 1, 0]), first=np.array([1, 1, 0]), alone_ns=np.array([7, 8, 9])),
        Turns(session=np.array([0, 0]), first=np.array([1, 0]), alone_ns=np.array([5, 6])),
    ]
    whole = pooled([replace(first, turns=turns[0]), replace(second, turns=turns[1])]).turns
    assert whole is not None
    assert whole.session.tolist() == [0, 2, 1, 0, 2]
    assert whole.first.tolist() == [1, 1, 1, 0, 0]
    assert whole.alone_ns.tolist() == [7, 5, 8, 9, 6]
    assert pooled([replace(first, turns=turns[0]), second]).turns is None
    empty = Turns(session=np.zeros(0, int), first=np.zeros(0, int), alone_ns=np.zeros(0, int))
    nobody = run_reference(trace_of((0, 1, 1)).part(np.arange(0), 0), step, knobs_of(8, 64), 100)
    after = pooled([replace(nobody.requests, turns=empty), replace(first, turns=turns[0])]).turns
    assert after is not None
    assert after.session.tolist() == [0, 1, 0]


def test_the_engine_of_a_deployment_has_its_step_memory_and_knobs() -> None:
    """A pipeline of two stages is one engine; a model with states has no prefix cache."""
    one = deployment("llama-3.1-8b", tp=1, engine="vllm")
    spec, memory = spec_of(one), memory_plan(one)
    assert (spec.blocks, spec.windows, spec.knobs) == (memory.blocks, memory.windows, one.knobs)
    assert (spec.max_context, spec.ranks, tuple(spec.tiers)) == (131_072, 1, ())
    assert (spec.step.coefficients == step_model(one).coefficients).all()
    caching = replace(one, knobs=replace(one.knobs, prefix_caching=True))
    tiers = (Tier(blocks=7, block_ps=1),)
    whole = spec_of(caching, tiers=tiers)
    assert (whole.knobs.prefix_caching, whole.tiers) == (True, tiers)
    states = replace(memory, state_bytes=1)
    found = engine_spec(caching, spec.step, caching.knobs, states, tiers=tiers)
    assert found.knobs == replace(caching.knobs, prefix_caching=False)
    assert (found.tiers, found.blocks, found.max_context) == (tiers, memory.blocks, 131_072)
    ranks = replace(one, parallelism=Parallelism(tp=1, dp=2))
    assert engine_spec(ranks, spec.step, one.knobs, memory).ranks == 2
    limits = {"windows": Windows(blocks=3, tokens=10), "max_context": 20}
    plain = replace(spec, **limits).plain_engine(seed=4)
    assert (plain.kv_blocks_free, plain.seed, plain.batcher.knobs) == (memory.blocks, 4, one.knobs)
    assert (plain.batcher.windows, plain.batcher.max_context) == tuple(limits.values())


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
