from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.deployments import knobs_of
from tests.plan.candidates import candidate
from tests.questions import question
from tonnage.plan.reason import (
    CannotRun,
    PrecisionUnsupported,
    Rejected,
    TooManyStages,
    VendorUnsupported,
    WiderThanSystem,
)
from tonnage.report.plans.candidates import reason_text
from tonnage.sizing.loads.instance import Traffic
from tonnage.sizing.loads.runs import Runs
from tonnage.sizing.loads.trial import Ready, Trial
from tonnage.sizing.search.search_space import (
    MOST_SYSTEMS_PER_INSTANCE,
    _pipelined,
    _with_what_fits,
    narrowed,
    prepare,
    splits_of,
    traffic,
    trials,
)


def test_a_search_tries_every_split_with_its_own_number() -> None:
    asked = question(model="deepseek-r1", gpu="h200", engine="vllm", tp="1,8")
    assert {
        (t.deployment.parallelism.dp, t.deployment.knobs.front_ends) for t in trials(asked)
    } == {(1, 1), (8, 8)}
    assert {t.deployment.knobs.front_ends for t in trials(replace(asked, front_ends=3))} == {3}
    piped = [
        found.trial.deployment
        for found in prepare(question(model="deepseek-r1", gpu="h100", engine="vllm"), Runs())
        if isinstance(found, Ready)
    ]
    assert {(d.parallelism.pp > 1, d.knobs.front_ends) for d in piped} == {(True, 1)}


def test_a_model_too_large_for_a_system_is_pipelined_over_several() -> None:
    found = prepare(
        question(model="llama-3.1-405b", precision="fp16", tp="1,2,4,8", ttft=None), Runs()
    )
    ready = [r.trial.deployment.parallelism for r in found if isinstance(r, Ready)]
    assert [(p.tp, p.pp) for p in ready] == [(8, 2)]
    assert len([r for r in found if isinstance(r, Rejected)]) == 4


def test_no_pipeline_where_a_system_is_enough() -> None:
    assert all(t.deployment.parallelism.pp == 1 for t in trials(question()))
    found = prepare(question(model="llama-3.1-405b", precision="fp8", tp="8", ttft=None), Runs())
    assert [r.trial.deployment.parallelism.pp for r in found if isinstance(r, Ready)] == [1]


def test_pipelines_that_are_asked_for_are_each_a_deployment() -> None:
    found = list(trials(question(pp="1,2,4")))
    assert sorted((t.deployment.parallelism.pp, t.deployment.parallelism.tp) for t in found) == [
        (p, t) for p in (1, 2, 4) for t in (1, 2)
    ]
    assert [t.name for t in found][-1] == "h100-sxm-80gb fp8 TP 2 PP 4 tensorrt-llm-0.15"


def test_speculation_is_tried_beside_none() -> None:
    found = list(trials(question(speculation="eagle k=3 acceptance=0.7")))
    assert [t.name for t in found] == [
        f"h100-sxm-80gb fp8 TP {tp} tensorrt-llm-0.15{guesses}"
        for tp in (1, 2)
        for guesses in ("", " + eagle k=3")
    ]


def test_speculation_over_a_pipeline_is_refused_by_name() -> None:
    found = prepare(question(speculation="eagle k=3 acceptance=0.7", tp="1", pp="2"), Runs())
    ready, rejected = ([r for r in found if isinstance(r, kind)] for kind in (Ready, Rejected))
    assert [r.trial.deployment.speculation for r in ready] == [None]
    assert [(r.engine, reason_text(r.reason)) for r in rejected] == [
        (
            "tensorrt-llm-0.15 + eagle k=3",
            "speculation: is not estimated together with PP 2; use pp 1, or leave it out",
        )
    ]


@pytest.mark.parametrize(
    ("gpu", "system", "gpus"),
    [
        ("gb200-nvl72", "gb200-nvl72", 72),
        ("DGX B200", "dgx-b200", 8),
        ("p5.4xlarge", "p5.4xlarge", 1),
        ("Standard_ND96isr_H200_v5", "ND96isr_H200_v5", 8),
        ("h100", "dgx-h100", 8),
    ],
)
def test_a_machine_that_is_named_as_the_gpu_is_what_is_bought(
    gpu: str, system: str, gpus: int
) -> None:
    asked = question(gpu=gpu, precision="fp8", engine="vllm", tp="1")
    (one,) = asked.gpus
    (bought,) = {trial.system.name: trial.system for trial in trials(asked)}.values()
    assert (bought.name, bought.gpus, bought.gpu) == (system, gpus, one.name)


@pytest.mark.parametrize(
    ("changed", "splits"),
    [
        ({"tp": "1,2", "pp": "1,2"}, ["TP 1", "TP 2", "TP 1 PP 2", "TP 2 PP 2"]),
        (
            {"model": "gpt-oss-120b", "gpu": "h200", "tp": "1,2,8"},
            ["TP 1", "TP 2", "TP 2 EP 2", "TP 8", "TP 8 EP 8"],
        ),
        (
            {"model": "deepseek-r1", "gpu": "h200", "tp": "1,8"},
            ["TP 1", "TP 8", "TP 8 EP 8", "TP 1 DP 8 EP 8"],
        ),
        ({"model": "deepseek-r1", "gpu": "h200", "tp": "8", "ep": "8"}, ["TP 8 EP 8"]),
        ({"model": "deepseek-r1", "gpu": "h200", "tp": "8", "pp": "2"}, ["TP 8 PP 2"]),
    ],
)
def test_the_splits_of_an_instance(changed: dict[str, str], splits: list[str]) -> None:
    assert [str(split) for split in splits_of(question(engine="vllm", **changed))] == splits


