"""The files of a deployment on Kubernetes."""

from __future__ import annotations

from typing import Any

from tonnage.deploy.dashboard import dashboard_text
from tonnage.deploy.kubernetes.around import disruption_budget, engine_config, model_cache, network_service
from tonnage.deploy.kubernetes.autoscaling import adapter, hpa, keda
from tonnage.deploy.kubernetes.monitoring import alert_rules, pod_monitor
from tonnage.deploy.kubernetes.readme import readme
from tonnage.deploy.kubernetes.workload import deployment
from tonnage.deploy.noted import noted, yaml_text
from tonnage.deploy.service import Service
from tonnage.deploy.told import head


def files(service: Service) -> dict[str, str]:
    """The text of each file by its name."""
    found = {
        "deployment.yaml": yaml_text(deployment(service), head=head(service)),
        "service.yaml": yaml_text(network_service(service)),
        "model-cache.yaml": yaml_text(model_cache(service)),
        "disruption-budget.yaml": yaml_text(disruption_budget(service)),
        "pod-monitor.yaml": yaml_text(pod_monitor(service)),
        "alerts.yaml": yaml_text(alert_rules(service)),
    }
    if service.file:
        found["engine-config.yaml"] = yaml_text(engine_config(service))
    if service.target_in_flight is not None:
        found["autoscaling.yaml"] = yaml_text(keda(service))
    applied = sorted(found)
    if service.target_in_flight is not None and service.signals.running:
        found["autoscaling-without-keda.yaml"] = yaml_text(hpa(service), head=adapter(service))
    found["dashboard.json"] = dashboard_text(service)
    found["kustomization.yaml"] = yaml_text(kustomization(service, applied))
    found["README.md"] = readme(service)
    return found


def kustomization(service: Service, resources: list[str]) -> dict[str, Any]:
    """What kubectl applies together."""
    return {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": resources,
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
