"""The page that says how to start Triton, test it, and compare it with the plan."""

from __future__ import annotations

from tonnage.deploy.service import Service
from tonnage.deploy.testing import bench_command, compare_command
from tonnage.deploy.told import gpu_words, paragraph, summary

IMAGES = {
    "vllm": "nvcr.io/nvidia/tritonserver:26.10-vllm-python-py3",
    "tensorrt-llm": "nvcr.io/nvidia/tritonserver:26.10-trtllm-python-py3",
}
"""Pattern of the tags recalled, 2026-11-22; take the newest month there is."""


def readme(service: Service) -> str:
    """The page in Markdown."""
    image = IMAGES[service.family]
    first = f"docker pull {image}"
    if service.family != "vllm":
        first = f"hf download {service.checkpoint} tokenizer.json --local-dir repository/tokenizer"
        if service.local:
            first = f"mkdir --parents repository/tokenizer && cp {service.checkpoint}/tokenizer.json repository/tokenizer/"
    gpus = ",".join(map(str, range(service.gpus)))
    start = (
        f"docker run --detach --name {service.name} --gpus '\"device={gpus}\"' --shm-size {service.shared_memory_gib}g --env HF_TOKEN "
        f"--publish 8000:8000 --publish 8102:8002 \\\n"
        f"    --volume $PWD:/deployment --workdir /deployment {image} tritonserver --model-repository /deployment/repository"
    )
    bench = bench_command(service, f"http://127.0.0.1:8000/v2/models/{service.name}/generate_stream", instances=1)
    bench = bench.replace("tonnage bench", "tonnage bench --endpoint-type generate", 1)
    return f"""# {service.served} with Triton

{summary(service)}

{_what(service)}

```sh
{first}
{start}
curl --fail --retry 100 --retry-connrefused --retry-delay 10 http://127.0.0.1:8000/v2/health/ready
{bench}
{compare_command(instances=1)}
```

{_further(service)}

| file | what |
|---|---|
{_rows(service)}
| `plan.json` | the plan |
"""


def _further(service: Service) -> str:
    machines = service.pool.systems
    several = f" ({service.per_machine} per machine; copy this folder to all {machines} machines)" if machines > 1 else ""
    return paragraph(
        f"The second command starts one of the plan's {service.pool.instances} instances, on {gpu_words(service)}. Start each further "
        f"instance{several} with other GPUs and ports, and put `tonnage gateway` in front of them. If tritonserver is installed without a "
        "container, start it with `tonnage serve --engine triton --model repository`."
    )


def _what(service: Service) -> str:
    if service.family == "vllm":
        return "vLLM's backend batches by itself and streams; Triton hands every request on."
    return paragraph(
        "The model is an ensemble of a tokenizer, the engine and a detokenizer. It does not stream: `bench` measures E2E, but no TTFT."
    )


def _rows(service: Service) -> str:
    name = service.name
    if service.family == "vllm":
        rows = [
            (f"`repository/{name}`", "the model: vLLM's backend and its arguments"),
            ("`alerts.yaml`, `prometheus.yaml`, `dashboard.json`", "the rules on vLLM's metrics, what is scraped, the dashboard"),
        ]
    else:
        rows = [
            (f"`repository/{name}`", "the ensemble"),
            (f"`repository/{name}-tokenize`, `-detokenize`", "text to tokens and back, batched, with priorities and time limits"),
            (f"`repository/{name}-engine`", "TensorRT-LLM"),
        ]
    return "\n".join(f"| {place} | {what} |" for place, what in rows)
