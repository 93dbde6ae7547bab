"""The front end, compiled: a queue of its own, and room for what is on its way."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.simulator.fleets import FLEET_KNOBS, engine_model, poisson_requests
from tests.simulator.kernel.compared import assert_same
from tests.simulator.queues import ONE_AT_A_TIME, PLENTY, poisson
from tests.strategies import coefficient_array
from tonnage.perf.step import StepModel
from tonnage.simulator import reference
from tonnage.simulator.changes import NO_CHANGES
from tonnage.simulator.engine import Engine
from tonnage.simulator.fleet import simulate_fleet
from tonnage.simulator.kernel import run, run_recorded
from tonnage.simulator.kernel.driven import drive_fleet, loop_of
from tonnage.simulator.kernel.fleet import arguments
from tonnage.simulator.request import DURATION, IN_ENGINE
from tonnage.spec.workload import ClosedLoop, Lengths, Workload


def test_a_front_end_alone_is_an_m_d_1_queue() -> None:
    """An engine that costs nothing in front of it: each request is one message, and the mean wait
    is that of Pollaczek and Khinchine."""
    service, rate, count = 0.001, 700.0, 60_000
    step = StepModel(
        coefficients=coefficient_array(host_step=1e-7, norm=1.0), frontend_s=0.0, stream_s=service
    )
    requests = run(
        poisson(rate, count, np.ones(count, np.int64), seed=4),
        step,
        replace(ONE_AT_A_TIME, max_batch_size=64),
        PLENTY,
    )
    load = rate * service
    wait = load / (2 * (1 - load)) * service
    assert (requests.last_token_ns - requests.due_ns).mean() / 1e9 == pytest.approx(
        service + wait, rel=0.05
    )


def test_clients_wait_at_a_front_end_that_is_slower_than_the_engine() -> None:
    """Little's law on the whole, the front end's rate as the throughput, and an engine that runs
    with fewer sequences than clients."""
    clients, osl, stream = 64, 50, 0.0005
    step = StepModel(
        coefficients=coefficient_array(host_step=0.004, norm=1.0), frontend_s=0.0, stream_s=stream
    )
    load = Workload(
        isl=Lengths(mean=5),
        osl=Lengths(mean=osl),
        arrivals=ClosedLoop(concurrency=clients),
        requests=40 * clients,
    )
    knobs = replace(ONE_AT_A_TIME, max_batch_size=clients, max_num_tokens=10_000)
    requests, steps = run_recorded(load.trace(1), step, knobs, PLENTY, most_steps=100_000)
    seconds = requests.last_token_ns.max() / 1e9
    assert len(requests) * osl / seconds == pytest.approx(1 / stream, rel=0.03)
    latency = (requests.last_token_ns - requests.due_ns).mean() / 1e9
    assert len(requests) / seconds * latency == pytest.approx(clients, rel=0.05)
    inside = steps.steps[:, IN_ENGINE] @ steps.steps[:, DURATION] / 1e12 / seconds
    assert inside == pytest.approx(0.004 / stream, rel=0.05)


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
    trace = poisson_requests(60, 200.0)
    engines = [Engine(step, FLEET_KNOBS, 4096).machine for _ in range(2)]
    of_loop = arguments(trace, engines, router, 0, None, None, NO_CHANGES, loop_of().address)
    room = len(of_loop[0].watch.late)
    late = np.full((room + 1000, 4), -1)
    written = of_loop[0]._replace(watch=of_loop[0].watch._replace(late=late))
    drive_fleet(written, *of_loop[1:], len(trace))
    assert late[0, 0] >= 0, "nothing was on its way"
    assert np.all(late[room:] == -1)
    plain, compiled = (
        simulate_fleet(trace, [kind(step, FLEET_KNOBS, 4096) for _ in range(2)], router)
        for kind in (reference.Engine, Engine)
    )
    assert_same(compiled.requests, plain.requests)
