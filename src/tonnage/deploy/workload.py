"""The instances: a Deployment, its pods and the engine in them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tonnage.deploy.checkpoint import FOLDER
from tonnage.deploy.monitoring import dashboard_text, in_flight, rules
from tonnage.deploy.plan_text import argv_notes, image_note, least_line, startup_line
from tonnage.deploy.service import WORKER, Service, node_words
from tonnage.deploy.yaml_comments import Noted, noted, yaml_text
from tonnage.spec.hardware import Gpu

# On which nodes the instances may run: those with the plan's GPUs, as NVIDIA's GPU feature
# discovery labels them.


PRODUCTS = {
    "v100-sxm2-32gb": "Tesla-V100-SXM2-32GB",
    "t4": "Tesla-T4",
    "a10-24gb": "NVIDIA-A10",
    "a10g-24gb": "NVIDIA-A10G",
    "a100-pcie-40gb": "NVIDIA-A100-PCIE-40GB",
    "a100-pcie-80gb": "NVIDIA-A100-80GB-PCIe",
    "a100-sxm-40gb": "NVIDIA-A100-SXM4-40GB",
    "a100-sxm-80gb": "NVIDIA-A100-SXM4-80GB",
    "l4": "NVIDIA-L4",
    "l40": "NVIDIA-L40",
    "l40s": "NVIDIA-L40S",
    "h100-pcie-80gb": "NVIDIA-H100-PCIe",
    "h100-sxm-80gb": "NVIDIA-H100-80GB-HBM3",
    "h100-nvl-94gb": "NVIDIA-H100-NVL",
    "h200-sxm-141gb": "NVIDIA-H200",
    "h200-nvl-141gb": "NVIDIA-H200-NVL",
    "h20-96gb": "NVIDIA-H20",
    "b200-sxm-180gb": "NVIDIA-B200",
}
"""The label ``nvidia.com/gpu.product`` of GPUs by catalog id: the name that the driver reports,
with hyphens (recalled, 2026-11-22)."""

MARGIN = 0.03  # How far the memory that a driver reports may lie from the catalog's


RESOURCE = {"NVIDIA": "nvidia.com/gpu", "AMD": "amd.com/gpu"}  # Of the device plugins, by vendor

USE = {"NVIDIA": "DCGM_FI_DEV_GPU_UTIL", "AMD": "gpu_gfx_activity"}
"""Use of a GPU in percent, of NVIDIA's DCGM exporter and of AMD's device metrics exporter (its
metrics list, read 2026-11-25)."""


def placing(service: Service) -> dict[str, Any]:
    """Selector, affinity and toleration of a pod; none of a simulated engine."""
    gpu = service.gpu
    if service.simulated:
        return {}
    return {
        **_nodes(gpu),
        "tolerations": [
            {"key": RESOURCE[gpu.vendor], "operator": "Exists", "effect": "NoSchedule"}
        ],
    }


def _nodes(gpu: Gpu) -> dict[str, Any]:
    if gpu.vendor == "AMD":
        note = (
            f"{gpu.name} by its memory, as AMD's node labeller writes it; look at your nodes:"
            " kubectl get nodes -L amd.com/gpu.vram"
        )
        return {
            "nodeSelector": noted({"amd.com/gpu.vram": f"{round(gpu.memory_bytes / 2**30)}G"}, note)
        }
    product = PRODUCTS.get(gpu.name)
    if product is not None:
        note = (
            f"{gpu.name}, as GPU feature discovery names it; look at your nodes: kubectl get nodes"
            " -L nvidia.com/gpu.product"
        )
        return {"nodeSelector": noted({"nvidia.com/gpu.product": product}, note)}
    mib = gpu.memory_bytes / 2**20
    expressions = [
        {"key": "nvidia.com/gpu.family", "operator": "In", "values": [gpu.arch.lower()]},
        {
            "key": "nvidia.com/gpu.memory",
            "operator": "Gt",
            "values": [str(round((1 - MARGIN) * mib))],
        },
        {
            "key": "nvidia.com/gpu.memory",
            "operator": "Lt",
            "values": [str(round((1 + MARGIN) * mib))],
        },
    ]
    required = {"nodeSelectorTerms": [{"matchExpressions": expressions}]}
    note = (
        f"The name that a driver reports for {gpu.name} is not known: its family and its memory in"
        " MiB."
    )
    return {
        "affinity": noted(
            {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}, note
        )
    }


CONFIG = "/etc/engine"
PROBE_S = 10


def deployment(
    service: Service,
    spec: Mapping[str, Any] | None = None,
    *,
    further: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The pods, with ``spec`` in place of the engine's and ``further`` labels."""
    moved = "" if service.target_in_flight is None else "; the autoscaler moves this number"
    role = "" if service.pool.role == "serve" else f"-{service.pool.role}"
    whole: dict[str, Any] = {
        "replicas": noted(
            service.pool.instances, f"The plan's instances, spare ones included{moved}."
        ),
        "selector": {"matchLabels": selector(service)},
        "strategy": noted(
            {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
            "No GPUs are kept free for an update: one instance ends before its successor starts.",
        ),
        "progressDeadlineSeconds": service.startup_seconds + 300,
        "template": {
            "metadata": {"labels": {**labels(service), **selector(service), **(further or {})}},
            "spec": dict(spec or pod(service)),
        },
    }
    return manifest(service, "Deployment", whole, role)


ACROSS = (
    "The pipeline's stages talk over the network between them: add your fabric's resource (such as"
    " rdma/ib) to both templates."
)
RACKED = (
    "They are in one rack, where NVLink joins them through the channel that each gets of the"
    " ComputeDomain."
)
CHANNEL = "compute-domain-channel"


def compute_domain(service: Service) -> dict[str, Any]:
    """The domain in which pods on several machines share memory over NVLink; NVIDIA's DRA driver
    makes the template of its claims.

    Read on 2026-11-25: kubernetes-sigs/dra-driver-nvidia-gpu
    api/nvidia.com/resource/v1beta1/computedomain.go at 61de3f2f94eb.
    """
    spec: dict[str, Any] = {
        "numNodes": noted(
            0,
            "Pods join as they start (the driver's default since it gives its daemons DNS names).",
        ),
        "channel": {"resourceClaimTemplate": {"name": f"{service.name}-channel"}},
    }
    return manifest(service, "ComputeDomain", spec)


def _in_one_rack(service: Service, placed: Mapping[str, Any]) -> dict[str, Any]:
    """The placing of a pod next to those of its group, and its claim of a channel."""
    group = {
        "labelSelector": {"matchLabels": {"app.kubernetes.io/name": service.name}},
        "matchLabelKeys": ["leaderworkerset.sigs.k8s.io/group-key"],
        "topologyKey": "nvidia.com/gpu.clique",
    }
    affinity = placed.get("affinity", Noted(value={}))
    joined = {
        **affinity.value,
        "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [group]},
    }
    note = f"{affinity.note} The pods of one instance are in one NVLink domain.".lstrip()
    claims = [{"name": CHANNEL, "resourceClaimTemplateName": f"{service.name}-channel"}]
    return {**placed, "affinity": noted(joined, note), "resourceClaims": claims}


def instances(service: Service, further: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The pods, or the groups of pods of instances that span several machines; ``further`` are
    labels of a pod.
    """
    if service.spans == 1:
        return deployment(service, further=further)
    named = {"metadata": {"labels": {**labels(service), **(further or {})}}}
    note = f"One instance: {service.spans} pods with {service.gpus // service.spans} GPUs each. "
    note += RACKED if service.racked else ACROSS
    moved = "" if service.target_in_flight is None else "; the autoscaler moves this number"
    group = {
        "size": noted(service.spans, note),
        "restartPolicy": noted(
            "RecreateGroupOnPodRestart", "An instance without one of its pods computes nothing."
        ),
        "leaderTemplate": {**named, "spec": pod(service)},
        "workerTemplate": {**named, "spec": pod(service, WORKER)},
    }
    replicas = noted(service.pool.instances, f"The plan's instances, spare ones included{moved}.")
    return manifest(
        service, "LeaderWorkerSet", {"replicas": replicas, "leaderWorkerTemplate": group}
    )


def pod(service: Service, rank: str = "0") -> dict[str, Any]:
    """Write the pod of an instance, or of one of its ranks where it spans several machines."""
    memory = noted(
        {"medium": "Memory", "sizeLimit": f"{service.shared_memory_gib}Gi"},
        "Shared memory of NCCL and the engine's processes.",
    )
    volumes: list[Any] = [model_volume(service), {"name": "shared-memory", "emptyDir": memory}]
    if service.file_text:
        volumes.append(file_volume(service))
    return {
        "terminationGracePeriodSeconds": noted(
            service.drain_seconds + PROBE_S,
            "Running requests may end: the plan's p99 of E2E at the limit, and the time to leave"
            " the Service.",
        ),
        "automountServiceAccountToken": False,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        **(_in_one_rack(service, placing(service)) if service.racked else placing(service)),
        "containers": [container(service, rank)],
        "volumes": volumes,
    }


def model_volume(service: Service) -> dict[str, Any]:
    """The volume of the checkpoint; an empty folder for a simulated engine."""
    if service.simulated:
        return {"name": "model-cache", "emptyDir": {}}
    return {
        "name": "model-cache",
        "persistentVolumeClaim": {"claimName": f"{service.name}-model-cache"},
    }


def file_volume(service: Service) -> dict[str, Any]:
    """The engine's configuration file."""
    return {"name": "engine-config", "configMap": {"name": f"{service.name}-engine-config"}}


def container(service: Service, rank: str = "0") -> dict[str, Any]:
    """The engine; only the first of several pods of an instance answers requests."""
    mounts: list[Any] = [
        {"name": "model-cache", "mountPath": FOLDER},
        {"name": "shared-memory", "mountPath": "/dev/shm"},
    ]
    if service.file_text:
        mounts.append({"name": "engine-config", "mountPath": CONFIG, "readOnly": True})
    command, *arguments = service.argv
    engine_arguments = [
        f"{CONFIG}/{word}" if word == service.file_name else word for word in arguments
    ]
    if service.spans > 1:
        engine_arguments += node_words(service.family, nodes=service.spans, rank=rank)
    answers = (
        {"ports": [{"name": "http", "containerPort": service.port}], **probes(service)}
        if rank == "0"
        else {}
    )
    address = {"name": "VLLM_HOST_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    address_variables = (
        [noted(address, "Where the instance's other pods reach this one.")]
        if service.spans > 1 and service.family == "vllm"
        else []
    )
    return {
        "name": "engine",
        "image": noted(service.image, image_note(service)),
        "command": [command],
        "args": noted(engine_arguments, argv_notes(service)),
        "env": [*ENVIRONMENT, *address_variables],
        **answers,
        "lifecycle": {"preStop": {"exec": {"command": ["sleep", str(PROBE_S)]}}},
        "resources": resources(service),
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": mounts,
    }


TOKEN = {
    "name": "HF_TOKEN",
    "valueFrom": {"secretKeyRef": {"name": "hf-token", "key": "token", "optional": True}},
}
ENVIRONMENT: list[Any] = [
    {"name": "HF_HOME", "value": FOLDER},
    noted(TOKEN, "Needed for gated models alone."),
]
"""Where the model is kept, and the hub's token by reference."""


def probes(
    service: Service, comment: str = "", ready: str = "/health", live: str = "/health"
) -> dict[str, Any]:
    """Start-up by the size of the model, with a comment (default: what the allowance is made of),
    then readiness and liveness by paths.
    """
    ask_ready, ask_live = ({"httpGet": {"path": path, "port": "http"}} for path in (ready, live))
    tries = math.ceil(service.startup_seconds / PROBE_S)
    start = {**ask_ready, "periodSeconds": PROBE_S, "timeoutSeconds": 5, "failureThreshold": tries}
    return {
        "startupProbe": noted(start, comment or startup_line(service)),
        "readinessProbe": {
            **ask_ready,
            "periodSeconds": 5,
            "timeoutSeconds": 5,
            "failureThreshold": 2,
        },
        "livenessProbe": {
            **ask_live,
            "periodSeconds": PROBE_S,
            "timeoutSeconds": 10,
            "failureThreshold": 6,
        },
    }


def resources(service: Service) -> dict[str, Any]:
    """GPUs, cores and memory of one instance."""
    if service.simulated:
        shared: dict[str, Any] = {"memory": f"{service.memory_gib}Gi"}
        return {"requests": {"cpu": service.cpus, **shared}, "limits": shared}
    shared = {
        "memory": f"{service.memory_gib}Gi",
        RESOURCE[service.gpu.vendor]: service.gpus // service.spans,
    }
    note = (
        "The weights on their way to the GPUs, 16 GiB for the processes, and shared memory; two"
        " cores for each front end, one for each GPU."
    )
    claims = {"claims": [{"name": CHANNEL}]} if service.racked else {}
    return {"requests": noted({"cpu": service.cpus, **shared}, note), "limits": shared, **claims}


def labels(service: Service) -> dict[str, str]:
    """The labels of every object of the deployment."""
    return {"app.kubernetes.io/name": service.name, "app.kubernetes.io/managed-by": "tonnage"}


def selector(service: Service) -> dict[str, str]:
    """The labels that the pods are found by that answer requests; of one of two pools its role too,
    by which llm-d's picker knows them.
    """
    role = {} if service.pool.role == "serve" else {"llm-d.ai/role": service.pool.role}
    leader = {"leaderworkerset.sigs.k8s.io/worker-index": "0"} if service.spans > 1 else {}
    return {"app.kubernetes.io/name": service.name, **role, **leader}


def scaled_object(service: Service) -> dict[str, str]:
    """What holds the instances: a Deployment, or a LeaderWorkerSet where each spans several
    machines.
    """
    kind = "LeaderWorkerSet" if service.spans > 1 else "Deployment"
    return {"apiVersion": API[kind], "kind": kind, "name": service.name}


API = {
    **dict.fromkeys(("ConfigMap", "PersistentVolumeClaim", "Service", "ServiceAccount"), "v1"),
    **dict.fromkeys(("PodMonitor", "PrometheusRule"), "monitoring.coreos.com/v1"),
    **dict.fromkeys(("Role", "RoleBinding"), "rbac.authorization.k8s.io/v1"),
    "ComputeDomain": "resource.nvidia.com/v1beta1",
    "Deployment": "apps/v1",
    "DynamoGraphDeployment": "nvidia.com/v1beta1",
    "HTTPRoute": "gateway.networking.k8s.io/v1",
    "HorizontalPodAutoscaler": "autoscaling/v2",
    "InferencePool": "inference.networking.k8s.io/v1",
    "LLMInferenceService": "serving.kserve.io/v1alpha2",
    "LeaderWorkerSet": "leaderworkerset.x-k8s.io/v1",
    "NIMService": "apps.nvidia.com/v1alpha1",
    "PodDisruptionBudget": "policy/v1",
    "ScaledObject": "keda.sh/v1alpha1",
}
"""Group and version of each kind of object."""


def manifest(
    service: Service, kind: str, spec: Mapping[str, Any] | None, ending: str = "", **further: Any
) -> dict[str, Any]:
    """An object of a kind in ``API``; an ending of its name tells it from others of its kind,
    ``further`` is what it has without spec.
    """
    head = {"apiVersion": API[kind], "kind": kind, "metadata": metadata(service, ending)}
    return {**head, **({} if spec is None else {"spec": spec}), **further}


def metadata(service: Service, ending: str = "") -> dict[str, Any]:
    """Name and labels of an object."""
    return {"name": service.name + ending, "labels": labels(service)}


# What every target on a cluster has next to its instances: monitoring, rules, a dashboard, and the
# list of what kubectl applies.


def pod_monitor(
    service: Service,
    matched: Mapping[str, str] | None = None,
    endpoint: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Every instance is scraped; its series get the deployment's name as a label.

    ``matched`` are labels of its pods (default: those of the Deployment), ``endpoint`` is where
    they publish (default: the port "http").
    """
    labelled = {"targetLabel": "deployment", "replacement": service.name}
    where = endpoint or {"port": "http"}
    scrape_endpoint = {
        **where,
        "path": where.get("path", service.signals.path),
        "interval": "15s",
        "relabelings": [labelled],
    }
    spec: dict[str, Any] = {
        "selector": {"matchLabels": dict(matched or selector(service))},
        "podMetricsEndpoints": noted(
            [scrape_endpoint],
            "Rules, dashboard and autoscaling find the series by the label deployment.",
        ),
    }
    return manifest(service, "PodMonitor", spec)


def bundle(
    service: Service,
    applied: Mapping[str, str],
    beside: Mapping[str, str],
    monitored: Mapping[str, str] | None = None,
    endpoint: Mapping[str, Any] | None = None,
) -> dict[str, str]:
    """The text of each file by its name: what kubectl ``applied``, what every target has in
    addition, and files ``beside`` them.

    ``monitored`` and ``endpoint`` are as for ``pod_monitor``. The exporter of the vendor's GPU
    operator names the pod that uses a GPU in one of two labels. Where autoscaling is applied, fewer
    instances than the plan's may run on purpose.
    """
    use, pods = USE[service.gpu.vendor], f'"{service.name}-.+"'
    gpus = f'{use}{{exported_pod=~{pods}}} or {use}{{pod=~{pods},exported_pod=""}}'
    least = service.least_instances if "autoscaling.yaml" in applied else service.pool.instances
    texts = {
        **applied,
        "pod-monitor.yaml": yaml_text(pod_monitor(service, monitored, endpoint)),
        "alerts.yaml": yaml_text(manifest(service, "PrometheusRule", rules(service, gpus, least))),
    }
    listed = yaml_text(kustomization(service, sorted(texts)))
    dashboard = {"dashboard.json": dashboard_text(service)} if len(service.halves) == 1 else {}
    return {**texts, **beside, **dashboard, "kustomization.yaml": listed}


def kustomization(service: Service, resources: list[str]) -> dict[str, Any]:
    """Write the list of files that kubectl applies together."""
    document = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": resources,
    }
    if len(service.halves) > 1:
        return document
    options = {"labels": {"grafana_dashboard": "1"}, "disableNameSuffixHash": True}
    generators = [
        {"name": f"{service.name}-dashboard", "files": ["dashboard.json"], "options": options}
    ]
    note = (
        "Grafana's sidecar (kube-prometheus-stack) loads dashboards from ConfigMaps with this"
        " label."
    )
    return {**document, "configMapGenerator": noted(generators, note)}


def disruptions(service: Service, matched: Mapping[str, str]) -> dict[str, Any]:
    """Write how many instances with these labels an orderly disruption may take at once."""
    spec: dict[str, Any] = {
        "maxUnavailable": noted(
            1,
            "A drained node takes one instance at a time, each of which needs minutes to start"
            " again.",
        ),
        "selector": {"matchLabels": dict(matched)},
    }
    return manifest(service, "PodDisruptionBudget", spec)


# How the number of instances follows the load: by requests in flight, on the target that the plan's
# simulation found.


PROMETHEUS = "http://prometheus-operated.monitoring.svc:9090"
ADAPTED = "tonnage_requests_in_flight"


def _target_note(service: Service) -> str:
    if service.scaling is not None:
        return (
            "Requests in flight, running and waiting, of one instance. The plan's rule was"
            f" simulated with a start of {service.scaling.start_s:,.0f} s: where yours takes"
            " longer, size again with that time."
        )
    concurrency = service.choice.concurrency_per_instance or 0
    return (
        "Requests in flight, running and waiting, of one instance. The plan's limits hold up to"
        f" {concurrency:,.0f}. So many are in flight at the {service.choice.sized_rate:.4g}"
        " requests/s that it counts on."
    )


def _behaviour(service: Service) -> dict[str, Any]:
    """Up at once, down slowly: an instance takes long to come back."""
    wait = service.scale_down_seconds
    down = {
        "stabilizationWindowSeconds": wait,
        "policies": [{"type": "Pods", "value": 1, "periodSeconds": 120}],
    }
    at_once = {"type": "Percent", "value": 100, "periodSeconds": 60}
    if service.scaling is not None:  # which was simulated without a limit of pods per period
        at_once = {"type": "Pods", "value": service.pool.instances, "periodSeconds": 15}
    up = {"stabilizationWindowSeconds": 0, "policies": [at_once]}
    return {
        "scaleUp": up,
        "scaleDown": noted(
            down, f"Down slowly: an instance takes up to {service.startup_seconds} s to come back."
        ),
    }


def _bounds(service: Service, least: str, highest: str) -> dict[str, Any]:
    return {
        least: noted(service.least_instances, least_line(service)),
        highest: noted(service.pool.instances, "The plan's instances, spare ones included."),
    }


def keda(service: Service, target: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A ScaledObject of KEDA, which asks Prometheus and drives a HorizontalPodAutoscaler."""
    trigger = {
        "type": "prometheus",
        "metricType": "AverageValue",
        "metadata": {
            "serverAddress": noted(PROMETHEUS, "The address of your Prometheus."),
            "query": in_flight(service),
            "threshold": noted(str(service.target_in_flight), _target_note(service)),
        },
    }
    fallback = {"failureThreshold": 3, "replicas": service.pool.instances}
    spec: dict[str, Any] = {
        "scaleTargetRef": dict(target or scaled_object(service)),
        "pollingInterval": 15,
        **_bounds(service, "minReplicaCount", "maxReplicaCount"),
        "fallback": noted(
            fallback, "Without an answer of Prometheus, all of the plan's instances."
        ),
        "advanced": {"horizontalPodAutoscalerConfig": {"behavior": _behaviour(service)}},
        "triggers": [trigger],
    }
    return manifest(service, "ScaledObject", spec)


def hpa(service: Service) -> dict[str, Any]:
    """The same as a HorizontalPodAutoscaler, where prometheus-adapter gives it the metric of each
    pod.
    """
    target = {
        "type": "AverageValue",
        "averageValue": noted(str(service.target_in_flight), _target_note(service)),
    }
    spec: dict[str, Any] = {
        "scaleTargetRef": scaled_object(service),
        **_bounds(service, "minReplicas", "maxReplicas"),
        "behavior": _behaviour(service),
        "metrics": [{"type": "Pods", "pods": {"metric": {"name": ADAPTED}, "target": target}}],
    }
    return manifest(service, "HorizontalPodAutoscaler", spec)


def adapter(service: Service) -> str:
    """The comment before the HorizontalPodAutoscaler: the configuration of prometheus-adapter."""
    signals = service.signals
    return "\n".join(
        [
            (
                "In place of autoscaling.yaml, on a cluster without KEDA; never both."
                " prometheus-adapter needs this rule:"
            ),
            f'  - seriesQuery: \'{signals.running}{{namespace!="",pod!=""}}\'',
            "    resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}",
            f"    name: {{as: {ADAPTED}}}",
            (
                f"    metricsQuery: sum({signals.running}{{<<.LabelMatchers>>}}) by (<<.GroupBy>>) "
                f"+ sum({signals.waiting}{{<<.LabelMatchers>>}}) by (<<.GroupBy>>)"
            ),
        ]
    )
