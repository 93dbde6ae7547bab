"""How sure a number of systems is, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tonnage.report.numbers import percent

if TYPE_CHECKING:
    from tonnage.plan.confidence import Confidence


def confidence_text(confidence: Confidence) -> str:
    """The probability that the chosen systems meet the limits, and how many do with each confidence, in one line."""
    parts = [f"for {share}%: {'no number reaches it' if count is None else count}" for share, count in confidence.systems.items()]
    return f"{percent(confidence.meets)} probability of meeting the limits; systems needed {', '.join(parts)}"
