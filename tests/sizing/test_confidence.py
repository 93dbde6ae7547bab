"""The confidence of a plan: the chance that its systems do, by hand, and in the plan, which it decides."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage import api
from tonnage.api.asked.arguments import confidence_asked
from tonnage.api.size import ask
from tonnage.cli.main import run
from tonnage.errors import InputError
from tonnage.perf.regime import Regime
from tonnage.perf.residuals import LEVELS, Residuals
from tonnage.plan.fleet import fleet
from tonnage.plan.limit import SATURATION, Bound, bound_by
from tonnage.plan.plan import Plan
from tonnage.report.plans.plan_document import full_text
from tonnage.report.plans.confidence import confidence_text
from tonnage.report.writers.terminal import terminal
from tonnage.sizing.loads.confidence import StepErrors, Sureness, factors_at, levels
from tonnage.sizing.loads.slower_steps import metric_of
from tonnage.sizing.planner import size
from tonnage.sizing.search.search import answer
from tonnage.sizing.search.search_space import prepare
from tonnage.spec.calibration import SCHEMA
from tonnage.spec.deployment import parse_limit

TTFT = bound_by(parse_limit("ttft", "p95<=500ms"))
REGIME = Regime(load="light", mix="prompt", family="dense")


def table(sigma: float, bias: float = 0.0) -> Residuals:
    from statistics import NormalDist

    values = tuple(bias + sigma * NormalDist().inv_cdf(level) for level in LEVELS)
    metrics = ("ttft_ms", "itl_ms", "e2e_ms", "requests_s")
    return Residuals(quantiles={m: {"loaded": values} for m in metrics}, stretch={}, unseen_gpu={}, report={})


def sure(
    load: float = 100.0,
    *,
    asked: float = 0.8,
    sigma: float = 0.1,
    bias: float = 0.0,
    binds: Bound = SATURATION,
    rate: Callable[[float], float] = lambda factor: 10.0 / factor,
    shown: int | None = None,
) -> Sureness:
    """An instance that carries 10 requests/s, one in a system."""
    errors = StepErrors(metric=metric_of(binds), regime=REGIME, residuals=table(sigma, bias))
    layout = fleet(1, 1)
    return Sureness(
        asked=asked,
        load=load,
        layout=layout,
        spare=0,
        factor=errors.factor,
        rate=lambda level: rate(errors.factor(level)),
        nominal=10.0,
        metric=errors.metric,
        shown=shown,
    )


def test_the_number_is_the_smallest_that_reaches_the_asked_confidence() -> None:
    found = sure()
    stated = found.confidence()
    assert stated.systems == {"50": 10, "80": 11, "95": 12}  # 100/s over 10 / e^(0.1 z)
    assert found.systems == 11
    assert stated.step_factors["95"] == pytest.approx(math.exp(0.1645), abs=1e-3)
    assert stated.meets == pytest.approx(0.83, abs=0.005)  # ln 1.1 is 0.953 standard deviations
    assert found.meets(10) == pytest.approx(0.5, abs=0.002)
    assert [sure(asked=q).systems for q in (0.5, 0.8, 0.95, 0.99)] == [10, 11, 12, 13]
    assert set(sure(asked=0.9).confidence().systems) == {"50", "80", "90", "95"}


def test_headroom_in_units_of_the_scatter_is_the_chance() -> None:
    assert sure(100 * math.exp(-0.1)).meets(10) == pytest.approx(0.841, abs=0.005)
    assert sure(100 * math.exp(0.1)).meets(10) == pytest.approx(0.159, abs=0.005)
    assert sure(100 * math.exp(-0.1), rate=lambda f: 10 / f**2).meets(10) == pytest.approx(0.691, abs=0.005)
    assert sure(50.0).meets(10) == 0.999


@pytest.mark.parametrize(
    ("binds", "metric"), [(TTFT, "ttft_ms"), (bound_by(parse_limit("tpot", "mean<=30ms")), "itl_ms"), (SATURATION, "requests_s")]
)
def test_what_binds_says_whose_errors_count_and_their_sign(binds: Bound, metric: str) -> None:
    """Latencies predicted 10 % too low, or rates 10 % too high: fewer than half of the instances do as predicted."""
    bias = 0.1 if metric == "requests_s" else -0.1
    found = sure(binds=binds, bias=bias)
    assert found.metric == metric
    assert found.meets(10) == pytest.approx(0.159, abs=0.005)
    assert found.confidence().step_factors["50"] == pytest.approx(math.exp(0.1), abs=1e-3)


def test_where_slower_steps_meet_the_limits_at_no_load_no_number_is_sure_enough() -> None:
    """Then the plan is made for the highest confidence that is reached, and says so."""
    found = sure(90.0, binds=TTFT, rate=lambda factor: 10.0 if factor < 1.05 else 0.0)
    stated = found.confidence()
    assert stated.systems == {"50": 9, "80": None, "95": None}
    assert not stated.reached
    assert found.systems == 9
    assert 0.5 < stated.meets < 0.8
    assert "no number" in confidence_text(stated)
    never = sure(90.0, rate=lambda factor: 10.0 if factor <= 1.0 else 0.0, bias=0.3)
    assert (never.level, never.sized_rate, never.systems) == (None, 10.0, 9)


@given(st.floats(2.0, 200.0), st.floats(2.0, 200.0), st.sampled_from(LEVELS), st.sampled_from(LEVELS))
def test_more_load_or_more_confidence_never_needs_fewer(a: float, b: float, p: float, q: float) -> None:
    low, high = sorted((a, b))
    wide, narrow = max(p, q, 0.5), max(min(p, q), 0.5)
    assert sure(low).systems <= sure(high).systems
    assert sure(low, asked=narrow).systems <= sure(low, asked=wide).systems
    assert sure(high).meets(sure(high).systems) >= 0.8


@given(st.floats(20.0, 400.0), st.integers(-3, 3), st.sampled_from((0.5, 0.8, 0.95)))
def test_what_the_whole_fleet_shows_moves_the_rates_by_no_more_than_it_must(load: float, more: int, asked: float) -> None:
    by_division = sure(load, asked=asked).systems
    shown = max(1, by_division + more)
    found = sure(load, asked=asked, shown=shown)
    stated = found.confidence()
    assert found.systems == shown == stated.systems[f"{100 * asked:.4g}"]
    assert stated.meets >= asked
    if shown > by_division:
        assert found.meets(shown - 1) < asked
        assert found.load / found.sized_rate == pytest.approx(shown - 1, rel=1e-4)
    counts = [stated.systems[key] for key in ("50", "80", "95")]
    assert counts == sorted(count for count in counts if count is not None)


@pytest.mark.parametrize(("text", "share"), [(None, 0.8), (95, 0.95), ("95%", 0.95), (" 87.5 % ", 0.875), (0.9, 0.9), ("50", 0.5)])
def test_a_confidence_is_read_in_percent_or_as_a_share(text: Any, share: float) -> None:
    assert confidence_asked(text) == pytest.approx(share)


@pytest.mark.parametrize("text", ["sure", 0, 100, "100%", 49, "0.3", 1, -5, "nan", "1e400", "0.9%"])
def test_what_is_no_confidence_is_refused(text: Any) -> None:
    with pytest.raises(InputError, match="is not a confidence; write 50 to 99, in percent"):
        confidence_asked(text)


def test_every_way_of_asking_knows_the_confidence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "asked.yaml"
    file.write_text("model: llama-3-8b\nlengths: {isl: 500, osl: 50}\ndemand: {peak_rps: 9}\nconfidence: 95%\n", encoding="utf-8")
    assert ask(file).questions[0].confidence == 0.95
    assert ask(file, confidence=90).questions[0].confidence == 0.9
    assert ask(model="llama-3-8b", isl=500, osl=50, peak_rps=9).questions[0].confidence == 0.8
    assert run(["size", str(file), "--confidence", "often"]) == 2
    assert "--confidence: 'often' is not a confidence" in capsys.readouterr().err


ASKED: dict[str, Any] = {"model": "llama-3-8b", "isl": 500, "osl": 50, "gpu": "h100-sxm-80gb", "precision": "fp16", "tp": "1"}


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
    for candidate in plan.candidates:
        assert candidate.systems == math.ceil(round(candidate.systems_exact, 9))  # never rounded down


def test_more_confidence_never_takes_fewer_gpus() -> None:
    gpus = [plan_of(peak_rps=400, confidence=confidence).choice.gpus for confidence in (50, 80, 95)]
    assert gpus == sorted(gpus)


def test_a_gpu_without_rows_is_less_sure_and_needs_more() -> None:
    """MI325X is in no fit: its steps are known less well, so that more of its predicted capacity is left unused."""
    fitted, published = (plan_of(peak_rps=100, gpu=gpu, engine="vllm").choice for gpu in ("h100-sxm-80gb", "mi325x"))
    spread = [each.confidence.step_factors["80"] / each.confidence.step_factors["50"] for each in (fitted, published)]
    assert spread[1] > spread[0]
    lead = [each.sized_rate / each.requests_per_second_per_instance for each in (fitted, published)]
    assert lead[1] < lead[0]


def test_size_takes_a_calibration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "my.json"
    slower = {"compute": 0.6, "memory": 0.6, "step_s": 2.0, "sequence_s": 2.0}
    document = {"schema": SCHEMA, "preset": "nim-2024", "gpu": "h100-sxm-80gb", "multipliers": slower, "data": "a slow machine"}
    file.write_text(json.dumps(document), encoding="utf-8")
    plain, mine = plan_of(peak_rps=400), plan_of(peak_rps=400, coefficients=str(file))
    assert mine.choice.systems_exact > 1.3 * plain.choice.systems_exact
    assert any("calibrated on a slow machine" in mark for mark in mine.choice.marks)
    flags = [f"--{name}={value}" for name, value in ASKED.items()]
    assert run(["size", *flags, "--engine=nim-2024", "--peak-rps=9", f"--coefficients={file}", "--json"]) == 0
    assert any("a slow machine" in mark for mark in json.loads(capsys.readouterr().out)["choice"]["marks"])
    assert run(["size", *flags, "--peak-rps=9", "--coefficients=nowhere.json"]) == 2


def test_the_whole_fleet_is_simulated_with_the_slower_steps() -> None:
    """At the asked confidence the steps are slower than predicted, and so are the latencies of the fleet's check."""
    asked = {**ASKED, "engine": "nim-2024", "tpot": "mean<=25ms", "peak_rps": 400}
    median, wary = (answer(each, prepare(each)) for each in (ask(**asked, confidence=q).questions[0] for q in (50, 95)))
    assert median.check is not None
    assert wary.check is not None
    assert wary.check.systems >= median.check.systems
    fixed = replace(wary.candidates[0])
    assert fixed.sized_rate < fixed.requests_per_second_per_instance


