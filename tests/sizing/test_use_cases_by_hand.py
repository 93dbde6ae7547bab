"""Which arrangement of use cases is chosen and why, from pools and shares that are given."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from tests.deployments import knobs_of
from tests.plan.candidates import candidate
from tests.questions import question
from tests.sizing.search.contenders import TPOT, TTFT, carrying, sized_of
from tonnage.errors import DoesNotFit
from tonnage.plan.demand import Demand, DemandSource
from tonnage.plan.fleet import Standby
from tonnage.plan.limit import LimitUse, limit_of
from tonnage.plan.use_cases import (
    Arrangement,
    NotShared,
    Placed,
    PoolSystems,
    SystemLost,
    UseCasePool,
    UseCases,
)
from tonnage.results.metrics import Latencies
from tonnage.sizing import use_cases
from tonnage.sizing.background import Job, as_stream
from tonnage.sizing.fleet.standby import Reserve
from tonnage.sizing.loads.runs import Runs
from tonnage.sizing.mixture import Case, MixtureRun
from tonnage.sizing.use_cases import (
    Asked,
    Tried,
    _arranged,
    _case,
    _fleets,
    _one_pool,
    _pools_apart,
    _shared_by_model,
    _simulated,
    _with_standby,
    together,
)

MODULE = "tonnage.sizing.use_cases"


def pool(tp: int, instances: int, *, system: str = "dgx", gpus: int = 8, cases: int = 1) -> Any:
    names = {"gpu": "h100-sxm-80gb", "precision": "fp8", "engine": "e", "engine_preset": "e"}
    return UseCasePool(
        **names,
        tp=tp,
        system=system,
        gpus_per_system=gpus,
        knobs=None,
        instances=instances,
        instances_exact=instances - 0.5,
        cases=(SimpleNamespace(name="case"),) * cases,
    )


def case(name: str, priority: int = 0, **changed: Any) -> Any:
    """A use case of 100 requests/s of one model."""
    parts = {"spare": 0, "offline": False, "drawn": True, "model": SimpleNamespace(name="m")}
    demand = SimpleNamespace(sizing_requests_per_second=100.0)
    plan = SimpleNamespace(choice=changed.pop("choice", "chosen"), candidates=())
    of = SimpleNamespace(**parts | {"demand": demand} | changed)
    return Asked(name=name, question=of, plan=plan, priority=priority)


class Looked:
    """The shared pools that are found, and for what they were looked."""

    def __init__(self, **pools: Any) -> None:
        self.pools = pools
        self.calls: list[Any] = []

    def by_model(self, cases: Any, apart: Any, spare: int, announce: Any) -> Any:
        self.calls.append(([one.name for one in cases], list(apart), spare))
        return self.pools["by_model"]

    def shared(
        self, tried: Any, most_gpus: int, spare: int, announce: Any, *, by_priority: bool
    ) -> Any:
        self.calls.append(([one.name for one in tried.asked], most_gpus, spare, by_priority))
        answer = self.pools["by_priority" if by_priority else "first_come"]
        if tried.job is not None:
            tried.filled[answer[0].pools[0].identity] = f"{tried.job.name} in the background"
        return answer


APART = [pool(4, 2), pool(2, 3)]
"""Eight GPUs and six: two systems of eight."""

LIMIT = NotShared(code="limit", case="a", gpus=16)


def answered(monkeypatch: pytest.MonkeyPatch, looked: Looked, *cases: Any, **how: Any) -> UseCases:
    monkeypatch.setattr(f"{MODULE}._pools_apart", lambda cases, spare: list(APART))
    monkeypatch.setattr(f"{MODULE}._fleets", lambda plans: ("alone", tuple(plans)))
    monkeypatch.setattr(f"{MODULE}._shared_by_model", looked.by_model)
    monkeypatch.setattr(f"{MODULE}._shared", looked.shared)
    return use_cases.use_cases(cases, **how)


@pytest.mark.parametrize(
    ("shared", "chosen", "why"),
    [
        (pool(4, 3), "shared", None),  # 12 GPUs in use, where the pools apart have 14
        (pool(2, 7), "shared", None),  # as many
        (pool(1, 15), "separate", NotShared(code="more-gpus", gpus=15, separate_gpus=14)),
        (pool(8, 3), "separate", NotShared(code="more-gpus", gpus=24, separate_gpus=16)),
        (pool(8, 1), "shared", None),
        (None, "separate", LIMIT),
    ],
)
@pytest.mark.parametrize("spare", [0, 1])
def test_one_pool_is_chosen_where_it_takes_no_more(
    shared: Any, chosen: str, why: Any, spare: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    arranged = None if shared is None else _arranged([shared], spare)
    looked, heard = Looked(by_model=(arranged, LIMIT)), list[str]()
    cases = case("a"), case("b", spare=spare)
    answer = answered(monkeypatch, looked, *cases, announce=heard.append)
    assert heard == ["separate pools"]
    assert looked.calls == [(["a", "b"], APART, spare)]
    if why is not None and why.gpus == 24:
        why = replace(why, gpus=24 + 8 * spare, separate_gpus=16 + 8 * spare)
    assert answer == UseCases(
        names=("a", "b"),
        plans=(cases[0].plan, cases[1].plan),
        separate=_arranged(APART, spare),
        shared=arranged,
        not_shared=why,
        chosen=chosen,
        alone=("alone", (cases[0].plan, cases[1].plan)),  # type: ignore[arg-type]
    )
    assert answer.separate is not None
    assert answer.separate.gpus == 16 + 8 * spare


def test_a_use_case_without_a_deployment_leaves_nothing_to_choose(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cases = case("a"), case("b", choice=None), case("c", choice=None)
    answer = answered(monkeypatch, Looked(), *cases)
    assert answer == UseCases(
        names=("a", "b", "c"),
        plans=tuple(one.plan for one in cases),
        separate=None,
        shared=None,
        not_shared=NotShared(code="no-deployment", case="b"),
        chosen=None,
    )


@pytest.mark.parametrize(
    ("first", "second", "chosen", "why"),
    [
        (pool(4, 3), pool(2, 7), "shared", None),
        (pool(4, 3), pool(4, 3), "shared", None),
        (
            pool(2, 7),
            pool(4, 3),
            "first-come",
            NotShared(code="more-gpus", gpus=14, separate_gpus=12),
        ),
        (
            pool(8, 3),
            pool(8, 4),
            "separate",
            NotShared(code="more-gpus", gpus=24, separate_gpus=16),
        ),
        (None, pool(4, 3), "first-come", LIMIT),
        (None, None, "separate", LIMIT),
        (pool(4, 3), None, "shared", None),
    ],
)
def test_with_priorities_the_pool_that_knows_none_is_compared(
    first: Any, second: Any, chosen: str, why: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_priority, first_come = (
        None if one is None else _arranged([one], 0) for one in (first, second)
    )
    other = None if first_come is not None else NotShared(code="limit", case="b")
    looked = Looked(by_priority=(by_priority, LIMIT), first_come=(first_come, other))
    answer = answered(monkeypatch, looked, case("a"), case("b", 1))
    assert looked.calls == [(["a", "b"], 16, 0, False), (["a", "b"], 16, 0, True)]
    assert (answer.priorities, answer.background) == ((0, 1), None)
    assert (answer.shared, answer.first_come) == (by_priority, first_come)
    assert (answer.not_first_come, answer.chosen, answer.not_shared) == (other, chosen, why)


def test_a_job_of_a_lower_priority_is_done_in_the_background(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arranged = _arranged([pool(4, 3)], 0)
    looked = Looked(by_priority=(arranged, None))
    answer = answered(monkeypatch, looked, case("a"), case("b", 1, offline=True), case("c", 2))
    assert looked.calls == [(["a", "c"], 16, 0, True)]
    assert answer.background == "b in the background"
    assert (answer.first_come, answer.chosen) == (None, "shared")
    assert answer.not_first_come == NotShared(code="demand", case="b")
    # of the same priority it is a use case as any
    looked = Looked(by_model=(None, LIMIT))
    answer = answered(monkeypatch, looked, case("a", 1), case("b", 1, offline=True))
    assert (answer.priorities, answer.background, answer.not_first_come) == (None, None, None)
    assert looked.calls == [(["a", "b"], APART, 0)]


def test_every_arrangement_has_what_stands_by(monkeypatch: pytest.MonkeyPatch) -> None:
    reserve = Reserve(spare_instances=5)
    arranged = _arranged([pool(4, 3)], 0)
    looked = Looked(by_priority=(arranged, None), first_come=(arranged, None))
    answer = answered(monkeypatch, looked, case("a"), case("b", 1), reserve=reserve)
    assert answer.shared == answer.first_come == _arranged([pool(4, 3)], 0, reserve)
    assert answer.separate == _arranged(APART, 0, reserve)
    assert looked.calls[0][1] == answer.separate.gpus > 16
    assert _with_standby(arranged, 1, None) is arranged
    assert _with_standby(None, 1, reserve) is None
    assert _with_standby(arranged, 1, reserve) == _arranged([pool(4, 3)], 1, reserve)


MODELS = [SimpleNamespace(name=name) for name in "mn"]


@pytest.mark.parametrize(
    ("models", "shared", "pools", "looked"),
    [
        # two of one model: whatever one pool takes
        ((0, 0), {"ab": pool(8, 9)}, [pool(8, 9)], [("ab", 16)]),
        ((0, 0), {"ab": None}, None, [("ab", 16)]),
        # a and c share where that takes no more than the 14 GPUs of their pools
        ((0, 1, 0), {"ac": pool(2, 7)}, [pool(2, 7), pool(8, 1)], [("ac", 16)]),
        ((0, 1, 0), {"ac": pool(1, 15)}, None, [("ac", 16)]),
        ((1, 1, 0), {"ab": pool(2, 7)}, [pool(2, 7), pool(2, 3)], [("ab", 16)]),
        ((0, 1), {}, None, []),
        (
            (0, 1, 0, 1),
            {"ac": None, "bd": pool(8, 1)},
            [pool(4, 2), pool(2, 3), pool(8, 1)],
            [("ac", 16), ("bd", 16)],
        ),
    ],
)
def test_use_cases_share_by_model(
    *,
    models: tuple[int, ...],
    shared: dict[str, Any],
    pools: Any,
    looked: list[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    apart = [pool(4, 2), pool(8, 1), pool(2, 3), pool(8, 1)][: len(models)]
    calls: list[Any] = []

    def one_pool(
        tried: Any, most_gpus: int, spare: int, announce: Any, *, by_priority: bool
    ) -> Any:
        names = "".join(one.name for one in tried.asked)
        calls.append((names, most_gpus))
        assert (spare, by_priority, tried.job) == (1, False, None)
        of = shared[names]
        return (None, LIMIT) if of is None else (_arranged([of], spare), None)

    monkeypatch.setattr(f"{MODULE}._shared", one_pool)
    cases = [case(name, model=MODELS[of]) for name, of in zip("abcd", models, strict=False)]
    arranged, why = _shared_by_model(cases, apart, 1, print)
    if models == (0, 0):
        looked = [(names, gpus + 8) for names, gpus in looked]
    elif looked:
        looked = [
            (names, _arranged([apart["abcd".index(n)] for n in names], 1).gpus)
            for names, _ in looked
        ]
    assert calls == looked
    if pools is None:
        assert arranged is None
        if models == (0, 1):
            assert why == NotShared(code="models", case="b")
    else:
        assert (arranged, why) == (_arranged(pools, 1), None)


def test_what_cannot_be_simulated_together() -> None:
    first, other = MODELS
    assert together([case("a", model=first), case("b", model=first)]) is None
    assert together([case("a", model=first), case("b", model=other)]) == NotShared(
        code="models", case="b"
    )
    jobs = [case("a"), case("b", model=other, drawn=False), case("c", drawn=False)]
    assert together(jobs) == NotShared(code="demand", case="b")
    assert _shared_by_model(jobs, APART, 0, print) == (None, NotShared(code="demand", case="b"))


def test_a_fleet_for_each_use_case_is_as_its_plan_has_it() -> None:
    choices = [
        candidate(tp=2, systems=3, systems_exact=2.25),
        candidate(tp=4, systems=1, system="box", gpus_per_system=4, systems_exact=0.5),
        candidate(tp=8, systems=2, systems_exact=1.5),
    ]
    arranged = _fleets([SimpleNamespace(candidates=(one, "second")) for one in choices])  # type: ignore[misc]
    assert arranged.systems == (
        PoolSystems(system="dgx-h100", systems=5, gpus=40),
        PoolSystems(system="box", systems=1, gpus=4),
    )
    assert [
        (one.tp, one.system, one.gpus_per_system, one.instances, one.instances_exact, one.cases)
        for one in arranged.pools
    ] == [
        (2, "dgx-h100", 8, 12, 2.25, ()),
        (4, "box", 4, 1, 0.5, ()),
        (8, "dgx-h100", 8, 2, 1.5, ()),
    ]
    assert [one.knobs for one in arranged.pools] == [one.knobs for one in choices]
    assert (arranged.standby, arranged.placement, arranged.lost) == ((), (), None)


def test_pools_apart_are_sized_in_groups_of_one_instance(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[Any] = []
    runs: list[Any] = []

    def together_of(options: Any, size: Any, spare: int) -> Any:
        chosen.append((options, spare))
        option = use_cases.Option(pool=pool(4, 2), rank=3)
        sized = [size(place, option) for place in (0, 1)]
        assert sized[1] is None
        assert sized[0] == use_cases.Option(pool=pool(4, 9), rank=3, sized=True)
        return [sized[0], option]

    def in_groups(one: Any, of: Any, memory: Any) -> Any:
        runs.append(memory)
        return pool(4, 9) if one.name == "a" else None

    monkeypatch.setattr(f"{MODULE}.chosen_together", together_of)
    monkeypatch.setattr(f"{MODULE}._options", lambda one: [one.name])
    monkeypatch.setattr(f"{MODULE}._in_groups", in_groups)
    assert _pools_apart([case("a"), case("b")], 2) == [pool(4, 9), pool(4, 2)]
    assert chosen == [([["a"], ["b"]], 2)]
    assert runs[0] is not runs[1]


# Whole systems.


def test_pools_on_the_systems_of_their_kind() -> None:
    """Two of four GPUs and three of two fill one system and three quarters of another; a box holds
    one; an instance of sixteen takes two systems."""
    pools = [pool(4, 2), pool(4, 1, system="box", gpus=4), pool(2, 3)]
    bare = _arranged(pools, 1)
    assert bare == Arrangement(
        pools=tuple(pools),
        systems=(
            PoolSystems(system="dgx", systems=3, gpus=24),
            PoolSystems(system="box", systems=2, gpus=8),
        ),
        placement=(
            Placed(system="dgx", first=1, systems=1, instances=(1, 0, 2), free_gpus=0),
            Placed(system="dgx", first=2, systems=1, instances=(1, 0, 1), free_gpus=2),
            Placed(system="dgx", first=3, systems=1, instances=(0, 0, 0), free_gpus=8),
            Placed(system="box", first=1, systems=1, instances=(0, 1, 0), free_gpus=0),
            Placed(system="box", first=2, systems=1, instances=(0, 0, 0), free_gpus=4),
        ),
        lost=SystemLost(instances=(1, 1, 2), without_gpus=(0, 0, 0)),
    )
    assert (bare.gpus, bare.gpus_in_use) == (32, 18)
    none = _arranged(pools, 0)
    assert none.lost == SystemLost(instances=(1, 1, 2), without_gpus=(1, 1, 1))


@pytest.mark.parametrize(
    ("pools", "reserve", "spare", "systems", "standby"),
    [
        # a further instance of four on two full systems; one of each of two pools
        ([pool(4, 4)], Reserve(spare_instances=1), 0, 3, [("system", 2, 3)]),
        ([pool(4, 3)], Reserve(spare_instances=1), 0, 2, [("system", 2, 2)]),
        ([pool(4, 3), pool(1, 4)], Reserve(spare_instances=1), 0, 3, [("system", 2, 3)]),
        ([pool(4, 3)], Reserve(spare_instances=2), 2, 4, [("system", 2, 4)]),
        ([pool(4, 3)], Reserve(spare_instances=9), 2, 6, [("system", 2, 6)]),
        ([pool(4, 3)], Reserve(), 1, 3, [("system", 2, 3)]),
        (
            [pool(4, 4), pool(2, 1)],
            Reserve(unit="instance", spare_instances=2),
            0,
            4,
            [("instance", 4, 6), ("instance", 1, 3)],
        ),
        ([pool(4, 4)], Reserve(unit="instance"), 1, 3, [("instance", 4, 4)]),
        # an instance that spans two systems fails by itself
        ([pool(16, 2)], Reserve(spare_instances=1), 0, 6, [("instance", 2, 3)]),
        ([pool(8, 2)], Reserve(spare_instances=1), 0, 3, [("system", 2, 3)]),
    ],
)
def test_what_stands_by_next_to_a_need(
    pools: Any, reserve: Reserve, spare: int, systems: int, standby: list[Any]
) -> None:
    arranged = _arranged(pools, spare, reserve)
    assert arranged.systems == (PoolSystems(system="dgx", systems=systems, gpus=8 * systems),)
    assert arranged.standby == tuple(
        Standby(unit=unit, needed=needed, standing=standing) for unit, needed, standing in standby
    )
    assert sum(part.systems for part in arranged.placement) == systems


# One pool of one deployment.


@dataclass
class Sums:
    """A mixture of two and a half instances."""

    cases: Any
    by_priority: bool = False
    as_predicted: bool = False
    instances_exact: float = 2.5

    def run(self, count: int) -> Any:
        return MixtureRun(mixture=self, record=None, owners=None, stable=count > 0)  # type: ignore[arg-type]


RUN = Sums(()).run(0)


@pytest.mark.parametrize(
    ("most_gpus", "spare", "exact", "start", "most"),
    [
        (40, 1, 2.5, 3, 16),  # four systems of four instances
        (47, 0, 2.5, 3, 20),
        (40, 0, 3.0 + 1e-12, 3, 20),
        (40, 0, 0.0, 1, 20),
        (16, 1, 5.5, 4, 4),
    ],
)
def test_the_bounds_of_a_shared_pool(
    *,
    most_gpus: int,
    spare: int,
    exact: float,
    start: int,
    most: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bounds: list[Any] = []
    mixtures: list[Any] = []

    def mixture(cases: Any, *, by_priority: bool) -> Sums:
        mixtures.append((cases, by_priority))
        return Sums(cases, by_priority, instances_exact=exact)

    monkeypatch.setattr(f"{MODULE}.Mixture", mixture)
    monkeypatch.setattr(f"{MODULE}._fewest", lambda of, *ends: bounds.append(ends) or (7, RUN))
    monkeypatch.setattr(f"{MODULE}._simulated", lambda of, mixture, count, run: pool(2, count))
    monkeypatch.setattr(Tried, "of", lambda self, of: ("case a", "case b"))
    arranged = _one_pool(Tried(asked=()), candidate(tp=2), most_gpus, spare, by_priority=True)
    assert arranged == _arranged([pool(2, 7)], spare)
    assert bounds == [(start, most)]
    assert mixtures == [(("case a", "case b"), True)]


def test_why_a_deployment_is_no_shared_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    breach: Any = SimpleNamespace()
    monkeypatch.setattr(f"{MODULE}.Mixture", lambda cases, by_priority: Sums(cases))
    monkeypatch.setattr(
        f"{MODULE}._simulated", lambda of, mixture, count, run: pool(2, count + 100 * run.stable)
    )
    tried = Tried(asked=(), job=case("job"))

    def looked(fewest: Any, background: Any = 0) -> Any:
        monkeypatch.setattr(f"{MODULE}._fewest", fewest)
        monkeypatch.setattr(Tried, "in_background", lambda self, of, mixture, *ends: background)
        return _one_pool(tried, candidate(tp=2), 40, 0, by_priority=False)

    monkeypatch.setattr(Tried, "of", lambda self, of: LIMIT)
    assert looked(None) is LIMIT
    monkeypatch.setattr(Tried, "of", lambda self, of: ())

    def raising(*ends: Any) -> Any:
        raise DoesNotFit("too long")

    assert looked(raising) == NotShared(code="no-deployment")
    assert looked(lambda *ends: (20, ("chat", breach))) == NotShared(
        code="limit", case="chat", gpus=40, breach=breach
    )
    assert looked(lambda *ends: (20, None)) == NotShared(code="limit", case="", gpus=40)
    assert looked(lambda *ends: (7, RUN), None) == NotShared(code="limit", case="job", gpus=40)
    assert looked(lambda *ends: (7, RUN), 7) == _arranged([pool(2, 7)], 0)
    assert looked(lambda *ends: (7, RUN), 9) == _arranged([pool(2, 109)], 0)  # run again
    tried = Tried(asked=())
    assert looked(lambda *ends: (7, RUN), None) == NotShared(code="limit", case="", gpus=40)


JOB = Demand(
    peak_requests_per_second=2.0,
    sizing_requests_per_second=2.0,
    offline_requests=7_200.0,
    offline_seconds=3_600.0,
    source=DemandSource(kind="job"),
)


@dataclass(frozen=True)
class Streamed:
    """A question of a job, as far as it becomes a stream."""

    demand: Demand
    mode: str = "offline"
    slo: Any = ("limit",)
    model: str = "m"


def test_a_job_is_sent_evenly_over_its_time() -> None:
    stream = as_stream(Streamed(JOB))  # type: ignore[arg-type]
    source = DemandSource(kind="peak", requests_per_second=2.0)
    even = Demand(peak_requests_per_second=2.0, sizing_requests_per_second=2.0, source=source)
    assert stream == Streamed(even, "sequential", ())
    nothing = replace(JOB, offline_requests=None, offline_seconds=None)
    assert as_stream(Streamed(nothing)).demand.peak_requests_per_second == 0.0  # type: ignore[arg-type]


def test_the_instances_with_which_a_job_is_done_too(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Asked(name="job", question=Streamed(JOB), plan=None, priority=3)  # type: ignore[arg-type]
    of, mixture = candidate(tp=2), Sums(("cases",))
    assert Tried(asked=()).in_background(of, mixture, 7, 9) == 7  # type: ignore[arg-type]
    looked: list[Any] = []
    sized: list[Any] = []
    monkeypatch.setattr(
        f"{MODULE}._case", lambda one, at: sized.append((one, at)) or answers["case"]
    )
    monkeypatch.setattr(f"{MODULE}.filled", lambda *what: looked.append(what) or answers["done"])
    done: Any = SimpleNamespace(more_instances=2)
    answers: dict[str, Any] = {"case": "a case", "done": done}
    tried = Tried(asked=(), job=job)
    assert tried.in_background(of, mixture, 7, 9) == 9  # type: ignore[arg-type]
    assert tried.filled == {of.identity: done}
    assert looked == [
        (("cases",), Job(case="a case", requests=7_200.0, seconds=3_600.0), 7, 9)  # type: ignore[arg-type]
    ]
    assert sized == [(replace(job, question=as_stream(job.question)), of)]
    for nothing in ({"case": None}, {"done": None}):
        answers |= {"case": "a case", "done": done} | nothing
        empty = Tried(asked=(), job=job)
        assert empty.in_background(of, mixture, 7, 9) is None  # type: ignore[arg-type]
        assert empty.filled == {}
    for missing in ({"offline_requests": None}, {"offline_seconds": None}):
        part = replace(job, question=Streamed(replace(JOB, **missing)))  # type: ignore[arg-type]
        answers |= {"case": "a case", "done": done}
        assert Tried(asked=(), job=part).in_background(of, mixture, 7, 9) is None  # type: ignore[arg-type]


HUNDRED = Demand(
    peak_requests_per_second=100.0,
    sizing_requests_per_second=100.0,
    source=DemandSource(kind="peak"),
)


class Named(NamedTuple):
    """What has a name."""

    name: str


@dataclass(frozen=True, kw_only=True)
class Single:
    """A question of one use case on a deployment."""

    gpus: Any
    precisions: Any = (Named("fp8"),)
    deepen: bool = True
    spare: int = 2
    remarks: Any = ("remark",)
    model: str = "m"
    demand: Any = HUNDRED


def test_one_instance_of_a_deployment_is_sized_for_one_use_case(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    of, gpu = candidate(tp=2), SimpleNamespace(name="h100-sxm-80gb")
    engine = object()
    monkeypatch.setattr(f"{MODULE}.find_engine", lambda name: engine)
    monkeypatch.setattr(
        f"{MODULE}.as_run",
        lambda precision, model, on, at: SimpleNamespace(
            name=precision.name if (model, on, at) == ("m", engine, gpu) else "other"
        ),
    )
    trial = SimpleNamespace(identity=of.identity)
    sized = SimpleNamespace(ready=SimpleNamespace(trial=trial))
    looked: list[Any] = []
    answers: dict[str, Any] = {"sized": sized}
    monkeypatch.setattr(f"{MODULE}.alone", lambda *what: looked.append(what) or answers["sized"])
    other = SimpleNamespace(name="l4")
    one = Asked(name="a", question=Single(gpus=(other, gpu)), plan=None, priority=4)  # type: ignore[arg-type]
    assert _case(one, of) == Case(name="a", rate=100.0, sized=sized, priority=4)  # type: ignore[arg-type]
    ((question, at, runs),) = looked
    assert question == Single(gpus=(other, gpu), deepen=False, spare=0, remarks=())
    assert at is of
    assert isinstance(runs, Runs)
    for changed in ({"gpus": (other,)}, {"gpus": (gpu,), "precisions": ()}):
        assert _case(replace(one, question=Single(**changed)), of) is None  # type: ignore[arg-type]
    trial.identity = candidate(tp=4).identity
    assert _case(one, of) is None
    answers["sized"] = None
    assert _case(one, of) is None


@pytest.mark.parametrize("by_priority", [True, False])
@pytest.mark.parametrize("knobs", [knobs_of(64, 4_096), None])
def test_a_pool_that_was_seen_to_hold(
    by_priority: bool, knobs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        f"{MODULE}.Mixture",
        lambda cases, *, as_predicted, by_priority: Sums(cases, by_priority, as_predicted),
    )
    mixture, peaks = Sums(("case",), by_priority), list[Any]()
    run = SimpleNamespace(at_peak=lambda predicted: peaks.append(predicted) or ("at peak",))
    of = replace(candidate(tp=2), pools=(replace(candidate(tp=2).pool, knobs=knobs),))
    found = _simulated(of, mixture, 7, run)  # type: ignore[arg-type]
    assert peaks == [Sums(("case",), by_priority, True).run(7)]
    priority = None if knobs is None else replace(knobs, queue_order="priority")
    assert found == UseCasePool(
        **of.identity.names,
        system="dgx-h100",
        gpus_per_system=8,
        knobs=priority if by_priority else knobs,
        instances=7,
        instances_exact=2.5,
        cases=("at peak",),  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("level", "enough"), [(0.8, True), (0.9, True), (0.79, False), (None, False)]
)
def test_a_pool_in_groups_is_what_its_search_says(
    level: float | None, enough: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An instance carries 40 of 100 requests/s; TTFT takes half of its limit, and no TPOT is
    known."""
    contender = carrying(100.0, 8)
    sized = sized_of(contender, 3, 40.0, level=level)
    known = Latencies(mean=1.0)

    class Peak(SimpleNamespace):
        def seen(self, systems: int) -> Any:
            return SimpleNamespace(
                summary=SimpleNamespace(
                    ttft_ms=known, tpot_ms=Latencies(mean=2.0), e2e_ms=Latencies(mean=systems)
                )
            )

        def latencies_s(self, summary: Any) -> Any:
            assert self.slowdown == level
            return [(TTFT, 1.0), (TPOT, math.nan)]

    monkeypatch.setattr(type(contender), "slowdown", lambda self, level: level)
    monkeypatch.setattr(
        type(contender), "at_peak", lambda self, slowdown=None: Peak(slowdown=slowdown)
    )
    described: list[Any] = []
    alone = candidate(tp=8)
    monkeypatch.setattr(
        f"{MODULE}.candidate_of", lambda of, *, chosen: described.append((of, chosen)) or alone
    )
    searched = SimpleNamespace(answer=lambda: SimpleNamespace(best=sized))
    monkeypatch.setattr(f"{MODULE}.Search", lambda **what: searched)
    plan: Any = SimpleNamespace()
    one = Asked(name="a", question=question(peak_rps=100, confidence=80), plan=plan)
    found = use_cases._in_groups(one, pool_of_catalog(), Runs())
    assert (found is not None) is enough
    if found is None:
        return
    assert described == [(sized, True)]
    (at_peak,) = found.cases
    assert at_peak.limits == (
        LimitUse(limit=limit_of(TTFT), value_ms=1_000.0, used=0.5),
        LimitUse(limit=limit_of(TPOT), value_ms=None, used=None),
    )
    assert (at_peak.name, at_peak.requests_per_second, at_peak.instances_exact) == ("a", 100.0, 2.5)
    assert (at_peak.ttft_ms, at_peak.tpot_ms.mean, at_peak.e2e_ms.mean) == (known, 2.0, 3)
    assert (found.instances, found.instances_exact) == (sized.instances, 2.5)
    assert (found.alone, found.knobs) == (alone, alone.knobs)
    assert found.identity == sized.ready.trial.identity


def pool_of_catalog() -> UseCasePool:
    names = {"engine": "vllm-0.32", "engine_preset": "vllm-0.32"}
    return replace(pool(8, 1), **names)
