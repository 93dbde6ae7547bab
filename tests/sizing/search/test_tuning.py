"""The knobs that matter: what changing one of them brings."""

from __future__ import annotations

from dataclasses import make_dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.deployments import knobs_of
from tests.questions import best, contenders, question
from tests.sizing.loads.small_instance import Small
from tests.sizing.search.contenders import (
    IDENTITY,
    TPOT,
    asked_for,
    capacity_of,
    carrying,
    early,
)
from tonnage.errors import InputError
from tonnage.plan.limit import SATURATION, Breach, bound_by, limit_of
from tonnage.plan.notes import KnobChange
from tonnage.plan.reason import Behind
from tonnage.sizing.loads.instance import QUICK
from tonnage.sizing.loads.runs import Runs
from tonnage.sizing.search.deployment_capacity import Contender
from tonnage.sizing.search.search import Search
from tonnage.sizing.search.search_space import trials
from tonnage.sizing.search.tuning import (
    BATCH,
    BESIDE,
    FRONT_END_BUSY,
    FRONT_ENDS,
    KEPT_SHARE,
    TOKENS,
    _ends,
    _full_step_s,
    _ways,
    changes,
    fitted,
    tries_front_ends,
    variants,
)
from tonnage.spec.deployment import EngineKnobs, Limit

GAPS: dict[str, Any] = {
    "isl": 6000,
    "osl": 200,
    "tp": "1",
    "peak_rps": 40,
    "ttft": "p95<=3s",
    "itl": "p99<=60ms",
}


def with_knobs(one: Contender, **knobs: Any) -> Contender:
    """The same deployment with other knobs."""
    deployment = replace(one.instance.deployment, knobs=replace(one.instance.knobs, **knobs))
    instance = one.runs.instance(deployment, one.instance.traffic)
    return replace(
        one,
        ready=replace(
            one.ready, trial=replace(one.ready.trial, deployment=deployment), instance=instance
        ),
    )


def test_a_limit_on_gaps_sets_the_token_budget_and_pays() -> None:
    """With the engine's own budget every long prompt is one long gap for all others."""
    asked = question(**GAPS)
    own = next(iter(trials(asked))).deployment.knobs.max_num_tokens
    one = contenders(asked)[0]
    assert one.instance.knobs.max_num_tokens < own
    assert one.capacity(4).rate > 2 * with_knobs(one, max_num_tokens=own).capacity(4).rate


@pytest.mark.parametrize("itl", ["p99<=2s", "mean 60ms"])
def test_the_engines_own_budget_stays_where_it_keeps_the_limit(itl: str) -> None:
    asked = question(**GAPS | {"itl": itl})
    one = contenders(asked)[0]
    assert fitted(one.instance, asked.limits) == one.ready.first.deployment.knobs


@pytest.mark.parametrize(
    "limits",
    [
        pytest.param({"ttft": "p95<=250ms"}, marks=pytest.mark.accuracy),
        {"ttft": None, "itl": "p99<=25ms"},
    ],
)
def test_tuning_finds_what_the_search_of_every_setting_does(limits: dict[str, Any]) -> None:
    """What the search of a setting leaves out early would not have saved a system."""
    asked = question(isl=3000, tp="1", peak_rps=60, **limits)
    pruned, whole = (
        Search(question=asked, runs=Runs(), prune=prune, rows=False).answer().best
        for prune in (True, False)
    )
    assert pruned.systems == whole.systems


def test_a_bad_knob_is_found_and_mended() -> None:
    """A budget of 512 tokens starves the prompts: the search must leave it."""
    asked = question(tp="1", ttft="p95<=1s")
    runs = Runs()
    good = contenders(asked, runs)[0]
    starved = with_knobs(good, max_num_tokens=512, max_batch_size=256)
    found = Search(question=asked, runs=runs, rows=False, seeds=(starved.ready,)).answer().best
    assert found.capacity.rate > 1.1 * starved.capacity(found.instances, care=QUICK).rate
    changed = changes(found.ready, starved.instance.knobs)[0]
    assert (changed.knob, changed.default) == ("max_num_tokens", 512)


def test_whole_prompts_are_tried_where_an_engine_divides_them() -> None:
    ready = contenders(question(engine="vllm", tp="1"))[0].ready
    own = ready.trial.deployment.knobs
    assert list(_ways(ready, ("chunk",), smaller=False, larger=True)) == [
        [replace(own, chunked_prefill=not own.chunked_prefill)]
    ]


@pytest.mark.parametrize(
    "given", [{"max_num_tokens": "2048"}, {"max_batch_size": "64"}, {"chunked_prefill": True}]
)
def test_knobs_that_the_asker_set_are_kept(given: dict[str, Any]) -> None:
    knobs = best(question(**GAPS | given)).ready.trial.deployment.knobs
    for name, value in given.items():
        assert getattr(knobs, name) == (value if isinstance(value, bool) else int(str(value)))


def knobs(**changed: Any) -> EngineKnobs:
    """Of vLLM, with a budget of 4,096 tokens and 64 slots."""
    return replace(knobs_of(64, 4_096), **changed)


