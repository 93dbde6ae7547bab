"""Systems added to those that exist, held against every number of them, simulated in full."""

import json
import random
from typing import Any

import pytest

from tests.questions import SMALL, best, plans_with, question
from tests.sizing.fleet.two_kinds import kinds_of
from tonnage.api.sizing import answer, ask
from tonnage.plan.mixed import Mixed
from tonnage.plan.plan import Plan
from tonnage.sizing.fleet.existing import existing
from tonnage.sizing.fleet.mixed import Fleets, with_added
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
