"""What a router of prefixes or two pools would save."""

from __future__ import annotations

from dataclasses import make_dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.deployments import knobs_of
from tests.questions import question
from tests.sizing.pooled import ASKED, pooled
from tests.sizing.search.contenders import IDENTITY, asked_for, carrying, ready_of, sized_of
from tonnage.plan.sensitivity import PrefixCache
from tonnage.results.metrics import Latencies
from tonnage.sizing.fleet import routers
from tonnage.sizing.fleet.routers import pools_instead, together_instead
from tonnage.sizing.loads.confidence import Slowdown
from tonnage.sizing.loads.fleet_check import Replayed
from tonnage.sizing.loads.instance import QUICK
from tonnage.sizing.loads.runs import Runs
from tonnage.sizing.question import Pools, Question
from tonnage.sizing.search.deployment_capacity import Sized
from tonnage.sizing.search.objectives import FewestGpus
from tonnage.sizing.search.search import Search


def answered(asked: Question, runs: Runs) -> tuple[Search, Sized]:
    search = Search(question=asked, runs=runs)
    best = search.answer().best
    assert best is not None
    return search, best


def test_the_line_of_the_default_is_what_the_question_with_two_pools_is_answered_with() -> None:
    """And the other way round: one search, one memory, two questions."""
    runs = Runs()
    together, both = answered(question(**ASKED), runs)
    apart, pools = answered(pooled(), runs)
    line, back = pools_instead(together, both), together_instead(apart, pools)
    prefill, decode = (count for _, count in pools.contender.roles(pools.instances))
    assert (line.deployment, line.systems, line.gpus) == (
        pools.ready.trial.identity,
        pools.systems,
        pools.gpus,
    )
    assert (line.ratio, line.instances) == (f"{prefill}:{decode}", pools.instances)
    assert line.systems_exact == pytest.approx(pools.gpus_exact / 8)
    assert line.saved == both.gpus - pools.gpus > 0
    assert (back.deployment, back.systems, back.gpus, back.ratio) == (
        both.ready.trial.identity,
        both.systems,
        both.gpus,
        "",
    )
    assert back.saved == -line.saved


@pytest.mark.parametrize(
    "changed",
    [
        {"peak_rps": 20},  # one system, which is the least
        # nothing that pools do better
        {"itl": None, "ttft": None, "router": "least-outstanding", "peak_rps": 300},
        {"objective": "latency", "peak_rps": 60},
    ],
)
def test_the_default_is_silent_where_two_pools_save_nothing(changed: dict[str, Any]) -> None:
    search, best = answered(question(**{**ASKED, **changed}), Runs())
    found = pools_instead(search, best)
    assert found is None


