"""The files of a deployment with NVIDIA NIM."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import Any

from tonnage.deploy.checkpoint import FOLDER, Loading
from tonnage.deploy.flags import without
from tonnage.deploy.kubernetes.files import disruption_budget, model_cache, network_service
from tonnage.deploy.kubernetes.workload import (
    adapter,
    bundle,
    container,
    deployment,
    hpa,
    keda,
    metadata,
    placing,
    pod,
    startup_tries,
)
from tonnage.deploy.plan_text import cluster_page, head
from tonnage.deploy.service import PORT, Service
from tonnage.deploy.yaml_comments import noted, plain, yaml_text
from tonnage.spec.precision import find_precision

CACHE = "/opt/nim/.cache"
METRICS = "/v1/metrics"
SAID = {
    "vllm": ("--max-model-len", "--tensor-parallel-size", "--pipeline-parallel-size"),
    "sglang": ("--context-length", "--tp-size", "--pp-size"),
}
"""Flags that variables and the profile say, the context's first."""

FREE = {
    "vllm": "nvcr.io/nim/nvidia/vllm-model-free-nim:2.1.0",
    "sglang": "nvcr.io/nim/nvidia/sglang-model-free-nim:2.1.0",
}
"""Model-free images, by engine (docs.nvidia.com/nim, support matrix and release notes of 2.1.0, read 2026-11-23)."""

FORMATS = {"fp16": "bf16", "bf16": "bf16", "fp8": "fp8", "mxfp4": "mxfp4", "nvfp4": "nvfp4"}
"""What a profile's name calls a number format."""

SOURCE = (
    "NIM for LLMs, its pages on profiles and on model-free NIM were read on 2026-11-23 (ENGINE-FORMAT-tpN-pp1; NIM_MODEL_PROFILE takes "
    "the name; NIM_MODEL_PATH, NIM_SERVED_MODEL_NAME, NIM_PASSTHROUGH_ARGS); the other variables and the paths of cache, health and "
    "metrics are recalled"
)


def loads(service: Service) -> Loading:
    """The checkpoint on NIM: a model-specific image contains it."""
    return replace(service.loading, told="The image given with `--checkpoint` contains the model.") if _named(service) else service.loading


def files(service: Service) -> dict[str, str]:
    """The text of each file by its name."""
    scaled = service.target_in_flight is not None
    written = {
        "deployment.yaml": yaml_text(instances(service), head=f"{head(service)}\n{SOURCE}."),
        "service.yaml": yaml_text(network_service(service)),
        "model-cache.yaml": yaml_text(model_cache(service)),
        "disruption-budget.yaml": yaml_text(disruption_budget(service)),
        **({"autoscaling.yaml": yaml_text(keda(service))} if scaled else {}),
    }
    further = {"README.md": page(service), "nim-service.yaml": yaml_text(nim_service(service), head=_operated(service))}
    scraped = {"portNumber": PORT, "path": METRICS}
    return bundle(service, written, beside=further, endpoint=scraped, autoscaled=scaled)


def image(service: Service) -> str:
    """The model-specific image if the caller gave one (owner/name:tag, or with its registry), else the model-free image."""
    if not _named(service):
        return FREE[service.family]
    registry = "." in service.checkpoint.split("/")[0]
    return service.checkpoint if registry else f"nvcr.io/nim/{service.checkpoint}"


def _named(service: Service) -> bool:
    """Whether the checkpoint is an image of NIM."""
    return ":" in service.checkpoint


def instances(service: Service) -> dict[str, Any]:
    """The Deployment of the Kubernetes target with NIM's container in it."""
    pulled = noted([{"name": "ngc-registry"}], "A Secret of kind docker-registry for nvcr.io.")
    return deployment(service, {**pod(service), "containers": [nim(service)], "imagePullSecrets": pulled})


