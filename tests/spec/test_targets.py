"""What each deployment target runs, and a search that is kept to it."""

from __future__ import annotations

import pytest

from tests.questions import question
from tonnage.deploy.targets import TARGETS as WRITTEN
from tonnage.errors import InputErrors
from tonnage.plan.reason import Rejected, TargetLacks
from tonnage.sizing.loads.runs import Runs
from tonnage.sizing.loads.trial import Ready
from tonnage.sizing.search.search_space import prepare
from tonnage.spec.catalog import find_engine, find_gpu
from tonnage.spec.deployment import Parallelism
from tonnage.spec.targets import TARGETS, target_lacks


def test_what_a_target_runs_and_why_not() -> None:
    assert list(TARGETS) == list(WRITTEN)

    def of(
        target: str,
        engine: str = "vllm-0.32",
        gpu: str = "h100-sxm-80gb",
        precision: str = "fp8",
        **split: int,
    ) -> str:
        p = Parallelism(**split)
        return target_lacks(
            target,
            engine=find_engine(engine),
            gpu=find_gpu(gpu),
            split=p,
            gpus_per_system=8,
            precision=precision,
        )

    assert of("dynamo", dp=2) == "deploy writes no data-parallel attention of vllm for dynamo"
    assert of("dynamo", "tensorrt-llm-1.2", dp=2) == ""
    assert of("triton", pp=2) == "deploy writes no pipelines for triton"
    assert "does not exist in mxfp4" in of("triton", "tensorrt-llm-1.2", precision="mxfp4")
    assert "spans several machines" in of("triton", tp=8, pp=1, dp=2) or of("triton", dp=2)
    assert "not mi300x by AMD" in of("nim", gpu="mi300x")


@pytest.mark.parametrize("target", TARGETS)
def test_the_search_tries_only_what_the_target_runs(target: str) -> None:
    """What the search leaves in is written, and each it leaves out for the target's sake has the
    reason that deploy would give."""
    engines = "vllm-0.32,sglang-0.5.9,tensorrt-llm-1.2"
    asked = question(
        precision="fp8,w4a8", engine=engines, pp="1,2", tp="1", router=None, deploy_on=target
    )
    outcomes = prepare(asked, Runs())
    ready = [one for one in outcomes if isinstance(one, Ready)]
    refused = [
        one.reason
        for one in outcomes
        if isinstance(one, Rejected) and isinstance(one.reason, TargetLacks)
    ]
    assert ready
    assert refused or target in ("compose", "kubernetes", "kserve")
    for one in ready:
        d = one.trial.deployment
        split, gpus = d.parallelism, one.trial.system.gpus
        why = target_lacks(
            target,
            engine=find_engine(d.engine),
            gpu=d.gpu,
            split=split,
            gpus_per_system=gpus,
            precision=d.precision.name,
        )
        assert why == ""
        assert find_engine(d.engine).family in TARGETS[target].engines
    assert "no checkpoint of llama-3.1-8b in w4a8" in str(refused) or target == "triton"


def test_engines_and_router_follow_from_the_target() -> None:
    assert question(engine=None, deploy_on="llm-d").engines == (find_engine("vllm").name,)
    assert question(engine=None, deploy_on="nim").router == "random"
    assert question(engine=None, deploy_on="ray-serve").router == "power-of-two"
    assert question(engine=None, deploy_on="llm-d", turns=3).router == "prefix-aware"
    assert (
        question(engine=None).router
        == question(engine=None, deploy_on="compose").router
        == "least-outstanding"
    )
    with pytest.raises(
        InputErrors,
        match="router: kubernetes has no router like least-kv; write random, or another deploy_on",
    ):
        question(deploy_on="kubernetes", router="least-kv")
    with pytest.raises(InputErrors, match="deploy_on: no files are written for 'nomad'"):
        question(deploy_on="nomad")
    with pytest.raises(
        InputErrors,
        match="disaggregated: triton does not run two pools; write deploy_on dynamo or llm-d",
    ):
        question(deploy_on="triton", disaggregated=True)
