"""Two pools on the targets that run them: each pool's instances and flags, what its schema takes,
and what the other targets say."""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml

from tests.deploy.plans import DENSE_CHECKPOINT, dense
from tests.deploy.written import check_files, objects_of
from tonnage.deploy.targets import deployed, target_files
from tonnage.errors import InputError
from tonnage.plan.plan import Plan
from tonnage.spec.targets import TARGETS

RUN_BY = [
    *(("dynamo", name) for name in ("vllm-0.32", "sglang-0.5.9", "tensorrt-llm-1.2")),
    ("llm-d", "vllm-0.32"),
    ("llm-d", "sglang-0.5.9"),
]


def pooled(engine: str = "vllm-0.32") -> Plan:
    """The dense plan with three prefill and five decode instances in place of its eight."""
    plan = dense(engine)
    (pool,) = plan.candidates[0].pools
    pools = (replace(pool, role="prefill", instances=3), replace(pool, role="decode", instances=5))
    return replace(plan, candidates=(replace(plan.candidates[0], pools=pools),))


def written(target: str, engine: str) -> dict[str, str]:
    return target_files(deployed(pooled(engine), target, checkpoint=DENSE_CHECKPOINT), target)


@pytest.mark.parametrize(("target", "engine"), RUN_BY)
def test_both_pools_have_their_instances_and_each_engine_is_told_its_part_by_flags_or_by_its_file(
    target: str, engine: str
) -> None:
    files = written(target, engine)
    check_files(files, deployed(pooled(engine), target))
    objects = objects_of(files)
    if target == "dynamo":
        graph = objects["DynamoGraphDeployment", "llama-3-1-8b"]["spec"]["components"]
        found = {part["type"]: part["replicas"] for part in graph}
        assert found.pop("frontend") == 1
        assert all("scalingAdapter" not in part for part in graph)
    else:
        made = {
            role: objects["Deployment", f"llama-3-1-8b-{role}"]["spec"]
            for role in ("prefill", "decode")
        }
        found = {
            spec["template"]["metadata"]["labels"]["llm-d.ai/role"]: spec["replicas"]
            for spec in made.values()
        }
        assert all(
            spec["selector"]["matchLabels"].items()
            <= spec["template"]["metadata"]["labels"].items()
            for spec in made.values()
        )
    assert found == {"prefill": 3, "decode": 5}
    assert "3 prefill and 5 decode instances" in files["README.md"]
    assert not any(kind == "ScaledObject" for kind, _ in objects)
    for role in ("prefill", "decode"):
        if target == "dynamo":
            spec = next(part for part in graph if part["type"] == role)["podTemplate"]["spec"]
        else:
            spec = objects["Deployment", f"llama-3-1-8b-{role}"]["spec"]["template"]["spec"]
        words = spec["containers"][0]["args"]
        if target == "dynamo" or engine.startswith("sglang"):
            assert words[words.index("--disaggregation-mode") + 1] == role
        if engine.startswith("vllm"):
            assert (
                '"kv_connector":"NixlConnector"' in words[words.index("--kv-transfer-config") + 1]
            )
        if engine.startswith("sglang"):
            assert words[words.index("--disaggregation-transfer-backend") + 1] == "nixl"
        if engine.startswith("tensorrt"):
            file = yaml.safe_load(
                objects["ConfigMap", "llama-3-1-8b-engine-config"]["data"][f"{role}.yaml"]
            )
            assert words[words.index("--extra-engine-args") + 1].endswith(f"/{role}.yaml")
            assert file["disable_overlap_scheduler"] == (role == "prefill")
            assert file["cache_transceiver_config"]["max_tokens_in_buffer"] == 4_096


def test_llm_d_sends_every_request_through_both_pools_and_decodes_behind_a_sidecar() -> None:
    objects = objects_of(written("llm-d", "vllm-0.32"))
    config = yaml.safe_load(
        objects["ConfigMap", "llama-3-1-8b-picker-config"]["data"]["picker.yaml"]
    )
    named = {one["type"] for one in config["plugins"]}
    assert [one["name"] for one in config["schedulingProfiles"]] == ["prefill", "decode"]
    for profile in config["schedulingProfiles"]:
        assert profile["plugins"][0]["pluginRef"] == f"{profile['name']}-filter"
        assert {one["pluginRef"] for one in profile["plugins"]} <= named
    decode = objects["Deployment", "llama-3-1-8b-decode"]["spec"]["template"]["spec"]
    (sidecar,), (engine,) = decode["initContainers"], decode["containers"]
    behind = engine["ports"][0]["containerPort"]
    assert engine["args"][engine["args"].index("--port") + 1] == str(behind)
    assert f"--vllm-port={behind}" in sidecar["args"]
    assert (
        sidecar["ports"][0]["containerPort"]
        == objects["InferencePool", "llama-3-1-8b"]["spec"]["targetPorts"][0]["number"]
    )
    prefill = objects["Deployment", "llama-3-1-8b-prefill"]["spec"]["template"]["spec"]
    assert "initContainers" not in prefill
    assert (
        prefill["containers"][0]["ports"][0]["containerPort"]
        == sidecar["ports"][0]["containerPort"]
    )


@pytest.mark.parametrize(("target", "engine"), [("dynamo", "vllm-0.32"), ("llm-d", "vllm-0.32")])
def test_no_rule_takes_half_a_request_for_a_whole_one(target: str, engine: str) -> None:
    files = written(target, engine)
    rules = next(one for (kind, _), one in objects_of(files).items() if kind == "PrometheusRule")[
        "spec"
    ]
    names = {
        rule["alert"] for group in rules["groups"] for rule in group["rules"] if "alert" in rule
    }
    assert names == {"FailingRequests", "InstancesMissing", "IdleGpus"}
    missing = next(
        rule
        for group in rules["groups"]
        for rule in group["rules"]
        if rule.get("alert") == "InstancesMissing"
    )
    assert missing["expr"].endswith("< 8")
    assert "dashboard.json" not in files
    assert "dashboard" not in files["kustomization.yaml"]


def test_a_target_without_pools_takes_the_nearest_deployment_with_one_or_says_what_to_type() -> (
    None
):
    plan = pooled()
    taken = deployed(replace(plan, candidates=(*plan.candidates, *dense().candidates)), "compose")
    assert taken.choice == dense().candidates[0]
    assert taken.why == "compose does not run two pools, prefill and decode"
    for target in [name for name, runs in TARGETS.items() if not runs.pools]:
        said = (
            f"{target} does not run two pools, prefill and decode; write target llm-d or target"
            " dynamo$"
        )
        with pytest.raises(InputError, match=said):
            deployed(pooled(), target, checkpoint=DENSE_CHECKPOINT)
