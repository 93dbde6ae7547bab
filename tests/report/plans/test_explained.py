"""Why a plan chose what it did."""

from __future__ import annotations

from dataclasses import replace

from tests.report.example_plan import full
from tests.report.plans.texts import written
from tonnage.plan.plan import Plan
from tonnage.plan.sensitivity import Changed
from tonnage.report.plans.explained import needed, ttft_table
from tonnage.report.plans.screen import screen
from tonnage.report.writers.terminal import terminal
from tonnage.results.metrics import TtftParts


def words(text: str) -> str:
    """The text on one line."""
    return " ".join(text.split())


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
