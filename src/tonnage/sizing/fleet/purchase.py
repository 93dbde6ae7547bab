"""A purchase of two kinds of system, where it costs less a year than the best single kind.

Two forms are tried. Prompts are split by their length: prompts of more than so many tokens go to
one pool, all others to another one, and each pool is the answer to the question for its own
prompts, with every limit held for these alone. Or one router serves systems of both kinds: numbers
of them are simulated in full, the cheapest first, until one holds.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations

from tonnage.plan.candidate import Candidate
from tonnage.plan.mixed import Compared, Group, Mixed, Way
from tonnage.sizing.fleet.existing import POOLED, not_mixed
from tonnage.sizing.fleet.mixed import Fleets, Kind, whole
from tonnage.sizing.loads.instance import QUICK, SURE, Care
from tonnage.sizing.loads.runs import Runs
from tonnage.sizing.question import Question
from tonnage.sizing.search.candidate import candidate
from tonnage.sizing.search.deployment_capacity import Sized
from tonnage.sizing.search.search import Search
from tonnage.sizing.search.search_space import system_for
from tonnage.spec.hardware import Gpu
from tonnage.spec.lengths import Lengths, Pairs

MOST_KINDS = 3
"""Kinds of system of which two are combined: the cheapest alone first, then kinds that do not meet
the limits for all prompts."""

MOST_RUNS = 24
"""Whole fleets of one pair of kinds that are simulated at most."""

ROWS, STEPS = 32, 64
"""Numbers of the first kind that are tried, and parts of those of the second, of which one is added
at a time."""

DOUBT = 0.03
"""Share by which the sum of what two kinds carry alone may be off from one fleet of them to
another."""

QUANTILES = (0.5, 0.7, 0.8, 0.9, 0.95, 0.98)
"""Shares of the prompts after which they are split."""

RANGE = 2.0
"""A split is tried where the 95th percentile of the prompts is so many times the 5th."""

HASTY = 0.05
"""Share by which short runs may ask for more than the answer does."""

LEAST_SHARE = 0.01
"""Of the requests that a pool is made for."""

WORTH = 0.01
"""Share of a year's cost below which two kinds are not worth their router."""

Price = Callable[["Candidate", float, int], float | None]
"""USD a year of owned systems with their electricity: of a candidate, its share of the requests,
and how many of the systems are spare. None where a price is not known."""

