"""Numbers in the forms in which people write them, and texts that are none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.spec.written_numbers import TIMES, UNITS, Unit, number_of, numbers_of


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("20000", "", 20_000),
        ("20,000", "", 20_000),
        ("1_000_000", "", 1e6),
        ("20k", "", 20_000),
        ("1.5 million", "", 1.5e6),
        ("30M", "", 30e6),
        ("2e3", "", 2_000),
        ("-4", "rate", -4),
        ("5/s", "rate", 5),
        ("300/min", "rate", 5),
        ("300 requests/min", "rate", 5),
        ("2k/s", "rate", 2_000),
        ("18 qps", "rate", 18),
        ("50%", "share", 0.5),
        ("0.5", "share", 0.5),
        ("p95", "percentile", 95),
        ("95th", "percentile", 95),
        ("99.9%", "percentile", 99.9),
        ("3x", "factor", 3),
        ("300%", "factor", 3),
        ("10/day", "daily", 10),
        ("1M/day", "yearly", 365e6),
        ("8.5h", "hours", 8.5),
        ("8 hours", "hours", 8),
        ("10kW", "kilowatts", 10),
        ("1.2 MW", "kilowatts", 1_200),
        ("N+1", "spare", 1),
        ("n + 2", "spare", 2),
        ("$1.5m", "usd", 1.5e6),
        ("400k USD", "usd", 400_000),
    ],
)
def test_what_people_write(text: str, unit: Unit, value: float) -> None:
    assert number_of(text, unit) == pytest.approx(value)


@pytest.mark.parametrize("text", ["", "many", "5 s", "2,00", "1,5", "20kk", "k", "5/s/s", "1 2", "p95", "50%", "N+1", "$5"])
def test_what_is_no_number_without_a_unit(text: str) -> None:
    assert number_of(text) is None


@given(st.integers(0, 10**9), st.sampled_from(["", *TIMES]), st.sampled_from(sorted(UNITS)))
def test_every_unit_follows_every_magnitude(count: int, times: str, unit: Unit) -> None:
    for name, factor in UNITS[unit].items():
        taken = f"{times}{name}" in UNITS[unit]
        expected = count * (UNITS[unit][f"{times}{name}"] if taken else TIMES.get(times, 1.0) * factor)
        assert number_of(f"{count:,}{times}{name}", unit) == pytest.approx(expected)


def test_numbers_with_commas_or_spaces_and_paths_of_files() -> None:
    assert numbers_of("1, 2,3 4\n5e1") == [1, 2, 3, 4, 50]
    assert [numbers_of(text) for text in ("day.csv", "1,x", "7", "", "2024,day.csv")] == [None] * 5
