"""Notes of a plan: what a reader must know."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.sizing.outside_rows import found
from tonnage.plan.fleet import fleet
from tonnage.plan.limit import bound_by, limit_of
from tonnage.plan.notes import BurstyTrace, CacheOfCheckpoint, LimitHalvesThroughput
from tonnage.plan.sensitivity import Changed, Sensitivity, Swing
from tonnage.report.plans.notes import warning_text
from tonnage.sizing.notes import (
    _bursty,
    _cache,
    _front_ends,
    _halved,
    _nvlink,
    length_to_shorten,
    link_share,
    warnings,
)
from tonnage.sizing.question import Question
from tonnage.spec.catalog import find_gpu, find_model
from tonnage.spec.catalog.accuracy import find_score
from tonnage.spec.deployment import parse_limit


def rules(**changed: object) -> dict[str, float]:
    return {warned.rule: warned.value for warned in warnings(found(**changed), None)}


def test_large_models_and_wide_groups_over_pcie_are_warned_about_with_their_share_of_the_step() -> (
    None
):
    said = rules(model="llama-3.1-70b", gpu="l40s", tp="4", ttft=None, peak_rps=5)
    assert {"nvlink", "tp-over-pcie"} <= set(said)
    assert 0 < said["nvlink"] < 1
    assert said["nvlink"] == said["tp-over-pcie"]
    assert not {"nvlink", "tp-over-pcie"} & set(
        rules(model="llama-3.1-70b", gpu="h100", tp="4", ttft=None, peak_rps=5)
    )


def test_a_pair_over_pcie_is_warned_about_its_link_and_one_gpu_is_not() -> None:
    warned = rules(gpu="l40s", tp="2", ttft=None, peak_rps=5)
    assert {"nvlink", "tp-over-pcie"} & set(warned) == {"tp-over-pcie"}
    assert 0 < warned["tp-over-pcie"] < 0.5
    assert not {"nvlink", "tp-over-pcie"} & set(rules(gpu="l40s", tp="1", ttft=None, peak_rps=5))
    assert link_share(found(gpu="l40s", tp="1", ttft=None).ready.instance) == 0


def test_a_limit_that_halves_throughput_is_shown_with_the_throughput_without_it() -> None:
    tight = found(tp="1", isl=2000, ttft="p95<=70ms", e2e="p95<=20s")
    warned = next(w for w in warnings(tight, None) if w.rule == "limit-halves-throughput")
    free = found(tp="1", isl=2000, ttft=None, e2e="p95<=20s")
    ratio = free.as_predicted.rate / tight.as_predicted.rate
    assert warned.value == pytest.approx(ratio, rel=0.05)  # of more systems each
    assert isinstance(warned, LimitHalvesThroughput)
    assert f"{warned.requests_per_second_without:.3g}" in warning_text(warned)
    assert "limit-halves-throughput" not in rules(tp="1", isl=2000, ttft="p95<=2s", e2e="p95<=20s")


def swings(isl: float | None, osl: float | None, size: int = 8) -> Sensitivity:
    """Of a plan of ten systems with 8 GPUs each: exactly so many with each length 20 % shorter, in
    systems of ``size`` GPUs."""
    base = Changed(
        change=0.2, systems=13, systems_exact=12.5, deployment=None, gpus=104, reason=None
    )

    def low(exact: float | None) -> Changed:
        systems = None if exact is None else math.ceil(exact)
        return replace(
            base, change=-0.2, systems=systems, systems_exact=exact, gpus=size * (systems or 0)
        )

    rows = [
        Swing(input=name, low=low(exact), high=base) for name, exact in (("isl", isl), ("osl", osl))
    ]
    return Sensitivity(systems=10, systems_exact=10.0, swings=tuple(rows), relaxed=None)


def test_advice_on_lengths_is_read_off_the_sensitivity() -> None:
    prompts, answers = (
        length_to_shorten(swings(7.0, 9.5), 80),
        length_to_shorten(swings(10.0, 8.0), 80),
    )
    assert (prompts.which, prompts.saved, prompts.other_saved, prompts.value) == (
        "isl",
        3.0,
        0.5,
        6.0,
    )
    assert (
        warning_text(prompts)
        == "shorten prompts first: 20% shorter prompts save 24 GPUs (3.00 systems before rounding),"
        " 20% shorter answers 0.500"
    )
    assert (answers.which, answers.saved, answers.other_saved) == ("osl", 2.0, 0.0)
    for none in (swings(9.0, 9.0), swings(9.1, 10.0), swings(None, None)):
        assert length_to_shorten(none, 80) is None
    assert length_to_shorten(None, 80) is None


def test_systems_of_another_size_are_counted_by_their_gpus() -> None:
    """Nine tenths of a rack of 72 GPUs is 8.1 systems of 8; a whole rack saves 8 of the 80 GPUs."""
    found = length_to_shorten(swings(0.9, 1.1, size=72), 80)
    assert (found.gpus, found.which) == (8, "isl")
    assert found.saved == pytest.approx(10 - 8.1)


def test_where_one_system_is_enough_no_limit_is_blamed() -> None:
    assert "limit-halves-throughput" not in rules(
        tp="1", isl=2000, ttft="p95<=85ms", e2e="p95<=20s", peak_rps=1
    )


def test_a_smaller_model_with_the_same_published_score_is_named() -> None:
    chosen = found(model="llama-2-70b", gpu="h100", tp="4", ttft=None, peak_rps=5)
    warned = next(w for w in warnings(chosen, None) if w.rule == "smaller-model")
    named = find_model(warned.other)
    assert warned.value == pytest.approx(
        chosen.contender.question.model.parameters / named.parameters
    )
    assert warned.value >= 2
    scores = [find_score(name) for name in (named.name, "llama-2-70b")]
    assert all(score is not None and f"{score.score:g}" in warning_text(warned) for score in scores)
    assert scores[0].score >= scores[1].score
    assert "smaller-model" not in rules(model="llama-3.1-8b", ttft=None)


def test_scores_asked_another_way_name_no_smaller_model() -> None:
    """Phi 4's 84.8 without examples is no answer to the 83.3 of a base model with five."""
    assert "smaller-model" not in rules(model="qwen2.5-32b", gpu="h100", tp="1,2", ttft=None)


