"""A controller that starts and releases instances: the kernel is the reference, and the rules are those that are written."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.simulator.test_engine import engine_of, opened
from tests.simulator.test_failures import S, one_at_a_time, spread
from tests.simulator.test_kernel import assert_same
from tests.strategies import SCHEDULERS, runs
from tonnage.errors import InputError
from tonnage.results.requests import COMPLETED, REJECTED
from tonnage.simulator import reference
from tonnage.simulator.autoscaler import METRICS, SERVING, Autoscale, look, next_look, scaler_of
from tonnage.simulator.changes import Changes
from tonnage.simulator.engine import Engine
from tonnage.simulator.fleet import simulate_fleet
from tonnage.simulator.kernel.fleet import run_fleet

EASY = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.parametrize("router", ["least-outstanding", "least-tokens", "round-robin"])
@EASY
@given(data=st.data())
def test_the_compiled_fleet_is_the_reference_under_a_controller(router, data):
    run = opened(data.draw(runs(SCHEDULERS)))
    rule = Autoscale(
        metric=data.draw(st.sampled_from(sorted(METRICS))),
        target=data.draw(st.sampled_from([0.5, 1.0, 3.0, 40.0])),
        least=data.draw(st.integers(1, 2)),
        most=data.draw(st.integers(2, 4)),
        start_s=data.draw(st.sampled_from([0.0, 0.01, 0.05])),
        hold_s=data.draw(st.sampled_from([0.0, 0.02])),
        interval_s=data.draw(st.sampled_from([0.002, 0.01, 0.03])),
        warm=data.draw(st.integers(0, 1)),
    )
    changes = Changes(autoscale=rule)
    engines = [engine_of(reference.Engine, run) for _ in range(rule.instances)]
    plain = simulate_fleet(run.trace, engines, router, changes=changes, fresh=lambda _: engine_of(reference.Engine, run))
    routed = run_fleet(run.trace, [engine_of(Engine, run).machine for _ in engines], router, changes=changes)
    np.testing.assert_array_equal(routed.chosen, plain.chosen)
    np.testing.assert_array_equal(routed.changed.served, plain.changed.served)
    assert_same(routed.requests, plain.requests)
    assert routed.changed.instance_seconds == plain.changed.instance_seconds
    assert set(routed.requests.status) <= {COMPLETED, REJECTED}
    held = routed.changed.served
    if len(held):
        assert held[:, 0].min() >= rule.least
        assert held[:, 0].max() <= rule.most
        assert held[:, 1].max() <= rule.instances
        assert (held[:, 0] <= held[:, 1]).all()


def after(rule: Autoscale, loads: list[list[int]]) -> list[tuple[int, int]]:
    """Instances that serve and that are held after looks at these outstanding requests of each instance."""
    scaler, available = scaler_of(rule, len(loads) * 15 * S), [0] * rule.instances
    for requests in loads:
        look(scaler, requests + [0] * (rule.instances - len(requests)), available, next_look(scaler))
    assert [int(phase == SERVING) for phase in scaler.phase] == available
    return [(int(serving), int(held)) for serving, held in scaler.held]


RULE = {"metric": "outstanding", "target": 10.0, "least": 1, "most": 4, "start_s": 30.0, "hold_s": 45.0}


def test_more_are_started_at_once_and_serve_when_they_are_ready() -> None:
    assert after(Autoscale(**RULE), [[30], [30], [30], [10, 10, 10]]) == [(1, 3), (1, 3), (3, 3), (3, 3)]


def test_fewer_serve_only_after_the_hold_and_an_instance_ends_its_requests_first() -> None:
    loads = [[30], [30], [30], [9, 1, 4], [9, 1, 4], [9, 1, 4], [9, 1, 4], [9, 1, 4], [9, 0, 4], [9, 0, 0]]
    found = after(Autoscale(**RULE), loads)
    assert found[3:6] == [(3, 3)] * 3
    assert found[6:] == [(2, 3), (2, 3), (2, 3), (2, 2)]


def test_a_load_within_a_tenth_changes_nothing_and_the_most_is_kept() -> None:
    assert after(Autoscale(**RULE), [[11], [11]]) == [(1, 1)] * 2
    assert after(Autoscale(**RULE), [[12], [12], [12]])[-1] == (2, 2)
    assert after(Autoscale(**RULE), [[500]] * 4)[-1] == (4, 4)


def test_a_warm_instance_serves_at_once_and_is_replaced() -> None:
    assert after(Autoscale(**RULE, warm=1), [[5], [20], [20], [20]]) == [(1, 2), (2, 3), (2, 3), (2, 3)]


def test_a_steady_rate_is_served_by_as_many_as_the_target_says_and_the_seconds_are_counted() -> None:
    """20 requests/s at 5 requests/s each: four instances, from when the last of them is ready."""
    rule = Autoscale(metric="rate", target=5.0, least=1, most=8, start_s=20.0)
    trace = spread(20 * 600, S // 20)
    routed = run_fleet(trace, one_at_a_time(rule.instances), "least-outstanding", changes=Changes(autoscale=rule))
    held = routed.changed.served
    assert held[4:, 0].tolist() == [4] * (len(held) - 4)
    assert (routed.requests.status == COMPLETED).all()
    assert routed.changed.instance_seconds == pytest.approx(15 + 4 * (600 - 15), abs=1)


def test_what_no_controller_could_do_is_refused() -> None:
    for wrong in ({"target": 0.0}, {"least": 0}, {"least": 5}, {"start_s": -1.0}, {"interval_s": 0.0}, {"warm": -1}):
        with pytest.raises(InputError, match="autoscale"):
            Autoscale(**{**RULE, **wrong})
    with pytest.raises(InputError, match="holds up to 4 instances"):
        run_fleet(spread(2, S), one_at_a_time(2), "random", changes=Changes(autoscale=Autoscale(**RULE)))
