"""Every claim of the plans of drawn questions, asked directly: none is false (``./check --claims``)."""

from __future__ import annotations

import pytest

from benchmarks.claims import SENSITIVITY, Claim, claims, drawn_at, of_the_sensitivity, planned
from tonnage.errors import InputError

QUESTIONS, SEED = 40, 1


def false(found: list[Claim]) -> list[str]:
    return [f"{claim.what}: said {claim.said}; asked directly {claim.found}" for claim in found if not claim.true]


@pytest.mark.claims
@pytest.mark.parametrize("place", range(QUESTIONS))
def test_no_claim_of_a_plan_is_false(place: int) -> None:
    arguments = drawn_at(SEED, place)
    try:
        found = list(claims(arguments))
    except InputError as refused:
        pytest.fail(f"{arguments} was refused: {refused}")
    assert false(found) == [], arguments


@pytest.mark.claims
@pytest.mark.parametrize("place", [0, 1, 2, 5])
def test_the_sensitivity_is_what_the_question_would_be_answered(place: int) -> None:
    """Within one system and 10 %."""
    found = list(of_the_sensitivity(*planned(SENSITIVITY[place])))
    assert len(found) >= 8
    assert false(found) == []
