"""The instances: pods, groups of pods, and the engine in them."""

from __future__ import annotations

import pytest
import yaml

from tests.deploy.across import RACK, written
from tests.deploy.written import check_files, objects_of
from tonnage.deploy.verify import read_files
from tonnage.spec.deployment import Parallelism


@pytest.mark.parametrize("target", ["kubernetes", "llm-d"])
@pytest.mark.parametrize("engine", ["vllm-0.32", "sglang-0.5.9"])
def test_an_instance_of_two_systems_is_a_group_of_two_pods(engine: str, target: str) -> None:
    service, files = written(engine, target, split=Parallelism(tp=8, pp=2))
    objects = objects_of(files)
    check_files(files, service)
    spec = objects["LeaderWorkerSet", "llama-3-1-8b"]["spec"]
    group = spec["leaderWorkerTemplate"]
    assert (spec["replicas"], group["size"], service.spans) == (2, 2, 2)
    (leader,), (worker,) = (
        group[name]["spec"]["containers"] for name in ("leaderTemplate", "workerTemplate")
    )
    assert (
        leader["resources"]["limits"]["nvidia.com/gpu"]
        == worker["resources"]["limits"]["nvidia.com/gpu"]
        == 8
    )
    for one, rank in ((leader, "0"), (worker, "$(LWS_WORKER_INDEX)")):
        assert one["args"][one["args"].index("--node-rank") + 1] == rank
        assert one["args"][one["args"].index("--nnodes") + 1] == "2"
        assert any("$(LWS_LEADER_ADDRESS)" in word for word in one["args"])
        known = service.interface.fault((*one["command"], *one["args"]), {})
        assert known == ""
    assert ("--headless" in worker["args"]) == (engine == "vllm-0.32")
    assert [name for name in leader if name.endswith("Probe")]
    assert not [name for name in worker if name.endswith("Probe")]
    selected = (
        objects["InferencePool", "llama-3-1-8b"]
        if target == "llm-d"
        else objects["Service", "llama-3-1-8b"]
    )
    found = selected["spec"]["selector"]
    assert found.get("matchLabels", found)["leaderworkerset.sigs.k8s.io/worker-index"] == "0"
    assert (
        objects["ScaledObject", "llama-3-1-8b"]["spec"]["scaleTargetRef"]["kind"]
        == "LeaderWorkerSet"
    )
    assert "leaderworkerset" in files["README.md"]


@pytest.mark.parametrize("target", ["kubernetes", "llm-d"])
def test_an_instance_on_two_trays_of_a_rack_has_a_channel_of_its_nvlink_domain(target: str) -> None:
    service, files = written("vllm-0.32", target, split=Parallelism(tp=8), **RACK)
    check_files(files, service)
    assert "compute-domain.yaml" in yaml.safe_load(files["kustomization.yaml"])["resources"]
    objects = objects_of(files)
    template = objects["ComputeDomain", "llama-3-1-8b"]["spec"]["channel"]["resourceClaimTemplate"][
        "name"
    ]
    group = objects["LeaderWorkerSet", "llama-3-1-8b"]["spec"]["leaderWorkerTemplate"]
    assert group["size"] == 2
    for name in ("leaderTemplate", "workerTemplate"):
        pod = group[name]["spec"]
        (claim,), (engine,) = pod["resourceClaims"], pod["containers"]
        assert claim["resourceClaimTemplateName"] == template
        assert engine["resources"]["claims"] == [{"name": claim["name"]}]
        assert engine["resources"]["limits"]["nvidia.com/gpu"] == 4
        assert (
            pod["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0][
                "topologyKey"
            ]
            == "nvidia.com/gpu.clique"
        )
    changed_files = {
        **files,
        "compute-domain.yaml": files["compute-domain.yaml"].replace("-channel", "-channels"),
    }
    assert any(
        "llama-3-1-8b-channel, which is not in this folder" in one
        for one in read_files(changed_files, service).faults
    )


@pytest.mark.parametrize("engine", ["vllm-0.32", "sglang-0.5.9"])
@pytest.mark.parametrize("target", ["kubernetes", "llm-d", "kserve"])
def test_amd_on_a_cluster(engine: str, target: str) -> None:
    service, files = written(engine, target, gpu="mi300x", system="8x mi300x")
    check_files(files, service)
    whole = "\n".join(files.values())
    assert not [word for word in ("nvidia.com/gpu", "NVIDIA", "DCGM") if word in whole]
    assert {"vllm-0.32": "vllm-openai-rocm:v0.32.0", "sglang-0.5.9": "rocm700-mi30x"}[
        engine
    ] in whole
    assert all(
        word in whole for word in ("amd.com/gpu.vram: 192G", "amd.com/gpu: 1", "gpu_gfx_activity")
    )
