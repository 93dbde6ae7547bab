"""The highest load of a queue whose capacity is known, found through the same verdict and the same
record as over the wire."""

from __future__ import annotations

import heapq
import math
import random
from collections import Counter
from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest

from tests.bench.records import SEEN, record
from tonnage.bench.benchmark import Measured
from tonnage.bench.find_max import Answer, Maximum, Threshold, Trial, _widened, find_max, judged
from tonnage.bench.intervals import rank_interval
from tonnage.bench.load import Load
from tonnage.bench.recorder import Tally
from tonnage.bench.steady import find_steady
from tonnage.bench.validity import judge
from tonnage.results.metrics import summarize
from tonnage.spec.deployment import parse_limit

SLOTS = 8
SERVICE_S = 0.2
CAPACITY = SLOTS / SERVICE_S


def measured(rate: float, *, seconds: float, seed: int, late_ms: float = 0.0) -> Measured:
    """A run of the queue at a rate: constant service times, Poisson arrivals (constant ones without
    a seed)."""
    count = int(rate * seconds)
    gaps = (
        np.random.default_rng(seed).exponential(1 / rate, count)
        if seed
        else np.full(count, 1 / rate)
    )
    due = gaps.cumsum()
    free, e2e = [0.0] * SLOTS, []
    for moment in due:
        start = max(heapq.heappop(free), moment)
        heapq.heappush(free, start + SERVICE_S)
        e2e.append((start + SERVICE_S - moment) * 1e3)
    requests = record(np.array(e2e), due=np.rint(due * 1e9).astype(np.int64))
    load = Load(
        isl=requests.isl, osl=requests.osl, due_ns=requests.due_ns, rate=rate, pattern="poisson"
    )
    late = np.full(600, round(late_ms * 1e6)).tolist()
    observed = replace(
        SEEN,
        load=load,
        sent=count,
        tally=Tally(outcomes=Counter({"": count})),
        lateness_ns=late,
        seconds=seconds,
    )
    summary, steady = summarize(requests), find_steady(requests)
    validity = judge(observed, requests, summary, steady)
    return Measured(
        load=load,
        requests=requests,
        summary=summary,
        validity=validity,
        observed=observed,
        good=None,
        summary_json={},
        run_json={},
    )


def search(limit: str, *, seed: int, start: float, seconds: float = 20.0) -> Maximum:
    seeds = iter(range(seed, seed + 1000)) if seed else iter([0] * 100)
    return find_max(
        lambda rate: measured(rate, seconds=seconds, seed=next(seeds)),
        (parse_limit("e2e", limit),),
        start=start,
        whole=False,
    )


@pytest.mark.parametrize("start", [7.0, 33.0, 90.0])
def test_the_capacity_of_a_queue_is_found_within_three_percent_in_twelve_runs(start: float) -> None:
    found = search("p95<=600ms", seed=0, start=start)
    assert len(found.trials) <= 12
    assert found.load == pytest.approx(CAPACITY, rel=0.03)
    assert found.interval[0] <= CAPACITY <= found.interval[1]


@pytest.mark.accuracy
def test_random_arrivals_find_the_load_at_which_the_limit_is_met() -> None:
    long = {
        rate: np.mean([measured(rate, seconds=600, seed=s).summary.e2e_ms.p95 for s in (1, 2, 3)])
        for rate in (32.5, 35.0)
    }
    assert long[32.5] < 390 < long[35.0]
    found = [search("p95<=390ms", seed=1_000 * k, start=20.0, seconds=60) for k in (1, 2, 3)]
    assert all(len(f.trials) <= 12 for f in found)
    assert [f.load for f in found] == pytest.approx([33.7] * 3, rel=0.03)


@pytest.mark.parametrize("limit", ["p95<=250ms", "p95<=600ms", "mean<=400ms"])
def test_the_interval_holds_the_capacity_whatever_room_the_limit_leaves(limit: str) -> None:
    """Arrivals of one rate: the capacity is known, and the limit is met up to it."""
    found = [search(limit, seed=0, start=start) for start in (5.0, 71.0)]
    assert all(each.interval[0] <= CAPACITY <= each.interval[1] for each in found), [
        each.interval for each in found
    ]
    assert all(each.interval[1] / each.interval[0] < 1.2 for each in found)


