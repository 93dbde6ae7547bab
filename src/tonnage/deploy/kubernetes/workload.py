"""The instances: a Deployment, its pods and the engine in them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tonnage.deploy.checkpoint import FOLDER
from tonnage.deploy.kubernetes.names import labels, metadata, selector
from tonnage.deploy.plan_text import argv_notes, startup_line
from tonnage.deploy.service import Service
from tonnage.deploy.yaml_comments import noted
from tonnage.plan.launch import FILE
from tonnage.spec.hardware import Gpu

# On which nodes the instances may run: those with the plan's GPUs, as NVIDIA's GPU feature discovery labels them.


PRODUCTS = {
    "v100-sxm2-32gb": "Tesla-V100-SXM2-32GB",
    "t4": "Tesla-T4",
    "a10-24gb": "NVIDIA-A10",
    "a10g-24gb": "NVIDIA-A10G",
    "a100-pcie-40gb": "NVIDIA-A100-PCIE-40GB",
    "a100-pcie-80gb": "NVIDIA-A100-80GB-PCIe",
    "a100-sxm-40gb": "NVIDIA-A100-SXM4-40GB",
    "a100-sxm-80gb": "NVIDIA-A100-SXM4-80GB",
    "l4": "NVIDIA-L4",
    "l40": "NVIDIA-L40",
    "l40s": "NVIDIA-L40S",
    "h100-pcie-80gb": "NVIDIA-H100-PCIe",
    "h100-sxm-80gb": "NVIDIA-H100-80GB-HBM3",
    "h100-nvl-94gb": "NVIDIA-H100-NVL",
    "h200-sxm-141gb": "NVIDIA-H200",
    "h200-nvl-141gb": "NVIDIA-H200-NVL",
    "h20-96gb": "NVIDIA-H20",
    "b200-sxm-180gb": "NVIDIA-B200",
}
"""The label ``nvidia.com/gpu.product`` of GPUs by catalog id: the name that the driver reports, with hyphens (recalled, 2026-11-22)."""

MARGIN = 0.03
"""How far the memory that a driver reports may lie from the catalog's."""


