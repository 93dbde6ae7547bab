"""A purchase of two kinds, held against every mix of them, and its claims asked directly."""

import itertools
import json
import math
import random
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.questions import SMALL, plans_with, question
from tests.strategies import examples
from tonnage.api.sizing import answer, ask
from tonnage.cost.mixed import year_usd
from tonnage.errors import InputErrors
from tonnage.plan.cost import Traffic
from tonnage.plan.mixed import Mixed
from tonnage.plan.plan import Plan
from tonnage.sizing.fleet.mixed import Fleets, Kind
from tonnage.sizing.fleet.purchase import (
    Buyer,
    cheapest_purchase,
    split,
    thresholds,
)
from tonnage.sizing.loads.runs import Runs
from tonnage.sizing.question import Question
from tonnage.sizing.search.search_space import system_for
from tonnage.spec.catalog.price_list import catalog_prices
from tonnage.spec.lengths import parse_lengths

_few_parts = plans_with()

CHAT = {
    "isl": "lognormal:2000,2500",
    "osl": "lognormal:250,200",
    "ttft": "p95<=1s",
    "tpot": "p95<=40ms",
    "engine": "vllm-0.32",
}
GPUS = ("h100-sxm-80gb", "l40s", "a100-sxm-80gb", "h200-sxm-141gb")


CHEAP = (8, 9)  # seeds of which the core tries the mixes of all
SLOW = pytest.mark.accuracy


def usd_of(asked: Question) -> Any:
    """What a year of a candidate's systems costs at a share of the question's load."""
    traffic = Traffic(
        peak_requests_per_second=asked.demand.sizing_requests_per_second,
        mean_requests_per_second=None,
        input_tokens=asked.isl.mean,
        output_tokens=asked.osl.mean,
    )
    prices = catalog_prices()
    return lambda fleet, share, spare: year_usd(fleet, traffic.times(share), prices, spare)


def bought(runs: Runs | None = None, **changed: Any) -> tuple[Question, Mixed]:
    asked = question(**changed)
    return asked, cheapest_purchase(asked, runs or Runs(asked.slo), usd_of(asked))


def drawn(seed: int) -> dict[str, Any]:
    """A question with two kinds of systems."""
    chance = random.Random(seed)
    return {
        "gpu": ",".join(chance.sample(GPUS, 2)),
        "isl": chance.choice(
            (
                "lognormal:1500,2000",
                "uniform:200-6000",
                "histogram:300:0.8,8000:0.2",
                "histogram:500:0.5,1500:0.3,12000:0.2",
                "lognormal:800,500",
            )
        ),
        "osl": chance.choice((60, "lognormal:200,150", "300+-100")),
        "ttft": chance.choice(("p95<=500ms", "p95<=1s", "p90<=2s")),
        "tpot": chance.choice(("p95<=40ms", None)),
        "tp": chance.choice(("1", "1,2")),
        "peak_rps": chance.choice((60, 150, 400, 700)),
        "engine": chance.choice(("vllm-0.32", "tensorrt-llm-1.2")),
        "spare": chance.choice((0, 0, 1)),
    }


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=() if seed in CHEAP else SLOW) for seed in range(20)]
)
def test_no_other_mix_costs_less(seed: int) -> None:
    """Every mix that would cost 2 % less than the answer is simulated in full, and breaks a limit;
    every split on any two kinds, and at lengths between, costs no less."""
    runs = Runs()
    asked, mixed = bought(runs, **drawn(seed))
    if mixed.compared is None:
        assert mixed.reason in ("limits", "kinds")
        return
    single, mix = mixed.compared.single, mixed.compared.mix
    answer_usd = mix.usd_per_year if mixed.groups else single.usd_per_year
    buyer = Buyer(question=asked, runs=runs, price=usd_of(asked))
    alone = {gpu.name: buyer.answer(asked, gpu) for gpu in asked.gpus}
    level = max(sized.level or 0.0 for sized in alone.values() if sized is not None)
    buyer = replace(buyer, level=level)
    singles = [sized for sized in alone.values() if sized is not None and buyer.reaches(sized)]
    assert single.usd_per_year == pytest.approx(min(map(buyer.alone, singles)))
    if len(singles) == 2:
        fleets = Fleets(
            question=asked,
            runs=runs,
            kinds=tuple(Kind(system=system_for(asked, gpu)) for gpu in asked.gpus),
            settled={sized.ready.trial.system.name: sized for sized in singles},
        )
        for counts in itertools.product(*(range(1, sized.systems + 1) for sized in singles)):
            fleet = dict(zip(fleets.settled, counts, strict=True))
            usd = _usd(buyer, fleets, fleet)
            if usd < 0.98 * answer_usd and fleets.carried(fleet) > 0.8 * fleets.load:
                assert not fleets.holds(fleet), (fleet, usd)
    values = sorted({*thresholds(asked), *_between(asked)})
    for tokens in values if thresholds(asked) else ():
        usd = 0.0
        for pool, share in split(asked, tokens):
            answers = [buyer.answer(pool, gpu) for gpu in asked.gpus]
            usd += min(
                (buyer.alone(sized, share) for sized in answers if sized is not None),
                default=math.inf,
            )
        assert usd >= 0.98 * answer_usd, (tokens, usd)


