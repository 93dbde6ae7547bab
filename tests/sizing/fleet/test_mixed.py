"""Systems added to those that exist, held against every number of them, simulated in full."""

import json
import random
from dataclasses import dataclass, make_dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from tests.plan.candidates import candidate
from tests.questions import SMALL, best, plans_with, question
from tests.sizing.fleet.two_kinds import kinds_of
from tests.sizing.search.contenders import asked_for, carrying, ready_of, sized_of
from tonnage.api.sizing import answer, ask
from tonnage.plan.fleet import AtPeak
from tonnage.plan.mixed import Mixed, Purchase, Retirement
from tonnage.plan.plan import Plan
from tonnage.results.metrics import Latencies
from tonnage.sizing.fleet.existing import existing
from tonnage.sizing.fleet.mixed import (
    Fleets,
    Kind,
    _candidate,
    _next_bought,
    _purchases,
    _retirements,
    whole,
    with_added,
)
from tonnage.sizing.loads.runs import Runs
from tonnage.sizing.progress import Steps
from tonnage.sizing.question import Question

_few_parts = plans_with()


GPUS = ("h100-sxm-80gb", "l40s", "a100-sxm-80gb", "h200-sxm-141gb")


def added(runs: Runs | None = None, **changed: Any) -> tuple[Question, Mixed]:
    asked = question(tp="1", **changed)
    return asked, with_added(asked, runs or Runs(asked.slo), kinds_of(asked))


def drawn(seed: int) -> dict[str, Any]:
    """A question with two kinds of systems, one of which exists."""
    chance = random.Random(seed)
    old, new = chance.sample(GPUS, 2)
    return {
        "have": f"{chance.choice((1, 2))}x{'8xl40s' if old == 'l40s' else 'dgx-' + old[:4]}",
        "gpu": chance.choice((new, f"{new},{old}")),
        "isl": chance.choice((300, 1000, "2000+-400")),
        "osl": chance.choice((50, 100, "200+-50")),
        "ttft": chance.choice(("p95<=300ms", "p95<=1s", "p90<=500ms")),
        "peak_rps": chance.choice((150, 400, 900)),
        "engine": chance.choice(("vllm-0.32", "tensorrt-llm-1.2")),
    }


@pytest.mark.parametrize(
    "seed", [*range(2), *(pytest.param(seed, marks=pytest.mark.accuracy) for seed in range(2, 20))]
)
def test_no_fewer_systems_would_do(seed: int) -> None:
    """Of each kind every number up to the answer's is simulated in full, next to what exists."""
    runs = Runs()
    asked, mixed = added(runs, **drawn(seed))
    kinds = kinds_of(asked)
    fleets = Fleets(question=asked, runs=runs, kinds=kinds)
    assert mixed.reason is None
    assert fleets.holds(
        {group.candidate.system: group.owned + group.added for group in mixed.groups}
    )
    price = {kind.system.name: kind.price for kind in kinds if kind.price is not None}
    paid = sum(count * (price[name] or 0) for name, count in mixed.added.items())
    answers = {**mixed.added, **{other.system: other.systems for other in mixed.instead}}
    for name, usd in price.items():
        for count in range(answers.get(name, 0)):
            fleet = {**fleets.others(name), name: fleets.owned.get(name, 0) + count}
            assert not fleets.pools(fleet, fleets.load), (name, count)
            if len(fleets.of(fleet)) > 1:
                assert not fleets.holds(fleet), (name, count)
        assert answers.get(name) is None or answers[name] * (usd or 0) >= paid * 0.98


