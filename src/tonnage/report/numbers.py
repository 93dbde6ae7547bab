"""Numbers as people read them: three digits, thousands separated, units said.

Every number that a reader sees, on a terminal, in Markdown or on a page, is written by one of
these.
"""

from __future__ import annotations

import math

ABSENT = "–"


def number(value: float | None, digits: int = 3) -> str:
    """A number with ``digits`` significant digits, thousands separated; "–" where there is none."""
    if value is None or not math.isfinite(value):
        return ABSENT
    if value == 0:
        return "0"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{decimals}f}".replace("-", "−")


STATISTICS = ("mean", "p50", "p90", "p95", "p99")


def statistics(values: object) -> tuple[str, ...]:
    """Each of ``STATISTICS`` of a latency or a length."""
    return tuple(number(getattr(values, statistic)) for statistic in STATISTICS)


def plain(value: float | None) -> str:
    """Write a number as it was given, to six digits: 99, 199.77, 0.5."""
    return (
        ABSENT
        if value is None or not math.isfinite(value)
        else f"{value:,.6g}"
        if abs(value) < 1e6
        else f"{value:,.0f}"
    )


def whole(value: float | None) -> str:
    """A count of many, without decimals: 45,769,231."""
    return ABSENT if value is None or not math.isfinite(value) else f"{value:,.0f}"


def usd(value: float | None) -> str:
    """US dollars: whole from a hundred on, cents below, two digits below a dime."""
    if value is None or not math.isfinite(value):
        return ABSENT
    return (
        f"{value:,.0f}"
        if abs(value) >= 100 or value == 0
        else f"{value:,.2f}"
        if abs(value) >= 0.1
        else number(value, 2)
    )


def dollars(value: float | None) -> str:
    """US dollars to three digits, for a sentence: 595,000, 1,520,000, 0.64."""
    if value is None or not math.isfinite(value):
        return ABSENT
    return (
        number(value)
        if 100 <= abs(value) < 1000
        else f"{float(f'{value:.3g}'):,.0f}"
        if abs(value) >= 1000
        else usd(value)
    )


def span(seconds: float) -> str:
    """A waiting time in words: "47.3 s", "12.5 min", "8 h"."""
    for limit, unit, name in ((100.0, 1.0, "s"), (6_000.0, 60.0, "min")):
        if seconds < limit:
            return f"{_three(seconds / unit)} {name}"
    return f"{_three(seconds / 3_600)} h"


def _three(value: float) -> str:
    """Three digits without zeros at the end: "8", "0.35", "1,200"."""
    return plain(float(f"{value:.3g}"))


def sentence_of(text: str) -> str:
    """The words as a sentence: a capital first, but for a name such as h100-sxm-80gb, and a full
    stop last.
    """
    if not text:
        return ""
    first = text.partition(" ")[0]
    named = any(letter.isdigit() for letter in first)
    return (text if named else first[0].upper() + first[1:] + text[len(first) :]) + (
        "" if text[-1] in ".!?" else "."
    )


def short(value: float) -> str:
    """A number of an axis: 0.5, 20, 1.5k, 2M."""
    for scale, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= scale:
            return f"{value / scale:.3g}{letter}"
    return f"{value:.3g}"


def counted(count: float, noun: str) -> str:
    """Such as "1 system", "5 systems", "4.81 systems"."""
    text = f"{count:,}" if isinstance(count, int) else number(count)
    return f"{text} {noun if count == 1 else noun + 's'}"


def between(bounds: tuple[float, float] | None) -> str:
    """An interval, such as "240–310"; "–" where there is none."""
    return ABSENT if bounds is None else "–".join(number(bound) for bound in bounds)


def signed(change: float) -> str:
    """A relative change in whole per cent with its sign: "+20%", "−20%"."""
    return f"{change * 100:+.0f}%".replace("-", "−")


def percent(share: float | None) -> str:
    """Write a share as whole per cent."""
    return ABSENT if share is None or not math.isfinite(share) else f"{share:.0%}"