def _usd(buyer: Buyer, fleets: Fleets, fleet: dict[str, int]) -> float:
    """What the systems cost with the fewest spare ones that can be."""
    rate = fleets.carried(fleet)
    spare = buyer.question.spare
    strong = max(fleets.settled, key=lambda name: fleets.carried({name: 1}))
    return sum(
        buyer.usd(
            fleets.settled[name],
            count + spare * (name == strong),
            fleets.carried({name: count}) / rate,
            spare * (name == strong),
        )
        for name, count in fleet.items()
    )


def _between(asked: Question) -> list[int]:
    """Lengths between those at which the search splits."""
    values, weights = map(np.array, zip(*asked.isl.slices(), strict=True))
    ends = np.cumsum(weights)
    places = np.searchsorted(ends, (0.25, 0.4, 0.6, 0.75, 0.85, 0.93, 0.97))
    return [int(values[place]) for place in places if 0.02 < ends[place] < 0.98]


@cache
def plan(**changed: Any) -> Plan:
    return answer(ask(**{**SMALL, "tp": "1", "mix": True, **changed}))[0]


ROUTED = {**CHAT, "isl": 2000, "osl": 250, "gpu": "h100,l40s", "peak_rps": 260}
SPLIT = {
    "isl": "histogram:200:0.9,16000:0.1",
    "osl": 50,
    "ttft": "p95<=1s",
    "engine": "vllm-0.32",
    "gpu": "h200,l40s",
    "peak_rps": 100,
}


def test_a_small_system_ends_what_a_large_one_would_round_up() -> None:
    """Two kinds behind one router: the plan has their figures, and ``have`` says that they carry
    the load."""
    routed = plan(**ROUTED)
    mixed = routed.mixed
    assert mixed is not None
    assert mixed.over_tokens is None
    assert mixed.added == {"dgx-h100": 2, "8xl40s": 1}
    assert mixed.run is not None
    assert mixed.run.holds
    assert mixed.compared is not None
    assert mixed.compared.single.systems == {"dgx-h100": 3}
    assert Plan.from_json(json.loads(json.dumps(routed.to_json()))) == routed
    have = ",".join(f"{count}x{name}" for name, count in mixed.added.items())
    asked = {name: value for name, value in ROUTED.items() if name != "gpu"}
    owned = answer(ask(**{**SMALL, "tp": "1", **asked, "gpu": "h100", "have": have}))[0].existing
    assert owned is not None
    assert owned.headroom is not None
    assert owned.headroom >= 0


def test_the_best_single_kind_costs_what_it_costs_when_it_is_asked_for_alone() -> None:
    compared = plan(**ROUTED).mixed.compared
    (name, count), *_ = compared.single.systems.items()
    alone = answer(ask(**{**SMALL, "tp": "1", **ROUTED, "gpu": "h100"}))[0]
    assert alone.choice is not None
    assert (alone.choice.system, alone.choice.systems) == (name, count)
    way = alone.cost.way("on-prem")
    assert compared.single.usd_per_year == pytest.approx(way.total_usd_per_year)


def test_each_pool_of_a_split_is_the_answer_to_its_own_question() -> None:
    split_plan = plan(**SPLIT)
    mixed = split_plan.mixed
    assert mixed.over_tokens is not None
    assert 200 < mixed.over_tokens < 16_000
    assert sum(group.share for group in mixed.groups) == pytest.approx(1)
    assert sum(group.usd_per_year for group in mixed.groups) == pytest.approx(mixed.usd_per_year)
    assert Plan.from_json(json.loads(json.dumps(split_plan.to_json()))) == split_plan
    for group in mixed.groups:
        asked = {**SMALL, "tp": "1", **SPLIT, "gpu": group.candidate.gpu, "isl": group.isl}
        (direct,) = answer(ask(**{**asked, "peak_rps": 100 * group.share}))
        assert direct.choice is not None
        assert direct.choice.identity == group.candidate.identity
        assert direct.choice.systems == group.added
        assert direct.choice.at_peak == group.candidate.at_peak
        usd = direct.cost.way("on-prem").total_usd_per_year
        assert group.usd_per_year == pytest.approx(usd, rel=0.01)