def test_experts_that_do_not_divide_are_not_split_whole() -> None:
    base = question(model="gpt-oss-120b", gpu="h200", engine="vllm", tp="2,3")
    assert base.model.experts == 128
    assert [str(split) for split in splits_of(base)] == ["TP 2", "TP 2 EP 2", "TP 3"]


def test_every_setting_of_the_asker_is_a_deployment_with_the_others_as_they_are() -> None:
    settings = question(
        engine="vllm",
        tp="1",
        max_num_tokens="2048,4096",
        max_batch_size="64,128",
        chunked_prefill=False,
        prefix_caching=False,
        stream_interval=4,
        front_ends=2,
    )
    knobs = [trial.deployment.knobs for trial in trials(settings)]
    assert [(k.max_batch_size, k.max_num_tokens) for k in knobs] == [
        (64, 2_048),
        (64, 4_096),
        (128, 2_048),
        (128, 4_096),
    ]
    assert {
        (k.chunked_prefill, k.prefix_caching, k.stream_interval, k.front_ends) for k in knobs
    } == {(False, False, 4, 2)}
    (usual,) = (trial.deployment.knobs for trial in trials(question(engine="vllm", tp="1")))
    assert (usual.chunked_prefill, usual.prefix_caching, usual.front_ends) == (True, True, 1)
    assert usual.kv_fraction == 0.92
    shared = replace(question(engine="vllm", tp="1"), shares=((usual.kv_rule, 0.5),))
    (halved,) = (trial.deployment.knobs for trial in trials(shared))
    assert halved == replace(usual, kv_fraction=0.5)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        (
            {"gpu": "mi300x"},
            VendorUnsupported(engine="tensorrt-llm-0.15", vendor="AMD", generation=""),
        ),
        (
            {"precision": "nvfp4"},
            PrecisionUnsupported(subject="Hopper", lacks="no FP4 matrix units"),
        ),
        (
            {"tp": "16"},
            WiderThanSystem(tp=16, dp=1, system="dgx-h100", system_gpus=8),
        ),
        ({"pp": "33"}, TooManyStages(pp=33, model="llama-3.1-8b", layers=32)),
        (
            {"gpu": "h100-mig-3g.40gb", "tp": "2"},
            CannotRun(error="MIG slices share no link; an instance takes one"),
        ),
        (
            {"gpu": "h100-mig-3g.40gb", "model": "llama-3.1-70b", "pp": "1"},
            CannotRun(error="weights 72.7 GB + 3.3 GB do not fit 1 × 40 GB; what fits: gpu h200"),
        ),
        (
            {"model": "llama-3.1-405b", "pp": "1"},
            CannotRun(
                error="weights 410 GB + 5.2 GB do not fit 1 × 80 GB; what fits: tp 8, or gpu h200 tp 4"
            ),
        ),
    ],
)
def test_why_a_deployment_cannot_be(changed: dict[str, str], reason: object) -> None:
    (row,) = prepare(question(**{"tp": "1", **changed}), Runs())
    assert isinstance(row, Rejected)
    assert row.reason == reason


def test_a_pipeline_has_as_many_stages_as_layers_at_most() -> None:
    (row,) = prepare(question(tp="1", pp="32"), Runs())
    assert not isinstance(getattr(row, "reason", None), TooManyStages)


def test_a_context_that_does_not_fit_the_cache_is_refused() -> None:
    asked = question(tp="1", engine="vllm")
    (ready,) = prepare(asked, Runs())
    assert isinstance(ready, Ready)
    assert (ready.place, ready.trial.system.name) == (0, "dgx-h100")
    fits = ready.instance.memory.room
    for context, refused in ((fits, False), (fits + 1, True)):
        row, *_ = prepare(replace(asked, max_model_len=context), Runs())
        assert isinstance(row, Rejected) == refused
        if isinstance(row, Rejected):
            assert f"{context:,} tokens do not fit the KV cache of {fits:,} tokens" in reason_text(
                row.reason
            )


def test_questions_that_differ_in_their_load_share_their_deployments() -> None:
    asked, runs = question(tp="1"), Runs()
    first = prepare(asked, runs)
    assert prepare(replace(asked, confidence=0.5, step_factor=1.1), runs) is first
    assert prepare(replace(asked, seed=1), runs) is not first


