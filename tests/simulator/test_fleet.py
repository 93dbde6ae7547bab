"""A fleet behind a router: every request ends once, one instance is a plain run, and balance shows
in the waits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.deployments import knobs_of
from tests.simulator.test_engine import engine_of, opened
from tests.simulator.test_kernel import CLASSES_COMPILED, assert_same
from tests.strategies import SCHEDULERS, examples, ranked_runs, runs
from tonnage.errors import InputError
from tonnage.perf.step import StepModel
from tonnage.perf.step_terms import COEFFICIENTS, HOST_STEP, NORM
from tonnage.results.requests import COMPLETED, REJECTED
from tonnage.simulator import fleet, reference
from tonnage.simulator.changes import NO_CHANGES
from tonnage.simulator.engine import Engine
from tonnage.simulator.fleet import simulate_fleet, simulate_routed
from tonnage.simulator.kernel.driven import drive_fleet, loop_of
from tonnage.simulator.kernel.fleet import arguments, run_fleet
from tonnage.simulator.request import Request
from tonnage.simulator.router import NO_INSTANCE, ROUTERS, Memory, View, memory_of
from tonnage.simulator.router import Request as Asked
from tonnage.spec.workload import Trace

EASY = examples(0.3)


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


@pytest.mark.parametrize("router", sorted(ROUTERS))
@EASY
@given(data=st.data())
def test_the_compiled_fleet_is_the_plain_one_behind_every_router_and_every_request_ends_once(
    router, data
):
    """Engines that differ in scheduler, knobs and prices, with pre-emption, rejections, guesses and
    slow front ends."""
    run = opened(data.draw(runs(SCHEDULERS)))
    fleet = [run, *(data.draw(runs(SCHEDULERS)) for _ in range(data.draw(st.integers(0, 2))))]
    sessions = np.arange(len(run.trace)) % 3
    weight = [data.draw(st.sampled_from([1.0, 0.5, 3.0])) for _ in fleet]
    options = {"seed": 5, "weight": weight, "sessions": sessions}
    plain, compiled = (
        simulate_fleet(run.trace, [engine_of(kind, one) for one in fleet], router, **options)
        for kind in (reference.Engine, Engine)
    )
    routed = run_fleet(
        run.trace, [engine_of(Engine, one).machine for one in fleet], router, **options
    )
    for found in (compiled, routed):
        np.testing.assert_array_equal(found.chosen, plain.chosen)
        assert_same(found.requests, plain.requests)
    record = plain.requests
    np.testing.assert_array_equal(record.isl, run.trace.isl)
    served = record.status == COMPLETED
    np.testing.assert_array_equal(record.instance[served], plain.chosen[served])
    np.testing.assert_array_equal(record.osl[served], run.trace.osl[served])
    if router == "session":
        assert all(len(set(plain.chosen[sessions == s])) <= 1 for s in range(3))


@CLASSES_COMPILED
@pytest.mark.parametrize("router", sorted(ROUTERS))
@EASY
@given(data=st.data())
def test_the_compiled_fleet_by_class_is_the_plain_one_and_every_request_ends_once(router, data):
    run = opened(data.draw(ranked_runs(SCHEDULERS)))
    knobs = replace(run.knobs, shed=False, queue_order="priority")
    plain = replace(run.step, drafting=None)
    run = replace(run, knobs=knobs, step=plain, trace=replace(run.trace, ttft_ps=None))
    unranked = replace(run, knobs=replace(knobs, queue_order="fcfs"))
    count = data.draw(st.integers(1, 3))
    expected = simulate_fleet(
        run.trace, [engine_of(reference.Engine, run) for _ in range(count)], router, seed=5
    )
    routed = run_fleet(
        run.trace,
        [engine_of(Engine, unranked).machine for _ in range(count)],
        router,
        seed=5,
        knobs=knobs,
    )
    np.testing.assert_array_equal(routed.chosen, expected.chosen)
    assert_same(routed.requests, expected.requests)
    ended = expected.requests.status
    assert np.isin(ended, (COMPLETED, REJECTED)).all()
    for place in np.unique(run.trace.priority):
        mine = run.trace.priority == place
        served = ended[mine] == COMPLETED
        assert (expected.requests.osl[mine][served] == run.trace.osl[mine][served]).all()


def test_a_fleet_by_class_neither_sheds_nor_changes() -> None:
    knobs = replace(KNOBS, queue_order="priority", shed=True)
    with pytest.raises(InputError, match="not simulated for several instances with classes"):
        run_fleet(poisson(3, 1.0), [engine(0.01).machine], "random", knobs=knobs)


KNOBS = knobs_of(8, 4096)


@pytest.mark.parametrize(
    "front_end",
    [{"stream_s": 1e-3}, {"stream_step_s": 4e-3}, {"enter_s": 9e-3}, {"enter_token_s": 1e-4}],
    ids=str,
)
@pytest.mark.parametrize("router", ["least-outstanding", "least-tokens"])
def test_what_is_on_its_way_to_clients_has_room_whatever_keeps_the_front_end_busy(
    front_end: dict[str, float], router: str
) -> None:
    """Where the prompts' tokens alone did, the loop wrote beyond an array without entries."""
    step = replace(engine_model(0.005), **front_end)
    trace = poisson(60, 200.0)
    engines = [Engine(step, KNOBS, 4096).machine for _ in range(2)]
    of_loop = arguments(trace, engines, router, 0, None, None, NO_CHANGES, loop_of().address)
    room = len(of_loop[0].watch.late)
    late = np.full((room + 1000, 4), -1)
    written = of_loop[0]._replace(watch=of_loop[0].watch._replace(late=late))
    drive_fleet(written, *of_loop[1:], len(trace))
    assert late[0, 0] >= 0, "nothing was on its way"
    assert np.all(late[room:] == -1)
    plain, compiled = (
        simulate_fleet(trace, [kind(step, KNOBS, 4096) for _ in range(2)], router)
        for kind in (reference.Engine, Engine)
    )
    assert_same(compiled.requests, plain.requests)


