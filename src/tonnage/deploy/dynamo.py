"""The files of a deployment with NVIDIA Dynamo."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tonnage.deploy.checkpoint import FOLDER
from tonnage.deploy.kubernetes import engine_config, labelled, model_cache
from tonnage.deploy.plan_text import argv_notes, cluster_page, head, instances_words, keda_too
from tonnage.deploy.service import PORT, Service, transfer_file, transfer_words, without
from tonnage.deploy.workload import (
    CONFIG,
    TOKEN,
    bundle,
    disruptions,
    file_volume,
    keda,
    manifest,
    model_volume,
    placing,
    resources,
)
from tonnage.deploy.yaml_comments import noted, yaml_text
from tonnage.plan.launch import FILE

VERSION = "1.6.0"
IMAGES = {
    "vllm": f"nvcr.io/nvidia/ai-dynamo/vllm-runtime:{VERSION}",
    "sglang": f"nvcr.io/nvidia/ai-dynamo/sglang-runtime:{VERSION}",
    "tensorrt-llm": f"nvcr.io/nvidia/ai-dynamo/tensorrtllm-runtime:{VERSION}",
}
"""The repositories of vLLM's and TensorRT-LLM's images were read in Dynamo's templates and examples
(2026-11-23), SGLang's in public manifests, whose tags are versions of Dynamo (2026-11-25)."""

MODULES = {"vllm": "dynamo.vllm", "sglang": "dynamo.sglang", "tensorrt-llm": "dynamo.trtllm"}
MODELS = {"vllm": "--model", "sglang": "--model-path", "tensorrt-llm": "--model"}
SERVERS = ("--api-server-count", "--tokenizer-worker-num", "--num_postprocess_workers")
"""Flags of an engine's own front ends, that Dynamo's replaces."""

RENAMED = {
    "--tp_size": "--tensor-parallel-size",
    "--pp_size": "--pipeline-parallel-size",
    "--ep_size": "--expert-parallel-size",
    "--max_batch_size": "--max-batch-size",
    "--max_num_tokens": "--max-num-tokens",
    "--max_seq_len": "--max-seq-len",
    "--kv_cache_free_gpu_memory_fraction": "--free-gpu-memory-fraction",
    "--extra_llm_api_options": "--extra-engine-args",
}
"""Flags of trtllm-serve as Dynamo's worker of TensorRT-LLM calls them (ai-dynamo 1.6.1,
trtllm/backend_args.py, read 2026-11-23)."""

OWN_FLAGS = (
    *("--model", "--model-path", "--served-model-name", "--disaggregation-mode"),
    *("--kv-block-size", "--publish-kv-events", "--publish-metrics"),
)
"""Flags of Dynamo's workers that are not, or not under this name, flags of the engine in them (read
as above)."""

# Where a worker publishes its metrics, by ``DYN_SYSTEM_PORT`` (ai-dynamo 1.6.1, planner/monitoring,
# read 2026-11-25)
METRICS_PORT = 9090


def files(service: Service) -> dict[str, str]:
    """The text of each file by its name."""
    written = {
        "graph.yaml": yaml_text(graph(service), head=head(service)),
        "disruption-budget.yaml": yaml_text(disruptions(service, labelled(service))),
    }
    if service.file:
        written["engine-config.yaml"] = yaml_text(
            engine_config(
                service, {file_name(half): yaml_text(worker_file(half)) for half in service.halves}
            )
        )
    if service.local:
        written["model-cache.yaml"] = yaml_text(model_cache(service))
    if service.target_in_flight is not None:
        adapter = {
            "apiVersion": "nvidia.com/v1beta1",
            "kind": "DynamoGraphDeploymentScalingAdapter",
            "name": f"{service.name}-worker",
        }
        note = (
            "The scaling adapter has the names of graph and component (generateAdapterName of"
            " Dynamo's operator, read on 2026-11-25)."
        )
        written["autoscaling.yaml"] = yaml_text(keda(service, adapter), head=note)
    return bundle(
        service,
        written,
        {"README.md": page(service)},
        labelled(service),
        {"portNumber": METRICS_PORT, "path": "/metrics"},
    )


def graph(service: Service) -> dict[str, Any]:
    """The front end and its workers; of two pools those of each."""
    return manifest(
        service,
        "DynamoGraphDeployment",
        {"components": [front_end(service), *map(worker, service.halves)]},
    )


def front_end(service: Service) -> dict[str, Any]:
    """Write the front end, which routes requests by the KV caches of the workers."""
    note = f"By the KV caches of the workers; the plan counts on {service.router}."
    main = {
        "name": "main",
        "image": noted(
            IMAGES[service.family],
            "Your version of Dynamo; its engine is a version of its own, look at which.",
        ),
        "env": [noted({"name": "DYN_ROUTER_MODE", "value": "kv"}, note)],
        "resources": {"requests": {"cpu": "4", "memory": "8Gi"}, "limits": {"memory": "16Gi"}},
    }
    return {
        "name": "Frontend",
        "type": "frontend",
        "replicas": 1,
        "podTemplate": {"spec": {"containers": [main]}},
    }


