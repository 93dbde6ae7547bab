"""Purchases of two kinds worked by hand: costs, spares, splits of prompts and why none is made."""

import math
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.plan.candidates import candidate
from tests.questions import question
from tests.sizing.search.contenders import asked_for, carrying, sized_of
from tonnage.plan.mixed import Group, Mixed, Way
from tonnage.sizing.fleet.purchase import (
    Buyer,
    Pool,
    _active,
    _behind_one_router,
    _by_length,
    _cheapest,
    _holding,
    _hopes,
    _pools,
    _priced,
    cheapest_purchase,
    split,
    thresholds,
)
from tonnage.sizing.loads.instance import QUICK
from tonnage.sizing.search.deployment_capacity import Sized


@dataclass(frozen=True, kw_only=True)
class Priced(Buyer):
    """A buyer whose systems cost 10 a year each, 1 more for a share of all requests, and 3 less for
    a spare one."""

    def usd(self, sized: Any, systems: int, share: float, spare: int) -> float:
        return 10.0 * systems + share - 3.0 * spare


def test_what_an_answer_costs_with_its_spare_systems() -> None:
    sized = sized_of(carrying(400.0), 20, 5.0)
    buyer = Priced(question=asked_for(400.0, spare=2), runs=None, price=None, level=0.8)
    assert buyer.bought(sized) == 22
    assert buyer.alone(sized) == 220 + 1 - 6
    assert buyer.alone(sized, 0.5) == 214.5
    assert buyer.reaches(sized)
    assert not buyer.reaches(replace(sized, level=0.5))
    assert not buyer.reaches(replace(sized, level=None))
    assert replace(buyer, level=0.0).reaches(replace(sized, level=None))


