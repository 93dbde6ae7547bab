"""NVIDIA NIM: its operator, its profiles and its images."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.deploy.clusters import objects, service
from tests.deploy.plans import dense
from tests.deploy.written import objects_of
from tonnage.deploy.nim import profile_1
from tonnage.deploy.targets import deployed, target_files
from tonnage.errors import InputError


def test_nims_operator_gets_what_the_deployment_has() -> None:
    found = objects("nim")
    deployment, spec = (
        found["Deployment", "llama-3-1-8b"]["spec"],
        found["NIMService", "llama-3-1-8b"]["spec"],
    )
    (container,) = deployment["template"]["spec"]["containers"]
    assert f"{spec['image']['repository']}:{spec['image']['tag']}" == container["image"]
    set_by_operator = ("NGC_API_KEY", "NIM_CACHE_PATH")
    assert spec["env"] == [one for one in container["env"] if one["name"] not in set_by_operator]
    assert spec["resources"] == container["resources"]
    assert "replicas" not in spec  # which the operator refuses beside an autoscaler
    assert (spec["scale"]["hpa"]["minReplicas"], spec["scale"]["hpa"]["maxReplicas"]) == (
        3,
        deployment["replicas"],
    )
    assert "nim-service.yaml" not in target_files(service("nim"), "nim")["kustomization.yaml"]
    made = service("nim")
    local = replace(made, loading=replace(made.loading, checkpoint="/models/own"))
    local = replace(local, choice=replace(made.choice, concurrency_per_instance=None))
    written = objects_of(target_files(local, "nim"))["NIMService", "llama-3-1-8b"]["spec"]
    assert {"name": "NIM_MODEL_PATH", "value": "/model-store/own"} in written["env"]
    assert (written["replicas"], "scale" in written) == (8, False)


@pytest.mark.parametrize("engine", ["tensorrt-llm-1.2", "nim-2024"])
def test_nim_1_runs_tensorrt_llm_by_its_profile_and_its_metrics_are_watched(engine: str) -> None:
    found = objects_of(target_files(deployed(dense(engine), "nim"), "nim"))
    spec = found["Deployment", "llama-3-1-8b"]["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    env = {one["name"]: one.get("value") for one in container["env"]}
    assert container["image"] == "nvcr.io/nim/nvidia/llm-nim:1.15.5"
    assert (env["NIM_MODEL_NAME"], env["NIM_MODEL_PROFILE"]) == (
        "hf://nvidia/Llama-3.1-8B-Instruct-FP8",
        "tensorrt_llm",
    )
    assert (
        env["NIM_TENSOR_PARALLEL_SIZE"],
        env["NIM_MAX_MODEL_LEN"],
        env["NIM_SERVED_MODEL_NAME"],
    ) == ("1", "4096", "llama-3.1-8b")
    assert "NIM_PASSTHROUGH_ARGS" not in env
    assert {one["name"] for one in spec["volumes"]} == {
        one["name"] for one in container["volumeMounts"]
    }
    assert "num_requests_running" in str(found["ScaledObject", "llama-3-1-8b"])
    rules = str(found["PrometheusRule", "llama-3-1-8b"])
    assert "time_to_first_token_seconds_bucket" in rules
    assert "trtllm" not in rules


def test_a_profile_of_nim_1_is_composed_or_known_or_refused_with_the_nearest() -> None:
    plan = dense("tensorrt-llm-1.2")
    named = {
        "meta/llama-3.1-8b-instruct:1.8.4": "tensorrt_llm-h100-fp8-tp1-pp1-throughput",
        "nvidia/llama-3.3-nemotron-super-49b-v1.5:1.13.1": (
            "tensorrt_llm-h100-fp8-tp1-pp1-throughput-2330:10de-a5381c1b"
        ),
    }
    for image, profile in named.items():
        made = deployed(plan, "nim", checkpoint=image)
        assert profile_1(made).startswith(profile)
        assert profile_1(replace(made, pool=replace(made.pool, tp=1))) == profile_1(made)
    wide = deployed(plan, "nim", checkpoint="meta/llama-3.1-8b-instruct:1.8.4")
    assert (
        profile_1(replace(wide, pool=replace(wide.pool, tp=2)))
        == "tensorrt_llm-h100-fp8-tp2-pp1-latency"
    )
    for image, why in (
        ("2.1.5", "an image of NIM 2 holds vLLM or SGLang"),
        ("1.13.1", "none is known of nvcr.io/nim/meta/llama-3.1-8b"),
    ):
        with pytest.raises(
            InputError,
            match=(
                f"no profile of TensorRT-LLM, because {why}.*the nearest known is"
                " tensorrt_llm-h100-fp8-tp1"
            ),
        ):
            target_files(
                deployed(plan, "nim", checkpoint=f"meta/llama-3.1-8b-instruct:{image}"), "nim"
            )


def test_an_image_of_nim_has_a_tag_and_its_own_registry_or_nvidias() -> None:
    plan = dense("vllm-0.32")
    for given, image in (
        ("meta/llama-3.1-8b-instruct:2.1.5", "nvcr.io/nim/meta/llama-3.1-8b-instruct:2.1.5"),
        ("nvcr.io/nim/meta/llama-3.1-8b-instruct:2.1.5",) * 2,
        ("registry.example:5000/llama:2",) * 2,
    ):
        files = objects_of(target_files(deployed(plan, "nim", checkpoint=given), "nim"))
        spec = files["Deployment", "llama-3-1-8b"]["spec"]["template"]["spec"]
        assert spec["containers"][0]["image"] == image
    with pytest.raises(InputError, match="has a registry and no tag; write the image with its tag"):
        deployed(plan, "nim", checkpoint="nvcr.io/nim/meta/llama-3.1-8b-instruct")