def environment(service: Service) -> list[Any]:
    """Environment variables: model, profile, context, and the engine's other flags."""
    skipped, launch = SAID[service.family], service.pool.launch
    context = launch[launch.index(skipped[0]) + 1]
    start = 3 if service.family == "vllm" else launch.index("--model-path") + 2
    stored = "bf16" if service.loading.words else FORMATS.get(find_precision(service.pool.precision).weight_format)
    watched = ["--enable-metrics"] if service.family == "sglang" else []
    further = shlex.join([*without(launch[start:], *(skipped if stored else skipped[:1])), *watched])
    keys: dict[str, dict[str, Any]] = {"NGC_API_KEY": {"name": "ngc-api", "key": "NGC_API_KEY"}}
    if not _named(service):
        keys["HF_TOKEN"] = {"name": "hf-token", "key": "token", "optional": True}
    path = service.checkpoint if service.local else f"hf://{service.checkpoint}"
    model = [] if _named(service) else [noted({"name": "NIM_MODEL_PATH", "value": path}, "The model that the model-free image serves.")]
    profile = f"{service.family}-{stored}-tp{service.pool.tp}-pp{service.pool.pp}"
    told = "The checkpoint's format and the plan's degrees; list-model-profiles in the container shows whether it has this one."
    return [
        *({"name": name, "valueFrom": {"secretKeyRef": key}} for name, key in keys.items()),
        *model,
        *([noted({"name": "NIM_MODEL_PROFILE", "value": profile}, told)] if stored else []),
        {"name": "NIM_MAX_MODEL_LEN", "value": context},
        {"name": "NIM_SERVED_MODEL_NAME", "value": service.served},
        noted({"name": "NIM_PASSTHROUGH_ARGS", "value": further}, f"The plan's other knobs, for {service.family} behind NIM."),
        {"name": "NIM_CACHE_PATH", "value": CACHE},
    ]


def nim(service: Service) -> dict[str, Any]:
    """NIM's container: the image, what is set by variables, its own probes."""
    own = container(service)
    live, ready = ({"httpGet": {"path": f"/v1/health/{name}", "port": "http"}} for name in ("live", "ready"))
    return {
        "name": "nim",
        "image": noted(image(service), f"Its {service.family} is a version of its own, and the plan is for {service.pool.engine_preset}."),
        "env": environment(service),
        "ports": [{"name": "http", "containerPort": PORT}],
        "startupProbe": noted(
            {**ready, "periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": startup_tries(service)},
            f"{service.startup_seconds} s to start: an allowance by the size of the weights; measure your own.",
        ),
        "readinessProbe": {**ready, "periodSeconds": 5, "timeoutSeconds": 5, "failureThreshold": 2},
        "livenessProbe": {**live, "periodSeconds": 10, "timeoutSeconds": 10, "failureThreshold": 6},
        "lifecycle": own["lifecycle"],
        "resources": own["resources"],
        "securityContext": own["securityContext"],
        "volumeMounts": [
            {"name": "model-cache", "mountPath": CACHE},
            *([{"name": "model-cache", "mountPath": FOLDER}] if service.local else []),
            {"name": "shared-memory", "mountPath": "/dev/shm"},
        ],
    }


# The same as one object of NVIDIA's operator, which makes the Deployment, the Service and the autoscaler.


STORE = "/model-store"
"""Where the operator mounts the claim, and what it sets NIM_CACHE_PATH to."""


def _operated(service: Service) -> str:
    """The comment at the head of its file: which files it replaces, and what the pods lose."""
    told = (
        "For NVIDIA's NIM operator. Name this file in kustomization.yaml in place of deployment.yaml, service.yaml and autoscaling.yaml. "
        f"Its Service is http://{service.name}:{PORT}. The operator sets no grace period: the requests of a pod that ends get 30 s."
    )
    return f"{told}\n\n{adapter(service)}" if _moved(service) else told


def _moved(service: Service) -> bool:
    """Whether the number of pods follows the load by a metric of each pod."""
    return service.target_in_flight is not None and bool(service.signals.running)


