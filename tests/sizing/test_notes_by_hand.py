"""What a plan says next to its numbers, of questions and choices that are given."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.plan.candidates import candidate
from tests.sizing.search.contenders import TPOT, TTFT, asked_for
from tonnage.plan.limit import limit_of
from tonnage.plan.notes import (
    KnobsChanged,
    LimitsDoNotCount,
    ModelRead,
    NoLimit,
    QueuedFromStart,
    RestsOn,
    Routed,
    SmallerModel,
    TiersNotStarted,
    WideOverPcie,
)
from tonnage.plan.plan import Understood
from tonnage.plan.sensitivity import PercentileAnswer, Provenance
from tonnage.sizing import notes as module
from tonnage.sizing.notes import (
    FILLED,
    _asked_alike,
    _exactly,
    _pcie,
    _smaller,
    link_share,
    notes,
    percentile_answer,
    provenance,
    understood,
    warnings,
)
from tonnage.spec.lengths import Lengths
from tonnage.version import VERSION


def asked(**changed: Any) -> Any:
    """A question with every part that a plan states."""
    parts = {
        "model": SimpleNamespace(name="m", reading="", max_context=1_000),
        "gpus": (SimpleNamespace(name="g"), SimpleNamespace(name="h")),
        "precisions": (SimpleNamespace(name="fp8"),),
        "tps": (1, 2),
        "pps": (3,),
        "dps": (4,),
        "eps": (5,),
        "engines": ("f", "e"),
        "isl": Lengths(mean=100.0),
        "osl": Lengths(mean=20.0),
        "mode": "streaming",
        "step_factor": 1.5,
        "step_source": None,
        "process": "gamma",
        "cv": 2.0,
        "demand": SimpleNamespace(cv=None, percentile=None),
        "spare": 6,
        "seed": 7,
        "speculation": None,
        "router": "random",
        "sharing": None,
        "calibration": None,
        "remarks": ("remark",),
    }
    return asked_for(1.0, **parts | changed)


def test_a_question_is_stated_as_it_was_understood() -> None:
    plain = Understood(
        model="m",
        gpus=("g", "h"),
        precisions=("fp8",),
        tps=(1, 2),
        pps=(3,),
        dps=(4,),
        eps=(5,),
        engines=("f", "e"),
        isl="100",
        osl="20",
        mean_isl=100.0,
        mean_osl=20.0,
        limits=(limit_of(TTFT), limit_of(TPOT)),
        limits_that_count=(limit_of(TTFT),),
        mode="streaming",
        step_factor=1.5,
        step_model="fitted",
        load="open",
        arrivals="gamma",
        cv=2.0,
        spare_systems=6,
        confidence=0.8,
        seed=7,
        speculation="",
        router="random",
        shares="",
    )
    assert understood(asked(limits=(TTFT,))) == plain
    sessions = SimpleNamespace(new=Lengths(mean=40.0), recorded=None, sessions="shared words")
    full = understood(
        asked(
            recording="recording",
            demand=SimpleNamespace(cv=3.5),
            step_source=SimpleNamespace(name="tables"),
            speculation="guesses",
            sharing=sessions,
        )
    )
    assert (full.arrivals, full.cv, full.step_model) == ("trace", 3.5, "tables")
    assert (full.speculation, full.shares, full.isl, full.mean_isl) == (
        "guesses",
        "shared words",
        "40",
        100.0,
    )
    recorded = SimpleNamespace(new=None, recorded=None, sessions=None)
    assert understood(asked(sharing=recorded)).isl == "100"


def test_where_the_numbers_come_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "coefficient_source", lambda engine: f"rows of {engine}")
    bare = provenance(asked(), ())
    assert bare == Provenance(
        tonnage=VERSION,
        coefficients={"f": "rows of f", "e": "rows of e"},
        seed=7,
        calibration=None,
        step_model="",
    )
    presets = [candidate(engine_preset=name) for name in ("z", "a", "z")]
    full = provenance(asked(calibration="own", step_source=SimpleNamespace(name="tables")), presets)
    assert list(full.coefficients) == ["a", "z"]
    assert (full.calibration, full.step_model) == ("own", "tables")


def best_of(**changed: Any) -> Any:
    """A choice of seven instances, whose engine starts no host memory by itself."""
    deployment = SimpleNamespace(engine="e", gpu="gpu", parallelism=SimpleNamespace(dp=2))
    ready = SimpleNamespace(
        trial=SimpleNamespace(deployment=deployment),
        instance=SimpleNamespace(below=(SimpleNamespace(name="rules"), changed.get("tiers", ()))),
    )
    contender = SimpleNamespace(standing_for=lambda instances: 10 * instances)
    return SimpleNamespace(ready=ready, contender=contender, instances=7)


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the engine's own knobs differ in, and whether it starts a host memory."""
    answers: dict[str, Any] = {"changes": (), "starts": False, "front_ends": ()}
    looked: list[Any] = []
    monkeypatch.setattr(module, "find_engine", lambda name: f"engine {name}")
    monkeypatch.setattr(module, "default_knobs", lambda *what: what)
    monkeypatch.setattr(
        module, "changes", lambda ready, knobs: looked.append(knobs) or answers["changes"]
    )
    monkeypatch.setattr(module, "starts_offloading", lambda rules, engine: answers["starts"])
    monkeypatch.setattr(module, "_front_ends", lambda best: iter(answers["front_ends"]))
    answers["looked"] = looked
    return answers


