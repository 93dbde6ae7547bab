"""A controller that starts and releases instances: the kernel is the reference, and the rules are
those that are written."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.simulator.driven_engines import engine_of
from tests.simulator.kernel.compared import assert_same
from tests.simulator.test_changes import S, conserved, one_at_a_time, spread
from tests.simulator.test_engine import opened
from tests.strategies import SCHEDULERS, examples, runs
from tonnage.errors import InputError
from tonnage.results.requests import COMPLETED, REJECTED
from tonnage.simulator import reference
from tonnage.simulator.autoscaler import (
    LEAVING,
    METRICS,
    NO_LOOK,
    OFF,
    PER_S,
    SERVING,
    STANDBY,
    STARTING,
    Autoscale,
    asked_for,
    held_seconds,
    look,
    next_look,
    place_fails,
    scaler_of,
)
from tonnage.simulator.changes import (
    DRAINS,
    FAILS,
    RETRIES,
    RETURNS,
    Changes,
    Failures,
    Outages,
    Restarts,
    outages_of,
    restarts_of,
)
from tonnage.simulator.engine import Engine
from tonnage.simulator.fleet import simulate_fleet
from tonnage.simulator.kernel.fleet import run_fleet

EASY = examples(0.25)


@pytest.mark.parametrize("router", ["least-outstanding", "least-tokens", "round-robin"])
@EASY
@given(data=st.data())
def test_the_compiled_fleet_is_the_reference_under_a_controller(router, data):
    run = opened(data.draw(runs(SCHEDULERS)))
    rule = _rule(data)
    plain, routed = _both(run, router, Changes(autoscale=rule))
    assert routed.changed.instance_seconds == plain.changed.instance_seconds
    assert set(routed.requests.status) <= {COMPLETED, REJECTED}
    held = routed.changed.served
    if len(held):
        assert held[:, 0].min() >= rule.least
        assert held[:, 0].max() <= rule.most
        assert held[:, 1].max() <= rule.instances
        assert (held[:, 0] <= held[:, 1]).all()


@pytest.mark.parametrize("router", ["least-outstanding", "least-kv"])
@EASY
@given(data=st.data())
def test_the_compiled_fleet_is_the_reference_when_instances_fail_under_a_controller(router, data):
    """Every request ends once, whatever fails, starts and leaves at the same time, and no more is
    held than there are places."""
    run = opened(data.draw(runs(SCHEDULERS)))
    rule, retry = _rule(data), data.draw(st.sampled_from(sorted(RETRIES)))
    failures = Failures(
        mtbf_s=data.draw(st.sampled_from([0.02, 0.1])),
        repair_s=data.draw(st.sampled_from([0.0, 0.01, 0.1])),
    )
    outages = outages_of(
        failures, rule.instances, int(run.trace.due_ps[-1]), data.draw(st.integers(0, 9))
    )
    plain, routed = _both(run, router, Changes(outages=outages, retry=retry, autoscale=rule))
    assert routed.changed == replace(plain.changed, served=routed.changed.served)
    assert routed.changed.failures <= outages.failures(int(run.trace.due_ps[-1]))
    conserved(run.trace, routed.requests, retry)
    held = routed.changed.served
    assert (held[:, 0] <= held[:, 1]).all()
    assert held[:, 1].max(initial=0) <= rule.instances


def _rule(data) -> Autoscale:
    return Autoscale(
        metric=data.draw(st.sampled_from(sorted(METRICS))),
        target=data.draw(st.sampled_from([0.5, 1.0, 3.0, 40.0])),
        least=data.draw(st.integers(1, 2)),
        most=data.draw(st.integers(2, 4)),
        start_s=data.draw(st.sampled_from([0.0, 0.01, 0.05])),
        hold_s=data.draw(st.sampled_from([0.0, 0.02])),
        interval_s=data.draw(st.sampled_from([0.002, 0.01, 0.03])),
        warm=data.draw(st.integers(0, 1)),
    )


def _both(run, router: str, changes: Changes):
    """What the plain fleet and the compiled one say, held against each other."""
    engines = [engine_of(reference.Engine, run) for _ in range(changes.autoscale.instances)]
    plain = simulate_fleet(
        run.trace,
        engines,
        router,
        changes=changes,
        fresh=lambda _: engine_of(reference.Engine, run),
    )
    routed = run_fleet(
        run.trace, [engine_of(Engine, run).machine for _ in engines], router, changes=changes
    )
    np.testing.assert_array_equal(routed.chosen, plain.chosen)
    np.testing.assert_array_equal(routed.changed.served, plain.changed.served)
    assert_same(routed.requests, plain.requests)
    return plain, routed


def after(rule: Autoscale, loads: list[list[int]]) -> list[tuple[int, int]]:
    """Instances that serve and that are held after looks at these outstanding requests of each
    instance."""
    scaler, available = scaler_of(rule, len(loads) * 15 * S), [0] * rule.instances
    for requests in loads:
        look(
            scaler, requests + [0] * (rule.instances - len(requests)), available, next_look(scaler)
        )
    assert [int(phase == SERVING) for phase in scaler.phase] == available
    return [(int(serving), int(held)) for serving, held in scaler.held]


RULE = {
    "metric": "outstanding",
    "target": 10.0,
    "least": 1,
    "most": 4,
    "start_s": 30.0,
    "hold_s": 45.0,
}


@pytest.mark.parametrize(
    ("loads", "warm", "held"),
    [
        # more are started at once and serve when they are ready
        ([[30], [30], [30], [10, 10, 10]], 0, [(1, 3), (1, 3), (3, 3), (3, 3)]),
        # one that is warm serves at once and is replaced
        ([[5], [20], [20], [20]], 1, [(1, 2), (2, 3), (2, 3), (2, 3)]),
        ([[11], [11]], 0, [(1, 1), (1, 1)]),  # within a tenth nothing changes
        ([[12], [12], [12]], 0, [(1, 2), (1, 2), (2, 2)]),
        ([[500]] * 4, 0, [(1, 4), (1, 4), (4, 4), (4, 4)]),  # the most is kept
    ],
)
def test_instances_that_serve_and_are_held_after_each_look(loads, warm, held) -> None:
    assert after(Autoscale(**RULE, warm=warm), loads) == held


def test_fewer_serve_only_after_the_hold_and_an_instance_ends_its_requests_first() -> None:
    loads = [
        [30],
        [30],
        [30],
        [9, 1, 4],
        [9, 1, 4],
        [9, 1, 4],
        [9, 1, 4],
        [9, 1, 4],
        [9, 0, 4],
        [9, 0, 0],
    ]
    found = after(Autoscale(**RULE), loads)
    assert found[3:] == [(3, 3)] * 3 + [(2, 3), (2, 3), (2, 3), (2, 2)]


def test_a_steady_rate_is_served_by_as_many_as_the_target_says_and_the_seconds_are_counted() -> (
    None
):
    """20 requests/s at 5 requests/s each: four instances, from when the last of them is ready."""
    rule = Autoscale(metric="rate", target=5.0, least=1, most=8, start_s=20.0)
    trace = spread(20 * 600, S // 20)
    routed = run_fleet(
        trace, one_at_a_time(rule.instances), "least-outstanding", changes=Changes(autoscale=rule)
    )
    held = routed.changed.served
    assert held[4:, 0].tolist() == [4] * (len(held) - 4)
    assert (routed.requests.status == COMPLETED).all()
    assert routed.changed.instance_seconds == pytest.approx(15 + 4 * (600 - 15), abs=1)


def test_nothing_is_started_where_a_place_is_broken_and_another_one_takes_its_load() -> None:
    """Of four places the first two serve; the first breaks at 20 s and works again at 200 s: the
    third stands in for it, 30 s later."""
    rule = Autoscale(**{**RULE, "least": 2, "most": 3})
    outages = Outages(at=np.array([20, 200]) * S, instance=np.array([0, 0]), back=np.array([0, 1]))
    trace = spread(600, S // 2)
    routed = run_fleet(
        trace, one_at_a_time(3), "round-robin", changes=Changes(outages=outages, autoscale=rule)
    )
    at = trace.due_ps / S
    assert set(routed.chosen[at < 20]) == {0, 1}
    assert set(routed.chosen[(at >= 20) & (at < 60)]) == {1}
    assert set(routed.chosen[at >= 60]) == {1, 2}
    assert routed.changed.failures == 1
    assert routed.changed.served[:, 1].tolist() == [2] * len(routed.changed.served)


def test_requests_see_an_instance_that_is_replaced_for_the_share_of_time_between_failures() -> None:
    """One serves for 60 s on average; then a look comes half a second later, and another one is
    ready 20 s after it: 60 of 80.5."""
    trace, failures = spread(200_000, S // 10), Failures(mtbf_s=60.0, repair_s=1.0, retry="none")
    rule = Autoscale(
        metric="outstanding", target=1e6, least=1, most=8, start_s=20.0, interval_s=1.0
    )
    outages = outages_of(failures, rule.instances, int(trace.due_ps[-1]), seed=3)
    routed = run_fleet(
        trace,
        one_at_a_time(8),
        "round-robin",
        changes=Changes(outages=outages, retry="none", autoscale=rule),
    )
    assert float(np.mean(routed.requests.status == COMPLETED)) == pytest.approx(60 / 80.5, abs=0.04)
    assert routed.changed.served[:, 1].tolist() == [1] * len(routed.changed.served)


def test_what_no_controller_could_do_is_refused() -> None:
    for wrong in (
        {"target": 0.0},
        {"least": 0},
        {"least": 5},
        {"start_s": -1.0},
        {"interval_s": 0.0},
        {"warm": -1},
    ):
        with pytest.raises(InputError, match="autoscale"):
            Autoscale(**{**RULE, **wrong})
    with pytest.raises(InputError, match="holds up to 4 instances"):
        run_fleet(
            spread(2, S), one_at_a_time(2), "random", changes=Changes(autoscale=Autoscale(**RULE))
        )


# Engines whose limits change by the hour: the kernel is the reference, and every instance restarts
# behind a drain.


HOUR = 3600 * S


@pytest.mark.parametrize("router", ["least-outstanding", "least-tokens"])
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_the_compiled_fleet_is_the_reference_when_instances_restart_with_other_settings(
    router, data
):
    """Two kinds of engines take turns every few steps; each request ends once."""
    run, other = opened(data.draw(runs(SCHEDULERS))), data.draw(runs(SCHEDULERS))
    kinds, retry = [run, other], data.draw(st.sampled_from(sorted(RETRIES)))
    drain, start = data.draw(st.sampled_from([0, 5, 40])), data.draw(st.sampled_from([0, 10]))
    events, now, at = [(0, 1, DRAINS)], 0, 0
    for pause in data.draw(st.lists(st.integers(1, 60), max_size=6)):
        at += (drain + start + pause) * S // 1000
        events += [
            (at, now, DRAINS),
            (at + drain * S // 1000, now, FAILS),
            (at + (drain + start) * S // 1000, 1 - now, RETURNS),
        ]
        now = 1 - now
    columns = np.array(events).T
    changes = Changes(
        outages=Outages(at=columns[0], instance=columns[1], back=columns[2]), retry=retry, seasons=2
    )
    engines = [engine_of(reference.Engine, kind) for kind in kinds]
    plain = simulate_fleet(
        run.trace,
        engines,
        router,
        changes=changes,
        fresh=lambda i: engine_of(reference.Engine, kinds[i]),
    )
    routed = run_fleet(
        run.trace, [engine_of(Engine, kind).machine for kind in kinds], router, changes=changes
    )
    np.testing.assert_array_equal(routed.chosen, plain.chosen)
    assert_same(routed.requests, plain.requests)
    assert routed.changed.restarts == plain.changed.restarts
    assert (
        routed.changed.held_seconds
        == plain.changed.held_seconds
        == {1: int(run.trace.due_ps[-1]) / S}
    )
    conserved(run.trace, routed.requests, retry)


def test_instances_restart_a_quarter_at_a_time_and_those_that_have_the_settings_of_the_hour_serve() -> (
    None
):
    """Four instances, another setting from 1 h to 3 h; a restart takes 60 s and 120 s more."""
    by_hour = tuple(1 if hour in (1, 2) else 0 for hour in range(24))
    outages = restarts_of(by_hour, 4, 4 * HOUR, Restarts(drain_s=60.0, start_s=120.0))
    trace = spread(4 * 360, 10 * S)
    routed = run_fleet(
        trace, one_at_a_time(8), "round-robin", changes=Changes(outages=outages, seasons=2)
    )
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
    """A request of 100 tokens, one a second, begins 30 s before the hour and gets a drain of 60 s:
    90 tokens, then it is lost or again."""
    by_hour = tuple(int(hour == 1) for hour in range(24))
    outages = restarts_of(by_hour, 2, 2 * HOUR, Restarts(drain_s=60.0, start_s=60.0))
    trace = spread(3, 1, osl=100)
    trace.due_ps[:] = np.array([3570, 3571, 7000]) * S

    def run(retry: str):
        return run_fleet(
            trace,
            one_at_a_time(4, 1.0),
            "round-robin",
            changes=Changes(outages=outages, retry=retry, seasons=2),
        )

    lost, again = run("none"), run("all")
    assert (lost.requests.status == COMPLETED).tolist() == [False, True, True]
    assert lost.requests.osl.tolist()[0] == 90
    assert (again.requests.status == COMPLETED).all()
    assert again.changed.retried == 1


def test_a_season_that_ends_before_the_fleet_has_restarted_is_refused() -> None:
    by_hour = tuple(hour % 2 for hour in range(24))
    with pytest.raises(InputError, match="ends before all instances have restarted"):
        restarts_of(by_hour, 4, 9 * HOUR, Restarts(drain_s=600.0, start_s=600.0))


@pytest.mark.parametrize(
    ("metric", "requests", "came", "serving"),
    [
        ("outstanding", [9, 9, 0, 0], 99, 2),
        (
            "outstanding",
            [10, 12, 7, 7],
            0,
            2,
        ),  # a tenth more is borne; who does not serve counts not
        ("outstanding", [10, 13, 0, 0], 0, 3),
        ("outstanding", [20, 20, 0, 0], 0, 4),
        ("outstanding", [20, 21, 0, 0], 0, 4),
        ("outstanding", [90, 90, 0, 0], 0, 4),
        ("outstanding", [9, 0, 0, 0], 0, 1),
        ("outstanding", [10, 0, 0, 0], 0, 1),
        ("outstanding", [0, 0, 0, 0], 0, 1),
        ("rate", [90, 90, 0, 0], 300, 2),
        ("rate", [0, 0, 0, 0], 330, 2),
        ("rate", [0, 0, 0, 0], 331, 3),
        ("rate", [0, 0, 0, 0], 150, 1),
    ],
)
def test_how_many_are_asked_for_by_hand(metric, requests, came, serving) -> None:
    """Two of at most four serve, with a target of 10 each; a look comes every 15 s."""
    rule = Autoscale(metric=metric, target=10.0, least=1, most=4, start_s=0.0, hold_s=0.0, first=2)
    scaler = scaler_of(rule, 60 * PER_S)
    scaler.counts[1] = came
    assert asked_for(scaler, requests, 2) == serving


def test_looks_by_hand() -> None:
    """Two serve and one is warm; a look every 15 s up to 60 s."""
    rule = Autoscale(
        metric="outstanding",
        target=10.0,
        least=1,
        most=3,
        start_s=20.0,
        hold_s=0.0,
        warm=1,
        first=2,
    )
    scaler, available = scaler_of(rule, 60 * PER_S), [1, 1, 0, 0]
    assert scaler.phase.tolist() == [SERVING, SERVING, STANDBY, OFF]
    assert (len(scaler.held), next_look(scaler)) == (4, 15 * PER_S)
    look(scaler, [15, 15, 0, 0], available, 15 * PER_S)
    assert scaler.phase.tolist() == [SERVING, SERVING, SERVING, STARTING]
    assert available == [1, 1, 1, 0]
    assert (scaler.ready[3], next_look(scaler)) == (35 * PER_S, 30 * PER_S)
    look(scaler, [5, 5, 0, 0], available, 30 * PER_S)
    assert scaler.phase.tolist() == [SERVING, STANDBY, OFF, OFF]
    assert (available, scaler.released.tolist()) == ([1, 0, 0, 0], [0, 0, 1, 1])
    assert place_fails(scaler, 1) == 1
    assert place_fails(scaler, 2) == 0
    assert scaler.broken.tolist() == [0, 1, 1, 0]
    look(scaler, [25, 0, 0, 0], available, 45 * PER_S)
    assert scaler.phase.tolist() == [SERVING, OFF, OFF, STARTING]
    look(scaler, [9, 0, 0, 0], available, 60 * PER_S)
    assert scaler.held.tolist() == [[3, 4], [1, 2], [1, 2], [1, 2]]
    assert next_look(scaler) == next_look(scaler_of(None, PER_S)) == NO_LOOK
    assert held_seconds(scaler, rule, 61 * PER_S) == pytest.approx({3: 15.0, 4: 15.0, 2: 31.0})


def test_who_gives_up_its_place_ends_its_requests_first() -> None:
    rule = Autoscale(
        metric="outstanding", target=10.0, least=1, most=2, start_s=0.0, hold_s=0.0, first=2
    )
    scaler, available = scaler_of(rule, 60 * PER_S), [1, 1]
    look(scaler, [1, 3], available, 15 * PER_S)
    assert (scaler.phase.tolist(), scaler.released.tolist()) == ([SERVING, LEAVING], [0, 0])
    look(scaler, [1, 2], available, 30 * PER_S)
    assert scaler.phase.tolist() == [SERVING, LEAVING]
    look(scaler, [1, 0], available, 45 * PER_S)
    assert (scaler.phase.tolist(), scaler.released.tolist()) == ([SERVING, OFF], [0, 1])
    assert scaler.held.tolist() == [[1, 2], [1, 2], [1, 1], [0, 0]]


def test_the_defaults_are_those_of_kubernetes_and_one_begins_with_the_least() -> None:
    """A look every 15 s, the highest of 300 s, nothing kept started beside what serves."""
    rule = Autoscale(metric="rate", target=2.0, least=2, most=5, start_s=1.0)
    assert (rule.hold_s, rule.interval_s, rule.warm, rule.first) == (300.0, 15.0, 0, 0)
    assert (rule.begins, rule.instances) == (2, 5)
    rule = replace(rule, first=3, warm=2)
    assert (rule.begins, rule.instances) == (3, 7)
