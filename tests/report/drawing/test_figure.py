"""Figures: ticks and scales hold the data."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tonnage.report.drawing.figure import Scale, log_ticks, nice_ticks


@given(low=st.floats(0, 1e9), span=st.floats(1e-6, 1e9), most=st.integers(2, 12))
def test_ticks_hold_the_data_and_are_not_many(low: float, span: float, most: int) -> None:
    ticks = nice_ticks(low, low + span, most)
    slack = 1e-6 * max(abs(low + span), 1e-6)
    assert ticks[0] <= low + slack
    assert ticks[-1] >= low + span - slack
    assert 2 <= len(ticks) <= 2 * most + 3


@given(low=st.floats(1e-3, 1e6), factor=st.floats(1, 1e6), most=st.integers(4, 12))
def test_log_ticks_hold_the_data(low: float, factor: float, most: int) -> None:
    ticks = log_ticks(low, low * factor, most)
    assert ticks[0] <= low * (1 + 1e-9)
    assert ticks[-1] >= low * factor * (1 - 1e-9)
    assert len(ticks) >= 2
    assert list(ticks) == sorted(set(ticks))


@given(value=st.floats(-1e3, 1e6), log=st.booleans())
def test_scale_keeps_inside_and_in_order(value: float, log: bool) -> None:
    scale = Scale(ticks=(1.0, 10.0, 100.0), start=50.0, end=400.0, log=log)
    assert 50.0 <= scale(value) <= 400.0
    assert scale(value) <= scale(value + 1.0)
