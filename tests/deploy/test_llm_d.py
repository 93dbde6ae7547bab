"""llm-d: both pools behind a sidecar."""

from __future__ import annotations

import yaml

from tests.deploy.pools import written
from tests.deploy.written import objects_of


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
