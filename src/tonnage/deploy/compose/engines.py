"""``compose.yaml``: an engine for each instance, with own GPUs, and what watches them."""

from __future__ import annotations

from typing import Any

from tonnage.deploy.checkpoint import FOLDER
from tonnage.deploy.compose.gateway import FIRST_PORT
from tonnage.deploy.plan_text import argv_notes, startup_line
from tonnage.deploy.service import PORT, Service
from tonnage.deploy.yaml_comments import Alias, Noted, noted
from tonnage.plan.launch import FILE

IMAGES = {
    "prometheus": "prom/prometheus:v3.5.0",
    "grafana": "grafana/grafana:12.1.0",
    "gpu-exporter": "nvcr.io/nvidia/k8s/dcgm-exporter:4.2.3-4.1.3-ubuntu22.04",
}
"""Recalled, 2026-11-22."""

EXPORTER_PORT = 9400
WATCHING = "watching"
"""Compose profile of the services that run only on the first of several machines."""


def compose(service: Service) -> dict[str, Any]:
    """The whole file."""
    instances = {f"instance-{place + 1}": _instance(service, place) for place in range(service.per_machine)}
    return {
        "x-engine": Noted(value=engine(service), anchor="engine", note=_about(service)),
        "services": instances | watching(several=service.pool.systems > 1),
        "volumes": {"model-cache": {}, "prometheus": {}},
    }


def _about(service: Service) -> str:
    if service.pool.systems > 1:
        return f"Common settings of the {service.per_machine} instances on each of {service.pool.systems} machines."
    return f"What all {service.per_machine} instances share." if service.per_machine > 1 else "The engine."


def engine(service: Service) -> dict[str, Any]:
    """What the instances share."""
    command, *arguments = service.argv
    said = [f"/etc/engine/{FILE}" if word == FILE else word for word in arguments]
    kept = f"./models:{FOLDER}" if service.local else f"model-cache:{FOLDER}"
    volumes = [kept, *([f"./{FILE}:/etc/engine/{FILE}:ro"] if service.file else [])]
    asked = f"import urllib.request; urllib.request.urlopen('http://127.0.0.1:{PORT}/health', timeout=5)"
    return {
        "image": noted(service.image, f"{service.pool.engine_preset}; {service.image_source}"),
        "entrypoint": [command],
        "command": noted(said, argv_notes(service)),
        "environment": noted([f"HF_HOME={FOLDER}", "HF_TOKEN"], "HF_TOKEN is taken from your shell; gated models need it."),
        "volumes": volumes,
        "shm_size": noted(f"{service.shared_memory_gib}gb", "Shared memory of NCCL and the engine's processes."),
        "restart": "unless-stopped",
        "stop_grace_period": noted(
            f"{service.drain_seconds}s", "Running requests may end: the plan's p99 of E2E at the limit, at least 30 s."
        ),
        "healthcheck": {
            "test": ["CMD", "python3", "-c", asked],
            "interval": "10s",
            "timeout": "10s",
            "retries": 6,
            "start_period": noted(f"{service.startup_seconds}s", startup_line(service)),
        },
    }


def _instance(service: Service, place: int) -> dict[str, Any]:
    """One instance: the next GPUs of the machine, and a port on it."""
    ids = [str(place * service.gpus + number) for number in range(service.gpus)]
    devices = [{"driver": "nvidia", "device_ids": ids, "capabilities": ["gpu"]}]
    memory = {"limits": {"memory": f"{service.memory_gib}g"}, "reservations": {"devices": devices}}
    return {
        "<<": Alias(name="engine"),
        "ports": [_published(FIRST_PORT + place, PORT, several=service.pool.systems > 1)],
        "deploy": {"resources": memory},
    }


def _published(port: int, inside: int, *, several: bool) -> str:
    """A published port: on 127.0.0.1, or on all interfaces if the plan has several machines."""
    return f"{port}:{inside}" if several else f"127.0.0.1:{port}:{inside}"


def watching(*, several: bool) -> dict[str, Any]:
    """Prometheus, Grafana and NVIDIA's GPU exporter; with several machines, Prometheus and Grafana run only on the first."""
    first = {"profiles": [WATCHING]} if several else {}
    every = {"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}
    return {
        "prometheus": {
            **first,
            "image": IMAGES["prometheus"],
            "command": ["--config.file=/etc/prometheus/prometheus.yaml", "--storage.tsdb.retention.time=30d"],
            "volumes": [
                "./prometheus.yaml:/etc/prometheus/prometheus.yaml:ro",
                "./alerts.yaml:/etc/prometheus/alerts.yaml:ro",
                "prometheus:/prometheus",
            ],
            "extra_hosts": ["host.docker.internal:host-gateway"],
            "ports": ["127.0.0.1:9090:9090"],
            "restart": "unless-stopped",
        },
        "grafana": {
            **first,
            "image": IMAGES["grafana"],
            "environment": noted(["GF_SECURITY_ADMIN_PASSWORD"], "Taken from your shell."),
            "volumes": [
                "./grafana/datasource.yaml:/etc/grafana/provisioning/datasources/plan.yaml:ro",
                "./grafana/provider.yaml:/etc/grafana/provisioning/dashboards/plan.yaml:ro",
                "./grafana/dashboards:/var/lib/grafana/dashboards:ro",
            ],
            "ports": ["127.0.0.1:3000:3000"],
            "restart": "unless-stopped",
        },
        "gpu-exporter": {
            "image": IMAGES["gpu-exporter"],
            "cap_add": ["SYS_ADMIN"],
            **({"ports": [_published(EXPORTER_PORT, EXPORTER_PORT, several=True)]} if several else {}),
            "deploy": {"resources": {"reservations": {"devices": [every]}}},
            "restart": "unless-stopped",
        },
    }
