"""The full text of a plan: the golden text at the full width, no line wider than the terminal, and
everything that the plan holds."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from tests.report.example_plan import GOLDEN, full, without_answer
from tonnage.plan.candidate import Identity
from tonnage.plan.limit import Breach, Limit
from tonnage.plan.plan import Plan
from tonnage.plan.reason import Behind, BrokenAtAnyLoad, CannotRun, NotSure, Reason, rejected
from tonnage.plan.sensitivity import Changed
from tonnage.report.plans.candidates import rejected_section
from tonnage.report.plans.explained import needed, ttft_table
from tonnage.report.plans.plan_document import full_text
from tonnage.report.plans.screen import screen
from tonnage.report.writers.terminal import terminal
from tonnage.results.metrics import TtftParts


def written(*plans: Plan) -> str:
    """The full text of the plans."""
    return terminal(full_text(plans))


def words(text: str) -> str:
    """The text on one line."""
    return " ".join(text.split())


@pytest.fixture
def full_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "110")


@pytest.mark.usefixtures("full_width")
def test_text_is_the_golden_one() -> None:
    text = written(full()) + "\n"
    if os.environ.get("TONNAGE_GOLDEN") == "write":
        (GOLDEN / "plan.txt").write_text(text, encoding="utf-8")
    assert text == (GOLDEN / "plan.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("columns", [44, 60, 72, 80, 100, 110, 200])
def test_no_line_is_wider_than_the_terminal_and_identity_stays(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    text = written(full())
    assert max(
        len(line) for line in text.splitlines() if not line.startswith("  ./tonnage ")
    ) <= min(columns, 110), "but the command"
    assert "5 × dgx-h100" in text
    for one in full().candidates:
        for name in (one.gpu, one.precision, one.engine):
            assert name in text


def test_systems_before_rounding_have_digits_enough_to_see_which_way() -> None:
    for exact, said in [
        (0.998, "2 (0.998)"),
        (1.004, "2 (1.004)"),
        (1.0001, "2 (just over 1)"),
        (1.0, "2 (1.00)"),
    ]:
        assert (
            needed(
                Changed(change=0.2, systems=2, systems_exact=exact, deployment=None, reason=None)
            )
            == said
        )
    for busy, said in [
        (0.1, ""),
        (0.43, "The front end is busy 43% of the time."),
        (0.93, "busy 93% of the time, which limits: a further API server"),
    ]:
        explained = full().explain
        assert explained is not None
        plan = replace(full(), explain=replace(explained, front_end_busy=busy))
        for text in (words(written(plan)), words(terminal(screen((plan,), explain=True)))):
            assert said in text
            assert ("front end" in text) == bool(said)
        assert "Where time and memory go" not in terminal(screen((plan,)))


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


def test_a_ttft_is_shown_by_where_it_goes() -> None:
    explained = full().explain
    assert explained is not None
    none = {"handover_ms": 0.0, "saved_ms": 0.0}
    mean = TtftParts(
        statistic="mean", front_end_ms=20.0, queue_ms=30.0, prefill_ms=40.0, shared_ms=5.0, **none
    )
    plan = replace(
        full(),
        explain=replace(
            explained, ttft=(mean, replace(mean, statistic="p95", queue_ms=130.0, saved_ms=7.0))
        ),
    )
    table = ttft_table(plan)
    assert table is not None
    means, p95s = zip(*(row[1:] for row in table.rows), strict=True)
    assert means == ("20.0", "30.0", "40.0", "5.00", "95.0", "0")
    assert p95s == ("20.0", "130", "40.0", "5.00", "195", "7.00")
    assert words("saved by the prefix cache") in words(terminal(screen((plan,), explain=True)))
    assert Plan.from_json(plan.to_json()) == plan
