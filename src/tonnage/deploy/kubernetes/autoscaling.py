"""How the number of instances follows the load: by requests in flight, on the target that the plan's simulation found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tonnage.deploy.kubernetes.names import metadata
from tonnage.deploy.objectives import in_flight
from tonnage.deploy.plan_text import least_line
from tonnage.deploy.service import Service
from tonnage.deploy.yaml_comments import noted

PROMETHEUS = "http://prometheus-operated.monitoring.svc:9090"
ADAPTED = "tonnage_requests_in_flight"


def _target_note(service: Service) -> str:
    if service.scaling is not None:
        return (
            f"Requests in flight, running and waiting, of one instance. The plan's rule was simulated with a start of "
            f"{service.scaling.start_s:,.0f} s: where yours takes longer, size again with that time."
        )
    most = service.choice.concurrency_per_instance or 0
    return (
        f"Requests in flight, running and waiting, of one instance. The plan's limits hold up to {most:,.0f}. So many are in flight at "
        f"the {service.choice.sized_rate:.4g} requests/s that it counts on."
    )


def _behaviour(service: Service) -> dict[str, Any]:
    """Up at once, down slowly: an instance takes long to come back."""
    wait = service.scale_down_seconds
    down = {"stabilizationWindowSeconds": wait, "policies": [{"type": "Pods", "value": 1, "periodSeconds": 120}]}
    at_once = {"type": "Percent", "value": 100, "periodSeconds": 60}
    if service.scaling is not None:  # which was simulated without a limit of pods per period
        at_once = {"type": "Pods", "value": service.pool.instances, "periodSeconds": 15}
    up = {"stabilizationWindowSeconds": 0, "policies": [at_once]}
    return {"scaleUp": up, "scaleDown": noted(down, f"Down slowly: an instance takes up to {service.startup_seconds} s to come back.")}


def _bounds(service: Service, least: str, most: str) -> dict[str, Any]:
    return {
        least: noted(service.least_instances, least_line(service)),
        most: noted(service.pool.instances, "The plan's instances, spare ones included."),
    }


def keda(service: Service, target: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A ScaledObject of KEDA, which asks Prometheus and drives a HorizontalPodAutoscaler of its own.

    Args:
        service: what is deployed.
        target: whose number of pods it moves (default: the Deployment).
    """
    trigger = {
        "type": "prometheus",
        "metricType": "AverageValue",
        "metadata": {
            "serverAddress": noted(PROMETHEUS, "The address of your Prometheus."),
            "query": in_flight(service),
            "threshold": noted(str(service.target_in_flight), _target_note(service)),
        },
    }
    fallback = {"failureThreshold": 3, "replicas": service.pool.instances}
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": metadata(service),
        "spec": {
            "scaleTargetRef": dict(target or {"name": service.name}),
            "pollingInterval": 15,
            **_bounds(service, "minReplicaCount", "maxReplicaCount"),
            "fallback": noted(fallback, "Without an answer of Prometheus, all of the plan's instances."),
            "advanced": {"horizontalPodAutoscalerConfig": {"behavior": _behaviour(service)}},
            "triggers": [trigger],
        },
    }


def hpa(service: Service) -> dict[str, Any]:
    """The same as a HorizontalPodAutoscaler, where prometheus-adapter gives it the metric of each pod."""
    target = {"type": "AverageValue", "averageValue": noted(str(service.target_in_flight), _target_note(service))}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": metadata(service),
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": service.name},
            **_bounds(service, "minReplicas", "maxReplicas"),
            "behavior": _behaviour(service),
            "metrics": [{"type": "Pods", "pods": {"metric": {"name": ADAPTED}, "target": target}}],
        },
    }


def adapter(service: Service) -> str:
    """The comment before the HorizontalPodAutoscaler: what prometheus-adapter is told."""
    signals = service.signals
    return "\n".join(
        [
            "In place of autoscaling.yaml, on a cluster without KEDA; never both. prometheus-adapter needs this rule:",
            f'  - seriesQuery: \'{signals.running}{{namespace!="",pod!=""}}\'',
            "    resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}",
            f"    name: {{as: {ADAPTED}}}",
            f"    metricsQuery: sum({signals.running}{{<<.LabelMatchers>>}}) by (<<.GroupBy>>) "
            f"+ sum({signals.waiting}{{<<.LabelMatchers>>}}) by (<<.GroupBy>>)",
        ]
    )
