"""Durations and sizes as people write them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.errors import InputError
from tonnage.units import format_duration, parse_bytes, parse_duration, to_ps


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("300ms", 0.3),
        ("3s", 3.0),
        ("1.5 min", 90.0),
        ("200us", 2e-4),
        ("200µs", 2e-4),
        ("1_000ms", 1.0),
        ("2h", 7200.0),
        ("1e3ms", 1.0),
        ("8 hours", 28_800.0),
        ("1 day", 86_400.0),
    ],
)
def test_duration_is_read_as_seconds(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "3", "ms", "-1s", "3 s s", "1,5s", "0x10s", "١s", "3 fortnights", "9" * 400 + "s"])
def test_duration_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"^--ttft: "):
        parse_duration(text, "--ttft")


@pytest.mark.parametrize(("text", "size"), [("80GB", 80 * 10**9), ("64 GiB", 64 * 2**30), ("1.5kb", 1500)])
def test_bytes_are_decimal_unless_they_say_binary(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@given(st.text(max_size=20))
def test_any_text_is_a_duration_or_one_clear_line(text: str) -> None:
    try:
        seconds, lines = parse_duration(text), 1
    except InputError as error:
        seconds, lines = 0.0, len(str(error).splitlines())
    assert math.isfinite(seconds)
    assert seconds >= 0
    assert lines == 1


@given(st.floats(1e-9, 1e5))
def test_picoseconds_are_within_half_a_picosecond(seconds: float) -> None:
    assert abs(to_ps(seconds) - seconds * 1e12) <= 0.5 + seconds * 1e-3


@pytest.mark.parametrize(("seconds", "text"), [(0.6123, "612 ms"), (2.606, "2.61 s"), (4.2e-6, "4.2 µs"), (0.0, "0 s"), (3e-9, "3 ns")])
def test_duration_is_shown_with_three_digits(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text
