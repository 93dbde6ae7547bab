"""Draws of right guesses."""

from __future__ import annotations

import numpy as np
import pytest

from tonnage.simulator.rules import ONE, accepted, draw, threshold


def test_draws_are_even_and_independent() -> None:
    draws = (
        np.array(
            [[draw(7, request, position) for position in range(1, 201)] for request in range(200)]
        )
        / ONE
    )
    assert draws.mean() == pytest.approx(0.5, abs=0.005)
    assert draws.var() == pytest.approx(1 / 12, abs=0.002)
    assert np.corrcoef(draws[:-1].ravel(), draws[1:].ravel())[0, 1] == pytest.approx(0.0, abs=0.02)
    assert np.corrcoef(draws[:, :-1].ravel(), draws[:, 1:].ravel())[0, 1] == pytest.approx(
        0.0, abs=0.02
    )
    assert draw(7, 3, 5) != draw(8, 3, 5)


def test_the_first_wrong_guess_ends_the_right_ones() -> None:
    assert accepted(0, 0, 10, 4, threshold(1.0)) == 4
    assert accepted(0, 0, 10, 4, threshold(0.0)) == 0
    one = [draw(5, 2, position) < threshold(0.6) for position in range(1, 40)]
    for generated in range(30):
        right = accepted(5, 2, generated, 4, threshold(0.6))
        assert one[generated : generated + right] == [True] * right
        assert right == 4 or not one[generated + right]
