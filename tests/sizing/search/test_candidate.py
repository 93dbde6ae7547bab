"""Candidates: their memory, and how sure their number of systems is."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.deployments import knobs_of
from tests.questions import best, plans_with, question
from tests.sizing.explained import carried
from tests.sizing.search.contenders import (
    IDENTITY,
    TTFT,
    Carrying,
    asked_for,
    capacity_of,
    carrying,
    early,
    ready_of,
    sized_of,
)
from tonnage.perf.pipeline import MARK
from tonnage.plan.candidate import MOST_TIMES, GpuLimit, Pool
from tonnage.plan.launch import Command
from tonnage.plan.limit import SATURATION, Load, bound_by, limit_of
from tonnage.plan.reason import Reached, TooSlowForJob, rejected
from tonnage.results.metrics import Latencies
from tonnage.sizing.loads.confidence import Slowdown
from tonnage.sizing.loads.instance import QUICK
from tonnage.sizing.loads.trial import Ready
from tonnage.sizing.search.candidate import (
    HIGHEST,
    LOADS,
    LOWEST,
    SURE_ROOM,
    SURELY,
    _at_peak,
    _attained,
    _between,
    _chance,
    _command,
    _confidence,
    _limit,
    _load,
    _pools,
    _power,
    _systems_at,
    candidate,
    longest_accepted,
    memory_parts,
    reachable,
)
from tonnage.spec.deployment import Limit

few_parts = plans_with("tail")


def test_memory_adds_up_to_the_gpu() -> None:
    instance = carried().ready.instance
    parts = memory_parts(instance)
    assert sum(part.bytes_per_gpu for part in parts) == instance.deployment.gpu.memory_bytes
    assert sum(part.share for part in parts) == pytest.approx(1)


def test_a_chance_is_the_percentile_at_which_the_systems_are_just_enough() -> None:
    """Without limits an instance whose steps take f times as long carries an f-th: the chance is
    known in closed form."""
    sized = best(question(tp="1", ttft=None, peak_rps=1500))
    found = candidate(sized, chosen=True)
    carried, errors = sized.as_predicted.rate, sized.contender.errors["requests_s"]
    spare = carried * sized.instances / 1500
    chance = next(p / 1e3 for p in range(999, 0, -1) if errors.factor(p / 1e3) <= spare)
    assert found.confidence.meets == pytest.approx(chance, abs=0.006)
    assert 0.8 <= found.confidence.meets < 0.999


@pytest.mark.parametrize("asked", [{"ttft": "p95<=120ms"}, {"model": "llama-3.1-70b", "tp": "4,8"}])
def test_systems_for_more_confidence_are_never_fewer_and_at_most_twice_those_that_were_asked_for(
    asked: dict[str, Any],
) -> None:
    found = candidate(best(question(**asked)), chosen=True)
    assert found.confidence is not None
    counts = [found.confidence.systems[share] for share in ("50", "80", "95")]
    numbers = [count for count in counts if count is not None]
    assert numbers == sorted(numbers)
    assert numbers[-1] <= MOST_TIMES * found.systems
    assert found.systems in numbers


@pytest.mark.parametrize(
    ("factor", "rate"),
    [(0.5, 16.0), (1.0, 8.0), (math.sqrt(2), 4.0), (2.0, 2.0), (3.0, 1.0), (4.0, 0.5), (8.0, 0.25)],
)
def test_the_rate_at_a_factor_is_linear_in_logarithms(factor: float, rate: float) -> None:
    """Between 8, 2 and 0.5 at 1, 2 and 4; at 3 the share of the way is log2(1.5)."""
    expected = 2.0 * 0.25 ** math.log2(1.5) if factor == 3.0 else rate
    assert _between({4.0: 0.5, 1.0: 8.0, 2.0: 2.0}, factor) == pytest.approx(expected)


def test_a_rate_never_rises_with_its_factor_and_may_end_at_none() -> None:
    assert _between({1.0: 4.0, 2.0: 8.0}, 2.0) == 4.0
    assert _between({1.0: 4.0, 2.0: 0.0}, 1.5) == 0.0
    assert _between({1.0: 4.0, 2.0: 0.0}, 1.0) == 4.0
    assert _between({1.0: 4.0, 2.0: 1.0, 3.0: 0.0}, 2.0) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("changed", "longest"),
    [
        ({}, 800),
        ({"room": 900}, 720),
        ({"room": 901}, 720),
        ({"chunked_prefill": False}, 512),
        ({"chunked_prefill": False, "scheduler": "sglang"}, 800),
        ({"scheduler": "sglang"}, 800),
        ({"scheduler": "static"}, 0),
    ],
)
def test_the_longest_request_that_an_instance_is_started_for(
    changed: dict[str, Any], longest: int
) -> None:
    """The model's context, four fifths of the room, or a whole prompt in a step."""
    knobs = {"scheduler": "vllm", "chunked_prefill": True, "max_num_tokens": 512} | changed
    instance = SimpleNamespace(
        deployment=SimpleNamespace(
            model=SimpleNamespace(max_context=800), knobs=SimpleNamespace(**knobs)
        ),
        memory=SimpleNamespace(room=changed.get("room", 10_000)),
    )
    assert longest_accepted(instance) == longest
    assert 900 * SURE_ROOM == 720


