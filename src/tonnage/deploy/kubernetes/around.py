"""What stands around the instances: their address, their cache, their configuration, and how many may be disrupted at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tonnage.deploy.kubernetes.bundle import disruptions
from tonnage.deploy.kubernetes.names import metadata, selector
from tonnage.deploy.noted import noted, yaml_text
from tonnage.deploy.service import Service
from tonnage.plan.launch import FILE


def network_service(service: Service) -> dict[str, Any]:
    """One address for all instances; it spreads connections at random, as the plan takes the load to be spread."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(service),
        "spec": {
            "type": "ClusterIP",
            "selector": selector(service),
            "ports": [
                noted(
                    {"name": "http", "port": 80, "targetPort": "http"},
                    "A Service spreads connections at random, as the plan takes requests to be spread; a router by queues does better.",
                )
            ],
        },
    }


def model_cache(service: Service) -> dict[str, Any]:
    """Where the checkpoint lies, once for all instances."""
    told = "Several nodes read it: a storage class with ReadWriteMany. With one that has none, let each node fetch its own copy."
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": metadata(service, "-model-cache"),
        "spec": {
            "accessModes": noted(["ReadWriteMany"], told),
            "resources": {
                "requests": {
                    "storage": noted(
                        f"{service.cache_gib}Gi", f"{service.checkpoint_bytes / 1e9:,.0f} GB of weights, half as much again, and 10 GiB."
                    )
                }
            },
        },
    }


def disruption_budget(service: Service) -> dict[str, Any]:
    """How many instances an orderly disruption may take at once."""
    return disruptions(service, selector(service))


def engine_config(service: Service, files: Mapping[str, Mapping[str, Any]] | None = None) -> dict[str, Any]:
    """The engine's configuration file, or others in its place, by their names."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(service, "-engine-config"),
        "data": {name: yaml_text(file) for name, file in (files or {FILE: service.file}).items()},
    }
