"""What would change an answer, put together from answers that are given."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.questions import contenders, question
from tonnage.plan.limit import Breach, limit_of
from tonnage.plan.reason import NotSure
from tonnage.plan.sensitivity import Changed, OtherSpread, Relaxed, Sensitivity, Swing
from tonnage.sizing import sensitivity as module
from tonnage.sizing.loads.confidence import Slowdown
from tonnage.sizing.loads.instance import QUICK, SURE
from tonnage.sizing.loads.runs import Runs
from tonnage.sizing.progress import Steps
from tonnage.sizing.question import Sharing
from tonnage.sizing.search.search import Search
from tonnage.sizing.search.warm_start import Learned
from tonnage.sizing.sensitivity import (
    _changed,
    _with_its_knobs,
    _with_spread,
    again,
    changed_question,
    cheapest_relaxed,
    sensitivity,
)
from tonnage.spec.deployment import parse_limit
from tonnage.spec.lengths import Lengths, Pairs
from tonnage.spec.recording import Recording
from tonnage.spec.sessions import Sessions

TTFT, TPOT = parse_limit("ttft", "p95<=300ms"), parse_limit("tpot", "mean<=50ms")


@pytest.mark.parametrize("recording", [None, "recording"])
def test_every_input_is_moved_both_ways(
    recording: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Short runs answer changes, and the longest other spreads."""
    heard: list[Any] = []
    looked: list[Any] = []
    search: Any = SimpleNamespace(
        question=SimpleNamespace(recording=recording, spare=2),
        steps=Steps(lambda done, known, name: heard.append((done, known, name))),
        workers=1,
    )
    best: Any = SimpleNamespace(
        systems=4,
        gpus_exact=30.0,
        ready=SimpleNamespace(trial=SimpleNamespace(system=SimpleNamespace(gpus=8))),
    )
    spread = SimpleNamespace(isl="spread isl", osl="spread osl")

    def answered(search: Any, best: Any, of: Any, change: float, care: Any) -> Any:
        looked.append((of, change, care))
        return f"answer {len(looked)}"

    monkeypatch.setattr(module, "_changed", answered)
    monkeypatch.setattr(module, "changed_question", lambda question, name, change: (name, change))
    monkeypatch.setattr(module, "other_spreads", lambda question: {"exact": spread})
    monkeypatch.setattr(module, "_care", lambda best: QUICK)
    monkeypatch.setattr(module, "cheapest_relaxed", lambda search, best: "relaxed")
    monkeypatch.setattr(
        module, "parallel", lambda run, names, workers: [(n, run(n)) for n in names]
    )
    inputs: Any = (
        ("isl", "osl", "rate", "step_time") if recording is None else ("rate", "step_time")
    )
    found = sensitivity(search, best)
    count = 2 * len(inputs)
    assert found == Sensitivity(
        systems=6,
        systems_exact=3.75,
        swings=tuple(
            Swing(
                input=name,
                low=f"answer {2 * place + 1}",  # type: ignore[arg-type]
                high=f"answer {2 * place + 2}",  # type: ignore[arg-type]
            )
            for place, name in enumerate(inputs)
        ),
        relaxed="relaxed",  # type: ignore[arg-type]
        spreads=(
            OtherSpread(
                spread="exact",
                isl="spread isl",
                osl="spread osl",
                answer=f"answer {count + 1}",  # type: ignore[arg-type]
            ),
        ),
    )
    moves = [((name, change), change, QUICK) for name in inputs for change in (-0.2, 0.2)]
    assert looked == [*moves, (spread, 0.0, SURE)]
    assert heard[-1] == (count + 1, count + 1, "exact")
    assert heard[0][2] == f"{inputs[0]} -20%"


