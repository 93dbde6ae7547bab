"""The settings of ``tonnage gateway`` before the instances."""

from __future__ import annotations

import math
from typing import Any

from tonnage.deploy.service import Service
from tonnage.deploy.yaml_comments import noted

FIRST_PORT = 8001
"""Of the first instance on its machine; the others follow."""

GATEWAY_PORT = 8080

MACHINES = "Placeholder names: replace them by the addresses of the machines."


def gateway(service: Service) -> dict[str, Any]:
    """What ``tonnage gateway --config`` reads."""
    bound = _bound(service)
    backends: Any = [f"http://{address(service, place)}" for place in range(service.pool.instances)]
    if service.pool.systems > 1:
        backends = noted(backends, MACHINES)
    return {
        "backends": backends,
        "policy": noted(
            "least-outstanding",
            "The plan takes the load to be spread at random; this spreads it better, so that latencies err on the safe side.",
        ),
        "host": noted("127.0.0.1", "The machine itself alone; an address of its own lets others in. Then set keys (docs/gateway.md)."),
        "port": GATEWAY_PORT,
        **bound,
    }


def address(service: Service, place: int) -> str:
    """Host and port of an instance, counted from 0."""
    return f"{service.machine_of(place)}:{FIRST_PORT + place % service.per_machine}"


def _bound(service: Service) -> dict[str, Any]:
    """Requests at once; nothing where the plan knows no concurrency."""
    most = service.choice.concurrency_per_instance
    value = most_in_flight(most, service.pool.instances)
    if most is None or value is None:
        return {}
    return {
        "max_in_flight": noted(value, f"Twice what all instances hold where the limits end, {most:,.0f} each; further requests get 429.")
    }


def most_in_flight(per_instance: float | None, instances: int) -> int | None:
    """Twice what all instances hold at the limit, at least 64; None where that is not known."""
    return None if per_instance is None else max(64, math.ceil(2 * per_instance * instances))
