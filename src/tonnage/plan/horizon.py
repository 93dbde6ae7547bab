"""Months of a growing load: the purchases and rents of several ways in each of them, and what each
way has cost at the end.
"""

from __future__ import annotations

import itertools
from typing import ClassVar, Literal

from tonnage.plan.document import Shown
from tonnage.plan.notes import NoCost
from tonnage.spec.prices import Figure
from tonnage.spec.typed_values import strict

# "now": all systems today; "steps": each for the month in which it is needed; "hour": GPUs rented
# by the hour; "reserved": machines rented for years where that costs less, the rest by the hour;
# "both": systems bought where they pay off, the rest rented by the hour
Purchasing = Literal["now", "steps", "hour", "reserved", "both"]

# Why nothing is known of the months: "fleet" where systems to add to what exists are not known,
# "many" where no number of systems carries the load of some month
WhyNoMonths = Literal["fleet", "many"]


@strict
class HorizonMonth:
    """One month; the load grows from month to month, from that of today in month 0."""

    month: int
    requests_per_second: float  # as the plan sizes for it
    # what the load needs, spare ones included; of a fleet that exists what it needs in addition
    systems: int
    simulated: bool  # whether a simulated fleet shows it; otherwise it comes from division


@strict
class HorizonWay(Shown):
    """One way over all months, in USD as they are paid."""

    DERIVED: ClassVar[tuple[str, ...]] = ("total_usd",)

    way: Purchasing
    # purchase_usd: of systems, in the month of their order; running_usd: hosting, licences and
    # electricity of these; rent_usd: of GPUs, with their licences
    purchase_usd: float = 0.0
    running_usd: float = 0.0
    rent_usd: float = 0.0
    usd_by_month: tuple[float, ...] = ()
    # in each month: systems that are owned and delivered, GPUs that are rented for years, and most
    # GPUs that are rented by the hour at once
    systems: tuple[int, ...] = ()
    reserved_gpus: tuple[int, ...] = ()
    hourly_gpus: tuple[int, ...] = ()
    # of the GPU-months that are owned or rented for years, the share that not even a month's peak
    # needs: spare systems, and what is left of whole ones; None where nothing is
    idle: float | None = None
    # the first month from whose end on no more has been spent than by renting by the hour; None
    # where that is not within these months, or of renting by the hour itself
    cheaper_from: int | None = None
    # what the bought systems are worth at the end by linear depreciation; it is not in the total
    left_usd: float = 0.0
    reason: NoCost | None = None  # why it has no cost; None where it has one

    @property
    def total_usd(self) -> float | None:
        """Everything that is paid within the months."""
        if self.reason is not None:
            return None
        return self.purchase_usd + self.running_usd + self.rent_usd

    @property
    def purchases(self) -> tuple[tuple[int, int], ...]:
        """Month of delivery and number of the systems that are bought."""
        before = (0, *self.systems)
        counts = (now - last for last, now in zip(before, self.systems, strict=False))
        return tuple((month, count) for month, count in enumerate(counts) if count)

    @property
    def spent_usd(self) -> tuple[float, ...]:
        """Money paid by the end of each month."""
        return tuple(itertools.accumulate(self.usd_by_month))


@strict
class Horizon:
    """Ways to buy or rent what a growing load needs, and which of them costs least."""

    months: int
    growth_per_month: float | None  # of the load; None where none was given, and it stays
    # systems_decay, rents_decay: shares by which the price of systems and that of rented GPUs fall
    # in a year; None where none was given, and they stay
    systems_decay: float | None
    rents_decay: float | None
    lead_months: int  # from the order of a system, when it is paid, to its delivery
    system: str  # what is bought, a catalog id
    gpus_per_system: int
    needs: tuple[HorizonMonth, ...] = ()  # one for each month
    ways: tuple[HorizonWay, ...] = ()
    cheapest: Purchasing | None = None  # of the ways whose cost is known; None where none is
    figures: tuple[Figure, ...] = ()  # every price that any of them rests on
    offers: tuple[str, ...] = ()  # what is rented by the hour and for years, in words
    existing: bool = False  # whether the systems are in addition to a fleet that exists
    reason: WhyNoMonths | None = None  # why no month is known; None where they are

    def way(self, name: Purchasing) -> HorizonWay | None:
        """One of the ways with a cost; None where it has none, or was not requested."""
        return next((way for way in self.ways if way.way == name and way.reason is None), None)
