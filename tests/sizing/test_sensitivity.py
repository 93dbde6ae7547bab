"""Every figure of the sensitivity is that of the plan run again with the changed input, whose knobs
may then be searched anew."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

import tonnage
from tests.in_turn import in_turn
from tests.questions import SMALL, best, contender, contenders, plans_with, question
from tests.sizing.explained import ASKED
from tonnage.api.sizing import ask
from tonnage.plan.limit import Breach, limit_of
from tonnage.plan.notes import LengthsVary
from tonnage.plan.plan import Plan
from tonnage.plan.reason import BrokenAtAnyLoad, NothingMeetsLimits, NotSure
from tonnage.plan.sensitivity import Changed, OtherSystems, RelaxedLimit
from tonnage.report.numbers import counted
from tonnage.report.plans.candidates import reason_text
from tonnage.report.plans.explained import relaxed_text
from tonnage.sizing.loads.confidence import Slowdown
from tonnage.sizing.loads.instance import QUICK, SURE, Care
from tonnage.sizing.loads.runs import Runs
from tonnage.sizing.planner import size
from tonnage.sizing.question import Question
from tonnage.sizing.search.deployment_capacity import DOUBT, Sized
from tonnage.sizing.search.search import Search
from tonnage.sizing.sensitivity import (
    CHANGE,
    _care,
    _changed,
    _steep,
    again,
    changed_question,
    narrow_cache,
    narrowable,
    other_spreads,
    rounded_up,
    sensitivity,
    unreached,
)
from tonnage.spec.catalog.accuracy import cache_losses
from tonnage.spec.catalog.entries import recorded_lengths
from tonnage.spec.lengths import Lengths

few_parts = plans_with("sensitivity")


@pytest.fixture(scope="module")
def plan(asked: Question) -> Plan:
    return size(asked)


@pytest.mark.parametrize(("place", "sign"), in_turn(range(4), [-1, 1], one_of=4))
def test_a_swing_is_the_plan_run_again_with_the_same_knobs(
    plan: Plan, asked: Question, place: int, sign: int
) -> None:
    swing = plan.sensitivity.swings[place]
    again = size(replace(changed_question(asked, swing.input, sign * CHANGE), deepen=False)).choice
    found = swing.low if sign < 0 else swing.high
    assert abs(found.systems - again.systems) <= 1
    assert found.systems_exact == pytest.approx(again.systems_exact, rel=0.05)
    assert sign * (found.systems_exact - plan.sensitivity.systems_exact) >= 0
    # its fraction is of short runs, where no run could change the whole systems
    if swing.input == "rate":
        assert found.systems == again.systems


def test_a_changed_question_is_what_a_user_would_type(asked: Question) -> None:
    typed = {"isl": {"isl": 1200}, "osl": {"osl": 80}, "rate": {"peak_rps": 600}}
    for name, values in typed.items():
        change = -0.2 if name == "osl" else 0.2
        rerun, ours = question(**{**ASKED, **values}), changed_question(asked, name, change)
        assert replace(ours, demand=rerun.demand) == rerun
        assert ours.demand.peak_requests_per_second == rerun.demand.peak_requests_per_second
        assert ours.demand.sizing_requests_per_second == rerun.demand.sizing_requests_per_second


@pytest.mark.accuracy
def test_what_was_second_is_tried_again_where_steps_are_faster() -> None:
    """FP16 is second, and with steps a fifth faster takes the fewest GPUs."""
    asked = ask(
        model="qwen3-32b",
        gpu="gb200,mi355x",
        isl=1400,
        osl=150,
        ttft="p95<=2.8s",
        itl="p99<=70ms",
        peak_rps=3.0,
        engine="vllm",
    ).questions[0]
    search = Search(question=asked, runs=Runs(), rows=False)
    answer, changed = search.answer(), changed_question(asked, "step_time", -0.2)
    found = again(replace(search, learned=answer.learned), changed, answer.best, care=QUICK).best
    directly = replace(search, question=changed, runs=Runs()).answer().best
    assert found is not None
    assert directly is not None
    assert answer.best is not None
    assert (
        answer.best.ready.trial.deployment.precision.name
        != directly.ready.trial.deployment.precision.name
    )
    assert found.gpus_exact == pytest.approx(directly.gpus_exact, rel=0.1)


def test_more_of_anything_needs_no_fewer_systems(plan: Plan) -> None:
    for swing in plan.sensitivity.swings:
        assert swing.low.systems_exact <= plan.sensitivity.systems_exact
        assert swing.high.systems_exact >= plan.sensitivity.systems_exact
        assert {swing.low.change, swing.high.change} == {-0.2, 0.2}


@pytest.fixture(scope="module")
def tight() -> Plan:
    """A load that is just too much for one system."""
    return tonnage.size(
        **{
            **ASKED,
            "tp": 1,
            "precision": "fp8",
            "engine": "tensorrt-llm-0.15",
            "peak_rps": 600,
            "ttft": "p95<=70ms",
        }
    )


def test_the_relaxed_limit_saves_a_system_and_a_slightly_stricter_one_does_not(tight: Plan) -> None:
    relaxed = tight.sensitivity.relaxed
    assert (
        relaxed_text(relaxed)
        == f"TTFT p95 70 → {relaxed.to_ms:g} ms: one system fewer, {counted(relaxed.gpus, 'GPU')}"
        " in all"
    )
    assert relaxed.gpus == 8 * relaxed.systems
    systems = []
    for limit_ms in (relaxed.to_ms, 70 + 0.6 * (relaxed.to_ms - 70)):
        asked = {
            **ASKED,
            "tp": 1,
            "precision": "fp8",
            "engine": "tensorrt-llm-0.15",
            "peak_rps": 600,
            "ttft": f"p95<={limit_ms}ms",
        }
        choice = size(replace(question(**asked), deepen=False)).choice
        systems.append(choice.systems)
    assert systems == [relaxed.systems, tight.choice.systems]
    assert relaxed.systems == tight.choice.systems - 1


def test_an_input_that_no_deployment_survives_says_why() -> None:
    """The limit lies between the TTFT of an empty engine at the prompt that was asked for and at
    one a fifth longer."""
    asked = {"tp": "1", "isl": "exact:4000", "osl": 10, "peak_rps": 1}
    limit_ms = 1e3 * 1.1 * contender(**asked).instance.unloaded_ttft_s()
    plan = size(question(**asked, ttft=f"p95<={limit_ms}ms"))
    high = plan.sensitivity.swings[0].high
    assert high.systems is None
    assert isinstance(high.reason, BrokenAtAnyLoad)
    assert reason_text(high.reason).startswith("TTFT p95 ")
    assert reason_text(high.reason).endswith(" at any load")


def test_a_row_that_only_a_lower_confidence_reaches_names_no_number(asked: Question) -> None:
    search = Search(question=replace(asked, tune=False), runs=Runs(), rows=False)
    best = search.answer().best
    assert best is not None
    found = sensitivity(search, replace(best, level=0.99)).swings
    assert [row.systems for swing in found for row in (swing.low, swing.high)] == [None] * 8
    assert {type(row.reason) for swing in found for row in (swing.low, swing.high)} == {NotSure}


def test_short_runs_are_of_the_instances_that_they_ask_for() -> None:
    # two systems, where the closed form says one
    one = contender(**{**ASKED, "tp": "2", "peak_rps": 200, "ttft": "p95<=30ms"})
    systems, found = one.needed(care=QUICK)  # type: ignore[misc]
    assert found.rate == one.capacity(one.layout.of(systems).instances, care=QUICK).rate


def test_a_kv_cache_in_fp8_saves_what_the_same_question_with_it_needs() -> None:
    """And nothing is proposed where its format was said, where it is latent, where the GPU has no
    FP8, or where it is all but empty."""
    asked = {
        "model": "qwen3-32b",
        "tp": "2",
        "engine": "vllm",
        "isl": 8_000,
        "osl": 1_000,
        "peak_rps": 20,
        "ttft": "p95<=3s",
    }
    first, *others = (
        question(**asked | changed)
        for changed in (
            {"precision": "fp8"},
            {"precision": "fp8+kv-fp16"},
            {"precision": "fp8", "model": "deepseek-v3", "gpu": "h200", "tp": "8"},
            {"precision": "fp16", "gpu": "a100"},
            {"precision": "fp8", "isl": 500, "osl": 10},
        )
    )
    chosen = best(first)
    narrow = narrow_cache(Search(question=first, runs=Runs(first.slo), rows=False), chosen)
    direct = best(question(**asked | {"precision": "fp8+kv-fp8"}))
    assert narrow is not None
    assert narrowable(chosen)
    most = chosen.ready.instance.memory.concurrent_requests(8_000, 1_000)
    for share in (0.24, 0.26):
        carried = replace(chosen.capacity, concurrency=share * most)
        assert narrowable(replace(chosen, capacity=carried)) is (share > 0.25)
    assert (narrow.gpus, narrow.systems_exact) == (direct.gpus, direct.gpus_exact / 8)
    assert narrow.systems_exact < 0.95 * chosen.gpus_exact / 8
    assert narrow.times == pytest.approx(2.0, rel=0.01)
    assert [loss.benchmark for loss in narrow.losses] == ["reasoning", "long contexts"]
    assert [asked.precisions[0].name for asked in others if narrowable(best(asked))] == []


@pytest.mark.parametrize(
    ("care", "short", "made"),
    [
        (SURE, (True, True, 0.9), [(SURE, False, True)]),
        (QUICK, (False, False, 0.9), [(QUICK, False, True)]),
        (QUICK, (True, False, 0.9), [(QUICK, False, True), (SURE, True, False)]),
        (QUICK, (False, True, 0.9), [(QUICK, False, True), (SURE, True, False)]),
        (
            QUICK,
            (True, True, 0.8),
            [(QUICK, False, True), (SURE, True, False), (SURE, False, True)],
        ),
        (
            QUICK,
            (True, True, None),
            [(QUICK, False, True), (SURE, True, False), (SURE, False, True)],
        ),
    ],
)
def test_short_runs_are_counted_again_where_they_leave_a_doubt_and_searched_again_where_it_fails(
    care: Care,
    short: tuple[bool, bool, float | None],
    made: list[tuple[Care, bool, bool]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    in_doubt, steep, level = short
    answered: list[tuple[Care, bool, bool]] = []
    ready = contender().ready

    def answer(search: Search) -> SimpleNamespace:
        answered.append((search.care, search.only, search.question.tune))
        own = level if search.only else 0.9
        best = SimpleNamespace(in_doubt=in_doubt, level=own, ready=ready, number=len(answered))
        return SimpleNamespace(best=None if own is None else best)

    monkeypatch.setattr(Search, "answer", answer)
    monkeypatch.setattr("tonnage.sizing.sensitivity._steep", lambda found, best: steep)
    asked = question(**SMALL)
    found = again(Search(question=asked, runs=Runs(asked.slo)), asked, care=care)
    assert answered == made
    assert found.best.number == len(made)


# Without a search: what is looked at, and what is made of its answers.


@pytest.mark.parametrize(
    ("seconds", "rounded"),
    [
        (0.0714, 0.072),
        (0.1234, 0.124),
        (0.25, 0.25),
        (0.3, 0.3),
        (0.301, 0.31),
        (1.0, 1.0),
        (2.991, 3.0),
        (29.91, 30.0),
        (31.0, 31.0),
        (3.01e-3, 3.1e-3),
    ],
)
def test_limits_are_rounded_up_to_two_digits_or_to_three(seconds: float, rounded: float) -> None:
    assert rounded_up(seconds) == rounded


def test_a_change_is_steep_beyond_a_factor() -> None:
    def of(gpus: float) -> Sized:
        return SimpleNamespace(gpus_exact=gpus)  # type: ignore[return-value]

    assert not _steep(of(10.0), None)
    found = [_steep(of(gpus), of(10.0)) for gpus in (7.6, 7.7, 10.0, 12.9, 13.1)]
    assert found == [True, False, False, False, True]


@pytest.mark.parametrize(
    ("objective", "reason", "rate", "care"),
    [
        ("gpus", None, 10.0, QUICK),
        ("gpus", None, 10.0 * (1 + 1.9 * DOUBT), QUICK),
        ("gpus", None, 10.0 * (1 - 1.9 * DOUBT), QUICK),
        ("gpus", None, 10.0 * (1 + 2.1 * DOUBT), SURE),
        ("gpus", "broken", 10.0, SURE),
        ("latency", None, 10.0, SURE),
    ],
)
def test_runs_are_short_where_short_ones_find_the_load_of_the_choice(
    objective: str, reason: str | None, rate: float, care: Care
) -> None:
    contender = SimpleNamespace(
        question=SimpleNamespace(objective=objective),
        capacity=lambda instances, slowdown, care: SimpleNamespace(rate=rate, reason=reason),
    )
    chosen = SimpleNamespace(
        contender=contender, instances=3, slowdown=1.0, capacity=SimpleNamespace(rate=10.0)
    )
    assert _care(chosen) == care  # type: ignore[arg-type]


@pytest.fixture
def four() -> tuple[Search, Sized]:
    """A choice of four systems with a spare one, at 80 %, whose deployment is real."""
    of = question(**SMALL, spare=1)
    real = contenders(of)[0]
    spread = {0.5: 1.0, 0.8: 1.25, 0.9: 1.5, 0.95: 2.0}
    fake = SimpleNamespace(
        question=of,
        as_asked=Slowdown(steps=1.0),
        slowdown=lambda level: Slowdown(
            steps=spread[level], latencies={"ttft_ms": 2 * spread[level]}
        ),
        settled=lambda slowdown: {1.5: 8, 2.0: 9}[slowdown.steps],
        alone_at=lambda slowdown: Breach(limit=limit_of(of.limits[0]), value_ms=400.0),
    )
    chosen = SimpleNamespace(
        contender=fake,
        ready=real.ready,
        level=0.8,
        systems=4,
        gpus=40,
        gpus_exact=30.0,
        slowdown=fake.slowdown(0.8),
    )
    search = Search(question=replace(of, confidence=0.9), runs=Runs(of.slo))
    return search, chosen  # type: ignore[return-value]


def answers(monkeypatch: pytest.MonkeyPatch, **found: Any) -> list[Question]:
    """Every further question is answered so; the questions."""
    asked: list[Question] = []

    def again(search: Search, one: Question, best: Sized, *, care: Care) -> SimpleNamespace:
        asked.append(one)
        return SimpleNamespace(
            best=SimpleNamespace(**found) if found.get("level") else None,
            rejected=found.get("rejected", ()),
        )

    monkeypatch.setattr("tonnage.sizing.sensitivity.again", again)
    monkeypatch.setattr("tonnage.sizing.sensitivity._care", lambda best: QUICK)
    return asked


def test_the_lowest_confidence_that_no_number_reaches_says_what_does(
    four: tuple[Search, Sized], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight systems are twice the choice and still bought; nine at 95 % are not."""
    search, chosen = four
    other = contenders(question(**{**SMALL, "tp": "2"}))[0].ready
    found = {"level": 0.95, "systems": 6, "gpus": 56, "ready": other}
    asked = answers(monkeypatch, **found)
    missing = unreached(search, chosen)
    assert missing is not None
    assert (missing.confidence, missing.step_factor) == (0.95, 2.0)
    assert missing.alone == chosen.contender.alone_at(chosen.slowdown)
    assert missing.other == OtherSystems(
        deployment=other.trial.identity, system="dgx-h100", systems=7, gpus=56
    )
    # 300 ms by 2 · 2 over 2 · 1.25
    assert missing.relaxed == RelaxedLimit(
        limit=limit_of(search.question.limits[0]),
        to_ms=480.0,
        system="dgx-h100",
        systems=7,
        gpus=56,
    )
    assert [one.confidence for one in asked] == [0.95, 0.95]
    assert [one.slo[0].seconds for one in asked] == [0.3, pytest.approx(0.48)]
    for level, ready in ((0.9, other), (None, other)):
        answers(monkeypatch, **found | {"level": level, "ready": ready})
        missing = unreached(search, chosen)
        assert missing is not None
        assert missing.other is missing.relaxed is None
    answers(monkeypatch, **found | {"ready": chosen.ready})
    missing = unreached(search, chosen)
    assert missing is not None
    assert missing.other is None  # the choice itself
    assert missing.relaxed is not None
    monkeypatch.setattr(chosen.contender, "settled", lambda slowdown: 8)
    assert unreached(search, chosen) is None
    monkeypatch.setattr(chosen.contender, "settled", lambda slowdown: None)
    missing = unreached(search, chosen)
    assert missing is not None
    assert missing.confidence == 0.9


