"""What a cost comes to over years: money spent in three and in five years, when owning has paid off, a user's month, racks and heat."""

from __future__ import annotations

from dataclasses import dataclass

from tonnage.plan.footprint import Footprint
from tonnage.spec.typed_values import FORBID

YEARS = (3, 5)
"""Years that are looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WayOutlook:
    """One way of serving over the years, in USD.

    Attributes:
        where: which way.
        usd: spent in 3 and in 5 years, by the number of years: the purchase on the first day, and what is paid in every year. Nothing is
            written off, discounted or sold.
        usd_per_user_month: a month of the yearly cost over the users; None where these are not known.
    """

    __pydantic_config__ = FORBID

    where: str
    usd: dict[str, float]
    usd_per_user_month: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PaysOff:
    """When bought systems have cost less than the rented GPUs.

    Attributes:
        months: from the purchase on until what was spent is equal; None where it is not within ten years.
        date: that month, as YYYY-MM, for a purchase today; "" where no day is known.
        saved_usd_per_month: what owning saves from then on, electricity and hosting paid; negative where renting is cheaper.
    """

    __pydantic_config__ = FORBID

    months: float | None
    date: str
    saved_usd_per_month: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What a cost comes to.

    Attributes:
        ways: those whose cost is known.
        pays_off: bought systems against cloud GPUs; None where one of them has no cost.
        users: whose load it is; None where it was not said.
        footprint: of the systems of the plan; None where their power is not known.
    """

    __pydantic_config__ = FORBID

    ways: tuple[WayOutlook, ...]
    pays_off: PaysOff | None = None
    users: float | None = None
    footprint: Footprint | None = None