def worker(service: Service) -> dict[str, Any]:
    """The instances."""
    scaled = (
        {"scalingAdapter": noted({}, "An autoscaler moves the replicas through it.")}
        if service.target_in_flight is not None
        else {}
    )
    main = {
        "name": "main",
        "image": IMAGES[service.family],
        "command": ["python3", "-m", MODULES[service.family]],
        "args": noted(arguments(service), argv_notes(service)),
        "env": [TOKEN, {"name": "DYN_SYSTEM_PORT", "value": str(METRICS_PORT)}],
        "resources": resources(service),
        "startupProbe": noted(
            {"periodSeconds": 10, "failureThreshold": -(-service.startup_seconds // 10)},
            f"{service.startup_seconds} s to start; what is asked is the operator's own probe.",
        ),
    }
    mounted: list[tuple[dict[str, Any], dict[str, Any]]] = [
        *([(model_volume(service), {"mountPath": FOLDER})] if service.local else []),
        *(
            [(file_volume(service), {"mountPath": CONFIG, "readOnly": True})]
            if service.file
            else []
        ),
    ]
    if mounted:
        main["volumeMounts"] = [{"name": volume["name"], **mount} for volume, mount in mounted]
    volumes = {"volumes": [volume for volume, _ in mounted]} if mounted else {}
    pod = {
        "terminationGracePeriodSeconds": service.drain_seconds,
        **placing(service),
        "containers": [main],
        **volumes,
    }
    role = "worker" if service.pool.role == "serve" else service.pool.role
    return {
        "name": role,
        "type": role,
        "replicas": noted(service.pool.instances, "The plan's instances, spare ones included."),
        **scaled,
        "sharedMemorySize": f"{service.shared_memory_gib}Gi",
        "podTemplate": {"metadata": {"labels": labelled(service)}, "spec": pod},
    }


def as_engine(words: Sequence[str]) -> list[str]:
    """A worker's words as its engine takes them."""
    engines = (
        {worker: engine_word for engine_word, worker in RENAMED.items()}
        if MODULES["tensorrt-llm"] in words
        else {}
    )
    return [engines.get(word, word) for word in words if word not in OWN_FLAGS]


def arguments(service: Service) -> list[str]:
    """The engine's flags as Dynamo's worker takes them: the model by a flag, and no front ends."""
    launch, named = (
        service.pool.launch,
        [MODELS[service.family], service.checkpoint, "--served-model-name", service.served],
    )
    if service.family == "tensorrt-llm":
        flags = [RENAMED.get(word, word) for word in without(launch[2:], "--backend", *SERVERS)]
        flags = [f"{CONFIG}/{file_name(service)}" if word == FILE else word for word in flags]
        block = (
            ["--kv-block-size", str(service.pool.knobs.tokens_per_block)]
            if service.pool.knobs
            else []
        )
        return [
            *named,
            *flags,
            *block,
            "--publish-kv-events",
            "--publish-metrics",
            *_role_words(service),
        ]
    start = 3 if service.family == "vllm" else launch.index(MODELS[service.family]) + 2
    return [*named, *without(launch[start:], *SERVERS), *_role_words(service)]


def _role_words(service: Service) -> tuple[str, ...]:
    """What makes a worker one of two pools (Dynamo's
    examples/backends/*/deploy/v1beta1/disagg.yaml, read 2026-11-23).
    """
    role = service.pool.role
    if role == "serve":
        return ()
    role_flags = (
        ("--host", "0.0.0.0") if service.family == "sglang" else ("--disaggregation-mode", role)
    )
    return (*transfer_words(service.family, role), *role_flags)


def file_name(service: Service) -> str:
    """The name of TensorRT-LLM's configuration file; each of two pools has its own."""
    return FILE if service.pool.role == "serve" else f"{service.pool.role}.yaml"


def worker_file(service: Service) -> dict[str, Any]:
    """TensorRT-LLM's configuration for Dynamo's worker, which replaces whole sections:
    kv_cache_config therefore repeats its fraction.
    """
    settings, knobs = dict(service.pool.launch_file), service.pool.knobs
    if knobs is not None and "kv_cache_config" in settings:
        settings["kv_cache_config"] = {
            "free_gpu_memory_fraction": knobs.kv_fraction,
            **settings["kv_cache_config"],
        }
    if service.family == "tensorrt-llm":
        settings.update(transfer_file(service.pool.role, service.pool.launch))
    return settings


def page(service: Service) -> str:
    """The page in Markdown."""
    rows = [
        (
            "`graph.yaml`",
            (
                f"a front end and {instances_words(service.choice.pools, 'worker')}, the engine's"
                " arguments, probes, resources"
            ),
        ),
        ("`disruption-budget.yaml`", "one worker at a time"),
    ]
    return cluster_page(
        service,
        runs_on="NVIDIA Dynamo",
        needs=(
            f"The cluster needs Dynamo's platform (its operator, version {VERSION} or newer),"
            f" NVIDIA's GPU operator and kube-prometheus-stack{keda_too(service)}. A gated model"
            " needs a Secret `hf-token` with the key `token`."
        ),
        commands=(
            "kubectl apply --kustomize .",
            (
                f"kubectl wait dynamographdeployment/{service.name} --for condition=Ready --timeout"
                f" {service.startup_seconds + 300}s"
            ),
            f"kubectl port-forward service/{service.name}-frontend 8080:{PORT} &",
        ),
        url="http://127.0.0.1:8080",
        instances=service.pool.instances,
        rows=rows,
        scaled="workers",
        further=(
            "A worker has no HTTP responses of its own, so that the rule on failed requests sees"
            " nothing here; Dynamo's front end counts them under its own names."
        ),
    )