def placing(gpu: Gpu) -> dict[str, Any]:
    """Selector, affinity and toleration of a pod."""
    return {**_nodes(gpu), "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]}


def _nodes(gpu: Gpu) -> dict[str, Any]:
    product = PRODUCTS.get(gpu.name)
    if product is not None:
        told = f"{gpu.name}, as GPU feature discovery names it; look at your nodes: kubectl get nodes -L nvidia.com/gpu.product"
        return {"nodeSelector": noted({"nvidia.com/gpu.product": product}, told)}
    mib = gpu.memory_bytes / 2**20
    wanted = [
        {"key": "nvidia.com/gpu.family", "operator": "In", "values": [gpu.arch.lower()]},
        {"key": "nvidia.com/gpu.memory", "operator": "Gt", "values": [str(round((1 - MARGIN) * mib))]},
        {"key": "nvidia.com/gpu.memory", "operator": "Lt", "values": [str(round((1 + MARGIN) * mib))]},
    ]
    required = {"nodeSelectorTerms": [{"matchExpressions": wanted}]}
    told = f"The name that a driver reports for {gpu.name} is not known: its family and its memory in MiB."
    return {"affinity": noted({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}, told)}


CONFIG = "/etc/engine"
PROBE_S = 10


def deployment(service: Service, spec: Mapping[str, Any] | None = None, *, further: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The pods.

    Args:
        service: what is deployed.
        spec: of a pod, in place of the engine's.
        further: labels of a pod.
    """
    moved = "" if service.target_in_flight is None else "; the autoscaler moves this number"
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(service, "" if service.pool.role == "serve" else f"-{service.pool.role}"),
        "spec": {
            "replicas": noted(service.pool.instances, f"The plan's instances, spare ones included{moved}."),
            "selector": {"matchLabels": selector(service)},
            "strategy": noted(
                {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
                "No GPUs are kept free for an update: one instance ends before its successor starts.",
            ),
            "progressDeadlineSeconds": service.startup_seconds + 300,
            "template": {
                "metadata": {"labels": {**labels(service), **selector(service), **(further or {})}},
                "spec": dict(spec or pod(service)),
            },
        },
    }


def pod(service: Service) -> dict[str, Any]:
    """One instance."""
    memory = noted({"medium": "Memory", "sizeLimit": f"{service.shared_memory_gib}Gi"}, "Shared memory of NCCL and the engine's processes.")
    volumes: list[Any] = [model_volume(service), {"name": "shared-memory", "emptyDir": memory}]
    if service.file:
        volumes.append(file_volume(service))
    return {
        "terminationGracePeriodSeconds": noted(
            service.drain_seconds + PROBE_S,
            "Running requests may end: the plan's p99 of E2E at the limit, and the time to leave the Service.",
        ),
        "automountServiceAccountToken": False,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        **placing(service.gpu),
        "containers": [container(service)],
        "volumes": volumes,
    }


def model_volume(service: Service) -> dict[str, Any]:
    """Where the checkpoint is."""
    return {"name": "model-cache", "persistentVolumeClaim": {"claimName": f"{service.name}-model-cache"}}


def file_volume(service: Service) -> dict[str, Any]:
    """The engine's configuration file."""
    return {"name": "engine-config", "configMap": {"name": f"{service.name}-engine-config"}}


def container(service: Service) -> dict[str, Any]:
    """The engine."""
    mounts: list[Any] = [{"name": "model-cache", "mountPath": FOLDER}, {"name": "shared-memory", "mountPath": "/dev/shm"}]
    if service.file:
        mounts.append({"name": "engine-config", "mountPath": CONFIG, "readOnly": True})
    command, *arguments = service.argv
    said = [f"{CONFIG}/{FILE}" if word == FILE else word for word in arguments]
    return {
        "name": "engine",
        "image": noted(service.image, f"{service.pool.engine_preset}; {service.image_source}"),
        "command": [command],
        "args": noted(said, argv_notes(service)),
        "env": environment(),
        "ports": [{"name": "http", "containerPort": service.port}],
        **probes(service),
        "lifecycle": {"preStop": {"exec": {"command": ["sleep", str(PROBE_S)]}}},
        "resources": resources(service),
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": mounts,
    }


def environment() -> list[Any]:
    """Where the model is kept, and the hub's token by reference."""
    token = {"secretKeyRef": {"name": "hf-token", "key": "token", "optional": True}}
    return [{"name": "HF_HOME", "value": FOLDER}, noted({"name": "HF_TOKEN", "valueFrom": token}, "Needed for gated models alone.")]


def startup_tries(service: Service) -> int:
    """How often a start-up probe may fail."""
    return math.ceil(service.startup_seconds / PROBE_S)


def probes(service: Service) -> dict[str, Any]:
    """Start-up by the size of the model, then readiness and liveness."""
    get = {"httpGet": {"path": "/health", "port": "http"}}
    tries = startup_tries(service)
    return {
        "startupProbe": noted({**get, "periodSeconds": PROBE_S, "timeoutSeconds": 5, "failureThreshold": tries}, startup_line(service)),
        "readinessProbe": {**get, "periodSeconds": 5, "timeoutSeconds": 5, "failureThreshold": 2},
        "livenessProbe": {**get, "periodSeconds": PROBE_S, "timeoutSeconds": 10, "failureThreshold": 6},
    }


def resources(service: Service) -> dict[str, Any]:
    """GPUs, cores and memory of one instance."""
    shared = {"memory": f"{service.memory_gib}Gi", "nvidia.com/gpu": service.gpus}
    told = (
        "The weights on their way to the GPUs, 16 GiB for the processes, and shared memory; two cores for each front end, one for each GPU."
    )
    return {"requests": noted({"cpu": service.cpus, **shared}, told), "limits": shared}
