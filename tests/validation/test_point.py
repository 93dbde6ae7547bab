from tonnage.evidence.predict import predict, read_point

STATIC = {"model": "llama-2-7b", "gpu": "h100-sxm-80gb", "precision": "fp8", "tp": 1, "isl": 128, "osl": 128, "batch": 8}
CLOSED = {"model": "llama-3-8b", "gpu": "h100-sxm-80gb", "precision": "fp16", "tp": 1, "isl": 200, "osl": 20, "concurrency": 4}


def test_engines_by_default_and_by_name() -> None:
    assert read_point(STATIC).deployment.engine == "tensorrt-llm-0.9"
    assert read_point(CLOSED).deployment.engine == "tensorrt-llm-0.15"
    assert read_point(CLOSED | {"engine": "nim (tensorrt-llm)"}).deployment.engine == "nim-2024"
    assert read_point(CLOSED | {"engine": "vllm 0.19"}).deployment.knobs.scheduler == "vllm"
    named = read_point(STATIC | {"engine": "tensorrt-llm 0.15.0"})
    assert named.deployment.knobs.scheduler == "static"
    assert predict(named)["ttft_ms"] != predict(read_point(STATIC))["ttft_ms"]
