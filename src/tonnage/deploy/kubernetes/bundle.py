"""What every target on a cluster has next to its instances: monitoring, rules, a dashboard, and the list of what kubectl applies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tonnage.deploy.alerts import rules
from tonnage.deploy.dashboard import dashboard_text
from tonnage.deploy.kubernetes.names import metadata, selector
from tonnage.deploy.service import Service
from tonnage.deploy.yaml_comments import noted, yaml_text

# What Prometheus reads and watches, for its operator.


def pod_monitor(service: Service, matched: Mapping[str, str] | None = None, endpoint: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Every instance is scraped; its series get the deployment's name as a label.

    Args:
        service: what is deployed.
        matched: labels of its pods (default: those of the Deployment).
        endpoint: where they publish, in place of the port "http" (default: there).
    """
    labelled = {"targetLabel": "deployment", "replacement": service.name}
    found = {**(endpoint or {"port": "http"})}
    found = {**found, "path": found.get("path", service.signals.path), "interval": "15s", "relabelings": [labelled]}
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PodMonitor",
        "metadata": metadata(service),
        "spec": {
            "selector": {"matchLabels": dict(matched or selector(service))},
            "podMetricsEndpoints": noted([found], "Rules, dashboard and autoscaling find the series by the label deployment."),
        },
    }


def alert_rules(service: Service, *, autoscaled: bool) -> dict[str, Any]:
    """The rules, as the operator takes them; with an autoscaler fewer instances than the plan's may run on purpose."""
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": metadata(service),
        "spec": rules(service, _gpus(service), service.least_instances if autoscaled else service.pool.instances),
    }


def _gpus(service: Service) -> str:
    """The exporter of NVIDIA's GPU operator names the pod that uses a GPU, in one of two labels."""
    pods = f'"{service.name}-.+"'
    return f'DCGM_FI_DEV_GPU_UTIL{{exported_pod=~{pods}}} or DCGM_FI_DEV_GPU_UTIL{{pod=~{pods},exported_pod=""}}'


UNCHECKED = "not schema-validated"
"""What is in the comment of an object whose schema was not at hand (docs/deploy.md)."""


def unchecked(read: str) -> str:
    """The comment before such an object.

    Args:
        read: where its fields were read, or that they are recalled.
    """
    return f"{UNCHECKED}: {read}"


def bundle(
    service: Service,
    applied: Mapping[str, str],
    *,
    beside: Mapping[str, str] | None = None,
    monitored: Mapping[str, str] | None = None,
    endpoint: Mapping[str, Any] | None = None,
    autoscaled: bool = False,
) -> dict[str, str]:
    """The text of each file by its name.

    Args:
        service: what is deployed.
        applied: files with objects that kubectl applies.
        beside: files that it does not.
        monitored: labels of the pods that publish the engine's metrics (default: those of the Deployment).
        endpoint: how they are scraped, in addition to path and interval (default: the port "http").
        autoscaled: whether fewer instances than the plan's may run on purpose.
    """
    found = {
        **applied,
        "pod-monitor.yaml": yaml_text(pod_monitor(service, monitored, endpoint)),
        "alerts.yaml": yaml_text(alert_rules(service, autoscaled=autoscaled)),
    }
    names = sorted(found)
    found.update(beside or {})
    if len(service.halves) == 1:
        found["dashboard.json"] = dashboard_text(service)
    found["kustomization.yaml"] = yaml_text(kustomization(service, names))
    return found


def kustomization(service: Service, resources: list[str]) -> dict[str, Any]:
    """What kubectl applies together."""
    found = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": resources}
    if len(service.halves) > 1:
        return found
    return {
        **found,
        "configMapGenerator": noted(
            [
                {
                    "name": f"{service.name}-dashboard",
                    "files": ["dashboard.json"],
                    "options": {"labels": {"grafana_dashboard": "1"}, "disableNameSuffixHash": True},
                }
            ],
            "Grafana's sidecar (kube-prometheus-stack) loads dashboards from ConfigMaps with this label.",
        ),
    }


def disruptions(service: Service, matched: Mapping[str, str]) -> dict[str, Any]:
    """How many instances an orderly disruption may take at once, of pods with these labels."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(service),
        "spec": {
            "maxUnavailable": noted(1, "A drained node takes one instance at a time, each of which needs minutes to start again."),
            "selector": {"matchLabels": dict(matched)},
        },
    }
