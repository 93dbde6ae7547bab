"""Buying now, buying later and renting what a growing load needs, month by month.

Money is counted in the month in which it is paid: a system with its order, and in every month that
it is there a twelfth of its yearly hosting, licences and electricity (``cost.cost``); rented GPUs
by the hours of the month (``cost.options``), at the load of that month. So a month costs a
twelfth of what a plan for its load shows, with the purchase in place of its depreciation.
Nothing is discounted, and what systems are worth at the end is not in any total.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from tonnage.cost.cost import energy_of, energy_part, owned_figures, system_parts
from tonnage.cost.options import (
    Rent,
    as_planned,
    hours_by_need,
    instances_on,
    peak_of,
    rented_hours,
    rents_of,
    systems_for,
)
from tonnage.plan.cost import HOURS_PER_YEAR, Serving, Traffic, Where
from tonnage.plan.horizon import Horizon, HorizonMonth, HorizonWay, Purchasing
from tonnage.plan.notes import NoCost
from tonnage.spec.prices import Figure, Prices

MONTHS = 12
TERMS = (1, 3)  # years for which machines are reserved
MOST_HOURS = 168  # different hours of a profile; one of more is represented by so many
LOOKED_AT = 200_000  # hours times months times numbers of owned systems that are compared
FEWEST, MOST = 24, 200  # numbers of owned systems that are compared, at least and at most
LAYERS = 64  # machines, or groups of machines, that are reserved one after another
Reserved = tuple[int, Rent, int, int]
"""A reservation: month, machine, years and how many machines."""

WAYS: dict[Purchasing, Where] = {
    "now": "on-prem",
    "steps": "on-prem",
    "hour": "cloud",
    "reserved": "cloud",
    "both": "hybrid",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Decay:
    """Shares by which prices fall in a year; None where the price is taken to stay."""

    systems: float | None = None
    rents: float | None = None


def fallen(decay: float | None, month: int) -> float:
    """The price of a month over that of today."""
    return float((1 - (decay or 0.0)) ** (month / MONTHS))


@dataclass(frozen=True, kw_only=True)
class Month:
    """One month: its load and its systems.

    Attributes:
        need: the systems, spare ones included.
        traffic: the load of a year like this month.
        serving: an instance; its ``spare`` systems are among ``need.systems``.
        prices: the price list of today.
        least: rented instances that stay on in the quietest hour.
        decay: of the prices.
    """

    need: HorizonMonth
    traffic: Traffic
    serving: Serving
    prices: Prices
    least: int = 1
    decay: Decay = field(default_factory=Decay)

    @cached_property
    def planned(self) -> Serving:
        """The instance at the load that it carries on the systems of the month."""
        if peak_of(self.traffic) <= 0 or not self.active(self.need.systems):
            return self.serving
        return as_planned(replace(self.serving, systems=self.need.systems), self.traffic)

    @cached_property
    def rents(self) -> tuple[Rent, ...]:
        """Machines by the hour; nothing where no price is known."""
        rents = rents_of(self.serving, self.prices)
        return () if isinstance(rents, NoCost) else rents

    @cached_property
    def needs(self) -> dict[int, float]:
        """Hours of a year by the number of instances that they need."""
        return hours_by_need(self.traffic, self.planned, self.least)

    @property
    def needed(self) -> int:
        """Instances that the busiest hour needs."""
        return max(self.needs)

    def active(self, systems: int) -> int:
        """Instances of so many owned systems, without the spare ones."""
        return instances_on(max(0, systems - self.serving.spare), self.serving)

    def running_usd(self, systems: int) -> float:
        """Hosting, licences and electricity of so many systems; their price has to be known."""
        parts = system_parts(self.serving, self.prices, systems) if systems else ()
        if not systems or isinstance(parts, NoCost):
            return 0.0
        energy = energy_of(
            self.planned, self.traffic, self.prices, instances_on(systems, self.serving)
        )
        yearly = sum(part.usd_per_year for part in parts if part.kind == "opex")
        return (yearly + sum(part.usd_per_year for part in energy_part(energy))) / MONTHS

    def rent(self, instances: int) -> tuple[float, int]:
        """USD for what so many instances leave over, on the machines that cost least for it, and
        the most GPUs that are rented at once; infinite where no price is known.
        """
        over = max(0, self.needed - instances)
        if not over:
            return 0.0, 0
        lower = fallen(self.decay.rents, self.need.month)
        rented = (
            (
                rented_hours(rent, self.needs, instances)
                * (rent.hour * lower + rent.licence)
                / MONTHS,
                rent.holding(over) * rent.gpus,
            )
            for rent in self.rents
        )
        return min(rented, default=(math.inf, 0))

    def reserved_usd(self, rent: Rent, years: int) -> float:
        """A machine that is reserved in this month, for its whole term."""
        lower = fallen(self.decay.rents, self.need.month)
        return years * HOURS_PER_YEAR * (rent.hour * lower + rent.licence)


def beyond_existing(traffic: Traffic, carried: float) -> Traffic:
    """The load that a fleet leaves over which carries so many requests/s: in every hour the same
    share of its requests and of what is provided for.
    """
    peak, mean = traffic.peak_requests_per_second, traffic.mean_requests_per_second
    profile = traffic.profile
    if profile:
        of_hour = carried * min(1.0, max(profile) / peak)
        profile = tuple(max(0.0, rate - of_hour) for rate in profile)
        mean = math.fsum(profile) / len(profile)
    elif mean is not None:
        mean = mean * max(0.0, 1 - carried / peak)
    return replace(
        traffic,
        peak_requests_per_second=max(0.0, peak - carried),
        mean_requests_per_second=mean,
        profile=profile,
    )


def fewer_hours(traffic: Traffic) -> Traffic:
    """The load with a profile of at most ``MOST_HOURS`` hours, each for as many of the original
    ones at their mean; the busiest are at their highest.
    """
    hours = sorted(traffic.profile)
    if len(hours) <= MOST_HOURS:
        return traffic
    edges = [round(place * len(hours) / MOST_HOURS) for place in range(MOST_HOURS + 1)]
    groups = [hours[begin:end] for begin, end in itertools.pairwise(edges)]
    means = [math.fsum(group) / len(group) for group in groups]
    return replace(traffic, profile=(*means[:-1], hours[-1]))


def compared(
    months: Sequence[Month],
    *,
    lead_months: int = 0,
    growth: float | None = None,
    where: Sequence[Where] = ("on-prem", "cloud", "hybrid"),
    existing: bool = False,
) -> Horizon:
    """The cost of the months by each way.

    Args:
        months: one after another, the first is today.
        lead_months: from the order of a system to its delivery; GPUs are rented until then.
        growth: of the load, for the answer to name.
        where: the ways of serving that are requested.
        existing: whether a fleet exists to which these months add.
    """
    market = Market(months=tuple(months), lead=lead_months)
    first = market.today
    ways = dict(market.ways())
    offers, figures = market.rented_figures()
    shown = tuple(way for name, way in ways.items() if WAYS[name] in where)
    priced = [(way.total_usd, way.way) for way in shown if way.total_usd is not None]
    bought = any(way.purchases for way in shown)
    owned = owned_figures(first.serving, first.prices) if bought else ()
    return Horizon(
        months=len(months),
        growth_per_month=growth,
        systems_decay=first.decay.systems,
        rents_decay=first.decay.rents,
        lead_months=lead_months,
        system=first.serving.system,
        gpus_per_system=first.serving.gpus_per_system,
        needs=tuple(month.need for month in months),
        ways=shown,
        cheapest=min(priced, key=lambda pair: pair[0])[1] if priced else None,
        figures=tuple(dict.fromkeys((*owned, *figures))),
        offers=offers,
        existing=existing,
    )


@dataclass(frozen=True, kw_only=True)
class Market:
    """The months, and what is bought and rented in them.

    Attributes:
        months: one after another.
        lead: months from the order of a system to its delivery.
    """

    months: tuple[Month, ...]
    lead: int

    @property
    def today(self) -> Month:
        """The first month, whose prices and machines hold for all."""
        return self.months[0]

    @cached_property
    def price(self) -> Figure | None:
        """Of one system, today."""
        return self.today.prices.system_usd(self.today.serving.system)

    @cached_property
    def highest_need(self) -> int:
        """Systems that the month with the highest load needs."""
        return max(month.need.systems for month in self.months)

    def order_usd(self, month: int) -> float:
        """The price of a system that is delivered in a month."""
        value = 0.0 if self.price is None else self.price.value
        return value * fallen(self.today.decay.systems, month - self.lead)

    def ways(self) -> Mapping[Purchasing, HorizonWay]:
        """Every way; one that comes to another is left out."""
        needs = [month.need.systems for month in self.months]
        needed_before = [max(needs[: place + 1]) for place in range(len(needs))]
        schedules: dict[Purchasing, tuple[int, ...]] = {
            "now": self._delivered([self.highest_need] * len(needs)),
            "steps": self._delivered(needed_before),
            "hour": (0,) * len(needs),
        }
        hourly = self._way("hour", schedules["hour"])
        ways = {name: self._way(name, systems) for name, systems in schedules.items()}
        if hourly.reason is None:
            ways["reserved"] = self._reserved()
            if self.price is not None:
                schedules["both"] = self._cheapest_schedule()
                ways["both"] = self._way("both", schedules["both"])
        if not any(ways.get("reserved", hourly).reserved_gpus):
            ways.pop("reserved", None)
        alike = list(schedules.values())[:-1] if "both" in schedules else []
        if schedules.get("both") in alike:
            del ways["both"]
        if schedules["now"] == schedules["steps"]:
            del ways["steps"]
        if self.lead >= len(needs):  # nothing is delivered within the months
            del ways["now"]
        return {name: self._against(way, hourly) for name, way in ways.items()}

    def rented_figures(self) -> tuple[tuple[str, ...], tuple[Figure, ...]]:
        """Offers to rent, in words, and every price of them."""
        month = self.today
        rents = [*month.rents, *(rent for rent, _ in self._terms)]
        offers = tuple(dict.fromkeys(rent.offer for rent in rents))
        return offers, tuple(dict.fromkeys(figure for rent in rents for figure in rent.figures))

    def _delivered(self, needed: Sequence[int]) -> tuple[int, ...]:
        """Systems that are there in each month, where as many are wanted."""
        return tuple(0 if place < self.lead else count for place, count in enumerate(needed))

    def _way(self, name: Purchasing, systems: tuple[int, ...]) -> HorizonWay:
        """The cost of so many systems in each month, with GPUs by the hour for the rest."""
        serving = self.today.serving
        if any(systems) and self.price is None:
            return HorizonWay(way=name, reason=NoCost(code="system-price", name=serving.system))
        rented = [
            month.rent(month.active(count))
            for month, count in zip(self.months, systems, strict=True)
        ]
        if any(math.isinf(usd) for usd, _ in rented):
            return HorizonWay(way=name, reason=NoCost(code="cloud-price", name=serving.gpu))
        running = [
            month.running_usd(count) for month, count in zip(self.months, systems, strict=True)
        ]
        way = HorizonWay(
            way=name,
            running_usd=math.fsum(running),
            rent_usd=math.fsum(usd for usd, _ in rented),
            systems=systems,
            reserved_gpus=(0,) * len(systems),
            hourly_gpus=tuple(gpus for _, gpus in rented),
        )
        paid = [usd + rent for usd, (rent, _) in zip(running, rented, strict=True)]
        bought, worth = 0.0, 0.0
        life = MONTHS * self.today.prices.depreciation_years.value
        for month, count in way.purchases:
            usd = count * self.order_usd(month)
            paid[month - self.lead] += usd
            bought += usd
            worth += usd * max(0.0, 1 - (len(systems) - month) / life)
        return replace(
            way,
            purchase_usd=bought,
            usd_by_month=tuple(paid),
            left_usd=worth,
            idle=self._idle([count * serving.gpus_per_system for count in systems]),
        )

    def _idle(self, gpus: Sequence[int]) -> float | None:
        """The share of GPUs that not even the peak of a month needs; None without any."""
        per_instance = self.today.serving.gpus_per_instance
        idle = sum(
            max(0, count - per_instance * month.needed)
            for month, count in zip(self.months, gpus, strict=True)
        )
        return idle / sum(gpus) if any(gpus) else None

    def _against(self, way: HorizonWay, hourly: HorizonWay) -> HorizonWay:
        """The way with the month from which on it is cheaper than renting by the hour."""
        if way.way == "hour" or way.reason is not None or hourly.reason is not None:
            return way
        pairs = list(zip(way.spent_usd, hourly.spent_usd, strict=True))
        first = len(pairs)
        while first and pairs[first - 1][0] <= pairs[first - 1][1] * (1 + 1e-9):
            first -= 1
        return replace(way, cheaper_from=first if first < len(pairs) else None)

    def _counts(self) -> list[int]:
        """The numbers of owned systems that are compared: all of them, or where these are many,
        the needs of the months and some between.
        """
        hours = len(self.today.traffic.hours)
        places = min(MOST, max(FEWEST, LOOKED_AT // (hours * len(self.months))))
        span = self.today.serving.fleet.systems_per_instance
        step = max(1, math.ceil(self.highest_need / span / places)) * span
        return sorted(
            {0, *range(0, self.highest_need, step), *(m.need.systems for m in self.months)}
        )

    def _cheapest_schedule(self) -> tuple[int, ...]:
        """How many systems are owned in each month where systems, once bought, are kept, and all
        that they leave is rented by the hour, at the least cost: by dynamic programming over the
        months; of equal costs with fewer systems.
        """
        counts = self._counts()
        spent = [math.inf if count else 0.0 for count in counts]
        choices: list[list[int]] = []
        for place, month in enumerate(self.months):
            price = self.order_usd(place)
            before: list[int] = []
            best = 0
            for now, count in enumerate(counts):
                if spent[now] - price * count < spent[best] - price * counts[best]:
                    best = now
                before.append(now if place < self.lead else best)
            spent = [
                spent[last]
                + (price * (count - counts[last]) if last != now else 0.0)
                + month.running_usd(count)
                + month.rent(month.active(count))[0]
                for now, (count, last) in enumerate(zip(counts, before, strict=True))
            ]
            choices.append(before)
        now = min(range(len(counts)), key=lambda place: (spent[place], place))
        systems = []
        for before in reversed(choices):
            systems.append(counts[now])
            now = before[now]
        return tuple(reversed(systems))

    @cached_property
    def _terms(self) -> tuple[tuple[Rent, int], ...]:
        """Reservations: for each number of years the cheapest machine for an instance."""
        month = self.today
        terms = []
        for years in TERMS:
            rents = rents_of(month.serving, month.prices, years)
            if not isinstance(rents, NoCost) and MONTHS * years <= len(self.months):
                terms.append((min(rents, key=lambda rent: rent.usd / rent.instances), years))
        return tuple(terms)

    def _reserved(self) -> HorizonWay:
        """Machines that are reserved for years, one after another as long as one costs less than
        GPUs by the hour, and the rest by the hour; no term goes beyond the last month.
        """
        instances = [0] * len(self.months)
        gpus = [0] * len(self.months)
        paid = [0.0] * len(self.months)
        while terms := self._next_reserved(instances):
            for begin, rent, years, machines in terms:
                usd = machines * self.months[begin].reserved_usd(rent, years) / (MONTHS * years)
                for month in range(begin, begin + MONTHS * years):
                    instances[month] += machines * rent.instances
                    gpus[month] += machines * rent.gpus
                    paid[month] += usd
        rented = [month.rent(count) for month, count in zip(self.months, instances, strict=True)]
        return HorizonWay(
            way="reserved",
            rent_usd=math.fsum((*paid, *(usd for usd, _ in rented))),
            usd_by_month=tuple(usd + rent for usd, (rent, _) in zip(paid, rented, strict=True)),
            systems=(0,) * len(instances),
            reserved_gpus=tuple(gpus),
            hourly_gpus=tuple(count for _, count in rented),
            idle=self._idle(gpus),
        )

    def _next_reserved(self, machine_counts: Sequence[int]) -> list[Reserved]:
        """The terms of further machines next to so many instances: of one, or of a large fleet of
        several at once; of machines of several sizes the ones that save most.
        """
        best: tuple[float, list[Reserved]] = (0.0, [])
        for instances in {rent.instances for rent, _ in self._terms}:
            machines = max(
                1, math.ceil(max(month.needed for month in self.months) / instances / LAYERS)
            )
            saved = [
                month.rent(count)[0] - month.rent(count + machines * instances)[0]
                for month, count in zip(self.months, machine_counts, strict=True)
            ]
            terms = [term for term in self._terms if term[0].instances == instances]
            saving, reserved = self._reserved_best(saved, terms, machines)
            if saving > max(best[0], 1e-9 * math.fsum(saved)):
                best = saving, reserved
        return best[1]

    def _reserved_best(
        self, saved: Sequence[float], terms: Sequence[tuple[Rent, int]], machines: int
    ) -> tuple[float, list[Reserved]]:
        """The saving by machines, and their terms, by dynamic programming from the last month
        back, of equal costs the earlier term; ``saved`` is the rent by the hour that they take the
        place of in each month.
        """
        least = [0.0] * (len(saved) + 1)
        chosen: list[Reserved | None] = [None] * len(saved)
        for place in reversed(range(len(saved))):
            least[place] = least[place + 1] + saved[place]
            for rent, years in terms:
                end = place + MONTHS * years
                if end > len(saved):
                    continue
                usd = machines * self.months[place].reserved_usd(rent, years) + least[end]
                if usd <= least[place] * (1 + 1e-12):
                    least[place], chosen[place] = usd, (place, rent, years, machines)
        reserved, place = list[Reserved](), 0
        while place < len(saved):
            term = chosen[place]
            if term is not None:
                reserved.append(term)
            place += 1 if term is None else MONTHS * term[2]
        return math.fsum(saved) - least[0], reserved


def systems_by_division(traffic: Traffic, serving: Serving) -> int:
    """Systems for the peak by what an instance carries, spare ones included."""
    per_instance = serving.requests_per_second_per_instance
    instances = math.ceil(round(peak_of(traffic) / per_instance, 9))
    return systems_for(instances, serving) + serving.spare if instances else 0
