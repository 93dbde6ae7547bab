"""Two pools on the targets that run them: each pool's instances and flags, what its schema takes,
and what the other targets say."""

from __future__ import annotations

import pytest
import yaml

from tests.deploy.pools import pooled, written
from tests.deploy.written import check_files, objects_of
from tonnage.deploy.targets import deployed

RUN_BY = [
    *(("dynamo", name) for name in ("vllm-0.32", "sglang-0.5.9", "tensorrt-llm-1.2")),
    ("llm-d", "vllm-0.32"),
    ("llm-d", "sglang-0.5.9"),
]


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
