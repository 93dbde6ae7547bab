"""Engines whose limits change by the hour: the kernel is the reference, and every instance restarts behind a drain."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.simulator.test_engine import engine_of, opened
from tests.simulator.test_failures import S, conserved, one_at_a_time, spread
from tests.simulator.test_kernel import assert_same
from tests.strategies import SCHEDULERS, runs
from tonnage.errors import InputError
from tonnage.results.requests import COMPLETED
from tonnage.simulator import reference
from tonnage.simulator.changes import DRAINS, FAILS, RETRIES, RETURNS, Changes, Outages, Restarts, restarts_of
from tonnage.simulator.engine import Engine
from tonnage.simulator.fleet import simulate_fleet
from tonnage.simulator.kernel.fleet import run_fleet

HOUR = 3600 * S


@pytest.mark.parametrize("router", ["least-outstanding", "least-tokens"])
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_the_compiled_fleet_is_the_reference_when_instances_restart_with_other_settings(router, data):
    """Two kinds of engines take turns every few steps; each request ends once."""
    run, other = opened(data.draw(runs(SCHEDULERS))), data.draw(runs(SCHEDULERS))
    kinds, retry = [run, other], data.draw(st.sampled_from(sorted(RETRIES)))
    drain, start = data.draw(st.sampled_from([0, 5, 40])), data.draw(st.sampled_from([0, 10]))
    events, now, at = [(0, 1, DRAINS)], 0, 0
    for pause in data.draw(st.lists(st.integers(1, 60), max_size=6)):
        at += (drain + start + pause) * S // 1000
        events += [(at, now, DRAINS), (at + drain * S // 1000, now, FAILS), (at + (drain + start) * S // 1000, 1 - now, RETURNS)]
        now = 1 - now
    columns = np.array(events).T
    changes = Changes(outages=Outages(at=columns[0], instance=columns[1], back=columns[2]), retry=retry, seasons=2)
    engines = [engine_of(reference.Engine, kind) for kind in kinds]
    plain = simulate_fleet(run.trace, engines, router, changes=changes, fresh=lambda i: engine_of(reference.Engine, kinds[i]))
    routed = run_fleet(run.trace, [engine_of(Engine, kind).machine for kind in kinds], router, changes=changes)
    np.testing.assert_array_equal(routed.chosen, plain.chosen)
    assert_same(routed.requests, plain.requests)
    assert routed.changed.restarts == plain.changed.restarts
    assert routed.changed.held_seconds == plain.changed.held_seconds == {1: int(run.trace.due_ps[-1]) / S}
    conserved(run.trace, routed.requests, retry)


def test_instances_restart_a_quarter_at_a_time_and_those_that_have_the_settings_of_the_hour_serve() -> None:
    """Four instances, another setting from 1 h to 3 h; a restart takes 60 s and 120 s more."""
    by_hour = tuple(1 if hour in (1, 2) else 0 for hour in range(24))
    outages = restarts_of(by_hour, 4, 4 * HOUR, Restarts(drain_s=60.0, start_s=120.0))
    trace = spread(4 * 360, 10 * S)
    routed = run_fleet(trace, one_at_a_time(8), "round-robin", changes=Changes(outages=outages, seasons=2))
    at = trace.due_ps / S
    assert set(routed.chosen[at < 3600]) == {0, 1, 2, 3}
    assert set(routed.chosen[(at > 3600) & (at < 3600 + 180)]) == {1, 2, 3}
    assert set(routed.chosen[(at > 3600 + 180) & (at < 3600 + 360)]) == {2, 3, 4}
    assert set(routed.chosen[(at > 3600 + 720) & (at < 3 * 3600)]) == {4, 5, 6, 7}
    assert set(routed.chosen[at > 3 * 3600 + 720]) == {0, 1, 2, 3}
    assert (routed.requests.status == COMPLETED).all()
    assert routed.changed.restarts == 8
    assert routed.changed.failures == 0
    assert routed.changed.availability == 1.0
    assert routed.changed.instance_seconds == pytest.approx(4 * float(at[-1]))


def test_what_has_not_ended_when_the_drain_ends_is_sent_again() -> None:
    """A request of 100 tokens, one a second, begins 30 s before the hour and gets a drain of 60 s: 90 tokens, then it is lost or again."""
    by_hour = tuple(int(hour == 1) for hour in range(24))
    outages = restarts_of(by_hour, 2, 2 * HOUR, Restarts(drain_s=60.0, start_s=60.0))
    trace = spread(3, 1, osl=100)
    trace.due_ps[:] = np.array([3570, 3571, 7000]) * S

    def run(retry: str):
        return run_fleet(trace, one_at_a_time(4, 1.0), "round-robin", changes=Changes(outages=outages, retry=retry, seasons=2))

    lost, again = run("none"), run("all")
    assert (lost.requests.status == COMPLETED).tolist() == [False, True, True]
    assert lost.requests.osl.tolist()[0] == 90
    assert (again.requests.status == COMPLETED).all()
    assert again.changed.retried == 1


def test_a_season_that_ends_before_the_fleet_has_restarted_is_refused() -> None:
    by_hour = tuple(hour % 2 for hour in range(24))
    with pytest.raises(InputError, match="ends before all instances have restarted"):
        restarts_of(by_hour, 4, 9 * HOUR, Restarts(drain_s=600.0, start_s=600.0))
