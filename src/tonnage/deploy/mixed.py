"""A fleet of several kinds of systems: a folder for each kind, and above them the router that gives
requests to all by their weights, or by the length of their prompts.
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
from tonnage.gateway.haproxy import BALANCE, Long, configuration
from tonnage.gateway.settings import Limits
from tonnage.plan.mixed import Group, Mixed
from tonnage.plan.plan import Plan
from tonnage.spec.lengths import CHARACTERS_PER_TOKEN, parse_lengths
from tonnage.spec.targets import target_runs

MIXED = ("compose", "kubernetes", "dynamo")  # Targets for which fleets of several kinds are written

POOLS = ("short", "long")  # What the folders of a split by prompt length begin with

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
            f"{option('target')}: {target} has no router before unlike instances or by the length"
            f" of prompts; write {' or '.join(MIXED)}"
        )
    if plan.scenario.router not in BALANCE:
        raise InputError(
            f"{option('plan')}: HAProxy, which balances unlike instances, has no "
            f"{plan.scenario.router}; size with {option('router')} least-outstanding"
        )
    services = {}
    for place, group in enumerate(mixed.groups):
        alone = replace(
            around(plan, group.candidate),
            candidates=(group.candidate,),
            demand=plan.demand.part(group.share),
        )
        if group.isl:
            mean = parse_lengths(group.isl, option("isl")).mean
            alone = replace(
                alone, scenario=replace(alone.scenario, isl=group.isl, mean_isl=mean), asked=None
            )
        pool = "" if mixed.over_tokens is None else f"{POOLS[place]}-"
        services[dns_label(f"{pool}{group.system}")] = deployed(alone, target, **given)
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
    if target == "compose" and mixed.over_tokens is not None:
        return {
            **files,
            "haproxy.cfg": text,
            ROUTER: yaml_text({"services": {"gateway": GATEWAY}}),
        }
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
    servers = [
        _servers(group, service, target)
        for group, service in zip(mixed.groups, services.values(), strict=True)
    ]
    limits = Limits()
    in_flight = [
        most_in_flight(service.choice.concurrency_per_instance, service.pool.instances)
        or limits.in_flight
        for service in services.values()
    ]
    long = None
    if mixed.over_tokens is not None:
        over_bytes = round(mixed.over_tokens * CHARACTERS_PER_TOKEN)
        long = Long(servers=servers.pop(), over_bytes=over_bytes, in_flight=in_flight.pop())
    text = configuration(
        [server for group_servers in servers for server in group_servers],
        plan.scenario.router,
        host="0.0.0.0",
        port=GATEWAY_PORT,
        in_flight=sum(in_flight),
        body=limits.body,
        first_byte_s=limits.first_byte_s,
        idle_s=limits.idle_s,
        long=long,
    )
    return f"# {MACHINES}\n{text}" if target == "compose" else text


def _servers(group: Group, service: Service, target: str) -> list[tuple[str, float, int]]:
    """What HAProxy reaches of a group: its instances, or before Dynamo the front end of them."""
    count = service.pool.instances
    if target == "compose":
        return [(address(service, place), group.weight, 1) for place in range(count)]
    if target == "dynamo":
        host = f"{service.name}-frontend.${{NAMESPACE}}.{DOMAIN}"
        return [(f"{host}:{PORT}", group.weight * count, 1)]
    host = f"{_instances_of(service)}.${{NAMESPACE}}.{DOMAIN}"
    return [(f"{host}:{PORT}", group.weight, count)]


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
    split = "" if mixed.over_tokens is None else f"\n{paragraph(_split_text(mixed))}\n"
    through = through if not split or target != "compose" else ALL_IN
    weights = (
        f"{through} The plan counts on the router {mixed.router}. The weight of an instance is "
        "what it carries inside the limits, in requests/s. The names of all objects begin with "
        "their kind of system."
    )
    return f"""# {len(services)} kinds of systems behind one router on {target}

{start}

{paragraph(weights)}
{split}
| folder | systems | deployment | share of the requests | weight of an instance |
|---|---|---|---|---|
{rows}
"""


def _split_text(mixed: Mixed) -> str:
    """How the router tells long prompts, and what that misses."""
    tokens = mixed.over_tokens or 0
    over_bytes = round(tokens * CHARACTERS_PER_TOKEN)
    return (
        f"The plan sends prompts of more than {tokens:,} tokens to the folder that begins with"
        " long. HAProxy counts no tokens: it sends requests there whose body is longer than"
        f" {over_bytes:,} bytes, {CHARACTERS_PER_TOKEN:g} for a token, as English text has. Measure"
        " the bytes of your own requests for a token, with the JSON around the text, and write"
        " your number in the line `acl long` of HAProxy's configuration. Images count with all"
        " their bytes. A body sent in chunks, without its length, counts as far as it has come,"
        " 16 kB at most. `tonnage gateway` does not split by length."
    )


ALL_IN = "`haproxy.cfg` has every instance with its weight."
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