def traced(**changed: object) -> Question:
    demand = {"cv": 2.5, "poisson_peak_requests_per_second": 8, "peak_second": 20, "bursty": True}
    return SimpleNamespace(demand=SimpleNamespace(**{**demand, **changed}))  # type: ignore[return-value]


def test_a_trace_is_bursty_where_its_demand_says_so() -> None:
    assert _bursty(traced()) == BurstyTrace(value=2.5, poisson_peak=8, peak_second=20)
    for missing in (
        {"bursty": False},
        {"cv": None},
        {"poisson_peak_requests_per_second": None},
        {"peak_second": None},
    ):
        assert _bursty(traced(**missing)) is None


@pytest.mark.parametrize(
    ("without", "systems", "changed", "named"),
    [
        (20.0, 2, {}, True),
        (19.9, 2, {}, False),
        (30.0, 1, {}, False),  # one system is enough
        (30.0, 2, {"offline": True}, False),
        (30.0, 2, {"recording": object()}, False),
        (30.0, 2, {"limits": ()}, False),
    ],
)
def test_a_limit_is_named_from_twice_the_throughput_without_it(
    without: float, systems: int, changed: dict[str, Any], named: bool
) -> None:
    limit = parse_limit("ttft", "p95<=300ms")
    asked = {"limits": (limit,), "offline": False, "recording": None} | changed
    chosen = SimpleNamespace(
        contender=SimpleNamespace(
            question=SimpleNamespace(**asked),
            layout=fleet(4, 8),
            without=lambda binding, instances: SimpleNamespace(rate=without),
        ),
        as_predicted=SimpleNamespace(binds=bound_by(limit), rate=10.0),
        systems=systems,
        instances=2 * systems,
    )
    found = _halved(chosen)  # type: ignore[arg-type]
    assert (found is not None) is named
    if found is not None:
        assert found == LimitHalvesThroughput(
            value=2.0,
            limit=limit_of(limit),
            requests_per_second=10.0,
            requests_per_second_without=20.0,
        )


