"""Systems to add to what exists: how many of which kind, so that all of them together carry
the load at the confidence.

The sum of what the kinds carry alone says where to begin; the answer is the fewest systems with
which the whole fleet, simulated behind
its router, holds every limit. A fleet of one kind is the special case, whose simulation is that of
every answer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tonnage.plan.candidate import Candidate
from tonnage.plan.fleet import AtPeak, FleetRun
from tonnage.plan.mixed import Group, Instead, Mixed, Purchase, Retirement
from tonnage.results.metrics import Summary
from tonnage.sizing.fleet.existing import POOLED, not_mixed, strongest, whole_fleet
from tonnage.sizing.loads.mixed_check import MixedAtPeak
from tonnage.sizing.loads.runs import Runs
from tonnage.sizing.progress import Steps
from tonnage.sizing.question import Owned, Question
from tonnage.sizing.search.candidate import candidate
from tonnage.sizing.search.deployment_capacity import Sized
from tonnage.sizing.search.search import Search
from tonnage.sizing.search.search_space import MOST_SYSTEMS_PER_INSTANCE
from tonnage.spec.hardware import System

MOST_TIMES = 4
"""Systems are added up to this many times as many as the sum of what the kinds carry asks for."""

MONTHS = 36
"""Months of growth for which purchases are looked for."""

EXACT = 64
"""Instances up to which every month of growth is simulated; of more, one system more or less is
near what the sum says.
"""

MOST_ADDED = 2_000
"""Systems of a kind beyond which nothing is looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Systems of one kind.

    Attributes:
        system: which.
        owned: how many exist.
        price: what one more costs, in whatever is to be least; None where none may be added.
    """

    system: System
    owned: int = 0
    price: float | None = None


Counts = Mapping[str, int]
"""Systems of each kind, by their name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleets:
    """Fleets of several kinds under one question.

    Attributes:
        question: load and limits.
        runs: the memory of the search.
        kinds: what exists and what may be added.
        settled: the deployment of each kind, on any number of its systems; empty to look for the
            strongest on each number.
    """

    question: Question
    runs: Runs
    kinds: tuple[Kind, ...]
    settled: Mapping[str, Sized] = field(default_factory=dict, compare=False)
    workers: int | None = None
    steps: Steps = field(default_factory=Steps, compare=False)
    deployments: dict[tuple[str, int], Sized | None] = field(default_factory=dict, compare=False)

    @property
    def load(self) -> float:
        """Requests per second that the question is sized for."""
        return self.question.demand.sizing_requests_per_second

    @property
    def owned(self) -> Counts:
        """The systems that exist."""
        return {kind.system.name: kind.owned for kind in self.kinds if kind.owned}

    def system(self, name: str) -> System:
        """The system of a kind."""
        return next(kind.system for kind in self.kinds if kind.system.name == name)

    def others(self, name: str) -> Counts:
        """The systems that exist, of every other kind."""
        return {kind: count for kind, count in self.owned.items() if kind != name}

    def least(self, name: str) -> int:
        """The systems of a kind that carry load where none is added: what exists, less spare
        ones, which are of that kind.
        """
        return max(0, self.owned.get(name, 0) - self.question.spare)

    def bought(self, name: str, active: int) -> int:
        """The systems to add of a kind so that so many carry load next to the spare ones."""
        return max(0, active + self.question.spare - self.owned.get(name, 0))

    def sized(self, name: str, systems: int) -> Sized | None:
        """The strongest deployment on so many systems of a kind, of many on about as many; None
        where none meets the limits.
        """
        if name in self.settled:
            return self.settled[name]
        step = max(1, 1 << max(0, (systems - 1).bit_length() - 3))
        systems = math.ceil(systems / step) * step
        key = (name, systems)
        if key not in self.deployments:
            search = Search(
                question=self.question,
                runs=self.runs,
                steps=self.steps,
                workers=self.workers,
                rows=False,
            )
            best = strongest(search, Owned(count=systems, system=self.system(name)))
            self.deployments[key] = best if best is not None and best.instances else None
        return self.deployments[key]

    def of(self, counts: Counts) -> list[tuple[Sized, int]]:
        """The deployments on so many systems of each kind, those left out on which none meets the
        limits.
        """
        pairs = ((self.sized(name, count), count) for name, count in counts.items() if count > 0)
        return [
            (replace(sized, systems=count), count) for sized, count in pairs if sized is not None
        ]

    def run(self, counts: Counts, load: float = 0.0) -> FleetRun | None:
        """So many systems of each kind, the whole fleet simulated at a load (default: the
        question's); None where nothing runs.
        """
        kinds = self.of(counts)
        if not kinds:
            return None
        return whole_fleet(kinds, load or self.load).run(sum(count for _, count in kinds))

    def holds(self, counts: Counts, load: float = 0.0) -> bool:
        """Whether the whole fleet holds every limit at a load (default: the question's)."""
        run = self.run(counts, load)
        return run is not None and run.holds

    def carried(self, counts: Counts) -> float:
        """The sum of what the systems of each kind carry alone, in requests per second."""
        return math.fsum(sized.capacity.rate * sized.instances for sized, _ in self.of(counts))

    def pools(self, counts: Counts, load: float) -> bool:
        """Whether systems of several kinds hold a load that is above the sum of what they carry
        alone, up to ``POOLED`` times; one kind is counted by what it carries, as in every answer.
        """
        several = len(self.of(counts)) > 1 and self.carried(counts) * POOLED >= load
        return (several or self.carried(counts) >= load) and self.holds(counts, load)

    def needed(
        self, rest: Counts, name: str, least: int = 0, *, load: float = 0.0, by_sum: bool = False
    ) -> int | None:
        """The fewest systems of a kind, ``least`` or more, with which a fleet holds a load next to
        the rest; None where no number does.

        ``by_sum`` leaves fleets of more than ``EXACT`` instances to the sum of what the kinds
        carry.
        """
        load, more = load or self.load, self.sized(name, max(least, MOST_SYSTEMS_PER_INSTANCE))
        if more is None:
            return least if self.holds(rest, load) else None
        span, per_system = (
            more.contender.layout.systems_per_instance,
            more.capacity.rate * more.instances / more.systems,
        )
        start = math.ceil(round(max(load - self.carried(rest), 0.0) / per_system / span, 9)) * span
        count = max(least, start)
        if by_sum and more.contender.layout.of(count).instances > EXACT:
            return count if count <= MOST_ADDED else None
        while count <= MOST_ADDED and not self.holds({**rest, name: count}, load):
            count += max(1, count // span // 64) * span
            if count > MOST_TIMES * max(start, least, span):
                return None
        while count - span >= least and self.pools({**rest, name: count - span}, load):
            count -= span
        return count if count <= MOST_ADDED else None


def with_added(
    question: Question,
    runs: Runs,
    kinds: Sequence[Kind],
    workers: int | None = None,
    *,
    months: int = MONTHS,
) -> Mixed:
    """The fleet that exists with the cheapest systems of one kind that make all of it carry the
    load, and what is bought in so many months of its growth.
    """
    fleets = Fleets(
        question=replace(question, deepen=False), runs=runs, kinds=tuple(kinds), workers=workers
    )
    prices = {kind.system.name: kind.price for kind in kinds if kind.price is not None}
    if (reason := not_mixed(question, ())) is not None:
        return Mixed(reason=reason)
    for name in prices:
        kinds_of = fleets.of({**fleets.owned, name: MOST_SYSTEMS_PER_INSTANCE})
        if (reason := not_mixed(question, [sized for sized, _ in kinds_of])) is not None:
            return Mixed(reason=reason)
    active = {
        name: count
        for name in prices
        if (count := fleets.needed(fleets.others(name), name, fleets.least(name))) is not None
    }
    if not active:
        runnable = any(fleets.sized(name, MOST_SYSTEMS_PER_INSTANCE) is not None for name in prices)
        return Mixed(reason="many" if runnable else "limits")
    # where none is needed today, the kind that costs least for what it carries is bought next
    dear = {
        name: prices[name] / (fleets.carried({name: MOST_SYSTEMS_PER_INSTANCE}) or 1e-9)
        for name in active
    }
    bought = {name: fleets.bought(name, count) for name, count in active.items()}
    name, *dearer = sorted(bought, key=lambda kind: (bought[kind] * prices[kind], dear[kind]))
    instead = tuple(
        Instead(system=kind, systems=bought[kind], gpus=bought[kind] * fleets.system(kind).gpus)
        for kind in dearer
    )
    mixed = replace(
        whole(fleets, {**fleets.others(name), name: active[name]}, {name: bought[name]}),
        buys=name,
        instead=instead,
        retirements=_retirements(fleets, name, prices, active),
    )
    growth = question.growth_per_month
    if growth is None or growth <= 0:
        return mixed
    purchases, covered = _purchases(fleets, name, active[name], growth, months)
    runs_today = any(group.system == name for group in mixed.groups)
    return replace(
        mixed,
        purchases=purchases,
        months=covered,
        next_bought=None if runs_today else _next_bought(fleets, name),
    )


def whole(fleets: Fleets, counts: Counts, bought: Counts) -> Mixed:
    """The fleet with so many active systems of each kind, those on standby left out of its
    simulation; ``bought`` are added, standby ones included.
    """
    kinds = fleets.of(counts)
    if not kinds:
        return Mixed(reason="limits")
    systems, load = sum(count for _, count in kinds), fleets.load
    predicted = whole_fleet(kinds, load, as_predicted=True)
    parts = (
        predicted.of_kinds()
        if isinstance(predicted, MixedAtPeak)
        else ((1.0, predicted.seen(systems).summary),)
    )
    groups = []
    for (sized, count), (share, summary) in zip(kinds, parts, strict=True):
        system = sized.ready.trial.system.name
        owned, added = fleets.owned.get(system, 0), bought.get(system, 0)
        candidate = _candidate(sized, count, owned + added, share * load, summary)
        groups.append(
            Group(
                candidate=candidate,
                system=system,
                owned=owned,
                added=added,
                share=share,
                weight=sized.capacity.rate,
            )
        )
    return Mixed(
        groups=tuple(groups),
        router=fleets.question.router,
        run=whole_fleet(kinds, load).run(systems),
        at_peak=predicted.run(systems),
    )


def _candidate(sized: Sized, active: int, systems: int, rate: float, summary: Summary) -> Candidate:
    """What runs on the systems of one kind, at its share of the load."""
    contender = sized.contender
    demand = replace(
        contender.question.demand, peak_requests_per_second=rate, sizing_requests_per_second=rate
    )
    share = replace(contender, question=replace(contender.question, demand=demand))
    alone = candidate(replace(sized, contender=share, systems=active))
    instances = contender.layout.of(active).instances
    peak = AtPeak(
        requests_per_second_per_instance=rate / instances,
        ttft_ms=summary.ttft_ms,
        itl_ms=summary.itl_ms,
        tpot_ms=summary.tpot_ms,
        e2e_ms=summary.e2e_ms,
        utilisation=rate / instances / alone.requests_per_second_per_instance,
        instances=instances,
    )
    whole = alone.on(systems=systems, instances=contender.layout.of(systems).instances)
    carries = sized.capacity.rate
    exactly = contender.layout.exactly(rate, carries)
    return replace(
        whole,
        at_peak=peak,
        sized_requests_per_second_per_instance=carries,
        systems_exact=exactly,
        checked=True,
    )


def _retirements(
    fleets: Fleets, buys: str, prices: Mapping[str, float], active: Counts
) -> tuple[Retirement, ...]:
    """For each kind that exists, the cheapest systems that would do its work; none for kinds that
    nothing else replaces.
    """
    retirements = []
    for system, count in fleets.others(buys).items():
        further: dict[str, int] = {}
        for name in (name for name in active if name != system):
            rest = {kind: owned for kind, owned in fleets.others(name).items() if kind != system}
            needed = fleets.needed(rest, name, active[name])
            if needed is not None:
                further[name] = needed - active[name]
        if further:
            name = min(further, key=lambda kind: further[kind] * prices[kind])
            retirements.append(
                Retirement(
                    system=system,
                    systems=count,
                    instead_system=name,
                    instead_systems=further[name],
                    instead_requests_per_second=fleets.carried({name: active[name] + further[name]})
                    / (active[name] + further[name]),
                )
            )
    return tuple(retirements)


def _next_bought(fleets: Fleets, name: str) -> Candidate | None:
    """What runs on a system of a kind that is bought later, as many as an instance may need, at the
    load that they carry; None where none meets the limits.
    """
    sized = fleets.sized(name, MOST_SYSTEMS_PER_INSTANCE)
    if sized is None:
        return None
    rate = sized.capacity.rate * sized.instances
    seen = whole_fleet([(sized, sized.systems)], rate, as_predicted=True).seen(sized.systems)
    return _candidate(sized, sized.systems, sized.systems, rate, seen.summary)


def _purchases(
    fleets: Fleets, name: str, active: int, growth: float, months: int
) -> tuple[tuple[Purchase, ...], int]:
    """What is bought for each of so many months of a growing load, and the months that this covers:
    up to the first for which no number is enough.
    """
    purchases = list[Purchase]()
    bought = fleets.bought(name, active)
    if bought:
        purchases.append(Purchase(month=0, systems=bought, requests_per_second=fleets.load))
    for month in range(1, months + 1):
        load = fleets.load * (1 + growth) ** month
        needed = fleets.needed(fleets.others(name), name, active, load=load, by_sum=True)
        if needed is None:
            return tuple(purchases), month - 1
        if needed > active:
            purchases.append(
                Purchase(
                    month=month,
                    systems=fleets.bought(name, needed) - fleets.bought(name, active),
                    requests_per_second=load,
                )
            )
            active = needed
    return tuple(purchases), months
