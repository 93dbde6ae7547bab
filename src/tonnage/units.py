"""Reads and writes seconds and bytes as people write them, and says how they are counted inside.

Inside, durations are float seconds until they become simulated time, which is an int64 count of
picoseconds; the record of a run is in int64 nanoseconds. Bytes are decimal (1 GB = 1e9 bytes)
unless they say GiB.
"""

from __future__ import annotations

import math
import re

from tonnage.errors import InputError

PS_PER_S = 1_000_000_000_000
PS_PER_NS = 1_000
NS_PER_S = 1_000_000_000

LONGEST_S = 9_000_000
"""Seconds of the longest simulated time: an int64 count of picoseconds ends at 9,223,372 (106
days)."""

_DURATION_UNITS = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "ms": 1e-3,
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1.0),
    **dict.fromkeys(("min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3_600.0),
    **dict.fromkeys(("d", "day", "days"), 86_400.0),
    **dict.fromkeys(("w", "week", "weeks"), 604_800.0),
    **dict.fromkeys(("mo", "month", "months"), 2_628_000.0),
    **dict.fromkeys(("y", "year", "years"), 31_536_000.0),
}
_BYTE_UNITS = {
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
_NUMBER = re.compile(
    r"^\s*([+-]?(?:\d+(?:[_,]\d{3})*(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)\s*([a-zA-Zµ]*)\s*$",
    re.ASCII,
)


def _split(text: str, where: str, example: str) -> tuple[float, str]:
    match = _NUMBER.match(text)
    if not match:
        raise InputError(
            f"{where}: '{text}' is not a number with a unit; write for example {example}"
        )
    value = float(match.group(1).replace(",", "").replace("_", ""))
    if not math.isfinite(value):
        raise InputError(f"{where}: '{text}' is not finite; write for example {example}")
    return value, match.group(2)


def parse_duration(text: str, where: str = "duration") -> float:
    """Read "300ms", "3s", "1.5 min" as seconds; a unit is required.

    Raises:
        InputError: no number, an unknown or missing unit, or a negative value.
    """
    value, unit = _split(text, where, "300ms or 3s")
    if unit not in _DURATION_UNITS:
        what = f"unknown unit '{unit}'" if unit else "no unit"
        raise InputError(
            f"{where}: '{text}' has {what}; write {value:g}ms, {value:g}s, {value:g}min or"
            f" {value:g}h"
        )
    if value < 0:
        raise InputError(f"{where}: '{text}' is negative; a duration is 0 or more")
    return value * _DURATION_UNITS[unit]


def parse_bytes(text: str, where: str = "size") -> int:
    """Read "80GB" or "1 GiB" as bytes; a unit is required.

    Raises:
        InputError: no number, an unknown or missing unit, or a negative value.
    """
    value, unit = _split(text, where, "80GB or 64GiB")
    if unit.lower() not in _BYTE_UNITS:
        what = f"unknown unit '{unit}'" if unit else "no unit"
        raise InputError(f"{where}: '{text}' has {what}; write for example 80GB or 64GiB")
    if value < 0:
        raise InputError(f"{where}: '{text}' is negative; a size is 0 or more")
    return round(value * _BYTE_UNITS[unit.lower()])


def to_ps(seconds: float) -> int:
    """Convert seconds to whole picoseconds, rounded half to even; simulated time is made in no
    other way.
    """
    return round(seconds * PS_PER_S)


def format_duration(seconds: float) -> str:
    """A duration for people: "612 ms", "2.61 s", "4.2 µs"."""
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if abs(seconds) >= scale:
            return (
                f"{seconds / scale:.3g} {unit}"
                if abs(seconds) < 1000 * scale
                else f"{seconds / scale:,.0f} {unit}"
            )
    return f"{seconds / 1e-9:.3g} ns" if seconds else "0 s"


def format_gb(size: float) -> str:
    """Bytes as decimal gigabytes for people: "140 GB", "3.2 GB"."""
    gigabytes = size / 1e9
    return f"{gigabytes:.0f} GB" if gigabytes >= 99.95 else f"{gigabytes:.1f} GB"
