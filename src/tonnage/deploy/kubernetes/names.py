"""The names and labels that the objects of a deployment share."""

from __future__ import annotations

from typing import Any

from tonnage.deploy.service import Service


def labels(service: Service) -> dict[str, str]:
    """Of everything that belongs to the deployment."""
    return {"app.kubernetes.io/name": service.name, "app.kubernetes.io/managed-by": "tonnage"}


def selector(service: Service) -> dict[str, str]:
    """The labels that its pods are found by; of one of two pools its role too, by which llm-d's picker knows them."""
    role = {} if service.pool.role == "serve" else {"llm-d.ai/role": service.pool.role}
    return {"app.kubernetes.io/name": service.name, **role}


def metadata(service: Service, ending: str = "") -> dict[str, Any]:
    """Name and labels of an object; an ending tells it from others of its kind."""
    return {"name": service.name + ending, "labels": labels(service)}