@pytest.mark.accuracy
def test_the_interval_of_random_arrivals_holds_the_load_of_long_runs_nine_times_in_ten() -> None:
    """Long runs meet the limit at 33.7/s; a search of short ones says an interval, which is to hold
    it at a confidence of 0.9."""
    found = [search("p95<=390ms", seed=1_000 * k, start=20.0, seconds=40) for k in range(1, 21)]
    assert sum(each.interval[0] <= 33.7 <= each.interval[1] for each in found) >= 16


@pytest.mark.parametrize("order", [1, -1])
def test_the_tightest_of_several_limits_decides_whatever_their_order(order: int) -> None:
    tight, loose = parse_limit("e2e", "p95<=600ms"), parse_limit("e2e", "mean<=20s")
    found = [
        find_max(
            lambda rate: measured(rate, seconds=20.0, seed=0),
            limits[::order],
            start=7.0,
            whole=False,
        )
        for limits in ((tight,), (tight, loose))
    ]
    assert found[1].load == pytest.approx(CAPACITY, rel=0.03)
    assert [(trial.load, trial.passed, trial.sure, trial.why) for trial in found[1].trials] == [
        (trial.load, trial.passed, trial.sure, trial.why) for trial in found[0].trials
    ]
    assert found[1].interval == found[0].interval


def test_a_run_that_breaks_one_of_its_limits_has_failed_and_names_it() -> None:
    held, broken, loose = (
        parse_limit("e2e", limit) for limit in ("p95<=250ms", "mean<=150ms", "p99<=20s")
    )
    run = measured(0.8 * CAPACITY, seconds=20.0, seed=0)  # every request takes 200 ms
    assert judged(run.load.rate, run, (held, loose)).passed
    for limits in ((held, broken, loose), (broken, loose, held), (loose, held, broken)):
        trial = judged(run.load.rate, run, limits)
        assert not trial.passed
        assert trial.why == "E2E mean was 200 ms, the limit is 150 ms"


def test_of_few_samples_a_percentile_is_as_sure_as_its_own_ranks() -> None:
    run = measured(38.0, seconds=1.0, seed=2)
    e2e = np.sort(run.requests.last_token_ns - run.requests.due_ns) / 1e6
    low, high = (float(e2e[rank]) for rank in rank_interval(len(e2e), 50, 0.95))
    found = judged(38.0, run, (parse_limit("e2e", "p50<=215ms"),))
    assert found.sure == pytest.approx(
        NormalDist(float(np.median(e2e)), (high - low) / (2 * 1.96)).cdf(215), abs=1e-3
    )


def test_a_client_that_is_too_slow_ends_the_search_and_says_so() -> None:
    found = find_max(
        lambda rate: measured(rate, seconds=20, seed=0, late_ms=0.1 if rate < 30 else 300.0),
        (parse_limit("e2e", "p95<=300ms"),),
        start=10.0,
        whole=False,
    )
    assert [trial.load for trial in found.trials][:2] == [10.0, 20.0]
    assert found.trials[-1].measured.validity.client_limited
    assert found.to_json()["find_max"]["unit"] == "requests/s"


def test_no_load_inside_the_limits_is_said() -> None:
    found = search("p95<=100ms", seed=0, start=8.0)
    assert not any(trial.passed for trial in found.trials)
    assert np.isnan(found.load)


def find_threshold(
    truth: float,
    start: float,
    *,
    whole: bool = False,
    noise: float = 0.0,
    seed: int = 0,
    most: int = 12,
) -> Threshold:
    """Ask until it is found; a load is measured with a relative error of ``noise``."""
    rng = random.Random(seed)
    found = Threshold(start, whole=whole)
    while len(found.answers) < most and not found.found:
        off = math.log(truth / found.load)
        seen = off + rng.gauss(0, noise) if noise else off
        sure = 0.5 * (1 + math.erf(abs(seen) / noise / math.sqrt(2))) if noise else 0.98
        found.tell(passed=seen >= 0, sure=sure)
    return found


@pytest.mark.parametrize("truth", [0.7, 3.0, 27.3, 41.9, 100.0])
def test_clear_answers_come_within_three_percent_in_twelve_runs(truth: float) -> None:
    found = find_threshold(truth, start=10.0)
    assert found.middle == pytest.approx(truth, rel=0.03)
    assert found.found
    low, high = found.interval
    assert low <= truth <= high


