"""KServe: custom predictors."""

from __future__ import annotations

from dataclasses import replace

import yaml

from tests.deploy.clusters import objects, service
from tests.deploy.plans import DENSE_CHECKPOINT
from tonnage.deploy.targets import target_files


def test_kserve_runs_other_engines_and_splits_as_a_custom_predictor() -> None:
    found = objects("kserve", "tensorrt-llm-1.2")
    spec = found["InferenceService", "llama-3-1-8b"]["spec"]["predictor"]
    (engine,) = spec["containers"]
    assert (engine["name"], engine["command"]) == ("kserve-container", ["trtllm-serve"])
    assert engine["args"][0] == DENSE_CHECKPOINT
    assert (spec["minReplicas"], spec["maxReplicas"]) == (8, 8)
    assert spec["labels"] == found["PodMonitor", "llama-3-1-8b"]["spec"]["selector"]["matchLabels"]
    mounted = {one["name"] for one in engine["volumeMounts"]}
    assert mounted == {one["name"] for one in spec["volumes"]}
    claims = [
        one["persistentVolumeClaim"]["claimName"]
        for one in spec["volumes"]
        if "persistentVolumeClaim" in one
    ]
    assert [("PersistentVolumeClaim", name) in found for name in claims] == [True]
    config = yaml.safe_load(found["ConfigMap", "llama-3-1-8b-engine-config"]["data"]["engine.yaml"])
    assert config["kv_cache_config"]["dtype"] == "fp8"
    moved = found["ScaledObject", "llama-3-1-8b"]["spec"]["scaleTargetRef"]
    assert (moved["kind"], moved["name"]) == ("Deployment", "llama-3-1-8b-predictor")
    pipelined = service("kserve")
    pipelined = replace(pipelined, pool=replace(pipelined.pool, pp=2))
    assert "kind: InferenceService" in target_files(pipelined, "kserve")["inference-service.yaml"]
