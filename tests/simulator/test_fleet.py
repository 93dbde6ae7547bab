"""A fleet behind a router: every request ends once, one instance is a plain run, and balance shows
in the waits."""

from __future__ import annotations

from dataclasses import fields, replace
from types import SimpleNamespace

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
from tests.simulator.reference.examples import KNOBS, TICK, ms, open_trace
from tests.simulator.test_engine import opened
from tests.strategies import MS, SCHEDULERS, runs
from tonnage.errors import InputError
from tonnage.perf.step import StepModel
from tonnage.perf.step_terms import COEFFICIENTS
from tonnage.results.requests import COMPLETED, REJECTED
from tonnage.simulator import fleet, reference
from tonnage.simulator.autoscaler import Autoscale
from tonnage.simulator.changes import NO_CHANGES, Changes, Outages
from tonnage.simulator.engine import Engine
from tonnage.simulator.fleet import compile_fleet, simulate_fleet, simulate_routed
from tonnage.simulator.kernel.fleet import run_fleet
from tonnage.simulator.request import Request
from tonnage.simulator.router import draw
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


def hand_worked_trace(**columns) -> Trace:
    """Four requests, at 0, 0, 1.5 and 4 ms, of 3, 2, 4 and 1 output tokens."""
    return replace(open_trace((0, 10, 3), (0, 20, 2), (1.5, 30, 4), (4, 40, 1)), **columns)


def plain_fleet(count: int, blocks: int = 100, **knobs) -> list:
    return [reference.Engine(TICK, replace(KNOBS, **knobs), blocks) for _ in range(count)]


def test_a_fleet_of_two_by_hand() -> None:
    """A tick a step: the first has its tokens at 1, 2 and 3 ms, the second on the other instance at
    1 and 2. The third comes in the step from 1 to 2 and goes to the instance that is next in turn,
    the first one, which hears it at 2; the fourth comes at 4 to the idle one."""
    routed = simulate_fleet(hand_worked_trace(), plain_fleet(2))
    record = routed.requests
    assert routed.chosen.tolist() == record.instance.tolist() == [0, 1, 0, 1]
    assert ms(record.due_ns) == ms(record.sent_ns) == [0, 0, 1.5, 4]
    assert record.admitted_ns is not None
    assert ms(record.admitted_ns) == [0, 0, 2, 4]
    assert ms(record.first_token_ns) == [1, 1, 3, 5]
    assert ms(record.last_token_ns) == [3, 2, 6, 5]
    assert (record.isl.tolist(), record.osl.tolist()) == ([10, 20, 30, 40], [3, 2, 4, 1])
    for name in ("status", "cached_tokens", "preemptions"):
        assert getattr(record, name).tolist() == [0] * 4, name
    assert record.gaps.sum() == 2 + 1 + 3
    changed = routed.changed
    assert (changed.failures, changed.restarts, changed.retried) == (0, 0, 0)
    assert (changed.availability, changed.held_seconds) == (1.0, {2: 0.004})
    assert changed.served.shape == (0, 2)


def test_what_an_instance_could_never_hold_is_rejected_and_was_served_by_none() -> None:
    """Ten blocks of ten tokens hold 100: not a prompt of 98 with an answer of 3."""
    trace = open_trace((0, 98, 3), (1, 97, 3))
    routed = simulate_fleet(trace, plain_fleet(1, 10))
    assert routed.requests.status.tolist() == [REJECTED, COMPLETED]
    assert routed.requests.instance.tolist() == [-1, 0]
    assert routed.chosen.tolist() == [0, 0]
    assert routed.requests.osl.tolist() == [0, 3]


def test_weights_sessions_priorities_and_seeds_reach_the_routers_and_the_engines() -> None:
    trace = hand_worked_trace()
    by_weight = simulate_fleet(trace, plain_fleet(2), "weighted", weight=[1.0, 3.0])
    assert sorted(by_weight.chosen.tolist()) == [0, 1, 1, 1]
    together = simulate_fleet(trace, plain_fleet(4), "session", sessions=np.array([5, 6, 5, 6]))
    first, second, third, fourth = together.chosen.tolist()
    assert (first, second) == (third, fourth)
    apart = simulate_fleet(trace, plain_fleet(7), "random", seed=3).chosen.tolist()
    assert apart == [draw(3, number, 0) % 7 for number in range(4)]
    ranked = open_trace((0, 10, 5), (1, 10, 2), (2, 10, 2))
    ranked = replace(ranked, priority=np.array([0, 2, 1]))
    for order, expected in (("fcfs", [1, 6, 8]), ("priority", [1, 8, 6])):
        fleet = plain_fleet(1, max_batch_size=1, queue_order=order)
        assert ms(simulate_fleet(ranked, fleet).requests.first_token_ns) == expected


