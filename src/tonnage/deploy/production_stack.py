"""The files of a deployment with vLLM's production stack: values of its Helm chart, and what the
chart does not write.

Read on 2026-11-25 in vllm-project/production-stack: helm/templates/deployment-vllm-multi.yaml at
f1f9822790e7, _helpers.tpl at d6eece8a0bff, deployment-router.yaml at deacf478fe36,
service-router.yaml at 11caa0fd34a2 and pvc.yaml at 0b94d547c42c.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tonnage.deploy.checkpoint import FOLDER
from tonnage.deploy.plan_text import (
    argv_notes,
    cluster_page,
    head,
    image_note,
    keda_too,
    startup_line,
)
from tonnage.deploy.service import PORT, Service, without
from tonnage.deploy.workload import (
    ENVIRONMENT,
    RESOURCE,
    bundle,
    disruptions,
    keda,
    placing,
    probes,
)
from tonnage.deploy.yaml_comments import noted, plain, yaml_text

MODEL = "engine"  # The chart's name of the model, a part of each name that it composes
# Where the chart mounts the claim of a model, which is also the engine's HF_HOME there
MOUNTED = "/data"

LOGIC = {"round-robin": "roundrobin", "session": "session", "prefix-aware": "prefixaware"}
"""The router's names of the simulated routers that it has."""

SESSION = "x-session-id"  # Header that names the session of a request

SET = {
    "--tensor-parallel-size": "tensorParallelSize",
    "--max-num-seqs": "maxNumSeqs",
    "--max-model-len": "maxModelLen",
}
"""Flags that the chart writes, by its own keys; it mounts shared memory only where it knows the
first."""


def prepared(service: Service) -> Service:
    """The deployment with a checkpoint's folder in the claim that the chart mounts."""
    loading = service.loading
    if not service.local:
        return service
    moved = (loading.checkpoint, loading.told, *loading.make)
    checkpoint, explanation, *make = (text.replace(f"{FOLDER}/", f"{MOUNTED}/") for text in moved)
    return replace(
        service, loading=replace(loading, checkpoint=checkpoint, told=explanation, make=tuple(make))
    )


def files(service: Service) -> dict[str, str]:
    """The text of each file by its name."""
    matched = _labels(service)
    moved = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "name": deployment_name(service.name, MODEL),
    }
    applied = {
        "disruption-budget.yaml": yaml_text(disruptions(service, matched)),
        **(
            {}
            if service.target_in_flight is None
            else {"autoscaling.yaml": yaml_text(keda(service, moved))}
        ),
    }
    beside = {
        "values.yaml": yaml_text(values(service), head=head(service)),
        "README.md": page(service),
    }
    return bundle(service, applied, beside, matched, {"port": "container-port"})


def deployment_name(release: str, model: str) -> str:
    """The name that the chart gives to a model's Deployment."""
    return f"{release}-{model}-deployment-vllm"


def values(service: Service) -> dict[str, Any]:
    """``values.yaml``."""
    startup, readiness, liveness = (plain(probe) for probe in probes(service).values())
    surge = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}
    return {
        "servingEngineSpec": {
            "enableEngine": True,
            "labels": noted(_labels(service), "Of the pods; the router finds them by these."),
            "containerPort": PORT,
            "runtimeClassName": "" if service.gpu.vendor == "AMD" else "nvidia",
            "strategy": noted(
                surge,
                "No GPUs are kept free for an update: one instance ends before its successor"
                " starts.",
            ),
            "startupProbe": noted(_probe(startup), startup_line(service)),
            "readinessProbe": _probe(readiness),
            "livenessProbe": _probe(liveness),
            "tolerations": placing(service)["tolerations"],
            "modelSpec": [_model(service)],
        },
        "routerSpec": _router(service),
    }


def _labels(service: Service) -> dict[str, str]:
    """Labels that replace the chart's, which are the same for every release in a namespace."""
    return {"environment": "tonnage", "release": service.name}


