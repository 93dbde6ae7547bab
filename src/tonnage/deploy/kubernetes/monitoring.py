"""What Prometheus reads and watches, for its operator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tonnage.deploy.alerts import rules
from tonnage.deploy.kubernetes.names import metadata, selector
from tonnage.deploy.noted import noted
from tonnage.deploy.service import Service


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