SOURCES = ("first source", "second source")


@pytest.mark.parametrize(
    ("level", "fewer", "saves"),
    [
        (0.8, (28.4, 40), True),  # more than a twentieth of 30
        (0.8, (28.6, 40), False),
        (0.8, (28.6, 32), True),  # a whole system
        (0.9, (20.0, 32), True),
        (0.5, (20.0, 32), False),
        (None, (20.0, 32), False),
    ],
)
def test_a_narrow_cache_has_to_save_something_at_the_same_confidence(
    four: tuple[Search, Sized],
    monkeypatch: pytest.MonkeyPatch,
    level: float | None,
    fewer: tuple[float, int],
    saves: bool,
) -> None:
    gpus_exact, gpus = fewer
    search, chosen = four
    losses = [
        replace(loss, source=source) for loss, source in zip(cache_losses(), SOURCES, strict=True)
    ]
    monkeypatch.setattr("tonnage.sizing.sensitivity.cache_losses", lambda: losses)
    ready = chosen.ready
    found = {"systems": 3, "gpus": gpus, "gpus_exact": gpus_exact, "ready": ready}
    asked = answers(monkeypatch, level=level, **found)
    narrow = narrow_cache(search, chosen)
    assert [one.precisions[0].kv for one in asked] == ["fp8"]
    assert (narrow is not None) is saves
    if narrow is not None:
        assert (narrow.systems, narrow.gpus) == (4, gpus)
        assert narrow.systems_exact == gpus_exact / 8
        assert narrow.system == "dgx-h100"
        assert (narrow.deployment, narrow.source) == (ready.trial.identity, "first source")
        assert narrow.times == 1.0  # FP8 keeps it in 8 bits there
        for loss, published in zip(narrow.losses, cache_losses(), strict=True):
            percent = published.percent.values()
            assert (loss.least, loss.most) == (min(percent), max(percent))