def ready_with(batch: int = 64, **changed: Any) -> Any:
    engine_knobs = knobs(**changed)
    deployment = SimpleNamespace(knobs=engine_knobs, engine="vllm")
    return SimpleNamespace(
        first=SimpleNamespace(deployment=deployment),
        trial=SimpleNamespace(deployment=deployment),
        instance=SimpleNamespace(batch=batch, knobs=engine_knobs, memory=None),
    )


@pytest.fixture
def startable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tonnage.sizing.search.tuning.startable", lambda memory, knobs: knobs)


@pytest.mark.parametrize(
    ("ready", "moves", "smaller", "larger", "ways"),
    [
        (ready_with(), ("tokens",), False, False, [[2_048, 1_024, 512]]),
        (ready_with(), ("tokens",), False, True, [[2_048, 1_024, 512], [8_192, 16_384, 32_768]]),
        (ready_with(), ("batch",), True, True, [[32, 16], [128]]),
        (ready_with(), ("batch",), False, True, [[128]]),
        (ready_with(), ("batch",), True, False, [[32, 16]]),
        (ready_with(batch=63), ("batch",), True, True, [[32, 16]]),  # the cache has no more room
        (ready_with(16, max_batch_size=16), ("batch",), True, False, [[8]]),
        (ready_with(8, max_batch_size=8), ("batch",), True, False, []),
        (ready_with(2_048, max_batch_size=2_048), ("batch",), False, True, [[4_096]]),
        (ready_with(4_096, max_batch_size=4_096), ("batch",), False, True, []),
        (ready_with(), ("chunk",), True, True, [[False]]),
        (ready_with(), ("chunk",), True, False, []),
        (ready_with(), (), True, True, []),
    ],
)
@pytest.mark.usefixtures("startable")
def test_the_settings_that_are_tried_of_a_knob(
    *, ready: Any, moves: tuple[str, ...], smaller: bool, larger: bool, ways: list[list[Any]]
) -> None:
    names = {"tokens": "max_num_tokens", "batch": "max_batch_size", "chunk": "chunked_prefill"}
    tried = list(_ways(ready, moves, smaller=smaller, larger=larger))
    name = names[moves[0]] if moves else ""
    assert [[getattr(setting, name) for setting in way] for way in tried] == ways
    assert BATCH == (8, 4_096)
    first = ready.first.deployment.knobs
    assert all(
        replace(setting, **{name: getattr(first, name)}) == first
        for way in tried
        for setting in way
    )


@pytest.mark.usefixtures("startable")
def test_more_front_ends_are_tried_where_an_engine_has_a_flag_and_the_first_setting_too() -> None:
    (way,) = _ways(ready_with(front_ends=3), ("front_ends",), smaller=False, larger=True)
    assert [setting.front_ends for setting in way] == [6, 12, 24]
    assert [3 * times for times in FRONT_ENDS] == [6, 12, 24]
    silent = ready_with()
    silent.first.deployment.engine = "nim-2024"
    assert list(_ways(silent, ("front_ends",), smaller=False, larger=True)) == []
    moved = ready_with()
    moved.trial = SimpleNamespace(deployment=SimpleNamespace(knobs=knobs(max_num_tokens=512)))
    back, *_ = _ways(moved, ("tokens",), smaller=False, larger=True)
    assert [setting.max_num_tokens for setting in back] == [4_096]


def test_knobs_that_differ_are_named_with_both_values() -> None:
    ready = ready_with(max_num_tokens=512, chunked_prefill=False)
    assert changes(ready, knobs(max_batch_size=32)) == (
        KnobChange(knob="max_num_tokens", default=4_096, chosen=512),
        KnobChange(knob="max_batch_size", default=32, chosen=64),
        KnobChange(knob="chunked_prefill", default=True, chosen=False),
    )
    assert changes(ready, ready.trial.deployment.knobs) == ()