def test_answers_near_the_threshold_may_be_wrong() -> None:
    near, held = 0, 0
    for seed in range(100):
        found = find_threshold(50.0, start=20.0, noise=0.03, seed=seed)
        near += abs(found.middle / 50.0 - 1) < 0.05
        low, high = found.interval
        held += low <= 50.0 <= high
    assert near >= 90
    assert held >= 80


def test_clients_are_whole_numbers() -> None:
    found = find_threshold(37.5, start=4, whole=True)
    assert all(answer.load == int(answer.load) for answer in found.answers)
    assert 36 <= found.middle <= 39


def test_a_server_that_fails_at_any_load_ends_the_search_of_clients_at_one() -> None:
    found = find_threshold(0.1, start=4, whole=True)
    assert [answer.load for answer in found.answers] == [4, 2, 1]
    assert math.isnan(found.middle)


def test_a_server_without_a_limit_is_searched_upwards_only() -> None:
    found = find_threshold(1e9, start=1.0, most=5)
    assert [answer.load for answer in found.answers] == [1, 2, 4, 8, 16]
    assert found.middle == 16
    assert found.interval == (16, math.inf)


def test_a_run_that_took_no_time_widens_the_interval_by_no_room() -> None:
    run = measured(10.0, seconds=20.0, seed=0)
    slo = (parse_limit("e2e", "p95<=2s"),)
    widened = {
        seconds: _widened(
            (10.0, 12.0),
            [
                Trial(
                    load=10.0,
                    passed=True,
                    sure=1.0,
                    why="",
                    measured=replace(run, observed=replace(run.observed, seconds=seconds)),
                )
            ],
            slo,
            whole=False,
        )
        for seconds in (0.0, 40.0)
    }
    assert widened[0.0] == pytest.approx((10.0 / 1.02, 12.0 * 1.02))
    assert widened[40.0] == pytest.approx((10.0 / (1.02 + 2.0 / 40.0), 12.0 * 1.02))


@pytest.mark.parametrize(
    ("low", "high", "whole", "ended"),
    [(3.3, 3.9, True, True), (3.3, 3.9, False, False), (3.3, 5.1, True, False)],
)
def test_a_search_for_clients_ends_where_at_most_one_number_is_left(
    low: float, high: float, whole: bool, ended: bool
) -> None:
    threshold = Threshold(4.0, whole=whole)
    threshold._loads, threshold._weights = np.array([low, high]), np.array([0.5, 0.5])
    assert threshold.interval == (low, high)
    assert threshold.found is ended


def test_a_search_doubles_then_halves_and_weighs_the_grid_between() -> None:
    """8 passes and 16 fails: from 4 to 32, the median between the two."""
    search = Threshold(8.0)
    assert (search.load, search.found, search.interval) == (8.0, False, (0.0, math.inf))
    assert math.isnan(search.middle)
    search.tell(passed=True, sure=0.9)
    assert (search.load, search.middle, search.interval) == (16.0, 8.0, (8.0, math.inf))
    search.tell(passed=False, sure=0.9)
    assert search._loads is not None
    assert (search._loads[0], search._loads[-1], len(search._loads)) == (4.0, 32.0, 2_000)
    assert search.middle == pytest.approx(math.sqrt(8 * 16), rel=0.01)
    assert search.load == search.middle
    low, high = search.interval
    assert 8 < low * 1.02 < search.middle < high < 16 * 1.02
    assert [(a.load, a.passed, a.sure) for a in search.answers] == [
        (8.0, True, 0.9),
        (16.0, False, 0.9),
    ]
    down = Threshold(8.0)
    down.tell(passed=False, sure=0.9)
    assert (down.load, down.interval) == (4.0, (0.0, 8.0))
    assert math.isnan(down.middle)


@pytest.mark.parametrize(
    ("sure", "kept"), [(-0.1, 0.5), (0.2, 0.5), (0.5, 0.5), (0.9, 0.9), (1.0, 0.98)]
)
def test_an_answer_is_at_most_so_sure(sure: float, kept: float) -> None:
    search = Threshold(8.0)
    search.tell(passed=True, sure=sure)
    assert search.answers[0].sure == kept


