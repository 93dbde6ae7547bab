"""The files of a deployment with NVIDIA Dynamo."""

from __future__ import annotations

from typing import Any

from tonnage.deploy.cluster_page import cluster_page
from tonnage.deploy.flags import without
from tonnage.deploy.kubernetes.autoscaling import keda
from tonnage.deploy.kubernetes.bundle import bundle, disruptions, unchecked
from tonnage.deploy.kubernetes.names import metadata
from tonnage.deploy.kubernetes.placing import placing
from tonnage.deploy.kubernetes.workload import resources
from tonnage.deploy.labelled import labelled
from tonnage.deploy.noted import noted, yaml_text
from tonnage.deploy.service import PORT, Service
from tonnage.deploy.told import argv_notes, head
from tonnage.errors import InputError, option

READ = "deploy/operator/api/v1beta1 of Dynamo and its templates of 1.6 were read on 2026-11-22."
VERSION = "1.6.0"
IMAGES = {
    "vllm": f"nvcr.io/nvidia/ai-dynamo/vllm-runtime:{VERSION}",
    "sglang": f"nvcr.io/nvidia/ai-dynamo/sglang-runtime:{VERSION}",
}
"""The repository of vLLM's image was read in Dynamo's templates; SGLang's, and that the tag is the version, are recalled, 2026-11-22."""

MODULES = {"vllm": "dynamo.vllm", "sglang": "dynamo.sglang"}
MODELS = {"vllm": "--model", "sglang": "--model-path"}
SERVERS = ("--api-server-count", "--tokenizer-worker-num")
"""Flags of an engine's own front ends, in whose place Dynamo's stands."""

METRICS_PORT = 9090
"""Where a worker publishes its metrics, by ``DYN_SYSTEM_PORT`` (recalled)."""


def files(service: Service) -> dict[str, str]:
    """The text of each file by its name.

    Raises:
        InputError: an engine whose worker takes other flags than the plan's, or attention ranks.
    """
    where = option("target")
    if service.family not in MODULES:
        raise InputError(
            f"{where}: dynamo is written for {', '.join(MODULES)}, and the plan's engine is {service.pool.engine}; take kubernetes"
        )
    if service.pool.dp > 1:
        raise InputError(f"{where}: dynamo runs attention ranks as workers of their own, which is not written yet; take kubernetes")
    written = {
        "graph.yaml": yaml_text(graph(service), head=f"{head(service)}\n{unchecked(READ)}"),
        "disruption-budget.yaml": yaml_text(disruptions(service, labelled(service))),
    }
    scaled = service.target_in_flight is not None
    if scaled:
        adapter = {"apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeploymentScalingAdapter", "name": f"{service.name}-worker"}
        told = unchecked("the name of the scaling adapter, which the operator makes for the component, is recalled.")
        written["autoscaling.yaml"] = yaml_text(keda(service, adapter), head=told)
    return bundle(
        service,
        written,
        beside={"README.md": page(service)},
        monitored=labelled(service),
        endpoint={"portNumber": METRICS_PORT, "path": "/metrics"},
        autoscaled=scaled,
    )


def graph(service: Service) -> dict[str, Any]:
    """The front end and its workers."""
    return {
        "apiVersion": "nvidia.com/v1beta1",
        "kind": "DynamoGraphDeployment",
        "metadata": metadata(service),
        "spec": {"components": [front_end(service), worker(service)]},
    }


def front_end(service: Service) -> dict[str, Any]:
    """What takes requests and routes them by the KV caches of the workers."""
    main = {
        "name": "main",
        "image": noted(IMAGES[service.family], "Your version of Dynamo; its engine is a version of its own, look at which."),
        "env": [
            noted({"name": "DYN_ROUTER_MODE", "value": "kv"}, "The plan takes the load to be spread at random; this spreads it better.")
        ],
        "resources": {"requests": {"cpu": "4", "memory": "8Gi"}, "limits": {"memory": "16Gi"}},
    }
    return {"name": "Frontend", "type": "frontend", "replicas": 1, "podTemplate": {"spec": {"containers": [main]}}}


def worker(service: Service) -> dict[str, Any]:
    """The instances."""
    token = {"secretKeyRef": {"name": "hf-token", "key": "token", "optional": True}}
    scaled = {"scalingAdapter": noted({}, "An autoscaler moves the replicas through it.")} if service.target_in_flight is not None else {}
    main = {
        "name": "main",
        "image": IMAGES[service.family],
        "command": ["python3", "-m", MODULES[service.family]],
        "args": noted(arguments(service), argv_notes(service)),
        "env": [{"name": "HF_TOKEN", "valueFrom": token}, {"name": "DYN_SYSTEM_PORT", "value": str(METRICS_PORT)}],
        "resources": resources(service),
        "startupProbe": noted(
            {"periodSeconds": 10, "failureThreshold": -(-service.startup_seconds // 10)},
            f"{service.startup_seconds} s to start; what is asked is the operator's own probe.",
        ),
    }
    pod = {"terminationGracePeriodSeconds": service.drain_seconds, **placing(service.gpu), "containers": [main]}
    return {
        "name": "worker",
        "type": "worker",
        "replicas": noted(service.pool.instances, "The plan's instances, spare ones included."),
        **scaled,
        "sharedMemorySize": f"{service.shared_memory_gib}Gi",
        "podTemplate": {"metadata": {"labels": labelled(service)}, "spec": pod},
    }


def arguments(service: Service) -> list[str]:
    """The engine's flags as Dynamo's worker takes them: the model by a flag, and no front ends."""
    model = MODELS[service.family]
    start = 3 if service.family == "vllm" else service.pool.launch.index(model) + 2
    flags = without(service.pool.launch[start:], *SERVERS)
    return [model, service.checkpoint, "--served-model-name", service.served, *flags]


def page(service: Service) -> str:
    """The page in Markdown."""
    rows = [
        ("`graph.yaml`", f"a front end and {service.pool.instances} workers, the engine's arguments, probes, resources"),
        ("`disruption-budget.yaml`", "one worker at a time"),
    ]
    if service.target_in_flight is not None:
        rows.append(("`autoscaling.yaml`", f"{service.least_instances} to {service.pool.instances} workers, by KEDA"))
    return cluster_page(
        service,
        runs_on="NVIDIA Dynamo",
        needs=(
            f"The engine loads `{service.checkpoint}`. The cluster needs Dynamo's platform (its operator, version "
            f"{VERSION} or newer), NVIDIA's "
            "GPU operator and kube-prometheus-stack, and KEDA for the autoscaling. A gated model needs a Secret "
            "`hf-token` with the key `token`."
        ),
        commands=(
            "kubectl apply --kustomize .",
            f"kubectl wait dynamographdeployment/{service.name} --for condition=Ready --timeout {service.startup_seconds + 300}s",
            f"kubectl port-forward service/{service.name}-frontend 8080:{PORT} &",
        ),
        url="http://127.0.0.1:8080",
        instances=service.pool.instances,
        rows=rows,
        further=(
            "A worker has no HTTP responses of its own, so that the rule on failed requests sees nothing here; "
            "Dynamo's front end counts them "
            "under its own names."
        ),
    )
