"""Work in the background: the hours that suit it, what they leave free, and the limits of others."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.questions import question
from tests.simulator.kernel.compared import CLASSES_COMPILED
from tests.strategies import examples
from tonnage.plan.use_cases import Background, UseCases
from tonnage.report.plans.use_cases import use_cases_text
from tonnage.report.writers.terminal import terminal
from tonnage.results.requests import COMPLETED
from tonnage.sizing import background
from tonnage.sizing.background import (
    HALVINGS,
    MOST_TRIED,
    STABLE,
    Job,
    as_stream,
    done_within,
    filled,
    free_rate,
    free_rates,
    hourly,
)
from tonnage.sizing.mixture import Mixture
from tonnage.sizing.planner import size
from tonnage.sizing.use_cases import Asked, Tried, _case, use_cases

HOUR_S = 3600.0
PROFILE = tuple(20.0 + 80.0 * max(0.0, np.sin(np.pi * (hour - 7) / 14)) for hour in range(24))
OF_ALL = {"engine": "vllm", "tp": "1", "precision": "fp8"}
CHAT: dict[str, Any] = {
    "isl": 800,
    "osl": 150,
    "profile": list(PROFILE),
    "peak_rps": None,
    "ttft": "p95<=400ms",
}
JOB: dict[str, Any] = {
    "isl": 1500,
    "osl": 300,
    "requests": 1_500_000,
    "within": "24h",
    "peak_rps": None,
    "ttft": None,
}


def test_a_job_begins_at_the_hour_that_suits_it() -> None:
    free = [0.0] * 20 + [10.0, 20.0, 10.0, 0.0]
    assert done_within(free, HOUR_S) == 20 * HOUR_S
    assert done_within(free, 2 * HOUR_S) == 30 * HOUR_S
    assert done_within(free, 1.5 * HOUR_S) == pytest.approx(0.75 * 30 * HOUR_S)
    assert done_within(free, 48 * HOUR_S) == pytest.approx(2 * 40 * HOUR_S)
    wrapped = [5.0] + [0.0] * 22 + [5.0]
    assert done_within(wrapped, 2 * HOUR_S) == 10 * HOUR_S
    busier = [*free * 6, *(rate / 2 for rate in free)]
    assert done_within(busier, HOUR_S) == 10 * HOUR_S


@examples(0.3)
@given(st.lists(st.floats(0, 100), min_size=24, max_size=24), st.integers(1, 24))
def test_longer_windows_never_do_less_and_none_beats_the_whole_day(
    free: list[float], hours: int
) -> None:
    done = [done_within(free, window * HOUR_S) for window in range(1, hours + 1)]
    assert all(later >= earlier - 1e-6 for earlier, later in pairwise(done))
    assert done[-1] <= sum(free) * HOUR_S * (1 + 1e-9)


@cache
def asked(name: str, priority: int, **changed: Any) -> Asked:
    base = {"chat": CHAT, "job": JOB, "second": {**CHAT, "isl": 2000, "ttft": "p95<=2s"}}[name]
    of = replace(question(**{**OF_ALL, **base, **changed}), deepen=False, tune=False)
    return Asked(name=name, question=of, plan=size(of), priority=priority)


@CLASSES_COMPILED
def test_what_is_free_holds_the_limits_of_the_others_and_half_as_much_more_does_not_fit() -> None:
    chat, job = asked("chat", 0), asked("job", 1)
    candidate = chat.plan.candidates[0]
    cases = [_case(chat, candidate)]
    of_job = _case(replace(job, question=as_stream(job.question)), candidate)
    assert [max(hour[0] for hour in hourly(cases))] == [cases[0].rate]
    work = Job(case=of_job, requests=1_500_000, seconds=24 * HOUR_S)
    instances = 4
    quiet = [replace(cases[0], rate=cases[0].rate / 5)]
    busy, free = free_rate(cases, work, instances), free_rate(quiet, work, instances)
    assert 0 <= busy < free
    both = [*quiet, replace(of_job, rate=free)]
    run = Mixture(both, by_priority=True).run(instances)
    assert run.holds
    more = [*quiet, replace(of_job, rate=1.5 * free)]
    assert not Mixture(more, by_priority=True).run(instances).holds
    record, owners = run.record, run.owners
    assert (record.status == COMPLETED).all()
    assert {int(place): int((owners == place).sum()) for place in (0, 1)} == {
        0: int((owners == 0).sum()),
        1: len(record) - int((owners == 0).sum()),
    }
    assert filled(cases, replace(work, requests=1e12), instances, instances + 1) is None


@CLASSES_COMPILED
def test_a_pool_by_priority_holds_asked_directly_and_one_instance_fewer_does_not() -> None:
    classes = asked("chat", 0), asked("second", 1)
    found = use_cases(classes)
    assert UseCases.from_json(found.to_json()) == found
    assert found.priorities == (0, 1)
    assert found.background is None
    arrangements = [found.shared, found.first_come, found.separate]
    counts = [(one.gpus, one.gpus_in_use) for one in arrangements if one is not None]
    assert (found.choice.gpus, found.choice.gpus_in_use) == min(counts)
    (pool,) = found.shared.pools
    assert pool.knobs.queue_order == "priority"
    candidate = next(
        one for plan in found.plans for one in plan.candidates if one.identity == pool.identity
    )
    cases = Tried(asked=classes).of(candidate)
    assert Mixture(cases, by_priority=True).run(pool.instances).holds
    assert not Mixture(cases, by_priority=True).run(pool.instances - 1).holds
    text = " ".join(terminal(use_cases_text(found)).split())
    assert "against a pool for each" in text


@CLASSES_COMPILED
def test_a_job_fills_the_night_of_a_pool_and_what_is_lacking_takes_more_instances() -> None:
    small, large = (
        use_cases((asked("chat", 0), asked("job", 1, requests=requests)))
        for requests in (300_000, 9_000_000)
    )
    for found in (small, large):
        assert UseCases.from_json(found.to_json()) == found
        assert found.not_first_come.code == "demand"
        job = found.background
        assert done_within(job.requests_per_second, job.within_seconds) >= job.requests
        assert len(job.requests_per_second) == 24
        quietest, busiest = PROFILE.index(min(PROFILE)), PROFILE.index(max(PROFILE))
        assert job.requests_per_second[quietest] > job.requests_per_second[busiest]
    assert (small.background.free_share, small.background.more_instances) == (1.0, 0)
    assert small.shared.gpus_in_use < small.separate.gpus_in_use
    assert large.background.more_instances > 0
    assert large.background.free_share < 1
    assert small.background.free_requests == large.background.free_requests
    text = " ".join(terminal(use_cases_text(large)).split())
    assert f"{large.background.more_instances} more instances for the rest" in text


@pytest.mark.parametrize(
    ("hours", "simulated"),
    [(range(24), [0, 6, 12, 17, 23]), (range(5), [0, 1, 2, 3, 4]), ([3, 3, 3, 7], [3, 7])],
)
def test_of_a_profile_five_hours_are_simulated_and_a_line_joins_them(
    hours: Any, simulated: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two use cases whose instances carry 10 requests/s: an hour uses a fifth of its rate."""
    looked: list[tuple[float, ...]] = []

    def free(cases: Any, job: Any, instances: int) -> float:
        looked.append(tuple(one.rate for one in cases))
        return 100.0 - 2 * looked[-1][0]

    monkeypatch.setattr("tonnage.sizing.background.free_rate", free)
    rates = [(float(hour), float(hour)) for hour in hours]
    monkeypatch.setattr("tonnage.sizing.background.hourly", lambda cases: rates)
    cases = [Carried(rate=0.0, sized=Carried(rate=10.0, sized=None)) for _ in range(2)]
    found = free_rates(cases, None, 3)  # type: ignore[arg-type]
    assert looked == [(float(hour), float(hour)) for hour in simulated]
    assert found == pytest.approx([100.0 - 2 * hour for hour in hours])