@pytest.mark.parametrize("usd", [7.0, None])
def test_what_the_price_list_is_asked_for(
    usd: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A candidate is described once, on as many systems as are bought."""
    described: list[Any] = []

    def describe(sized: Any) -> Any:
        described.append(sized)
        return SimpleNamespace(on=lambda *, systems, instances: (systems, instances))

    monkeypatch.setattr("tonnage.sizing.fleet.purchase.candidate", describe)
    prices: list[Any] = []
    buyer = Buyer(
        question=asked_for(400.0), runs=None, price=lambda *args: prices.append(args) or usd
    )
    sized = sized_of(carrying(400.0), 20, 5.0)
    for systems in (3, 4):
        assert buyer.usd(sized, systems, 0.5, 1) == (math.inf if usd is None else usd)
    assert prices == [((3, 12), 0.5, 1), ((4, 16), 0.5, 1)]
    assert described == [sized]


def group_of(added: int, rate: float, share: float = 0.5) -> Group:
    return Group(
        candidate=candidate(systems=added, requests_per_second_per_instance=rate),
        system="dgx-h100",
        owned=0,
        added=added,
        share=share,
        weight=1.0,
    )


@pytest.mark.parametrize(("over_tokens", "active"), [(None, (4, 7)), (900, (4, 5))])
def test_spare_systems_of_a_purchase_are_priced_as_spare(
    over_tokens: int | None, active: tuple[int, int]
) -> None:
    """Two of each pool, or of the kind that carries most a system."""
    groups = (group_of(6, 5.0, 0.75), group_of(7, 4.0, 0.25))
    mixed = Mixed(groups=groups, over_tokens=over_tokens)
    assert tuple(_active(group, 2, mixed) for group in groups) == active
    prices: list[Any] = []
    buyer = Buyer(
        question=asked_for(1.0, spare=2),
        runs=None,
        price=lambda *args: prices.append(args) or float(len(prices)),
    )
    priced = _priced(buyer, mixed)
    assert [group.usd_per_year for group in priced.groups] == [1.0, 2.0]
    assert [args[1:] for args in prices] == [(0.75, 6 - active[0]), (0.25, 7 - active[1])]


class Sum:
    """Fleets of two kinds, which carry 10 and 4 a system, and hold ``share`` of it together."""

    def __init__(self, load: float, share: float, systems: int) -> None:
        self.load, self.share, self.calls = load, share, list[tuple[int, int]]()
        layout = SimpleNamespace(systems_per_instance=1)
        contender = SimpleNamespace(layout=layout)
        self.settled = {
            name: SimpleNamespace(contender=contender, systems=systems) for name in ("a", "b")
        }

    def carried(self, counts: Any) -> float:
        return 10.0 * counts.get("a", 0) + 4.0 * counts.get("b", 0)

    def holds(self, counts: Any) -> bool:
        self.calls.append((counts["a"], counts["b"]))
        return self.share * self.carried(counts) >= self.load - 1e-9

    def needed(self, rest: Any, name: str, least: int) -> int:
        (first,) = rest.values()
        return max(least, math.ceil(round((self.load / self.share - 10 * first) / 4, 9)))


@pytest.mark.parametrize("share", [1.0, 0.95, 1.05])
@pytest.mark.parametrize("load", [57.0, 100.0])
@pytest.mark.parametrize("dear", [2.0, 2.6, 4.0])
def test_the_cheapest_numbers_of_two_kinds_by_brute_force(
    share: float, load: float, dear: float
) -> None:
    """One costs 1 a system, and the other ``dear`` times that."""
    alone = math.ceil(load / 10)
    fleets = Sum(load, share, alone)

    def usd(counts: Any) -> float:
        return dear * counts["a"] + counts["b"]

    holding = [
        (usd({"a": first, "b": second}), first, second)
        for first in range(1, alone + 1)
        for second in range(1, 60)
        if share * (10 * first + 4 * second) >= load - 1e-9
    ]
    best = _holding(fleets, ["a", "b"], usd, math.inf)
    assert best is not None
    counts, cost = best
    assert cost == usd(counts) == pytest.approx(min(holding)[0])
    assert fleets.holds(counts)
    assert len(fleets.calls) <= 25


def test_no_more_than_24_fleets_are_simulated() -> None:
    fleets = Sum(100.0, 1.0, 10)
    fleets.holds = fleets.calls.append
    assert _holding(fleets, ["a", "b"], lambda counts: 2.0 * counts["a"] + counts["b"], 9.0) is None
    assert len(fleets.calls) == 24


@pytest.mark.parametrize(
    ("at_most", "usd"), [(100.0, 20.0), (20.0, None), (20.5, 20.0), (9.0, None), (10.5, None)]
)
def test_the_cheapest_kind_of_a_pool(at_most: float, usd: float | None) -> None:
    """Short runs hope for 10, 15 and 18 a year; the answers are 30, 20 and 25, and those of kinds
    that hope for no less than the best are not asked for."""
    answers = {"first": 30.0, "second": 20.0, "third": 25.0, "last": 5.0}
    calls: list[str] = []

    class Answering(Priced):
        def answer(self, question: Any, gpu: Any, care: Any = None) -> Any:
            calls.append(gpu)
            return None if gpu == "nothing" else gpu

        def alone(self, sized: Any, share: float = 1.0) -> float:
            assert share == 0.25
            return answers[sized]

    hopes = ((9.5, "nothing"), (10.0, "first"), (15.0, "second"), (18.0, "third"), (20.0, "last"))
    pool = Pool(question=None, share=0.25, hopes=hopes)
    assert pool.hope == 9.5
    assert Pool(question=None, share=0.25, hopes=()).hope == math.inf
    buyer = Answering(question=asked_for(1.0), runs=None, price=None)
    best = _cheapest(buyer, pool, at_most)
    assert (None if best is None else best[0]) == usd
    assert calls == [name for hope, name in hopes if hope < min(at_most, 20.0)]


def test_prompts_are_split_at_their_quantiles_and_in_the_widest_gap() -> None:
    """At the geometric mean of the two lengths next to each split."""
    lengths = "histogram:100:0.5,200:0.2,400:0.1,800:0.1,1600:0.05,12800:0.05"
    assert thresholds(question(isl=lengths)) == (141, 282, 565, 1131, 4525)
    assert thresholds(question(isl="histogram:100:0.5,199:0.5")) == ()
    assert thresholds(question(isl="histogram:100:0.5,200:0.5")) == (141,)
    rare = "histogram:100:0.005,200:0.99,9000:0.005"
    assert thresholds(question(isl=rare)) == ()


def test_the_two_questions_of_a_split_by_hand() -> None:
    whole = question(isl="histogram:100:0.75,900:0.25", arrivals="gamma", cv=2.0)
    (short, share), (long, rest) = split(whole, 300)
    assert (share, rest) == pytest.approx((0.75, 0.25))
    assert (short.isl.mean, long.isl.mean) == pytest.approx((100.0, 900.0))
    assert short.osl == long.osl == whole.osl
    assert short.demand.sizing_requests_per_second == pytest.approx(300.0)
    assert (short.cv, long.cv) == pytest.approx((math.sqrt(3.25), math.sqrt(1.75)))
    poisson = split(question(isl="histogram:100:0.75,900:0.25"), 300)[0][0]
    assert (poisson.process, poisson.cv) == ("poisson", 1.0)


def test_short_runs_say_how_cheap_a_pool_may_be_on_each_kind() -> None:
    """For five hundredths less of the load: 380 of 400 requests per second are 19 systems of 20; the
    kinds that do not meet the limits are left out."""
    sized = sized_of(carrying(400.0), 20, 5.0)
    calls: list[Any] = []

    class Hasty(Buyer):
        def answer(self, question: Any, gpu: Any, care: Any = None) -> Any:
            calls.append((question.tune, gpu.name, care))
            return None if gpu.name == "none" else sized

        def usd(self, like: Any, systems: int, share: float, spare: int) -> float:
            return (100.0 if like == "dear" else 1.0) * systems + share + 1_000 * spare

    kinds = [SimpleNamespace(name=name) for name in ("dear", "none", "cheap")]
    buyer = Hasty(question=asked_for(1.0), runs=None, price=None)
    pool = asked_for(1.0, spare=2)
    hopes = _hopes(buyer, {"dear": "dear"}, pool, 0.25, kinds)
    assert hopes == ((2_021.25, kinds[2]), (4_100.25, kinds[0]))
    assert calls == [(False, name, QUICK) for name in ("dear", "none", "cheap")]


def pools_of(tokens: int) -> list[Any]:
    """The two sides of a split, which hope for a hundredth of their tokens a year each."""
    return [(f"{side} {tokens}", 0.5) for side in ("short", "long")]


@pytest.mark.parametrize(
    ("at_most", "answers", "ways"),
    [
        (1_000.0, {}, [(10.0, 200)]),
        (10.0, {}, []),
        (1_000.0, {"short 200": None}, [(20.0, 400)]),
        (1_000.0, {"long 200": None}, [(20.0, 400)]),
        (1_000.0, {"long 200": 50.0}, [(55.0, 200), (20.0, 400)]),
        (7.0, {}, []),
    ],
)
def test_splits_are_sized_from_the_one_that_hopes_for_least(
    at_most: float, answers: dict[str, Any], ways: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pools cost 5 and 10 a year each where these are what they hoped for times 2.5."""
    module = "tonnage.sizing.fleet.purchase"
    monkeypatch.setattr(f"{module}.thresholds", lambda question: (400, 200))
    monkeypatch.setattr(f"{module}.split", lambda question, tokens: pools_of(tokens))
    monkeypatch.setattr(
        f"{module}._hopes", lambda *args: ((int(args[2].split()[1]) / 100, SimpleNamespace()),)
    )

    def cheapest(buyer: Any, pool: Any, most: float) -> Any:
        usd = answers.get(pool.question, pool.hope * 2.5)
        return None if usd is None or usd >= most else (usd, sized_of(carrying(1.0), 3, 5.0))

    monkeypatch.setattr(f"{module}._cheapest", cheapest)
    monkeypatch.setattr(f"{module}._pools", lambda pools, answers, tokens: (answers, tokens))
    buyer = Buyer(question=asked_for(1.0, images=None, spare=1), runs=None, price=None)
    offers = _by_length(buyer, {}, [], at_most)
    assert [(way.usd_per_year, way.over_tokens) for way, _ in offers] == ways
    assert all(way.systems == {"system": 8} for way, _ in offers)
    for way, fleet in offers:
        answers, tokens = fleet()
        assert (len(answers), tokens) == (2, way.over_tokens)
        assert all(isinstance(sized, Sized) for sized in answers)
    buyer.question.images = object()
    assert _by_length(buyer, {}, [], at_most) == []


@pytest.mark.parametrize("pairs", [None, object()])
def test_each_pool_of_a_split_is_a_group(pairs: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "tonnage.sizing.fleet.purchase.candidate",
        lambda sized, *, chosen: candidate(systems=7 if chosen else 0),
    )
    asked = asked_for(1.0, pairs=pairs, isl="100-900", router="random")
    pools = [Pool(question=asked, share=share, hopes=()) for share in (0.25, 0.75)]
    mixed = _pools(pools, [sized_of(carrying(1.0), 3, rate) for rate in (5.0, 6.0)], 300)
    assert (mixed.router, mixed.over_tokens) == ("random", 300)
    isl = "100-900" if pairs is None else ""
    assert [
        (group.system, group.owned, group.added, group.share, group.weight, group.isl)
        for group in mixed.groups
    ] == [("system", 0, 7, 0.25, 5.0, isl), ("system", 0, 7, 0.75, 6.0, isl)]


def purchase(
    alone: dict[str, float],
    *,
    mix: float | None = None,
    split_usd: float | None = None,
    why: str | None = None,
    levels: dict[str, float] | None = None,
    gpus: tuple[str, ...] = ("a", "b", "c"),
) -> tuple[Mixed, list[Any]]:
    """The cheapest purchase where a year of each kind alone, of two behind one router and of a split
    costs so much; ``why`` kinds are not mixed."""
    calls: list[Any] = []
    rows: dict[str, Any] = {}
    for name in alone:
        row = sized_of(carrying(1.0), 3, 5.0, level=(levels or {}).get(name, 0.8))
        row.ready.trial.deployment.gpu.name = name
        row.ready.trial.system.name = name
        rows[name] = row
    module = "tonnage.sizing.fleet.purchase"
    question = asked_for(
        1.0,
        gpus=tuple(SimpleNamespace(name=name) for name in gpus),
        deepen=True,
        growth_per_month=0.1,
        regions=("x",),
    )
    fleet = Mixed(groups=(group_of(6, 5.0, 0.75), group_of(7, 4.0, 0.25)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"{module}.not_mixed", lambda question, pair: why if pair else None)
        patch.setattr(Buyer, "answer", lambda self, question, gpu: rows.get(gpu.name))
        patch.setattr(
            Buyer, "alone", lambda self, sized: alone[sized.ready.trial.deployment.gpu.name]
        )

        def behind(buyer: Buyer, pair: Any, usd: float) -> Any:
            names = [sized.ready.trial.deployment.gpu.name for sized in pair]
            of = buyer.question
            assert (of.deepen, of.objective) == (False, "gpus")
            calls.append((names, usd, of.growth_per_month, of.regions))
            if mix is None:
                return None
            return Way(systems={"dgx-h100": 13}, usd_per_year=mix), lambda: fleet

        def by_length(buyer: Buyer, singles: Any, kinds: Any, at_most: float) -> Any:
            calls.append((sorted(singles), [kind.name for kind in kinds], at_most))
            if split_usd is None:
                return []
            return [(Way(systems={"s": 1}, usd_per_year=split_usd, over_tokens=9), lambda: fleet)]

        patch.setattr(f"{module}._behind_one_router", behind)
        patch.setattr(f"{module}._by_length", by_length)
        mixed = cheapest_purchase(question, None, lambda *_: 30.0)
    return mixed, calls


def test_the_cheapest_purchase_by_hand() -> None:
    """Pairs of the kinds that meet the limits, the cheapest first; of offers the cheaper one, where
    it saves more than a hundredth."""
    mixed, calls = purchase({"a": 90.0, "b": 80.0, "c": 99.0}, mix=79.0)
    assert calls == [
        (["b", "a"], 80.0, None, ()),
        (["b", "c"], 80.0, None, ()),
        (["a", "c"], 80.0, None, ()),
        (["a", "b", "c"], ["b", "a", "c"], 79.0),
    ]
    assert mixed.compared is not None
    assert mixed.compared.single == Way(systems={"b": 3}, usd_per_year=80.0)
    assert mixed.compared.mix == Way(systems={"dgx-h100": 13}, usd_per_year=60.0)
    assert mixed.usd_per_year == 60.0, "two groups of 30, as they are priced in the end"
    assert mixed.reason is None
    halves, _ = purchase({"a": 90.0, "b": 80.0}, mix=79.0, split_usd=70.0)
    assert halves.compared.mix.over_tokens == 9
    dear, _ = purchase({"a": 90.0, "b": 80.0}, mix=79.3)
    assert (dear.reason, dear.compared.mix.usd_per_year, dear.groups) == ("dearer", 79.3, ())


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"alone": {"a": 1.0}, "gpus": ("a",)}, "kinds"),
        ({"alone": {}, "gpus": ("a",)}, "kinds"),
        ({"alone": {}}, "limits"),
        ({"alone": {"a": 1.0}}, "kinds"),
        ({"alone": {"a": 1.0, "b": 2.0}}, "many"),
        ({"alone": {"a": 1.0, "b": 2.0}, "why": "ranks", "mix": 0.1}, "ranks"),
        ({"alone": {"a": 1.0, "b": 2.0}, "why": "traffic", "mix": 0.1}, "many"),
        ({"alone": {"a": math.inf, "b": math.inf}}, "price"),
        ({"alone": {"a": 1.0, "b": 2.0}, "levels": {"b": 0.5}, "mix": 0.1}, "kinds"),
    ],
)
def test_why_two_kinds_are_not_bought(changed: dict[str, Any], reason: str) -> None:
    assert purchase(**changed)[0].reason == reason


