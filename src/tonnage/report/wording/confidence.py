"""How sure a number of systems is, in words."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tonnage.report.numbers import ABSENT

if TYPE_CHECKING:
    from tonnage.plan.confidence import Confidence

SUREST, LEAST_SURE = 0.99, 0.01
"""Beyond these a chance is not written as a number: held-out errors do not know that much."""


def chance_text(share: float | None) -> str:
    """A probability in whole per cent, never rounded up: "94%", "over 99%"; "–" where it was not looked for."""
    if share is None:
        return ABSENT
    if share > SUREST:
        return "over 99%"
    return f"{math.floor(100 * share + 1e-6)}%" if share >= LEAST_SURE else "under 1%"


def confidence_text(confidence: Confidence) -> str:
    """The probability that the chosen systems meet the limits, and how many do with each confidence, in one line."""
    asked = f"{100 * confidence.asked:.4g}%"
    sure = f"{chance_text(confidence.meets)} probability of meeting the limits ({asked} asked)"
    if not confidence.reached:
        sure = f"{chance_text(confidence.meets)} probability of meeting the limits, and no number of systems reaches the {asked} asked"
    return f"{sure}; systems for {by_confidence(confidence)}"


def by_confidence(confidence: Confidence) -> str:
    """The systems at each confidence: "50%: 2, 80%: 2, 95%: 3"."""
    return ", ".join(f"{share}%: {'none' if count is None else f'{count:,}'}" for share, count in confidence.systems.items())
