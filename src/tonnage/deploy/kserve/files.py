"""The files of a deployment with KServe."""

from __future__ import annotations

import shlex
from typing import Any

from tonnage.deploy.cluster_page import cluster_page
from tonnage.deploy.flags import without
from tonnage.deploy.kubernetes.bundle import bundle, disruptions, unchecked
from tonnage.deploy.kubernetes.names import metadata
from tonnage.deploy.kubernetes.placing import placing
from tonnage.deploy.kubernetes.workload import PROBE_S, resources, startup_tries
from tonnage.deploy.labelled import labelled
from tonnage.deploy.noted import noted, yaml_text
from tonnage.deploy.service import PORT, Service
from tonnage.deploy.told import argv_notes, head
from tonnage.errors import InputError, option

READ = "pkg/apis/serving/v1alpha2/llm_inference_service_types.go of KServe was read on 2026-11-22."
OWN = ("--tensor-parallel-size",)
"""Flags that KServe's template of vLLM says by itself, from ``parallelism``."""


def files(service: Service) -> dict[str, str]:
    """The text of each file by its name.

    Raises:
        InputError: another engine than vLLM, or a split that takes several pods.
    """
    where = option("target")
    if service.family != "vllm":
        raise InputError(f"{where}: kserve runs vllm, and the plan's engine is {service.pool.engine}; take kubernetes")
    if service.pool.dp > 1 or service.pool.pp > 1:
        raise InputError(
            f"{where}: kserve runs attention ranks and pipeline stages in several pods, which is not written yet; take kubernetes"
        )
    written = {
        "inference-service.yaml": yaml_text(inference_service(service), head=f"{head(service)}\n{unchecked(READ)}"),
        "disruption-budget.yaml": yaml_text(disruptions(service, labelled(service))),
    }
    scraped = {"portNumber": PORT, "scheme": "https", "tlsConfig": {"insecureSkipVerify": True}}
    return bundle(service, written, beside={"README.md": page(service)}, monitored=labelled(service), endpoint=scraped)


def inference_service(service: Service) -> dict[str, Any]:
    """The model, its instances, and the router before them."""
    scaling = (
        f"The plan's instances, spare ones included. KServe scales by its own signal in place of this number (scaling.wva); the plan's "
        f"bounds are {service.least_instances} to {service.pool.instances}."
    )
    return {
        "apiVersion": "serving.kserve.io/v1alpha2",
        "kind": "LLMInferenceService",
        "metadata": metadata(service),
        "spec": {
            "model": {"uri": f"hf://{service.checkpoint}", "name": service.served},
            "replicas": noted(service.pool.instances, scaling),
            "parallelism": {"tensor": service.pool.tp},
            "labels": labelled(service),
            "template": template(service),
            "router": noted(
                {"gateway": {}, "route": {}, "scheduler": {}},
                "The default gateway, a route, and llm-d's scheduler: prefix, queue, KV cache.",
            ),
        },
    }


def template(service: Service) -> dict[str, Any]:
    """What is laid over KServe's own pod of vLLM, by the names of container and volume."""
    flags = " ".join(shlex.quote(word) for word in without(service.pool.launch[3:], *OWN))
    token = {"secretKeyRef": {"name": "hf-token", "key": "token", "optional": True}}
    memory = {"medium": "Memory", "sizeLimit": f"{service.shared_memory_gib}Gi"}
    told = (
        f"{argv_notes(service)}\n"
        "KServe's template starts vllm serve with these words behind its own; an image or arguments would replace it."
    )
    main = {
        "name": "main",
        "env": [noted({"name": "VLLM_ADDITIONAL_ARGS", "value": flags}, told), {"name": "HF_TOKEN", "valueFrom": token}],
        "resources": resources(service),
        "startupProbe": noted(
            {"periodSeconds": PROBE_S, "timeoutSeconds": 5, "failureThreshold": startup_tries(service)},
            f"{service.startup_seconds} s to start; what is asked is KServe's own probe, over HTTPS.",
        ),
        "volumeMounts": [{"name": "shared-memory", "mountPath": "/dev/shm"}],
    }
    return {
        "terminationGracePeriodSeconds": service.drain_seconds,
        **placing(service.gpu),
        "containers": [noted(main, f"The plan is for {service.pool.engine_preset}: look at which vLLM the image of your KServe has.")],
        "volumes": [{"name": "shared-memory", "emptyDir": memory}],
    }


def page(service: Service) -> str:
    """The page in Markdown."""
    name = service.name
    rows = [
        ("`inference-service.yaml`", f"{service.pool.instances} instances, the engine's arguments, probes, resources, the router"),
        ("`disruption-budget.yaml`", "one pod at a time"),
    ]
    return cluster_page(
        service,
        runs_on="KServe",
        needs=(
            f"The engine loads `{service.checkpoint}`. The cluster needs KServe with its controller for LLMs, a "
            "gateway that it knows, NVIDIA's "
            "GPU operator and kube-prometheus-stack. A gated model needs a Secret `hf-token` with the key `token`."
        ),
        commands=(
            "kubectl apply --kustomize .",
            f"kubectl wait llminferenceservice/{name} --for condition=Ready --timeout {service.startup_seconds + 300}s",
            f"URL=$(kubectl get llminferenceservice {name} --output jsonpath='{{.status.url}}')",
        ),
        url='"$URL"',
        instances=service.pool.instances,
        rows=rows,
    )
