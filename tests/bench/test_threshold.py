"""The search for the highest load: how near it comes, in how many runs, with answers that may be wrong."""

from __future__ import annotations

import math
import random

import pytest

from tonnage.bench.find_max import Threshold


def search(truth: float, start: float, *, whole: bool = False, noise: float = 0.0, seed: int = 0, most: int = 12) -> Threshold:
    """Ask until it is found; a load is measured with a relative error of ``noise``."""
    rng = random.Random(seed)
    found = Threshold(start, whole=whole)
    while len(found.answers) < most and not found.found:
        off = math.log(truth / found.load)
        seen = off + rng.gauss(0, noise) if noise else off
        sure = 0.5 * (1 + math.erf(abs(seen) / noise / math.sqrt(2))) if noise else 0.98
        found.tell(passed=seen >= 0, sure=sure)
    return found


@pytest.mark.parametrize("truth", [0.7, 3.0, 27.3, 41.9, 100.0])
def test_clear_answers_come_within_three_percent_in_twelve_runs(truth: float) -> None:
    found = search(truth, start=10.0)
    assert found.middle == pytest.approx(truth, rel=0.03)
    assert len(found.answers) <= 12
    low, high = found.interval
    assert low <= truth <= high


def test_answers_near_the_threshold_may_be_wrong() -> None:
    near, held = 0, 0
    for seed in range(100):
        found = search(50.0, start=20.0, noise=0.03, seed=seed)
        near += abs(found.middle / 50.0 - 1) < 0.05
        low, high = found.interval
        held += low <= 50.0 <= high
    assert near >= 90
    assert held >= 80


def test_clients_are_whole_numbers() -> None:
    found = search(37.5, start=4, whole=True)
    assert all(answer.load == int(answer.load) for answer in found.answers)
    assert 36 <= found.middle <= 39


def test_a_server_that_fails_at_any_load_ends_the_search_of_clients_at_one() -> None:
    found = search(0.1, start=4, whole=True)
    assert [answer.load for answer in found.answers] == [4, 2, 1]
    assert math.isnan(found.middle)


def test_a_server_without_a_limit_is_searched_upwards_only() -> None:
    found = search(1e9, start=1.0, most=5)
    assert [answer.load for answer in found.answers] == [1, 2, 4, 8, 16]
    assert found.middle == 16
    assert found.interval == (16, math.inf)
