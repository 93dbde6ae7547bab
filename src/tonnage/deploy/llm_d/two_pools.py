"""The pods of two pools with llm-d: prefill pods, and decode pods whose routing sidecar has a prompt computed elsewhere first."""

from __future__ import annotations

from typing import Any

from tonnage.deploy.kubernetes.workload import deployment, pod
from tonnage.deploy.noted import noted
from tonnage.deploy.service import PORT, Service

SIDECAR = "ghcr.io/llm-d/llm-d-router-disagg-sidecar:v0.9.0"
SIDECAR_READ = "flags were read in llm-d's guides/recipes/modelserver on 2026-11-23; the tag is the picker's"
CONNECTORS = {"vllm": "nixlv2", "sglang": "sglang"}
"""Of the sidecar, by the engine's family."""


def half(service: Service) -> dict[str, Any]:
    """The Deployment of one pool.

    Args:
        service: one of ``Service.halves``.
    """
    role, spec = service.pool.role, pod(service)
    (engine,) = spec["containers"]
    if service.family == "vllm":
        address = {"name": "VLLM_NIXL_SIDE_CHANNEL_HOST", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
        engine["env"] = [*engine["env"], noted(address, "Where the other pool's engines fetch KV caches.")]
    if role == "decode":
        arguments = [
            f"--port={PORT}",
            f"--vllm-port={service.port}",
            f"--kv-connector={CONNECTORS[service.family]}",
            "--secure-serving=false",
        ]
        sidecar = {
            "name": "routing-proxy",
            "image": noted(SIDECAR, SIDECAR_READ),
            "args": arguments,
            "ports": [{"name": "proxy", "containerPort": PORT}],
            "restartPolicy": "Always",
            "securityContext": {"allowPrivilegeEscalation": False, "runAsNonRoot": True},
        }
        spec = {**spec, "initContainers": [sidecar]}
    return deployment(service, spec, further={"llm-d.ai/engine-type": service.family})
