"""One pool under several use cases: whose each request is, and the worst limit."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sizing.loads.instances import traffic
from tests.sizing.mixtures import asked
from tests.sizing.search.contenders import TPOT, TTFT
from tonnage.plan.limit import Breach, LimitUse, limit_of
from tonnage.plan.use_cases import CaseAtPeak
from tonnage.results.metrics import Latencies, gap_percentile_ns
from tonnage.results.requests import GAP_BINS, gap_edges_ns
from tonnage.sizing.mixture import (
    FEWEST_OF_A_CASE,
    LEAST_IN_ALL,
    LEAST_REQUESTS,
    LIFETIMES,
    LOADED,
    MOST_OF_A_RUN,
    STABLE,
    Case,
    Mixture,
    MixtureRun,
    Part,
    burst_factor,
)
from tonnage.sizing.use_cases import _case
from tonnage.spec.lengths import Lengths
from tonnage.spec.workload import OpenLoop, Trace


def test_the_books_of_a_mixture_know_whose_each_request_is() -> None:
    cases = [_case(one, one.plan.candidates[0]) for one in (asked("chat"), asked("documents"))]
    run = Mixture([case for case in cases if case is not None]).run(5)
    assert (run.owners == (run.record.isl > 2_000)).all()
    share = (run.owners == 1).mean()
    assert share == pytest.approx(7.2 / 107.2, rel=0.02)


def test_the_worst_limit_is_the_one_that_is_exceeded_by_the_largest_factor() -> None:
    def worst(*used: float | None) -> Any:
        uses = [
            (SimpleNamespace(limit=place, value_ms=each, used=each),)
            for place, each in enumerate(used)
        ]
        cases = [SimpleNamespace(name=f"case {place}") for place in range(len(used))]
        return MixtureRun.worst.func(
            SimpleNamespace(uses=uses, mixture=SimpleNamespace(cases=cases))
        )  # type: ignore[arg-type]

    assert worst(1.0, None, 0.5) is None
    assert [worst(*used)[0] for used in ((1.2, 1.5, 1.1), (1.01, None, 0.9), (0.2, 1.4, 1.39))] == [
        "case 1",
        "case 0",
        "case 1",
    ]


@given(
    st.lists(st.integers(1, 500), min_size=1, max_size=60),
    st.lists(st.integers(1, 500), max_size=60),
    st.sampled_from([50, 90, 95, 99]),
)
@settings(max_examples=40)
def test_the_bound_on_one_use_cases_gaps_is_no_less_than_its_percentile(
    own: list[int], others: list[int], p: int
) -> None:
    """Of any own gaps among all: the (1 − (1 − p)/share)-th percentile of all bounds the p-th of
    its own."""
    milliseconds = np.array(own + others) * 1_000_000
    every, mine = (np.zeros((1, GAP_BINS), dtype=np.int64) for _ in range(2))
    bins = np.searchsorted(gap_edges_ns(), milliseconds, side="right") - 1
    np.add.at(every[0], bins, 1)
    np.add.at(mine[0], bins[: len(own)], 1)
    most = min(1.0, (1 - p / 100) * len(own) / len(milliseconds))
    assert gap_percentile_ns(every, 100 * (1 - most)) >= gap_percentile_ns(mine, p)


def case(
    name: str, rate: float, *, isl: float, longest: int, steps: float = 1.0, **parts: Any
) -> Any:
    """A use case whose requests arrive at a rate, as far as a mixture looks at it."""
    traffic = SimpleNamespace(
        isl=SimpleNamespace(mean=isl, longest=longest),
        osl=SimpleNamespace(longest=10),
        step_factor=steps,
        process=parts.get("process", "poisson"),
        cv=parts.get("cv", 1.0),
    )
    instance = SimpleNamespace(traffic=traffic, alone_e2e_s=parts.get("e2e_s", 2.0))
    return SimpleNamespace(
        name=name,
        rate=rate,
        instances_exact=rate / 10,
        priority=0,
        part=SimpleNamespace(instance=instance, saturation=parts.get("saturation", 20.0)),
    )


def mixture_of(*cases: Any) -> Any:
    made = Mixture.__new__(Mixture)
    made.cases, made.parts = cases, tuple(one.part for one in cases)
    return made


def test_shares_of_an_instance_add_up() -> None:
    """30 requests/s of 20 and 10 of 40: an instance and three quarters, of which 95 % is stable."""
    both = mixture_of(
        case("a", 30.0, isl=100, longest=200),
        case("b", 10.0, isl=900, longest=2_000, saturation=40.0),
    )
    assert both.instances_exact == 4.0
    busy = 30 / 20 + 10 / 40
    assert [both.could_carry(count) for count in (1, 2, 3)] == [
        busy <= STABLE * count for count in (1, 2, 3)
    ]
    exact = mixture_of(case("a", 20 * 2 * STABLE, isl=1, longest=1))
    assert exact.could_carry(2)
    assert not mixture_of(case("a", 20 * 2 * STABLE * 1.001, isl=1, longest=1)).could_carry(2)


def test_a_run_has_enough_requests_of_the_rarest_use_case(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as of one use case, more for bursts, and up to a bound for one that is rare."""
    monkeypatch.setattr(Mixture, "instance", SimpleNamespace(in_flight=50.0))

    def requests(*cases: Any, instances: int = 4, shown: int = 4) -> int:
        return int(mixture_of(*cases)._requests(instances, shown))

    alone = case("a", 40.0, isl=1, longest=1)
    flight = min(50.0, LOADED * 40 / 4 * 2.0)
    count = 4 * max(LEAST_REQUESTS, LIFETIMES * flight, LEAST_IN_ALL / 4)
    assert requests(alone) == round(count)
    assert requests(alone, shown=2) == round(
        2 * max(LEAST_REQUESTS, LIFETIMES * flight, LEAST_IN_ALL / 2)
    )
    bursts = case("a", 40.0, isl=1, longest=1, process="gamma", cv=2.0)
    assert requests(bursts) == round(count * burst_factor("gamma", 2.0))
    rare = case("b", 40.0 / 9_999, isl=1, longest=1)
    assert requests(alone, rare) == round(
        min(max(count, FEWEST_OF_A_CASE * 10_000), max(count, MOST_OF_A_RUN))
    )
    few = case("b", 40.0 / 99, isl=1, longest=1)
    assert requests(alone, few) == pytest.approx(max(count, FEWEST_OF_A_CASE * 100), rel=1e-3)


