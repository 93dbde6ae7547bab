"""The ends at which a search decides otherwise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from tests.sizing.search.contenders import (
    Carrying,
    asked_for,
    capacity_of,
    carrying,
    ready_of,
    sized_of,
)
from tests.sizing.search.contests import behind, contest, sure
from tonnage.sizing.loads.confidence import Slowdown
from tonnage.sizing.search import candidate, deployment_capacity, disaggregated, search, tuning


@pytest.mark.parametrize(
    ("systems", "rate", "doubt"),
    [(8, 12.6, True), (8, 13.3, False), (8, 14.0, True), (9, 11.2, False), (1, 99.0, True)],
)
def test_four_percent_matter_up_to_eight_systems(systems: int, rate: float, doubt: bool) -> None:
    """Of four instances each, under 400 requests per second."""
    assert carrying(400.0).in_doubt(systems, rate) == doubt
    assert pytest.approx(0.85 / 1.12) == deployment_capacity.USUAL
    assert disaggregated.STAND == 32


def test_other_knobs_let_a_busy_engine_complete_three_percent_more() -> None:
    """And four more by closed form: 6 requests per second for 8 that were measured."""
    sized = sized_of(sure(busy=8.0), 20, 5.0, level=None)
    assert contest(sized)._most_rps(sized.contender) == pytest.approx(1.03 * 8)
    tried = contest()
    tried.outcomes[0] = behind()
    assert tried._most_rps(sure()) == pytest.approx(1.03 * 1.04 * 6)
    assert (search.RECHECKED, search.TUNED, search.WAVE) == (6, 6, 2)


@dataclass(frozen=True, kw_only=True)
class Even(Carrying):
    """A deployment whose steps take 1 + p times as long with a confidence of p, as they do to what
    it carries."""

    def slowdown(self, level: float) -> Any:
        return Slowdown(steps=1 + level)

    def capacity(self, instances: int, slowdown: Any = None, **how: Any) -> Any:
        return capacity_of(self.most / slowdown.steps)


@pytest.mark.parametrize(
    ("most", "chance"), [(4.9, 0.001), (5.01, 0.002), (7.5, 0.5), (9.99, 0.998), (99.0, 0.999)]
)
def test_a_chance_is_named_from_one_per_mille_to_all_but_one(most: float, chance: float) -> None:
    """An instance has to carry 5."""
    contender = Even(question=asked_for(400.0), ready=ready_of(), runs=None, most=most)
    assert candidate._chance(sized_of(contender, 20, 5.0), dict.fromkeys((0.5, 0.8))) == chance
    assert (candidate.LOWEST, candidate.HIGHEST) == (1, 999)


def test_knobs_are_tried_within_their_ranges() -> None:
    assert tuning.BATCH == (8, 4_096)
    assert (min(tuning.TOKENS), max(tuning.TOKENS), len(tuning.TOKENS)) == (512, 32_768, 7)
