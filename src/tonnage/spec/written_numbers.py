"""Numbers as people write them: "20,000", "20k", "1.5 million", "300/min", "50%", "p95", "3x",
"8h", "10 kW", "N+1", "$400k".

Which units may follow depends on the quantity (``Unit``); without a unit the number is in the first
of them.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal

Unit = Literal[
    "",
    "rate",
    "share",
    "percentile",
    "factor",
    "hours",
    "days",
    "daily",
    "yearly",
    "kilowatts",
    "spare",
    "usd",
]

UNITS: dict[Unit, dict[str, float]] = {
    "rate": {
        **dict.fromkeys(("/s", "/sec", "/second", "rps", "qps", "req/s", "requests/s"), 1.0),
        **dict.fromkeys(("/min", "/minute", "rpm", "req/min", "requests/min"), 1 / 60),
        **dict.fromkeys(("/h", "/hour", "req/h", "requests/h"), 1 / 3_600),
    },
    "share": {"%": 0.01},
    "percentile": {"%": 1.0, "th": 1.0},
    "factor": {"x": 1.0, "×": 1.0, "%": 0.01},
    "hours": dict.fromkeys(("h", "hour", "hours"), 1.0),
    "days": dict.fromkeys(("d", "day", "days"), 1.0),
    "daily": dict.fromkeys(("/day", "/d"), 1.0),
    "yearly": {"/year": 1.0, "/y": 1.0, "/month": 12.0, "/week": 365 / 7, "/day": 365.0},
    "kilowatts": {"kw": 1.0, "mw": 1_000.0, "w": 0.001},
    "usd": dict.fromkeys(("usd", "us$", "$"), 1.0),
}
"""What may follow a number of each kind, and by what it is multiplied."""

# What may be before it
BEFORE: dict[Unit, str] = {"percentile": r"p", "spare": r"n\s*\+", "usd": r"usd|us\$|\$"}


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of a number.

    Attributes:
        meaning: what a number outside the bounds is not, such as "a number of API servers".
        least: the least that it may be.
        most: the most that it may be; infinite where there is no most that anybody writes.
        above: whether it must be more than ``least``.
    """

    meaning: str
    least: float = 1.0
    most: float = math.inf
    above: bool = False

    def allows(self, number: float) -> bool:
        """Whether the number is finite and within the bounds."""
        low = number > self.least if self.above else number >= self.least
        return math.isfinite(number) and low and number <= self.most

    def fault(self, number: float) -> str:
        """What is wrong with a number, such as "5000 is not a number of API servers; write 1 to
        1,000"; empty where the bounds allow it.
        """
        if self.allows(number):
            return ""
        return f"{number:.15g} is not {self.meaning}; write {self.words}"

    def json_schema(self) -> dict[str, float]:
        """The bounds as JSON Schema writes them."""
        least = {"exclusiveMinimum" if self.above else "minimum": self.least}
        return least if math.isinf(self.most) else {**least, "maximum": self.most}

    @property
    def words(self) -> str:
        """The numbers that are allowed, in words."""
        least, highest = f"{self.least:,.15g}", f"{self.most:,.15g}"
        if self.above:
            return f"a number above {least}" + (
                "" if math.isinf(self.most) else f", at most {highest}"
            )
        return f"{least} or more" if math.isinf(self.most) else f"{least} to {highest}"


SHARE = Bounds("a share", 0.0, 1.0, above=True)

TIMES = {"k": 1e3, "thousand": 1e3, "m": 1e6, "million": 1e6, "bn": 1e9, "billion": 1e9}

_DIGITS = re.compile(
    r"([+-]?(?:\d{1,3}(?:[,_]\d{3})+(?:\.\d+)?|\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)\s*(.*)", re.DOTALL
)
_APART = re.compile(r"[,\s]+")


def number_of(text: str, unit: Unit = "") -> float | None:
    """The number that a text says, in the first unit of its kind; None where it is none."""
    plain = text.strip().lower()
    try:
        return float(plain)
    except ValueError:
        pass
    match = _DIGITS.fullmatch(
        re.sub(rf"^(?:{BEFORE[unit]})\s*", "", plain) if unit in BEFORE else plain
    )
    if match is None:
        return None
    value, rest = float(match[1].replace(",", "").replace("_", "")), match[2]
    units = {"": 1.0, **UNITS.get(unit, {})}
    if rest in units:
        return value * units[rest]
    parts = (
        (times, rest[len(name) :].lstrip())
        for name, times in TIMES.items()
        if rest.startswith(name)
    )
    return next(
        (value * times * units[remainder] for times, remainder in parts if remainder in units), None
    )


def numbers_of(text: str) -> list[float] | None:
    """The numbers of a text with commas or spaces between them; None where it is anything else,
    such as the path of a file.
    """
    parts = [part for part in _APART.split(text) if part]
    try:
        return [float(part) for part in parts] if len(parts) > 1 else None
    except ValueError:
        return None
