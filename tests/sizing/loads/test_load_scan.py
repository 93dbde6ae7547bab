"""The search of the load, on an instance whose latencies at every load are given."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.questions import contender
from tests.sizing.loads.load_scan_cases import Curve, limit, rate_of
from tonnage.plan.limit import SATURATION, Breach, bound_by, limit_of
from tonnage.sizing.loads.instance import FEWEST, QUICK, SURE, Instance
from tonnage.sizing.loads.load_scan import (
    CLEAR,
    LOWEST,
    NEAR_SATURATION,
    PER_OCTAVE,
    STRIDE,
    SURELY,
    WAITING,
    WIDTH,
    Broken,
    Highest,
    LoadScan,
    _share,
    between,
    binding_limit,
    breach,
    on_lattice,
    place_of,
    strain,
    used_at,
    worst_limit,
)
from tonnage.sizing.loads.runs import Runs, Seen
from tonnage.spec.deployment import Limit

if TYPE_CHECKING:
    from collections.abc import Callable


def test_what_never_breaks_ends_at_saturation() -> None:
    found = Curve(lambda rate, length: 1.0).highest(limit(2.0))
    assert isinstance(found, Highest)
    assert found.limit is None
    assert found.rate == pytest.approx(1000.0)


@pytest.mark.parametrize("care", [QUICK, SURE])
@pytest.mark.parametrize("near", [0.0, 700.0, 1090.0])
def test_above_a_saturation_that_was_measured_no_run_is_made_and_the_answer_is_the_same(
    care: Any, near: float
) -> None:
    before, after = (Curve(lambda rate, _: rate / 1e6, measured=known) for known in (False, True))
    rates = [rate_of(scan.highest(limit(1.0), 0.0, care, near)) for scan in (before, after)]
    assert rates[0] == rates[1] == pytest.approx(1000.0)
    assert any(rate > 1000.0 for _, rate in before.runs_made)
    assert all(rate <= 1000.0 for _, rate in after.runs_made)
    assert len(after.runs_made) < len(before.runs_made)


def test_a_short_run_that_is_too_good_does_not_make_an_answer() -> None:
    """Queues that build up slowly are not seen in a short run: the load that is found holds in the
    longest."""
    found = Curve(lambda rate, length: rate if length == SURE else 0.1 * CLEAR[0][1]).highest(
        limit(300.0), care=SURE
    )
    assert rate_of(found) <= 300 * (1 + 1e-9)
    assert rate_of(found) > 300 / 1.2


def test_nothing_holds() -> None:
    """The lowest load that was tried is named: 1/4096 of the highest at which a search begins."""
    scan = Curve(lambda rate, length: 5.0)
    broken = scan.highest(limit(1.0))
    assert isinstance(broken, Broken)
    assert (broken.limit.seconds, broken.summary.limit_s(None)) == (1.0, 5.0)
    assert place_of(broken.rate) == scan.top - LOWEST
    assert broken.rate == on_lattice(scan.top) / 4_096 == min(rate for _, rate in scan.runs_made)


noisy = st.tuples(st.integers(0, 10_000), st.floats(0.0, 0.3), st.floats(0.2, 3.0))


def made(shape: tuple[int, float, float]) -> Callable[[float, int], float]:
    """A latency that rises, with noise that is smaller in longer runs."""
    seed, noise, power = shape

    def value(rate: float, length: int) -> float:
        drawn = np.random.default_rng([seed, length, round(1e6 * rate)]).normal()
        return float(
            (rate / 100) ** power * np.exp(noise * drawn / (FEWEST[length] / FEWEST[0]) ** 0.5)
        )

    return value


@settings(deadline=None, max_examples=150)
@given(shape=noisy, tight=st.floats(0.05, 30.0), looser=st.floats(1.0, 2.0))
def test_a_looser_limit_never_carries_less_by_more_than_the_noise_of_two_runs(
    shape: Any, tight: float, looser: float
) -> None:
    scan, noise = Curve(made(shape)), shape[1] / shape[2]
    for care in (QUICK, SURE):
        less, more = (
            rate_of(scan.highest(limit(tight * factor), care=care)) for factor in (1.0, looser)
        )
        assert less <= more * np.exp(4 * noise + 0.05 * bool(noise))


@settings(deadline=None, max_examples=150)
@given(shape=noisy, tight=st.floats(0.05, 30.0), above=st.floats(0.5, 900.0))
def test_a_load_to_exceed_changes_no_answer_above_it(
    shape: Any, tight: float, above: float
) -> None:
    seed, _, power = shape
    scan = Curve(made((seed, 0.0, power)))
    whole, ended = (rate_of(scan.highest(limit(tight), bound, SURE)) for bound in (0.0, above))
    assert ended == pytest.approx(whole if whole > above else 0.0, rel=1e-6)


@given(
    knee=st.floats(10.0, 2_000.0),
    target=st.floats(1.05, 40.0),
    begin=st.floats(0.5, 900.0),
    care=st.sampled_from([QUICK, SURE]),
)
def test_a_load_is_read_between_the_same_two_wherever_the_search_begins(
    knee: float, target: float, begin: float, care: Any
) -> None:
    """A line through other points of a curve would read another load: a deployment that carries
    just enough would be left out."""

    def value(rate: float, length: int) -> float:
        return 1 + 1 / max(knee / rate - 1, 1e-3) + rate / knee

    found = rate_of(Curve(value).highest(limit(target), care=care))
    assert rate_of(Curve(value, begin=begin).highest(limit(target), care=care)) == found
    assert rate_of(Curve(value).highest(limit(target), care=care, near=begin)) == found
    assert rate_of(Curve(value).highest(limit(target), 0.999 * found, care)) == found
    assert rate_of(Curve(value).highest(limit(target), found, care)) == 0.0


def test_what_carries_far_less_is_left_out_by_one_short_run() -> None:
    scan = Curve(lambda rate, length: rate)
    assert isinstance(scan.highest(limit(100.0), 300.0), Broken)
    assert {length for length, _ in scan.runs_made} == {0}
    assert len({rate for _, rate in scan.runs_made}) == 1


def test_the_lattice() -> None:
    assert on_lattice(64) == on_lattice(PER_OCTAVE) == 2.0
    assert all(place_of(on_lattice(place)) == place for place in range(-500, 500))


@given(st.integers(-500, 500), st.integers(2, 300))
def test_the_way_between_two_loads_is_parted_at_the_same_place_for_every_search(
    low: int, width: int
) -> None:
    high = low + width
    half = between(low, high)
    assert low < half < high
    power = half & -half if half else 1 << 20
    assert all((place & -place if place else 1 << 20) <= power for place in range(low + 1, high))


def test_the_load_that_is_found_holds_in_its_longest_run_and_in_others() -> None:
    one = contender(tp="1", isl="lognormal:1000,800", osl=100, ttft="p95<=200ms")
    slo, instance = one.question.limits, one.instance
    for instances in (1, 4):
        found = LoadScan(Runs(), instance, instances).highest(slo, care=SURE)
        assert isinstance(found, Highest)
        assert worst_limit(found.summary, slo) is None
        for seed in (5, 6):
            scan = LoadScan(
                Runs(),
                Instance(instance.deployment, replace(instance.traffic, seed=seed)),
                instances,
            )
            assert scan.holds(place_of(0.92 * found.rate), slo, SURE)
            assert not scan.holds(place_of(1.15 * found.rate), slo, SURE)


TTFT = Limit(metric="ttft", statistic="p95", seconds=2.0)
TPOT = Limit(metric="tpot", statistic="mean", seconds=0.5)


def values(**seconds: float) -> Any:
    """The metrics of a run, by the metric of a limit."""
    return SimpleNamespace(limit_s=lambda limit: seconds[limit.metric])


@pytest.mark.parametrize(
    ("ttft", "tpot", "strained", "worst"),
    [
        (1.0, 0.2, 0.5, None),
        (2.0, 0.5, 1.0, None),
        (3.0, 0.5, 1.5, TTFT),
        (3.0, 2.0, 4.0, TPOT),
        (4.0, 1.0, 2.0, TTFT),  # of two that break alike the first
        (math.nan, 0.4, 0.8, None),
        (math.nan, math.nan, 0.0, None),
        (math.nan, 1.0, 2.0, TPOT),
    ],
)
def test_how_much_of_the_limits_is_used_and_which_breaks_most(
    ttft: float, tpot: float, strained: float, worst: Limit | None
) -> None:
    summary = values(ttft=ttft, tpot=tpot)
    assert strain(summary, (TTFT, TPOT)) == strained
    assert worst_limit(summary, (TTFT, TPOT)) == worst
    assert (strain(summary, ()), worst_limit(summary, ())) == (0.0, None)
    for growth, used in ((1.0, strained), (1.01, math.inf)):
        assert used_at(Seen(summary=summary, requests=1, growth=growth), (TTFT, TPOT)) == used


def test_the_limit_of_a_question_that_ends_a_load() -> None:
    assert binding_limit((TTFT, TPOT), bound_by(TPOT)) == TPOT
    assert binding_limit((TTFT,), bound_by(TPOT)) is None
    assert binding_limit((TTFT, TPOT), SATURATION) is None
    assert binding_limit((TTFT, TPOT), None) is None
    assert breach(values(tpot=0.75), TPOT) == Breach(limit=limit_of(TPOT), value_ms=750.0)


@pytest.mark.parametrize(
    ("low", "high", "share"),
    [
        (0.5, 8.0, 0.5),
        (1.0, 4.0, 0.5),
        (1.0, 16.0, 0.25),
        (1.0, 2.0, 1.0),
        (1.0, 1.5, 1.0),
        (1.0, math.nan, 1.0),
        (2.0, 4.0, 0.0),
        (3.0, 4.0, 0.0),
        (0.0, 4.0, 0.0),
    ],
)
def test_how_far_a_limit_is_between_two_loads(low: float, high: float, share: float) -> None:
    assert _share(values(ttft=low), values(ttft=high), TTFT) == pytest.approx(share)


def scan_of(
    *, follows: bool = False, sessions: bool = False, measured: bool = True, **changed: Any
) -> tuple[LoadScan, list[str]]:
    """A scan of an instance that completes 100 by closed form and 200 when measured, and what was
    measured."""
    calls: list[str] = []

    def saturation(instance: Any) -> float:
        calls.append("saturation")
        return 200.0

    instance = SimpleNamespace(
        saturation_estimate=lambda: 100.0,
        recorded_sessions=object() if sessions else None,
        follows=follows,
        held_rate=lambda rate: rate,
        traffic=SimpleNamespace(sharing=None),
        USUAL=0.5,
    )
    runs = SimpleNamespace(
        saturation=saturation, knows_saturation=lambda instance: measured, **changed
    )
    return LoadScan(runs, instance), calls


def test_when_a_queue_settles() -> None:
    """Up to 0.8 of the closed form it does without a measurement, up to 0.98 of a measured
    saturation with one; sessions do up to four times the closed form."""
    scan, calls = scan_of()
    assert (SURELY, WAITING) == (0.8, 4.0)
    assert scan.settles(place_of(79.9))
    assert calls == []
    assert scan.settles(place_of(195.9))
    assert not scan.settles(place_of(199.0))
    assert len(calls) == 2
    assert scan.most == pytest.approx(196.0)
    scan, calls = scan_of(sessions=True)
    assert scan.settles(place_of(399.9))
    assert not scan.settles(place_of(410.0))
    assert calls == []


@pytest.mark.parametrize(
    ("follows", "measured", "unsettled", "surely"),
    [(False, False, False, False), (False, True, True, False), (True, False, True, True)],
)
def test_what_is_known_not_to_settle_is_not_run(
    follows: bool, measured: bool, unsettled: bool, surely: bool
) -> None:
    scan, _ = scan_of(follows=follows, measured=measured)
    above = place_of(250.0)
    assert (scan._known_unsettled(above), scan._surely_unsettled(above)) == (unsettled, surely)
    assert not scan._known_unsettled(place_of(150.0))
    assert not scan._surely_unsettled(place_of(150.0))


def test_without_limits_a_load_that_settles_is_inside_them_and_no_run_is_made() -> None:
    scan, _ = scan_of(open=None)
    assert scan.holds(place_of(190.0), (), SURE)
    assert not scan.holds(place_of(200.0), (), SURE)


def lengths_of_runs(
    used: dict[int, float], place: int, care: Any, growth: float = 0.0, top: int = 1_000
) -> tuple[bool, list[int]]:
    """Whether a load holds by the shares of a limit that runs of each length use, and which are
    made."""
    runs_made: list[int] = []

    def run(instance: Any, instances: int, rate: float, length: int) -> Seen:
        runs_made.append(length)
        return Seen(summary=values(ttft=2.0 * used[length]), requests=1, growth=growth)

    scan, _ = scan_of(open=run)
    scan.__dict__["top"] = top
    return scan.holds(place, (TTFT,), care), runs_made


@pytest.mark.parametrize(
    ("used", "care", "holds", "made_runs"),
    [
        ({0: 0.7}, SURE, True, [0]),
        ({0: 0.72, 1: 0.86}, SURE, True, [0, 1]),
        ({0: 0.72, 1: 0.88, 2: 1.0}, SURE, True, [0, 1, 2]),
        ({0: 1.9, 1: 1.1, 2: 1.01}, SURE, False, [0, 1, 2]),
        ({0: 1.9, 1: 1.16}, SURE, False, [0, 1]),
        ({0: 2.1}, SURE, False, [0]),
        ({0: 0.72, 1: 1.0}, QUICK, True, [0, 1]),
        ({0: 0.72, 1: 1.01}, QUICK, False, [0, 1]),
    ],
)
def test_short_runs_say_what_is_clear(
    used: dict[int, float], care: Any, holds: bool, made_runs: list[int]
) -> None:
    assert lengths_of_runs(used, place_of(100.0), care) == (holds, made_runs)


def test_near_saturation_and_where_runs_grow_the_shortest_does_not_say_that_limits_hold() -> None:
    used, place = {0: 0.1, 1: 0.1, 2: 0.1}, place_of(100.0)
    assert lengths_of_runs(used, place, SURE, top=place + 33) == (True, [0])
    assert lengths_of_runs(used, place, SURE, top=place + NEAR_SATURATION) == (True, [0, 1])
    assert lengths_of_runs(used, place, SURE, growth=1.0) == (True, [0])
    assert lengths_of_runs(used, place, SURE, growth=1.05) == (False, [0, 1, 2])
    assert lengths_of_runs(used, place, SURE, growth=1.2) == (False, [0, 1])
    assert lengths_of_runs(used, place, SURE, growth=2.1) == (False, [0])


def test_where_a_search_begins_and_which_load_is_the_highest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By closed forms: at saturation in strides of eight places, and at half of what a limit
    leaves."""
    monkeypatch.setattr(
        "tonnage.sizing.loads.load_scan.rate_bound", lambda instance, slo: 64.0 if slo else 1_000.0
    )
    scan, _ = scan_of()
    assert scan.top % STRIDE == 0
    assert scan.top == 632  # 64 log2(1000) is 637.8
    assert scan.start((TTFT,)) == 64 * 5
    assert scan.start(()) == place_of(500.0)


