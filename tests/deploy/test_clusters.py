"""KServe, llm-d, Dynamo and NIM: what Kubernetes' own schema can read of them it takes, and they say what the plan says."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.deploy.plans import DENSE_CHECKPOINT, dense, experts
from tonnage.deploy.dynamo.files import arguments
from tonnage.deploy.service import Service, service_of
from tonnage.deploy.targets import target_files
from tonnage.errors import InputError

IMAGE = "meta/llama-3.1-8b-instruct:2.1.5"
CORE = ("v1", "apps/v1", "policy/v1", "rbac.authorization.k8s.io/v1")
TARGETS = ("kserve", "llm-d", "dynamo", "nim")


def service(target: str, engine: str = "vllm-0.32") -> Service:
    return service_of(dense(engine), checkpoint=IMAGE if target == "nim" else DENSE_CHECKPOINT)


def objects(target: str, engine: str = "vllm-0.32") -> dict[tuple[str, str], dict[str, Any]]:
    """Every object by kind and name."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for name, text in target_files(service(target, engine), target).items():
        for one in yaml.safe_load_all(text) if name.endswith(".yaml") and name != "kustomization.yaml" else ():
            found[one["kind"], one["metadata"]["name"]] = one
    return found


def pods(target: str) -> list[dict[str, Any]]:
    """Every pod template, wherever an object holds one."""
    each = objects(target).values()
    found = [one["spec"]["template"]["spec"] for one in each if one["kind"] == "Deployment"]
    found += [one["spec"]["template"] for one in each if one["kind"] == "LLMInferenceService"]
    return found + [
        part["podTemplate"]["spec"] for one in each if one["kind"] == "DynamoGraphDeployment" for part in one["spec"]["components"]
    ]


@pytest.mark.parametrize("target", TARGETS)
def test_kubernetes_own_objects_and_every_pod_are_taken_by_its_schema(target: str) -> None:
    version = kubernetes_validate.latest_version()
    checked = [one for one in objects(target).values() if one["apiVersion"] in CORE]
    assert checked
    for one in checked:
        kubernetes_validate.validate(one, version, strict=True)
    for spec in pods(target):
        bare = {**spec, "containers": [{"image": "laid/over", **one} for one in spec["containers"]]}  # KServe's template has the image
        meta = {"name": "x"}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": bare}
        kubernetes_validate.validate(pod, version, strict=True)


@pytest.mark.parametrize("target", [*TARGETS, "triton"])
def test_every_target_has_a_page_rules_and_a_dashboard(target: str) -> None:
    found = target_files(service(target), target)
    assert {"README.md", "alerts.yaml", "dashboard.json"} <= set(found)
    block = found["README.md"].split("```sh\n")[1].split("```")[0].replace("\\\n", "")
    assert len(block.strip().splitlines()) == 5
    assert "tonnage bench" in block
    assert "tonnage compare run plan.json" in block
    if "kustomization.yaml" in found:
        assert set(yaml.safe_load(found["kustomization.yaml"])["resources"]) <= set(found)


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_watched_and_disrupted_are_the_pods_of_the_engine(target: str) -> None:
    found = objects(target)
    watched = next(one for (kind, _), one in found.items() if kind == "PodMonitor")["spec"]["selector"]["matchLabels"]
    kept = next(one for (kind, _), one in found.items() if kind == "PodDisruptionBudget")["spec"]["selector"]["matchLabels"]
    assert watched == kept
    spec = next(one for (kind, name), one in found.items() if kind in ("LLMInferenceService", "DynamoGraphDeployment", "Deployment"))[
        "spec"
    ]
    if target == "kserve":
        labels = spec["labels"]
    elif target == "dynamo":
        labels = spec["components"][1]["podTemplate"]["metadata"]["labels"]
    else:
        labels = found["Deployment", "llama-3-1-8b"]["spec"]["template"]["metadata"]["labels"]
    assert watched.items() <= labels.items()


def test_kserve_says_the_plans_flags_behind_its_own() -> None:
    spec = objects("kserve")["LLMInferenceService", "llama-3-1-8b"]["spec"]
    assert spec["model"] == {"uri": f"hf://{DENSE_CHECKPOINT}", "name": "llama-3.1-8b"}
    assert (spec["replicas"], spec["parallelism"]) == (8, {"tensor": 1})
    assert "scaling" not in spec  # which excludes replicas
    (main,) = spec["template"]["containers"]
    words = shlex.split(next(one["value"] for one in main["env"] if one["name"] == "VLLM_ADDITIONAL_ARGS"))
    launch = dense().candidates[0].launch
    assert ["--tensor-parallel-size", "1", *words] == list(launch[3:])
    assert main["resources"]["limits"]["nvidia.com/gpu"] == 1


