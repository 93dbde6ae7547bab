"""A fleet behind a router: every request ends once, one instance is a plain run, and balance shows
in the waits."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given

from tests.simulator.driven_engines import engine_of
from tests.simulator.fleets import (
    EASY,
    FLEET_KNOBS,
    engine,
    engine_model,
    poisson_requests,
)
from tests.simulator.kernel.compared import assert_same
from tests.simulator.test_engine import opened
from tests.strategies import SCHEDULERS, runs
from tonnage.errors import InputError
from tonnage.simulator import fleet
from tonnage.simulator.engine import Engine
from tonnage.simulator.fleet import simulate_fleet, simulate_routed
from tonnage.simulator.kernel.fleet import run_fleet
from tonnage.simulator.request import Request
from tonnage.spec.workload import Trace


@EASY
@given(run=runs(SCHEDULERS))
def test_one_instance_is_a_run_of_its_engine(run):
    run = opened(run)
    alone = engine_of(Engine, run)
    for i, (at, isl, osl) in enumerate(
        zip(*(c.tolist() for c in (run.trace.due_ps, run.trace.isl, run.trace.osl)), strict=True)
    ):
        alone.submit(Request(id=i, isl=isl, osl=osl, at=at))
    alone.advance()
    routed = simulate_fleet(run.trace, [engine_of(Engine, run)])
    for field in fields(routed.requests):
        assert np.array_equal(
            getattr(routed.requests, field.name), getattr(alone.requests(), field.name)
        ), field.name


def test_what_is_no_fleet_is_refused() -> None:
    trace = poisson_requests(3, 1.0)
    backwards = Trace(
        due_ps=trace.due_ps[::-1], isl=trace.isl, osl=trace.osl, concurrency=0, turnaround_ps=0
    )
    closed = Trace(
        due_ps=trace.due_ps, isl=trace.isl, osl=trace.osl, concurrency=2, turnaround_ps=0
    )
    for asked, engines, router in (
        (trace, 0, "random"),
        (trace, 1, "best"),
        (backwards, 1, "random"),
        (closed, 1, "random"),
    ):
        with pytest.raises(InputError, match="a fleet"):
            simulate_fleet(asked, [engine(0.01)] * engines, router)
        with pytest.raises(InputError, match="a fleet"):
            run_fleet(asked, [engine(0.01).machine] * engines, router)


def test_few_requests_do_not_wait_for_the_compiler_and_get_the_same_answer(monkeypatch) -> None:
    trace = poisson_requests(200, 55.0)
    compiled = simulate_routed(trace, [engine(0.01) for _ in range(3)])
    monkeypatch.setattr(fleet, "is_compiled", lambda loop: False)
    monkeypatch.setattr(fleet, "run_fleet", None)
    assert_same(
        simulate_routed(trace, [engine(0.01) for _ in range(3)]).requests, compiled.requests
    )


def in_system(router: str, load: float, instances: int, requests: int) -> float:
    """Mean time of a request over its mean service, at instances of one slot with nearly
    exponential service of mean 1 s."""
    rng = np.random.default_rng(4)
    due = np.cumsum(rng.exponential(1e12 / (load * instances), requests)).astype(np.int64)
    trace = Trace(
        due_ps=due,
        isl=np.ones(requests, np.int64),
        osl=rng.geometric(0.01, requests),
        concurrency=0,
        turnaround_ps=0,
    )
    fleet = [
        Engine(engine_model(0.01), replace(FLEET_KNOBS, max_batch_size=1), 4096).machine
        for _ in range(instances)
    ]
    record = run_fleet(trace, fleet, router, seed=3).requests
    settled = slice(requests // 10, None)
    return float(np.mean((record.last_token_ns - record.due_ns)[settled])) / 1e9


def test_random_choice_makes_each_instance_an_m_m_1_queue() -> None:
    assert in_system("random", 0.7, 40, 200_000) == pytest.approx(1 / (1 - 0.7), rel=0.04)


def test_power_of_two_is_the_supermarket_model() -> None:
    """Mitzenmacher (2001): with two choices among many instances, a request is in the system for Σ
    load^(2^i − 2) services, i = 1, 2, …"""
    for load in (0.7, 0.9):
        expected = sum(load ** (2**i - 2) for i in range(1, 8))
        assert in_system("power-of-two", load, 500, 200_000) == pytest.approx(expected, rel=0.02)


def test_least_outstanding_lies_between_one_queue_for_all_and_two_choices() -> None:
    """Nothing that cannot move a request beats one queue for all instances (Erlang C)."""
    load, instances = 0.9, 20
    offered = load * instances
    term = total = 1.0
    for k in range(1, instances):
        term *= offered / k
        total += term
    last = term * offered / instances / (1 - load)
    one_queue = 1 + last / (total + last) / (instances * (1 - load))
    least, two = (
        in_system(router, load, instances, 200_000)
        for router in ("least-outstanding", "power-of-two")
    )
    assert 0.99 * one_queue < least < 0.8 * two
