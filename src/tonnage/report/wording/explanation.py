"""What the parts of an engine step are, in words."""

from __future__ import annotations

from tonnage.plan.explanation import TERMS

__all__ = ["TERMS"]