@pytest.mark.parametrize(
    "seed", [3, *(pytest.param(seed, marks=pytest.mark.accuracy) for seed in range(4, 12))]
)
def test_what_is_added_carries_the_load_when_asked_for_directly(seed: int) -> None:
    """``have`` with the added systems says that they carry the load; with one fewer that they do not."""
    changed = {"tp": "1", **drawn(seed)}
    _, mixed = added(**drawn(seed))
    (name, count), *_ = (*mixed.added.items(), ("", 0))
    for fewer in (0, 1) if count else (0,):
        systems = {group.candidate.system: group.owned + group.added for group in mixed.groups}
        systems |= {name: systems[name] - fewer} if fewer else {}
        text = ",".join(f"{number}x{system}" for system, number in systems.items() if number)
        asked = question(**{**changed, "have": text})
        have = existing(asked, Runs(asked.slo), Steps())[0]
        assert (have.headroom >= 0) == (not fewer)


@pytest.mark.parametrize("rate", [900, 2000, pytest.param(4000, marks=pytest.mark.accuracy)])
def test_one_kind_is_the_special_case(rate: float) -> None:
    """What exists and what is added of it are together the answer to the question without any."""
    _, mixed = added(have="1xdgx-h100", peak_rps=rate)
    (group,) = mixed.groups
    assert group.owned + group.added == best(question(tp="1", peak_rps=rate)).systems
    assert mixed.run is not None
    assert mixed.run.holds


def test_more_that_exists_never_adds_more() -> None:
    runs = Runs()
    bought = [
        sum(added(runs, have=f"{count}x8xl40s", gpu="h100", peak_rps=900)[1].added.values())
        for count in (1, 3, 5, 12)
    ]
    assert bought == sorted(bought, reverse=True)
    assert bought[0] > bought[-1] == 0


def test_spare_systems_come_on_top() -> None:
    for have in ("1xdgx-h100", "2x8xl40s"):
        bought = [
            sum(added(have=have, peak_rps=900, spare=spare)[1].added.values())
            for spare in (0, 1, 2)
        ]
        assert bought == [bought[0], bought[0] + 1, bought[0] + 2]


def test_growth_says_what_is_bought_in_which_month() -> None:
    asked, mixed = added(have="1xdgx-h100", peak_rps=900, growth="10%/month")
    months = [step.month for step in mixed.purchases]
    assert months[0] == 0
    assert months == sorted(set(months))
    fleets = Fleets(question=asked, runs=Runs(asked.slo), kinds=kinds_of(asked))
    held = 1
    for step, later in zip(mixed.purchases[:4], mixed.purchases[1:5], strict=True):
        held += step.systems
        assert step.requests_per_second == pytest.approx(900 * 1.1**step.month)
        assert fleets.holds({"dgx-h100": held}, 900 * 1.1 ** (later.month - 1))
        assert not fleets.holds({"dgx-h100": held}, 900 * 1.1**later.month)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"have": "1xdgx-h100", "shared_prefix": 500}, "traffic"),
        ({"have": "1xdgx-h100", "disaggregated": True}, "pools"),
        ({"have": "1xdgx-h100,1x8xl40s", "ttft": "p95<=1ms"}, "limits"),
        ({"have": "1xdgx-h100", "peak_rps": 1e7}, "many"),
    ],
)
def test_says_why_nothing_is_known(changed: dict[str, Any], reason: str) -> None:
    assert added(**changed)[1].reason == reason


def test_standby_systems_for_failures_are_for_one_kind() -> None:
    changed = {"have": "1xdgx-h100", "availability": "99%", "mtbf": "1000h", "repair_time": "10h"}
    (plan,) = answer(ask(**{**SMALL, "tp": "1", "peak_rps": 200, **changed}))
    assert plan.mixed is not None
    assert plan.mixed.reason == "standby"
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan


def test_the_fewest_gpus_are_added_where_these_are_asked_for() -> None:
    asked = {**SMALL, "tp": "1", "have": "1x8xl40s", "gpu": "h100,l40s", "peak_rps": 900}
    fewest, cheapest = (
        answer(ask(**{**asked, "objective": objective}))[0].mixed for objective in ("gpus", None)
    )
    assert sum(fewest.added.values()) <= sum(cheapest.added.values())
    assert (cheapest.usd_per_year or 0) <= (fewest.usd_per_year or 0)