def test_llm_ds_pool_holds_the_pods_and_its_picker_scores_them() -> None:
    found = objects("llm-d")
    pool = found["InferencePool", "llama-3-1-8b"]["spec"]
    labels = found["Deployment", "llama-3-1-8b"]["spec"]["template"]["metadata"]["labels"]
    assert pool["selector"]["matchLabels"].items() <= labels.items()
    service_ports = found["Service", "llama-3-1-8b-picker"]["spec"]["ports"]
    assert pool["endpointPickerRef"]["port"]["number"] == service_ports[0]["port"]
    config = yaml.safe_load(found["ConfigMap", "llama-3-1-8b-picker-config"]["data"]["picker.yaml"])
    named = {one["type"] for one in config["plugins"]}
    assert {one["pluginRef"] for one in config["schedulingProfiles"][0]["plugins"]} == named
    backend = found["HTTPRoute", "llama-3-1-8b"]["spec"]["rules"][0]["backendRefs"][0]
    assert (backend["kind"], backend["name"]) == ("InferencePool", "llama-3-1-8b")


def test_dynamos_worker_gets_the_engines_flags_and_no_front_ends() -> None:
    front, worker = objects("dynamo")["DynamoGraphDeployment", "llama-3-1-8b"]["spec"]["components"]
    assert front["podTemplate"]["spec"]["containers"][0]["env"] == [{"name": "DYN_ROUTER_MODE", "value": "kv"}]
    main = worker["podTemplate"]["spec"]["containers"][0]
    assert (main["name"], main["command"]) == ("main", ["python3", "-m", "dynamo.vllm"])
    assert main["args"][:4] == ["--model", DENSE_CHECKPOINT, "--served-model-name", "llama-3.1-8b"]
    assert main["args"][4:] == list(dense().candidates[0].launch[3:])
    assert worker["replicas"] == 8
    sglang = arguments(service("dynamo", "sglang-0.5.9"))
    assert sglang[:2] == ["--model-path", DENSE_CHECKPOINT]
    assert sglang.count("--model-path") == 1
    many = service("dynamo")
    argv = (*many.pool.launch, "--api-server-count", "4")
    assert "--api-server-count" not in arguments(replace(many, pool=replace(many.pool, launch=argv)))


def test_nim_is_told_a_profile_a_context_and_the_other_knobs() -> None:
    container = objects("nim")["Deployment", "llama-3-1-8b"]["spec"]["template"]["spec"]["containers"][0]
    env = {one["name"]: one.get("value") for one in container["env"]}
    assert container["image"] == f"nvcr.io/nim/{IMAGE}"
    assert (env["NIM_MODEL_PROFILE"], env["NIM_MAX_MODEL_LEN"]) == ("vllm-fp8-tp1-pp1", "4096")
    assert env["NGC_API_KEY"] is None
    assert "--max-num-seqs 1024" in str(env["NIM_PASSTHROUGH_ARGS"])
    assert "--max-model-len" not in str(env["NIM_PASSTHROUGH_ARGS"])


@pytest.mark.parametrize(
    ("target", "engine", "checkpoint", "said"),
    [
        ("kserve", "sglang-0.5.9", DENSE_CHECKPOINT, "kserve runs vllm, and the plan's engine is sglang"),
        ("llm-d", "tensorrt-llm-1.2", DENSE_CHECKPOINT, "llm-d runs vllm"),
        ("dynamo", "tensorrt-llm-1.2", DENSE_CHECKPOINT, "dynamo is written for vllm, sglang"),
        ("nim", "vllm-0.32", DENSE_CHECKPOINT, "nim needs the image of the model, owner/name:tag"),
        ("nim", "sglang-0.5.9", IMAGE, "today's NIM runs vllm"),
        ("triton", "sglang-0.5.9", DENSE_CHECKPOINT, "triton has backends for vllm and tensorrt-llm"),
    ],
)
def test_what_a_target_cannot_hold_is_refused(target: str, engine: str, checkpoint: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        target_files(service_of(dense(engine), checkpoint=checkpoint), target)
    with pytest.raises(InputError, match="triton is for one machine"):
        target_files(service_of(experts()), "triton")


def test_objects_that_no_schema_was_at_hand_for_say_so() -> None:
    for target, file in (("kserve", "inference-service.yaml"), ("llm-d", "inference-pool.yaml"), ("dynamo", "graph.yaml")):
        assert "not schema-validated" in target_files(service(target), target)[file]
