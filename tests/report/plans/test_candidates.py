"""Every deployment, inside the limits and left out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.questions import question
from tests.report.example_plan import full, without_answer
from tests.report.plans.screens import OTHER as SPLIT
from tests.report.plans.screens import PEAK, many
from tonnage.plan.candidate import Identity
from tonnage.plan.limit import Breach, Limit
from tonnage.plan.reason import (
    Behind,
    BrokenAtAnyLoad,
    CannotRun,
    NotSure,
    PrecisionUnsupported,
    Reason,
    Rejected,
    rejected,
)
from tonnage.report.document import Table, Text
from tonnage.report.plans.candidates import (
    left_out_texts,
    nearest_table,
    others_block,
    rejected_section,
)
from tonnage.report.plans.plan_document import full_text
from tonnage.report.writers.terminal import terminal
from tonnage.sizing.planner import size

OTHER = Identity(gpu="h100-sxm-80gb", precision="fp8", tp=1, engine="vllm-0.32")
LIMIT = Limit(metric="ttft", statistic="p95", milliseconds=500.0)
BREACH = Breach(limit=LIMIT, value_ms=612.0)

REASONS: dict[str, tuple[Reason, Reason]] = {
    "does not fit the memory of its GPUs": (
        CannotRun(error="weights 141 GB + 2.9 GB do not fit 1 × 80 GB"),
        CannotRun(error="weights 142 GB + 8.2 GB do not fit 2 × 80 GB"),
    ),
    "breaks a limit at 3.25 requests/s per GPU": (
        Behind(breach=BREACH, requests_per_second=3.25, per_gpu=3.25, other=OTHER),
        Behind(
            breach=replace(BREACH, value_ms=700.0),
            requests_per_second=6.5,
            per_gpu=3.25,
            other=OTHER,
        ),
    ),
    "breaks TTFT p95 ≤ 500 ms at any load": (
        BrokenAtAnyLoad(breach=BREACH),
        BrokenAtAnyLoad(breach=replace(BREACH, value_ms=700.0)),
    ),
    "a single request comes near TTFT p95 ≤ 500 ms where steps take 1.14 times as long as predicted": (
        NotSure(breach=replace(BREACH, value_ms=430.0), step_factor=1.14),
        NotSure(breach=replace(BREACH, value_ms=440.0), step_factor=1.14),
    ),
}


@pytest.mark.parametrize("shared", REASONS)
def test_deployments_that_fail_for_one_reason_share_a_row_and_keep_their_numbers(
    shared: str,
) -> None:
    refused = tuple(
        rejected(replace(OTHER, tp=tp), reason) for tp, reason in enumerate(REASONS[shared], 1)
    )
    table = rejected_section(replace(without_answer(), rejected=refused)).blocks[-1]
    ((gpu, why_not, which),) = table.rows  # type: ignore[union-attr]
    assert gpu == "h100-sxm-80gb"
    assert shared in why_not
    assert which.count("(") == 2
    assert which.startswith("fp8 vllm-0.32 TP 1 (")
    assert len({part.split("(")[1] for part in which.split("), 2 ")}) == 2


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


def test_the_best_of_every_gpu_has_a_row_before_others_of_one_gpu_and_is_counted_where_there_is_no_room() -> (
    None
):
    first, *rest = many(6, 0)
    other = replace(first, pools=(replace(rest[0].pool, gpu="mi355x", systems=30),), at_peak=PEAK)
    plan = replace(full(), candidates=(first, *rest, other), pareto=(), rejected=())
    table = others_block(plan, 2)
    assert isinstance(table, Table)
    assert [row[0] for row in table.rows] == ["rtx-pro-6000-blackwell-se", "mi355x"]
    far = others_block(
        replace(
            plan,
            candidates=(first, *rest, replace(other, pools=(replace(other.pool, systems=900),))),
        ),
        2,
    )
    assert isinstance(far, Table)
    assert "7,200 GPUs of mi355x would do" in far.note
    failed = rejected(
        replace(SPLIT, gpu="l40s"), CannotRun(error="weights 594 GB do not fit 1 × 48 GB")
    )
    alone = replace(
        plan,
        candidates=(first,),
        rejected=(failed,),
        scenario=replace(plan.scenario, gpus=(first.pool.gpu, "l40s")),
    )
    assert others_block(alone) == Text(
        text="No answer on l40s: weights 594 GB do not fit 1 × 48 GB (fp8 TP 8 tensorrt-llm)."
    )
