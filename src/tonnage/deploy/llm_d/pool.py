"""The pods as a pool, and the way to it from a gateway."""

from __future__ import annotations

from typing import Any

from tonnage.deploy.kubernetes.names import metadata, selector
from tonnage.deploy.noted import noted
from tonnage.deploy.service import PORT, Service

PICKER_PORT = 9002
"""Of the picker's external processing, by its own default (recalled)."""


def pool(service: Service) -> dict[str, Any]:
    """The pool."""
    picked = {"name": f"{service.name}-picker", "port": {"number": PICKER_PORT}, "failureMode": "FailOpen"}
    return {
        "apiVersion": "inference.networking.k8s.io/v1",
        "kind": "InferencePool",
        "metadata": metadata(service),
        "spec": {
            "selector": {"matchLabels": selector(service)},
            "targetPorts": [{"number": PORT}],
            "endpointPickerRef": noted(picked, "Without the picker requests go to any pod."),
        },
    }


def route(service: Service) -> dict[str, Any]:
    """From the gateway to the pool."""
    behind = {"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": service.name}
    rule = {
        "matches": [{"path": {"type": "PathPrefix", "value": "/v1"}}],
        "backendRefs": [behind],
        "timeouts": noted({"request": "0s"}, "Streams last as long as they last."),
    }
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": metadata(service),
        "spec": {"parentRefs": [noted({"name": "inference-gateway"}, "Your gateway.")], "rules": [rule]},
    }
