"""How long the chosen systems are enough for a load that grows, and how many it takes later."""

from __future__ import annotations

from dataclasses import dataclass

from tonnage.spec.typed_values import FORBID

AHEAD = (12, 24, 36)
"""Months ahead that a plan looks at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ahead:
    """The load after some months, and the systems of the chosen deployment that it takes.

    Attributes:
        months: from today on.
        requests_per_second: of the load then, as the plan sizes for it.
        systems: found by the same search, spare ones included; None where no number of them holds the limits.
        systems_exact: before rounding up, without those that stand by; None likewise.
    """

    __pydantic_config__ = FORBID

    months: int
    requests_per_second: float
    systems: int | None
    systems_exact: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """What the growth of the load means for the choice.

    Attributes:
        per_month: of the load, as a share.
        months_left: whole months for which the systems of the plan are enough, the next one being needed in the month after; None where
            the load does not grow, or where they are enough for fifty years.
        ahead: the load and the systems in 12, 24 and 36 months; without those whose load is beyond what can be sized.
    """

    __pydantic_config__ = FORBID

    per_month: float
    months_left: int | None
    ahead: tuple[Ahead, ...]