def _probe(probe: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a probe: the port by its number, and without fields that the chart's values do not
    have.
    """
    get = {**probe["httpGet"], "port": PORT}
    return {
        "initialDelaySeconds": 0,
        "periodSeconds": probe["periodSeconds"],
        "failureThreshold": probe["failureThreshold"],
        "httpGet": get,
    }


def _model(service: Service) -> dict[str, Any]:
    repository, _, tag = service.image.rpartition(":")
    argv = service.argv
    settings = {key: int(argv[argv.index(flag) + 1]) for flag, key in SET.items() if flag in argv}
    note = (
        "The chart writes --no-enable-prefix-caching where this is not set; vLLM's own default"
        " is on."
    )
    config = {
        **settings,
        "enablePrefixCaching": noted(True, note),
        "extraArgs": noted(without(argv[3:], *SET, "--host", "--port"), argv_notes(service)),
    }
    return {
        "name": MODEL,
        "repository": noted(repository, image_note(service)),
        "tag": tag,
        "modelURL": service.checkpoint,
        "replicaCount": noted(service.pool.instances, "The plan's instances, spare ones included."),
        "requestCPU": service.cpus,
        "requestMemory": f"{service.memory_gib}Gi",
        "limitMemory": f"{service.memory_gib}Gi",
        "requestGPU": service.gpus,
        "requestGPUType": RESOURCE[service.gpu.vendor],
        "pvcStorage": f"{service.cache_gib}Gi",
        "pvcAccessMode": noted(
            ["ReadWriteMany"], "Several nodes read it: a storage class with ReadWriteMany."
        ),
        "shmSize": f"{service.shared_memory_gib}Gi",
        "env": ENVIRONMENT[1:],
        "nodeSelectorTerms": _terms(plain(placing(service))),
        "vllmConfig": config,
    }


def _terms(placed: Mapping[str, Any]) -> list[Any]:
    """The selector or the affinity of a pod as the chart takes them."""
    if "affinity" in placed:
        terms: list[Any] = placed["affinity"]["nodeAffinity"][
            "requiredDuringSchedulingIgnoredDuringExecution"
        ]["nodeSelectorTerms"]
        return terms
    expressions = [
        {"key": key, "operator": "In", "values": [value]}
        for key, value in placed["nodeSelector"].items()
    ]
    return [{"matchExpressions": expressions}]


def _router(service: Service) -> dict[str, Any]:
    logic = LOGIC.get(service.router)
    note = "The router that the plan's number of systems rests on."
    if logic is None:
        note = (
            f"The plan counts on {service.router}, which this router does not have: size again with"
            " --deploy-on production-stack."
        )
    return {
        "enableRouter": True,
        "replicaCount": noted(1, "It remembers which engine has seen which prefix or session."),
        "serviceDiscovery": "k8s",
        "routingLogic": noted(logic or "roundrobin", note),
        **(
            {"sessionKey": noted(SESSION, "The header by which clients name their session.")}
            if logic == "session"
            else {}
        ),
        "containerPort": PORT,
        "servicePort": 80,
        "serviceType": "ClusterIP",
        "labels": {"environment": "tonnage-router", "release": service.name},
    }


def command(engine: Mapping[str, Any], model: Mapping[str, Any]) -> list[str]:
    """The command that the chart composes of its values: ``servingEngineSpec``, and one of its
    ``modelSpec``.
    """
    config = model.get("vllmConfig") or {}
    words = [
        "vllm",
        "serve",
        model["modelURL"],
        "--host",
        "0.0.0.0",
        "--port",
        engine.get("containerPort", PORT),
    ]
    words += [
        (
            "--enable-prefix-caching"
            if config.get("enablePrefixCaching")
            else "--no-enable-prefix-caching"
        )
    ]
    words += [word for flag, key in SET.items() if key in config for word in (flag, config[key])]
    return [str(word) for word in (*words, *(config.get("extraArgs") or ()))]


def page(service: Service) -> str:
    """The page in Markdown."""
    name, seconds = service.name, service.startup_seconds + 300
    rows = [
        (
            "`values.yaml`",
            f"of the chart `vllm-stack`: {service.pool.instances} instances and its router",
        ),
        ("`disruption-budget.yaml`", "one pod at a time"),
    ]
    folder = (
        f" The claim `{name}-{MODEL}-storage-claim` is mounted at {MOUNTED}: put the checkpoint's"
        " folder into it."
    )
    chart = "helm repo add vllm https://vllm-project.github.io/production-stack"
    return cluster_page(
        service,
        runs_on="vLLM's production stack",
        needs=(
            f"The cluster needs {service.prerequisites}kube-prometheus-stack{keda_too(service)};"
            " you need Helm 3."
        )
        + (folder if service.local else ""),
        commands=(
            (
                f"{chart} && helm upgrade --install {name} vllm/vllm-stack --values values.yaml"
                f" --wait --timeout {seconds}s"
            ),
            "kubectl apply --kustomize .",
            f"kubectl port-forward service/{name}-router-service 8080:80 &",
        ),
        url="http://127.0.0.1:8080",
        instances=service.pool.instances,
        rows=rows,
        scaled="pods",
        further=(
            "The release must have this name: rules and autoscaling find its objects by it. The"
            " chart has no grace period, so Kubernetes gives a pod that ends 30 s, and a request"
            f" of this plan may take {service.drain_seconds} s; and it reports a failed rollout"
            " after 1200 s."
        ),
    )