def test_a_narrowed_question_is_for_one_deployment() -> None:
    whole = question(
        gpu="h100,l40s", tp="1,2", speculation="eagle k=3 acceptance=0.7", growth="5%/month"
    )
    row = candidate(
        gpu="h100-sxm-80gb",
        tp=2,
        engine="tensorrt-llm-0.15",
        engine_preset="tensorrt-llm-0.15",
    )
    alone = narrowed(whole, row)
    assert [gpu.name for gpu in alone.gpus] == ["h100-sxm-80gb"]
    assert (alone.tps, alone.pps, alone.dps, alone.eps) == ((2,), (1,), (1,), (1,))
    assert (alone.engines, alone.tune, alone.have) == (("tensorrt-llm-0.15",), False, ())
    assert [number_format.name for number_format in alone.precisions] == ["fp8"]
    assert alone.growth_per_month is alone.speculation is None
    assert alone.max_batch_sizes == whole.max_batch_sizes
    guessing = candidate(
        gpu="h100-sxm-80gb",
        engine="tensorrt-llm-0.15 + eagle k=3",
        engine_preset="tensorrt-llm-0.15",
        knobs=knobs_of(32, 2_048, chunked_prefill=False, stream_interval=3, front_ends=2),
    )
    with_knobs = narrowed(whole, guessing)
    assert with_knobs.speculation == whole.speculation is not None
    assert (with_knobs.max_batch_sizes, with_knobs.max_num_tokens) == ((32,), (2_048,))
    assert (with_knobs.chunked_prefill, with_knobs.stream_interval, with_knobs.front_ends) == (
        False,
        3,
        2,
    )


@pytest.mark.parametrize(
    ("fits", "tried"),
    [
        ({(8, 2)}, [(8, 2)]),
        ({(2, 2), (8, 4)}, [(8, 2), (4, 2), (2, 2)]),
        ({(4, 8)}, [(8, 2), (4, 2), (2, 2), (8, 4), (4, 4), (2, 4), (4, 8)]),
    ],
)
def test_the_shortest_pipeline_of_the_widest_groups_on_four_systems_at_most(
    fits: set[tuple[int, int]], tried: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight stages of eight GPUs are too many, and sixteen GPUs are no group of a system."""
    calls: list[tuple[int, int]] = []

    def prepared(asked: object, runs: object, trial: Trial, place: int) -> object:
        split, knobs = trial.deployment.parallelism, trial.deployment.knobs
        calls.append((split.tp, split.pp))
        assert (place, knobs.front_ends) == (7, 1)
        row = Ready(trial=trial, instance=None, place=place, first=trial)
        return row if calls[-1] in fits else None

    monkeypatch.setattr("tonnage.sizing.search.search_space.prepared_trial", prepared)
    asked = replace(question(tp="1"), tps=(2, 16, 8, 4))
    (trial,) = trials(question(tp="1"))
    ready = _pipelined(asked, Runs(), trial, 7)
    assert calls == tried
    assert ready is not None
    assert (ready.trial.deployment.parallelism.tp, ready.trial.deployment.parallelism.pp) == tried[
        -1
    ]
    calls.clear()
    fits.clear()
    assert _pipelined(asked, Runs(), trial, 7) is None
    assert max(tp * pp for tp, pp in calls) == 8 * MOST_SYSTEMS_PER_INSTANCE == 32


def test_the_traffic_of_an_instance_is_that_of_the_question_and_its_system() -> None:
    asked = replace(
        question(isl=700, osl=70, seed=9, router="random", tp="1"), process="gamma", cv=2.0
    )
    (trial,) = trials(asked)
    of_instance = traffic(asked, trial.system)
    assert of_instance == Traffic(
        isl=asked.isl,
        osl=asked.osl,
        load="open",
        process="gamma",
        cv=2.0,
        seed=9,
        gpus_per_system=8,
        memories=trial.system.kv_tiers,
        router="random",
    )
    assert traffic(asked, trial.system, "closed") == replace(of_instance, load="closed")


def test_a_request_that_does_not_fit_is_told_what_would(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the longest prompt and answer, or the longest pair."""
    lengths = {"isl": "histogram:500:0.5,900:0.5", "osl": "histogram:10:0.5,90:0.5"}
    asked = question(tp="1", **lengths)
    (trial,) = trials(asked)
    module = "tonnage.sizing.search.search_space"
    calls: list[Any] = []
    monkeypatch.setattr(f"{module}.holds", lambda *args: calls.append(args) or args[1] == 9)
    monkeypatch.setattr(f"{module}.instead", lambda *args: f"; take {args[1:]}")
    refused = trial.rejected(CannotRun(error="no room"))
    assert _with_what_fits(asked, trial, refused).reason.error == "no room; take (900, 90)"
    paired = replace(asked, pairs=SimpleNamespace(longest=1_500))
    assert _with_what_fits(paired, trial, refused).reason.error == "no room; take (1500, 0)"
    assert [args[1:] for args in calls] == [(900, 90), (1_500, 0)]
    fitting = replace(asked, pairs=SimpleNamespace(longest=9))
    assert _with_what_fits(fitting, trial, refused) is refused
    wide = trial.rejected(WiderThanSystem(tp=16, dp=1, system="s", system_gpus=8))
    ready = Ready(trial=trial, instance=None, place=0, first=trial)
    assert _with_what_fits(asked, trial, wide) is wide
    assert _with_what_fits(asked, trial, ready) is ready
