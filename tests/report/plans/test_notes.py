"""Notes, warnings, reasons and costs: each kind has a sentence."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.plan.plans import any_of
from tonnage.plan.notes import CostNote, NoCost, Note, Warning
from tonnage.plan.reason import Reason
from tonnage.report.plans.candidates import reason_text
from tonnage.report.plans.cost import cost_note_texts, no_cost_text
from tonnage.report.plans.notes import note_text, warning_text

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