def test_spare_systems_are_of_each_pool_or_of_the_stronger_kind() -> None:
    for asked in (ROUTED, SPLIT):
        without, mix = (bought(tp="1", **asked, spare=spare)[1].compared.mix for spare in (0, 1))
        more = {name: mix.systems[name] - count for name, count in without.systems.items()}
        pools = without.over_tokens is not None
        assert more == (dict.fromkeys(more, 1) if pools else {"dgx-h100": 1, "8xl40s": 0})


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"gpu": "h100"}, "kinds"),
        ({"gpu": "h100,l40s", "shared_prefix": 500}, "traffic"),
        ({"gpu": "h100,l40s", "disaggregated": True}, "pools"),
        ({"gpu": "h100,l40s", "ttft": "p95<=1ms"}, "limits"),
        (
            {"gpu": "h100,l40s", "availability": "99%", "mtbf": "1000h", "repair_time": "10h"},
            "standby",
        ),
        ({"gpu": "h100,l40s"}, "dearer"),
    ],
)
def test_says_why_one_kind_is_bought(changed: dict[str, Any], reason: str) -> None:
    mixed = plan(**changed).mixed
    assert mixed.reason == reason
    assert mixed.groups == ()
    assert (mixed.compared is not None) == (reason == "dearer")
    if mixed.compared is not None:
        assert mixed.compared.saved_usd_per_year <= 0.01 * mixed.compared.single.usd_per_year


def test_without_a_price_nothing_is_compared() -> None:
    asked = question(tp="1", gpu="h100,l40s")
    assert cheapest_purchase(asked, Runs(asked.slo), lambda *_: None).reason == "price"


@pytest.mark.parametrize("changed", [{"have": "1xdgx-h100"}, {"where": "cloud"}])
def test_what_is_not_bought_is_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(InputErrors, match="mix"):
        ask(**{**SMALL, "mix": True, **changed})


def test_alike_prompts_are_not_split() -> None:
    assert thresholds(question(isl="1000+-20%")) == ()
    assert len(thresholds(question(**CHAT))) >= 5


@examples(0.3)
@given(
    st.sampled_from(
        (
            "lognormal:2000,2500",
            "uniform:100-6000",
            "500+-200",
            "histogram:300:0.7,900:0.2,9000:0.1",
        )
    ),
    st.floats(0.05, 0.95),
)
def test_both_sides_of_a_length_are_the_whole(text: str, share: float) -> None:
    """Shares and means add up, each side is on its side, and reads as it is written."""
    lengths = parse_lengths(text, "isl")
    slices = lengths.slices()
    tokens = slices[min(int(share * len(slices)), len(slices) - 2)][0]
    below, short, long = lengths.up_to(tokens)
    mean = sum(value * weight for value, weight in slices)
    assert below * short.mean + (1 - below) * long.mean == pytest.approx(mean, rel=2e-3)
    # a bin has the mean of its lengths
    assert short.longest <= tokens + 1
    assert min(value for value, _ in long.bins) >= tokens - 1
    for side in (short, long):
        assert np.array(parse_lengths(str(side), "isl").bins) == pytest.approx(np.array(side.bins))


def test_pairs_stay_together(tmp_path: Any) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text("isl,osl\n" + "".join(f"{100 * i},{i}\n" for i in range(1, 41)))
    asked = question(isl=None, osl=None, pairs=str(path))
    (short, share), (long, rest) = split(asked, 1_050)
    assert (share, rest) == (0.25, 0.75)
    assert short.pairs.isl == tuple(100 * i for i in range(1, 11))
    assert long.pairs.osl == tuple(range(11, 41))
    assert short.osl.mean == pytest.approx(5.5)
    assert short.demand.sizing_requests_per_second == 0.25 * 400


@pytest.mark.parametrize(("arrivals", "cv"), [("gamma", 3.0), ("constant", None)])
def test_arrivals_of_a_pool_are_as_uneven_as_those_of_the_whole_thinned(
    arrivals: str, cv: float | None
) -> None:
    asked = question(**CHAT, arrivals=arrivals, cv=cv)
    rng = np.random.default_rng(0)
    gaps = rng.gamma(1 / cv**2, cv**2, 1_000_000) if cv else np.ones(1_000_000)
    for pool, share in split(asked, thresholds(asked)[1]):
        times = np.cumsum(gaps)[rng.random(len(gaps)) < share]
        between = np.diff(times)
        assert pool.process == "gamma"
        assert pool.cv == pytest.approx(between.std() / between.mean(), rel=0.03)
