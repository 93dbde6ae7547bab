"""Printed text against what it should be: the same words in the same order, and numbers within a
tolerance.

A fit of new coefficients moves every prediction by a percent or two. What a golden output holds is
therefore its structure, exactly, and its numbers, nearly: so a new fit rewrites no golden file, and
a lost column, a new sentence or a prediction that is off by a factor still fails.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

NUMBER = re.compile(r"(?<![\w.,-])[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]\d+)?(?=[kM]?(?![\w-]|\.\d))")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """How far a number may be off: ``share`` of the larger of the two, or ``absolute`` units,
    whichever is more."""

    share: float = 0.0
    absolute: float = 0.0

    def holds(self, one: list[float], other: list[float]) -> bool:
        """Whether two lists of as many numbers are near each other throughout."""
        return all(
            abs(a - b) <= max(self.share * max(abs(a), abs(b)), self.absolute) + 1e-12
            for a, b in zip(one, other, strict=True)
        )


FITTED = Tolerance(share=0.1)
"""What the shipped coefficients predict: the fits of November 2026 moved no golden number by more
than 3 %."""


def words_and_numbers(text: str) -> tuple[str, list[float]]:
    """A text with # for each number and single blanks, and the numbers. Where lines are folded does
    not count."""
    words = " ".join(re.sub("─+", "─", NUMBER.sub("#", text)).split())
    return words, [float(number.replace(",", "")) for number in NUMBER.findall(text)]


def distance(one: list[float], other: list[float]) -> float:
    """The largest relative difference."""
    return max(
        (abs(a - b) / max(abs(a), abs(b), 1e-9) for a, b in zip(one, other, strict=True)),
        default=0.0,
    )


def check_golden(found: str, golden: Path, tolerance: Tolerance = FITTED) -> None:
    """Compare an output with its golden file; with ``TONNAGE_GOLDEN=write`` a file that differs is
    written anew.

    Raises:
        AssertionError: other words than in the file, or a number that is further off than the
            tolerance.
    """
    kept = golden.read_text(encoding="utf-8") if golden.exists() else ""
    (words, numbers), (golden_words, golden_numbers) = (
        words_and_numbers(found),
        words_and_numbers(kept),
    )
    if words == golden_words and tolerance.holds(numbers, golden_numbers):
        return
    if os.environ.get("TONNAGE_GOLDEN") == "write":
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(found, encoding="utf-8")
        return
    assert found == kept, f"{golden.name}: other words, or a number further off than {tolerance}"
