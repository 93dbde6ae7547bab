"""The whole search: candidates, rejections with their numbers, and the plan as one JSON object."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

import tonnage
from tests.questions import question
from tonnage.errors import InputError
from tonnage.perf.step import step_seconds
from tonnage.plan.limit import THROUGHPUT
from tonnage.plan.plan import Plan
from tonnage.plan.reason import TooSlowForJob
from tonnage.report.plans.candidates import reason_text
from tonnage.report.plans.explained import why_text
from tonnage.report.plans.notes import note_text
from tonnage.report.plans.plan_document import full_text, report
from tonnage.report.plans.question import bound_text
from tonnage.report.plans.screen import brief_lines
from tonnage.report.writers.html import html
from tonnage.report.writers.terminal import markdown, terminal
from tonnage.results.metrics import Latencies
from tonnage.sizing.loads import capacity
from tonnage.sizing.loads.capacity import finish_s, makespan_s, most_within, queued
from tonnage.sizing.loads.runs import Runs
from tonnage.sizing.loads.trial import Ready
from tonnage.sizing.planner import size
from tonnage.sizing.question import Question
from tonnage.sizing.search.search_space import prepare


@pytest.fixture(scope="module")
def plan() -> Plan:
    return tonnage.size(
        model="llama-3-70b",
        gpu="h100,a100-sxm-80gb",
        isl=1000,
        osl=100,
        peak_rps=20,
        ttft="p95<=2s",
        tp="1,4,8",
    )


def test_every_combination_is_a_candidate_that_carries_the_peak_inside_the_limits_or_rejected(
    plan: Plan,
) -> None:
    assert plan.choice.gpus == min(c.gpus for c in plan.candidates)
    assert (plan.choice.gpu, plan.choice.precision) == ("h100-sxm-80gb", "fp8")
    assert len(plan.candidates) + len(plan.rejected) == 2 * 2 * 3 * 2
    for c in plan.candidates:
        assert c.ttft_ms.p95 <= 2000
        assert c.instances * c.requests_per_second_per_instance >= 20
        assert c.instances == c.systems * 8 // c.tp
        assert c.requests_per_second_per_8_gpus == pytest.approx(8 * c.requests_per_second_per_gpu)


def test_rejections_say_why_in_numbers(plan: Plan) -> None:
    reasons = {(r.gpu, r.precision, r.tp, r.engine): reason_text(r.reason) for r in plan.rejected}
    assert reasons["h100-sxm-80gb", "fp16", 1, "tensorrt-llm-1.2"].startswith("weights 141 GB + ")
    assert reasons["h100-sxm-80gb", "fp16", 1, "tensorrt-llm-1.2"].endswith("do not fit 1 × 80 GB")
    assert (
        reasons["a100-sxm-80gb", "fp8", 4, "tensorrt-llm-1.2"] == "Ampere has no FP8 matrix units"
    )


def test_every_output_names_the_rate_that_was_simulated() -> None:
    """Users' mean of the working hours, of which the mean of the week, 1.32 requests/s, is another
    number."""
    one = {
        "model": "llama-3-8b",
        "gpu": "h100",
        "precision": "fp8",
        "tp": 1,
        "engine": "vllm",
        "isl": 2000,
        "osl": 200,
    }
    found = tonnage.size(**one, users=20_000, requests_per_user_day=8, ttft="p95<=500ms")
    answer = found.percentile_answer
    assert (
        answer.mean_requests_per_second
        == found.demand.sizing_requests_per_second
        == pytest.approx(160_000 / 28_800)
    )
    text = terminal(full_text([found]))
    shown = [
        text,
        markdown(report(found)),
        html(report(found)),
        "\n".join(brief_lines([found])),
        terminal(why_text([found])),
    ]
    for each in shown:
        assert "5.55556 requests/s: the mean (20,000 users" in " ".join(each.split())
        assert "1.32275" not in each
    assert "Poisson arrivals at 5.55556/s ←" in text
    assert "The load is 5.56 requests/s" in shown[-1]


def test_gpu_of_another_vendor_is_rejected_for_its_engine() -> None:
    found = tonnage.size(
        model="llama-3-8b", gpu="mi300x", isl=500, osl=50, peak_rps=5, tp=1, precision="fp16"
    )
    assert [c.engine for c in found.candidates] == ["vllm-0.32"]
    assert (
        reason_text(found.rejected[0].reason) == "tensorrt-llm-1.2 does not run on AMD accelerators"
    )


def test_context_overflow_is_refused_before_anything_runs() -> None:
    with pytest.raises(InputError, match="exceed the context of llama-3-8b, 8,192 tokens"):
        tonnage.size(model="llama-3-8b", isl=8000, osl=500, peak_rps=1)


# A job: what one instance finishes in time, and the whole numbers of systems that a brute force
# finds.


def job(requests: int = 20_000, within: str = "30s", **changed: object) -> Question:
    return question(
        **{
            "peak_rps": None,
            "ttft": None,
            "requests": requests,
            "within": within,
            "tp": "1",
            **changed,
        }
    )


def ready(asked: Question) -> Ready:
    return next(found for found in prepare(asked, Runs()) if isinstance(found, Ready))


@pytest.mark.parametrize(("requests", "within"), [(20_000, "6s"), (20_000, "30s"), (1, "30s")])
def test_systems_agree_with_brute_force_and_the_finish_is_that_of_the_largest_share(
    requests: int, within: str
) -> None:
    asked = job(requests=requests, within=within)
    instance, seconds = ready(asked).instance, asked.demand.offline_seconds
    assert seconds is not None
    systems = next(
        n
        for n in range(1, 50)
        if makespan_s(queued(instance, math.ceil(requests / (8 * n)))) <= seconds
    )
    plan = size(replace(asked, deepen=False))
    assert (plan.choice.systems, plan.choice.binds) == (systems, THROUGHPUT)
    share = math.ceil(requests / plan.choice.instances)
    assert plan.job.requests_per_instance == share
    assert (
        plan.job.finish_seconds
        == makespan_s(queued(instance, share))
        <= plan.job.allowed_seconds
        == seconds
    )
    assert plan.choice.ttft_ms == plan.choice.e2e_ms == Latencies(), (
        "the time in the queue is no latency of a user"
    )


def test_one_slot_and_one_token_take_their_service_times_one_after_another() -> None:
    instance = ready(job(isl="exact:1000", max_batch_size=1, osl=1)).instance
    service = step_seconds(instance.step.coefficients, 1000, 1, 0, 1000 * 1000, 0)
    assert makespan_s(queued(instance, 50)) == pytest.approx(
        50 * service + instance.step.frontend_s, rel=1e-6
    )
    assert most_within(instance, 100.5 * service + instance.step.frontend_s) == 100


def test_a_small_job_needs_a_small_part_of_a_system() -> None:
    """10 thousand and a million requests in 8 h gave the same 0.125 systems: each instance was
    taken to do no more than the job."""
    small, large = (
        size(replace(job(requests=n, within="8h"), deepen=False)) for n in (10_000, 1_000_000)
    )
    assert small.choice.systems == large.choice.systems == 1
    assert large.choice.systems_exact == pytest.approx(100 * small.choice.systems_exact)


def test_the_finish_of_a_long_queue_is_on_the_same_line(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = ready(job()).instance
    monkeypatch.setattr(capacity, "SIMULATED", 2_000)
    assert finish_s(instance, 6_000) == pytest.approx(makespan_s(queued(instance, 6_000)), rel=0.01)


@pytest.mark.parametrize("requests", [pytest.param(20_000, marks=pytest.mark.accuracy), 400_000])
def test_the_line_of_a_job_is_the_same_for_every_deadline_and_near_what_is_simulated(
    requests: int,
) -> None:
    done = []
    for within in ("1h", "6h"):
        plan = size(replace(job(requests=requests, within=within), deepen=False))
        assert plan.job.seconds_on(plan.choice.instances) == pytest.approx(
            plan.job.finish_seconds, rel=0.02
        )
        done.append((plan.job.fixed_seconds, plan.job.seconds_per_request))
    assert done[0] == done[1]


def test_a_long_share_is_continued_in_a_straight_line(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = ready(job()).instance
    whole = most_within(instance, 100.0)
    monkeypatch.setattr(capacity, "SIMULATED", 2 * whole)
    assert most_within(instance, 100.0) == pytest.approx(whole, rel=0.01)


def test_a_time_that_is_too_short_for_one_request_is_refused_with_both() -> None:
    plan = size(replace(job(within="1ms"), deepen=False))
    assert plan.choice is None
    reason = plan.rejected[0].reason
    assert isinstance(reason, TooSlowForJob)
    assert reason.seconds > reason.allowed == 0.001


def test_latency_limits_do_not_count() -> None:
    strict = size(
        replace(question(ttft="p95<=1ms"), demand=job().demand, mode="offline", deepen=False)
    )
    assert strict.choice is not None
    assert "Offline, so only throughput counts: TTFT p95 ≤ 1 ms does not count." in map(
        note_text, strict.notes
    )


def test_sequential_callers_wait_for_the_whole_answer_only() -> None:
    asked = replace(question(ttft="p95<=1ms", e2e="p95<=5s", tp="1"), deepen=False)
    assert size(asked).choice is None
    plan = size(replace(asked, mode="sequential"))
    assert bound_text(plan.choice.binds) in ("E2E p95 ≤ 5 s", "saturation")
    assert (
        "Sequential, so only the time to the whole answer counts: TTFT p95 ≤ 1 ms does not count."
        in map(note_text, plan.notes)
    )