TIERS = (SimpleNamespace(name="host"), SimpleNamespace(name="disk"))


@pytest.mark.parametrize(
    ("changed", "written"),
    [
        ({}, [Routed(router="random", together=1)]),
        ({"load": "closed"}, []),
        ({"slo": (), "limits": ()}, [Routed(router="random", together=1), NoLimit()]),
        ({"offline": True}, [QueuedFromStart()]),
        ({"offline": True, "slo": (), "limits": ()}, [QueuedFromStart()]),
        (
            {"limits": (TPOT,)},
            [
                Routed(router="random", together=1),
                LimitsDoNotCount(mode="streaming", limits=(limit_of(TTFT),)),
            ],
        ),
    ],
)
def test_notes_of_a_question(
    changed: dict[str, Any], written: list[Any], plain: dict[str, Any]
) -> None:
    assert notes(asked(**changed), None, ()) == ("remark", *written)
    read: Any = SimpleNamespace(name="m", reading="read so")
    first, second, *others = notes(asked(model=read, **changed), None, ())
    assert (first, second) == ("remark", ModelRead(model=read))
    assert others == written


@pytest.mark.parametrize(
    ("tiers", "starts", "unstarted"),
    [((), False, ()), (TIERS, False, ("host", "disk")), (TIERS, True, ("disk",))],
)
def test_notes_of_a_choice(
    tiers: Any, starts: bool, unstarted: tuple[str, ...], plain: dict[str, Any]
) -> None:
    plain |= {"changes": ("a knob",), "starts": starts, "front_ends": ("front ends",)}
    marked = candidate(marks=("a mark",))
    written = notes(asked(), best_of(tiers=tiers), (marked, candidate()))
    assert plain["looked"] == [("engine e", "gpu", 2)]
    assert written == (
        "remark",
        Routed(router="random", together=70),
        RestsOn(marks=("a mark",)),
        KnobsChanged(changes=("a knob",)),  # type: ignore[arg-type]
        "front ends",
        *((TiersNotStarted(offloader="rules", tiers=unstarted),) if unstarted else ()),
    )
    plain |= {"changes": (), "front_ends": ()}
    written = notes(asked(), best_of(), (candidate(), marked))
    assert written == ("remark", Routed(router="random", together=70))


