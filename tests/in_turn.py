"""Cases for ``parametrize`` where every combination takes too long for the core."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest


def in_turn(*values: Sequence[Any], one_of: int | None = None) -> list[Any]:
    """Every combination; in the core those in which each of the values before the last comes with
    one of the last, and these by turns.

    The others are marked for ``./check --accuracy``.

    Args:
        values: of each parameter.
        one_of: of so many combinations one is in the core, at most as many as the first parameter
            has values, so that each value of every parameter is in one of them; without it, as many
            as the last parameter has values.
    """
    every = one_of or len(values[-1])
    assert one_of is None or one_of <= len(values[0])
    cases = []
    for places in product(*(range(len(each)) for each in values)):
        quick = sum(places) % every == 0
        chosen = (each[place] for each, place in zip(values, places, strict=True))
        cases.append(pytest.param(*chosen, marks=() if quick else pytest.mark.accuracy))
    return cases
