"""NVIDIA Dynamo: workers with their own spellings."""

from __future__ import annotations

import yaml

from tests.deploy.clusters import objects
from tests.deploy.plans import DENSE_CHECKPOINT


def test_dynamos_worker_of_tensorrt_llm_gets_its_own_spellings_and_the_file() -> None:
    found = objects("dynamo", "tensorrt-llm-1.2")
    _, worker = found["DynamoGraphDeployment", "llama-3-1-8b"]["spec"]["components"]
    spec = worker["podTemplate"]["spec"]
    (main,) = spec["containers"]
    words = main["args"]
    assert main["command"] == ["python3", "-m", "dynamo.trtllm"]
    assert words[:2] == ["--model", DENSE_CHECKPOINT]
    said = dict(zip(words[::2], words[1::2], strict=False))
    assert (said["--max-batch-size"], said["--max-seq-len"], said["--kv-block-size"]) == (
        "2048",
        "4096",
        "32",
    )
    assert "--publish-kv-events" in words
    # which are trtllm-serve's own
    assert not [word for word in words if word.startswith("--") and "_" in word]
    config = yaml.safe_load(found["ConfigMap", "llama-3-1-8b-engine-config"]["data"]["engine.yaml"])
    assert config["kv_cache_config"]["free_gpu_memory_fraction"] == float(
        said["--free-gpu-memory-fraction"]
    )
    assert said["--extra-engine-args"] == f"{main['volumeMounts'][0]['mountPath']}/engine.yaml"