def engine_model(step_s: float) -> StepModel:
    c = np.zeros(COEFFICIENTS)
    c[NORM], c[HOST_STEP] = 1.0, step_s
    return StepModel(coefficients=c, frontend_s=0.0)


def engine(step_s: float) -> Engine:
    return Engine(engine_model(step_s), KNOBS, 4096)


def poisson(count: int, rate: float) -> Trace:
    rng = np.random.default_rng(2)
    due = np.cumsum(rng.exponential(1e12 / rate, count)).astype(np.int64)
    lengths = np.full(count, 64), rng.integers(10, 60, count)
    return Trace(due_ps=due, isl=lengths[0], osl=lengths[1], concurrency=0, turnaround_ps=0)


def test_what_is_no_fleet_is_refused() -> None:
    trace = poisson(3, 1.0)
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
    trace = poisson(200, 55.0)
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
        Engine(engine_model(0.01), replace(KNOBS, max_batch_size=1), 4096).machine
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


# Routers choose among the available, spread as their names promise, and say the same in Python and
# compiled.


Router = Callable[[View, Asked, Memory], int]
NAMES = sorted(ROUTERS)


@st.composite
def views(draw: st.DrawFn) -> View:
    n = draw(st.integers(1, 9))

    def each(values: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(values, min_size=n, max_size=n))

    return View(
        available=each(st.integers(0, 1)),
        requests=each(st.integers(0, 200)),
        tokens=each(st.integers(0, 10**6)),
        kv_used=each(st.floats(0, 1)),
        matched=each(st.integers(0, 4000)),
        weight=each(st.sampled_from([0.5, 1.0, 2.0, 5.0])),
    )


def requests() -> st.SearchStrategy[Asked]:
    return st.builds(
        Asked,
        number=st.integers(0, 10**7),
        session=st.integers(-1, 10**6),
        isl=st.integers(1, 4000),
    )


def idle(n: int, *, weight: list[float] | None = None) -> View:
    return View([1] * n, [0] * n, [0] * n, [0.0] * n, [0] * n, weight or [1.0] * n)


@pytest.mark.parametrize("name", NAMES)
@given(view=views(), request_=requests(), seed=st.integers(0, 2**31))
def test_only_available_instances_are_chosen_and_one_always_is(
    name: str, view: View, request_: Asked, seed: int
) -> None:
    chosen = ROUTERS[name](view, request_, memory_of(len(view.available), seed))
    if any(view.available):
        assert view.available[chosen]
    else:
        assert chosen == NO_INSTANCE


def chosen(router: Router, view: View, count: int, seed: int = 0) -> Counter[int]:
    memory = memory_of(len(view.available), seed)
    return Counter(router(view, Asked(i, -1, 100), memory) for i in range(count))


@pytest.mark.parametrize(
    "name", ["round-robin", "least-outstanding", "least-tokens", "least-kv", "prefix-aware"]
)
def test_equals_take_turns(name: str) -> None:
    assert chosen(ROUTERS[name], idle(7), 700) == dict.fromkeys(range(7), 100)


def test_weights_are_kept_exactly_and_smoothly() -> None:
    view, memory = idle(3, weight=[5.0, 1.0, 1.0]), memory_of(3)
    order = [ROUTERS["weighted"](view, Asked(i, -1, 1), memory) for i in range(7)]
    assert order == [0, 0, 1, 0, 2, 0, 0]


@given(
    sessions=st.lists(st.integers(0, 10**9), min_size=1, max_size=60, unique=True),
    gone=st.integers(0, 4),
)
def test_a_session_stays_and_moves_only_when_its_instance_goes(
    sessions: list[int], gone: int
) -> None:
    view, memory = idle(5), memory_of(5)
    smaller = view._replace(available=[int(i != gone) for i in range(5)])
    for s in sessions:
        first = ROUTERS["session"](view, Asked(0, s, 1), memory)
        assert first == ROUTERS["session"](view, Asked(99, s, 1), memory)
        after = ROUTERS["session"](smaller, Asked(1, s, 1), memory)
        assert (after == first) == (first != gone)


def test_prefixes_decide_until_the_load_is_out_of_balance() -> None:
    view = idle(3)._replace(matched=[0, 900, 100])
    assert ROUTERS["prefix-aware"](view, Asked(0, -1, 1_000), memory_of(3)) == 1
    assert ROUTERS["prefix-aware"](view, Asked(0, -1, 2_000), memory_of(3)) == 0
    full = view._replace(requests=[0, 40, 1])
    assert ROUTERS["prefix-aware"](full, Asked(0, -1, 1_000), memory_of(3)) == 0


def test_a_faster_instance_holds_more_requests() -> None:
    view = idle(2, weight=[4.0, 1.0])._replace(requests=[3, 1])
    assert ROUTERS["least-outstanding"](view, Asked(0, -1, 1), memory_of(2)) == 0
    assert ROUTERS["power-of-two"](view, Asked(0, -1, 1), memory_of(2)) == 0


def test_a_busy_instance_counts_one_more_as_in_leastconn() -> None:
    """HAProxy's key is (requests + 1) / weight, and 0 where there are none."""
    memory = memory_of(2)
    slow = idle(2, weight=[40.0, 1.0])
    for requests, chosen in (([39, 0], 1), ([41, 1], 0), ([78, 1], 0), ([80, 1], 1)):
        view = slow._replace(requests=requests)
        assert ROUTERS["least-outstanding"](view, Asked(0, -1, 1), memory) == chosen