Offer = tuple[Way, Callable[[], Mixed]]
"""Systems that hold the limits with their cost, and the whole fleet of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Buyer:
    """A question, and what systems cost.

    Attributes:
        question: load, limits and kinds of system.
        runs: the memory of the search.
        price: of systems.
        level: the confidence that each answer has to reach; 0 for the prediction as it is.
        plain: what the plan says of a deployment, by the ``id`` of the first; filled here.
    """

    question: Question
    runs: Runs
    price: Price
    workers: int | None = None
    level: float = 0.0
    plain: dict[int, tuple[Sized, Candidate]] = field(default_factory=dict, compare=False)

    def answer(self, question: Question, gpu: Gpu, care: Care = SURE) -> Sized | None:
        """The answer to a question on one kind of system; None where none reaches the level."""
        search = Search(
            question=replace(question, gpus=(gpu,)),
            runs=self.runs,
            workers=self.workers,
            rows=False,
            care=care,
        )
        best = search.answer().best
        return best if best is not None and self.reaches(best) else None

    def reaches(self, sized: Sized) -> bool:
        """Whether an answer has the confidence that all are to reach."""
        return (sized.level or 0.0) >= self.level

    def bought(self, sized: Sized) -> int:
        """The systems of an answer, spare ones included."""
        return sized.systems + self.question.spare

    def usd(self, sized: Sized, systems: int, share: float, spare: int) -> float:
        """USD a year of so many systems, spare ones included; infinite where it is not known."""
        if id(sized) not in self.plain:
            self.plain[id(sized)] = (sized, candidate(sized))
        instances = sized.contender.layout.of(systems).instances
        fleet = self.plain[id(sized)][1].on(systems=systems, instances=instances)
        usd = self.price(fleet, share, spare)
        return math.inf if usd is None else usd

    def alone(self, sized: Sized, share: float = 1.0) -> float:
        """USD a year of an answer, with the spare systems of the question."""
        return self.usd(sized, self.bought(sized), share, self.question.spare)


def cheapest_purchase(
    question: Question, runs: Runs, price: Price, workers: int | None = None
) -> Mixed:
    """The cheapest purchase of two kinds of system next to that of the best single kind; without
    its systems where it costs no less.
    """
    if (reason := not_mixed(question, ())) is not None:
        return Mixed(reason=reason)
    question = replace(question, objective="gpus", deepen=False, growth_per_month=None, regions=())
    buyer = Buyer(question=question, runs=runs, price=price, workers=workers)
    answers = {gpu.name: buyer.answer(question, gpu) for gpu in question.gpus}
    level = max((sized.level or 0.0 for sized in answers.values() if sized is not None), default=0)
    buyer = replace(buyer, level=level)
    singles = [sized for sized in answers.values() if sized is not None and buyer.reaches(sized)]
    singles.sort(key=buyer.alone)
    if not singles or len(answers) < 2:
        return Mixed(reason="limits" if len(answers) > 1 else "kinds")
    usd = buyer.alone(singles[0])
    if math.isinf(usd):
        return Mixed(reason="price")
    pairs = list(combinations(singles[:MOST_KINDS], 2))
    reasons = {not_mixed(question, pair) for pair in pairs}
    offers = [
        offer
        for pair in pairs
        if not_mixed(question, pair) is None
        and (offer := _behind_one_router(buyer, pair, usd)) is not None
    ]
    gpus = [sized.ready.trial.deployment.gpu for sized in singles]
    gpus += [gpu for gpu in question.gpus if gpu.name not in {alone.name for alone in gpus}]
    offers += _by_length(
        buyer,
        {sized.ready.trial.deployment.gpu.name: sized for sized in singles},
        gpus[:MOST_KINDS],
        min((way.usd_per_year for way, _ in offers), default=math.inf),
    )
    if not offers:
        return Mixed(reason="kinds" if not pairs else "ranks" if "ranks" in reasons else "many")
    way, fleet = min(offers, key=lambda offer: offer[0].usd_per_year)
    single = Way(systems={_name(singles[0]): buyer.bought(singles[0])}, usd_per_year=usd)
    if way.usd_per_year > usd * (1 - WORTH):
        return Mixed(reason="dearer", compared=Compared(single=single, mix=way))
    mixed = _priced(buyer, fleet())
    exact = math.fsum(group.usd_per_year or 0.0 for group in mixed.groups)
    compared = Compared(single=single, mix=replace(way, usd_per_year=exact))
    return replace(mixed, usd_per_year=exact, compared=compared)


def _name(sized: Sized) -> str:
    return sized.ready.trial.system.name


def _priced(buyer: Buyer, mixed: Mixed) -> Mixed:
    """The fleet with what each group costs at the share of the requests that it gets."""
    groups = []
    for group in mixed.groups:
        spare = group.added - _active(group, buyer.question.spare, mixed)
        usd = buyer.price(group.candidate, group.share, spare)
        groups.append(replace(group, usd_per_year=usd))
    return replace(mixed, groups=tuple(groups))


def _active(group: Group, spare: int, mixed: Mixed) -> int:
    """The systems of a group that carry load: spare ones are of each pool, or behind one router of
    the kind that carries most.
    """
    if mixed.over_tokens is not None:
        return group.added - spare
    strongest = max(mixed.groups, key=lambda kind: kind.requests_per_second / kind.added)
    return group.added - (spare if group is strongest else 0)


def _behind_one_router(buyer: Buyer, pair: Sequence[Sized], single: float) -> Offer | None:
    """The cheapest numbers of two kinds that hold the limits together; None where none of those
    that were simulated does.
    """
    question, names = buyer.question, [_name(sized) for sized in pair]
    fleets = Fleets(
        question=question,
        runs=buyer.runs,
        kinds=tuple(
            Kind(system=system_for(question, sized.ready.trial.deployment.gpu)) for sized in pair
        ),
        settled=dict(zip(names, pair, strict=True)),
        workers=buyer.workers,
    )
    strong = max(names, key=lambda name: fleets.carried({name: _span(fleets, name)}))

    def bought(counts: Mapping[str, int]) -> dict[str, int]:
        return {
            name: count + (question.spare if name == strong else 0)
            for name, count in counts.items()
        }

    def usd(counts: Mapping[str, int]) -> float:
        rate = fleets.carried(counts)
        return math.fsum(
            buyer.usd(
                fleets.settled[name],
                bought(counts)[name],
                fleets.carried({name: count}) / rate,
                bought(counts)[name] - count,
            )
            for name, count in counts.items()
        )

    holding = _holding(fleets, names, usd, single)
    if holding is None:
        return None
    counts, cost = holding
    way = Way(systems=bought(counts), usd_per_year=cost)
    return way, partial(whole, fleets, counts, way.systems)


def _span(fleets: Fleets, name: str) -> int:
    return fleets.settled[name].contender.layout.systems_per_instance


def _holding(
    fleets: Fleets,
    names: Sequence[str],
    usd: Callable[[Mapping[str, int]], float],
    single: float,
) -> tuple[dict[str, int], float] | None:
    """The cheapest numbers of two kinds that hold the limits, and their cost: whole fleets are
    simulated, the cheapest first.

    A fleet with no more of either kind than one that broke a limit is not simulated.
    """
    first, second = names
    spans = {name: _span(fleets, name) for name in names}
    alone = fleets.settled[first].systems
    stride = max(1, alone // spans[first] // ROWS) * spans[first]
    rate = fleets.carried({second: spans[second]})
    broken: list[tuple[int, int]] = []

    def least(count: int, carried: float) -> int:
        """The fewest of the second kind with which the sum is so much."""
        missing = carried - fleets.carried({first: count})
        return max(1, math.ceil(round(missing / rate, 9))) * spans[second]

    # how far the sum may be below the load is seen at about half of the first kind
    half = max(spans[first], alone // 2 // spans[first] * spans[first])
    enough = fleets.needed({first: half}, second, spans[second])
    low = fleets.load / POOLED
    if enough is not None and enough > spans[second]:
        broken.append((half, enough - spans[second]))
        fewer = fleets.carried({first: half, second: enough - spans[second]})
        low = max(low, min(fewer, fleets.load) * (1 - DOUBT))
    rows: list[tuple[float, int, int]] = []
    for count in range(spans[first], alone + 1, stride):
        counts = {first: count, second: least(count, low)}
        heapq.heappush(rows, (usd(counts), count, counts[second]))
    runs = 0
    while rows and runs < MOST_RUNS:
        cost, count, further = heapq.heappop(rows)
        counts = {first: count, second: further}
        if not any(count <= before and further <= after for before, after in broken):
            runs += 1
            if fleets.holds(counts):
                return counts, cost
            broken.append((count, further))
        more = further + max(1, further // spans[second] // STEPS) * spans[second]
        if cost >= single:  # only the figure is of use
            more = max(more, least(count, fleets.load))
        counts[second] = more
        heapq.heappush(rows, (usd(counts), count, more))
    return None


def _by_length(
    buyer: Buyer, singles: Mapping[str, Sized], gpus: Sequence[Gpu], at_most: float
) -> list[Offer]:
    """Pools for short and for long prompts that cost less than ``at_most``; empty where prompts are
    alike, or no split does.

    Short runs say how cheap each pool may be on each kind, so that few are sized in full.
    """
    question, hopes = buyer.question, list[tuple[float, int]]()
    pools: dict[int, list[Pool]] = {}
    for tokens in () if question.images is not None else thresholds(question):
        pools[tokens] = [
            Pool(question=pool, share=share, hopes=_hopes(buyer, singles, pool, share, gpus))
            for pool, share in split(question, tokens)
        ]
        hopes.append((math.fsum(pool.hope for pool in pools[tokens]), tokens))
    offers = list[Offer]()
    for hope, tokens in sorted(hopes):
        if hope >= at_most:
            break
        short, long = pools[tokens]
        first = _cheapest(buyer, short, at_most - long.hope)
        last = None if first is None else _cheapest(buyer, long, at_most - first[0])
        if first is None or last is None:
            continue
        systems: dict[str, int] = {}
        for _, sized in (first, last):
            systems[_name(sized)] = systems.get(_name(sized), 0) + buyer.bought(sized)
        at_most = first[0] + last[0]
        way = Way(systems=systems, usd_per_year=at_most, over_tokens=tokens)
        fleet = partial(_pools, (short, long), (first[1], last[1]), tokens)
        offers.append((way, fleet))
    return offers


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """The prompts of some lengths.

    Attributes:
        question: for these alone.
        share: of all requests.
        hopes: by kind of system, USD a year at least by short runs; kinds that do not meet the
            limits are left out.
    """

    question: Question
    share: float
    hopes: tuple[tuple[float, Gpu], ...]

    @property
    def hope(self) -> float:
        """The least of any kind."""
        return min((usd for usd, _ in self.hopes), default=math.inf)


def _hopes(
    buyer: Buyer, singles: Mapping[str, Sized], pool: Question, share: float, gpus: Sequence[Gpu]
) -> tuple[tuple[float, Gpu], ...]:
    hopes = []
    for gpu in gpus:
        sized = buyer.answer(replace(pool, tune=False), gpu, QUICK)
        if sized is None:
            continue
        contender = sized.contender
        systems = contender.layout.carrying(contender.load * (1 - HASTY), sized.rate).systems
        like, spare = singles.get(gpu.name, sized), pool.spare
        hopes.append((buyer.usd(like, systems + spare, share, spare), gpu))
    return tuple(sorted(hopes, key=lambda pair: pair[0]))


def _cheapest(buyer: Buyer, pool: Pool, at_most: float) -> tuple[float, Sized] | None:
    """The answer that costs least for a pool, and its cost; None where none costs less than
    ``at_most``.
    """
    best: tuple[float, Sized] | None = None
    for hope, gpu in pool.hopes:
        if hope >= at_most:
            break
        sized = buyer.answer(pool.question, gpu)
        usd = math.inf if sized is None else buyer.alone(sized, pool.share)
        if sized is not None and usd < at_most:
            best, at_most = (usd, sized), usd
    return best


def _pools(pools: Sequence[Pool], answers: Sequence[Sized], tokens: int) -> Mixed:
    """Each pool as its own question is answered."""
    groups = []
    for pool, sized in zip(pools, answers, strict=True):
        answer = candidate(sized, chosen=True)
        groups.append(
            Group(
                candidate=answer,
                system=_name(sized),
                owned=0,
                added=answer.systems,
                share=pool.share,
                weight=sized.capacity.rate,
                isl="" if pool.question.pairs is not None else str(pool.question.isl),
            )
        )
    return Mixed(groups=tuple(groups), router=pools[0].question.router, over_tokens=tokens)


def thresholds(question: Question) -> tuple[int, ...]:
    """Prompt lengths in tokens after which prompts are split: at ``QUANTILES`` and in the widest
    gap, between two lengths that occur; none where prompts are alike.
    """
    slices = question.isl.slices()
    values, weights = zip(*slices, strict=True)

    def place(quantile: float) -> int:
        """The first length up to which this share of the prompts is."""
        total = 0.0
        for index, weight in enumerate(weights):
            total += weight
            if total >= quantile - 1e-9:
                return index
        return len(weights) - 1

    if values[place(0.95)] < RANGE * values[place(0.05)]:
        return ()
    places = range(place(LEAST_SHARE), place(1 - LEAST_SHARE))
    gap = max(places, key=lambda index: values[index + 1] / values[index])
    middles = {
        math.floor(math.sqrt(values[index] * values[index + 1])): index
        for index in {gap, *(place(quantile) for quantile in QUANTILES)}
        if index in places
    }
    return tuple(
        sorted(
            tokens
            for tokens, index in middles.items()
            if values[index] <= tokens < values[index + 1]
        )
    )


def split(question: Question, tokens: int) -> tuple[tuple[Question, float], ...]:
    """The questions of the prompts of at most so many tokens and of the longer ones, each with its
    share of the requests.

    Each request of a renewal process goes to a pool with the probability p of its share: with c the
    coefficient of variation of the whole, c² p + 1 - p is the square of the pool's.
    """
    sides: list[tuple[Lengths, Lengths, Pairs | None]]
    if question.pairs is None:
        short, *prompts = question.isl.up_to(tokens)
        sides = [(isl, question.osl, None) for isl in prompts]
    else:
        short, *pairs = question.pairs.up_to(tokens)
        sides = [(*drawn.lengths(), drawn) for drawn in pairs]
    pools = []
    for (isl, osl, drawn), share in zip(sides, (short, 1 - short), strict=True):
        demand = question.demand.part(share)
        pool = replace(question, isl=isl, osl=osl, pairs=drawn, demand=demand)
        if question.process != "poisson":
            cv = 0.0 if question.process == "constant" else question.cv
            pool = replace(pool, process="gamma", cv=math.sqrt(cv * cv * share + 1 - share))
        pools.append((pool, share))
    return tuple(pools)
