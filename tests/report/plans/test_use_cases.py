"""Several use cases on one fleet."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.plan.plans import any_of
from tests.report.example_plan import without_answer
from tests.report.plans.screens import sized
from tests.report.plans.two_models import several
from tonnage.plan.notes import CostNote, NoCost, Note, Warning
from tonnage.plan.reason import Reason
from tonnage.plan.use_cases import NotShared
from tonnage.report.plans.candidates import reason_text
from tonnage.report.plans.cost import cost_note_texts, no_cost_text
from tonnage.report.plans.notes import note_text, warning_text
from tonnage.report.plans.screen import BRIEF, MOST
from tonnage.report.plans.use_cases import brief_lines, use_cases_screen
from tonnage.report.writers.terminal import WIDEST, terminal

QUICK = settings(max_examples=5, deadline=None, phases=(Phase.reuse, Phase.generate))


def kinds(union: Any) -> list[type]:
    """The classes of an annotated union."""
    return list(get_args(get_args(union)[0]))


def whole(reason: Any) -> bool:
    return all(getattr(reason, name, "x").strip() for name in ("error", "lacks"))


SAID: tuple[tuple[type, Any], ...] = (
    *((kind, lambda one: reason_text(one).strip() or not whole(one)) for kind in kinds(Reason)),
    *((kind, lambda one: note_text(one).endswith(".")) for kind in kinds(Note)),
    *((kind, warning_text) for kind in kinds(Warning)),
    *(
        (kind, lambda one: all(text.endswith(".") for text in cost_note_texts(one)))
        for kind in kinds(CostNote)
    ),
    (NoCost, lambda one: "give" in no_cost_text(one)),
)


@pytest.mark.parametrize(("kind", "holds"), SAID, ids=lambda part: getattr(part, "__name__", ""))
@QUICK
@given(data=st.data())
def test_it_has_a_sentence(kind: type, holds: Any, data: st.DataObject) -> None:
    assert holds(data.draw(any_of(kind)))


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("count", [2, 5, 9, 30])
@pytest.mark.parametrize("apart", [False, True])
def test_it_has_forty_lines_at_most_and_the_answer(
    count: int, columns: int, apart: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    found = several(count, apart=apart)
    lines = terminal(use_cases_screen(found)).splitlines()
    assert len(lines) <= MOST
    assert max(map(len, lines)) <= min(columns, WIDEST)
    words = " ".join(" ".join(lines).split())
    assert f"Answer {count} × dgx-h100 (" in words
    assert "every limit of each use case holds at the 80% asked" in words
    assert "Use case 1, by itself: Nothing that was asked for reaches 80%" in words
    assert "full\ue001 prints each use case by itself" in words
    assert len(brief_lines(found)) <= BRIEF


def test_no_arrangement_is_an_answer_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    why = NotShared(code="no-deployment", case="use case 1")
    plans = (sized(), without_answer())
    found = replace(
        several(2), plans=plans, shared=None, separate=None, not_shared=why, chosen=None
    )
    text = terminal(use_cases_screen(found))
    assert "Answer       no arrangement is possible: no deployment that was tried" in text
    assert len(text.splitlines()) <= MOST
