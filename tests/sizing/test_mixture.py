"""One pool under several use cases: whose each request is, and the worst limit."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sizing.mixtures import asked
from tonnage.results.metrics import gap_percentile_ns
from tonnage.results.requests import GAP_BINS, gap_edges_ns
from tonnage.sizing.mixture import (
    FEWEST_OF_A_CASE,
    LEAST_IN_ALL,
    LEAST_REQUESTS,
    LIFETIMES,
    LOADED,
    MOST_OF_A_RUN,
    STABLE,
    Mixture,
    MixtureRun,
    burst_factor,
)
from tonnage.sizing.use_cases import _case


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