@dataclass(frozen=True, kw_only=True)
class Counted(Fleets):
    """Fleets that hold what their systems carry, and ``bonus`` times as much where there are several
    kinds; deployments are given."""

    rates: dict[str, float]
    bonus: float = 1.0
    span: int = 1

    @property
    def load(self) -> float:
        return 100.0

    @property
    def owned(self) -> dict[str, int]:
        return {"old": 2}

    def sized(self, name: str, systems: int) -> Any:
        if name not in self.rates:
            return None
        contender = carrying(1.0, ready=ready_of(8 * self.span))
        return sized_of(contender, systems, self.rates[name])

    def holds(self, counts: Any, load: float = 0.0) -> bool:
        several = sum(1 for name, count in counts.items() if count and name in self.rates) > 1
        carried = self.carried(counts) * (self.bonus if several else 1.0)
        return carried >= (load or self.load) * (1 - 1e-9)


def counted(rates: dict[str, float], **changed: Any) -> Counted:
    parts: dict[str, Any] = {"question": asked_for(1.0), "runs": None, "kinds": ()}
    return Counted(rates=rates, **parts | changed)


def test_what_systems_carry_together_is_the_sum() -> None:
    fleets = counted({"old": 10.0, "new": 7.0})
    assert fleets.carried({"old": 2, "new": 5}) == 55.0
    assert fleets.carried({"old": 0, "new": 5, "none": 9}) == 35.0
    assert fleets.carried({}) == 0.0
    wide = counted({"new": 30.0}, span=2)
    assert wide.carried({"new": 5}) == 60.0, "the fifth system holds no half of an instance"


@pytest.mark.parametrize(
    ("rates", "rest", "least", "bonus", "load", "needed"),
    [
        ({"old": 10.0, "new": 7.0}, {"old": 2}, 0, 1.0, 0.0, 12),  # 80 / 7
        ({"old": 10.0, "new": 7.0}, {"old": 2}, 0, 1.0, 104.0, 12),
        ({"old": 10.0, "new": 7.0}, {"old": 2}, 0, 1.0, 104.1, 13),
        ({"old": 10.0, "new": 7.0}, {"old": 2}, 20, 1.0, 0.0, 20),
        ({"old": 10.0, "new": 7.0}, {"old": 2}, 0, 1.1, 0.0, 11),  # 97 * 1.1
        ({"old": 10.0, "new": 7.0}, {"old": 2}, 0, 0.9, 0.0, 14),  # 118 * 0.9
        ({"old": 10.0, "new": 7.0}, {"old": 2}, 0, 0.2, 0.0, None),  # more than four times 12
        ({"old": 10.0, "new": 7.0}, {"old": 20}, 0, 1.0, 0.0, 0),
        ({"new": 0.05}, {}, 0, 1.0, 0.0, 2_000),
        ({"new": 0.0499}, {}, 0, 1.0, 0.0, None),
        ({"old": 10.0}, {"old": 20}, 3, 1.0, 0.0, 3),  # nothing of it meets the limits
        ({"old": 10.0}, {"old": 2}, 3, 1.0, 0.0, None),
    ],
)
def test_the_fewest_systems_next_to_others_by_hand(
    *,
    rates: dict[str, float],
    rest: dict[str, int],
    least: int,
    bonus: float,
    load: float,
    needed: int | None,
) -> None:
    fleets = counted(rates, bonus=bonus)
    assert fleets.needed(rest, "new", least, load=load) == needed


def test_large_fleets_are_left_to_the_sum_and_wide_instances_take_whole_spans() -> None:
    fleets = counted({"old": 10.0, "new": 1.0}, bonus=0.9)
    assert fleets.needed({"old": 2}, "new", by_sum=True) == 80, "more than 64 instances"
    assert fleets.needed({"old": 2}, "new", by_sum=False) == 92
    assert fleets.needed({"old": 4}, "new", by_sum=True) == 72, "60 instances are simulated"
    wide = counted({"old": 10.0, "new": 14.0}, span=2)
    assert wide.needed({"old": 2}, "new") == 14  # 90 / 14 instances, of two systems each


