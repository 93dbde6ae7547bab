from __future__ import annotations

from dataclasses import replace

import pytest

from tests.questions import question
from tonnage.plan.reason import Rejected
from tonnage.report.plans.candidates import reason_text
from tonnage.sizing.loads.runs import Runs
from tonnage.sizing.loads.trial import Ready
from tonnage.sizing.search.search_space import prepare, trials


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