@pytest.mark.parametrize(
    ("limits", "tokens"),
    [
        ((("itl", "p99", 1.0),), 512),
        ((("itl", "p99", 4.0), ("itl", "p90", 2.2)), 2_048),
        ((("itl", "p95", 2.2),), 2_048),
        ((("itl", "p99", 2_048 / 950),), 2_048),
        ((("itl", "p99", 2_047 / 950),), 1_024),
        ((("itl", "p99", 9.0),), 4_096),
        ((("itl", "p99", 0.1),), 4_096),  # no budget keeps it
        ((("itl", "mean", 1.0), ("ttft", "p99", 1.0)), 4_096),
    ],
)
def test_the_largest_budget_whose_full_step_keeps_a_limit_on_gaps(
    limits: Any, tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step takes a millisecond for each token of its budget, and may take 95 % of the limit."""
    monkeypatch.setattr(
        "tonnage.sizing.search.tuning._full_step_s", lambda instance, tokens: tokens / 1e3
    )
    slo = tuple(
        Limit(metric=metric, statistic=statistic, seconds=seconds)
        for metric, statistic, seconds in limits
    )
    instance = SimpleNamespace(deployment=SimpleNamespace(knobs=knobs()))
    assert fitted(instance, slo) == knobs(max_num_tokens=tokens)
    assert tokens in TOKENS
    assert KEPT_SHARE == 0.95
    instance.deployment.knobs = knobs(chunked_prefill=False)
    assert fitted(instance, slo) == knobs(chunked_prefill=False)


def test_a_full_step_by_hand() -> None:
    """32 sequences decode next to a prompt, or as many as there are slots."""
    small = Small(batch=100)
    calls: list[tuple[int, ...]] = []
    small.step.seconds = lambda *counts: calls.append(counts) or 1.5
    assert _full_step_s(small, 64) == 1.5
    _full_step_s(small, 999)
    small.batch = 4
    _full_step_s(small, 64)
    _full_step_s(small, 2)
    assert BESIDE == 32
    assert calls == [
        (32, 1, 32, 32 * 168, 3_360),
        (100, 1, 32, 100 * 100, 3_360),
        (60, 1, 4, 60 * 140, 420),
        (1, 1, 4, 199, 420),
    ]


@pytest.mark.parametrize(
    ("outcome", "ends"),
    [
        (SimpleNamespace(capacity=capacity_of(1.0, binds=bound_by(TPOT))), "tpot"),
        (SimpleNamespace(capacity=capacity_of(1.0, binds=SATURATION)), ""),
        (SimpleNamespace(capacity=capacity_of(1.0)), ""),
        (early(1.0), ""),
        (
            Behind(
                breach=Breach(limit=limit_of(TPOT), value_ms=600.0),
                requests_per_second=1.0,
                per_gpu=0.5,
                other=IDENTITY,
            ),
            "tpot",
        ),
    ],
)
def test_the_metric_that_ends_a_load(outcome: Any, ends: str) -> None:
    assert _ends(outcome) == ends


@pytest.mark.parametrize(
    ("metric", "rate", "everything", "settings"),
    [
        ("tpot", 100.0, False, [[2_048, 1_024, 512], [32, 16]]),
        ("tpot", 20.0, False, [[2_048, 1_024, 512], [16]]),  # 30 requests are never at once
        ("tpot", 5.0, False, [[2_048, 1_024, 512], []]),
        ("tpot", 5.0, True, [[2_048, 1_024, 512], [8_192, 16_384, 32_768], [32, 16], [128]]),
        ("ttft", 5.0, False, [[2_048, 1_024, 512], [8_192, 16_384, 32_768], [128]]),
    ],
)
def test_the_deployments_with_other_knobs_that_may_carry_more(
    metric: str, rate: float, everything: bool, settings: list[list[int]]
) -> None:
    """Smaller batches where a time per token ends the load, and only as small as what closed forms
    let be in flight: three times the rate times half a second."""
    first = knobs()
    deployment = make_dataclass("Deployment", ["knobs", "engine"], eq=False)(first, "vllm")
    trial = make_dataclass("Trial", ["deployment"], eq=False)(deployment)
    instance = SimpleNamespace(
        batch=64, knobs=first, memory=None, alone_e2e_s=0.5, traffic="traffic"
    )
    ready = make_dataclass("Ready", ["trial", "instance", "first", "place"], eq=False)(
        trial, instance, trial, 0
    )
    runs = SimpleNamespace(instance=lambda deployment, traffic: (deployment.knobs, traffic))
    contender = carrying(1.0, ready=ready, runs=runs, most=rate)
    outcome = SimpleNamespace(
        capacity=capacity_of(1.0, binds=bound_by(replace(TPOT, metric=metric)))
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tonnage.sizing.search.tuning.startable", lambda memory, knobs: knobs)
        ways = variants(contender, outcome, everything=everything)
        assert [
            [
                row.trial.deployment.knobs.max_num_tokens
                if row.trial.deployment.knobs.max_num_tokens != 4_096
                else row.trial.deployment.knobs.max_batch_size
                for row in way
            ]
            for way in ways
        ] == settings
        for row in (row for way in ways for row in way):
            assert row.instance == (row.trial.deployment.knobs, "traffic")
            assert row.first is trial

        def refuse(deployment: Any, traffic: Any) -> Any:
            raise InputError("no room")

        runs.instance = refuse
        assert variants(contender, outcome, everything=True) == [[], [], [], []]


@pytest.mark.parametrize(
    ("moves", "busy", "tries"),
    [(("front_ends",), 0.51, True), (("front_ends",), 0.5, False), (("batch",), 0.9, False)],
)
def test_front_ends_are_tried_where_one_is_busy(
    moves: tuple[str, ...], busy: float, tries: bool
) -> None:
    ready = SimpleNamespace(instance=SimpleNamespace(front_end_busy=lambda rate: busy * rate))
    contender = carrying(1.0, question=asked_for(1.0, free_moves=moves), ready=ready)
    assert tries_front_ends(contender, 1.0) == tries
    assert FRONT_END_BUSY == 0.5
