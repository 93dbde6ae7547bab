"""The files of a deployment on Kubernetes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tonnage.deploy.checkpoint import FOLDER
from tonnage.deploy.plan_text import (
    WATCHED,
    bench_command,
    compare_command,
    gpu_words,
    head,
    keda_too,
    page_text,
    scaling_rows,
)
from tonnage.deploy.service import PORT, Service
from tonnage.deploy.workload import (
    adapter,
    bundle,
    compute_domain,
    disruptions,
    hpa,
    instances,
    keda,
    manifest,
    selector,
)
from tonnage.deploy.yaml_comments import noted, yaml_text

# What surrounds the instances: their address, their cache, their configuration, and how many may be
# disrupted at once.


def network_service(service: Service) -> dict[str, Any]:
    """Write the Service, one address for all instances, which spreads connections at random."""
    note = (
        f"A Service spreads connections at random, and the plan counts on {service.router}: put"
        " such a router before the pods "
    )
    note += "(deploy --target llm-d has one), or size with --router random."
    port = noted({"name": "http", "port": 80, "targetPort": "http"}, note)
    return manifest(
        service, "Service", {"type": "ClusterIP", "selector": selector(service), "ports": [port]}
    )


def model_cache(service: Service) -> dict[str, Any]:
    """Write the volume of the checkpoint, one for all instances."""
    note = (
        "Several nodes read it: a storage class with ReadWriteMany. With one that has none, let"
        " each node fetch its own copy."
    )
    room = noted(
        f"{service.cache_gib}Gi",
        f"{service.checkpoint_bytes / 1e9:,.0f} GB of weights, half as much again, and 10 GiB.",
    )
    spec = {
        "accessModes": noted(["ReadWriteMany"], note),
        "resources": {"requests": {"storage": room}},
    }
    return manifest(service, "PersistentVolumeClaim", spec, "-model-cache")


def engine_config(service: Service, files: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The engine's configuration file, or others in its place, by their names."""
    return manifest(
        service,
        "ConfigMap",
        None,
        "-engine-config",
        data=dict(files or {service.file_name: service.file_text}),
    )


def readme(service: Service) -> str:
    """The page in Markdown; the port-forward leads to one pod, or where an instance has several to
    the first that the Service finds.
    """
    several, peak = service.spans > 1, service.plan.demand.sizing_requests_per_second
    kind, port = ("service", 80) if several else ("deployment", PORT)
    folder = (
        f" The claim `{service.name}-model-cache` is mounted at {FOLDER}: put the checkpoint's"
        " folder into it."
    )
    needs = (
        f"The cluster needs {service.prerequisites}kube-prometheus-stack{keda_too(service)}."
        + (folder if service.local else "")
    )
    commands = (
        "kubectl apply --kustomize .",
        waits(service),
        f"kubectl port-forward {kind}/{service.name} 8080:{port} &",
        bench_command(service, "http://127.0.0.1:8080", instances=1),
        compare_command(instances=1),
    )
    further = f"""\
A gated model needs a token first: `kubectl create secret generic hf-token --from-literal=token="$HF_TOKEN"`.

The port-forward leads to one pod, which gets its share of the plan's peak. To measure all of them, run `tonnage bench` in a pod of the
cluster, with the address `http://{service.name}` and `--request-rate {peak:.6g}`, and leave `--instances` out of `compare` if all of the
plan's instances run."""  # noqa: E501
    rest = f"{gpu_words(service)} each, the engine's arguments, probes, resources"
    groups = (
        "`leader-worker-set.yaml`",
        f"{service.pool.instances} groups of {service.spans} pods, {rest}",
    )
    rows = [
        groups if several else ("`deployment.yaml`", f"{service.pool.instances} pods with {rest}")
    ]
    rows.append(("`service.yaml`", "one address before them"))
    if not service.simulated:
        rows.append(("`model-cache.yaml`", f"{service.cache_gib} GiB for the checkpoint"))
    rows.append(("`disruption-budget.yaml`", "one pod at a time"))
    rows += scaling_rows(service, f"pods, {service.target_in_flight} requests in flight each")
    if service.target_in_flight is not None and service.signals.running:
        note = "the same by prometheus-adapter; not applied by the second command"
        rows.append(("`autoscaling-without-keda.yaml`", note))
    return page_text(
        service,
        f"{service.served} on Kubernetes",
        needs,
        commands,
        rows=[*rows, *WATCHED],
        further=further,
    )


def waits(service: Service) -> str:
    """The command that returns when the instances answer."""
    if service.spans > 1:
        return (
            f"kubectl wait leaderworkerset/{service.name} --for condition=Available --timeout"
            f" {service.startup_seconds + 300}s"
        )
    return (
        f"kubectl rollout status deployment/{service.name} --timeout"
        f" {service.startup_seconds + 300}s"
    )


def files(service: Service) -> dict[str, str]:
    """The text of each file by its name."""
    return bundle(service, objects(service), unapplied(service))


def unapplied(service: Service) -> dict[str, str]:
    """The files that kubectl does not apply."""
    further = {"README.md": readme(service)}
    if service.target_in_flight is not None and service.signals.running:
        further["autoscaling-without-keda.yaml"] = yaml_text(hpa(service), head=adapter(service))
    return further


def objects(service: Service, further: Mapping[str, str] | None = None) -> dict[str, str]:
    """The files of the instances and of what surrounds them; ``further`` are labels of a pod."""
    texts = {
        f"{'leader-worker-set' if service.spans > 1 else 'deployment'}.yaml": yaml_text(
            instances(service, further), head=head(service)
        ),
        "service.yaml": yaml_text(network_service(service)),
        **({} if service.simulated else {"model-cache.yaml": yaml_text(model_cache(service))}),
        "disruption-budget.yaml": yaml_text(disruptions(service, selector(service))),
    }
    if service.racked:
        texts["compute-domain.yaml"] = yaml_text(compute_domain(service))
    if service.file_text:
        texts["engine-config.yaml"] = yaml_text(engine_config(service))
    if service.target_in_flight is not None:
        texts["autoscaling.yaml"] = yaml_text(keda(service))
    return texts


def labelled(service: Service) -> dict[str, str]:
    """The label by which pods are found that somebody else's controller makes."""
    return {"tonnage/deployment": service.name}
