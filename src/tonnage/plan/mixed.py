"""A fleet of several kinds of systems: the old ones and the ones to add to them, or a purchase of
two kinds.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from tonnage.plan.candidate import Candidate
from tonnage.plan.cost import Where
from tonnage.plan.document import Shown
from tonnage.plan.fleet import FleetRun
from tonnage.spec.typed_values import strict

# Why a plan names no systems to add, or no purchase of two kinds: "traffic" that comes as no drawn
# stream, or shares prompts;
# "ranks" of attention, which are
# simulated on one kind alone; "pools" of prefill and decode; "standby" systems by an availability;
# "limits" that no deployment meets on
# the systems that may be added; "many" where more systems than are simulated would be needed;
# of a purchase "price" where that of a system is not known, "kinds" where there are not two, and
# "dearer" where no two kinds cost less than one
WhyNotAdded = Literal[
    "traffic", "ranks", "pools", "standby", "limits", "many", "price", "kinds", "dearer"
]


@strict
class Group:
    """The systems of one kind, with the same deployment on all of them."""

    # what runs on them, at its share of the peak; ``at_peak`` is what its own requests see in the
    # whole fleet
    candidate: Candidate
    system: str  # catalog id of the systems
    owned: int  # systems that exist
    added: int  # systems to buy, spare ones included
    share: float  # of the requests, that the router gives to them
    weight: (
        float  # of one instance, to the router: the requests/s that it carries inside the limits
    )
    # where prompts are split by length, the lengths of prompts that come here, as ``isl`` of a
    # question takes them; "" elsewhere, and of pairs, which are those of the file up to
    # ``over_tokens`` or above
    isl: str = ""
    # a year of its systems, owned, electricity included; None where they were not compared
    usd_per_year: float | None = None

    @property
    def requests_per_second(self) -> float:
        """What all its instances carry inside the limits, spare ones included."""
        return self.candidate.sized_rate * self.candidate.instances


@strict
class Instead:
    """Systems of another kind that could be added in place of those of the answer."""

    system: str
    systems: int
    gpus: int
    usd_per_year: float | None = None  # before electricity; None where a price is not known


@strict
class Retirement:
    """Systems that exist, and others that would do their work."""

    system: str
    systems: int
    instead_system: str
    instead_systems: int  # that would be added in addition; 0 where the fleet does without
    instead_requests_per_second: float  # that one of these carries
    upkeep_usd_per_year: float | None = (
        None  # hosting, licences and electricity; None where a price is not known
    )
    instead_usd_per_year: float | None = (
        None  # of those instead, their purchase included; None likewise
    )

    @property
    def worth(self) -> bool | None:
        """Whether retiring them saves money; None where a price is not known."""
        if self.upkeep_usd_per_year is None or self.instead_usd_per_year is None:
            return None
        return self.instead_usd_per_year < self.upkeep_usd_per_year


@strict
class Purchase:
    """Systems to buy for a month."""

    month: int  # from today on; 0 is today
    systems: int
    requests_per_second: float  # the load of that month


@strict
class Way:
    """Systems that carry the whole load by themselves."""

    systems: dict[str, int]  # by kind
    usd_per_year: float  # owned, electricity included
    over_tokens: int | None = None  # as of ``Mixed``


# What else a plan names for the whole load: the part of it, or the way of its cost
Named = Literal["pools_instead", "narrow_cache"] | Where


@strict
class Cheaper:
    """What a plan names elsewhere and costs less a year than a purchase of two kinds."""

    named: Named
    systems: dict[str, int]  # owned, by kind; empty of what is rented
    usd_per_year: float


@strict
class Compared(Shown):
    """A purchase of two kinds next to that of the best single kind."""

    WHERE_ASKED: ClassVar[tuple[str, ...]] = ("cheaper",)

    single: Way  # the cheapest kind alone
    mix: Way  # the cheapest two kinds that hold the limits
    # the cheapest that the plan names and that costs less than ``mix``; None, and not in the JSON,
    # where nothing does, and where two kinds are not bought
    cheaper: Cheaper | None = None

    @property
    def saved_usd_per_year(self) -> float:
        """What the two kinds save; below 0 where they cost more."""
        return self.single.usd_per_year - self.mix.usd_per_year


@strict
class Mixed(Shown):
    """The whole fleet, old and new, or bought together."""

    DERIVED: ClassVar[tuple[str, ...]] = ("added",)
    WHERE_ASKED: ClassVar[tuple[str, ...]] = ("next_bought", "over_tokens", "compared")

    buys: str = ""  # the kind of system that is added, now or later; "" where nothing is
    groups: tuple[Group, ...] = ()  # one for each kind of system, old ones first
    router: str = (
        ""  # what gives requests to the instances by their weights, a name of ``simulator.router``
    )
    run: FleetRun | None = None  # all of it at the peak, at the asked confidence
    at_peak: FleetRun | None = None  # the same by the prediction as it is
    usd_per_year: float | None = (
        None  # of the added systems, owned, before electricity; None where a price is not known
    )
    instead: tuple[Instead, ...] = ()  # other kinds that carry the load as well, the cheapest first
    retirements: tuple[Retirement, ...] = ()  # of each kind that exists
    purchases: tuple[
        Purchase, ...
    ] = ()  # with the growth of the load, from the added ones of today on
    months: int = 0  # of growth that these cover
    # prompts of more tokens go to the last group, all others to the first; None where one router
    # gives every request to all
    over_tokens: int | None = None
    compared: Compared | None = None  # of a purchase of two kinds; None elsewhere
    # what runs on systems that are bought later; None, and not in the JSON, where one of ``groups``
    # has them, or none are
    next_bought: Candidate | None = None
    reason: WhyNotAdded | None = None  # why no fleet is known; None where ``groups`` are

    @property
    def added(self) -> dict[str, int]:
        """Systems to buy, by their kind."""
        systems: dict[str, int] = {}
        for group in self.groups:
            if group.added:
                systems[group.system] = systems.get(group.system, 0) + group.added
        return systems
