"""The instances: a Deployment, its pods and the engine in them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tonnage.deploy.checkpoint import FOLDER
from tonnage.deploy.kubernetes.names import labels, metadata, selector
from tonnage.deploy.kubernetes.placing import placing
from tonnage.deploy.noted import noted
from tonnage.deploy.service import Service
from tonnage.deploy.told import argv_notes, startup_line
from tonnage.plan.launch import FILE

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
    """Where the checkpoint lies."""
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
