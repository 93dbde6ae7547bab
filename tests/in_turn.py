"""Cases for ``parametrize`` where every combination takes too long for the core."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest


def in_turn(*values: Sequence[Any]) -> list[Any]:
    """Every combination; in the core those in which each of the values before the last comes with one of the last, and these by turns.

    The others are marked for ``./check --accuracy``.
    """
    cases = []
    for places in product(*(range(len(each)) for each in values)):
        quick = sum(places) % len(values[-1]) == 0
        chosen = (each[place] for each, place in zip(values, places, strict=True))
        cases.append(pytest.param(*chosen, marks=() if quick else pytest.mark.accuracy))
    return cases