def test_a_load_above_the_sum_is_held_by_several_kinds_alone() -> None:
    fleets = counted({"old": 10.0, "new": 10.0}, bonus=1.2)
    assert fleets.pools({"old": 5, "new": 5}, 100.0)
    assert fleets.pools({"old": 5, "new": 5}, 109.9)
    assert not fleets.pools({"old": 5, "new": 5}, 110.1), "beyond 1.1 times the sum"
    assert not fleets.pools({"old": 10}, 100.1)
    assert fleets.pools({"old": 10}, 100.0)
    assert not counted({"old": 10.0, "new": 10.0}, bonus=0.9).pools({"old": 5, "new": 5}, 100.0)


@pytest.mark.parametrize(("spare", "least", "buys"), [(0, 2, 3), (1, 1, 4), (3, 0, 6)])
def test_spare_systems_of_a_kind(spare: int, least: int, buys: int) -> None:
    fleets = counted({}, question=asked_for(1.0, spare=spare))
    assert (fleets.least("old"), fleets.least("new")) == (least, 0)
    assert fleets.bought("old", 5) == buys
    assert fleets.bought("new", 5) == 5 + spare
    assert fleets.bought("old", 1) == max(0, spare - 1)
    assert (fleets.others("old"), fleets.others("new")) == ({}, {"old": 2})


def test_of_many_systems_about_as_many_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of a quarter of the next power of two's half: 9 and 10 are one question."""
    calls: list[int] = []

    def strongest(search: Any, owned: Any) -> Any:
        calls.append(owned.count)
        return SimpleNamespace(instances=owned.count if owned.count != 40 else 0)

    monkeypatch.setattr("tonnage.sizing.fleet.mixed.strongest", strongest)
    system = SimpleNamespace(name="s")
    fleets = Fleets(question=asked_for(1.0), runs=None, kinds=(Kind(system=system, owned=3),))
    counts = (1, 2, 7, 8, 9, 10, 11, 17, 20, 33, 40)
    answers = [fleets.sized("s", count) for count in counts]
    looked_at = [1, 2, 7, 8, 10, 10, 12, 20, 20, 40, 40]
    assert [answer and answer.instances for answer in answers] == [
        count if count != 40 else None for count in looked_at
    ]
    assert calls == [1, 2, 7, 8, 10, 12, 20, 40]
    assert fleets.system("s") is system
    assert fleets.owned == {"s": 3}
    assert Fleets(question=None, runs=None, kinds=(Kind(system=system),)).owned == {}


def test_purchases_over_months_by_hand() -> None:
    """100 requests per second grow by a tenth a month; a system carries 30 of what 40 leave."""
    fleets = counted({"old": 20.0, "new": 30.0})
    purchases, months = _purchases(fleets, "new", 2, 0.1, 4)
    assert months == 4
    assert [(step.month, step.systems) for step in purchases] == [(0, 2), (1, 1), (3, 1)]
    assert [step.requests_per_second for step in purchases] == pytest.approx([100, 110, 133.1])
    growing = counted({"old": 20.0, "new": 0.04})
    purchases, months = _purchases(growing, "new", 0, 0.1, 9)
    assert (purchases, months) == (
        (Purchase(month=1, systems=1_750, requests_per_second=pytest.approx(110.0)),),
        1,
    )
    spare = counted({"old": 20.0, "new": 30.0}, question=asked_for(1.0, spare=1))
    assert [step.systems for step in _purchases(spare, "new", 2, 0.1, 1)[0]] == [3, 1]


