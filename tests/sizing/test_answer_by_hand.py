"""The parts of a plan about its choice, put together from answers that are given."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.sizing.search.contenders import TPOT, TTFT, asked_for
from tonnage.plan.candidate import CurvePoint
from tonnage.plan.limit import SATURATION, THROUGHPUT, LimitUse, bound_by, limit_of
from tonnage.plan.plan import Explanation, StepTerm
from tonnage.results.metrics import Latencies
from tonnage.simulator.request import (
    CONTEXT_TOKENS,
    DECODE_SEQUENCES,
    DURATION,
    PREFILL_TOKENS,
    STEP_COLUMNS,
)
from tonnage.sizing import explain, planner
from tonnage.sizing.explain import (
    APART,
    BUSY,
    SHARES,
    _limits,
    _metrics_at,
    _point,
    _ttft_parts,
    explained,
    load_curve,
)
from tonnage.sizing.loads.fleet_check import Replayed
from tonnage.sizing.loads.instance import QUICK, SURE
from tonnage.sizing.progress import Steps


class Called:
    """Functions that give what they were called with."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def keep(self, name: str, answer: Any = None) -> Any:
        """A function of that name, which answers so, or with its name."""

        def call(*what: Any, **how: Any) -> Any:
            self.calls.append((name, *what, *how.values()))
            return name if answer is None else answer

        return call


# The plan.


def planned(
    monkeypatch: pytest.MonkeyPatch,
    *,
    found: tuple[str, ...] = ("first", "second"),
    best: Any = None,
    have: Any = (),
    offline: bool = False,
    deepen: bool = True,
    **how: Any,
) -> tuple[Any, Called]:
    """The plan of a search, and what it was made of."""
    called = Called()
    question = asked_for(1.0, have=have, offline=offline, deepen=deepen, check=called.keep("check"))
    answer = SimpleNamespace(
        found=found,
        best=best,
        rejected="rejected",
        prepared="prepared",
        check="checked",
        learned="learned",
    )
    searches: list[Any] = []

    class Searched(SimpleNamespace):
        def __init__(self, **what: Any) -> None:
            super().__init__(**what)
            searches.append(self)

        def answer(self) -> Any:
            return answer

    def described(of: Any, *, chosen: bool) -> Any:
        return SimpleNamespace(name=of, chosen=chosen, instances=len(of))

    monkeypatch.setattr(planner, "Search", Searched)
    monkeypatch.setattr(planner, "candidate", described)
    monkeypatch.setattr(planner, "replace", lambda of, **changed: type(of)(**vars(of) | changed))
    monkeypatch.setattr(planner, "Plan", SimpleNamespace)
    monkeypatch.setattr(planner, "pareto", len)
    monkeypatch.setattr(planner, "_parts", called.keep("parts"))
    monkeypatch.setattr(planner, "_side_by_side", called.keep("side", {"sensitivity": "swings"}))
    monkeypatch.setattr(planner, "existing", called.keep("existing", ("have", question, ("seed",))))
    for name in ("understood", "notes", "percentile_answer", "provenance", "job_done", "beyond"):
        monkeypatch.setattr(planner, name, called.keep(name))
    for name in ("reachable", "warnings"):
        monkeypatch.setattr(planner, name, called.keep(name))
    runs = SimpleNamespace(keep_requests=called.keep("keep"))
    plan = planner.size(question, **{"runs": runs, "workers": 3} | how)
    called.calls.append(searches)
    return plan, called


BEST = SimpleNamespace(ready=SimpleNamespace(instance="instance"))