def test_parts_of_the_memory_by_hand() -> None:
    sizes = {
        "weight_bytes": 400,
        "drafter_bytes": 50,
        "adapter_bytes": 30,
        "encoder_bytes": 20,
        "activation_bytes": 100,
        "reserve_bytes": 60,
        "kv_budget_bytes": 300,
    }

    def parts(**changed: int) -> list[tuple[str, int, float]]:
        instance = SimpleNamespace(
            memory=SimpleNamespace(**sizes | changed),
            deployment=SimpleNamespace(gpu=SimpleNamespace(memory_bytes=1_000)),
        )
        return [(part.part, part.bytes_per_gpu, part.share) for part in memory_parts(instance)]

    assert parts() == [
        ("weights", 400, 0.4),
        ("drafter", 50, 0.05),
        ("adapters", 30, 0.03),
        ("encoder", 20, 0.02),
        ("activations", 100, 0.1),
        ("reserve", 60, 0.06),
        ("kv_cache", 300, 0.3),
        ("unused", 40, 0.04),
    ]
    plain = parts(drafter_bytes=0, adapter_bytes=0, encoder_bytes=0)
    assert [name for name, _, _ in plain] == [
        "weights",
        "activations",
        "reserve",
        "kv_cache",
        "unused",
    ]
    assert plain[-1][1] == 140
    assert parts(kv_budget_bytes=400)[-1] == ("unused", 0, 0.0)


@pytest.mark.parametrize(
    ("changed", "load"),
    [
        ({"offline": True}, Load(kind="queued")),
        ({"recording": object()}, Load(kind="trace", requests_per_second=5.0)),
        ({"load": "closed"}, Load(kind="closed", clients=3.0)),
        ({}, Load(kind="open", requests_per_second=5.0, process="poisson")),
        ({"process": "gamma"}, Load(kind="open", requests_per_second=5.0, process="gamma", cv=2.5)),
    ],
)
def test_how_requests_reach_an_instance(changed: dict[str, Any], load: Load) -> None:
    traffic = {"process": "poisson", "cv": 2.5} | changed
    assert _load(asked_for(1.0, **traffic), capacity_of(5.0)) == load


def test_a_capped_gpu_says_its_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = SimpleNamespace(power_cap_w=300.0, tdp_w=700.0)
    monkeypatch.setattr("tonnage.sizing.search.candidate.clock", lambda gpu: 0.8)
    assert _limit(gpu) == GpuLimit(cap_watts=300.0, board_watts=700.0, clock=0.8)
    monkeypatch.setattr("tonnage.sizing.search.candidate.clock", lambda gpu: 1.0)
    assert _limit(gpu) is None


