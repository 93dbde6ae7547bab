"""The files of a deployment with Docker Compose."""

from __future__ import annotations

from typing import Any

from tonnage.deploy.alerts import rules
from tonnage.deploy.compose.engines import EXPORTER_PORT, compose
from tonnage.deploy.compose.gateway import address, envoy, gateway, nginx
from tonnage.deploy.compose.readme import readme
from tonnage.deploy.dashboard import dashboard_text
from tonnage.deploy.plan_text import head
from tonnage.deploy.service import PORT, Service
from tonnage.deploy.yaml_comments import noted, yaml_text
from tonnage.plan.launch import FILE


def files(service: Service) -> dict[str, str]:
    """The text of each file by its name; several machines get the same files."""
    gpus = f'DCGM_FI_DEV_GPU_UTIL{{deployment="{service.name}"}}'
    found = {
        "compose.yaml": yaml_text(compose(service), head=head(service)),
        "gateway.yaml": yaml_text(gateway(service)),
        "nginx.conf": nginx(service),
        "envoy.yaml": yaml_text(envoy(service)),
        "prometheus.yaml": yaml_text(prometheus(service)),
        "alerts.yaml": yaml_text(rules(service, gpus, service.pool.instances)),
        "grafana/datasource.yaml": yaml_text(_datasource()),
        "grafana/provider.yaml": yaml_text(_provider()),
        "grafana/dashboards/plan.json": dashboard_text(service),
        "README.md": readme(service),
    }
    if service.file:
        found[FILE] = yaml_text(service.file)
    return found


def prometheus(service: Service) -> dict[str, Any]:
    """What is scraped, and which rules are watched."""
    label = {"deployment": service.name}
    engines, exporters = [f"instance-{number}:{PORT}" for number in range(1, service.pool.instances + 1)], [f"gpu-exporter:{EXPORTER_PORT}"]
    if service.pool.systems > 1:
        engines = [address(service, place) for place in range(service.pool.instances)]
        exporters = [f"{name}:{EXPORTER_PORT}" for name in dict.fromkeys(map(service.machine_of, range(service.pool.instances)))]
    path = {"metrics_path": service.signals.path} if service.signals.path != "/metrics" else {}
    return {
        "global": {"scrape_interval": "15s", "evaluation_interval": "15s"},
        "rule_files": ["alerts.yaml"],
        "scrape_configs": [
            {"job_name": "engines", **path, "static_configs": [{"targets": engines, "labels": label}]},
            {"job_name": "gpus", "honor_labels": True, "static_configs": [{"targets": exporters, "labels": label}]},
            noted(
                {"job_name": "gateway", "static_configs": [{"targets": ["host.docker.internal:8080"]}]}, "It runs on the machine itself."
            ),
        ],
    }


def _datasource() -> dict[str, Any]:
    one = {"name": "Prometheus", "type": "prometheus", "access": "proxy", "url": "http://prometheus:9090", "isDefault": True}
    return {"apiVersion": 1, "datasources": [one]}


def _provider() -> dict[str, Any]:
    one = {"name": "plan", "type": "file", "options": {"path": "/var/lib/grafana/dashboards"}}
    return {"apiVersion": 1, "providers": [one]}