def test_an_answer_weighs_the_loads_by_bayes_rule() -> None:
    """A run at 10 that passes: loads far below it are odd at 0.005, those far above at 0.995, and
    at 10 itself one half; an answer that is half as sure spreads twice as wide."""
    grid = np.array([5.0, 10.0, 10.2, 20.0])
    for passed in (True, False):
        for sure, spread in ((0.98, 0.02 / 0.96), (0.75, 0.04), (0.5, 0.4)):
            search = Threshold(10.0)
            search._loads, search._weights = grid, np.array([0.1, 0.2, 0.3, 0.4])
            search.tell(passed=passed, sure=sure)
            logistic = 1 / (1 + np.exp(-1.702 * np.log(grid / 10) / spread))
            passes = 0.005 + 0.99 * logistic
            weights = np.array([0.1, 0.2, 0.3, 0.4]) * (passes if passed else 1 - passes)
            assert search._weights == pytest.approx(weights / weights.sum())
    assert passes[1] == 0.5


def test_once_settled_the_far_end_of_the_interval_is_looked_at() -> None:
    """Weights of which the middle is 10, and the ends of nine tenths 9 and 12."""
    grid = np.array([9.0, 10.0, 12.0])
    for answers, expected in ((5, 10.0), (6, math.sqrt(10 * 12))):
        search = Threshold(10.0)
        search._loads, search._weights = grid, np.array([0.3, 0.4, 0.3])
        search.answers = [Answer(load=10.0, passed=True, sure=0.5)] * answers
        search._weigh = lambda answer: None  # type: ignore[method-assign]
        search.tell(passed=True, sure=0.5)
        assert search.load == pytest.approx(expected)
    near = Threshold(10.0)
    near._loads, near._weights = np.array([9.4, 10.0, 10.7]), np.array([0.3, 0.4, 0.3])
    near.answers = [Answer(load=10.0, passed=True, sure=0.5)] * 9
    near._weigh = lambda answer: None  # type: ignore[method-assign]
    near.tell(passed=True, sure=0.5)
    assert near.load == 10.0
    assert (near.interval, near.found) == ((9.4, 10.7), False)
    below = Threshold(10.0, precision=0.14)
    below._loads, below._weights = np.array([9.4, 10.0, 10.7]), np.array([0.3, 0.4, 0.3])
    assert below.found
    below._loads = np.array([8.0, 10.0, 10.7])
    below.answers = [Answer(load=10.0, passed=True, sure=0.5)] * 9
    below._weigh = lambda answer: None  # type: ignore[method-assign]
    below.tell(passed=True, sure=0.5)
    assert below.load == pytest.approx(math.sqrt(8 * 10))


def test_clients_are_rounded_and_one_at_least() -> None:
    assert [Threshold(start, whole=True).load for start in (0.2, 2.4, 2.6)] == [1.0, 2.0, 3.0]
    assert Threshold(0.2).load == 0.2


def test_the_result_of_a_search_as_json() -> None:
    run = measured(10.0, seconds=20.0, seed=0)
    trial = Trial(load=10.0, passed=False, sure=0.9, why="w", measured=run)
    summary = run.summary
    assert trial.to_json() == {
        "load": 10.0,
        "passed": False,
        "sure": 0.9,
        "why": "w",
        "verdict": run.validity.verdict,
        "ttft_p95_ms": summary.ttft_ms.p95,
        "tpot_mean_ms": summary.tpot_ms.mean,
        "requests_per_second": summary.requests_per_second,
    }
    found = Maximum(
        load=9.0,
        interval=(8.0, 10.0),
        precise=True,
        client_limited=False,
        unit="clients",
        limits=("a",),
        trials=(trial,),
    )
    assert found.to_json() == {
        "find_max": {
            "load": 9.0,
            "interval": [8.0, 10.0],
            "confidence": 0.9,
            "precise": True,
            "client_limited": False,
            "unit": "clients",
            "limits": ["a"],
        },
        "runs": [trial.to_json()],
    }


@pytest.mark.parametrize(
    ("limits", "passed", "whole", "room"),
    [
        (("e2e p95<=400ms",), True, False, 0.02),
        (("e2e p95<=400ms", "ttft p95<=200ms"), True, False, 0.01),
        (("tpot p95<=400ms",), True, False, 0.0),
        (("e2e p95<=9s",), True, False, 0.05),
        (("e2e p95<=400ms",), False, False, 0.0),
        (("e2e p95<=400ms",), True, True, 0.0),
    ],
)
def test_the_interval_is_widened_by_the_room_that_a_limit_leaves(
    limits: tuple[str, ...], passed: bool, whole: bool, room: float
) -> None:
    """A run of 20 s; of several that passed, the one at the highest load."""
    run = measured(10.0, seconds=20.0, seed=0)
    odd = replace(run, observed=replace(run.observed, seconds=1.0))
    trials = [
        Trial(load=load, passed=ok, sure=1.0, why="", measured=made)
        for load, ok, made in ((5.0, passed, odd), (10.0, passed, run), (20.0, False, odd))
    ]
    slo = tuple(parse_limit(*text.split(" ", 1)) for text in limits)  # type: ignore[arg-type]
    low, high = _widened((10.0, 12.0), trials, slo, whole=whole)
    assert (low, high) == (pytest.approx(10.0 / (1.02 + room)), pytest.approx(12.0 * 1.02))