def test_a_changed_question_is_answered_as_surely_as_the_choice(
    four: tuple[Search, Sized], monkeypatch: pytest.MonkeyPatch
) -> None:
    search, chosen = four
    found = {"systems": 5, "gpus": 48, "gpus_exact": 44.0, "ready": chosen.ready}
    answers(monkeypatch, level=0.8, **found)
    changed = _changed(search, chosen, search.question, 0.2, QUICK)
    assert changed == Changed(
        change=0.2,
        systems=6,  # with the spare one
        systems_exact=5.5,
        deployment=chosen.ready.trial.identity,
        gpus=48,
        reason=None,
    )
    rejected = [SimpleNamespace(reason="first"), SimpleNamespace(reason="second")]
    answers(monkeypatch, level=None, rejected=rejected)
    nothing = _changed(search, chosen, search.question, -0.2, QUICK)
    assert (nothing.reason, nothing.systems, nothing.change) == ("first", None, -0.2)
    answers(monkeypatch, level=None)
    nothing = _changed(search, chosen, search.question, -0.2, QUICK)
    assert nothing.reason == NothingMeetsLimits()


@pytest.mark.parametrize(
    ("share", "recorded", "context", "names"),
    [
        (0.2, "", 10**6, ["exact", "nearest"]),
        (0.1, "", 10**6, ["exact", "20%", "nearest"]),
        (0.0, "chat", 10**6, ["exact", "20%"]),
        (0.1, "", 1_320, ["exact", "20%"]),  # recorded lengths go beyond
        (0.1, "", 1_319, ["exact"]),  # 1,200 and 120 tokens
    ],
)
def test_other_spreads_are_those_that_the_question_does_not_have(
    share: float, recorded: str, context: int, names: list[str]
) -> None:
    note = LengthsVary(which=("isl", "osl"), share=share, recorded=recorded)
    of = replace(
        question(**SMALL), remarks=(note,), isl=Lengths(mean=1_000.0), osl=Lengths(mean=100.0)
    )
    of = replace(of, model=replace(of.model, max_context=context))
    nearest = min(recorded_lengths().values(), key=lambda row: row.apart(1_000.0, 100.0))
    found = other_spreads(of)
    assert list(found) == [nearest.name if name == "nearest" else name for name in names]
    for variant in found.values():
        assert (variant.isl.mean, variant.osl.mean) == (1_000.0, 100.0)
        assert variant.isl.longest + variant.osl.longest <= context
    assert found["exact"].isl.longest == 1_000
    if "20%" in found:
        assert (found["20%"].isl.longest, found["20%"].osl.longest) == (1_200, 120)
    one = replace(note, which=("isl",))
    only = other_spreads(replace(of, remarks=(one,)))
    assert all(variant.osl == of.osl for variant in only.values())
    assert other_spreads(replace(of, remarks=())) == {}
