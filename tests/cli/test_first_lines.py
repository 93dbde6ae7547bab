"""The first fourteen lines of an answer are enough to act and contradict nothing: some questions of
``./benchmark first_lines``."""

from dataclasses import replace

import pytest

from benchmarks import first_lines

ASKED = ("tiny load", "an impossible limit", "a job", "systems that exist")
LONGER = ("huge load", "single gaps", "a spare system", "very sure")

pytestmark = pytest.mark.usefixtures("plans_of_this_run")


@pytest.mark.parametrize(
    "name", [*ASKED, *(pytest.param(name, marks=pytest.mark.accuracy) for name in LONGER)]
)
def test_the_first_lines_say_what_the_plan_holds(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "110")
    assert list(first_lines.contradictions(first_lines.answered(first_lines.QUESTIONS[name]))) == []


def test_a_contradiction_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check sees a headline, a chance and a number that the plan does not hold."""
    monkeypatch.setenv("COLUMNS", "110")
    plan = first_lines.answered(first_lines.QUESTIONS["tiny load"])
    assert list(
        first_lines.unknown_numbers("it takes 123,456,789,012 systems", plan.to_json())
    ) == ["123,456,789,012 stands nowhere in the JSON"]
    unsure = replace(plan.choice, confidence=replace(plan.choice.confidence, meets=0.4))
    assert any(
        "below the asked" in one
        for one in first_lines.contradictions(replace(plan, candidates=(unsure,)))
    )
    bare = replace(plan.choice, systems_exact=7.0)
    assert any(
        "rounds" in one for one in first_lines.contradictions(replace(plan, candidates=(bare,)))
    )
