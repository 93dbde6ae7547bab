"""The first page stands alone: the answer, its numbers, the lines of the first screen, and one
figure."""

from __future__ import annotations

from dataclasses import replace

from tests.questions import question
from tests.report.example_plan import full, without_answer
from tonnage.plan.candidate import Confidence, Identity
from tonnage.plan.limit import Breach, Limit
from tonnage.plan.notes import LengthsVary
from tonnage.plan.reason import (
    BrokenAtAnyLoad,
    CannotRun,
    PrecisionUnsupported,
    Reason,
    Rejected,
    rejected,
)
from tonnage.report.plans.candidates import left_out_texts, nearest_table
from tonnage.report.plans.plan_document import first_glance, full_text
from tonnage.report.plans.question import lengths_text, pace_text
from tonnage.report.writers.terminal import terminal
from tonnage.sizing.planner import size


def test_the_cards_are_the_plan_s_own_numbers() -> None:
    plan, cards = full(), dict(first_glance(full()))
    assert cards["systems to buy"] == str(plan.choice.systems)
    assert cards["GPUs"] == str(plan.choice.gpus)
    assert cards["of capacity, used at the peak"] == f"{plan.choice.utilisation:.0%}"
    sure = Confidence(
        meets=0.83, systems={"50": 4, "80": 5, "95": 6}, step_factors={}, metric="ttft_ms"
    )
    surer = replace(plan, candidates=(replace(plan.choice, confidence=sure), *plan.candidates[1:]))
    assert dict(first_glance(surer))["probability that every limit holds"] == "83%"


# The gaps between tokens beside the speed of reading, in words.


def test_the_pace_beside_reading_and_a_spread_that_is_assumed() -> None:
    for mean, p99, said in [
        (
            0.03,
            0.1,
            (
                "faster than a fast reader (90 ms per token), and p99 is within the 250 ms that"
                " readers accept"
            ),
        ),
        (
            0.12,
            0.3,
            (
                "faster than an average reader (200 ms per token), slower than a fast one (90 ms),"
                " and p99 is beyond the 250 ms"
            ),
        ),
        (
            0.25,
            0.25,
            (
                "slower than an average reader (200 ms per token), and p99 is within the 250 ms"
                " that readers accept"
            ),
        ),
    ]:
        assert pace_text(mean, p99).startswith(said)
    asked = replace(full().scenario, isl="2000+-20%", osl="200+-20%")
    both, one = (LengthsVary(which=which, share=0.2) for which in (("isl", "osl"), ("osl",)))
    assert (
        lengths_text(replace(full(), scenario=asked, notes=(both,)))
        == "2,000 tokens in, 200 out (lengths within ±20%, assumed)"
    )
    assert (
        lengths_text(replace(full(), scenario=asked, notes=(one,)))
        == "2,000 ± 20% tokens in, 200 out (answers within ±20%, assumed)"
    )
    assert (
        lengths_text(replace(full(), scenario=asked, notes=()))
        == "2,000 ± 20% tokens in, 200 ± 20% out"
    )


# Lengths in words, in every form that a question knows.


# No GPU that was asked for vanishes: each without a deployment inside the limits is named with its
# nearest reason.


LIMIT = Limit(metric="ttft", statistic="p95", milliseconds=500.0)


def refused(gpu: str, tp: int, reason: Reason) -> Rejected:
    return rejected(Identity(gpu=gpu, precision="fp8", tp=tp, engine="vllm-0.32"), reason)


def test_without_an_answer_each_gpu_is_a_row_with_its_nearest_reason() -> None:
    near, far = (
        BrokenAtAnyLoad(breach=Breach(limit=LIMIT, value_ms=value)) for value in (612.0, 900.0)
    )
    no_fp8 = PrecisionUnsupported(subject="Ampere", lacks="no FP8 matrix units")
    reasons = (
        *(
            refused("l40s", 1, CannotRun(error="weights 80 GB do not fit")),
            refused("l40s", 4, far),
            refused("l40s", 8, near),
        ),
        refused("a100-sxm-80gb", 1, no_fp8),
    )
    plan = full()
    gpus = (plan.candidates[0].gpu, "l40s", "a100-sxm-80gb")
    plan = replace(
        plan,
        scenario=replace(plan.scenario, gpus=gpus),
        candidates=plan.candidates[:1],
        pareto=(),
        rejected=reasons,
    )
    texts = (
        "l40s: TTFT p95 612 ms > 500 ms at any load (fp8 TP 8 vllm-0.32)",
        "a100-sxm-80gb: Ampere has no FP8 matrix units",
    )
    assert left_out_texts(plan) == texts
    words = " ".join(terminal(full_text((plan,))).split())
    assert "Left out, with the reason that comes nearest: l40s: TTFT p95 612 ms" in words
    reasons = tuple(
        refused(f"gpu-{i}", 1, BrokenAtAnyLoad(breach=Breach(limit=LIMIT, value_ms=600.0 + i)))
        for i in range(20)
    )
    plan = without_answer()
    plan = replace(
        plan,
        scenario=replace(plan.scenario, gpus=tuple(one.gpu for one in reasons)),
        rejected=reasons,
    )
    table = nearest_table(plan, 8)
    assert [row[0] for row in table.rows] == [f"gpu-{i}" for i in range(8)]
    assert table.rows[0] == ("gpu-0", "fp8 TP 1 vllm-0.32", "TTFT p95 600 ms > 500 ms at any load")
    assert table.note == "… and 12 more GPUs"


def test_every_gpu_of_a_question_is_inside_or_left_out() -> None:
    """The H100 carries the load, the A100 has no FP8, the MI300X no such engine."""
    asked = question(gpu="h100,a100-sxm-80gb,mi300x", tp="1")
    plan = size(replace(asked, deepen=False))
    inside = {candidate.gpu for candidate in plan.candidates}
    named = {text.partition(":")[0] for text in left_out_texts(plan)}
    assert inside | named == {gpu.name for gpu in asked.gpus}
    assert not inside & named
