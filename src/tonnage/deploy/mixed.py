"""A fleet of several kinds of systems: a folder for each kind, and above them the router that gives
requests to all by their weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tonnage.deploy.compose import GATEWAY, GATEWAY_PORT, MACHINES, address, most_in_flight
from tonnage.deploy.plan_text import choice_line, paragraph
from tonnage.deploy.service import PORT, Service, around, dns_label
from tonnage.deploy.targets import deployed
from tonnage.deploy.workload import API, selector
from tonnage.deploy.yaml_comments import noted, yaml_text
from tonnage.errors import InputError, option
from tonnage.gateway.haproxy import BALANCE, configuration
from tonnage.gateway.settings import Limits
from tonnage.plan.mixed import Mixed
from tonnage.plan.plan import Plan
from tonnage.spec.targets import target_runs

MIXED = ("compose", "kubernetes", "dynamo")  # Targets for which fleets of several kinds are written

ROUTER = "router.yaml"  # What runs the router: a file of Compose, or objects of Kubernetes

DOMAIN = "svc.cluster.local"  # Of a cluster's Services; the default of Kubernetes


def deployed_mixed(plan: Plan, mixed: Mixed, target: str, **given: Any) -> dict[str, Service]:
    """A deployment for each kind of system, by the name of its folder; ``given`` is as for
    ``deployed``.

    Raises InputError: a target that fleets of several kinds are not written for, one that does not
    run one of the deployments, or clients
    that would have to know several names of the model.
    """
    if target not in MIXED:
        target_runs(target)
        raise InputError(
            f"{option('target')}: {target} has no router before unlike instances; write "
            f"{' or '.join(MIXED)}"
        )
    if plan.scenario.router not in BALANCE:
        raise InputError(
            f"{option('plan')}: HAProxy, which balances unlike instances, has no "
            f"{plan.scenario.router}; size with {option('router')} least-outstanding"
        )
    services = {}
    for group in mixed.groups:
        around_it = around(plan, group.candidate)
        demand = plan.demand.part(group.share)
        alone = replace(around_it, candidates=(group.candidate,), demand=demand)
        services[dns_label(group.system)] = deployed(alone, target, **given)
    names = {service.served for service in services.values() if service.family == "tensorrt-llm"}
    if len(names) > 1:
        raise InputError(
            f"{option('plan')}: TensorRT-LLM serves its checkpoints under their own names, "
            f"{' and '.join(sorted(names))}; clients need one; size with "
            f"{option('engine')} vllm"
        )
    alias = next(iter(names), "")
    return {name: replace(service, case=name, alias=alias) for name, service in services.items()}


def front(plan: Plan, mixed: Mixed, services: Mapping[str, Service], target: str) -> dict[str, str]:
    """The files above the folders."""
    text = _haproxy(plan, mixed, services, target)
    files = {"README.md": _readme(mixed, services, target)}
    if target == "compose":
        backends = [
            f"http://{address(service, place)}={group.weight:.6g}"
            for group, service in zip(mixed.groups, services.values(), strict=True)
            for place in range(service.pool.instances)
        ]
        settings = {
            "backends": noted(
                backends, f"{MACHINES} The weights are what an instance carries, in requests/s."
            ),
            "policy": plan.scenario.router,
            "port": GATEWAY_PORT,
        }
        composed = {"services": {"gateway": GATEWAY}}
        return {
            **files,
            "haproxy.cfg": text,
            "gateway.yaml": yaml_text(settings),
            ROUTER: yaml_text(composed),
        }
    listed = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [*services, ROUTER],
    }
    objects = "---\n".join(yaml_text(value) for value in _objects(plan, services, target, text))
    return {**files, ROUTER: objects, "kustomization.yaml": yaml_text(listed)}


def _haproxy(plan: Plan, mixed: Mixed, services: Mapping[str, Service], target: str) -> str:
    """HAProxy's configuration: each instance with its weight; before Dynamo its front ends, each
    with that of all its workers.
    """
    servers = list[tuple[str, float, int]]()
    for group, service in zip(mixed.groups, services.values(), strict=True):
        count = service.pool.instances
        if target == "compose":
            servers += [(address(service, place), group.weight, 1) for place in range(count)]
        elif target == "dynamo":
            host = f"{service.name}-frontend.${{NAMESPACE}}.{DOMAIN}"
            servers.append((f"{host}:{PORT}", group.weight * count, 1))
        else:
            host = f"{_instances_of(service)}.${{NAMESPACE}}.{DOMAIN}"
            servers.append((f"{host}:{PORT}", group.weight, count))
    limits = Limits()
    in_flight = [
        most_in_flight(service.choice.concurrency_per_instance, service.pool.instances)
        for service in services.values()
    ]
    text = configuration(
        servers,
        plan.scenario.router,
        host="0.0.0.0",
        port=GATEWAY_PORT,
        in_flight=limits.in_flight if None in in_flight else sum(filter(None, in_flight)),
        body=limits.body,
        first_byte_s=limits.first_byte_s,
        idle_s=limits.idle_s,
    )
    return f"# {MACHINES}\n{text}" if target == "compose" else text


def _instances_of(service: Service) -> str:
    """The headless Service whose name resolves to every instance."""
    return f"{service.name}-instances"


def _objects(
    plan: Plan, services: Mapping[str, Service], target: str, text: str
) -> list[dict[str, Any]]:
    """The router in a cluster: its configuration, its pod and its address; and a name for the
    instances of each kind.
    """
    name = dns_label(f"{plan.scenario.model}-fleet")
    labels = {"app.kubernetes.io/name": name, "app.kubernetes.io/managed-by": "tonnage"}
    chosen = {"app.kubernetes.io/name": name}

    def made(kind: str, named: str, **rest: Any) -> dict[str, Any]:
        return {
            "apiVersion": API[kind],
            "kind": kind,
            "metadata": {"name": named, "labels": labels},
            **rest,
        }

    headless = [
        made(
            "Service",
            _instances_of(service),
            spec={
                "clusterIP": "None",
                "selector": selector(service),
                "ports": [{"name": "http", "port": PORT}],
            },
        )
        for service in services.values()
        if target == "kubernetes"
    ]
    probe = {"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": 5}
    container = {
        "name": "haproxy",
        "image": GATEWAY["image"],
        "args": ["haproxy", "-f", "/etc/haproxy/haproxy.cfg"],
        "env": [
            {"name": "NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}
        ],
        "ports": [{"name": "http", "containerPort": GATEWAY_PORT}],
        "readinessProbe": probe,
        "resources": {"requests": {"cpu": "2", "memory": "512Mi"}, "limits": {"memory": "512Mi"}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "configuration", "mountPath": "/etc/haproxy", "readOnly": True}],
    }
    pod = {
        "automountServiceAccountToken": False,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
        "volumes": [{"name": "configuration", "configMap": {"name": name}}],
    }
    template = {"metadata": {"labels": labels}, "spec": pod}
    deployment = {"replicas": 1, "selector": {"matchLabels": chosen}, "template": template}
    ports = [{"name": "http", "port": 80, "targetPort": "http"}]
    return [
        *headless,
        made("ConfigMap", name, data={"haproxy.cfg": text}),
        made("Deployment", name, spec=deployment),
        made("Service", name, spec={"type": "ClusterIP", "selector": chosen, "ports": ports}),
    ]


def _readme(mixed: Mixed, services: Mapping[str, Service], target: str) -> str:
    """The page above the folders."""
    rows = "\n".join(
        f"| `{folder}` | {group.owned + group.added:,} × {group.system}"
        f" ({group.owned:,} exist) | {choice_line(service)} | {group.share:.0%} |"
        f" {group.weight:.4g} |"
        for (folder, service), group in zip(services.items(), mixed.groups, strict=True)
    )
    start, through = STARTS[target]
    weights = (
        f"{through} The plan counts on the router {mixed.router}. The weight of an instance is "
        "what it carries inside the limits, in requests/s. The names of all objects begin with "
        "their kind of system."
    )
    return f"""# {len(services)} kinds of systems behind one router on {target}

{start}

{paragraph(weights)}

| folder | systems | deployment | share of the requests | weight of an instance |
|---|---|---|---|---|
{rows}
"""


APPLIED = "Apply all of it: `kubectl apply --kustomize .`"
STARTS = {
    "compose": (
        "Start each folder on its machines as its page says, then the router: "
        f"`docker compose --file {ROUTER} --project-name router up --detach`",
        "`haproxy.cfg` has every instance with its weight, and so has `gateway.yaml`, for "
        "`tonnage gateway --config`.",
    ),
    "kubernetes": (
        APPLIED,
        f"HAProxy finds the instances by their names in the domain {DOMAIN}.",
    ),
    "dynamo": (
        APPLIED,
        "HAProxy gives the front end of each graph requests by the weights of all its workers; "
        "Dynamo's router chooses among these.",
    ),
}
"""By target how all of it is started, and what balances it."""
