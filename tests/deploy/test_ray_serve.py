"""Ray Serve's application says what the plan says; that vLLM's engine takes the arguments is tested in tests/engines."""

from __future__ import annotations

from dataclasses import replace

import yaml

from tests.deploy.plans import dense, experts
from tonnage.deploy.ray_serve.engine_arguments import engine_arguments
from tonnage.deploy.ray_serve.files import files, lacks
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


def test_what_ray_does_not_run() -> None:
    pool = dense().candidates[0].pool
    assert lacks(pool, "vllm") == ""
    assert lacks(replace(pool, gpu="b300-sxm-270gb"), "vllm") == "Ray has no name for b300-sxm-270gb"
    assert "data-parallel attention" in lacks(replace(pool, dp=2), "vllm")