@pytest.mark.parametrize(
    ("parameters", "tp", "gpu", "warned"),
    [
        (13.1e9, 2, "l40s", True),
        (13e9, 2, "l40s", False),  # the course begins above 13 billion
        (13.1e9, 1, "l40s", False),
        (13.1e9, 2, "h100", False),
    ],
)
def test_large_models_are_warned_about_pcie(
    parameters: float, tp: int, gpu: str, warned: bool
) -> None:
    deployment = SimpleNamespace(
        step_source=None,
        model=SimpleNamespace(name="m", parameters=parameters),
        parallelism=SimpleNamespace(tp=tp),
        gpu=find_gpu(gpu),
    )
    step = np.array([1.0])
    chosen = SimpleNamespace(
        ready=SimpleNamespace(trial=SimpleNamespace(deployment=deployment), instance=step)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tonnage.sizing.notes.link_share", lambda instance: 0.25)
        found = _nvlink(chosen)  # type: ignore[arg-type]
        assert (found is not None) is warned
        if found is not None:
            assert (found.value, found.model, found.parameters) == (0.25, "m", parameters)
        deployment.step_source = object()
        assert _nvlink(chosen) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("front_ends", "busy", "said"),
    [(1, 0.1, False), (1, 0.999, True), (4, 0.1, True)],
)
def test_front_ends_are_named_where_there_are_several_or_one_is_busy(
    front_ends: int, busy: float, said: bool
) -> None:
    """An instance carries 50 requests/s, each of 4 ms of a front end."""
    asked: list[tuple[float, float]] = []

    def front_end_busy(rate: float, steps_per_s: float = 0.0) -> float:
        asked.append((rate, steps_per_s))
        return 0.004 / front_ends if rate == 1.0 else busy

    chosen = SimpleNamespace(
        contender=SimpleNamespace(question=SimpleNamespace(offline=False)),
        ready=SimpleNamespace(
            instance=SimpleNamespace(
                step=SimpleNamespace(tokens_per_step=2.0),
                front_end_busy=front_end_busy,
                deployment=SimpleNamespace(engine="vllm"),
            ),
            trial=SimpleNamespace(
                deployment=SimpleNamespace(knobs=SimpleNamespace(front_ends=front_ends))
            ),
        ),
        as_predicted=SimpleNamespace(
            summary=SimpleNamespace(tpot_ms=SimpleNamespace(mean=20.0)), rate=50.0
        ),
    )
    found = list(_front_ends(chosen))  # type: ignore[arg-type]
    assert bool(found) is said
    if found:
        assert found[0].requests_per_second_of_one == pytest.approx(250.0)
        assert (found[0].front_ends, found[0].requests_per_second) == (front_ends, 50.0)
    if front_ends == 1:
        assert asked[-1] == (50.0, 25.0)  # a step every 40 ms, for two tokens of 20 ms
    chosen.contender.question.offline = True
    assert list(_front_ends(chosen)) == []  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changed", "warned"),
    [
        ({}, True),
        ({"kv": "fp8"}, False),
        ({"kv": "bf16"}, False),
        ({"checkpoint": "m"}, False),  # the model's own
        ({"narrows": False}, False),
        ({"switch": object()}, False),  # a flag keeps 16 bits
        ({"launch": None}, False),
    ],
)
def test_a_checkpoint_that_narrows_the_cache_is_named(
    changed: dict[str, Any], warned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = {"kv": "fp16", "checkpoint": "m-fp8", "narrows": True, "switch": None} | changed
    launch = SimpleNamespace(switch=lambda name: said["switch"])
    engine = SimpleNamespace(family="vllm", launch=launch if "launch" not in said else None)
    deployment = SimpleNamespace(
        engine="e",
        model=SimpleNamespace(name="m"),
        precision=SimpleNamespace(kv=said["kv"]),
        gpu=SimpleNamespace(vendor="NVIDIA"),
    )
    monkeypatch.setattr("tonnage.sizing.notes.find_engine", lambda name: engine)
    monkeypatch.setattr("tonnage.sizing.notes.loaded", lambda *asked: (said["checkpoint"], ""))
    monkeypatch.setattr("tonnage.sizing.notes.narrows_kv", lambda *asked: said["narrows"])
    chosen = SimpleNamespace(ready=SimpleNamespace(trial=SimpleNamespace(deployment=deployment)))
    assert _cache(chosen) == (  # type: ignore[arg-type]
        CacheOfCheckpoint(value=2.0, engine="vllm", checkpoint="m-fp8") if warned else None
    )
