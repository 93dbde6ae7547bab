"""Numbers as people read them."""

import math

import pytest

from tonnage.report.numbers import between, dollars, number, percent, plain, signed, usd


def test_nothing_is_never_a_number() -> None:
    for write in (number, plain, usd, dollars, percent):
        assert write(None) == write(math.nan) == write(math.inf) == "–"


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (math.nan, "–"), (0.0, "0"), (4.806, "4.81"), (70.7, "70.7"), (12345.6, "12,346"), (0.01234, "0.0123"), (-3.0, "−3.00")],
)
def test_number_has_three_digits_and_says_when_there_is_none(value: float | None, text: str) -> None:
    assert number(value) == text


def test_intervals_and_changes() -> None:
    assert (between((240.2, 310.0)), between(None)) == ("240–310", "–")
    assert (signed(0.2), signed(-0.2)) == ("+20%", "−20%")