@pytest.mark.parametrize(
    ("alone", "stride", "load", "second", "step"),
    [(64, 2, 572.0, 128, 2), (63, 1, 568.0, 127, 1), (96, 3, 572.0, 128, 2)],
)
def test_numbers_of_large_fleets_are_tried_in_steps(
    alone: int, stride: int, load: float, second: int, step: int
) -> None:
    """32 numbers of the first kind or more, and a 64th of those of the second more at a time."""
    fleets = Sum(load, 1.0, alone)
    fleets.needed = lambda *_: None
    fleets.holds = lambda counts: False
    tried: list[tuple[int, int]] = []

    def usd(counts: Any) -> float:
        tried.append((counts["a"], counts["b"]))
        return 1_000.0 * counts["a"] + counts["b"]

    assert _holding(fleets, ["a", "b"], usd, math.inf) is None
    numbers = list(range(1, alone + 1, stride))
    assert [first for first, _ in tried[: len(numbers)]] == numbers
    assert tried[0] == (1, second)
    assert tried[len(numbers)] == (1, second + step)


def test_of_many_kinds_the_three_cheapest_are_combined() -> None:
    usd = {"a": 90.0, "b": 80.0, "c": 99.0, "d": 98.0}
    _, calls = purchase(usd, mix=79.0, gpus=("a", "b", "c", "d", "e"))
    assert [call[0] for call in calls] == [["b", "a"], ["b", "d"], ["a", "d"], ["a", "b", "c", "d"]]
    assert calls[-1][1] == ["b", "a", "d"]
    _, calls = purchase({"a": 90.0}, gpus=("e", "a", "f", "g"))
    assert calls == [(["a"], ["a", "e", "f"], math.inf)]