@pytest.mark.parametrize(
    ("pools", "saves", "instances", "named"),
    [
        ((15, 0.8), True, 16, True),
        ((16, 0.8), True, 16, False),  # as many GPUs are no saving
        ((15, 0.7), True, 16, False),  # what is not as sure is no answer to the question
        ((15, 0.8), False, 16, False),
        ((15, 0.8), True, 1, False),
    ],
)
def test_two_pools_are_named_where_they_are_as_sure_and_take_fewer_gpus(
    pools: tuple[int, float],
    saves: bool,
    instances: int,
    named: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = replace(question(**ASKED), confidence=0.8)
    found = SimpleNamespace(gpus=pools[0], level=pools[1])
    best = SimpleNamespace(gpus=16, level=0.8, instances=instances)
    for name, stub in {
        "_contenders": lambda search, pools: ["contender"],
        "_saves": lambda contender, best: saves,
        "again": lambda search, pools: SimpleNamespace(best=found),
        "_beside_choice": lambda pools, best: pools,
    }.items():
        monkeypatch.setattr(f"tonnage.sizing.fleet.routers.{name}", stub)
    search = SimpleNamespace(question=asked)
    assert (pools_instead(search, best) is found) is named


def sharing_of(**changed: Any) -> Any:
    parts = {
        "recorded": None,
        "recording": None,
        "sessions": None,
        "follows": False,
        "balanced": lambda router: router in ("least-outstanding", "random"),
    }
    return SimpleNamespace(**parts | changed)


@pytest.mark.parametrize(
    ("sharing", "router", "rows", "opposite", "rule"),
    [
        (None, "least-outstanding", routers.OTHERS, "", "least-outstanding"),
        (sharing_of(), "least-outstanding", routers.OTHERS, "", "least-outstanding"),
        (sharing_of(), "prefix-aware", routers.OTHERS, "", "random"),
        (
            sharing_of(follows=True),
            "least-outstanding",
            ("random", "session", "round-robin"),
            "session",
            "random",
        ),
        (
            sharing_of(follows=True),
            "session",
            ("random", "session", "round-robin"),
            "random",
            "session",
        ),
        (
            sharing_of(recording=object()),
            "random",
            ("random", "prefix-aware", "round-robin"),
            "prefix-aware",
            "random",
        ),
        (
            sharing_of(recording=object()),
            "prefix-aware",
            ("random", "prefix-aware", "round-robin"),
            "random",
            "prefix-aware",
        ),
    ],
)
def test_the_routers_next_to_that_of_a_question(
    sharing: Any, router: str, rows: tuple[str, ...], opposite: str, rule: str
) -> None:
    asked_question = asked_for(1.0, sharing=sharing, router=router)
    assert routers._routers_to_compare(asked_question) == rows
    assert routers._opposite_router(asked_question, 2) == opposite
    assert routers._opposite_router(asked_question, 1) == ""
    assert routers._opposite_router(replace(asked_question, offline=True), 2) == ""
    assert routers._opposite_router(replace(asked_question, load="closed"), 2) == ""
    assert routers._rule(asked_question, 2) == rule
    assert routers._rule(asked_question, 1) == router


def test_what_prompts_share_in_words() -> None:
    words = {
        "": None,
        "sessions as recorded (3 of them, drawn again and again)": sharing_of(recorded=[1, 2, 3]),
        "500 shared tokens": sharing_of(sessions="500 shared tokens"),
        "the blocks of the trace": sharing_of(recording=object()),
    }
    for text, sharing in words.items():
        assert routers.shared_in_words(asked_for(1.0, sharing=sharing)) == text


@pytest.mark.parametrize(
    ("changed", "comparable"),
    [
        ({}, True),
        ({"drawn": False}, False),
        ({"sharing": object()}, False),
        ({"speculation": object()}, False),
        ({"router": "prefix-aware"}, False),
        ({"objective": "cost"}, False),
    ],
)
def test_where_two_pools_are_compared(changed: dict[str, Any], comparable: bool) -> None:
    parts = {"sharing": None, "speculation": None, "router": "random"}
    assert routers._comparable(asked_for(1.0, **parts | changed)) == comparable


@pytest.mark.parametrize(
    ("most", "rate", "saves"), [(10.0, 5.3, True), (5.2, 5.3, False), (10.0, 5.2, False)]
)
def test_whether_fewer_gpus_could_carry_a_load(most: float, rate: float, saves: bool) -> None:
    """On nineteen of twenty systems an instance would have to carry 400 / 76, which are 5.26."""
    best = sized_of(carrying(400.0), 20, 5.0)
    contender = carrying(400.0, most=most, carries=lambda instances: rate)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(contender), "slowdown", lambda self, level: Slowdown(steps=1.0))
        assert routers._saves(contender, best) == saves
        if most > 400 / 76:
            assert contender.calls == [(76, QUICK)]
        patch.setattr(type(contender), "slowdown", lambda self, level: Slowdown(steps=2.0))
        assert not routers._saves(contender, best)


