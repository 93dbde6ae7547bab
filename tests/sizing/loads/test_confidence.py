"""The confidence of a plan: times as long as the errors of predictions say, and in the plan, which
they decide."""

import math
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.questions import contender, plans_with, question
from tests.sizing.loads.confidence_cases import REGIME, errors, table
from tonnage.api.sizing import ask
from tonnage.cli.main import run
from tonnage.perf.step_terms import COEFFICIENTS, DURATIONS
from tonnage.plan.limit import SATURATION, bound_by
from tonnage.plan.plan import Plan
from tonnage.sizing.loads.capacity import find_capacity
from tonnage.sizing.loads.confidence import (
    Slowdown,
    StepErrors,
    _scaled,
    factors_at,
    levels,
    metric_of,
    slower,
    step_errors,
)
from tonnage.sizing.planner import size
from tonnage.spec.deployment import Limit, parse_limit

few_parts = plans_with("tail")


@pytest.mark.parametrize("metric", ["ttft_ms", "itl_ms", "requests_s"])
def test_the_factor_is_the_percentile_of_the_error_with_the_sign_of_its_metric(metric: str) -> None:
    """Latencies predicted 10 % too low, or rates 10 % too high: steps take 10 % longer in half of
    the cases."""
    bias = 0.1 if metric == "requests_s" else -0.1
    found = errors(metric, 0.1, bias)
    assert found.factor(0.5) == pytest.approx(math.exp(0.1), abs=1e-3)
    assert found.factor(0.95) == pytest.approx(math.exp(0.1 + 0.1645), abs=1e-3)


@pytest.mark.parametrize(
    "limits", [{"ttft": "p95<=300ms"}, {"ttft": "p95<=150ms", "itl": "p99<=25ms"}, {"ttft": None}]
)
def test_an_instance_with_slower_steps_is_the_same_instance_with_a_slower_clock(
    limits: dict[str, Any],
) -> None:
    """No run is made for a confidence: what it carries is read from the runs of the prediction as
    it is. Against one that is simulated with every step longer, where only what is no step, the
    front end, differs."""
    one = contender(tp="1", **limits)
    for factor in (1.05, 1.2, 1.5):
        slower = one.runs.instance(
            one.instance.deployment, replace(one.instance.traffic, step_factor=factor)
        )
        simulated = find_capacity(one.runs, slower, one.question.limits, instances=4)
        read = one.capacity(4, Slowdown(steps=factor))
        assert read.rate == pytest.approx(simulated.rate, rel=0.04)
        assert read.binds == simulated.binds


def test_without_limits_steps_twice_as_long_carry_half() -> None:
    one = contender(tp="1", ttft=None)
    rates = [one.capacity(4, Slowdown(steps=factor)).rate for factor in (1.0, 1.25, 2.0, 4.0)]
    assert [rates[0] / rate for rate in rates] == pytest.approx([1.0, 1.25, 2.0, 4.0])


def test_latencies_that_are_off_by_more_than_the_steps_tighten_their_own_limits() -> None:
    one = contender(tp="1", ttft="p95<=200ms", e2e="mean<=4s")
    plain, steps = one.capacity(4), one.capacity(4, Slowdown(steps=1.1))
    both = one.capacity(4, Slowdown(steps=1.1, latencies={"ttft_ms": 1.6}))
    assert plain.rate > steps.rate > both.rate
    ttft, e2e = one.question.limits
    tighter = find_capacity(
        one.runs,
        one.instance,
        (replace(ttft, seconds=0.2 / 1.6), replace(e2e, seconds=4 / 1.1)),
        instances=4,
    )
    assert both.rate == pytest.approx(tighter.rate / 1.1)


@given(st.floats(1.0, 2.5), st.floats(1.0, 2.5), st.integers(1, 9))
def test_slower_steps_never_carry_more_and_never_need_fewer(
    a: float, b: float, thousands: int
) -> None:
    fast, slow = sorted((a, b))
    one = replace(shared(), question=question(tp="1", ttft="p95<=200ms", peak_rps=1000 * thousands))
    rates = [one.capacity(16, Slowdown(steps=factor)).rate for factor in (fast, slow)]
    assert rates[1] <= rates[0] * (1 + 1e-9)
    needed = [one.settled(Slowdown(steps=factor)) for factor in (fast, slow)]
    assert needed[1] is None or (needed[0] is not None and needed[1] >= needed[0])