@pytest.mark.parametrize("held", [True, False])
@pytest.mark.parametrize(("spare", "strong"), [(2, "a"), (0, "a")])
def test_two_kinds_behind_one_router_cost_their_shares(
    *, held: bool, spare: int, strong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten systems of four instances that carry 5 each, and five with 3: 200 and 60 of 260; spare
    ones are of the kind that carries more a system."""
    module = "tonnage.sizing.fleet.purchase"
    pair = []
    for name, rate in (("a", 5.0), ("b", 3.0)):
        row = sized_of(carrying(1.0), 3, rate)
        row.ready.trial.system.name = row.ready.trial.deployment.gpu.name = name
        pair.append(row)
    monkeypatch.setattr(
        f"{module}.system_for", lambda question, gpu: SimpleNamespace(name=gpu.name)
    )
    made: list[Any] = []
    paid: list[Any] = []

    def holding(fleets: Any, names: Any, usd: Any, single: float) -> Any:
        made.append((fleets, names, single))
        counts = {"a": 10, "b": 5}
        return (counts, usd(counts)) if held else None

    class Paid(Buyer):
        def usd(self, sized: Any, systems: int, share: float, spare: int) -> float:
            paid.append((sized, systems, share, spare))
            return 10.0 * systems

    monkeypatch.setattr(f"{module}._holding", holding)
    monkeypatch.setattr(f"{module}.whole", lambda *what: what)
    buyer = Paid(question=asked_for(1.0, spare=spare), runs="runs", price=None, workers=3)
    offer = _behind_one_router(buyer, pair, 99.0)
    ((fleets, names, single),) = made
    assert (names, single, fleets.runs, fleets.workers) == (["a", "b"], 99.0, "runs", 3)
    assert [(kind.system.name, kind.owned, kind.price) for kind in fleets.kinds] == [
        ("a", 0, None),
        ("b", 0, None),
    ]
    assert list(fleets.settled.values()) == pair
    if not held:
        assert offer is None
        return
    assert paid == [
        (pair[0], 10 + spare, pytest.approx(200 / 260), spare),
        (pair[1], 5, pytest.approx(60 / 260), 0),
    ]
    assert offer is not None
    way, fleet = offer
    assert way == Way(systems={"a": 10 + spare, "b": 5}, usd_per_year=10.0 * (15 + spare))
    assert fleet() == (fleets, {"a": 10, "b": 5}, way.systems)


def test_an_answer_of_one_kind_reaches_the_level(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    answers: list[Any] = [
        None,
        sized_of(carrying(1.0), 3, 5.0, level=0.5),
        sized_of(carrying(1.0), 3, 5.0),
    ]

    class Searched:
        def __init__(self, **what: Any) -> None:
            made.append(what)

        def answer(self) -> Any:
            return SimpleNamespace(best=answers[len(made) - 1])

    monkeypatch.setattr("tonnage.sizing.fleet.purchase.Search", Searched)
    buyer = Buyer(question=asked_for(1.0), runs="runs", price=None, workers=3, level=0.8)
    asked = asked_for(2.0, gpus=("many",))
    assert [buyer.answer(asked, gpu, QUICK) for gpu in ("a", "b", "c")] == [None, None, answers[2]]
    assert [what["question"].gpus for what in made] == [("a",), ("b",), ("c",)]
    assert (made[0]["runs"], made[0]["workers"], made[0]["care"]) == ("runs", 3, QUICK)
    assert made[0]["rows"] is False