def test_what_would_do_the_work_of_systems_that_exist() -> None:
    """Without its two old systems a fleet needs 100 / 30 new ones, of which 2 are there: two more,
    each of which carries 30."""
    fleets = counted({"old": 20.0, "new": 30.0, "dear": 25.0})
    active = {"new": 2, "dear": 3}
    (row,) = _retirements(fleets, "new", {"new": 4.0, "dear": 8.0}, active)
    assert row == Retirement(
        system="old",
        systems=2,
        instead_system="new",
        instead_systems=2,
        instead_requests_per_second=30.0,
    )
    (row,) = _retirements(fleets, "new", {"new": 5.0, "dear": 8.0}, active)
    assert (row.instead_system, row.instead_systems) == ("dear", 1)  # 8 for what takes 10
    (row,) = _retirements(fleets, "new", {"new": 9.0, "dear": 8.0}, active)
    assert (row.instead_system, row.instead_systems) == ("dear", 1)
    assert row.instead_requests_per_second == 25.0
    assert _retirements(fleets, "old", {"new": 4.0}, active) == ()
    assert _retirements(counted({"old": 20.0}), "new", {"new": 4.0}, {"new": 2}) == ()


@pytest.mark.parametrize(
    ("rates", "prices", "buys", "instead", "reason"),
    [
        # 80 requests per second: 4 of 20, or 8 of 10; by their price
        ({"old": 10.0, "a": 20.0, "b": 10.0}, {"a": 3.0, "b": 1.0}, ("b", 8), [("a", 4, 32)], None),
        ({"old": 10.0, "a": 20.0, "b": 10.0}, {"a": 1.9, "b": 1.0}, ("a", 4), [("b", 8, 64)], None),
        # where none is needed, what costs least for what it carries
        ({"old": 60.0, "a": 20.0, "b": 10.0}, {"a": 3.0, "b": 1.0}, ("b", 0), [("a", 0, 0)], None),
        ({"old": 60.0, "a": 20.0, "b": 10.0}, {"a": 1.9, "b": 1.0}, ("a", 0), [("b", 0, 0)], None),
        # one of which nothing meets the limits comes last
        ({"old": 60.0, "b": 0.01}, {"a": 3.0, "b": 1.0}, ("b", 0), [("a", 0, 0)], None),
        ({"old": 60.0, "a": 0.01}, {"a": 9.0, "b": 1.0}, ("a", 0), [("b", 0, 0)], None),
        ({"old": 10.0, "a": 20.0}, {"a": 3.0, "b": 1.0}, ("a", 4), [], None),
        ({"old": 10.0, "a": 0.01}, {"a": 3.0, "b": 1.0}, None, [], "many"),
        ({"old": 10.0}, {"a": 3.0, "b": 1.0}, None, [], "limits"),
    ],
)
@pytest.mark.parametrize("growth", [None, -0.1, 0.1])
def test_the_kind_of_system_that_is_added_by_hand(
    *,
    rates: dict[str, float],
    prices: dict[str, float],
    buys: tuple[str, int] | None,
    instead: list[Any],
    reason: str | None,
    growth: float | None,
) -> None:
    kinds = [Kind(system=SimpleNamespace(name="old", gpus=8), owned=2)]
    kinds += [
        Kind(system=SimpleNamespace(name=name, gpus=8), price=prices[name]) for name in prices
    ]
    question = asked_for(1.0, growth_per_month=growth, sharing=None, deepen=True)
    bought: list[Any] = []
    module = "tonnage.sizing.fleet.mixed"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"{module}.Fleets", lambda **parts: counted(rates, **parts))
        patch.setattr(f"{module}.whole", lambda *args: bought.append(args[1:]) or Mixed())
        patch.setattr(f"{module}._purchases", lambda *args: ((args[1:],), 5))
        patch.setattr(f"{module}._next_bought", lambda *args: args[1])
        patch.setattr(f"{module}._retirements", lambda *args: args[1:])
        mixed = with_added(question, None, kinds, months=7)
    assert mixed.reason == reason
    if buys is None:
        assert bought == []
        return
    name, count = buys
    assert bought == [({"old": 2, name: count}, {name: count})]
    assert mixed.buys == name
    assert [(row.system, row.systems, row.gpus) for row in mixed.instead] == instead
    assert mixed.retirements[:2] == (name, prices)
    if growth == 0.1:
        assert (mixed.purchases, mixed.months) == (((name, count, 0.1, 7),), 5)
        assert mixed.next_bought == name
    else:
        assert (mixed.purchases, mixed.next_bought) == ((), None)


