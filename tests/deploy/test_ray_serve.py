"""Ray Serve's application says what the plan says; that vLLM's engine takes the arguments is tested in tests/engines."""

from __future__ import annotations

from dataclasses import replace

import yaml

from tests.deploy.plans import dense, experts
from tonnage.deploy.ray_serve import engine_arguments, files, lacks
from tonnage.deploy.service import service_of


def test_the_application_says_what_the_plan_found() -> None:
    (application,) = yaml.safe_load(files(service_of(experts()))["serve.yaml"])["applications"]
    (config,) = application["args"]["llm_configs"]
    assert config["model_loading_config"] == {"model_id": "deepseek-v3", "model_source": "deepseek-ai/DeepSeek-V3"}
    assert config["accelerator_type"] == "H200"
    assert config["engine_kwargs"]["tensor_parallel_size"] == 8
    assert config["engine_kwargs"]["enable_expert_parallel"] is True
    scaling = config["deployment_config"]["autoscaling_config"]
    assert (scaling["min_replicas"], scaling["max_replicas"], scaling["target_ongoing_requests"]) == (4, 7, 180)


def test_flags_become_keywords() -> None:
    argv = ("vllm", "serve", "m", "--a-b", "1", "--no-enable-x", "--kv=fp8", "--share", "0.9", "--on", "--api-server-count", "4")
    assert engine_arguments(argv) == {"a_b": 1, "enable_x": False, "kv": "fp8", "share": 0.9, "on": True}


def test_the_gpu_is_called_as_ray_calls_it_or_not_at_all() -> None:
    for gpu, system, name in (
        ("b300-sxm-270gb", "dgx-b300", "B300"),
        ("a100-sxm-80gb", "dgx-a100", "A100-80G"),
        ("l20", "8xl20", None),
    ):
        text = files(service_of(dense(gpu=gpu, system=system)))["serve.yaml"]
        (config,) = yaml.safe_load(text)["applications"][0]["args"]["llm_configs"]
        assert config.get("accelerator_type") == name
        assert ("Ray has no name for l20" in text) == (name is None)
        assert ("Ray does not set this label itself" in text) == (name == "A100-80G")


def test_what_ray_does_not_run() -> None:
    pool = dense().candidates[0].pool
    assert lacks(pool, "vllm") == ""
    assert "data-parallel attention" in lacks(replace(pool, dp=2), "vllm")
