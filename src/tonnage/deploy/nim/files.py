"""The files of a deployment with NVIDIA NIM."""

from __future__ import annotations

import shlex
from typing import Any

from tonnage.deploy.cluster_page import cluster_page
from tonnage.deploy.flags import without
from tonnage.deploy.kubernetes.around import disruption_budget, model_cache, network_service
from tonnage.deploy.kubernetes.autoscaling import keda
from tonnage.deploy.kubernetes.bundle import bundle
from tonnage.deploy.kubernetes.workload import container, deployment, pod, startup_tries
from tonnage.deploy.noted import noted, yaml_text
from tonnage.deploy.service import PORT, Service
from tonnage.deploy.told import head
from tonnage.errors import InputError, option

CACHE = "/opt/nim/.cache"
METRICS = "/v1/metrics"
SAID = ("--tensor-parallel-size", "--max-model-len", "--pipeline-parallel-size")
"""Flags that profile and variables say."""

SOURCE = (
    "NIM for LLMs, its pages on profiles were read on 2026-11-22 (vllm-FORMAT-tpN-pp1; NIM_MODEL_PROFILE takes the name); the other "
    "variables, the cache's path and the paths of health and metrics are recalled"
)


def files(service: Service) -> dict[str, str]:
    """The text of each file by its name.

    Raises:
        InputError: no image was named, another engine than vLLM, or attention ranks.
    """
    where = option("target")
    if service.family != "vllm":
        raise InputError(
            f"{where}: today's NIM runs vllm, and the plan's engine is {service.pool.engine}; size with {option('engine')} vllm"
        )
    if service.pool.dp > 1:
        raise InputError(f"{where}: nim has no profile with attention ranks; take kubernetes")
    if ":" not in service.checkpoint:
        raise InputError(
            f"{option('checkpoint')}: nim needs the image of the model, owner/name:tag, such as meta/llama-3.1-8b-instruct:2.1.5"
        )
    scaled = service.target_in_flight is not None
    written = {
        "deployment.yaml": yaml_text(instances(service), head=f"{head(service)}\n{SOURCE}."),
        "service.yaml": yaml_text(network_service(service)),
        "model-cache.yaml": yaml_text(model_cache(service)),
        "disruption-budget.yaml": yaml_text(disruption_budget(service)),
        **({"autoscaling.yaml": yaml_text(keda(service))} if scaled else {}),
    }
    scraped = {"port": "http", "path": METRICS}
    return bundle(service, written, beside={"README.md": page(service)}, endpoint=scraped, autoscaled=scaled)


def instances(service: Service) -> dict[str, Any]:
    """The Deployment of the Kubernetes target with NIM's container in it."""
    pulled = noted([{"name": "ngc-registry"}], "A Secret of kind docker-registry for nvcr.io.")
    return deployment(service, {**pod(service), "containers": [nim(service)], "imagePullSecrets": pulled})


def nim(service: Service) -> dict[str, Any]:
    """NIM's container: the image, what is set by variables, its own probes."""
    own = container(service)
    profile = f"vllm-{service.pool.precision}-tp{service.pool.tp}-pp{service.pool.pp}"
    context = service.pool.launch[service.pool.launch.index("--max-model-len") + 1]
    further = " ".join(shlex.quote(word) for word in without(service.pool.launch[3:], *SAID))
    key = {"secretKeyRef": {"name": "ngc-api", "key": "NGC_API_KEY"}}
    told = "The plan's format and degrees; list-model-profiles in the container shows whether it has this one."
    env = [
        {"name": "NGC_API_KEY", "valueFrom": key},
        noted({"name": "NIM_MODEL_PROFILE", "value": profile}, told),
        {"name": "NIM_MAX_MODEL_LEN", "value": context},
        {"name": "NIM_SERVED_MODEL_NAME", "value": service.served},
        noted({"name": "NIM_PASSTHROUGH_ARGS", "value": further}, "The plan's other knobs, for vLLM behind NIM."),
        {"name": "NIM_CACHE_PATH", "value": CACHE},
    ]
    live, ready = ({"httpGet": {"path": f"/v1/health/{name}", "port": "http"}} for name in ("live", "ready"))
    return {
        "name": "nim",
        "image": noted(f"nvcr.io/nim/{service.checkpoint}", "As it was named; its vLLM is a version of its own."),
        "env": env,
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
        "volumeMounts": [{"name": "model-cache", "mountPath": CACHE}, {"name": "shared-memory", "mountPath": "/dev/shm"}],
    }


def page(service: Service) -> str:
    """The page in Markdown."""
    scaled = [("`autoscaling.yaml`", f"{service.least_instances} to {service.pool.instances} pods, by KEDA")]
    rows = [
        ("`deployment.yaml`", f"{service.pool.instances} pods of NIM, its profile and variables, probes, resources"),
        ("`service.yaml`, `model-cache.yaml`, `disruption-budget.yaml`", "address, cache, one pod at a time"),
        *(scaled if service.target_in_flight is not None else []),
    ]
    peak = service.plan.demand.sizing_requests_per_second
    return cluster_page(
        service,
        runs_on="NVIDIA NIM",
        needs=(
            f"The image is `nvcr.io/nim/{service.checkpoint}`, for which you need a licence of NVIDIA AI "
            "Enterprise and a key of NGC, as the "
            "Secrets `ngc-api` (key `NGC_API_KEY`) and `ngc-registry` (docker-registry). The cluster needs "
            "NVIDIA's GPU operator, a storage "
            "class with ReadWriteMany, kube-prometheus-stack, and KEDA for the autoscaling."
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