def test_the_ends_of_the_grid_are_loads_of_it() -> None:
    search = Threshold(8.0)
    search._loads = np.arange(2_000.0)
    search._weights = np.zeros(2_000)
    search._weights[-1] = 1.0
    assert [search._quantile(share) for share in (0.0, 0.5, 1.0, 1.5)] == [
        0.0,
        1999.0,
        1999.0,
        1999.0,
    ]


def test_a_latency_of_zero_is_inside_its_limit_for_sure() -> None:
    run = measured(10.0, seconds=20.0, seed=0)
    requests = replace(
        run.requests, last_token_ns=run.requests.due_ns, first_token_ns=run.requests.due_ns
    )
    made = replace(run, requests=requests, summary=summarize(requests))
    trial = judged(10.0, made, (parse_limit("e2e", "p95<=1s"),))
    assert (trial.passed, trial.sure, trial.why) == (True, 0.98, "")


def test_a_search_is_its_runs_in_order_and_what_they_say() -> None:
    """Two runs inside the limits and no more asked for: nothing failed, and the client kept up."""
    loads: list[float] = []

    def run(load: float) -> Measured:
        loads.append(load)
        return measured(load, seconds=20.0, seed=0)

    slo = (parse_limit("e2e", "p95<=600ms"),)
    found = find_max(run, slo, start=5.0, whole=False, most_runs=2)
    assert loads == [5.0, 10.0]
    assert [(trial.load, trial.passed, trial.why) for trial in found.trials] == [
        *((5.0, True, ""), (10.0, True, "")),
    ]
    assert (found.load, found.precise, found.client_limited) == (10.0, False, False)
    assert (found.unit, found.limits) == ("requests/s", ("E2E p95 ≤ 600 ms",))
    assert found.interval == (pytest.approx(10.0 / (1.02 + 0.6 / 20.0)), math.inf)
    clients = find_max(run, slo, start=1.0, whole=True, most_runs=1)
    assert (clients.unit, clients.interval) == ("clients", (pytest.approx(1 / 1.02), math.inf))
    none = find_max(run, slo, start=5.0, whole=False, most_runs=0)
    assert (none.trials, none.precise, none.client_limited) == ((), False, False)
    assert math.isnan(none.load)


def test_a_search_that_was_interrupted_ends_without_the_run_under_way() -> None:
    runs = iter([False, True])

    def run(load: float) -> Measured:
        made = measured(load, seconds=20.0, seed=0)
        return replace(made, observed=replace(made.observed, interrupted=next(runs)))

    found = find_max(run, (parse_limit("e2e", "p95<=600ms"),), start=5.0, whole=False)
    assert [trial.load for trial in found.trials] == [5.0]
    assert (found.load, found.client_limited, found.precise) == (5.0, False, False)


def test_a_client_that_was_late_in_a_run_that_passed_goes_on() -> None:
    """Late by 300 ms where every request takes 200 ms and the limit is far off; where it fails the search is over."""
    slow = (parse_limit("e2e", "p95<=9s"),)
    found = find_max(
        lambda rate: measured(rate, seconds=20.0, seed=0, late_ms=300.0),
        slow,
        start=5.0,
        whole=False,
        most_runs=2,
    )
    assert ([trial.load for trial in found.trials], found.client_limited) == ([5.0, 10.0], False)
    assert found.trials[0].measured.validity.client_limited
    tight = (parse_limit("e2e", "p95<=100ms"),)
    late = find_max(
        lambda rate: measured(rate, seconds=20.0, seed=0, late_ms=300.0),
        tight,
        start=5.0,
        whole=False,
    )
    assert ([trial.load for trial in late.trials], late.client_limited) == ([5.0], True)
    assert (late.precise, late.interval) == (False, (0.0, math.inf))
    assert math.isnan(late.load)
