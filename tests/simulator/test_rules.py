"""Draws of right guesses."""

from __future__ import annotations

import numpy as np
import pytest

from tests.deployments import knobs_of
from tonnage.simulator.rules import (
    FOURTHS,
    MOST_NEW,
    ONE,
    RATIO,
    RATIO_DECAY,
    RATIO_LEAST,
    RATIO_START,
    RETRACT_STEPS,
    accepted,
    draw,
    is_for_reference,
    mixed,
    threshold,
)


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


def test_a_guess_is_right_whose_draw_is_below_and_not_at_the_threshold() -> None:
    drawn = draw(5, 2, 11)
    assert accepted(5, 2, 10, 1, drawn) == 0
    assert accepted(5, 2, 10, 1, drawn + 1) == 1
    assert accepted(5, 2, 10, 0, ONE) == 0


def test_bits_are_mixed_as_by_the_published_splitmix64() -> None:
    """The first outputs for the seeds 0 and 1234567, as published with the generator."""
    assert mixed(0) == 0xE220A8397B1DCDAF
    assert mixed(1234567) == 6457827717110365317
    assert mixed(2**64) == mixed(0)
    assert draw(3, 5, 7) == mixed(mixed(mixed(3) ^ 5) ^ 7) // 2048
    assert draw(-1, 5, 7) == draw(2**64 - 1, 5, 7)
    assert draw(2**64 + 3, 5, 7) == draw(3, 5, 7)


@pytest.mark.parametrize(("acceptance", "below"), [(0.0, 0), (0.25, 2**51), (1.0, 2**53)])
def test_a_share_is_a_threshold_of_53_bits(acceptance: float, below: int) -> None:
    assert threshold(acceptance) == below


def test_sglangs_ratio_falls_from_seven_tenths_to_a_seventh_of_it_in_six_hundred_steps() -> None:
    assert (RATIO_START, RATIO_LEAST, RATIO_DECAY) == (2_100_000, 294_000, 3_010)
    assert RATIO == 3_000_000
    assert (FOURTHS, RETRACT_STEPS, MOST_NEW) == (3, 20, 4096)


@pytest.mark.parametrize(
    ("scheduler", "order", "shed", "drafted_shares", "for_reference"),
    [
        ("vllm", "fcfs", False, (True, True), False),
        ("vllm", "priority", False, (False, False), False),
        ("vllm", "priority", False, (True, False), True),
        ("vllm", "deadline", False, (True, False), True),
        ("sglang", "deadline", False, (True, False), False),
        ("sglang", "deadline", False, (False, True), True),
        ("vllm", "fcfs", True, (True, False), False),
        ("vllm", "fcfs", True, (False, True), True),
    ],
)
def test_who_is_simulated_by_the_reference_alone(
    scheduler: str, order: str, shed: bool, drafted_shares: tuple[bool, bool], for_reference: bool
) -> None:
    knobs = knobs_of(8, 64, scheduler=scheduler, queue_order=order, shed=shed)
    drafted, shares = drafted_shares
    assert is_for_reference(knobs, drafted=drafted, shares=shares) is for_reference
