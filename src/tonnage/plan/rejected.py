"""A deployment that cannot carry the load."""

from __future__ import annotations

from dataclasses import dataclass

from tonnage.plan.document import FORBID
from tonnage.plan.identity import Identity
from tonnage.plan.reason import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected(Identity):
    """A deployment that cannot carry the load, and the reason with its numbers."""

    __pydantic_config__ = FORBID

    reason: Reason