@pytest.mark.parametrize(
    ("changed", "kept"),
    [
        ({}, True),
        ({"load": "closed"}, False),
        ({"offline": True}, False),
        ({"limits": ()}, False),
        ({"systems": 2}, False),  # one instance takes two
        ({"carries": 7}, False),
        ({"seconds": (0.3, 0.05)}, False),  # no limit breaks
        ({"seconds": (0.4, 0.06)}, False),  # two do
        ({"saved": None}, False),
    ],
)
def test_the_limit_that_breaks_with_a_system_fewer_is_relaxed(
    changed: dict[str, Any], kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of eight systems, an instance on two of them: with six TTFT takes 400 ms. 408 ms, rounded up
    to 410, saves nothing yet, and 424, rounded up to 430, two systems."""
    parts = {
        "load": "open",
        "offline": False,
        "limits": (TTFT, TPOT),
        "slo": (TTFT, TPOT),
        "spare": 1,
    }
    of = Asked(**{name: changed.get(name, value) for name, value in parts.items()})
    seen: list[int] = []
    seconds = changed.get("seconds", (0.4, 0.05))
    peak = SimpleNamespace(
        layout=SimpleNamespace(systems_per_instance=2),
        could_carry=lambda systems: systems >= changed.get("carries", 6),
        seen=lambda systems: seen.append(systems) or SimpleNamespace(summary="summary"),
        latencies_s=lambda summary: [(TTFT, seconds[0]), (TPOT, seconds[1])],
    )
    contender = SimpleNamespace(at_peak=lambda slowdown: peak)
    systems = changed.get("systems", 8)
    best: Any = SimpleNamespace(contender=contender, slowdown="slow", systems=systems, gpus=72)
    looked: list[Any] = []
    saved = changed.get("saved", 0.43)

    def answer(search: Any, asked: Any, chosen: Any) -> Any:
        looked.append(asked.slo)
        holds = saved is not None and asked.slo[0].seconds >= saved
        better = SimpleNamespace(gpus=56 if holds else 72, systems=6 if holds else 8)
        return SimpleNamespace(best=better if len(looked) > 1 or holds else None)

    monkeypatch.setattr(module, "again", answer)
    search: Any = SimpleNamespace(question=of)
    found = cheapest_relaxed(search, best)
    if not kept:
        assert found is None
        if "saved" in changed:
            assert [slo[0].seconds for slo in looked] == [0.41, 0.43, 0.45]
        else:
            assert looked == []
        return
    assert seen == [6]
    assert looked == [(replace(TTFT, seconds=tried), TPOT) for tried in (0.41, 0.43)]
    assert found == Relaxed(
        limit=limit_of(TTFT), to_ms=pytest.approx(430.0), systems=7, saved=2, gpus=56
    )


@dataclass(frozen=True)
class Asked:
    """A question as far as its limits go."""

    load: str
    offline: bool
    limits: Any
    slo: Any
    spare: int


def test_an_answer_that_is_less_sure_says_by_how_much(monkeypatch: pytest.MonkeyPatch) -> None:
    breach = Breach(limit=limit_of(TTFT), value_ms=400.0)
    contender = SimpleNamespace(
        slowdown=lambda level: Slowdown(steps=1.5 if level == 0.8 else 1.0),
        as_asked=Slowdown(steps=1.2),
        alone_at=lambda slowdown: (breach, slowdown.steps),
    )
    better = SimpleNamespace(level=0.5, contender=contender)
    monkeypatch.setattr(
        module, "again", lambda *what, care: SimpleNamespace(best=better, rejected=())
    )
    best: Any = SimpleNamespace(level=0.8)
    for level in (0.5, None):
        better.level = level
        changed = _changed(SimpleNamespace(), best, "question", -0.2, QUICK)  # type: ignore[arg-type]
        unsure = NotSure(breach=(breach, 1.5), step_factor=1.25)  # type: ignore[arg-type]
        assert changed == Changed(
            change=-0.2, systems=None, systems_exact=None, deployment=None, reason=unsure
        )


def test_a_changed_question_changes_its_input_alone() -> None:
    of = question(
        isl="histogram:100:0.5,300:0.5", osl="exact:40", peak_rps=None, mean_rps=10, peak_factor=3
    )
    rate = changed_question(of, "rate", 0.5)
    demand = replace(of.demand, peak_requests_per_second=45.0, sizing_requests_per_second=45.0)
    assert rate == replace(of, demand=demand)
    job = replace(of, demand=replace(of.demand, offline_requests=1_001))
    assert changed_question(job, "rate", 0.5).demand.offline_requests == 1_502
    recorded = replace(of, recording=Recording(due_ns=(0, 10**9, 3 * 10**9)))
    slower = changed_question(recorded, "rate", -0.2).recording
    assert slower is not None
    assert slower.due_ns == (0, 1_250_000_000, 3_750_000_000)
    assert changed_question(replace(of, step_factor=1.5), "step_time", 0.2) == replace(
        of, step_factor=1.5 * 1.2
    )
    pairs = Pairs(isl=(100, 300), osl=(10, 20))
    together = replace(of, pairs=pairs)
    longer = changed_question(together, "osl", 0.5)
    assert longer == replace(of, osl=of.osl.scaled(1.5), pairs=pairs.scaled(osl=1.5))
    assert changed_question(together, "isl", 0.5).pairs == pairs.scaled(isl=1.5)
    assert changed_question(of, "isl", -0.2).pairs is None
    sharing = Sharing(sessions=Sessions(prefix_tokens=100), new=Lengths(mean=50.0))
    shared = replace(of, sharing=sharing, isl=Lengths(mean=150.0))
    prompts = changed_question(shared, "isl", 0.5)
    assert prompts.sharing == sharing.scaled(1.5)
    assert (prompts.isl.mean, prompts.osl) == (225.0, of.osl)
    answers = changed_question(shared, "osl", 0.5)
    assert (answers.sharing, answers.isl.mean, answers.osl.mean) == (sharing, 150.0, 60.0)


def test_a_spread_leaves_what_does_not_vary() -> None:
    """Of 1,000 tokens 200 are a system prompt."""
    of = replace(question(), isl=Lengths(kind="uniform", mean=1_000.0, std=9.0, plus=200.0))
    note: Any = SimpleNamespace(which=("isl",))
    wide = _with_spread(of, note, 0.5)
    assert wide is not None
    assert wide.isl == Lengths(
        kind="uniform", mean=1_000.0, std=0.5 * 800 / math.sqrt(3), plus=200.0
    )
    assert wide.osl == of.osl
    equal = _with_spread(of, note, 0.0)
    assert equal is not None
    assert (equal.isl.mean, equal.isl.exact) == (1_000.0, True)


@dataclass(frozen=True, kw_only=True)
class Searched:
    """A search that keeps with what it is made again."""

    question: Any
    learned: Any
    runs: Any = None
    made: list[Any] = field(default_factory=list, compare=False)
    steps: Any = None
    workers: int = 4
    rows: bool = True
    seeds: Any = ()
    care: Any = SURE
    first: Any = None
    only: bool = False

    def answer(self) -> Any:
        self.made.append(self)
        return SimpleNamespace(best=None)


@pytest.mark.parametrize(
    ("changed", "learned", "seeds"),
    [
        ({}, True, True),
        ({"demand": "other"}, True, True),
        ({"confidence": 0.9}, False, True),
        ({"pools": "two"}, False, False),
        ({"isl": Lengths(kind="uniform", mean=5.0)}, False, True),
        ({"osl": Lengths(kind="uniform", mean=5.0)}, False, True),
    ],
)
def test_a_question_is_answered_again_by_what_was_learned(
    *, changed: dict[str, Any], learned: bool, seeds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = Before()
    known = Learned(shares={"share": 1.0})  # type: ignore[dict-item]
    search: Any = Searched(question=of, learned=known)
    best: Any = SimpleNamespace(ready=SimpleNamespace(trial=SimpleNamespace(identity="identity")))
    monkeypatch.setattr(module, "_with_its_knobs", lambda *what: what)
    another = replace(of, **changed)
    assert again(search, another, best, care=QUICK).best is None
    plain = replace(another, have=(), growth_per_month=None)
    (made,) = search.made
    assert (made.question, made.workers, made.rows, made.only) == (plain, 1, False, False)
    assert (made.care, made.first) == (QUICK, "identity")
    assert made.seeds == ((search, plain, best) if seeds else ())
    assert (made.learned is known) is learned
    assert made.learned.shares is known.shares
    search.made.clear()
    again(search, another)
    (made,) = search.made
    assert (made.care, made.first, made.seeds) == (SURE, None, ())


@dataclass(frozen=True)
class Before:
    """A question as far as a search begins from it."""

    confidence: float = 0.8
    pools: Any = None
    isl: Lengths = field(default_factory=lambda: Lengths(mean=5.0))
    osl: Lengths = field(default_factory=lambda: Lengths(mean=5.0))
    demand: Any = "demand"
    have: Any = "systems"
    growth_per_month: float | None = 0.1


def test_a_choice_keeps_the_knobs_that_it_has() -> None:
    of = question(tp="1")
    ready = contenders(of)[0].ready
    search = Search(question=of, runs=Runs(of.slo))
    best: Any = SimpleNamespace(ready=replace(ready, first=ready.trial))
    assert _with_its_knobs(search, of, best) == ()
    knobs = ready.trial.deployment.knobs
    wider = replace(ready.trial.deployment, knobs=replace(knobs, max_batch_size=16))
    tuned = replace(ready, trial=replace(ready.trial, deployment=wider), first=ready.trial)
    best.ready = tuned
    (seed,) = _with_its_knobs(search, replace(of, seed=9), best)
    assert seed.trial == tuned.trial
    assert seed.instance.traffic.seed == 9
    assert seed.instance.deployment == wider
    huge = replace(of.isl, mean=1e6)
    assert _with_its_knobs(search, replace(of, isl=huge), best) == ()
