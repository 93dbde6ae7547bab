"""Numbers as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.spec.written_numbers import TIMES, UNITS, Unit, number_of, numbers_of

WRITTEN: dict[Unit, dict[str, float]] = {
    "": {
        "20,000": 20_000,
        "1_000_000": 1e6,
        "20k": 20_000,
        "1.5 million": 1.5e6,
        "30M": 30e6,
        "2e3": 2_000,
    },
    "rate": {"-4": -4, "5/s": 5, "300/min": 5, "300 requests/min": 5, "2k/s": 2_000, "18 qps": 18},
    "share": {"50%": 0.5, "0.5": 0.5},
    "percentile": {"p95": 95, "95th": 95, "99.9%": 99.9},
    "factor": {"3x": 3, "300%": 3},
    "daily": {"10/day": 10},
    "yearly": {"1M/day": 365e6},
    "hours": {"8.5h": 8.5, "8 hours": 8},
    "kilowatts": {"10kW": 10, "1.2 MW": 1_200},
    "spare": {"N+1": 1, "n + 2": 2},
    "usd": {"$1.5m": 1.5e6, "400k USD": 400_000},
}


def test_what_people_write() -> None:
    for unit, numbers in WRITTEN.items():
        assert {text: number_of(text, unit) for text in numbers} == pytest.approx(numbers)
    for text in [
        "",
        "many",
        "5 s",
        "2,00",
        "1,5",
        "20kk",
        "k",
        "5/s/s",
        "1 2",
        "p95",
        "50%",
        "N+1",
        "$5",
    ]:
        assert number_of(text) is None
    assert numbers_of("1, 2,3 4\n5e1") == [1, 2, 3, 4, 50]
    assert [numbers_of(text) for text in ("day.csv", "1,x", "7", "", "2024,day.csv")] == [None] * 5


@given(st.integers(0, 10**9), st.sampled_from(["", *TIMES]), st.sampled_from(sorted(UNITS)))
def test_every_unit_follows_every_magnitude(count: int, times: str, unit: Unit) -> None:
    for name, factor in UNITS[unit].items():
        taken = f"{times}{name}" in UNITS[unit]
        expected = count * (
            UNITS[unit][f"{times}{name}"] if taken else TIMES.get(times, 1.0) * factor
        )
        assert number_of(f"{count:,}{times}{name}", unit) == pytest.approx(expected)