@pytest.mark.parametrize("several", [True, False])
def test_the_whole_fleet_by_its_groups(several: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two owned systems and five of another kind, of which one more is bought to stand by."""
    module = "tonnage.sizing.fleet.mixed"

    class Peak:
        def __init__(self, as_predicted: bool) -> None:
            self.name = "predicted" if as_predicted else "at the confidence"

        def of_kinds(self) -> Any:
            return (0.25, "first"), (0.75, "second")

        def seen(self, systems: int) -> Any:
            return SimpleNamespace(summary=f"whole of {systems}")

        def run(self, systems: int) -> str:
            return f"{self.name} on {systems}"

    monkeypatch.setattr(
        f"{module}.whole_fleet", lambda kinds, load, *, as_predicted=False: Peak(as_predicted)
    )
    monkeypatch.setattr(f"{module}.MixedAtPeak", Peak if several else str)
    monkeypatch.setattr(f"{module}.Group", SimpleNamespace)
    monkeypatch.setattr(f"{module}.Mixed", SimpleNamespace)
    monkeypatch.setattr(f"{module}._candidate", lambda sized, *args: args)
    rates = {"old": 10.0, "new": 7.0} if several else {"new": 7.0}
    fleets = counted(rates, question=asked_for(1.0, router="random"))
    original = Counted.sized

    def sized(self: Counted, name: str, systems: int) -> Any:
        row = original(self, name, systems)
        if row is not None:
            row.ready.trial.system = SimpleNamespace(name=name, gpus=8)
        return row

    monkeypatch.setattr(Counted, "sized", sized)
    mixed = whole(fleets, {"old": 2, "new": 5}, {"new": 6})
    groups = [
        (group.system, group.owned, group.added, group.share, group.weight, group.candidate)
        for group in mixed.groups
    ]
    if several:
        assert groups == [
            ("old", 2, 0, 0.25, 10.0, (2, 2, 25.0, "first")),
            ("new", 0, 6, 0.75, 7.0, (5, 6, 75.0, "second")),
        ]
        assert (mixed.run, mixed.at_peak) == ("at the confidence on 7", "predicted on 7")
    else:
        assert groups == [("new", 0, 6, 1.0, 7.0, (5, 6, 100.0, "whole of 5"))]
    assert mixed.router == "random"
    assert whole(fleets, {}, {}).reason == "limits"


def at_load(rate: float = 400.0, **changed: Any) -> Any:
    """A deployment under a demand whose parts can be replaced."""
    rates = {"peak_requests_per_second": rate, "sizing_requests_per_second": rate}
    demand = make_dataclass("Rates", [*rates], eq=False)(**rates)
    return carrying(rate, question=asked_for(rate, demand=demand, **changed))


def test_what_runs_on_the_systems_of_one_kind() -> None:
    """Six systems carry load and eight are there, of four instances each: 24 carry 60 requests per
    second, 2.5 each of the 4 inside the limits; by division 3.75 systems."""
    sized = sized_of(at_load(), 5, 4.0)
    latencies = {
        f"{name}_ms": Latencies(mean=float(place))
        for place, name in enumerate(("ttft", "itl", "tpot", "e2e"))
    }
    described: list[Any] = []

    def describe(of: Any) -> Any:
        described.append(of)
        return candidate(tp=2, systems=of.systems, requests_per_second_per_instance=4.0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tonnage.sizing.fleet.mixed.candidate", describe)
        row = _candidate(sized, 6, 8, 60.0, SimpleNamespace(**latencies))
    (of,) = described
    demand = of.contender.question.demand
    assert (demand.peak_requests_per_second, demand.sizing_requests_per_second) == (60.0, 60.0)
    assert of.systems == 6
    assert row.at_peak == AtPeak(
        requests_per_second_per_instance=2.5, utilisation=0.625, instances=24, **latencies
    )
    assert (row.systems, row.instances, row.systems_exact) == (8, 32, 3.75)
    assert (row.sized_requests_per_second_per_instance, row.checked) == (4.0, True)


def test_what_is_bought_later_is_described_at_the_load_that_it_carries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = "tonnage.sizing.fleet.mixed"
    fleets = counted({"new": 3.0})
    looked: list[Any] = []

    def fleet(kinds: Any, load: float, *, as_predicted: bool) -> Any:
        ((sized, count),) = kinds
        looked.append((sized.systems, count, load, as_predicted))
        return SimpleNamespace(seen=lambda systems: SimpleNamespace(summary=("seen", systems)))

    monkeypatch.setattr(f"{module}.whole_fleet", fleet)
    monkeypatch.setattr(f"{module}._candidate", lambda sized, *what: what)
    assert _next_bought(fleets, "new") == (4, 4, 12.0, ("seen", 4))
    assert looked == [(4, 4, 12.0, True)]
    assert _next_bought(fleets, "none") is None


@pytest.mark.parametrize(("load", "at"), [(0.0, 100.0), (30.0, 30.0)])
@pytest.mark.parametrize("holds", [True, False])
def test_a_fleet_is_simulated_as_a_whole(
    *, load: float, at: float, holds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kinds without systems, and those of which nothing meets the limits, are left out."""
    looked: list[Any] = []

    def fleet(kinds: Any, load: float) -> Any:
        looked.append(([(sized.systems, count) for sized, count in kinds], load))
        return SimpleNamespace(run=lambda systems: SimpleNamespace(holds=holds, systems=systems))

    monkeypatch.setattr("tonnage.sizing.fleet.mixed.whole_fleet", fleet)
    sized = {name: sized_of(carrying(1.0), 9, 5.0) for name in ("a", "b")}
    fleets = Fleets(question=asked_for(100.0), runs=None, kinds=(), settled=sized | {"none": None})
    assert [(row.systems, count) for row, count in fleets.of({"a": 2, "b": 0, "none": 7})] == [
        (2, 2)
    ]
    counts = {"a": 2, "none": 7, "b": 3}
    run = fleets.run(counts, load)
    assert run is not None
    assert run.systems == 5
    assert fleets.holds(counts, load) is holds
    assert looked == [([(2, 2), (3, 3)], at)] * 2
    assert fleets.run({"none": 7, "a": 0}, load) is None
    assert not fleets.holds({}, load)
    assert fleets.carried(counts) == 5.0 * 4 * 5
    assert fleets.load == 100.0


@pytest.mark.parametrize("reason", ["ranks", None])
def test_kinds_that_are_not_mixed_with_what_exists_say_why(
    reason: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = "tonnage.sizing.fleet.mixed"
    looked: list[Any] = []

    def not_mixed(question: Any, kinds: Any) -> str | None:
        looked.append([sized.systems for sized in kinds])
        return reason if kinds else None

    monkeypatch.setattr(f"{module}.not_mixed", not_mixed)
    monkeypatch.setattr(
        f"{module}.Fleets", lambda **parts: counted({"old": 60.0, "a": 5.0}, **parts)
    )
    monkeypatch.setattr(f"{module}.whole", lambda *what: Mixed())
    kinds = [
        Kind(system=SimpleNamespace(name="old", gpus=8), owned=2),
        Kind(system=SimpleNamespace(name="a", gpus=8), price=1.0),
    ]
    asked = asked_for(1.0, growth_per_month=None, sharing=None, deepen=True)
    monkeypatch.setattr(f"{module}._retirements", lambda *what: ())
    assert with_added(asked, None, kinds).reason == reason
    assert looked == [[], [2, 4]]
    monkeypatch.setattr(f"{module}.not_mixed", lambda question, kinds: "pools")
    assert with_added(asked, None, kinds).reason == "pools"
