"""Standby systems: the fewest that hold an availability."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.plan.candidates import candidate
from tonnage.errors import InputError
from tonnage.plan.candidate import Confidence
from tonnage.plan.fleet import Standby
from tonnage.sizing.fleet.standby import Failures, Reserve, shifted, standing_by, with_standby

FAILURES = st.builds(
    Failures,
    mtbf_hours=st.sampled_from([50.0, 500.0, 2_000.0, 8_000.0]),
    repair_hours=st.sampled_from([1.0, 24.0, 72.0]),
    repairers=st.sampled_from([None, 1, 2, 5]),
)


def solved(failures: Failures, total: int) -> np.ndarray:
    """The steady state of the birth-death process by its balance equations, not by a product."""
    rates = np.zeros((total + 1, total + 1))
    for down in range(total + 1):
        if down < total:
            rates[down, down + 1] = (total - down) / failures.mtbf_hours
        if down:
            rates[down, down - 1] = min(down, failures.repairers or down) / failures.repair_hours
        rates[down, down] = -rates[down].sum()
    system = np.vstack([rates.T, np.ones(total + 1)])
    return np.linalg.lstsq(system, np.array([0.0] * (total + 1) + [1.0]), rcond=None)[0]


def simulated(failures: Failures, total: int, needed: int, years: float, seed: int) -> float:
    """The share of the time in which enough units work, unit by unit: exponential lives, repairs in
    the order of the failures."""
    rng = np.random.default_rng(seed)
    clock, end, short, under_repair = 0.0, years * 8_760, 0.0, []
    fails = sorted(rng.exponential(failures.mtbf_hours, total).tolist())
    queued = 0
    while clock < end:
        working = len(fails)
        moment = min(
            fails[0] if fails else math.inf, under_repair[0] if under_repair else math.inf, end
        )
        short += (moment - clock) * (working < needed)
        clock = moment
        if fails and moment == fails[0]:
            fails.pop(0)
            queued += 1
        elif under_repair and moment == under_repair[0]:
            under_repair.pop(0)
            fails = sorted([*fails, clock + rng.exponential(failures.mtbf_hours)])
        while queued and len(under_repair) < (failures.repairers or total):
            queued -= 1
            under_repair = sorted([*under_repair, clock + rng.exponential(failures.repair_hours)])
    return 1 - short / end


@given(FAILURES, st.integers(1, 12))
@settings(max_examples=40)
def test_the_product_solves_the_balance_equations(failures: Failures, total: int) -> None:
    assert failures.down(total) == pytest.approx(solved(failures, total), abs=1e-9)


@given(FAILURES, st.integers(1, 40), st.sampled_from([0.9, 0.99, 0.999, 0.99999]))
@settings(max_examples=60)
def test_standing_is_the_fewest_that_do(failures: Failures, needed: int, asked: float) -> None:
    try:
        found = failures.standing(needed, asked)
    except InputError:  # the repairers cannot keep up: so it is with many more units too
        assert failures.repairers is not None
        assert failures.availability(8 * needed + 512, needed) < asked
        return
    assert failures.availability(found, needed) >= asked
    assert found == needed or failures.availability(found - 1, needed) < asked


@pytest.mark.parametrize("repairers", [None, 1])
def test_systems_for_999_per_mille_as_in_a_simulation_with_failures(repairers: int | None) -> None:
    """The number of the formula holds 99.9 % in a simulation of failures, and one system fewer does
    not."""
    failures, needed = Failures(mtbf_hours=2_000.0, repair_hours=48.0, repairers=repairers), 4
    systems = failures.standing(needed, 0.999)
    assert systems == {None: 6, 1: 7}[repairers]
    for count in (systems - 1, systems):
        seen = simulated(failures, count, needed, years=2_500, seed=7)
        assert (seen >= 0.999) == (count == systems)
        assert 1 - seen == pytest.approx(1 - failures.availability(count, needed), rel=0.12)


def grown(**asked: object) -> object:
    sure = Confidence(
        meets=0.9, systems={"50": 4, "80": 4, "95": 5}, step_factors={}, metric="ttft_ms"
    )
    one = candidate(systems=4, requests_per_second_per_instance=1.0, confidence=sure)
    return with_standby(one, load=29.0, spare=0, **asked)


def test_systems_that_stand_by_are_added_to_those_of_the_peak() -> None:
    found = grown(availability=0.999, failures=Failures(mtbf_hours=2_000.0, repair_hours=48.0))
    assert (found.systems, found.instances, found.standby.needed, found.standby.extra_systems) == (
        6,
        48,
        4,
        2,
    )
    assert found.confidence.systems == {"50": 6, "80": 6, "95": 7}


def test_a_full_system_holds_spare_instances_already() -> None:
    """29 of 32 instances are needed: three may fail before a system is added."""
    assert grown(unit="instance", spare_instances=3).systems == 4
    found = grown(unit="instance", spare_instances=4)
    assert (found.systems, found.standby.needed, found.standby.standing) == (5, 29, 40)


def test_without_an_availability_nothing_is_added_and_the_chance_is_said() -> None:
    failures = Failures(mtbf_hours=2_000.0, repair_hours=48.0)
    found = grown(failures=failures)
    assert found.systems == 4
    assert found.standby.availability == failures.availability(4, 4)


@pytest.mark.parametrize(
    ("asked", "unit", "standing"),
    [(None, "system", 5), (0.999, "system", 6), (0.5, "system", 5), (0.999, "instance", 6)],
)
def test_units_that_stand_by_for_one_kind_of_system(
    asked: float | None, unit: str, standing: int
) -> None:
    """Four carry the peak and one is there in any case; the formula asks for six at 99.9 %."""
    failures = Failures(mtbf_hours=2_000.0, repair_hours=48.0, repairers=9)
    reserve = Reserve(unit="system", asked=0.99, failures=failures)
    assert standing_by(4, unit, reserve, asked, extra=1) == Standby(
        unit=unit,
        needed=4,
        standing=standing,
        extra_systems=0,
        mtbf_hours=2_000.0,
        repair_hours=48.0,
        repairers=9,
        asked=0.99,
        availability=failures.availability(standing, 4),
    )
    plain = standing_by(4, unit, Reserve(), asked)
    assert (plain.standing, plain.availability, plain.mtbf_hours, plain.repairers) == (
        4,
        None,
        None,
        None,
    )
    assert plain.repair_hours is plain.asked is None


def test_extra_systems_are_added_to_every_number_of_a_sensitivity() -> None:
    @dataclass
    class Part:
        systems: int = 0
        low: Any = None
        high: Any = None
        answer: Any = None
        swings: Any = ()
        relaxed: Any = None
        spreads: Any = ()

    whole = Part(
        systems=4,
        swings=(Part(low=Part(systems=3), high=Part(systems=None)),),
        relaxed=Part(systems=2),
        spreads=(Part(answer=Part(systems=7)),),
    )
    more = shifted(whole, 2)
    assert more.systems == 6
    assert (more.swings[0].low.systems, more.swings[0].high.systems) == (5, None)
    assert (more.relaxed.systems, more.spreads[0].answer.systems) == (4, 9)
    assert shifted(replace(whole, relaxed=None), 2).relaxed is None
    assert shifted(whole, 0) is whole
    assert shifted(None, 2) is None


def test_fewer_units_than_are_needed_are_never_enough() -> None:
    failures = Failures(mtbf_hours=30.0, repair_hours=10.0)
    assert failures.availability(3, 4) == 0.0
    assert failures.availability(1, 1) == pytest.approx(0.75)
    assert failures.availability(2, 1) == pytest.approx(1 - 0.25**2)
    assert failures.availability(4, 0) == 1.0


def test_many_extra_units_are_the_fewest_that_do() -> None:
    """Units that work for half of the time: 40 of 100 or so."""
    failures = Failures(mtbf_hours=10.0, repair_hours=10.0)
    for needed in (3, 17, 40):
        standing = next(
            total for total in range(needed, 400) if failures.availability(total, needed) >= 0.99
        )
        assert failures.standing(needed, 0.99) == standing


FAILING = Failures(mtbf_hours=2_000.0, repair_hours=48.0, repairers=9)


@pytest.mark.parametrize(
    ("how", "of", "systems", "standby"),
    [
        # six systems, one of them spare: 29 of 32 instances carry the load on five
        ({}, {}, 6, ("system", 5, 6, 0)),
        ({"spare_instances": 3}, {}, 6, ("system", 5, 6, 0)),
        ({"spare_instances": 20}, {}, 7, ("system", 5, 7, 1)),
        ({"unit": "instance"}, {}, 6, ("instance", 29, 48, 0)),
        ({"unit": "instance", "spare_instances": 20}, {}, 7, ("instance", 29, 56, 1)),
        # no more than the systems without the spare one hold
        ({"unit": "instance"}, {"load": 99.0}, 6, ("instance", 40, 48, 0)),
        # an instance on two systems fails as a whole
        ({}, {"tp": 8, "pp": 2, "instances": 3, "load": 2.0}, 6, ("instance", 2, 3, 0)),
    ],
)
def test_a_candidate_with_what_stands_by_is_whole(
    how: dict[str, Any], of: dict[str, Any], systems: int, standby: Any
) -> None:
    parts = {"systems": 6, "tp": 1, "requests_per_second_per_instance": 1.0} | of
    load = parts.pop("load", 29.0)
    one = candidate(**parts, headroom_to_saturation=0.5)
    grown_one = with_standby(one, load=load, spare=1, **how)
    unit, needed, standing, extra = standby
    instances = one.pool.fleet.of(systems).instances
    assert grown_one == replace(
        one.on(systems=systems, instances=instances),
        standby=Standby(unit=unit, needed=needed, standing=standing, extra_systems=extra),
        headroom_to_saturation=pytest.approx(1.5 * instances / one.instances - 1),
    )
    failing = with_standby(one, load=load, spare=1, failures=FAILING, **how)
    assert failing.standby == replace(
        grown_one.standby,
        mtbf_hours=2_000.0,
        repair_hours=48.0,
        repairers=9,
        availability=FAILING.availability(standing, needed),
    )


@pytest.mark.parametrize(
    ("unit", "asked", "systems", "numbers"),
    [
        # of five in use seven stand by, of four six: but the one at 95 % has a spare one as well
        ("system", 0.999, None, None),
        ("instance", 0.999, None, None),
        ("system", None, 6, {"50": 5, "80": 6, "95": 9, "99": None}),
    ],
)
def test_numbers_at_each_confidence_have_what_stands_by(
    unit: Any, asked: float | None, systems: int | None, numbers: Any
) -> None:
    sure = Confidence(
        meets=0.9,
        systems={"50": 5, "80": 6, "95": 9, "99": None},
        step_factors={},
        metric="ttft_ms",
    )
    one = candidate(systems=6, requests_per_second_per_instance=1.0, confidence=sure)
    grown_one = with_standby(
        one, load=40.0, spare=1, unit=unit, availability=asked, failures=FAILING
    )
    if asked is None:
        assert grown_one.systems == systems
    elif unit == "system":
        numbers = {
            name: max(count, FAILING.standing(count - 1, asked))
            for name, count in (("50", 5), ("80", 6), ("95", 9))
        } | {"99": None}
        assert grown_one.systems == FAILING.standing(5, asked) > 6
        assert numbers["95"] > 9
    else:
        extra = grown_one.systems - 6
        assert grown_one.systems == max(6, math.ceil(FAILING.standing(40, asked) / 8))
        numbers = {"50": 5 + extra, "80": 6 + extra, "95": 9 + extra, "99": None}
    assert grown_one.confidence == replace(sure, systems=numbers)
    assert grown_one.standby.extra_systems == grown_one.systems - 6
    assert grown_one.standby.asked == asked
    pools = replace(one, pools=(one.pool, one.pool))
    assert with_standby(pools, load=40.0, spare=1, spare_instances=99) is pools


def test_the_units_that_are_down_by_hand() -> None:
    """Three units that are down a tenth as long as they work: weights of 1, 0.3, 0.03 and 0.001 with
    as many repairers, and of 1, 0.3, 0.06 and 0.006 with one."""
    free = Failures(mtbf_hours=100.0, repair_hours=10.0)
    assert free.down(3) == pytest.approx([weight / 1.331 for weight in (1, 0.3, 0.03, 0.001)])
    single = replace(free, repairers=1)
    assert single.down(3) == pytest.approx([weight / 1.366 for weight in (1, 0.3, 0.06, 0.006)])
    two = replace(free, repairers=2)
    assert two.down(3) == pytest.approx([weight / 1.3315 for weight in (1, 0.3, 0.03, 0.0015)])
    assert two.availability(3, 2) == pytest.approx(1.3 / 1.3315)
    assert free.down(0) == (1.0,)
    for share, most in ((1 / 1.21, 2), (1.3 / 1.331, 3)):
        assert free.standing(2, share - 1e-9) == most
        assert free.standing(2, share + 1e-9) == most + 1
    with pytest.raises(InputError, match=r"99.9% is never reached with 9 in use: 1 at once"):
        Failures(mtbf_hours=10.0, repair_hours=10.0, repairers=1).standing(9, 0.999)