def test_the_plan_its_table_and_its_json_hold_the_confidence_of_every_candidate() -> None:
    plan = api.size(**{**ASKED, "engine": "nim-2024", "tpot": "mean<=25ms", "peak_rps": 100, "tp": "1,2"})
    assert all(c.confidence is not None for c in plan.candidates)
    assert [c["confidence"]["meets"] for c in plan.to_json()["candidates"]] == [c.confidence.meets for c in plan.candidates]
    shown = terminal(full_text((plan,)))
    assert "P(meets)" in shown
    assert f"{plan.choice.confidence.meets:.0%}" in shown


def test_a_job_and_a_recording_are_decided_by_confidence_too() -> None:
    job = api.size(model="llama-3-8b", isl=500, osl=50, gpu="h100-sxm-80gb", precision="fp8", tp=1, requests=3_000_000, within="1h")
    assert job.choice is not None
    assert job.choice.confidence is not None
    assert job.choice.confidence.meets >= 0.8
    assert job.choice.confidence.metric == "requests_s"
    assert job.choice.at_peak is None
    wary = api.size(
        model="llama-3-8b", isl=500, osl=50, gpu="h100-sxm-80gb", precision="fp8", tp=1, requests=3_000_000, within="1h", confidence=95
    )
    assert wary.choice is not None
    assert wary.choice.systems_exact > job.choice.systems_exact


def test_a_latency_is_off_by_no_less_than_the_steps() -> None:
    """Each limit is as tight as the errors of its own metric say, whichever of them binds: at the crossover nothing jumps."""
    tables = {"ttft_ms": 0.3, "itl_ms": 0.1, "requests_s": 0.15}
    errors = {m: StepErrors(metric=m, regime=REGIME, residuals=table(sigma)) for m, sigma in tables.items()}
    slow = factors_at(errors, 0.95)
    assert slow.steps == pytest.approx(math.exp(0.15 * 1.645), rel=1e-3)
    assert slow.latencies["ttft_ms"] == pytest.approx(math.exp(0.3 * 1.645), rel=1e-3)
    assert slow.latencies["itl_ms"] == slow.steps
    assert slow.of(parse_limit("ttft", "p95<=1s")) == slow.latencies["ttft_ms"]


def test_every_confidence_is_named_once() -> None:
    assert levels(0.8) == (0.5, 0.8, 0.95)
    assert levels(0.9) == (0.5, 0.8, 0.9, 0.95)
