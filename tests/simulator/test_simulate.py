"""From a deployment and a workload to a record, several at once, and out of it again."""

from __future__ import annotations

import time
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from tonnage.errors import InputError
from tonnage.perf.memory import memory_plan
from tonnage.perf.terms import step_model
from tonnage.results.requests import COMPLETED, UNFINISHED, Requests
from tonnage.simulator import simulate as module
from tonnage.simulator.reference import run_reference
from tonnage.simulator.simulate import answers_soon, simulate, simulate_many
from tonnage.spec.catalog import find_engine, find_gpu, find_model
from tonnage.spec.deployment import Deployment, Parallelism, parse_speculation
from tonnage.spec.engine import default_knobs
from tonnage.spec.precision import find_precision
from tonnage.spec.workload import ClosedLoop, Lengths, OpenLoop, Workload


def deployment(engine: str = "tensorrt-llm-0.15") -> Deployment:
    gpu, spec = find_gpu("h100-sxm-80gb"), find_engine(engine)
    return Deployment(
        model=find_model("llama-3-8b"),
        gpu=gpu,
        precision=find_precision("fp8"),
        parallelism=Parallelism(tp=1),
        engine=spec.name,
        knobs=default_knobs(spec, gpu, ranks=1),
    )


def workload(
    arrivals: OpenLoop | ClosedLoop, requests: int = 300, isl: float = 500, osl: float = 60
) -> Workload:
    return Workload(
        isl=Lengths(kind="normal", mean=isl, std=isl / 5),
        osl=Lengths(kind="normal", mean=osl, std=osl / 5),
        arrivals=arrivals,
        requests=requests,
    )


def same(one: Requests, other: Requests) -> bool:
    return all(
        np.array_equal(getattr(one, f.name), getattr(other, f.name)) for f in fields(Requests)
    )


@pytest.mark.parametrize("engine", ["tensorrt-llm-0.15", "vllm", "nim-2024"])
@pytest.mark.parametrize(
    "arrivals", [OpenLoop(rate=30), ClosedLoop(concurrency=20, turnaround_s=0.001)]
)
def test_a_real_deployment_is_simulated_as_the_reference_says(engine, arrivals):
    d, w = deployment(engine), workload(arrivals)
    requests = simulate(d, w, seed=4)
    assert (requests.status == COMPLETED).all()
    expected = run_reference(
        w.trace(4), step_model(d), d.knobs, memory_plan(d).blocks, max_context=d.model.max_context
    )
    assert same(requests, expected.requests)


def test_many_points_come_in_order_whatever_the_number_of_threads() -> None:
    points = [(deployment(), workload(ClosedLoop(concurrency=n))) for n in (1, 2, 5, 10, 25)]
    told: list[tuple[int, int, str]] = []
    together = simulate_many(points, seed=1, progress=lambda *step: told.append(step), workers=4)
    alone = [simulate(*point, seed=1) for point in points]
    assert all(same(a, b) for a, b in zip(together, alone, strict=True))
    assert [done for done, _, _ in told] == [1, 2, 3, 4, 5]
    assert {name for _, _, name in told} == {f"concurrency {n}" for n in (1, 2, 5, 10, 25)}
    assert simulate_many([], seed=1) == []


def test_seeds_matter_and_nothing_else_does() -> None:
    d, w = deployment(), workload(OpenLoop(rate=30))
    assert same(simulate(d, w, seed=1), simulate(d, w, seed=1))
    assert not same(simulate(d, w, seed=1), simulate(d, w, seed=2))


def test_a_window_counts_from_a_common_start() -> None:
    requests = simulate(
        deployment(), workload(ClosedLoop(concurrency=10), requests=1_000_000), seed=0, window_s=5.0
    )
    assert requests.window_ns == 5_000_000_000
    assert 50 < len(requests) < 10_000
    assert (requests.status == UNFINISHED).sum() == 10
    assert requests.last_token_ns.max() <= 5_000_000_000


def test_an_interrupt_stops_the_running_points() -> None:
    # every step by itself
    guessing = replace(deployment(), speculation=parse_speculation("ngram k=2 acceptance=0.01"))
    long_one = workload(ClosedLoop(concurrency=1), requests=1_000_000, osl=4000)

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        simulate_many(
            [(deployment(), workload(OpenLoop(rate=30))), (guessing, long_one)],
            seed=0,
            progress=interrupt,
            workers=2,
        )
    assert time.monotonic() - began < 15  # the long one would take a minute


def test_a_failing_point_stops_the_others() -> None:
    long_one = workload(ClosedLoop(concurrency=1), requests=1_000_000, osl=4000)
    with pytest.raises(InputError, match=r"^request_rate"):
        simulate_many(
            [(deployment(), long_one), (deployment(), workload(OpenLoop(rate=-1.0)))],
            seed=0,
            workers=2,
        )


def test_few_tokens_do_not_wait_for_the_compiler_and_the_record_is_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    points = [
        (deployment(), workload(ClosedLoop(concurrency=8))),
        (deployment("vllm"), workload(OpenLoop(rate=30))),
    ]
    expected = simulate_many(points, seed=2, window_s=20.0)
    assert not answers_soon(points)
    monkeypatch.setattr(module, "is_compiled", lambda _: False)
    monkeypatch.setattr(module, "warm_up", None)
    assert answers_soon(points)
    assert answers_soon(points, 100)
    assert not answers_soon(points, 5_000)
    assert not answers_soon([(deployment(), workload(ClosedLoop(concurrency=8), requests=100_000))])
    told = []
    found = simulate_many(points, seed=2, window_s=20.0, progress=lambda *now: told.append(now))
    assert all(same(one, other) for one, other in zip(found, expected, strict=True))
    assert told == [(1, 2, "concurrency 8"), (2, 2, "30 requests/s")]
