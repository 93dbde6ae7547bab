"""The confidence of a plan: the chance that its systems do, by hand, by slower steps, and in the plan."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.questions import question
from tonnage import api
from tonnage.api.size import ask
from tonnage.cli.main import run
from tonnage.perf.regime import Regime
from tonnage.perf.residuals import LEVELS, Residuals
from tonnage.plan.confidence import Confidence
from tonnage.plan.limit import SATURATION, Bound, bound_by
from tonnage.report.plans.plan_text import plan_text
from tonnage.report.wording.confidence import confidence_text
from tonnage.report.writers.terminal import terminal
from tonnage.sizing.capacity import STABLE, Capacity, find_capacity
from tonnage.sizing.confidence import confidence_in, confidence_of, confidences, critical_factor, rates_with_slower_steps
from tonnage.sizing.instance import Instance
from tonnage.sizing.search import answer
from tonnage.sizing.search_space import Ready, prepare
from tonnage.spec.calibration import SCHEMA
from tonnage.spec.deployment import parse_limit

TTFT = bound_by(parse_limit("ttft", "p95<=500ms"))
REGIME = Regime(load="light", mix="prompt", family="dense")


def table(sigma: float, bias: float = 0.0) -> Residuals:
    from statistics import NormalDist

    values = tuple(bias + sigma * NormalDist().inv_cdf(level) for level in LEVELS)
    metrics = ("ttft_ms", "itl_ms", "e2e_ms", "requests_s")
    return Residuals(quantiles={m: {"loaded": values} for m in metrics}, stretch={}, unseen_gpu={}, report={})


def asked(needed: float, *, sigma: float = 0.1, bias: float = 0.0, binds: Bound = SATURATION, power: float = 1.0) -> Confidence:
    """An instance that carries 10 requests/s, over factor**power; 100 requests/s are needed in all, one instance a system."""
    return confidence_in(
        rate=10.0,
        needed_rate=needed,
        binds=binds,
        regime=REGIME,
        residuals=table(sigma, bias),
        rates_at=lambda factors: [10.0 / factor**power for factor in factors],
        systems_for=lambda rate: math.ceil(100 / rate),
    )


def test_at_exactly_its_capacity_the_chance_is_even() -> None:
    found = asked(10.0)
    assert found.meets == pytest.approx(0.5, abs=0.002)
    assert found.systems == {"50": 10, "80": 11, "95": 12}  # 100/s over 10 / e^(0.1 z)
    assert found.step_factors["95"] == pytest.approx(math.exp(0.1645), abs=1e-3)


def test_headroom_in_units_of_the_scatter_is_the_chance() -> None:
    assert asked(10.0 * math.exp(-0.1)).meets == pytest.approx(0.841, abs=0.005)
    assert asked(10.0 * math.exp(0.1)).meets == pytest.approx(0.159, abs=0.005)
    assert asked(10.0 * math.exp(-0.1), power=2.0).meets == pytest.approx(0.691, abs=0.005)
    assert asked(5.0).meets > 0.99


@pytest.mark.parametrize(
    ("binds", "metric"), [(TTFT, "ttft_ms"), (bound_by(parse_limit("tpot", "mean<=30ms")), "itl_ms"), (SATURATION, "requests_s")]
)
def test_what_binds_says_whose_errors_count_and_their_sign(binds: Bound, metric: str) -> None:
    """Latencies predicted 10 % too low, or rates 10 % too high: fewer than half of the instances do as predicted."""
    bias = 0.1 if metric == "requests_s" else -0.1
    found = asked(10.0, binds=binds, bias=bias)
    assert found.metric == metric
    assert found.meets == pytest.approx(0.159, abs=0.005)
    assert found.step_factors["50"] == pytest.approx(math.exp(0.1), abs=1e-3)


def test_where_slower_steps_meet_the_limits_at_no_load_there_is_no_number() -> None:
    found = confidence_in(
        rate=10.0,
        needed_rate=9.0,
        binds=TTFT,
        regime=REGIME,
        residuals=table(0.1),
        rates_at=lambda factors: [10.0 if factor < 1.05 else 0.0 for factor in factors],
        systems_for=lambda rate: math.ceil(100 / rate),
    )
    assert found.systems == {"50": 10, "80": None, "95": None}
    assert 0.5 < found.meets < 0.8
    assert "for 80%: no number reaches it" in confidence_text(found)


@given(st.floats(2.0, 20.0), st.floats(2.0, 20.0))
def test_more_is_never_surer(a: float, b: float) -> None:
    low, high = sorted((a, b))
    assert asked(low).meets >= asked(high).meets


def test_the_critical_factor_between_and_beyond_what_was_simulated() -> None:
    line = [(1.0, 10.0), (1.1, 10 / 1.1), (1.2, 10 / 1.2)]
    assert critical_factor(line, 9.5) == pytest.approx(10 / 9.5)
    assert critical_factor(line, 5.0) == pytest.approx(2.0)
    assert critical_factor(line, 20.0) == pytest.approx(0.5)
    assert critical_factor([(1.0, 0.0)], 5.0) == 1.0
    assert critical_factor([(1.0, 10.0)], 5.0) == pytest.approx(2.0)


ASKED: dict[str, Any] = {"model": "llama-3-8b", "isl": 500, "osl": 50, "gpu": "h100-sxm-80gb", "precision": "fp16", "tp": "1"}


def plan_of(**asked: Any) -> Any:
    return api.size(**{**ASKED, "engine": "nim-2024", "tpot": "mean<=25ms", **asked})


def test_a_plan_says_how_sure_it_is() -> None:
    plan = plan_of(peak_rps=400)
    found = plan.choice.confidence
    counts = [found.systems[share] for share in ("50", "80", "95")]
    assert None not in counts
    assert counts == sorted(counts)
    assert 0 < found.meets < 1
    assert plan.to_json()["choice"]["confidence"]["systems"] == found.systems
    if counts[2] <= plan.choice.systems:
        assert found.meets >= 0.9
    if counts[0] > plan.choice.systems:
        assert found.meets <= 0.5


def test_more_load_on_the_same_systems_is_less_sure() -> None:
    plans = [plan_of(peak_rps=rate) for rate in (150, 300)]
    needed = [plan.choice.confidence.systems["95"] for plan in plans]
    assert needed[0] <= needed[1]
    assert plans[0].choice.systems != plans[1].choice.systems or plans[0].choice.confidence.meets >= plans[1].choice.confidence.meets


def test_an_engine_without_rows_is_less_sure() -> None:
    fitted, published = (
        plan_of(peak_rps=100, gpu="a100-sxm-80gb", engine=engine).choice.confidence.step_factors for engine in ("nim-2024", "vllm")
    )
    assert published["95"] / published["50"] > fitted["95"] / fitted["50"]


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


def test_every_candidate_says_how_sure_it_is_and_the_runs_at_hand_agree_with_slower_ones() -> None:
    """The choice is simulated again with slower steps; read from the runs that found its capacity, its confidence is nearly the same."""
    asked = {**ASKED, "tp": "1,2", "engine": "nim-2024", "tpot": "mean<=25ms", "peak_rps": 100}
    question = ask(**asked).questions[0]
    found = answer(question, prepare(question))
    simulated = confidence_of(question, found)
    each = confidences(question, found)
    assert len(each) == len(found.candidates) > 1
    assert None not in each
    read = each[0]
    assert read is not None
    assert read.meets == pytest.approx(simulated.meets, abs=0.08)
    for share, systems in simulated.systems.items():
        got = read.systems[share]
        assert systems is None or (got is not None and abs(got - systems) <= max(1, 0.1 * systems))


def test_the_plan_its_table_and_its_json_hold_the_confidence_of_every_candidate(capsys: pytest.CaptureFixture[str]) -> None:
    plan = plan_of(peak_rps=100, tp="1,2")
    assert all(c.confidence is not None for c in plan.candidates)
    assert [c["confidence"]["meets"] for c in plan.to_json()["candidates"]] == [c.confidence.meets for c in plan.candidates]
    shown = terminal(plan_text((plan,)))
    assert "P(meets)" in shown
    assert f"{plan.choice.confidence.meets:.0%}" in shown


def test_a_job_has_no_confidence_but_that_of_the_choice() -> None:
    plan = api.size(model="llama-3-8b", isl=500, osl=50, gpu="h100-sxm-80gb", requests=100_000, within="1h")
    assert all(c.confidence is None for c in plan.candidates[1:])


def instance_of(**changed: object) -> Instance:
    ready = next(found for found in prepare(question(**changed)) if isinstance(found, Ready))
    return ready.instance


def capacity_of(rate: float, saturation: float) -> Capacity:
    blank = find_capacity(instance_of())
    return replace(blank, rate=rate, saturation=saturation)


@pytest.mark.parametrize("limit", ["p95<=300ms", "p95<=120ms", "mean<=60ms"])
def test_slower_steps_carry_what_the_instance_carries_under_tighter_limits(limit: str) -> None:
    """Read from the runs of one search, against a search of its own with every step slower."""
    instance = instance_of(ttft=limit)
    found = find_capacity(instance)
    for factor in (1.05, 1.2):
        slower = find_capacity(Instance(instance.deployment, replace(instance.asked, step_factor=factor)))
        (read,) = rates_with_slower_steps(found, instance.trail, [factor])
        assert read == pytest.approx(slower.rate, rel=0.06)


def test_saturation_shrinks_with_the_steps_and_a_limit_that_one_client_exceeds_leaves_nothing() -> None:
    free = capacity_of(rate=STABLE * 10.0, saturation=10.0)
    assert rates_with_slower_steps(free, {0.0: 0.1, 9.8: 0.3}, [1.0, 2.0, 3.0]) == pytest.approx([9.8, 4.9, 9.8 / 3])
    assert rates_with_slower_steps(free, {0.0: 0.6, 9.8: 0.9}, [2.0]) == [0.0]
    assert rates_with_slower_steps(free, {}, [2.0]) == pytest.approx([4.9])


trails = st.dictionaries(st.floats(0.1, 9.0), st.floats(0.05, 4.0), min_size=1, max_size=8)


@given(trails, st.floats(0.5, 3.0), st.floats(0.5, 3.0))
def test_slower_steps_never_carry_more(trail: dict[float, float], a: float, b: float) -> None:
    fast, slow = sorted((a, b))
    one, other = rates_with_slower_steps(CAPACITY, {0.0: 0.04, **trail}, [fast, slow])
    assert other <= one * (1 + 1e-9)


CAPACITY = capacity_of(rate=5.0, saturation=10.0)