@pytest.mark.parametrize("rows", [True, False])
@pytest.mark.parametrize("offline", [True, False])
def test_the_plan_is_put_together_from_its_parts(
    rows: bool, offline: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    decided: list[Any] = []
    plan, called = planned(
        monkeypatch, best=BEST, offline=offline, rows=rows, decided=decided.append, prune=False
    )
    names = ["first", "second"] if rows else ["first"]
    assert [(one.name, one.chosen) for one in plan.candidates] == [
        (name, name == "first") for name in names
    ]
    assert (plan.rejected, plan.reachable, plan.existing) == ("rejected", None, None)
    assert plan.pareto == (() if offline else len(names))
    assert (plan.fleet_check, plan.sensitivity) == ("checked", "swings")
    for name in ("notes", "percentile_answer", "provenance", "beyond", "warnings"):
        assert getattr(plan, name) == name
    assert (plan.scenario, plan.job) == ("understood", "job_done")
    calls = {call[0]: call[1:] for call in called.calls[:-1]}
    search, *_ = called.calls[-1]
    question = search.question
    assert calls["check"] == ()
    assert calls["keep"] == (question.slo,)
    assert (search.workers, search.prune, search.rows, search.seeds) == (3, False, rows, ())
    assert calls["job_done"] == (question, "instance", len("first"))
    assert calls["percentile_answer"] == (BEST, plan.candidates[0])
    assert calls["beyond"] == (BEST, plan.candidates[0])
    assert calls["notes"] == (question, BEST, plan.candidates)
    assert calls["provenance"] == (question, plan.candidates)
    assert calls["warnings"] == (BEST, "swings")
    with_learned, best = calls["parts"]
    assert (with_learned.learned, best) == ("learned", BEST)
    assert calls["side"] == ("parts", search.steps, 3)
    assert "reachable" not in calls
    (before,) = decided
    assert not hasattr(before, "warnings")
    assert before.candidates == plan.candidates


def test_a_plan_without_a_choice_says_what_is_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, called = planned(monkeypatch, found=(), have=("systems",))
    calls = {call[0]: call[1:] for call in called.calls[:-1]}
    search, *_ = called.calls[-1]
    assert (plan.candidates, plan.reachable, plan.existing) == ((), "reachable", "have")
    assert calls["reachable"] == (search.question, search.runs, "prepared", "rejected")
    assert (plan.percentile_answer, plan.job, plan.beyond) == (None, None, ())
    assert search.seeds == ("seed",)
    assert calls["existing"] == (search.question, search.runs, search.steps, 3)
    assert not {"parts", "side", "warnings"} & set(calls)
    decided: list[Any] = []
    plain, called = planned(monkeypatch, best=BEST, deepen=False, decided=decided.append)
    assert not hasattr(plain, "warnings")
    assert decided == []


@pytest.mark.parametrize(
    ("changed", "narrow", "names"),
    [
        (
            {},
            True,
            "narrow_cache sensitivity prefix_cache explain routers tail curve pools_instead",
        ),
        ({}, False, "sensitivity prefix_cache explain routers tail curve pools_instead"),
        ({"load": "closed"}, False, "sensitivity prefix_cache explain routers tail"),
        ({"offline": True}, False, "sensitivity prefix_cache"),
        (
            {"pools": "two"},
            False,
            "sensitivity prefix_cache explain routers tail curve together_instead",
        ),
        ({"offline": True, "pools": "two"}, False, "sensitivity prefix_cache together_instead"),
        (
            {"sharing": SimpleNamespace(recorded=None)},
            False,
            "sensitivity prefix_cache explain routers tail curve pools_instead",
        ),
        ({"sharing": SimpleNamespace(recorded="sessions")}, True, "explain curve sessions"),
        (
            {"sharing": SimpleNamespace(recorded="sessions"), "session_tiers": True},
            True,
            "session_tiers explain curve sessions",
        ),
    ],
)
def test_what_is_said_about_a_choice(
    changed: dict[str, Any], narrow: bool, names: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = SimpleNamespace(
        question=asked_for(1.0, **{"sharing": None, "session_tiers": False} | changed)
    )
    monkeypatch.setattr(planner, "narrowable", lambda best: narrow)
    functions = {
        "narrow_cache": ("narrow_cache", search, BEST),
        "sensitivity": ("sensitivity", search, BEST),
        "prefix_cache": ("prefix_cache", BEST),
        "explain": ("explained", BEST),
        "routers": ("behind_routers", BEST),
        "tail": ("unreached", search, BEST),
        "curve": ("load_curve", BEST),
        "pools_instead": ("pools_instead", search, BEST),
        "together_instead": ("together_instead", search, BEST),
        "sessions": ("held_sessions", BEST),
        "session_tiers": ("session_tiers", BEST),
    }
    for name, *_ in functions.values():
        monkeypatch.setattr(planner, name, lambda *what, name=name: (name, *what))
    parts = planner._parts(search, BEST)  # type: ignore[arg-type]
    assert {name: part() for name, part in parts.items()} == {
        name: functions[name] for name in names.split()
    }
    assert set(planner.NAMES) == set(functions)


def test_parts_are_made_side_by_side_and_told() -> None:
    heard: list[Any] = []
    steps = Steps(lambda done, known, name: heard.append((done, known, name)))
    parts = {"curve": lambda: 1, "tail": lambda: 2}
    assert planner._side_by_side(parts, steps, 1) == {"curve": 1, "tail": 2}
    assert [name for _, _, name in heard] == ["latency against load", "higher confidence"]
    assert heard[-1][:2] == (2, 2)


# Why the chosen point is where it is.


def latencies(mean: float | None = None) -> Latencies:
    return Latencies(mean=mean)


def summary(ttft_s: float = 0.5, tpot_s: float = 0.1, e2e_ms: float | None = 2_000.0) -> Any:
    values = {"ttft": ttft_s, "tpot": tpot_s}
    return SimpleNamespace(
        limit_s=lambda limit: values[limit.metric],
        ttft_ms=latencies(1.0),
        itl_ms=latencies(2.0),
        tpot_ms=latencies(3.0),
        e2e_ms=latencies(e2e_ms),
    )


def chosen(**changed: Any) -> Any:
    """A choice of three instances of four GPUs, which carry 8 requests/s each of the 20 that are
    asked for."""
    deployment = SimpleNamespace(parallelism=SimpleNamespace(gpus=4, dp=2))
    question = asked_for(20.0, osl=SimpleNamespace(mean=50.0), replays_lengths=False, **changed)
    contender = SimpleNamespace(
        question=question,
        load=20.0,
        running="running",
        runs="runs",
        instance=SimpleNamespace(recorded_sessions=None),
        saturation=lambda: 10.0,
        at_peak=lambda: SimpleNamespace(
            seen=lambda systems: SimpleNamespace(summary=f"peak of {systems}")
        ),
        seen=lambda instances, rate, care: SimpleNamespace(summary=(instances, rate, care)),
    )
    capacity = SimpleNamespace(rate=8.0, binds=None, summary=summary(), concurrency=12.4)
    ready = SimpleNamespace(trial=SimpleNamespace(deployment=deployment))
    return SimpleNamespace(
        contender=contender,
        as_predicted=capacity,
        ready=ready,
        instances=3,
        systems=2,
        care=SURE,
    )


@pytest.mark.parametrize("binds", [None, bound_by(TTFT), THROUGHPUT, replace(THROUGHPUT)])
@pytest.mark.parametrize("drafted", [True, False])
def test_a_choice_taken_apart(binds: Any, drafted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fifth of ten steps is left out; the others take 10 ms, of which 4 are weights and 5 the
    cache."""
    best = chosen()
    best.as_predicted.binds = binds
    steps = np.zeros((10, STEP_COLUMNS), np.int64)
    steps[:, DURATION] = [10**12, 10**12, *[10**10] * 8]
    steps[:, PREFILL_TOKENS] = [900, 900, *range(8)]
    steps[:, DECODE_SEQUENCES] = [900, 900, *range(10, 18)]
    steps[:, CONTEXT_TOKENS] = [900, 900, *range(100, 108)]
    instance = SimpleNamespace(
        step=SimpleNamespace(drafting="guesses" if drafted else None, coefficients="c"),
        deployment=best.ready.trial.deployment,
        front_end_busy=lambda rate, steps_per_s: rate * steps_per_s / 1e4,
    )
    best.contender.recorded = lambda capacity, most: (instance, 7.5, steps)
    looked: list[Any] = []

    def terms(c: Any, rows: Any, drafting: Any, ranks: int) -> Any:
        looked.append((c, len(rows), drafting, ranks))
        return {"weights": np.full(8, 4e-3), "kv": np.linspace(4e-3, 6e-3, 8)}

    monkeypatch.setattr(explain, "step_terms", terms)
    monkeypatch.setattr(explain, "_ttft_parts", lambda of: ("parts", of))
    found = explained(best)
    job = binds == THROUGHPUT
    parts = {"kv": 5e-3, "weights": 4e-3} | ({"drafter": 1e-3} if drafted else {})
    assert looked == [("c", 8, "guesses" if drafted else None, 2)]
    assert found == Explanation(
        requests_per_second_per_instance=8.0,
        step_seconds=0.01,
        prefill_tokens=3.5,
        decode_sequences=13.5,
        context_tokens=103.5,
        terms=tuple(
            StepTerm(term=name, seconds=pytest.approx(seconds), share=pytest.approx(100 * seconds))
            for name, seconds in parts.items()
        ),
        binds="kv",
        limits=_limits(best),
        binding_limit=binds or SATURATION,
        front_end_busy=0.0 if job else pytest.approx(7.5 * 100 / 1e4),
        ttft=() if job else ("parts", best),  # type: ignore[arg-type]
    )


def test_the_share_of_each_limit_that_is_used() -> None:
    best = chosen()
    assert _limits(best) == (
        LimitUse(limit=limit_of(TTFT), value_ms=500.0, used=0.25),
        LimitUse(limit=limit_of(TPOT), value_ms=100.0, used=0.2),
    )
    best.as_predicted.summary = summary(tpot_s=math.nan)
    assert _limits(best)[1] == LimitUse(limit=limit_of(TPOT), value_ms=None, used=None)


@pytest.mark.parametrize("load", ["recorded", "closed", "open"])
def test_the_run_that_found_the_load_is_made_once_more(
    load: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    best, called = chosen(load="closed" if load == "closed" else "open"), Called()
    instance = SimpleNamespace(
        spec="spec",
        traffic=SimpleNamespace(seed=5),
        closed=lambda clients, requests: ("closed", clients, requests),
        open=lambda rate, requests, seed, count: ("open", rate, requests, seed, count),
        requests_of=lambda rate, care, count: (care, count),
    )
    best.contender.simulated = lambda instances, rate: (instance, instances - 1, rate + 0.3)
    if load == "recorded":
        stretched = SimpleNamespace(at_mean=lambda rate: f"at {rate:g}")
        best.contender.question.recording = stretched
    keys: list[Any] = []

    def once(key: Any, run: Any) -> Any:
        keys.append(key)
        return run()

    best.contender.runs = SimpleNamespace(once=once)
    monkeypatch.setattr(explain, "ttft_parts", lambda record, spec: (record, spec))
    monkeypatch.setattr(explain, "middle", lambda record: record)
    monkeypatch.setattr(explain, "place_of", lambda rate: round(10 * rate))
    monkeypatch.setattr(explain, "on_lattice", lambda place: place / 10)
    monkeypatch.setattr(explain, "WIDTH", {SURE: 4})
    monkeypatch.setattr(explain, "fleet_record", called.keep("fleet", ("record", "more")))
    parts: Any = _ttft_parts(best)
    record, spec = parts
    assert spec == "spec"
    if load == "recorded":
        assert record == "record"
        replayed = Replayed(recording="at 24", lengths=False)  # type: ignore[arg-type]
        assert called.calls == [("fleet", instance, 24.0, 3, replayed)]
    elif load == "closed":
        rounds = explain.CLOSED_ROUNDS * 12
        assert record == ("closed", 12, max(explain.ALONE_REQUESTS, rounds))
    else:
        # 8.3 is place 83 of the lattice, and 80 a whole number of widths
        assert record == ("open", 8.0, (SURE, 2), 5, 2)
        assert keys == [(instance, "record", 8.0, (SURE, 2), 2)]


@pytest.mark.parametrize(
    ("rate", "saturation", "marked"),
    [(8.0, 10.0, {8.0: "limit", 20 / 3: "peak"}), (12.0, 12.0, {12.0: "limit", 20 / 3: "peak"})],
)
def test_the_loads_of_a_curve(
    rate: float, saturation: float, marked: dict[float, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shares of saturation that are no nearer than 3 % to the peak and to the highest inside."""
    best = chosen()
    best.as_predicted.rate = rate
    monkeypatch.setattr(explain, "_point", lambda best, *what: what)
    points: Any = load_curve(best)
    loads = dict.fromkeys((share * saturation for share in SHARES), "")
    loads = {
        load: mark
        for load, mark in loads.items()
        if min(abs(load / at - 1) for at in marked) > APART
    }
    assert len(loads) == (8 if rate == 8.0 else 7)
    assert points == tuple(
        (load, mark, saturation) for load, mark in sorted((loads | marked).items())
    )
    assert (SHARES[0], SHARES[-1], len(SHARES)) == (0.1, 0.98, 9)


def test_the_metrics_at_a_load(monkeypatch: pytest.MonkeyPatch) -> None:
    best = chosen()
    assert _metrics_at(best, 4.0, "peak", 10.0) == "peak of 2"
    assert _metrics_at(best, 8.0, "limit", 10.0) is best.as_predicted.summary
    assert _metrics_at(best, BUSY * 10.0, "", 10.0) == (3, 5.0, SURE)
    assert _metrics_at(best, BUSY * 9.9, "", 10.0) == (3, BUSY * 9.9, QUICK)
    best.contender.instance.recorded_sessions = "sessions"
    assert _metrics_at(best, 9.0, "", 10.0) == (3, 9.0, QUICK)
    called = Called()
    seen = SimpleNamespace(summary="replayed")
    monkeypatch.setattr(explain, "fleet_seen", called.keep("seen", seen))
    best.contender.question.recording = SimpleNamespace(at_mean=lambda rate: f"at {rate:g}")
    assert _metrics_at(best, 4.0, "peak", 10.0) == "replayed"
    replayed = Replayed(recording="at 12", lengths=False)  # type: ignore[arg-type]
    assert called.calls == [("seen", "runs", "running", 12.0, 3, replayed)]


@pytest.mark.parametrize(
    ("rate", "mark", "seen", "inside"),
    [
        (4.0, "", summary(), True),
        (4.0, "", summary(ttft_s=2.1), False),
        (8.0, "limit", summary(ttft_s=2.1), True),
        (8.0, "", summary(), True),
        (8.1, "", summary(), False),
        (6.0, "peak", summary(e2e_ms=None), True),
    ],
)
def test_a_point_of_a_curve(
    *, rate: float, mark: Any, seen: Any, inside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explain, "_metrics_at", lambda *what: seen)
    assert _point(chosen(), rate, mark, 10.0) == CurvePoint(
        mark=mark,
        requests_per_second_per_instance=rate,
        requests_per_second_per_8_gpus=2 * rate,
        output_tokens_per_second_per_8_gpus=100 * rate,
        concurrency_per_instance=None if seen.e2e_ms.mean is None else 2 * rate,
        share_of_saturation=rate / 10,
        inside_limits=inside,
        ttft_ms=seen.ttft_ms,
        itl_ms=seen.itl_ms,
        tpot_ms=seen.tpot_ms,
        e2e_ms=seen.e2e_ms,
    )
