"""Routers, compiled: behind each the fleet is the plain one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.simulator.driven_engines import engine_of
from tests.simulator.fleets import EASY
from tests.simulator.kernel.compared import assert_same
from tests.simulator.test_engine import opened
from tests.strategies import SCHEDULERS, runs
from tonnage.results.requests import COMPLETED
from tonnage.simulator import reference
from tonnage.simulator.engine import Engine
from tonnage.simulator.fleet import simulate_fleet
from tonnage.simulator.kernel.fleet import run_fleet
from tonnage.simulator.router import ROUTERS


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
