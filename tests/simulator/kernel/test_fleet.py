"""A whole trace on a fleet, compiled, is the plain one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.simulator.driven_engines import engine_of
from tests.simulator.fleets import EASY, FLEET_KNOBS, engine, poisson_requests
from tests.simulator.kernel.compared import CLASSES_COMPILED, assert_same
from tests.simulator.test_engine import opened
from tests.strategies import SCHEDULERS, ranked_runs
from tonnage.errors import InputError
from tonnage.results.requests import COMPLETED, REJECTED
from tonnage.simulator import reference
from tonnage.simulator.engine import Engine
from tonnage.simulator.fleet import simulate_fleet
from tonnage.simulator.kernel.fleet import run_fleet
from tonnage.simulator.router import ROUTERS


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
    knobs = replace(FLEET_KNOBS, queue_order="priority", shed=True)
    with pytest.raises(InputError, match="not simulated for several instances with classes"):
        run_fleet(poisson_requests(3, 1.0), [engine(0.01).machine], "random", knobs=knobs)
