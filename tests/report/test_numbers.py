"""Numbers as people read them."""

import math

import pytest

from tonnage.report.numbers import between, dollars, number, percent, plain, signed, span, usd


@pytest.mark.parametrize(("seconds", "text"), [(0.35, "0.35 s"), (47.26, "47.3 s"), (600, "10 min"), (28_800, "8 h"), (4e8, "111,000 h")])
def test_a_time_that_somebody_waits_for(seconds: float, text: str) -> None:
    assert span(seconds) == text


@pytest.mark.parametrize(("value", "text"), [(99.0, "99"), (199.77, "199.77"), (2048, "2,048"), (1.5e7, "15,000,000"), (None, "–")])
def test_plain_is_as_it_was_given(value: float | None, text: str) -> None:
    assert plain(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0.0123, "0.012"), (0.664, "0.66"), (12.5, "12.50"), (571_914.2, "571,914"), (0.0, "0"), (None, "–")]
)
def test_dollars_and_cents(value: float | None, text: str) -> None:
    assert usd(value) == text


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