@pytest.mark.parametrize(
    ("shows", "care", "limit_s"), [(1, SURE, 4.0), (2, SURE, 4.0), (2, QUICK, 1.0), (9, SURE, 1.0)]
)
def test_what_breaks_is_named_by_the_shortest_run_that_shows_it(
    shows: int, care: Any, limit_s: float
) -> None:
    """And as saturation where no run shows a limit that breaks."""
    runs_made: list[int] = []

    def run(instance: Any, instances: int, rate: float, length: int) -> Seen:
        runs_made.append(length)
        return Seen(summary=values(ttft=4.0 if length >= shows else 1.0), requests=1)

    scan, _ = scan_of(open=run)
    outcome = scan._broken(64 * 7, (TTFT,), care)
    assert (outcome.rate, outcome.summary.limit_s(TTFT)) == (128.0, limit_s)
    assert outcome.limit == (TTFT if limit_s == 4.0 else None)
    assert runs_made == [0, 1, 2][: min(shows, care) + 1]
    scan, _ = scan_of(open=run, follows=True)
    runs_made.clear()
    scan._broken(place_of(250.0), (TTFT,), care)
    assert runs_made == [0], "a closed form says that no queue settles"


def test_a_load_above_a_limit_that_grows_is_read_at_the_load_below() -> None:
    """What a run that was not steady shows says nothing about the load at which a limit is used
    up."""

    class Growing(Curve):
        def _open(self, instance: Any, instances: int, rate: float, length: int) -> Seen:
            steady = super()._open(instance, instances, rate, length)
            return replace(steady, growth=2.0 if rate > 300.0 else 0.0)

    read = Growing(lambda rate, length: rate).highest(limit(310.0), care=SURE)
    assert isinstance(read, Highest)
    assert read.rate == on_lattice(place_of(300.0) // 4 * 4)
    assert read.summary.limit_s(None) == read.rate
    straight = Curve(lambda rate, length: rate).highest(limit(310.0), care=SURE)
    assert straight.limit == limit(310.0)[0]
    assert straight.summary.limit_s(None) == on_lattice(place_of(310.0) // 4 * 4)


@pytest.mark.parametrize(("care", "below", "above"), [(QUICK, 528, 536), (SURE, 532, 536)])
def test_the_two_loads_between_which_an_answer_is_read(care: Any, below: int, above: int) -> None:
    """330 is at place 535 of the lattice."""
    scan = Curve(lambda rate, length: rate if rate <= on_lattice(534) else 2 * rate)
    highest = scan.highest(limit(330.0), care=care)
    assert isinstance(highest, Highest)
    assert above - below == WIDTH[care]
    low, high = on_lattice(below), on_lattice(above)
    share = math.log(330 / low) / math.log(2 * high / low)
    assert highest.rate == pytest.approx(low * (high / low) ** share, rel=1e-9)
    assert highest.summary.limit_s(None) == low
    assert {rate for length, rate in scan.runs_made if length == care} >= {low, high}


@pytest.mark.parametrize(
    ("begin", "target", "places"),
    [
        (1.0, 999.0, [0, 8, 24, 56, 120, 248, 504, 1_016]),
        (1_000.0, 0.3, [632, 624, 608, 576, 512, 384, 128, -122]),
        (8.0, 1e-9, [192, 184, 168, 136, 72, -56, -122]),  # never 4,096 times below the highest
    ],
)
def test_a_search_goes_up_or_down_by_twice_as_many_places_each_time(
    begin: float, target: float, places: list[int]
) -> None:
    scan = Curve(lambda rate, length: rate, begin=begin)
    scan.highest(limit(target))
    tried = dict.fromkeys(rate for _, rate in scan.runs_made)
    assert [round(64 * math.log2(rate)) for rate in tried][: len(places)] == places


def test_what_the_longest_runs_take_back_is_read_downwards_until_it_is_no_better() -> None:
    """Short runs are clear up to saturation; the longest breaks above 300, or everywhere."""
    late = Curve(lambda rate, length: rate if length == SURE else 0.1)
    assert rate_of(late.highest(limit(300.0), above=290.0, care=SURE)) == pytest.approx(300.0)
    broken = late.highest(limit(300.0), above=310.0, care=SURE)
    assert isinstance(broken, Broken)
    assert broken.rate == on_lattice(place_of(310.0) // 4 * 4)
    assert broken.limit == limit(300.0)[0]
    never = Curve(lambda rate, length: 9.0 if length == SURE else 0.1)
    lowest = never.highest(limit(1.0), care=SURE)
    assert isinstance(lowest, Broken)
    assert place_of(lowest.rate) - (never.top - LOWEST) in range(4)


@pytest.mark.parametrize("follows", [True, False])
def test_whether_limits_hold_to_the_end_of_the_longest_run(follows: bool) -> None:
    """Of conversations alone, and where the longest decides."""
    runs_made: list[int] = []

    def run(instance: Any, instances: int, rate: float, length: int) -> Seen:
        runs_made.append(length)
        return Seen(summary=values(ttft=2.0), requests=1, growth=rate)

    scan, _ = scan_of(open=run, follows=follows)
    assert scan._lasts(place_of(2.0), (TTFT,), QUICK)
    assert runs_made == []
    assert scan._lasts(place_of(1.0), (TTFT,), SURE)
    assert scan._lasts(place_of(2.0), (TTFT,), SURE) == (not follows)
    assert runs_made == ([SURE] * 2 if follows else [])


def test_without_limits_conversations_are_run_all_the_same() -> None:
    """They may lose their blocks below saturation."""
    runs_made: list[int] = []

    def run(instance: Any, instances: int, rate: float, length: int) -> Seen:
        runs_made.append(length)
        return Seen(summary=values(), requests=1, growth=9.0 if rate > 100.0 else 0.0)

    scan, _ = scan_of(open=run)
    scan.__dict__["top"] = 1_000
    scan.instance.traffic.sharing = object()
    assert scan.holds(place_of(50.0), (), SURE)
    assert not scan.holds(place_of(150.0), (), SURE)
    assert runs_made == [0, 0]


@pytest.mark.parametrize(("rate", "shown"), [(128.0, 128.0), (256.0, 196.0)])
def test_above_saturation_the_highest_load_that_settles_is_run(rate: float, shown: float) -> None:
    runs_made: list[Any] = []

    def run(instance: Any, instances: int, load: float, length: int) -> Any:
        runs_made.append((instances, pytest.approx(load), length))
        return "seen"

    scan, _ = scan_of(open=run)
    assert scan._next(place_of(rate), SURE) == ("seen", pytest.approx(shown))
    assert runs_made == [(1, shown, SURE)]


@pytest.mark.parametrize("care", [QUICK, SURE])
def test_a_short_run_that_is_too_bad_does_not_make_an_answer(care: Any) -> None:
    """The load is read upwards from what short runs said, as the longest sees each."""
    pessimistic = Curve(lambda rate, length: rate if length == care else 3.0 * rate)
    assert rate_of(pessimistic.highest(limit(300.0), care=care)) == pytest.approx(300.0)
    late = Curve(lambda rate, length: 1.0 if length == care or rate < 400 else 5.0)
    assert rate_of(late.highest(limit(2.0), care=care)) == pytest.approx(1_000.0)
