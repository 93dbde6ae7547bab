"""Numbers as people read them."""

import math

from tonnage.report.numbers import between, dollars, number, percent, plain, signed, usd


def test_numbers_have_three_digits_and_say_when_there_is_none() -> None:
    for value, text in [
        (None, "–"),
        (math.nan, "–"),
        (0.0, "0"),
        (4.806, "4.81"),
        (70.7, "70.7"),
        (12345.6, "12,346"),
        (0.01234, "0.0123"),
        (-3.0, "−3.00"),
    ]:
        assert number(value) == text
    for write in (number, plain, usd, dollars, percent):
        assert write(None) == write(math.nan) == write(math.inf) == "–"
    assert (between((240.2, 310.0)), between(None)) == ("240–310", "–")
    assert (signed(0.2), signed(-0.2)) == ("+20%", "−20%")