@dataclass(frozen=True, kw_only=True)
class Settling(Carrying):
    """A deployment that needs a system for each percent of confidence; none beyond 90 %."""

    def slowdown(self, level: float) -> Any:
        return level

    def settled(self, slowdown: Any, *, router: str = "") -> int | None:
        return round(100 * slowdown) if slowdown <= 0.9 else None


@pytest.mark.parametrize(
    ("decided", "systems", "level", "count"),
    [
        (0.8, 80, 0.8, 80),
        (None, 80, 0.8, None),
        (0.8, 80, 0.5, 50),
        (0.8, 40, 0.5, 40),  # never more than those that were decided on
        (0.8, 80, 0.9, 90),
        (0.8, 99, 0.9, 99),  # nor fewer
        (0.8, 45, 0.9, 90),
        (0.8, 44, 0.9, None),  # more than twice as many, which nobody would buy
        (0.8, 80, 0.95, None),
    ],
)
def test_systems_of_another_confidence(
    decided: float | None, systems: int, level: float, count: int | None
) -> None:
    assert MOST_TIMES == 2
    contender = Settling(question=asked_for(1.0), ready=ready_of(), runs=None)
    sized = sized_of(contender, systems, 5.0, level=decided)
    assert _systems_at(sized, level) == count


@pytest.mark.parametrize("cap", [None, 500.0])
def test_watts_over_the_load_of_an_instance(
    cap: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """100 W and 40 W for each request per second; 5.125 come to an instance at the peak, and 10 are
    counted on."""
    module = "tonnage.sizing.search.candidate"
    monkeypatch.setattr(
        f"{module}.steady_load",
        lambda deployment, c, *, requests_per_second, isl, osl, computed: (
            requests_per_second,
            (isl, osl, computed),
        ),
    )

    def drawn(deployment: Any, c: Any, load: float, *, busy: Any) -> Any:
        assert busy == (100.0, 20.0, 50)
        return SimpleNamespace(watts=100 + 40 * load, low=0.5, high=2.0, idle_watts=90.0)

    monkeypatch.setattr(f"{module}.draw", drawn)
    deployment = SimpleNamespace(
        gpu=SimpleNamespace(tdp_w=700.0, power_cap_w=cap), parallelism=SimpleNamespace(gpus=2)
    )
    ready = ready_of(
        deployment=deployment,
        computed=50,
        step=SimpleNamespace(drafting=None, coefficients=None),
    )
    lengths = {"isl": SimpleNamespace(mean=100.0), "osl": SimpleNamespace(mean=20.0)}
    contender = carrying(41.0, question=asked_for(41.0, **lengths), ready=ready)
    power = _power(sized_of(contender, 2, 10.0))
    assert power is not None
    assert (power.watts, power.low, power.idle_watts, power.tdp_watts) == (
        305.0,
        152.5,
        90.0,
        700.0,
    )
    assert power.high == (610.0 if cap is None else 500.0)
    assert power.joules_per_output_token == pytest.approx(305 * 2 / (5.125 * 20))
    loads = [0.2, 0.5, 1.0, 2.5, 5.0, 5.125, 7.5, 10.0]
    assert [10 * share for share in LOADS] == [load for load in loads if load != 5.125]
    assert power.by_load == (
        (0.0, 90.0),
        *((rate, pytest.approx(100 + 40 * rate)) for rate in loads),
    )
    ready.instance.step.drafting = object()
    assert _power(sized_of(contender, 2, 10.0)) is None
    ready.instance.step.drafting, deployment.gpu.tdp_w = None, None
    assert _power(sized_of(contender, 2, 10.0)) is None
    deployment.gpu.tdp_w = 700.0
    for changed in ({"offline": True}, {"pools": object()}):
        without_power = carrying(41.0, question=asked_for(41.0, **lengths, **changed), ready=ready)
        assert _power(sized_of(without_power, 2, 10.0)) is None
    monkeypatch.setattr(f"{module}.draw", lambda *_, **__: None)
    assert _power(sized_of(contender, 2, 10.0)) is None


@dataclass(frozen=True, kw_only=True)
class AtItsPeak(Carrying):
    """A deployment whose whole fleet answers in 1 s, and instances that stand for it in 2 s."""

    def standing_for(self, instances: int) -> int:
        return instances // 2

    def seen(self, instances: int, rate: float, care: Any) -> Any:
        self.calls.append(("instances", instances, rate, care))
        return SimpleNamespace(summary=summary_of(2.0))

    def at_peak(self, slowdown: Any = None) -> Any:
        return SimpleNamespace(
            simulated=lambda systems: 3 * systems,
            seen=lambda systems: SimpleNamespace(summary=summary_of(1.0)),
        )

    def slowdown(self, level: float) -> Any:
        return Slowdown(steps=1.0 + level)


def summary_of(seconds: float) -> Any:
    latencies = {
        name: Latencies(mean=seconds * place)
        for place, name in enumerate(("ttft_ms", "itl_ms", "tpot_ms", "e2e_ms"), 1)
    }
    return SimpleNamespace(by_request=None, **latencies)


@pytest.mark.parametrize(
    ("chosen", "recording", "seconds", "together"),
    [(True, None, 1.0, 60), (False, None, 2.0, 40), (False, object(), 1.0, 60)],
)
def test_what_requests_see_at_the_peak(
    chosen: bool, recording: object, seconds: float, together: int
) -> None:
    contender = AtItsPeak(
        question=asked_for(400.0, recording=recording), ready=ready_of(), runs=None
    )
    peak = _at_peak(sized_of(contender, 20, 5.0), chosen=chosen)
    assert peak is not None
    assert (peak.requests_per_second_per_instance, peak.utilisation) == (5.0, 1.0)
    assert peak.instances == together
    latencies = (peak.ttft_ms, peak.itl_ms, peak.tpot_ms, peak.e2e_ms)
    assert [latency.mean for latency in latencies] == [seconds * n for n in (1, 2, 3, 4)]
    assert (("instances", 80, 5.0, QUICK) in contender.calls) == (seconds == 2.0)
    for changed in ({"offline": True}, {"load": "closed"}):
        silent = replace(contender, question=asked_for(400.0, **changed))
        assert _at_peak(sized_of(silent, 20, 5.0), chosen=chosen) is None


@pytest.mark.parametrize("chosen", [True, False])
def test_the_confidence_of_a_number_of_systems(chosen: bool) -> None:
    """Spare systems are in each number; what others than the choice need at other levels is not
    known."""
    errors = {"requests_s": SimpleNamespace(metric="requests_s", factor=lambda p: 1 + p / 3)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AtItsPeak, "errors", errors)
        module = "tonnage.sizing.search.candidate"
        patch.setattr(
            f"{module}._systems_at", lambda sized, level: None if level > 0.9 else round(10 * level)
        )
        patch.setattr(
            f"{module}._chance", lambda sized, systems: sum(filter(None, systems.values()))
        )
        contender = AtItsPeak(question=asked_for(400.0, spare=2), ready=ready_of(), runs=None)
        confidence = _confidence(sized_of(contender, 20, 5.0), chosen=chosen)
        unsure = _confidence(sized_of(contender, 20, 5.0, level=None), chosen=False)
        lower = _confidence(sized_of(contender, 20, 5.0, level=0.5), chosen=False)
    assert (confidence.asked, confidence.metric) == (0.8, "requests_s")
    if chosen:
        assert confidence.meets == 13
        assert confidence.systems == {"50": 7, "80": 10, "95": None}
        assert confidence.step_factors == {"50": 1.1667, "80": 1.2667, "95": 1.3167}
    else:
        assert confidence.meets is None
        assert confidence.systems == {"80": 22}
        assert confidence.step_factors == {"80": 1.2667}
    assert unsure.systems == {"80": None}
    assert lower.systems == {"80": None, "50": 22}


@pytest.mark.parametrize(
    ("carried_rps", "meets"),
    [
        # steps take 1 + p times as long, and an instance carries 8 over that: 5 at 0.6
        (8.0, 0.6),
        (6.0, 0.2),
        (4.9, 0.001),
        (99.0, 0.999),
    ],
)
def test_the_chance_that_systems_are_enough_by_hand(carried_rps: float, meets: float) -> None:
    surest: list[float] = []

    class Slower(AtItsPeak):
        def capacity(self, instances: int, slowdown: Any = None, **how: Any) -> Any:
            self.calls.append((instances, how["care"]))
            surest.append(slowdown.steps)
            return capacity_of(carried_rps / slowdown.steps)

    contender = Slower(question=asked_for(400.0), ready=ready_of(), runs=None)
    chance = _chance(sized_of(contender, 20, 5.0), {0.5: None, 0.8: None, 0.95: None})
    assert chance == meets
    enough = _chance(sized_of(contender, 20, 5.0), {0.5: 20, 0.8: 20, 0.95: 21})
    assert enough == max(meets, 0.8)
    assert contender.calls[:1] == [(80, QUICK)]
    assert max(surest) == (1 + SURELY if meets > 0.9 else pytest.approx(1.95))
    assert (SURELY, LOWEST, HIGHEST) == (0.99, 1, 999)


def test_joint_attainment_is_told_as_predicted_and_with_longer_times() -> None:
    joint = Limit(metric="attain", statistic="", seconds=1.0, share=0.9, parts=(("ttft", 1.0),))
    ratios = np.array([0.2, 0.5, 0.6, 0.9])
    values = SimpleNamespace(ratios=lambda parts: ratios, ttft=np.zeros(4))
    contender = AtItsPeak(
        question=asked_for(2.0, limits=(TTFT, joint)), ready=ready_of(), runs=None
    )
    sized = sized_of(contender, 1, 5.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "tonnage.sizing.search.candidate.attained_of", lambda *args: ("attained", *args)
        )
        shown = _attained(sized, SimpleNamespace(by_request=values))
    # times 1.8 times as long: what took up to 0.556 of the limit
    assert shown == {"attained": ("attained", values, 2.0, (joint,)), "sure": (0.5,)}
    assert _attained(sized, SimpleNamespace(by_request=None)) == {}
    plain = replace(contender, question=asked_for(2.0))
    assert _attained(sized_of(plain, 1, 5.0), SimpleNamespace(by_request=values)) == {}


MODULE = "tonnage.sizing.search.candidate"


@pytest.mark.parametrize(("offline", "saturation", "pp"), [(False, 8.0, 1), (True, 5.0, 2)])
def test_every_figure_of_a_candidate_by_hand(
    offline: bool, saturation: float, pp: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twenty systems of four instances of two GPUs each, and two spare ones, under 400 requests per
    second: an instance carries 6 as predicted and 5 at the confidence."""
    for name in ("_pools", "_power"):
        monkeypatch.setattr(f"{MODULE}.{name}", lambda sized, name=name: name)
    for name in ("_confidence", "_at_peak"):
        monkeypatch.setattr(
            f"{MODULE}.{name}", lambda sized, *, chosen, name=name: f"{name} {chosen}"
        )
    monkeypatch.setattr(f"{MODULE}._load", lambda question, capacity: ("load of", capacity.rate))
    monkeypatch.setattr(f"{MODULE}._limit", lambda gpu: ("limit of", gpu.name))
    monkeypatch.setattr(f"{MODULE}.marks", lambda deployment: ("a mark",))
    monkeypatch.setattr(
        f"{MODULE}.accuracy_and_calibration", lambda *args: ("impact", "calibration")
    )
    monkeypatch.setattr(f"{MODULE}.Candidate", SimpleNamespace)
    summary = summary_of(1.0)
    predicted = capacity_of(6.0, concurrency=9.0, summary=summary)

    class Shown(AtItsPeak):
        def capacity(self, instances: int, slowdown: Any = None, **how: Any) -> Any:
            return predicted

        def saturation(self, slowdown: Any = None) -> float:
            return saturation

    question = asked_for(400.0, spare=2, offline=offline, osl=SimpleNamespace(mean=20.0))
    contender = Shown(question=question, ready=ready_of(), runs=None)
    deployment = contender.ready.trial.deployment
    deployment.model, deployment.parallelism.pp = SimpleNamespace(released="2026-01"), pp
    row = candidate(sized_of(contender, 20, 5.0, checked=True))
    busy = max(saturation, 6.0)
    nothing = Latencies()
    assert vars(row) == {
        "pools": "_pools",
        "systems_exact": 20.0,
        "sized_requests_per_second_per_instance": 5.0,
        "requests_per_second_per_instance": 6.0,
        "requests_per_second_per_gpu": 3.0,
        "requests_per_second_per_8_gpus": 24.0,
        "output_tokens_per_second_per_8_gpus": 480.0,
        "saturation_requests_per_second_per_instance": busy,
        "concurrency_per_instance": 9.0,
        "utilisation": pytest.approx(400 / 480),
        "headroom_to_saturation": pytest.approx(busy * 88 / 400 - 1),
        "ttft_ms": nothing if offline else summary.ttft_ms,
        "itl_ms": summary.itl_ms,
        "tpot_ms": summary.tpot_ms,
        "e2e_ms": nothing if offline else summary.e2e_ms,
        "binds": SATURATION,
        "load": ("load of", 6.0),
        "marks": ("a mark",) if pp == 1 else ("a mark", MARK),
        "accuracy_impact": "impact",
        "calibration": "calibration",
        "confidence": "_confidence False",
        "at_peak": "_at_peak False",
        "checked": True,
        "power": "_power",
        "gpu_limit": ("limit of", "gpu"),
    }
    assert candidate(sized_of(contender, 20, 5.0), chosen=True).confidence == "_confidence True"
    predicted = replace(predicted, binds=bound_by(TTFT))
    ended = candidate(sized_of(contender, 20, 5.0), chosen=True)
    assert (ended.binds, ended.at_peak, ended.checked) == (bound_by(TTFT), "_at_peak True", False)


def test_the_pools_of_a_deployment_are_on_its_systems_and_the_spare_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(f"{MODULE}._command", lambda sized: Command(argv=("serve",), file={"a": 1}))
    monkeypatch.setattr(f"{MODULE}.memory_parts", lambda instance: ("memory",))
    contender = carrying(
        400.0, question=asked_for(400.0, spare=2), ready=ready_of(memory=SimpleNamespace(tokens=9))
    )
    deployment = contender.ready.trial.deployment
    deployment.model, deployment.knobs = SimpleNamespace(name="model"), knobs_of(32, 512)
    (pool,) = _pools(sized_of(contender, 20, 5.0))
    assert pool == Pool(
        **contender.ready.trial.identity.names,
        role="serve",
        model="model",
        system="system",
        gpus_per_system=8,
        knobs=deployment.knobs,
        instances=88,
        systems=22,
        memory=("memory",),
        kv_tokens=9,
        launch=("serve",),
        launch_file={"a": 1},
    )
    monkeypatch.setattr(
        Carrying, "roles", lambda self, count: (("prefill", 8), ("decode", count - 8))
    )
    both = _pools(sized_of(contender, 20, 5.0))
    assert [(pool.role, pool.instances, pool.systems) for pool in both] == [
        ("prefill", 8, 22),
        ("decode", 80, 22),
    ]


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, {"max_context": 700}),
        ({"accepted": 90}, {"max_context": 110}),  # the longest of the question
        ({"accepted": 90, "max_context": 100}, {"max_context": 100}),  # as far as the model goes
        ({"accepted": 90, "pairs": 95}, {"max_context": 95}),
        ({"max_model_len": 64}, {"max_context": 64}),
        ({"kv": "fp8"}, {"kv_8bit": True}),
        ({"kv": "fp16", "narrows": True}, {"kv_16bit": True}),
        ({"kv": "fp8", "narrows": True}, {"kv_8bit": True}),
        ({"weight_format": "fp32"}, {"form": None}),
        ({"tiers": ("host",)}, {}),
        ({"tiers": ("host",), "starts": True}, {"tiers": ("host",)}),
        ({"starts": True}, {}),
    ],
)
def test_how_an_instance_is_started(
    changed: dict[str, Any], expected: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []

    def command(form: Any, **how: Any) -> Command:
        calls.append({"form": form, **how})
        return Command(argv=("serve", "it") if form else (), file={})

    monkeypatch.setattr(f"{MODULE}.command", command)
    engine = SimpleNamespace(launch="form")
    monkeypatch.setattr(f"{MODULE}.find_engine", lambda name: engine)
    monkeypatch.setattr(f"{MODULE}.loaded", lambda *args: ("checkpoint", ("--more",)))
    monkeypatch.setattr(f"{MODULE}.narrows_kv", lambda *args: changed.get("narrows", False))
    monkeypatch.setattr(f"{MODULE}.starts_offloading", lambda *args: changed.get("starts", False))
    monkeypatch.setattr(f"{MODULE}.longest_accepted", lambda instance: changed.get("accepted", 700))
    pairs = SimpleNamespace(longest=changed["pairs"]) if "pairs" in changed else None
    traffic = SimpleNamespace(
        pairs=pairs, isl=SimpleNamespace(longest=100), osl=SimpleNamespace(longest=10)
    )
    question = asked_for(400.0, max_model_len=changed.get("max_model_len"))
    contender = carrying(
        400.0,
        question=question,
        ready=ready_of(traffic=traffic, below=("rules", changed.get("tiers", ()))),
    )
    deployment = contender.ready.trial.deployment
    deployment.engine, deployment.knobs, deployment.speculation = "engine", "knobs", "guesses"
    deployment.model = SimpleNamespace(max_context=changed.get("max_context", 800))
    deployment.gpu.vendor = "vendor"
    deployment.precision.kv = changed.get("kv", "fp16")
    deployment.precision.weight_format = changed.get("weight_format", "fp8")
    started = _command(sized_of(contender, 20, 5.0))
    usual = {
        "form": "form",
        "checkpoint": "checkpoint",
        "parallelism": deployment.parallelism,
        "knobs": "knobs",
        "max_context": 700,
        "kv_8bit": False,
        "kv_16bit": False,
        "speculation": "guesses",
        "offloading": "rules",
        "tiers": (),
    }
    assert calls == [usual | expected]
    assert started.argv == (("serve", "it", "--more") if calls[0]["form"] else ())


def test_how_near_deployments_come_with_one_request_at_a_time() -> None:
    """Each limited statistic that is defined, of each deployment that fits; of a job the time of one
    request."""
    alone = {"ttft": 3.0, "tpot": math.nan}
    summary = SimpleNamespace(limit_s=lambda limit: alone[limit.metric])
    ready = ready_of(single_client=lambda: summary)
    fitting = Ready(trial=ready.trial, instance=ready.instance, place=0, first=ready.trial)
    refused = rejected(IDENTITY, TooSlowForJob(seconds=3.0, allowed=2.0))
    early_row = rejected(IDENTITY, early(1.0))
    reached = Reached(limit=limit_of(TTFT), asked_ms=2_000.0, value_ms=3_000.0, deployment=IDENTITY)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"{MODULE}.nearest_of", list)
        assert reachable(asked_for(1.0), None, [fitting, early_row], []) == [(reached,)]
        job = asked_for(1.0, offline=True)
        assert reachable(job, None, [fitting], [early_row, refused]) == [
            (),
            (replace(reached, limit=None),),
        ]
