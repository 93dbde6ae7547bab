"""Every reason, note and warning that a plan can hold has its sentence, whatever its numbers are."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.plan.plans import any_of
from tonnage.plan.note import CostNote, NoCost, Note, Warning
from tonnage.plan.reason import Reason
from tonnage.report.plans.candidates import reason_text
from tonnage.report.plans.cost import cost_note_texts, no_cost_text
from tonnage.report.plans.notes import note_text, warning_text

QUICK = settings(max_examples=15, deadline=None, phases=(Phase.reuse, Phase.generate))


def kinds(union: Any) -> list[type]:
    """The classes of an annotated union."""
    return list(get_args(get_args(union)[0]))


@pytest.mark.parametrize("kind", kinds(Reason), ids=lambda kind: kind.__name__)
@QUICK
@given(data=st.data())
def test_a_reason_is_one_clause(kind: type, data: st.DataObject) -> None:
    reason = data.draw(any_of(kind))
    if not getattr(reason, "error", "x").strip():
        return
    text = reason_text(reason)
    assert text.strip()
    assert not text.endswith(".") or kind.__name__ == "CannotRun"


@pytest.mark.parametrize("kind", kinds(Note), ids=lambda kind: kind.__name__)
@QUICK
@given(data=st.data())
def test_a_note_is_a_sentence(kind: type, data: st.DataObject) -> None:
    assert note_text(data.draw(any_of(kind))).endswith(".")


@pytest.mark.parametrize("kind", kinds(Warning), ids=lambda kind: kind.__name__)
@QUICK
@given(data=st.data())
def test_a_warning_has_its_text(kind: type, data: st.DataObject) -> None:
    assert warning_text(data.draw(any_of(kind)))


@pytest.mark.parametrize("kind", kinds(CostNote), ids=lambda kind: kind.__name__)
@QUICK
@given(data=st.data())
def test_a_note_on_cost_is_a_sentence_or_two(kind: type, data: st.DataObject) -> None:
    assert all(text.endswith(".") for text in cost_note_texts(data.draw(any_of(kind))))


@QUICK
@given(reason=any_of(NoCost))
def test_a_cost_that_is_missing_says_what_would_give_it(reason: NoCost) -> None:
    assert "give" in no_cost_text(reason)