@dataclass(frozen=True)
class Carried:
    """A use case as far as its rates go."""

    rate: float
    sized: Any


@dataclass(frozen=True)
class Stream:
    """A case of which a mixture looks at the rate alone."""

    rate: float = 0.0


class Room:
    """A mixture that holds its limits while the job takes no more than 7.3 requests per second."""

    def __init__(self, cases: list[Stream], by_priority: bool = False) -> None:
        self.parts = [SimpleNamespace(saturation=10.0) for _ in cases]
        self.parts[-1].saturation = 20.0  # of the job
        self.cases = cases

    def run(self, instances: int) -> Any:
        return SimpleNamespace(holds=self.cases[-1].rate <= 7.3)


def test_the_free_rate_is_the_highest_that_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tonnage.sizing.background.Mixture", Room)
    job: Any = SimpleNamespace(case=Stream())
    cases: Any = [Stream(4.0), Stream(0.0)]
    most = 20 * (2 * STABLE - 0.4)
    # of sixteenths of all that closed forms leave, 30 requests per second
    assert (HALVINGS, free_rate(cases, job, 2)) == (4, pytest.approx(most * 3 / 16))
    few: Any = [Stream(10 * STABLE - 2.0)]
    assert free_rate(few, job, 1) == pytest.approx(4.0)  # all that closed forms leave
    assert free_rate([*few, *cases], job, 1) == 0.0


