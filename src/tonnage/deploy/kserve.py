"""The files of a deployment with KServe."""

from __future__ import annotations

import shlex
from typing import Any

from tonnage.deploy.checkpoint import FOLDER
from tonnage.deploy.kubernetes import engine_config, labelled, model_cache
from tonnage.deploy.plan_text import argv_notes, cluster_page, head
from tonnage.deploy.service import PORT, Service, without
from tonnage.deploy.workload import (
    TOKEN,
    bundle,
    container,
    disruptions,
    keda,
    manifest,
    metadata,
    placing,
    pod,
    probes,
    resources,
)
from tonnage.deploy.yaml_comments import noted, plain, yaml_text

SECURED = {"portNumber": PORT, "scheme": "https", "tlsConfig": {"insecureSkipVerify": True}}
# Flags that KServe's template of vLLM says by itself, from ``parallelism``
OWN = ("--tensor-parallel-size",)


def files(service: Service) -> dict[str, str]:
    """The text of each file by its name: KServe's vLLM template if it fits, else a custom predictor
    with the plan's command.
    """
    templated = (
        service.family == "vllm"
        and service.pool.dp == service.pool.pp == 1
        and service.gpu.vendor == "NVIDIA"
        and not service.simulated
    )
    predictor = inference_service(service) if templated else custom_service(service)
    written = {
        "inference-service.yaml": yaml_text(predictor, head=head(service)),
        "disruption-budget.yaml": yaml_text(disruptions(service, labelled(service))),
    }
    if (service.local or not templated) and not service.simulated:
        written["model-cache.yaml"] = yaml_text(model_cache(service))
    if templated:
        return bundle(service, written, {"README.md": page(service)}, labelled(service), SECURED)
    if service.file_text:
        written["engine-config.yaml"] = yaml_text(engine_config(service))
    if service.target_in_flight is not None:
        moved = {"apiVersion": "apps/v1", "kind": "Deployment", "name": f"{service.name}-predictor"}
        note = (
            "The Deployment's name is the one that KServe gives it (its documentation, read on"
            " 2026-11-23)."
        )
        written["autoscaling.yaml"] = yaml_text(keda(service, moved), head=note)
    return bundle(service, written, {"README.md": custom_page(service)}, labelled(service))


def inference_service(service: Service) -> dict[str, Any]:
    """The model, its instances, and the router before them."""
    scaling = (
        "The plan's instances, spare ones included. KServe scales by its own signal in place of"
        f" this number (scaling.wva); the plan's bounds are {service.least_instances} to"
        f" {service.pool.instances}."
    )
    claim = f"pvc://{service.name}-model-cache{service.checkpoint.removeprefix(FOLDER)}"
    spec: dict[str, Any] = {
        "model": {
            "uri": claim if service.local else f"hf://{service.checkpoint}",
            "name": service.served,
        },
        "replicas": noted(service.pool.instances, scaling),
        "parallelism": {"tensor": service.pool.tp},
        "labels": labelled(service),
        "template": template(service),
        "router": noted(
            {"gateway": {}, "route": {}, "scheduler": {}},
            "The default gateway, a route, and llm-d's scheduler: prefix, queue, KV cache.",
        ),
    }
    return manifest(service, "LLMInferenceService", spec)


def template(service: Service) -> dict[str, Any]:
    """Write the patch of KServe's pod of vLLM, by the names of container and volume."""
    flags = " ".join(shlex.quote(word) for word in without(service.pool.launch[3:], *OWN))
    memory = {"medium": "Memory", "sizeLimit": f"{service.shared_memory_gib}Gi"}
    start = {
        name: part
        for name, part in plain(probes(service)["startupProbe"]).items()
        if name != "httpGet"
    }
    note = (
        f"{argv_notes(service)}\nKServe's template starts vllm serve with these words behind its"
        " own; an image or arguments would replace it."
    )
    main = {
        "name": "main",
        "env": [noted({"name": "VLLM_ADDITIONAL_ARGS", "value": flags}, note), TOKEN],
        "resources": resources(service),
        "startupProbe": noted(
            start,
            f"{service.startup_seconds} s to start; what is asked is KServe's own probe, over"
            " HTTPS.",
        ),
        "volumeMounts": [{"name": "shared-memory", "mountPath": "/dev/shm"}],
    }
    return {
        "terminationGracePeriodSeconds": service.drain_seconds,
        **placing(service),
        "containers": [
            noted(
                main,
                f"The plan is for {service.pool.engine_preset}: look at which vLLM the image of"
                " your KServe has.",
            )
        ],
        "volumes": [{"name": "shared-memory", "emptyDir": memory}],
    }


