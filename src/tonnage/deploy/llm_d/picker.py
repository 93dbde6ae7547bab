"""The endpoint picker: a Deployment that the gateway asks which pod gets a request."""

from __future__ import annotations

from typing import Any

from tonnage.deploy.kubernetes.names import metadata
from tonnage.deploy.llm_d.pool import PICKER_PORT
from tonnage.deploy.noted import noted, yaml_text
from tonnage.deploy.service import Service

IMAGE = "ghcr.io/llm-d/llm-d-router-endpoint-picker:v0.9.0"
IMAGE_SOURCE = "as KServe's templates of 2026 name it (read in a secondary source, 2026-11-22)"
HEALTH_PORT = 9003

WEIGHTS = {"prefix-cache-scorer": 3, "queue-scorer": 2, "kv-cache-utilization-scorer": 2}
"""What a pod is scored by (llm-d's defaults, recalled)."""


ALWAYS = "always-disagg-pd-decider"
"""The plugin that sends every request through both pools, as in the plan (llm-d's guides/pd-disaggregation, read 2026-11-23)."""


def picker(service: Service) -> dict[str, Any]:
    """The Deployment."""
    matched = {"app.kubernetes.io/name": f"{service.name}-picker"}
    arguments = ["--pool-name", service.name, "--pool-namespace", "$(NAMESPACE)", "--config-file", "/config/picker.yaml"]
    check = {"grpc": {"port": HEALTH_PORT, "service": "inference-extension"}}
    container = {
        "name": "picker",
        "image": noted(IMAGE, IMAGE_SOURCE),
        "args": noted(
            [*arguments, "--grpc-port", str(PICKER_PORT), "--grpc-health-port", str(HEALTH_PORT)], "Names of flags are recalled."
        ),
        "env": [{"name": "NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}],
        "ports": [{"name": "picker", "containerPort": PICKER_PORT}],
        "readinessProbe": {**check, "periodSeconds": 5},
        "livenessProbe": {**check, "periodSeconds": 10},
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "2Gi"}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "config", "mountPath": "/config", "readOnly": True}],
    }
    pod = {
        "serviceAccountName": f"{service.name}-picker",
        "containers": [container],
        "volumes": [{"name": "config", "configMap": {"name": f"{service.name}-picker-config"}}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(service, "-picker"),
        "spec": {
            "replicas": noted(1, "It remembers which pod has seen which prefix."),
            "selector": {"matchLabels": matched},
            "template": {"metadata": {"labels": matched}, "spec": pod},
        },
    }


def picker_service(service: Service) -> dict[str, Any]:
    """Its address."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(service, "-picker"),
        "spec": {
            "selector": {"app.kubernetes.io/name": f"{service.name}-picker"},
            "ports": [{"name": "picker", "port": PICKER_PORT, "targetPort": "picker", "appProtocol": "kubernetes.io/h2c"}],
        },
    }


def permissions(service: Service) -> tuple[dict[str, Any], ...]:
    """What it may read: its pool and the pods in it."""
    name = f"{service.name}-picker"
    rules = [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]},
        {
            "apiGroups": ["inference.networking.k8s.io", "inference.networking.x-k8s.io", "llm-d.ai"],
            "resources": ["inferencepools", "inferenceobjectives", "inferencemodelrewrites"],
            "verbs": ["get", "list", "watch"],
        },
    ]
    subject = {"kind": "ServiceAccount", "name": name}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    return (
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata(service, "-picker")},
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": metadata(service, "-picker"), "rules": rules},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": metadata(service, "-picker"),
            "subjects": [subject],
            "roleRef": role,
        },
    )


def picker_config(service: Service) -> dict[str, Any]:
    """How pods are scored; of two pools each by itself, and no request is computed where it decodes."""
    plugins: list[dict[str, Any]] = [{"type": name} for name in (*WEIGHTS, "max-score-picker")]
    weighed = [*({"pluginRef": name, "weight": weight} for name, weight in WEIGHTS.items()), {"pluginRef": "max-score-picker"}]
    profiles = [{"name": "default", "plugins": weighed}]
    if len(service.halves) > 1:
        plugins = [{"type": name} for name in ("disagg-headers-handler", ALWAYS, "prefill-filter", "decode-filter")] + plugins
        plugins.append({"type": "disagg-profile-handler", "parameters": {"deciders": {"prefill": ALWAYS}}})
        profiles = [{"name": role, "plugins": [{"pluginRef": f"{role}-filter"}, *weighed]} for role in ("prefill", "decode")]
    config = {
        "apiVersion": "inference.networking.x-k8s.io/v1alpha1",
        "kind": "EndpointPickerConfig",
        "plugins": plugins,
        "schedulingProfiles": profiles,
    }
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(service, "-picker-config"),
        "data": {"picker.yaml": yaml_text(config)},
    }