@pytest.mark.parametrize(
    ("per_instance", "most", "more", "free"),
    [
        (2.0, 99, 0, 9_000.0),  # five instances leave 9,000 free
        (1.0, 99, 5, 4_500.0),
        (1.0, 9, None, None),
        (1.0, 10, 5, 4_500.0),
        (0.0, 10**6, None, None),  # six numbers are tried
    ],
)
def test_a_job_takes_as_many_instances_more_as_it_lacks(
    per_instance: float,
    most: int,
    more: int | None,
    free: float | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """9,000 requests in 900 s; each instance has so many free a second, of ten that it carries."""
    looked: list[int] = []

    def rates(cases: Any, job: Any, count: int) -> tuple[float, ...]:
        looked.append(count)
        return (per_instance * count,)

    monkeypatch.setattr(background, "free_rates", rates)
    monkeypatch.setattr(background, "done_within", lambda rates, seconds: rates[0] * seconds)
    saturation = 10 / STABLE / 10 * 1.02
    monkeypatch.setattr(
        background,
        "Mixture",
        lambda cases: SimpleNamespace(parts=[SimpleNamespace(saturation=saturation)]),
    )
    of: Any = SimpleNamespace(name="job", instances_exact=1.25)
    job = Job(case=of, requests=9_000.0, seconds=900.0)
    done = filled((), job, 5, most)
    if more is None:
        assert done is None
        assert len(looked) <= MOST_TRIED
        assert len(looked) == (MOST_TRIED if per_instance == 0.0 else 2)
        return
    assert done == Background(
        name="job",
        requests=9_000.0,
        within_seconds=900.0,
        free_requests=free,
        more_instances=more,
        instances_exact=1.25,
        requests_per_second=(per_instance * (5 + more),),
    )


def test_the_rates_of_each_hour_are_those_of_the_profiles() -> None:
    """One of a week and one of a day, and one that is always the same."""

    def streamed(rate: float, profile: Any) -> Any:
        demand = SimpleNamespace(profile=profile)
        contender = SimpleNamespace(question=SimpleNamespace(demand=demand))
        return SimpleNamespace(rate=rate, sized=SimpleNamespace(contender=contender))

    week = tuple(float(hour) for hour in range(168))
    day = (2.0,) * 23 + (4.0,)
    rows = hourly([streamed(334.0, week), streamed(10.0, day), streamed(3.0, None)])
    assert rows == [(2.0 * hour, 10.0 if hour % 24 == 23 else 5.0, 3.0) for hour in range(168)]
    assert hourly([streamed(3.0, None)]) == [(3.0,)] * 24