@cache
def shared() -> Any:
    """Made when it is first asked for: an import that simulates would compile the simulator while
    tests are collected."""
    return contender(tp="1", ttft="p95<=200ms")


def test_where_slower_steps_meet_the_limits_at_no_load_no_number_is_sure_enough() -> None:
    """Then the plan is made for the highest confidence that is reached, and says so; no number is
    printed that nobody would buy."""
    alone = contender(**{**ASKED, "ttft": None, "engine": "nim-2024", "peak_rps": 40})
    ms = alone.instance.single_client().tpot_ms.mean * alone.errors["requests_s"].factor(0.65)
    plan = size(ask(**ASKED, engine="nim-2024", peak_rps=40, tpot=f"mean<={ms:.4g}ms").questions[0])
    found = plan.choice.confidence
    assert found.systems["95"] is None
    assert not found.reached
    assert found.meets < 0.8
    assert plan.tail is not None


def test_every_way_of_asking_knows_the_confidence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "asked.yaml"
    file.write_text(
        "model: llama-3-8b\nlengths: {isl: 500, osl: 50}\ndemand: {peak_rps: 9}\nconfidence: 95%\n",
        encoding="utf-8",
    )
    assert ask(file).questions[0].confidence == 0.95
    assert ask(file, confidence=90).questions[0].confidence == 0.9
    assert ask(model="llama-3-8b", isl=500, osl=50, peak_rps=9).questions[0].confidence == 0.8
    assert run(["size", str(file), "--confidence", "often"]) == 2
    assert "--confidence: 'often' is not a confidence" in capsys.readouterr().err


ASKED: dict[str, Any] = {
    "model": "llama-3-8b",
    "isl": 500,
    "osl": 50,
    "gpu": "h100-sxm-80gb",
    "precision": "fp16",
    "tp": "1",
}


@cache
def plan_of(**asked: Any) -> Plan:
    """The plan without what is said of its choice alone."""
    question = ask(**{**ASKED, "engine": "nim-2024", "tpot": "mean<=25ms", **asked}).questions[0]
    return size(replace(question, deepen=False))


@pytest.mark.parametrize("confidence", [50, 80, 95])
def test_a_plan_is_as_sure_as_was_asked(confidence: int) -> None:
    plan = plan_of(peak_rps=400, confidence=confidence)
    found = plan.choice.confidence
    counts = [found.systems[share] for share in ("50", "80", "95")]
    assert None not in counts
    assert counts == sorted(counts)
    assert plan.choice.systems == found.systems[str(confidence)]
    assert found.meets >= confidence / 100
    assert plan.scenario.confidence == confidence / 100
    assert plan.choice.checked
    assert plan.fleet_check.systems == plan.choice.systems
    assert plan.to_json()["choice"]["confidence"]["systems"] == found.systems
    for one in plan.candidates:
        assert one.systems == math.ceil(round(one.systems_exact, 9))  # never rounded down


def test_a_job_and_a_recording_are_decided_by_confidence_too() -> None:
    asked: dict[str, Any] = {**ASKED, "precision": "fp8", "requests": 3_000_000, "within": "1h"}
    job, wary = (
        size(replace(ask(**asked, confidence=share).questions[0], deepen=False))
        for share in (80, 95)
    )
    assert job.choice.confidence.meets >= 0.8
    assert job.choice.confidence.metric == "requests_s"
    assert job.choice.at_peak is None
    assert wary.choice.systems_exact > job.choice.systems_exact


def test_a_latency_is_off_by_no_less_than_the_steps() -> None:
    """Each limit is as tight as the errors of its own metric say, whichever of them binds: at the
    crossover nothing jumps."""
    tables = {"ttft_ms": 0.3, "itl_ms": 0.1, "requests_s": 0.15}
    errors = {
        m: StepErrors(metric=m, regime=REGIME, residuals=table(sigma))
        for m, sigma in tables.items()
    }
    slow = factors_at(errors, 0.95)
    assert slow.steps == pytest.approx(math.exp(0.15 * 1.645), rel=1e-3)
    assert slow.latencies["ttft_ms"] == pytest.approx(math.exp(0.3 * 1.645), rel=1e-3)
    assert slow.latencies["itl_ms"] == slow.steps
    assert slow.of(parse_limit("ttft", "p95<=1s")) == slow.latencies["ttft_ms"]


TTFT = Limit(metric="ttft", statistic="p95", seconds=3.0)
TPOT = Limit(metric="tpot", statistic="mean", seconds=0.6)
RATIO = Limit(metric="slowdown", statistic="p95", seconds=2.0)


