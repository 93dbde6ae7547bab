"""The whole search: candidates, rejections with their numbers, and the plan as one JSON object."""

import json
from pathlib import Path

import pytest

import tonnage
from tonnage import api
from tonnage.errors import InputError
from tonnage.plan.plan import Plan
from tonnage.report.plans.candidates import reason_text
from tonnage.report.plans.explained import why_text
from tonnage.report.plans.notes import percentile_text
from tonnage.report.plans.plan_document import full_text, report
from tonnage.report.plans.screen import brief_lines
from tonnage.report.writers.html import html
from tonnage.report.writers.terminal import markdown, terminal

ROOT = Path(__file__).parents[2]
STATISTICS = {"mean", "p50", "p90", "p95", "p99"}


@pytest.fixture(scope="module")
def plan() -> Plan:
    return tonnage.size(model="llama-3-70b", gpu="h100,a100-sxm-80gb", isl=1000, osl=100, peak_rps=20, ttft="p95<=2s", tp="1,4,8")


def test_choice_needs_the_fewest_gpus(plan: Plan) -> None:
    assert plan.choice.gpus == min(c.gpus for c in plan.candidates)
    assert plan.choice.gpu == "h100-sxm-80gb"
    assert plan.choice.precision == "fp8"


def test_every_combination_is_a_candidate_or_rejected(plan: Plan) -> None:
    assert len(plan.candidates) + len(plan.rejected) == 2 * 2 * 3 * 2


def test_rejections_say_why_in_numbers(plan: Plan) -> None:
    reasons = {(r.gpu, r.precision, r.tp, r.engine): reason_text(r.reason) for r in plan.rejected}
    assert reasons["h100-sxm-80gb", "fp16", 1, "tensorrt-llm-1.2"].startswith("weights 141 GB + ")
    assert reasons["h100-sxm-80gb", "fp16", 1, "tensorrt-llm-1.2"].endswith("do not fit 1 × 80 GB")
    assert reasons["a100-sxm-80gb", "fp8", 4, "vllm-0.32"] == "Ampere has no FP8 matrix units"


def test_limits_hold_for_every_candidate(plan: Plan) -> None:
    assert all(c.ttft_ms.p95 is not None and c.ttft_ms.p95 <= 2000 for c in plan.candidates)


def test_systems_carry_the_peak(plan: Plan) -> None:
    for c in plan.candidates:
        assert c.instances * c.requests_per_second_per_instance >= 20
        assert c.instances == c.systems * 8 // c.tp
        assert c.requests_per_second_per_8_gpus == pytest.approx(8 * c.requests_per_second_per_gpu)


def test_plan_is_one_json_object_with_the_agreed_keys(plan: Plan) -> None:
    document = json.loads(json.dumps(plan.to_json()))
    assert document["demand"]["peak_requests_per_second"] == 20
    agreed = "pools gpu system precision tp pp engine knobs instances systems systems_exact utilisation ttft_ms itl_ms tpot_ms e2e_ms"
    rates = "requests_per_second_per_instance requests_per_second_per_gpu requests_per_second_per_8_gpus"
    for choice in (document["choice"], *document["choices"].values()):
        assert set(f"{agreed} {rates}".split()) <= set(choice)
        assert all(set(choice[m]) == STATISTICS for m in ("ttft_ms", "itl_ms", "tpot_ms", "e2e_ms"))
    assert set(document["choices"]) == {"latency_optimal", "throughput_optimal"}
    assert all(r["reason"] for r in document["rejected"])
    assert {"tonnage", "coefficients", "benchmarks", "seed"} <= set(document["provenance"])


def test_transferred_numbers_are_marked(plan: Plan) -> None:
    assert all(bool(c.marks) == (c.engine != "vllm-0.32" or c.gpu != "h100-sxm-80gb") for c in plan.candidates)
    assert any(c.marks for c in plan.candidates)


def test_spare_systems_are_added() -> None:
    one = tonnage.size(model="llama-3-8b", gpu="h100", isl=500, osl=50, peak_rps=5, precision="fp8", tp=1, engine="vllm", spare=1)
    assert one.choice.systems == 2


def test_mean_with_percentile_shows_both_ways() -> None:
    found = tonnage.size(
        model="llama-3-8b",
        gpu="h100",
        isl=2000,
        osl=200,
        mean_rps=64,
        peak_percentile=95,
        precision="fp8",
        tp=1,
        engine="tensorrt-llm-0.15",
        ttft="p95<=1s",
    )
    answer = found.percentile_answer
    assert found.demand.peak_requests_per_second == 77
    assert answer.systems_exact > 0
    assert answer.simulated_systems_exact == found.candidates[0].systems_exact
    assert "77/s" in percentile_text(answer)


def test_every_output_names_the_rate_that_was_simulated() -> None:
    """Users' mean of the working hours, of which the mean of the week, 1.32 requests/s, is another number."""
    one = {"model": "llama-3-8b", "gpu": "h100", "precision": "fp8", "tp": 1, "engine": "vllm", "isl": 2000, "osl": 200}
    found = tonnage.size(**one, users=20_000, requests_per_user_day=8, ttft="p95<=500ms")
    answer = found.percentile_answer
    assert answer.mean_requests_per_second == found.demand.sizing_requests_per_second == pytest.approx(160_000 / 28_800)
    text = terminal(full_text([found]))
    shown = [text, markdown(report(found)), html(report(found)), "\n".join(brief_lines([found])), terminal(why_text([found]))]
    for each in shown:
        assert "5.55556 requests/s: the mean (20,000 users" in " ".join(each.split())
        assert "1.32275" not in each
    assert "Poisson arrivals at 5.55556/s ←" in text
    assert "The load is 5.56 requests/s" in shown[-1]


def test_a_plan_of_measured_points_is_for_the_percentile_that_it_divides() -> None:
    points = ROOT / "examples" / "nim-llama-3-8b-h100-fp8.csv"
    found = api.size_measured(benchmarks=points, mean_rps=64, peak_percentile=95, ttft="mean<=500ms")
    assert found.demand.sizing_requests_per_second == 77
    assert found.choice.systems_exact == pytest.approx(77 / found.choice.requests_per_second_per_instance / 8)
    said = " ".join(terminal(full_text([found])).split())
    assert "77 requests/s: the 95th percentile of the arrivals in one second; 64 is the mean" in said


def test_gpu_of_another_vendor_is_rejected_for_its_engine() -> None:
    found = tonnage.size(model="llama-3-8b", gpu="mi300x", isl=500, osl=50, peak_rps=5, tp=1, precision="fp16")
    assert [c.engine for c in found.candidates] == ["vllm-0.32"]
    assert reason_text(found.rejected[0].reason) == "tensorrt-llm-1.2 does not run on AMD accelerators"


def test_context_overflow_is_refused_before_anything_runs() -> None:
    with pytest.raises(InputError, match="exceed the context of llama-3-8b, 8,192 tokens"):
        tonnage.size(model="llama-3-8b", isl=8000, osl=500, peak_rps=1)
