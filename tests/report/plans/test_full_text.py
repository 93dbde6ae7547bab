"""The full text of a plan: the golden text at the full width, no line wider than the terminal, and everything that the plan holds."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.plan.candidates import candidate
from tests.report.example_plan import GOLDEN, full, without_answer
from tonnage.plan.candidate import Identity
from tonnage.plan.cost import YearlyCost
from tonnage.plan.limit import Breach, Limit
from tonnage.plan.plan import Plan
from tonnage.plan.reason import Behind, BrokenAtAnyLoad, CannotRun, NeedsMoreGpus, NotSure, Outdone, Reason, rejected
from tonnage.plan.sensitivity import Changed
from tonnage.report.numbers import number, usd
from tonnage.report.plans.candidates import rejected_section, yearly_costs
from tonnage.report.plans.confidence import fleet_check_text
from tonnage.report.plans.cost import TITLES, cost_note_texts
from tonnage.report.plans.deployments import knobs, latency, load_text, memory_text
from tonnage.report.plans.explained import needed, relaxed_text, ttft_table
from tonnage.report.plans.fleet import routers_text
from tonnage.report.plans.notes import note_text
from tonnage.report.plans.plan_document import full_text
from tonnage.report.plans.question import bound_text
from tonnage.report.plans.screen import answer_rows, screen, warnings_of
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
def test_no_line_is_wider_than_the_terminal_and_identity_stays(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    text = written(full())
    assert max(len(line) for line in text.splitlines() if not line.startswith("  ./tonnage ")) <= min(columns, 110), "but the command"
    assert "5 × dgx-h100" in text
    for one in full().candidates:
        for name in (one.gpu, one.precision, one.engine):
            assert name in text


@pytest.mark.usefixtures("full_width")
def test_every_deployment_can_be_told_from_the_others_at_eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    body = written(full()).split("\nCandidates\n")[1].split("\n\n")[0].splitlines()
    rows = [line for line in body if line.startswith(("h100", "l40s", "a100"))]
    assert len({tuple(row.replace("←", "").split()[:4]) for row in rows}) == len(full().candidates)


@pytest.mark.parametrize(("exact", "said"), [(0.998, "2 (0.998)"), (1.004, "2 (1.004)"), (1.0001, "2 (just over 1)"), (1.0, "2 (1.00)")])
def test_systems_before_rounding_have_digits_enough_to_see_which_way(exact: float, said: str) -> None:
    assert needed(Changed(change=0.2, systems=2, systems_exact=exact, deployment=None, reason=None)) == said


def held(plan: Plan) -> Iterator[str]:
    """What the text of a plan held before it had a first screen, in words that no column folds."""
    best, cost = plan.choice, plan.cost
    assert plan.fleet_check is not None
    assert plan.sensitivity.relaxed is not None
    assert isinstance(cost, YearlyCost)
    yield from (text for _, text in answer_rows(plan))
    yield from warnings_of(plan)
    yield from map(note_text, plan.notes)
    yield fleet_check_text(plan.fleet_check)
    yield routers_text(plan.routers, plan.scenario.limits_that_count, best.systems)
    yield load_text(best.load)
    yield number(best.requests_per_second_per_8_gpus)
    yield "faster than a fast reader"
    yield relaxed_text(plan.sensitivity.relaxed)
    yield from (needed(side) for swing in plan.sensitivity.swings for side in (swing.low, swing.high))
    for one, price in zip(plan.candidates, yearly_costs(plan), strict=True):
        exact, gpus = number(one.systems_exact), f"{one.gpus:,}"
        yield from (one.gpu, one.precision, one.engine, exact, gpus, usd(price), bound_text(one.binds))
    for refused in plan.rejected:
        yield from (refused.gpu, refused.precision, refused.engine)
    for way in cost.ways:
        yield from (part for part in (usd(way.total_usd_per_year), usd(way.usd_per_1000_requests)))
        yield from (f"{part.name} {usd(part.usd_per_year)}".rpartition(" ")[2] for part in way.parts)
    for figure in cost.figures:
        yield figure.source
    yield from (text for note in cost.notes for text in cost_note_texts(note))


def test_full_holds_everything_that_the_text_held_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "110")
    monkeypatch.setattr("tonnage.report.writers.terminal.WIDEST", 100_000)
    monkeypatch.setattr("tonnage.report.writers.terminal.width", lambda: 100_000)
    plan = full()
    text = words(written(plan))
    assert [one for one in held(plan) if words(one) not in text] == []
    table = words(" ".join((*latency(plan.choice), knobs(plan.choice), memory_text(plan.choice.memory, plan.choice.kv_tokens))))
    assert [word for word in table.split() if word not in text] == []
    for heading in ("What would change the answer", "Where time and memory go", "Candidates", "Rejected, and why", "What it rests on"):
        assert heading in text
    for title in TITLES.values():
        assert (title in text) == any(TITLES[way.where] == title for way in plan.cost.ways)  # type: ignore[union-attr]
    limits = {str(use.limit) for use in plan.explain.limits}  # type: ignore[union-attr]
    assert all(limit in text for limit in limits)


OTHER = Identity(gpu="h100-sxm-80gb", precision="fp8", tp=1, engine="vllm-0.32")
LIMIT = Limit(metric="ttft", statistic="p95", milliseconds=500.0)
BREACH = Breach(limit=LIMIT, value_ms=612.0)
REASONS: dict[str, tuple[Reason, Reason]] = {
    "does not fit the memory of its GPUs": (
        CannotRun(error="weights 141 GB + 2.9 GB do not fit 1 × 80 GB"),
        CannotRun(error="weights 142 GB + 8.2 GB do not fit 2 × 80 GB"),
    ),
    "at most so many requests/s per GPU by closed form": (
        Outdone(at_most_per_gpu=13.3, other=OTHER, needed_per_gpu=20.6),
        Outdone(at_most_per_gpu=11.7, other=OTHER, needed_per_gpu=20.6),
    ),
    "breaks a limit at 3.25 requests/s per GPU": (
        Behind(breach=BREACH, requests_per_second=3.25, per_gpu=3.25, other=OTHER),
        Behind(breach=replace(BREACH, value_ms=700.0), requests_per_second=6.5, per_gpu=3.25, other=OTHER),
    ),
    "takes no fewer GPUs than": (
        NeedsMoreGpus(gpus=48, systems_exact=5.2, other=OTHER, other_gpus=40),
        NeedsMoreGpus(gpus=56, systems_exact=6.9, other=OTHER, other_gpus=40),
    ),
    "breaks TTFT p95 ≤ 500 ms at any load": (BrokenAtAnyLoad(breach=BREACH), BrokenAtAnyLoad(breach=replace(BREACH, value_ms=700.0))),
    "at any load where steps take 1.14 times as long as predicted": (
        NotSure(breach=BREACH, step_factor=1.14),
        NotSure(breach=replace(BREACH, value_ms=700.0), step_factor=1.14),
    ),
    "a single request comes near TTFT p95 ≤ 500 ms where steps take 1.14 times as long as predicted": (
        NotSure(breach=replace(BREACH, value_ms=430.0), step_factor=1.14),
        NotSure(breach=replace(BREACH, value_ms=440.0), step_factor=1.14),
    ),
}


@pytest.mark.parametrize("shared", REASONS)
def test_deployments_that_fail_for_one_reason_share_a_row_and_keep_their_numbers(shared: str) -> None:
    refused = tuple(rejected(replace(OTHER, tp=tp), reason) for tp, reason in enumerate(REASONS[shared], 1))
    table = rejected_section(replace(without_answer(), rejected=refused)).blocks[-1]
    ((gpu, why_not, which),) = table.rows  # type: ignore[union-attr]
    assert gpu == "h100-sxm-80gb"
    assert shared in why_not
    assert which.count("(") == 2
    assert which.startswith("fp8 vllm-0.32 TP 1 (")
    assert len({part.split("(")[1] for part in which.split("), 2 ")}) == 2


def test_plan_without_an_answer_says_so_and_why() -> None:
    text = written(without_answer())
    assert "no deployment meets the limits" in text
    assert "Ampere has no FP8 matrix units" in text
    assert "What would change" not in text
    assert "Cost" not in text


def test_the_parts_stand_in_their_order() -> None:
    text = written(full())
    parts = (
        *("Question", "Demand", "Limits", "Answer", "Cost", "Risk", "Capacity", "! TPOT", "Deployment", "Fleet check"),
        *("Measured beside predicted", "Cost\n", "What would change the answer", "Candidates", "Where time and memory go"),
        *("Rejected, and why", "What it rests on", "Repeat it"),
    )
    places = [text.index(f"\n{part}") if part != "Question" else 0 for part in parts]
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("busy", "said"),
    [(0.1, ""), (0.43, "The front end streams tokens 43% of the time."), (0.93, "tokens 93% of the time, which limits: a larger stream")],
)
def test_a_busy_front_end_is_said(busy: float, said: str) -> None:
    explained = full().explain
    assert explained is not None
    plan = replace(full(), explain=replace(explained, front_end_busy=busy))
    for text in (words(written(plan)), words(terminal(screen((plan,), explain=True)))):
        assert said in text
        assert ("front end" in text) == bool(said)
    assert "Where time and memory go" not in terminal(screen((plan,)))


def test_a_ttft_is_shown_by_where_it_goes() -> None:
    explained = full().explain
    assert explained is not None
    none = {"handover_ms": 0.0, "saved_ms": 0.0}
    mean = TtftParts(statistic="mean", front_end_ms=20.0, queue_ms=30.0, prefill_ms=40.0, shared_ms=5.0, **none)
    plan = replace(full(), explain=replace(explained, ttft=(mean, replace(mean, statistic="p95", queue_ms=130.0, saved_ms=7.0))))
    table = ttft_table(plan)
    assert table is not None
    means, p95s = zip(*(row[1:] for row in table.rows), strict=True)
    assert means == ("20.0", "30.0", "40.0", "5.00", "95.0", "0")
    assert p95s == ("20.0", "130", "40.0", "5.00", "195", "7.00")
    assert words("saved by the prefix cache") in words(terminal(screen((plan,), explain=True)))
    assert Plan.from_json(plan.to_json()) == plan


def test_no_deployment_is_left_out_of_a_list() -> None:
    refused = tuple(replace(full().rejected[0], gpu=f"gpu-{i}") for i in range(20))
    candidates = tuple(candidate(gpu=f"gpu-{i}") for i in range(30))
    text = written(replace(full(), candidates=candidates, pareto=(), rejected=refused))
    assert all(f"gpu-{i}" in text for i in range(30))


def test_systems_have_their_gpus_beside_them_and_no_chance_of_a_candidate() -> None:
    header = next(line for line in written(full()).split("\nCandidates\n")[1].splitlines() if line.startswith("GPU"))
    assert "systems" in header
    assert "GPUs" in header
    assert "P(meets)" not in header


def test_models_are_compared_before_each_is_told() -> None:
    other = replace(full(), scenario=replace(full().scenario, model="llama-3.1-8b"))
    text = written(full(), other)
    assert text.startswith("Models compared\nThe same question for each model\n")
    assert text.count("\nDemand") == 2
    table = text.split("\nQuestion")[0]
    assert "68.4" in table
    assert "73.0" in table
    assert "as published" in table
