"""What a search learned of a deployment's relatives."""

from __future__ import annotations

from dataclasses import replace

from tests.questions import contenders, question
from tonnage.api.question.deployment import deployment_of
from tonnage.sizing.search.warm_start import _alike, expecting


def test_relatives_of_a_deployment_share_first_the_kind_of_parallelism_then_the_engine() -> None:
    one = deployment_of(model="llama-3.1-8b", gpu="h100", precision="fp8", tp=2, engine="vllm")
    others = {
        "itself": replace(one, engine="".join(one.engine)),
        "engine": replace(one, engine="sglang"),
        "tp": replace(one, parallelism=replace(one.parallelism, tp=4)),
        "stages": replace(one, parallelism=replace(one.parallelism, tp=1, pp=2)),
    }
    assert {name: _alike(one, other) for name, other in others.items()} == {
        "itself": (True, True, True, True, True),
        "engine": (True, False, True, True, True),
        "tp": (True, True, False, True, True),
        "stages": (False, True, False, True, True),
    }


def test_a_deployment_without_a_relative_expects_no_share() -> None:
    first = contenders(question(tp="1"))[0]
    d = first.ready.trial.deployment
    stages = replace(d, parallelism=replace(d.parallelism, pp=2))
    assert expecting(first, ((stages, 0.7),)).share == 0.0
    assert expecting(first, ((stages, 0.9), (d, 0.7))).share == 0.7