@pytest.mark.parametrize("roles", [1, 2])
def test_the_other_way_of_serving_next_to_the_choice(roles: int) -> None:
    best = sized_of(carrying(400.0), 20, 5.0)
    contender = carrying(400.0, question=asked_for(400.0, spare=1))
    sized = sized_of(contender, 17, 6.0)
    with pytest.MonkeyPatch.context() as patch:
        if roles == 2:
            patch.setattr(
                type(contender),
                "roles",
                lambda self, count: (("prefill", count // 4), ("decode", count - count // 4)),
            )
        line = routers._beside_choice(sized, best)
    assert (line.deployment, line.system, line.instances) == (IDENTITY, "system", 72)
    assert (line.systems, line.gpus, line.saved) == (18, 144, 16)
    assert line.systems_exact == pytest.approx(400 / 6 / 4)
    assert line.ratio == ("18:54" if roles == 2 else "")


@pytest.mark.parametrize(
    ("changed", "instances", "rows"),
    [
        ({}, 4, ["least-outstanding", "random", "round-robin"]),
        ({"router": "random"}, 4, ["random", "round-robin", "least-outstanding"]),
        ({"load": "closed"}, 4, []),
        ({"offline": True}, 4, []),
        ({}, 1, []),
    ],
)
def test_a_choice_behind_three_routers(
    changed: dict[str, Any], instances: int, rows: list[str]
) -> None:
    parts = {"sharing": None, "router": "least-outstanding"} | changed
    latencies = {name: Latencies() for name in ("itl_ms", "tpot_ms", "e2e_ms")}

    def observed(systems: int, router: str) -> Any:
        summary = SimpleNamespace(ttft_ms=Latencies(mean=float(len(router))), **latencies)
        return SimpleNamespace(summary=summary)

    contender = carrying(400.0, 8 // instances, question=asked_for(400.0, **parts))
    best = sized_of(contender, 1, 5.0, level=None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(contender), "at_peak", lambda self: SimpleNamespace(seen=observed))
        patch.setattr(type(contender), "settled", lambda self, slowdown, router: len(router))
        lines = routers.behind_routers(best)
    assert [line.router for line in lines] == rows
    for line in lines:
        assert line.ttft_ms.mean == len(line.router)
        assert line.systems == (1 if line.router == parts["router"] else len(line.router))


@pytest.mark.parametrize(("rate", "answer"), [(5.0, (20, 6.0)), (0.0, None)])
def test_what_a_deployment_needs_without_its_prefix_cache(
    rate: float, answer: tuple[int, float] | None
) -> None:
    """Its systems, and by short runs what an instance on them carries."""
    knobs = knobs_of(64, 4_096)
    deployment = make_dataclass("Deployment", ["knobs", "parallelism"], eq=False)(
        knobs, SimpleNamespace(gpus=2)
    )
    trial = make_dataclass("Trial", ["deployment", "system"], eq=False)(
        deployment, SimpleNamespace(gpus=8)
    )
    ready = make_dataclass("Ready", ["trial", "instance"], eq=False)(
        trial, SimpleNamespace(traffic="traffic")
    )
    runs = SimpleNamespace(instance=lambda deployment, traffic: (deployment.knobs, traffic))
    contender = carrying(400.0, ready=ready, runs=runs, carries=lambda instances: rate, quick=1.2)
    best = sized_of(contender, 3, 9.0, level=None)
    assert routers.without_cache(best) == answer
    with pytest.MonkeyPatch.context() as patch:
        rows: list[Any] = []
        original = type(contender).needed
        patch.setattr(
            type(contender),
            "needed",
            lambda self, *args, **how: rows.append(self.ready) or original(self, *args, **how),
        )
        routers.without_cache(best)
    (row,) = rows
    without = replace(knobs, prefix_caching=False)
    assert (row.instance, row.trial.deployment.knobs) == ((without, "traffic"), without)


@pytest.mark.parametrize("without", [(7, 3.5), None])
@pytest.mark.parametrize("other", ["random", ""])
def test_what_the_prefix_caches_of_a_choice_find(
    without: tuple[int, float] | None, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fleet of twelve instances finds a third, behind another router a tenth, and one instance by
    itself half of the tokens."""
    asked = asked_for(400.0, sharing=sharing_of(), router="session", seed=5, spare=2)
    instance = SimpleNamespace(
        knobs=SimpleNamespace(prefix_caching=True),
        requests_of=lambda rate, care: (rate, care),
        open=lambda rate, requests, seed: (rate, requests, seed),
    )
    contender = SimpleNamespace(instance=instance, question=asked)
    best = SimpleNamespace(
        contender=contender, instances=12, as_predicted=SimpleNamespace(rate=8.0)
    )
    looked: list[Any] = []
    stubs: dict[str, Any] = {
        "hit_rate": lambda record: looked.append(record) or 0.5,
        "_in_fleet": lambda of, count, router: (0.3 if router == "session" else 0.1, count - 2),
        "_opposite_router": lambda question, count: other if count == 12 else "wrong",
        "_rule": lambda question, count: f"rule of {count}",
        "without_cache": lambda best: without,
        "shared_in_words": lambda question: "words",
    }
    for name, stub in stubs.items():
        monkeypatch.setattr(f"tonnage.sizing.fleet.routers.{name}", stub)
    assert routers.prefix_cache(best) == PrefixCache(
        shares="words",
        hit_rate=0.3,
        router="session",
        shared_out_as="rule of 12",
        instances=12,
        simulated_instances=10,
        one_instance=0.5,
        other_router=other,
        other_hit_rate=0.1 if other else None,
        without_systems=None if without is None else 9,
        without_requests_per_second_per_instance=None if without is None else 3.5,
    )
    assert looked == [(8.0, (8.0, QUICK), 5)]
    instance.knobs.prefix_caching = False
    assert routers.prefix_cache(best) is None
    instance.knobs.prefix_caching = True
    contender.question = replace(asked, sharing=None)
    assert routers.prefix_cache(best) is None


@pytest.mark.parametrize("recording", [None, "recording"])
def test_the_hit_rate_of_a_fleet_is_that_of_its_record(
    recording: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a recording all instances are simulated, and of drawn prompts some."""
    made: list[Any] = []

    def record(*what: Any, replayed: Any) -> Any:
        made.append((*what, replayed))
        return ("record", len(made)), "and more"

    stubs: dict[str, Any] = {
        "fleet_record": record,
        "hit_rate": lambda record: record[1] / 8,
        "simulated_of": lambda instance, count, rate: count - 1,
    }
    for name, stub in stubs.items():
        monkeypatch.setattr(f"tonnage.sizing.fleet.routers.{name}", stub)
    memory: dict[Any, Any] = {}

    def once(key: Any, run: Any) -> Any:
        memory[key] = run()
        return memory[key]

    contender = SimpleNamespace(
        question=SimpleNamespace(recording=recording),
        instance="instance",
        load=400.0,
        runs=SimpleNamespace(once=once),
    )
    replayed = None if recording is None else Replayed(recording=recording, lengths=True)  # type: ignore[arg-type]
    assert routers._in_fleet(contender, 12, "session") == (0.125, 11 if recording is None else 12)  # type: ignore[arg-type]
    assert list(memory) == [("instance", "shared", 400.0, 12, "session")]
    assert made == [("instance", 400.0, 12, "session", replayed)]


def test_instances_that_do_both_are_as_sure_as_the_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Any] = []
    found: dict[str, Any] = {"best": SimpleNamespace(level=0.8)}

    def again(search: Any, asked: Any) -> Any:
        looked.append(asked.pools)
        return SimpleNamespace(**found)

    monkeypatch.setattr("tonnage.sizing.fleet.routers.again", again)
    monkeypatch.setattr("tonnage.sizing.fleet.routers._beside_choice", lambda *what: what)
    asked = asked_for(1.0, pools=object())
    search: Any = SimpleNamespace(question=asked, aim=FewestGpus())
    best: Any = SimpleNamespace(level=0.8)
    assert together_instead(search, best) == (found["best"], best)
    assert looked == [None]
    best.level = 0.9
    assert together_instead(search, best) is None
    found["best"] = None
    assert together_instead(search, best) is None
    search.aim = object()
    assert together_instead(search, best) is None
    assert len(looked) == 3


@pytest.mark.parametrize(
    ("spare", "gpus", "level", "looked_at"),
    [
        (0, 16, 0.8, ["small", "large"]),
        (0, 12, 0.8, ["small", "large"]),
        (0, 8, 0.8, ["small"]),  # a system of eight GPUs is no fewer
        (1, 16, 0.8, ["small"]),
        (1, 8, 0.8, None),
        (0, 16, 0.9, None),
        (0, 16, None, None),
    ],
)
def test_two_pools_are_looked_at_on_systems_that_could_save(
    *,
    spare: int,
    gpus: int,
    level: float | None,
    looked_at: list[str] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kinds = tuple(SimpleNamespace(name=name) for name in ("small", "large"))
    asked = asked_for(
        1.0,
        spare=spare,
        gpus=kinds,
        sharing=None,
        speculation=None,
        router="random",
        have="systems",
        growth_per_month=0.1,
    )
    looked: list[Any] = []
    better = SimpleNamespace(gpus=gpus - 1, level=0.8)

    def pooled(search: Any, of: Any) -> list[str]:
        looked.append(([gpu.name for gpu in of.gpus], of.pools, of.have, of.growth_per_month))
        return ["first", "second"]

    def again(search: Any, of: Any) -> Any:
        looked.append((len(of.gpus), of.pools, of.have, of.growth_per_month))
        return SimpleNamespace(best=better)

    stubs: dict[str, Any] = {
        "system_for": lambda question, gpu: SimpleNamespace(gpus=4 if gpu.name == "small" else 8),
        "_contenders": pooled,
        "_saves": lambda contender, best: contender == "second",
        "again": again,
        "_beside_choice": lambda *what: what,
    }
    for name, stub in stubs.items():
        monkeypatch.setattr(f"tonnage.sizing.fleet.routers.{name}", stub)
    search: Any = SimpleNamespace(question=asked)
    best: Any = SimpleNamespace(gpus=gpus, level=level, instances=2)
    line = pools_instead(search, best)
    if looked_at is None:
        assert (line, looked) == (None, [])
        return
    assert line == (better, best)
    assert looked == [(looked_at, Pools(), (), None), (2, Pools(), (), None)]


def test_deployments_in_two_pools_come_by_what_closed_forms_allow_a_gpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """5 a second on two GPUs, 9 on four, and 16 on eight."""
    made = [
        carrying(1.0, gpus, most=most, ready=ready_of(gpus, place=gpus))
        for gpus, most in ((4, 9.0), (8, 16.0), (2, 5.0))
    ]
    for one in made:
        one.ready.instance.deployment = SimpleNamespace(
            parallelism=SimpleNamespace(gpus=one.ready.place)
        )
    looked: list[Any] = []
    stubs: dict[str, Any] = {
        "Ready": SimpleNamespace,
        "prepare": lambda question, runs: ("prepared", runs),
        "poolable": lambda question, ready: looked.append(ready) or [SimpleNamespace(), "rejected"],
        "contenders_of": lambda question, ready, runs: looked.append((len(ready), runs)) or made,
    }
    for name, stub in stubs.items():
        monkeypatch.setattr(f"tonnage.sizing.fleet.routers.{name}", stub)
    monkeypatch.setattr(type(made[0]), "as_asked", Slowdown(steps=1.0))
    search: Any = SimpleNamespace(runs="runs")
    found = routers._contenders(search, asked_for(1.0))
    assert [one.ready.place for one in found] == [2, 4, 8]
    assert looked == [("prepared", "runs"), (1, "runs")]