def custom_service(service: Service) -> dict[str, Any]:
    """The instances as a custom predictor: the engine's own container, in a plain Deployment that
    KServe makes.
    """
    engine = {**container(service), "name": "kserve-container"}
    spec = {**pod(service), "containers": [engine]}
    note = "A plain Deployment; KEDA, not KServe, sets its replicas."
    annotations = {
        "serving.kserve.io/deploymentMode": "Standard",
        "serving.kserve.io/autoscalerClass": "external",
    }
    replicas = {
        "minReplicas": noted(
            service.pool.instances,
            "The plan's instances, spare ones included; the autoscaler moves this number.",
        ),
        "maxReplicas": service.pool.instances,
    }
    return {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {**metadata(service), "annotations": noted(annotations, note)},
        "spec": {"predictor": {**replicas, "labels": labelled(service), **spec}},
    }


def page(service: Service) -> str:
    """The page of KServe's own template, in Markdown."""
    name = service.name
    rows = [
        (
            "`inference-service.yaml`",
            (
                f"{service.pool.instances} instances, the engine's arguments, probes, resources,"
                " the router"
            ),
        ),
        ("`disruption-budget.yaml`", "one pod at a time"),
    ]
    return cluster_page(
        service,
        runs_on="KServe",
        needs=(
            "The cluster needs KServe with its controller for LLMs, a gateway that it knows,"
            " NVIDIA's GPU operator and kube-prometheus-stack. A gated model needs a Secret"
            " `hf-token` with the key `token`."
        ),
        commands=(
            "kubectl apply --kustomize .",
            (
                f"kubectl wait llminferenceservice/{name} --for condition=Ready --timeout"
                f" {service.startup_seconds + 300}s"
            ),
            f"URL=$(kubectl get llminferenceservice {name} --output jsonpath='{{.status.url}}')",
        ),
        url='"$URL"',
        instances=service.pool.instances,
        rows=rows,
    )


def custom_page(service: Service) -> str:
    """The page of a custom predictor, in Markdown."""
    name = service.name
    rows = [
        (
            "`inference-service.yaml`",
            (
                f"{service.pool.instances} pods of {service.pool.engine}, its arguments, probes,"
                " resources"
            ),
        ),
        (
            "`model-cache.yaml`, `disruption-budget.yaml`",
            "room for the checkpoint, one pod at a time",
        ),
    ]
    return cluster_page(
        service,
        runs_on="KServe",
        needs=(
            f"The cluster needs KServe, {service.prerequisites}kube-prometheus-stack, and KEDA for"
            " the autoscaling. A gated model needs a Secret `hf-token` with the key `token`."
        ),
        commands=(
            "kubectl apply --kustomize .",
            (
                f"kubectl wait inferenceservice/{name} --for condition=Ready --timeout"
                f" {service.startup_seconds + 300}s"
            ),
            f"kubectl port-forward service/{name}-predictor 8080:80 &",
        ),
        url="http://127.0.0.1:8080",
        instances=1,
        rows=rows,
        scaled="pods",
        further=(
            "KServe's LLM template covers only vLLM with tensor parallelism. This deployment runs"
            f" {service.pool.engine} as a custom predictor, without the template's scheduler. The"
            " port-forward reaches one pod, which gets its share of the plan's peak."
        ),
    )
