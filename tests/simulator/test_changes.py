"""Instances that fail: the kernel is the reference, nothing is lost untold, and closed forms
hold."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.simulator.driven_engines import engine_of
from tests.simulator.fleets import FLEET_KNOBS, engine_model
from tests.simulator.kernel.compared import assert_same
from tests.simulator.kernel.hand_worked import trace_of
from tests.simulator.test_engine import MS, opened
from tests.strategies import SCHEDULERS, examples, runs
from tonnage.errors import InputError
from tonnage.results.requests import COMPLETED, FAILED, REJECTED
from tonnage.simulator import reference
from tonnage.simulator.autoscaler import Autoscale, scaler_of
from tonnage.simulator.changes import (
    DRAINS,
    FAILS,
    NO_CHANGES,
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
from tonnage.simulator.router import ROUTERS
from tonnage.spec.workload import Trace

S = 1_000_000_000_000
EASY = examples(0.25)

DOWN = Outages(at=np.array([2, 6]) * S, instance=np.array([0, 0]), back=np.array([FAILS, RETURNS]))
"""The first instance is down from 2 to 6 s."""


@pytest.mark.parametrize("router", sorted(ROUTERS))
@EASY
@given(data=st.data())
def test_the_compiled_fleet_is_the_reference_when_instances_fail(router, data):
    """Engines that differ, under pre-emption, rejections and guesses, which fail every few
    steps."""
    run = opened(data.draw(runs(SCHEDULERS)))
    fleet = [run, *(data.draw(runs(SCHEDULERS)) for _ in range(data.draw(st.integers(0, 2))))]
    failures = Failures(
        mtbf_s=data.draw(st.sampled_from([0.02, 0.1, 0.5])),
        repair_s=data.draw(st.sampled_from([0.0, 0.01, 0.2])),
        crews=data.draw(st.integers(0, 2)),
        retry=data.draw(st.sampled_from(sorted(RETRIES))),
    )
    outages = outages_of(
        failures, len(fleet), int(run.trace.due_ps[-1]), data.draw(st.integers(0, 9))
    )
    options = {
        "seed": 5,
        "sessions": np.arange(len(run.trace)) % 3,
        "changes": Changes(outages=outages, retry=failures.retry),
    }
    plain = simulate_fleet(
        run.trace,
        [engine_of(reference.Engine, one) for one in fleet],
        router,
        fresh=lambda i: engine_of(reference.Engine, fleet[i]),
        **options,
    )
    routed = run_fleet(
        run.trace, [engine_of(Engine, one).machine for one in fleet], router, **options
    )
    np.testing.assert_array_equal(routed.chosen, plain.chosen)
    assert_same(routed.requests, plain.requests)
    assert routed.changed.retried == plain.changed.retried
    assert routed.changed.failures == plain.changed.failures
    conserved(run.trace, routed.requests, failures.retry)


def conserved(trace: Trace, record, retry: str) -> None:
    """Every request ends once; one that completed has all of its tokens, and each gap belongs to a
    token that somebody had."""
    assert set(record.status) <= {COMPLETED, REJECTED, FAILED}
    done = record.status == COMPLETED
    np.testing.assert_array_equal(record.osl[done], trace.osl[done])
    np.testing.assert_array_equal(record.due_ns, trace.due_ps // 1000)
    assert (record.sent_ns >= record.due_ns).all()
    assert (record.first_token_ns[done] > record.sent_ns[done]).all() or (
        record.first_token_ns[done] >= record.sent_ns[done]
    ).all()
    gaps = int(np.maximum(record.osl - 1, 0).sum())
    assert record.gaps.sum() >= gaps if retry == "all" else record.gaps.sum() == gaps


def one_at_a_time(instances: int, step_s: float = 0.001) -> list:
    return [
        Engine(engine_model(step_s), replace(FLEET_KNOBS, max_batch_size=1), 4096).machine
        for _ in range(instances)
    ]


def spread(requests: int, gap_ps: int, osl: int = 1) -> Trace:
    columns = np.arange(requests) * gap_ps, np.ones(requests, np.int64), np.full(requests, osl)
    return Trace(due_ps=columns[0], isl=columns[1], osl=columns[2], concurrency=0, turnaround_ps=0)


def test_what_is_in_flight_is_sent_again_or_lost_by_the_rule() -> None:
    """Two instances with a token every second: one fails at 2.5 s, when its request has two tokens,
    and the next one none."""
    trace = replace(spread(4, S // 10, osl=5), isl=np.ones(4, np.int64))
    outages = Outages(
        at=np.array([5 * S // 2, 3 * S]), instance=np.array([0, 0]), back=np.array([0, 1])
    )
    late = replace(trace, due_ps=np.append(trace.due_ps[:3], 4 * S))

    def run(retry: str):
        return run_fleet(
            late,
            one_at_a_time(2, 1.0),
            "round-robin",
            changes=Changes(outages=outages, retry=retry),
        )

    none, unanswered, everything = run("none"), run("unanswered"), run("all")
    assert none.requests.status.tolist() == [FAILED, COMPLETED, FAILED, COMPLETED]
    assert none.requests.osl.tolist() == [2, 5, 0, 5]
    assert unanswered.requests.status.tolist() == [FAILED, COMPLETED, COMPLETED, COMPLETED]
    assert unanswered.changed.retried == 1
    assert unanswered.chosen.tolist()[:3] == [0, 1, 1]
    assert unanswered.requests.sent_ns.tolist()[2] == 2_500_000_000
    assert everything.requests.status.tolist() == [COMPLETED] * 4
    assert everything.changed.retried == 2
    assert none.changed.failures == 1
    assert none.changed.availability == pytest.approx(1 - 0.5 / 8)


def test_a_request_for_which_no_instance_is_available_is_lost() -> None:
    outages = Outages(
        at=np.array([S // 2, 5 * S // 2]), instance=np.array([0, 0]), back=np.array([0, 1])
    )
    routed = run_fleet(
        spread(4, S), one_at_a_time(1), "least-outstanding", changes=Changes(outages=outages)
    )
    assert routed.requests.status.tolist() == [COMPLETED, FAILED, FAILED, COMPLETED]
    assert routed.chosen.tolist() == [0, -1, -1, 0]
    assert routed.requests.instance.tolist() == [0, -1, -1, 0]


def test_a_request_that_is_sent_again_and_lost_then_has_no_token() -> None:
    outages = Outages(at=np.array([5 * S // 2]), instance=np.array([0]), back=np.array([0]))
    lost = run_fleet(
        spread(2, 4 * S, osl=5),
        one_at_a_time(1, 1.0),
        "round-robin",
        changes=Changes(outages=outages, retry="all"),
    ).requests
    assert (lost.status.tolist(), lost.osl.tolist(), lost.first_token_ns.tolist()) == (
        [FAILED] * 2,
        [0] * 2,
        [-1] * 2,
    )


@pytest.mark.parametrize("crews", [1, 2, 6])
def test_availability_is_that_of_the_machine_repairmans_model(crews: int) -> None:
    """Birth and death: n broken instances of N fail at (N − n)/MTBF and are repaired at min(n,
    crews)/MTTR (Feller I, XVII.7)."""
    instances, mtbf, repair = 6, 50.0, 20.0
    weights = [1.0]
    for n in range(1, instances + 1):
        weights.append(weights[-1] * (instances - n + 1) / mtbf * repair / min(n, crews))
    broken = sum(n * weight for n, weight in enumerate(weights)) / math.fsum(weights)
    until = 400_000 * S
    outages = outages_of(
        Failures(mtbf_s=mtbf, repair_s=repair, crews=crews), instances, until, seed=1
    )
    assert outages.availability(instances, until) == pytest.approx(1 - broken / instances, abs=0.01)


def test_requests_see_the_availability_of_one_instance() -> None:
    """Arrivals that know nothing of failures find the instance broken for the share of time that it
    is."""
    trace, failures = spread(100_000, S // 5), Failures(mtbf_s=60.0, repair_s=20.0, retry="none")
    outages = outages_of(failures, 1, int(trace.due_ps[-1]), seed=2)
    routed = run_fleet(
        trace, one_at_a_time(1), "round-robin", changes=Changes(outages=outages, retry="none")
    )
    served = float(np.mean(routed.requests.status == COMPLETED))
    assert routed.changed.availability == pytest.approx(0.75, abs=0.03)
    assert served == pytest.approx(routed.changed.availability, abs=0.005)
    assert routed.changed.failures == pytest.approx(20_000 / 80, rel=0.15)


def test_what_cannot_be_is_refused() -> None:
    for wrong in ({"mtbf_s": 0.0}, {"repair_s": -1.0}, {"crews": -1}, {"retry": "twice"}):
        with pytest.raises(InputError, match="failures"):
            Failures(**{"mtbf_s": 1.0, "repair_s": 1.0, **wrong})
    outages = Outages(at=np.array([MS]), instance=np.array([3]), back=np.array([0]))
    with pytest.raises(InputError, match="an instance fails that is not there"):
        run_fleet(spread(2, S), one_at_a_time(2), "random", changes=Changes(outages=outages))


@pytest.mark.parametrize(
    ("until_s", "failures", "available"),
    [
        (0, 0, 1.0),
        (1, 0, 1.0),
        (2, 1, 1.0),
        (4, 1, 1 - 2 / 8),
        (5, 2, 1 - 3 / 10),
        (9, 2, 1 - 7 / 18),
    ],
)
def test_availability_by_hand(until_s, failures, available):
    """Of two instances one is down from 2 to 5 s, the other from 5 s on."""
    outages = Outages(
        at=np.array([2, 5, 5]) * 10**12, instance=np.array([0, 0, 1]), back=np.array([0, 1, 0])
    )
    assert outages.availability(2, until_s * 10**12) == pytest.approx(available)
    assert outages.failures(until_s * 10**12) == failures


def test_what_stands_at_the_start():
    assert NO_CHANGES.available(3) == [1, 1, 1]
    rule = Autoscale(metric="rate", target=1.0, least=1, most=4, start_s=1.0, first=2)
    assert Changes(autoscale=rule).available(5) == [1, 1, 0, 0, 0]
    assert NO_CHANGES.last(trace_of((3, 1, 1), (7, 1, 1))) == 7 * MS
    none = np.zeros(0, np.int64)
    empty = Trace(due_ps=none, isl=none, osl=none, concurrency=0, turnaround_ps=0)
    assert NO_CHANGES.last(empty) == 0


def at_their_means(monkeypatch) -> None:
    """Every time that is drawn is its mean."""
    draws = SimpleNamespace(exponential=lambda mean: mean)
    monkeypatch.setattr(np.random, "default_rng", lambda seed: draws)


@pytest.mark.parametrize(
    ("crews", "events"),
    [
        # both break at 10 s; the one crew repairs the first, then the second
        (1, [(10, 0, 0), (10, 0, 1), (14, 1, 0), (18, 1, 1), (24, 0, 0), (28, 1, 0)]),
        # as many crews as instances
        (2, [(10, 0, 0), (10, 0, 1), (14, 1, 0), (14, 1, 1), (24, 0, 0), (24, 0, 1)]),
        (0, [(10, 0, 0), (10, 0, 1), (14, 1, 0), (14, 1, 1), (24, 0, 0), (24, 0, 1)]),
    ],
)
def test_outages_by_hand(monkeypatch, crews, events) -> None:
    """Of two instances that work for 10 s and are repaired for 4 s, up to 24 s: nothing fails
    after that, but what is broken returns."""
    at_their_means(monkeypatch)
    outages = outages_of(Failures(mtbf_s=10.0, repair_s=4.0, crews=crews), 2, 24 * S, 0)
    ends = [] if crews == 1 else [(28, 1, 0), (28, 1, 1)]
    columns = zip(
        (outages.at / S).tolist(), outages.back.tolist(), outages.instance.tolist(), strict=True
    )
    assert list(columns) == [*events, *ends]


def test_no_outage_takes_less_than_a_picosecond_and_one_instance_draws_as_among_many() -> None:
    at_once = outages_of(Failures(mtbf_s=1e-15, repair_s=0.0), 1, 5, 0)
    assert at_once.at.tolist() == [1, 2, 3, 4, 5, 6]
    failures = Failures(mtbf_s=10.0, repair_s=4.0)
    assert (failures.crews, failures.retry) == (0, "unanswered")
    alone, among = (outages_of(failures, count, 100 * S, 8) for count in (2, 5))
    for name in ("at", "back"):
        column = getattr(among, name)[among.instance == 1]
        assert getattr(alone, name)[alone.instance == 1].tolist() == column.tolist()
    assert outages_of(failures, 2, 0, 8).at.tolist() == []
    assert outages_of(failures, 2, 100 * S, 9).at[0] != alone.at[0]


def test_restarts_by_hand() -> None:
    """Five instances restart two, two and one at a time, for 10 s of drain and 20 s of start: for
    season 1 at 1 h, and for season 0 again at 2 h. Those of season 1 are 5 to 9, and take nothing
    at first."""
    by_hour = [0, 1, *[0] * 22]
    outages = restarts_of(by_hour, 5, 7200 * S, Restarts(drain_s=10.0, start_s=20.0))
    first = [(0.0, place, DRAINS) for place in range(5, 10)]
    restarts = [
        (at + 30 * part + later, place, what)
        for at, now, then in ((3600, 0, 5), (7200, 5, 0))
        for part, members in enumerate(((0, 1), (2, 3), (4,)))
        for member in members
        for later, place, what in (
            (0, now + member, DRAINS),
            (10, now + member, FAILS),
            (30, then + member, RETURNS),
        )
    ]
    events = [*first, *sorted(restarts, key=lambda event: event[0])]
    columns = (outages.at / S).tolist(), outages.instance.tolist(), outages.back.tolist()
    assert list(zip(*columns, strict=True)) == events
    earlier = restarts_of(by_hour, 5, 7200 * S - 1, Restarts(drain_s=10.0, start_s=20.0))
    assert (len(outages.at), len(earlier.at)) == (5 + 30, 5 + 15)
    assert restarts_of([2] * 24, 1, 7200 * S, Restarts(drain_s=1.0, start_s=1.0)).at.size == 2


def test_a_season_is_as_long_as_its_restarts_or_refused() -> None:
    """Four parts of 300 s of drain and 600 s of start take an hour; the first season may be
    shorter. One more second is refused with the hours of the season, by the day."""
    by_hour = [0, 1, 1, 0, *[0] * 20]
    fits = Restarts(drain_s=300.0, start_s=600.0)
    assert fits.all_s == 3600.0
    restarts_of([0, 1, 0, *[0] * 21], 4, 7200 * S, fits)
    restarts_of(by_hour, 4, 3 * 3600 * S, Restarts(drain_s=300.0, start_s=1500.0))
    with pytest.raises(InputError, match=r"one of 2 h ends before .* which takes 7204 s"):
        restarts_of(by_hour, 4, 3 * 3600 * S, Restarts(drain_s=300.0, start_s=1501.0))
    days = restarts_of([0] * 23 + [1], 1, 48 * 3600 * S, fits).at[1:] / S / 3600
    assert sorted({int(hour) for hour in days}) == [23, 24, 47, 48]


@pytest.mark.parametrize(
    ("changes", "instances", "changed"),
    [
        (Changes(), 3, (2, 0, 5, 1.0, {3: 8.0})),
        # down from 2 to 6 s, of 8 s of four instances
        (Changes(outages=DOWN), 4, (2, 0, 5, 1 - 4 / 32, {4: 8.0})),
        # of two seasons in six engines three serve at a time, and restarts are no failures
        (Changes(outages=DOWN, seasons=2), 6, (0, 2, 5, 1.0, {3: 8.0})),
    ],
)
def test_what_changed_by_hand(changes, instances, changed) -> None:
    found = changes.changed(instances, 8 * S, 5, 2, scaler_of(None, 0))
    assert (
        found.failures,
        found.restarts,
        found.retried,
        found.availability,
        found.held_seconds,
    ) == changed
    assert found.served.shape == (0, 2)
    assert found.instance_seconds == sum(count * 8.0 for count in changed[-1])


def test_what_a_controller_changed_by_hand() -> None:
    """A look every 3 s of 8: one instance is held from the start, then two, then three."""
    rule = Autoscale(
        metric="rate", target=1.0, least=1, most=3, start_s=1.0, interval_s=3.0, hold_s=0.0
    )
    scaler = scaler_of(rule, 8 * S)
    scaler.held[:] = [[1, 2], [2, 3]]
    found = Changes(outages=DOWN, autoscale=rule).changed(3, 8 * S, 0, 1, scaler)
    assert found.held_seconds == {1: 3.0, 2: 3.0, 3: 2.0}
    assert found.instance_seconds == 3 + 6 + 6
    assert found.served.tolist() == [[1, 2], [2, 3]]
    assert (found.failures, found.restarts, found.availability) == (1, 0, 1 - 4 / 24)


def test_instances_of_changes_are_those_of_the_fleet_or_refused() -> None:
    rule = Autoscale(metric="rate", target=1.0, least=1, most=4, start_s=1.0)
    assert not NO_CHANGES.some
    assert (NO_CHANGES.outages, NO_CHANGES.autoscale, NO_CHANGES.seasons) == (None, None, 1)
    assert NO_CHANGES.retry == "unanswered"
    assert Changes(outages=DOWN).some
    assert Changes(autoscale=rule).some
    NO_CHANGES.check(1)
    Changes(autoscale=rule).check(rule.instances)
    for other in (rule.instances - 1, rule.instances + 1):
        with pytest.raises(InputError, match=f"holds up to 4 instances, and there are {other} "):
            Changes(autoscale=rule).check(other)
    last = replace(DOWN, instance=np.array([2, 2]))
    Changes(outages=last).check(3)
    with pytest.raises(InputError, match="fails that is not there"):
        Changes(outages=last).check(2)
    nothing = np.zeros(0, np.int64)
    Changes(outages=Outages(at=nothing, instance=nothing, back=nothing)).check(1)