def test_factors_on_limits_by_hand() -> None:
    """Steps take half as long again, and first tokens three times as long."""
    slow = Slowdown(steps=1.5, latencies={"ttft_ms": 3.0})
    assert [slow.of(limit) for limit in (TTFT, TPOT, RATIO)] == [3.0, 1.5, 1.0]
    assert [limit.seconds for limit in slow.tightened((TTFT, TPOT, RATIO))] == pytest.approx(
        [1.0, 0.4, 2.0]
    )
    assert [limit.seconds for limit in slow.beyond_steps((TTFT, TPOT, RATIO))] == pytest.approx(
        [1.5, 0.6, 2.0]
    )
    assert slow.times(2.0) == Slowdown(steps=3.0, latencies={"ttft_ms": 6.0})
    joint = Limit(
        metric="attain", statistic="", seconds=1.0, share=0.9, parts=(("ttft", 1.0), ("tpot", 0.1))
    )
    assert slow.of(joint) == 3.0
    assert slow.of(replace(joint, parts=(("tpot", 0.1),))) == 1.5


def test_the_metric_whose_errors_count() -> None:
    assert metric_of(None) == metric_of(SATURATION) == "requests_s"
    names = {"ttft": "ttft_ms", "tpot": "itl_ms", "itl": "itl_ms", "e2e": "e2e_ms"}
    for metric, errors_of in names.items():
        assert metric_of(bound_by(replace(TTFT, metric=metric))) == errors_of


def test_latencies_are_off_by_no_less_than_the_steps() -> None:
    def of(factor: float) -> Any:
        return SimpleNamespace(factor=lambda p: factor * p)

    errors_by_metric = {"ttft_ms": of(3.0), "itl_ms": of(1.0), "requests_s": of(2.0)}
    assert factors_at(errors_by_metric, 0.5) == Slowdown(
        steps=1.0, latencies={"ttft_ms": 1.5, "itl_ms": 1.0, "requests_s": 1.0}
    )


def test_the_confidences_that_a_plan_names() -> None:
    assert levels(0.8) == (0.5, 0.8, 0.95)
    assert levels(0.9) == (0.5, 0.8, 0.9, 0.95)
    assert levels(0.99) == (0.5, 0.8, 0.95, 0.99)


def test_slower_steps_scale_every_duration_and_nothing_else() -> None:
    """Also those of the drafter and of a table behind the coefficients; the front end stays."""
    c = np.arange(COEFFICIENTS + 5, dtype=np.float64)
    scaled = _scaled(c, 3.0)
    for place, value in enumerate(c):
        behind = place > COEFFICIENTS and (place - COEFFICIENTS) % 2 == 1
        longer = place in DURATIONS or behind
        assert scaled[place] == (3.0 * value if longer else value), place
    assert (c == np.arange(COEFFICIENTS + 5)).all(), "the array itself stays"
    step = replace(contender(tp="1").instance.step, response_s=0.25)
    assert slower(step, 1.0) is step
    longer_step = slower(step, 2.0)
    assert longer_step.response_s == 0.5
    assert longer_step.frontend_s == step.frontend_s
    assert longer_step.drafting is None


@pytest.mark.parametrize("clients", [None, 40.0])
def test_whose_errors_are_looked_at_for_the_limits_of_a_question(
    clients: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of each limited metric once, joint limits by their parts, and of requests/s always."""
    module = "tonnage.sizing.loads.confidence"
    monkeypatch.setattr(f"{module}.regime_of", lambda *args, **how: (*args, how))
    monkeypatch.setattr(f"{module}.shipped_residuals", lambda: "table")
    joint = Limit(
        metric="attain", statistic="", seconds=1.0, share=0.9, parts=(("tpot", 0.1), ("e2e", 9.0))
    )
    asked = SimpleNamespace(
        isl=SimpleNamespace(mean=100.0), osl=SimpleNamespace(mean=10.0), limits=(TTFT, TPOT, joint)
    )
    errors_by_metric = step_errors(asked, "deployment", clients)
    assert list(errors_by_metric) == ["ttft_ms", "itl_ms", "e2e_ms", "requests_s"]
    regime = ("deployment", {"isl": 100.0, "osl": 10.0, "clients": clients})
    for metric, step_error in errors_by_metric.items():
        assert (step_error.metric, step_error.regime, step_error.residuals) == (
            metric,
            regime,
            "table",
        )
    asked.limits = ()
    assert list(step_errors(asked, "deployment")) == ["requests_s"]
