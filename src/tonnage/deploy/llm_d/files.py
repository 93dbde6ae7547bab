"""The files of a deployment with llm-d."""

from __future__ import annotations

from tonnage.deploy.cluster_page import cluster_page
from tonnage.deploy.kubernetes.bundle import bundle, unchecked
from tonnage.deploy.kubernetes.files import objects
from tonnage.deploy.llm_d.picker import permissions, picker, picker_config, picker_service
from tonnage.deploy.llm_d.pool import pool, route
from tonnage.deploy.llm_d.two_pools import half
from tonnage.deploy.noted import yaml_text
from tonnage.deploy.service import Service
from tonnage.deploy.told import head, instances_words

POOL_READ = "fields of inference.networking.k8s.io/v1 were read in llm-d's API reference on 2026-11-22."
CONFIG_READ = "plugins and weights of EndpointPickerConfig are recalled."


def files(service: Service) -> dict[str, str]:
    """The text of each file by its name."""
    written = objects(service, {"llm-d.ai/engine-type": service.family})
    del written["service.yaml"]
    if len(service.halves) > 1:
        written["deployment.yaml"] = yaml_text(*map(half, service.halves), head=head(service))
    written |= {
        "inference-pool.yaml": yaml_text(pool(service), head=unchecked(POOL_READ)),
        "route.yaml": yaml_text(route(service)),
        "picker.yaml": yaml_text(picker(service), picker_service(service), *permissions(service)),
        "picker-config.yaml": yaml_text(picker_config(service), head=unchecked(CONFIG_READ)),
    }
    scaled = service.target_in_flight is not None
    return bundle(service, written, beside={"README.md": page(service)}, autoscaled=scaled)


def page(service: Service) -> str:
    """The page in Markdown."""
    keda_too = "" if service.target_in_flight is None else ", and KEDA for the autoscaling"
    rows = [
        (
            "`deployment.yaml`, `model-cache.yaml`, `disruption-budget.yaml`",
            f"{instances_words(service.choice.pools, 'pod')} of {service.pool.engine} and their cache",
        ),
        ("`inference-pool.yaml`, `route.yaml`", "the pods as a pool, and the way to it from a gateway"),
        ("`picker.yaml`, `picker-config.yaml`", "llm-d's endpoint picker: which pod gets a request, by prefix, queue and KV cache"),
    ]
    if service.target_in_flight is not None:
        rows.append(("`autoscaling.yaml`", f"{service.least_instances} to {service.pool.instances} pods, by KEDA"))
    return cluster_page(
        service,
        runs_on="llm-d",
        needs=(
            "The cluster needs the Gateway API with its inference extension, a Gateway "
            "`inference-gateway` of a controller that knows it, NVIDIA's GPU operator, a storage class with ReadWriteMany, "
            f"kube-prometheus-stack{keda_too}. A gated model needs a Secret `hf-token` with the key `token`."
        ),
        commands=(
            "kubectl apply --kustomize .",
            f"kubectl wait deployment --selector app.kubernetes.io/name={service.name} --for condition=Available"
            f" --timeout {service.startup_seconds + 300}s"
            if len(service.halves) > 1
            else f"kubectl rollout status deployment/{service.name} --timeout {service.startup_seconds + 300}s",
            "HOST=$(kubectl get gateway inference-gateway --output jsonpath='{.status.addresses[0].value}')",
        ),
        url='"http://$HOST"',
        instances=service.pool.instances,
        rows=rows,
    )