def nim_service(service: Service) -> dict[str, Any]:
    """The NIMService; its pods have the label by which the other files find those of the Deployment."""
    own, (repository, tag) = nim(service), image(service).rsplit(":", 1)
    count: dict[str, Any] = {"replicas": noted(service.pool.instances, "The plan's instances, spare ones included.")}
    if _moved(service):
        count = {"scale": {"enabled": True, "hpa": {name: part for name, part in hpa(service)["spec"].items() if name != "scaleTargetRef"}}}
    return {
        "apiVersion": "apps.nvidia.com/v1alpha1",
        "kind": "NIMService",
        "metadata": metadata(service),
        "spec": {
            "image": {"repository": repository, "tag": tag, "pullSecrets": ["ngc-registry"]},
            "authSecret": "ngc-api",
            "env": [_in_store(one) for one in own["env"] if plain(one)["name"] not in ("NGC_API_KEY", "NIM_CACHE_PATH")],
            "storage": {
                "pvc": noted({"name": f"{service.name}-model-cache"}, f"Of model-cache.yaml; the operator mounts it at {STORE}."),
                "sharedMemorySizeLimit": f"{service.shared_memory_gib}Gi",
            },
            **placing(service),
            "resources": own["resources"],
            "expose": {"service": {"type": "ClusterIP", "port": PORT}},
            **{name: {"probe": _at_api(own[name])} for name in ("startupProbe", "readinessProbe", "livenessProbe")},
            **count,
        },
    }


def _in_store(entry: Any) -> Any:
    """The variable, with a folder of a checkpoint where the operator mounts it."""
    found = plain(entry)
    return {**found, "value": STORE + found["value"].removeprefix(FOLDER)} if found.get("value", "").startswith(f"{FOLDER}/") else entry


def _at_api(probe: Any) -> dict[str, Any]:
    """The probe at the port as the operator names it."""
    found = plain(probe)
    return {**found, "httpGet": {**found["httpGet"], "port": "api"}}


def page(service: Service) -> str:
    """The page in Markdown."""
    scaled = [("`autoscaling.yaml`", f"{service.least_instances} to {service.pool.instances} pods, by KEDA")]
    rows = [
        ("`deployment.yaml`", f"{service.pool.instances} pods of NIM, its profile and variables, probes, resources"),
        ("`service.yaml`, `model-cache.yaml`, `disruption-budget.yaml`", "address, cache, one pod at a time"),
        *(scaled if service.target_in_flight is not None else []),
        ("`nim-service.yaml`", "for NVIDIA's NIM operator, in place of `deployment.yaml`, `service.yaml` and `autoscaling.yaml`"),
    ]
    peak = service.plan.demand.sizing_requests_per_second
    return cluster_page(
        service,
        runs_on="NVIDIA NIM",
        needs=(
            f"The image is `{image(service)}`, for which you need a licence of NVIDIA AI Enterprise and a key of NGC, as the Secrets "
            "`ngc-api` (key `NGC_API_KEY`) and `ngc-registry` (docker-registry). The cluster needs NVIDIA's GPU operator, a storage class "
            "with ReadWriteMany, kube-prometheus-stack, and KEDA for the autoscaling. A gated model needs a Secret `hf-token` with the "
            "key `token`."
        ),
        commands=(
            "kubectl apply --kustomize .",
            f"kubectl rollout status deployment/{service.name} --timeout {service.startup_seconds + 300}s",
            f"kubectl port-forward deployment/{service.name} 8080:{PORT} &",
        ),
        url="http://127.0.0.1:8080",
        instances=1,
        rows=rows,
        further=(
            "The port-forward leads to one pod, which gets its share of the plan's peak. For all of them run "
            "`tonnage bench` in a pod of the "
            f"cluster against `http://{service.name}` with `--request-rate {peak:.6g}`."
        ),
    )
