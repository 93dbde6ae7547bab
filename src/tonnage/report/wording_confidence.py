"""How sure a number of systems is, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tonnage.plan.confidence import Confidence


def confidence_text(confidence: Confidence) -> str:
    """The chance that the chosen systems do, and how many do at each confidence, in one line."""
    parts = [f"{'none' if count is None else count} at {share} %" for share, count in confidence.systems.items()]
    return f"P(meets the limits) {confidence.meets:.0%}; systems at confidence: {', '.join(parts)}"