# The merged stream, and whose each request of a run is, by hand.


def drawn(due_ps: list[int], isl: int, osl: int, seed: int) -> Trace:
    count = len(due_ps)
    return Trace(
        due_ps=np.array(due_ps),
        isl=np.arange(isl, isl + count),
        osl=np.arange(osl, osl + count),
        concurrency=0,
        turnaround_ps=0,
        seed=seed,
    )


@pytest.mark.parametrize(("instances", "share"), [(10, 1.0), (512, 0.5)])
@pytest.mark.parametrize("by_priority", [True, False])
def test_arrivals_of_all_are_one_stream(
    instances: int, share: float, by_priority: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of up to 256 instances; requests of one nanosecond are a nanosecond apart, in order."""
    traces = [
        drawn([0, 5_000, 10_500], 100, 10, 7),
        drawn([5_200, 5_900], 900, 50, 8),
        drawn([30_000], 500, 5, 9),
    ]
    looked: list[Any] = []

    def balanced(workload: Any, arrivals: Any, seed: int) -> Trace:
        looked.append((*workload, arrivals, seed))
        return traces[len(looked) - 1]

    monkeypatch.setattr("tonnage.sizing.mixture.balanced_trace", balanced)
    monkeypatch.setattr(Mixture, "_requests", lambda self, instances, shown: 4 * shown)
    cases = [
        case("a", 30.0, isl=1, longest=1, process="gamma", cv=2.0),
        case("b", 10.0, isl=1, longest=1),
        case("c", 1e-9, isl=1, longest=1),
    ]
    for place, of in enumerate(cases):
        of.priority = 3 - place
        of.part.instance.traffic.seed = 70 + place
        of.part.instance.workload = lambda arrivals, count: (arrivals, count)
    merged = mixture_of(*cases)
    merged.by_priority = by_priority
    trace, owners = merged._trace(instances)
    loops = [
        OpenLoop(rate=30.0 * share, process="gamma", cv=2.0),
        OpenLoop(rate=10.0 * share),
        OpenLoop(rate=1e-9 * share),
    ]
    count = 4 * min(instances, 256)
    assert looked == [
        (loops[0], 3 * count // 4, loops[0], 72),
        (loops[1], count // 4, loops[1], 1_073),
        (loops[2], 1, loops[2], 2_074),
    ]
    assert owners.tolist() == [0, 0, 1, 1, 0, 2]
    assert trace.due_ps.tolist() == [0, 5_000, 6_000, 7_000, 10_000, 30_000]
    assert trace.isl.tolist() == [100, 101, 900, 901, 102, 500]
    assert trace.osl.tolist() == [10, 11, 50, 51, 12, 5]
    assert (trace.concurrency, trace.turnaround_ps, trace.seed) == (0, 0, 7)
    assert (None if trace.priority is None else trace.priority.tolist()) == (
        [3, 3, 2, 2, 3, 1] if by_priority else None
    )
    assert (trace.contents, trace.pause_ps, trace.follows, trace.ttft_ps) == (None,) * 4


@pytest.mark.parametrize(("instances", "shown"), [(3, 3), (300, 256)])
def test_a_run_is_of_the_instances_together(
    instances: int, shown: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Mixture, "_trace", lambda self, count: (f"trace of {count}", "owners"))
    instance = SimpleNamespace(
        traffic=SimpleNamespace(router="random"), together=lambda *what: what
    )
    monkeypatch.setattr(Mixture, "instance", instance)
    mixture = mixture_of(case("a", 20.0 * 4, isl=1, longest=1))
    assert mixture.run(instances) == MixtureRun(
        mixture=mixture,
        record=(f"trace of {instances}", shown, "random"),  # type: ignore[arg-type]
        owners="owners",  # type: ignore[arg-type]
        stable=instances == 300,
    )


@dataclass(frozen=True)
class Deployed:
    """A deployment, as far as a mixture changes it."""

    knobs: Any


@pytest.mark.parametrize("by_priority", [True, False])
def test_one_instance_has_the_longest_requests_and_the_slowest_steps(
    by_priority: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """30 and 10 requests/s of 100 and 900 tokens: 300 on average."""
    short = replace(traffic(100, 50), step_factor=1.5, router="random")
    long = replace(traffic(900, 60), step_factor=1.2)
    spread = Lengths(kind="uniform", mean=900.0, std=90.0, plus=20.0, written="900+-10%")
    long = replace(long, isl=spread)
    made: list[Any] = []
    monkeypatch.setattr("tonnage.sizing.mixture.Instance", lambda *what: made.append(what) or what)
    mixture = Mixture.__new__(Mixture)
    knobs = Knobs("first")
    mixture.cases = tuple(SimpleNamespace(rate=rate) for rate in (30.0, 10.0))  # type: ignore[misc]
    mixture.parts = tuple(
        Part(
            instance=SimpleNamespace(traffic=of, deployment=Deployed(knobs)),  # type: ignore[arg-type]
            slo=(),
            saturation=1.0,
        )
        for of in (short, long)
    )
    mixture.by_priority = by_priority
    deployment, together = mixture.instance  # type: ignore[misc]
    assert mixture.instance is made[0]
    assert len(made) == 1
    assert deployment == Deployed(Knobs("priority") if by_priority else knobs)
    assert together == replace(long, isl=Lengths(mean=300.0), step_factor=1.5)
    assert together.isl.written == ""


@dataclass(frozen=True)
class Knobs:
    """The order of a queue."""

    queue_order: str


@pytest.mark.parametrize("as_predicted", [True, False])
def test_the_parts_are_as_slow_as_the_confidence_allows(as_predicted: bool) -> None:
    def slow(steps: float) -> Any:
        return SimpleNamespace(steps=steps, beyond_steps=lambda limits: (*limits, steps))

    contender = SimpleNamespace(
        as_asked=slow(1.0),
        question=SimpleNamespace(limits=(TTFT,)),
        behind=lambda steps: ("instance", steps),
        saturation=lambda slowdown: 10.0 / slowdown.steps,
    )
    of = SimpleNamespace(contender=contender, slowdown=slow(1.25), rate=8.0)
    one = Case(name="a", rate=20.0, sized=of)  # type: ignore[arg-type]
    assert (one.asked, one.instances_exact, one.priority) == ((TTFT,), 2.5, 0)
    mixture = Mixture([one], as_predicted=as_predicted, by_priority=True)
    steps = 1.0 if as_predicted else 1.25
    assert mixture.parts == (
        Part(instance=("instance", steps), slo=(TTFT, steps), saturation=10.0 / steps),  # type: ignore[arg-type]
    )
    assert (mixture.cases, mixture.as_predicted, mixture.by_priority) == (
        (one,),
        as_predicted,
        True,
    )
    assert not Mixture([one]).as_predicted
    assert not Mixture([one]).by_priority


class Rows(SimpleNamespace):
    """A record of which some rows are taken."""

    def __len__(self) -> int:
        return len(self.osl)

    def some(self, rows: Any) -> list[int]:
        return list(rows.tolist())


def of_mixture(owners: list[int], cases: int = 2, **parts: Any) -> Any:
    """A run of use cases with limits on TTFT and TPOT, twice as tight as asked."""
    tight = tuple(replace(limit, seconds=limit.seconds / 2) for limit in (TTFT, TPOT))
    mixture = SimpleNamespace(
        cases=[
            SimpleNamespace(name=f"case {place}", asked=(TTFT, TPOT), rate=5.0, instances_exact=0.5)
            for place in range(cases)
        ],
        parts=[SimpleNamespace(slo=tight)] * cases,
        as_predicted=False,
    )
    record = Rows(osl=np.array(parts.pop("osl", [1] * len(owners))), **parts)
    return MixtureRun(mixture=mixture, record=record, owners=np.array(owners), stable=True)  # type: ignore[arg-type]


def test_the_requests_of_a_use_case_are_those_of_the_measured_part() -> None:
    """Of a hundred those from the twenty-first to the ninety-seventh."""
    run = of_mixture([0, 1] * 50)
    assert run.of(0) == list(range(20, 97, 2))
    assert run.of(1) == list(range(21, 97, 2))


def test_gaps_of_a_use_case_are_bounded_by_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a hundred gaps it has twenty, from two requests of eleven tokens; at most ten are long."""
    gaps = np.zeros((1, GAP_BINS), np.int64)
    short, long = 1_000, 1_500
    gaps[0, short], gaps[0, long] = 90, 10
    owners, osl = [0, 1, 0, 0, 1, 0], [11, 40, 1, 11, 42, 0]
    monkeypatch.setattr(
        "tonnage.sizing.mixture.summarize", lambda rows: Summed(Latencies(mean=len(rows) * 3.0))
    )
    run = of_mixture(owners, osl=osl, gaps=gaps)
    bounds = run.summary(0).itl_ms
    below, above = (gap_percentile_ns(gaps, p) / 1e6 for p in (89.0, 98.0))
    assert below < above
    # the median is the tenth longest of all at most, the 90th percentile the second longest
    assert bounds.mean == 3.0 * len(run.of(0))
    assert bounds.p50 == gap_percentile_ns(gaps, 90.0) / 1e6
    assert (bounds.p90, bounds.p95, bounds.p99) == tuple(
        pytest.approx(gap_percentile_ns(gaps, p) / 1e6) for p in (98.0, 99.0, 99.8)
    )
    # as many gaps as all: each percentile is that of all
    alone = of_mixture([0] * 3, osl=[51, 51, 1], gaps=gaps)._gaps(0, None)
    assert alone.p50 == gap_percentile_ns(gaps, 50.0) / 1e6
    assert (alone.mean, alone.p95) == (None, gap_percentile_ns(gaps, 95.0) / 1e6)
    most = of_mixture([0] * 3, osl=[501, 51, 1], gaps=gaps)._gaps(0, None)
    assert most.p50 == gap_percentile_ns(gaps, 0.0) / 1e6
    assert of_mixture(owners, osl=[1] * 6, gaps=gaps)._gaps(0, 1.0) == Latencies()
    assert of_mixture(owners, osl=osl, gaps=0 * gaps)._gaps(0, 1.0) == Latencies()


@dataclass(frozen=True)
class Summed:
    """The metrics of some requests, as far as limits look at them."""

    itl_ms: Any = None
    values: Any = None
    ttft_ms: Any = None
    tpot_ms: Any = None
    e2e_ms: Any = None

    def limit_s(self, limit: Any) -> float:
        return float(self.values[limit.metric])


def test_limits_are_held_as_much_tighter_as_the_confidence_asks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """TTFT may take 2 s and counts twice; TPOT 0.5 s."""
    summaries = (
        Summed(values={"ttft": 0.5, "tpot": math.nan}, ttft_ms="t", tpot_ms="p", e2e_ms="e"),
        Summed(values={"ttft": 1.5, "tpot": 0.3}, ttft_ms="u", tpot_ms="q", e2e_ms="f"),
    )
    monkeypatch.setattr(MixtureRun, "summary", lambda self, place: summaries[place])
    run = of_mixture([0, 1])
    uses = (
        (
            LimitUse(limit=limit_of(TTFT), value_ms=1_000.0, used=0.5),
            LimitUse(limit=limit_of(TPOT), value_ms=None, used=None),
        ),
        (
            LimitUse(limit=limit_of(TTFT), value_ms=3_000.0, used=1.5),
            LimitUse(limit=limit_of(TPOT), value_ms=600.0, used=1.2),
        ),
    )
    assert run.uses == uses
    assert run.worst == ("case 1", Breach(limit=limit_of(TTFT), value_ms=3_000.0))
    assert not run.holds
    single = of_mixture([0], 1)
    assert (single.worst, single.holds) == (None, True)
    assert not replace(single, stable=False).holds
    predicted = of_mixture([0, 1])
    predicted.mixture.as_predicted = True
    assert [use.used for case in predicted.uses for use in case] == [0.25, None, 0.75, 0.6]
    assert predicted.holds
    assert run.at_peak(predicted) == tuple(
        CaseAtPeak(
            name=f"case {place}",
            requests_per_second=5.0,
            limits=uses[place],
            ttft_ms=summary.ttft_ms,
            tpot_ms=summary.tpot_ms,
            e2e_ms=summary.e2e_ms,
            instances_exact=0.5,
        )
        for place, summary in enumerate(summaries)
    )
