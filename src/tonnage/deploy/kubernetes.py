"""The files of a deployment on Kubernetes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tonnage.deploy.checkpoint import FOLDER
from tonnage.deploy.plan_text import bench_command, compare_command, gpu_words, head, paragraph, summary
from tonnage.deploy.service import PORT, Service
from tonnage.deploy.workload import (
    adapter,
    bundle,
    compute_domain,
    deployment,
    disruptions,
    hpa,
    keda,
    leader_worker_set,
    manifest,
    metadata,
    selector,
)
from tonnage.deploy.yaml_comments import noted, yaml_text

# What surrounds the instances: their address, their cache, their configuration, and how many may be disrupted at once.


def network_service(service: Service) -> dict[str, Any]:
    """One address for all instances; it spreads connections at random."""
    spec: dict[str, Any] = {
        "type": "ClusterIP",
        "selector": selector(service),
        "ports": [
            noted(
                {"name": "http", "port": 80, "targetPort": "http"},
                f"A Service spreads connections at random, and the plan counts on {service.router}: put such a router before the "
                "pods (deploy --target llm-d has one), or size with --router random.",
            )
        ],
    }
    return manifest(service, "Service", spec)


def model_cache(service: Service) -> dict[str, Any]:
    """Where the checkpoint is, once for all instances."""
    told = "Several nodes read it: a storage class with ReadWriteMany. With one that has none, let each node fetch its own copy."
    spec: dict[str, Any] = {
        "accessModes": noted(["ReadWriteMany"], told),
        "resources": {
            "requests": {
                "storage": noted(
                    f"{service.cache_gib}Gi", f"{service.checkpoint_bytes / 1e9:,.0f} GB of weights, half as much again, and 10 GiB."
                )
            }
        },
    }
    return manifest(service, "PersistentVolumeClaim", spec, "-model-cache")


def disruption_budget(service: Service) -> dict[str, Any]:
    """How many instances an orderly disruption may take at once."""
    return disruptions(service, selector(service))


def engine_config(service: Service, files: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The engine's configuration file, or others in its place, by their names."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(service, "-engine-config"),
        "data": dict(files or {service.file_name: service.file_text}),
    }


def readme(service: Service) -> str:
    """The page in Markdown."""
    name, peak = service.name, service.plan.demand.sizing_requests_per_second
    cache = "" if service.simulated else f"| `model-cache.yaml` | {service.cache_gib} GiB for the checkpoint |\n"
    return f"""# {service.served} on Kubernetes

{summary(service)}

{paragraph(_needs(service))}

```sh
kubectl apply --kustomize .
{waits(service)}
{forwards(service)}
{bench_command(service, "http://127.0.0.1:8080", instances=1)}
{compare_command(instances=1)}
```

A gated model needs a token first: `kubectl create secret generic hf-token --from-literal=token="$HF_TOKEN"`.

The port-forward leads to one pod, which gets its share of the plan's peak. To measure all of them, run `tonnage bench` in a pod of the
cluster, with the address `http://{name}` and `--request-rate {peak:.6g}`, and leave `--instances` out of `compare` if all of the
plan's instances run.

| file | what |
|---|---|
{_instances_row(service)}
| `service.yaml` | one address before them |
{cache}| `disruption-budget.yaml` | one pod at a time |
{_scaling_rows(service)}| `pod-monitor.yaml`, `alerts.yaml` | for the Prometheus operator: what is scraped, and the rules |
| `dashboard.json` | for Grafana, with the plan's capacity and limits as dashed lines |
| `plan.json` | the plan |
"""


def waits(service: Service) -> str:
    """The command that returns when the instances answer."""
    if service.spans > 1:
        return f"kubectl wait leaderworkerset/{service.name} --for condition=Available --timeout {service.startup_seconds + 300}s"
    return f"kubectl rollout status deployment/{service.name} --timeout {service.startup_seconds + 300}s"


def forwards(service: Service) -> str:
    """The command that leads to one instance: its own pod, or where it has several the first that the Service finds."""
    kind, port = ("service", 80) if service.spans > 1 else ("deployment", PORT)
    return f"kubectl port-forward {kind}/{service.name} 8080:{port} &"


def _instances_row(service: Service) -> str:
    rest = "the engine's arguments, probes, resources"
    if service.spans > 1:
        return f"| `leader-worker-set.yaml` | {service.pool.instances} groups of {service.spans} pods, {gpu_words(service)} each, {rest} |"
    return f"| `deployment.yaml` | {service.pool.instances} pods with {gpu_words(service)} each, {rest} |"


def _needs(service: Service) -> str:
    keda = ", and KEDA for the autoscaling" if service.target_in_flight is not None else ""
    folder = f" The claim `{service.name}-model-cache` is mounted at {FOLDER}: put the checkpoint's folder into it."
    needs = f"The cluster needs {service.prerequisites}kube-prometheus-stack{keda}."
    return needs + (folder if service.local else "")


def _scaling_rows(service: Service) -> str:
    if service.target_in_flight is None:
        return ""
    told = f"{service.least_instances} to {service.pool.instances} pods, {service.target_in_flight} requests in flight each"
    rows = f"| `autoscaling.yaml` | {told}, by KEDA |\n"
    if service.signals.running:
        rows += "| `autoscaling-without-keda.yaml` | the same by prometheus-adapter; not applied by the second command |\n"
    return rows


def files(service: Service) -> dict[str, str]:
    """The text of each file by its name."""
    applied = objects(service)
    beside = {"README.md": readme(service)}
    scaled = service.target_in_flight is not None
    if scaled and service.signals.running:
        beside["autoscaling-without-keda.yaml"] = yaml_text(hpa(service), head=adapter(service))
    return bundle(service, applied, beside=beside, autoscaled=scaled)


def objects(service: Service, further: Mapping[str, str] | None = None) -> dict[str, str]:
    """The files of the instances and of what surrounds them; ``further`` are labels of a pod."""
    spans = service.spans > 1
    made = leader_worker_set(service, further=further) if spans else deployment(service, further=further)
    found = {
        "leader-worker-set.yaml" if spans else "deployment.yaml": yaml_text(made, head=head(service)),
        "service.yaml": yaml_text(network_service(service)),
        **({} if service.simulated else {"model-cache.yaml": yaml_text(model_cache(service))}),
        "disruption-budget.yaml": yaml_text(disruption_budget(service)),
    }
    if service.racked:
        found["compute-domain.yaml"] = yaml_text(compute_domain(service))
    if service.file_text:
        found["engine-config.yaml"] = yaml_text(engine_config(service))
    if service.target_in_flight is not None:
        found["autoscaling.yaml"] = yaml_text(keda(service))
    return found


def labelled(service: Service) -> dict[str, str]:
    """The label by which pods are found that somebody else's controller makes."""
    return {"tonnage/deployment": service.name}