@pytest.mark.parametrize(
    ("changed", "known"),
    [
        ({}, True),
        ({"percentile": None}, False),
        ({"broken": "breach"}, False),
        ({"reason": "none"}, False),
    ],
)
@pytest.mark.parametrize("process", ["gamma", "poisson"])
def test_the_systems_by_the_percentile_way(
    *, changed: dict[str, Any], known: bool, process: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A closed loop carries 4 a second on two GPUs: of 40 at the percentile two and a half systems
    of four instances, and six spare ones."""
    answers = {"percentile": 95.0, "broken": None, "reason": None} | changed
    demand = SimpleNamespace(
        percentile=answers["percentile"],
        sizing_requests_per_second=30.0,
        peak_requests_per_second=40.0,
    )
    looked: list[Any] = []
    instance = SimpleNamespace(single_client=lambda: "single")
    runs = SimpleNamespace(instance=lambda *what: looked.append(what) or instance)
    question = asked(demand=demand, process=process)
    trial = SimpleNamespace(deployment="deployment", system="system")
    chosen: Any = SimpleNamespace(
        contender=SimpleNamespace(question=question, runs=runs),
        ready=SimpleNamespace(trial=trial),
    )
    capacity = SimpleNamespace(reason=answers["reason"], rate=4.0, concurrency=9.0)
    monkeypatch.setattr(module, "traffic", lambda question, system, load: (system, load))
    monkeypatch.setattr(
        module,
        "broken_alone",
        lambda single, limits: answers["broken"] if single == "single" else 1,
    )
    monkeypatch.setattr(
        module,
        "find_capacity",
        lambda *what: capacity if what == (runs, instance, question.limits) else None,
    )
    found = percentile_answer(chosen, candidate(tp=2, systems=3, systems_exact=1.9))
    if not known:
        assert found is None
        return
    assert looked == [("deployment", ("system", "closed"))]
    assert found == PercentileAnswer(
        percentile=95.0,
        mean_requests_per_second=30.0,
        peak_requests_per_second=40.0,
        requests_per_second_per_instance=4.0,
        concurrency_per_instance=9.0,
        systems_exact=2.5,
        systems=9,
        simulated_systems_exact=1.9,
        simulated_systems=3,
        process=process,  # type: ignore[arg-type]
        cv=2.0 if process == "gamma" else None,
    )


def card(name: str, memory: float, **changed: Any) -> Any:
    parts = {"vendor": "v", "memory_bandwidth_gb_s": 1_000.0, "tdp_w": 300.0, "pcie_gb_s": 64.0}
    return SimpleNamespace(name=name, memory_gb=memory, **parts | changed)


def test_a_wider_card_of_the_maker_stands_for_several_over_pcie(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two of 48 GB: the smallest with 96 GB that is as fast, of equal ones the one with less power."""
    own = card("own", 48.0)
    cards = [
        own,
        card("slow", 96.0, memory_bandwidth_gb_s=999.0),
        card("other", 96.0, vendor="w"),
        card("small", 95.9),
        card("hot", 96.0, tdp_w=400.0),
        card("unknown", 96.0, tdp_w=None),
        card("large", 141.0),
        card("cool", 96.0),
    ]
    deployment = SimpleNamespace(
        gpu=own, parallelism=SimpleNamespace(tp=2), step_source=None, calibration=None
    )
    chosen: Any = SimpleNamespace(
        ready=SimpleNamespace(trial=SimpleNamespace(deployment=deployment), instance="instance")
    )
    over = {"pcie": True}
    monkeypatch.setattr(module, "all_gpus", lambda: cards)
    monkeypatch.setattr(module, "over_pcie", lambda gpu, tp: over["pcie"] and tp == 2)
    monkeypatch.setattr(module, "staged", lambda gpu, tp: True)
    monkeypatch.setattr(module, "link_share", lambda instance: 0.25)
    warned = WideOverPcie(value=0.25, tp=2, gpu="own", staged=True, link_gb_s=32.0, larger="cool")
    assert _pcie(chosen) == warned
    cards.pop()
    assert _pcie(chosen).larger == "hot"  # type: ignore[union-attr]
    cards[4:] = []
    assert _pcie(chosen).larger == ""  # type: ignore[union-attr]
    for name in ("step_source", "calibration"):
        setattr(deployment, name, object())
        assert _pcie(chosen) is None
        setattr(deployment, name, None)
    over["pcie"] = False
    assert _pcie(chosen) is None


@pytest.mark.parametrize("batch", [10, 200])
def test_the_share_of_a_step_that_links_take(batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy as np

    monkeypatch.setattr(module, "places_of", lambda name: (1, 2) if name == "link" else (0,))
    looked: list[int] = []

    def seconds(c: Any, tokens: int, sequences: int) -> float:
        looked.append(tokens)
        assert tokens == sequences
        return float(c.sum())

    monkeypatch.setattr(module, "batch_seconds", seconds)
    step = SimpleNamespace(coefficients=np.array([6.0, 3.0, 1.0]))
    assert link_share(SimpleNamespace(batch=batch, step=step)) == pytest.approx(0.4)  # type: ignore[arg-type]
    assert looked == [min(batch, FILLED)] * 2 == [min(batch, 64)] * 2
    assert step.coefficients.tolist() == [6.0, 3.0, 1.0]


def test_every_rule_of_thumb_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    best: Any = SimpleNamespace(contender=SimpleNamespace(question="question"), gpus=9)
    for name in ("_nvlink", "_pcie", "_cache", "_halved"):
        monkeypatch.setattr(module, name, lambda best, name=name: name)
    for name in ("_bursty", "_smaller"):
        monkeypatch.setattr(module, name, lambda question, name=name: (name, question))
    monkeypatch.setattr(module, "length_to_shorten", lambda *what: what)
    assert warnings(best, "swings") == (  # type: ignore[arg-type]
        "_nvlink",
        "_pcie",
        "_cache",
        ("swings", 9),
        "_halved",
        ("_bursty", "question"),
        ("_smaller", "question"),
    )
    monkeypatch.setattr(module, "_pcie", lambda best: None)
    assert len(warnings(best, None)) == 6


def model(name: str, parameters: float, **changed: Any) -> Any:
    parts = {"active_parameters": parameters, "max_context": 1_000}
    return SimpleNamespace(name=name, parameters=parameters, **parts | changed)


def test_the_smallest_model_with_the_same_score_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of half the parameters at most, asked the same way, with room for 120 tokens."""
    own = model("own", 80e9)
    rows = {
        "own": (own, 70.0, "base; 5"),
        "larger": (model("larger", 41e9), 90.0, "base; 5"),
        "half": (model("half", 40e9), 70.0, "base; 5"),
        "small": (model("small", 30e9), 71.0, "base; 5"),
        "worse": (model("worse", 20e9), 69.9, "base; 5"),
        "chat": (model("chat", 20e9), 90.0, "chat"),
        "short": (model("short", 20e9, max_context=119), 90.0, "base; 5"),
        "active": (model("active", 20e9, active_parameters=81e9), 90.0, "base; 5"),
        "none": (model("none", 10e9), None, ""),
    }

    def score(name: str) -> Any:
        _, value, setting = rows[name]
        if value is None:
            return None
        return SimpleNamespace(score=value, setting=setting, benchmark="b")

    monkeypatch.setattr(module, "models", lambda: [row[0] for row in rows.values()])
    monkeypatch.setattr(module, "find_score", score)
    found = _smaller(asked(model=own))
    assert found == SmallerModel(
        value=80 / 30,
        model="own",
        parameters=80e9,
        score=70.0,
        other="small",
        other_parameters=30e9,
        other_score=71.0,
        benchmark="b",
        setting="base; 5",
    )
    del rows["small"]
    assert _smaller(asked(model=own)).other == "half"  # type: ignore[union-attr]
    del rows["half"]
    assert _smaller(asked(model=own)) is None
    assert _smaller(asked(model=rows["none"][0])) is None


@pytest.mark.parametrize(
    ("first", "second", "alike"),
    [
        ("chat; none", "chat; none", True),
        ("chat; none", "chat; five", False),
        ("base model; a", "base model; b", True),
        ("base model", "chat", False),
    ],
)
def test_scores_that_were_asked_alike(first: str, second: str, alike: bool) -> None:
    of = [SimpleNamespace(setting=setting) for setting in (first, second)]
    assert _asked_alike(*of) is alike  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("systems", "exact", "gpus", "counted"),
    [(2, 1.5, 16, 1.5), (1, 0.9, 72, 8.1), (None, None, 0, 10.0), (2, None, 16, 10.0)],
)
def test_systems_are_counted_in_those_of_the_plan(
    systems: int | None, exact: float | None, gpus: int, counted: float
) -> None:
    """Ten systems of eight GPUs."""
    changed: Any = SimpleNamespace(systems=systems, systems_exact=exact, gpus=gpus)
    plan: Any = SimpleNamespace(systems=10, systems_exact=10.0)
    assert _exactly(changed, plan, 80) == pytest.approx(counted)