def test_a_fleet_in_which_something_fails_needs_engines_to_put_in_its_place() -> None:
    outages = Outages(at=np.array([MS]), instance=np.array([0]), back=np.array([0]))
    with pytest.raises(ValueError, match="needs engines to put in the place of others"):
        simulate_fleet(hand_worked_trace(), plain_fleet(1), changes=Changes(outages=outages))


@pytest.mark.parametrize(
    ("compiled", "size", "changing", "runs"),
    [
        (False, (20_000, 3), False, "plain"),
        (False, (20_001, 3), False, "compiled"),
        (False, (20_000, 3), True, "compiled"),
        (True, (20_000, 3), False, "compiled"),
        (True, (1, 1), True, "compiled"),
        (True, (60_001, 1), False, "compiled"),
    ],
)
def test_which_fleet_runs(monkeypatch, compiled, size, changing, runs) -> None:
    """The plain one where the compiler has not run, nothing changes and requests times instances
    are 60,000 at most."""
    ran = []
    requests, engines = size

    def takes(name):
        return lambda *what, **more: ran.append((name, *what, more)) or name

    loops = []
    monkeypatch.setattr(fleet, "is_compiled", lambda loop: loops.append(loop) or compiled)
    monkeypatch.setattr(fleet, "simulate_fleet", takes("plain"))
    monkeypatch.setattr(fleet, "run_fleet", takes("compiled"))
    members = [SimpleNamespace(machine=number) for number in range(engines)]
    rule = Autoscale(metric="rate", target=1.0, least=1, most=4, start_s=1.0)
    changes = Changes(autoscale=rule) if changing else NO_CHANGES
    assert simulate_routed(range(requests), members, "random", seed=7, changes=changes) == runs
    options = {"seed": 7, "weight": None} | ({} if runs == "plain" else {"changes": changes})
    given = members if runs == "plain" else list(range(engines))
    assert ran == [(runs, range(requests), given, "random", options)]
    assert set(map(id, loops)) <= {id(fleet.drive_fleet)}


@pytest.mark.parametrize("ranks", [False, True])
@pytest.mark.parametrize("grouped", [False, True])
def test_the_loop_of_fleets_is_compiled_for_what_it_will_be_called_with(
    monkeypatch, ranks, grouped
) -> None:
    """By an open loop of one request, and an engine that takes it."""
    calls = []
    monkeypatch.setattr(fleet, "compile_for", lambda *what: calls.append(what))
    compile_fleet(ranks=ranks, grouped=grouped)
    [(trace, engines, count, knobs)] = calls
    assert (count, len(engines)) == ((2, 2) if grouped else (1, 1))
    assert knobs.queue_order == ("priority" if ranks else "fcfs")
    columns = (trace.due_ps, trace.isl, trace.osl)
    assert [column.tolist() for column in columns] == [[0], [1], [1]]
    assert (trace.concurrency, trace.turnaround_ps) == (0, 0)
    step = StepModel(coefficients=np.ones(COEFFICIENTS), frontend_s=0.0)
    engine = Engine(step, replace(knobs, queue_order="fcfs"), 2)
    assert engines[0].cfg == engine.machine.cfg
    engine.submit(Request(id=0, isl=1, osl=1, at=0))
    engine.advance()
    assert engine.requests().status.tolist() == [COMPLETED]


def test_an_instance_that_a_controller_releases_is_another_one_when_it_starts_again() -> None:
    """Twenty requests at once need two instances; the second is given up at the look at which
    nobody has been there for the hold, and every release makes one engine."""
    rule = Autoscale(
        metric="outstanding", target=10.0, least=1, most=2, start_s=0.0, hold_s=0.0, interval_s=0.01
    )
    trace = open_trace(*[(0, 5, 30)] * 20, (100, 5, 1))
    started = []

    def fresh(instance: int):
        started.append(instance)
        return plain_fleet(1)[0]

    routed = simulate_fleet(trace, plain_fleet(2), changes=Changes(autoscale=rule), fresh=fresh)
    held = routed.changed.served[:, 1].tolist()
    assert max(held) == 2
    assert held[-1] == 1
    assert started == [1]
    assert routed.requests.status.tolist() == [COMPLETED] * 21
