"""A deployment that cannot carry the load."""

from __future__ import annotations

from dataclasses import dataclass, fields

from tonnage.plan.identity import Identity
from tonnage.plan.reason import Reason
from tonnage.spec.typed_values import FORBID


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected(Identity):
    """A deployment that cannot carry the load, and the reason with its numbers."""

    __pydantic_config__ = FORBID

    reason: Reason


def rejected(deployment: Identity, reason: Reason) -> Rejected:
    """A deployment by its names, and why it cannot be."""
    names = {part.name: getattr(deployment, part.name) for part in fields(Identity)}
    return Rejected(**names, reason=reason)
