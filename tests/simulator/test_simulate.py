"""From a deployment and a workload to a record, several at once, and out of it again."""

from __future__ import annotations

import time
from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tonnage.errors import InputError
from tonnage.perf.memory import memory_plan
from tonnage.perf.terms import step_model
from tonnage.results.requests import COMPLETED, UNFINISHED, Requests
from tonnage.simulator import simulate as module
from tonnage.simulator.kernel.driven import loop_of
from tonnage.simulator.reference import run_reference
from tonnage.simulator.simulate import answers_soon, simulate, simulate_many
from tonnage.simulator.tiers import Tier
from tonnage.spec.catalog import find_engine, find_gpu, find_model
from tonnage.spec.deployment import Deployment, Parallelism, parse_speculation
from tonnage.spec.engine import default_knobs
from tonnage.spec.precision import find_precision
from tonnage.spec.sessions import Pause, Sessions
from tonnage.spec.workload import ClosedLoop, Lengths, OpenLoop, TraceArrivals, Workload


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


def test_a_failing_point_cancels_those_that_have_not_begun(monkeypatch) -> None:
    """Fifty points on one thread, of which the first fails at once and the others take 5 ms."""
    begun = []

    def simulated(point, seed, window_s, tiers, stop):
        begun.append((point, seed, window_s, tiers, stop.tolist()))
        if len(begun) == 1:
            raise InputError("the first")
        time.sleep(0.005)

    monkeypatch.setattr(module, "_simulate_point", simulated)
    monkeypatch.setattr(module, "answers_soon", lambda points: False)
    point = deployment(), workload(ClosedLoop(concurrency=8))
    tiers = (Tier(blocks=3, block_ps=1),)
    with pytest.raises(InputError, match="the first"):
        simulate_many([point] * 50, seed=3, window_s=1.5, workers=1, tiers=tiers)
    assert begun[0] == (point, 3, 1.5, tiers, [0])
    assert len(begun) < 25


@pytest.mark.parametrize(
    ("kinds", "warmed"),
    [
        ([], set()),
        (["alone", "alone"], {(False, False, False)}),
        (["alone", "grouped"], {(False, False, False), (False, False, True)}),
        (["shares", "ranked"], {(True, False, False), (False, True, False)}),
        (["alone", "plain"], {(False, False, False)}),
    ],
)
def test_every_loop_that_a_point_needs_is_compiled_before(monkeypatch, kinds, warmed) -> None:
    """Guesses under classes are for the reference alone, which needs no loop."""
    alone = deployment("vllm")
    ranked = replace(alone, knobs=replace(alone.knobs, queue_order="priority"))
    load = workload(ClosedLoop(concurrency=8))
    chats = Sessions(turns=Lengths(mean=3.0), think=Pause(mean_s=2.0))
    points = {
        "alone": (alone, load),
        "grouped": (replace(alone, parallelism=Parallelism(tp=1, dp=2)), load),
        "shares": (alone, replace(load, sessions=chats)),
        "ranked": (ranked, load),
        "plain": (replace(ranked, speculation=parse_speculation("ngram k=2 acceptance=0.1")), load),
    }
    compiled = []
    monkeypatch.setattr(
        module,
        "warm_up",
        lambda *, shares, ranks, grouped: compiled.append((shares, ranks, grouped)),
    )
    monkeypatch.setattr(module, "answers_soon", lambda points: False)
    monkeypatch.setattr(module, "_simulate_point", lambda point, *_: point)
    chosen = [points[kind] for kind in kinds]
    assert simulate_many(chosen, seed=0, workers=1) == chosen
    assert set(compiled) == warmed
    assert len(compiled) == len(warmed)


@pytest.mark.parametrize(
    ("requests", "outputs", "instances", "soon"),
    [
        (25_000, 60.0, 1, True),
        (25_001, 60.0, 1, False),
        (10_000, 120.0, 11, True),  # ten more instances are three tokens each
        (10_001, 120.0, 11, False),
        (15_000, None, 1, True),  # pairs of 50 and 150 output tokens
        (15_001, None, 1, False),
    ],
)
def test_up_to_how_many_tokens_the_plain_simulator_answers(
    monkeypatch, requests, outputs, instances, soon
) -> None:
    """1,500,000 output tokens, where nothing is compiled yet; never of a replayed trace."""
    loops = []
    monkeypatch.setattr(module, "is_compiled", lambda loop: bool(loops.append(loop)))
    load = replace(
        workload(OpenLoop(rate=1.0), requests=requests),
        osl=Lengths(mean=outputs or 1.0),
        pairs=None if outputs else SimpleNamespace(osl=[50, 150]),
    )
    assert answers_soon([(deployment(), load)], instances) is soon
    assert loops == ([loop_of(shares=False, ranks=False, grouped=False)] if soon else [])
    replayed = replace(
        load, arrivals=TraceArrivals(recording=SimpleNamespace(blocks=None)), requests=1
    )
    assert not answers_soon([(deployment(), replayed)])
    monkeypatch.setattr(module, "is_compiled", lambda loop: True)
    assert not answers_soon([(deployment(), replace(load, requests=1))])


def test_what_is_not_compiled_at_all_is_always_for_the_plain_simulator() -> None:
    guessing = deployment("vllm")
    guessing = replace(
        guessing,
        knobs=replace(guessing.knobs, queue_order="priority"),
        speculation=parse_speculation("ngram k=2 acceptance=0.1"),
    )
    many = workload(ClosedLoop(concurrency=8), requests=10**7)
    assert answers_soon([(guessing, many)])
    assert not answers_soon([(guessing, many), (deployment(), many)])


@pytest.mark.parametrize("soon", [True, False])
def test_no_progress_is_told_where_nobody_asks(monkeypatch, soon: bool) -> None:
    point = deployment(), workload(ClosedLoop(concurrency=8), requests=3)
    monkeypatch.setattr(module, "answers_soon", lambda points: soon)
    steps: list[tuple[int, int, str]] = []
    [silent] = simulate_many([point], seed=2)
    [record] = simulate_many([point], seed=2, progress=lambda *step: steps.append(step))
    assert steps == [(1, 1, "concurrency 8")]
    assert same(silent, record)


def test_requests_that_a_cap_keeps_waiting_at_the_client_are_due_when_they_were() -> None:
    """One in flight: the second and the third wait at the client, and are sent later than due."""
    load = workload(OpenLoop(rate=1000.0, in_flight=1), requests=3)
    trace = load.trace(0)
    capped = simulate(deployment(), load, seed=0)
    assert capped.due_ns.tolist() == (trace.due_ps // 1000).tolist()
    assert (capped.sent_ns[1:] > capped.due_ns[1:]).all()
    assert capped.sent_ns[1] >= capped.last_token_ns[0]


def test_the_window_of_a_run_is_in_picoseconds_or_open(monkeypatch) -> None:
    asked = []
    monkeypatch.setattr(module, "run", lambda spec, trace, **more: asked.append(more))
    point = deployment(), workload(ClosedLoop(concurrency=8), requests=3)
    for window_s in (None, 0.0, 2.5):
        for stop in (None, np.zeros(1, np.int64)):
            module._simulate_point(point, 0, window_s, (), stop)
            assert asked[-1]["window_ps"] == (-1 if window_s is None else window_s * 1e12)
            assert (asked[-1]["plain"], asked[-1]["stop"] is stop) == (stop is None, True)
