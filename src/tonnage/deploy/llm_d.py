"""The files of a deployment with llm-d."""

from __future__ import annotations

from typing import Any

from tonnage.deploy.kubernetes import objects, waits
from tonnage.deploy.plan_text import cluster_page, head, instances_words, keda_too
from tonnage.deploy.service import PORT, Service, dns_label
from tonnage.deploy.workload import bundle, deployment, manifest, pod, selector
from tonnage.deploy.yaml_comments import noted, yaml_text

# Of the picker's external processing, by its own default (llm-d's guide to P/D without Kubernetes,
# read 2026-11-25)
PICKER_PORT = 9002


def pool(service: Service) -> dict[str, Any]:
    """The pool."""
    picked = {
        "name": f"{service.name}-picker",
        "port": {"number": PICKER_PORT},
        "failureMode": "FailOpen",
    }
    spec: dict[str, Any] = {
        "selector": {"matchLabels": selector(service)},
        "targetPorts": [{"number": PORT}],
        "endpointPickerRef": noted(picked, "Without the picker requests go to any pod."),
    }
    return manifest(service, "InferencePool", spec)


def route(service: Service) -> dict[str, Any]:
    """Write the route from the gateway to the pool."""
    behind = {"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": service.name}
    rule = {
        "matches": [{"path": {"type": "PathPrefix", "value": f"{_prefix(service)}/v1"}}],
        **({"filters": [REWRITTEN]} if service.case else {}),
        "backendRefs": [behind],
        "timeouts": noted({"request": "0s"}, "Streams last as long as they last."),
    }
    return manifest(
        service,
        "HTTPRoute",
        {"parentRefs": [noted({"name": "inference-gateway"}, "Your gateway.")], "rules": [rule]},
    )


def _prefix(service: Service) -> str:
    """The prefix of the paths of one of several use cases behind the gateway."""
    return f"/{dns_label(service.case)}" if service.case else ""


REWRITTEN = {
    "type": "URLRewrite",
    "urlRewrite": {"path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/v1"}},
}
"""The filter that puts the engines' own path in place of a prefix."""


# The endpoint picker: a Deployment that the gateway asks which pod gets a request.


IMAGE = "ghcr.io/llm-d/llm-d-router-endpoint-picker:v0.9.0"
IMAGE_SOURCE = "as KServe's templates of 2026 name it (read in a secondary source, 2026-11-22)"
HEALTH_PORT = 9003

WEIGHTS = {"prefix-cache-scorer": 3, "queue-scorer": 2, "kv-cache-utilization-scorer": 2}
"""What a pod is scored by (the weights of llm-d's guides, read 2026-11-25)."""


ALWAYS = "always-disagg-pd-decider"
"""The plugin that sends every request through both pools, as in the plan (llm-d's
guides/pd-disaggregation, read 2026-11-23)."""


def picker(service: Service) -> dict[str, Any]:
    """The Deployment."""
    matched = {"app.kubernetes.io/name": f"{service.name}-picker"}
    arguments = [
        "--pool-name",
        service.name,
        "--pool-namespace",
        "$(NAMESPACE)",
        "--config-file",
        "/config/picker.yaml",
    ]
    check = {"grpc": {"port": HEALTH_PORT, "service": "inference-extension"}}
    container = {
        "name": "picker",
        "image": noted(IMAGE, IMAGE_SOURCE),
        "args": [
            *arguments,
            "--grpc-port",
            str(PICKER_PORT),
            "--grpc-health-port",
            str(HEALTH_PORT),
            "--secure-serving=true",
        ],
        "env": [
            {"name": "NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}
        ],
        "ports": [{"name": "picker", "containerPort": PICKER_PORT}],
        "readinessProbe": {**check, "periodSeconds": 5},
        "livenessProbe": {**check, "periodSeconds": 10},
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "2Gi"}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "config", "mountPath": "/config", "readOnly": True}],
    }
    pod = {
        "serviceAccountName": f"{service.name}-picker",
        "containers": [container],
        "volumes": [{"name": "config", "configMap": {"name": f"{service.name}-picker-config"}}],
    }
    spec: dict[str, Any] = {
        "replicas": noted(1, "It remembers which pod has seen which prefix."),
        "selector": {"matchLabels": matched},
        "template": {"metadata": {"labels": matched}, "spec": pod},
    }
    return manifest(service, "Deployment", spec, "-picker")


def permissions(service: Service) -> tuple[dict[str, Any], ...]:
    """Write the permission to read the pool and its pods."""
    name, reads = f"{service.name}-picker", ["get", "list", "watch"]
    groups = ["inference.networking.k8s.io", "inference.networking.x-k8s.io", "llm-d.ai"]
    kinds = ["inferencepools", "inferenceobjectives", "inferencemodelrewrites"]
    rules = [
        {"apiGroups": [""], "resources": ["pods"], "verbs": reads},
        {"apiGroups": groups, "resources": kinds, "verbs": reads},
    ]
    bound = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    return (
        manifest(service, "ServiceAccount", None, "-picker"),
        manifest(service, "Role", None, "-picker", rules=rules),
        manifest(
            service,
            "RoleBinding",
            None,
            "-picker",
            subjects=[{"kind": "ServiceAccount", "name": name}],
            roleRef=bound,
        ),
    )


def picker_config(service: Service) -> dict[str, Any]:
    """How pods are scored; each of two pools by itself, so that no prompt is computed where it
    decodes.
    """
    plugins: list[dict[str, Any]] = [{"type": name} for name in (*WEIGHTS, "max-score-picker")]
    weighed = [
        *({"pluginRef": name, "weight": weight} for name, weight in WEIGHTS.items()),
        {"pluginRef": "max-score-picker"},
    ]
    profiles = [{"name": "default", "plugins": weighed}]
    if len(service.halves) > 1:
        plugins = [
            {"type": name}
            for name in ("disagg-headers-handler", ALWAYS, "prefill-filter", "decode-filter")
        ] + plugins
        plugins.append(
            {"type": "disagg-profile-handler", "parameters": {"deciders": {"prefill": ALWAYS}}}
        )
        profiles = [
            {"name": role, "plugins": [{"pluginRef": f"{role}-filter"}, *weighed]}
            for role in ("prefill", "decode")
        ]
    config = {
        "apiVersion": "inference.networking.x-k8s.io/v1alpha1",
        "kind": "EndpointPickerConfig",
        "plugins": plugins,
        "schedulingProfiles": profiles,
    }
    return manifest(
        service, "ConfigMap", None, "-picker-config", data={"picker.yaml": yaml_text(config)}
    )


# The pods of two pools with llm-d: prefill pods, and decode pods whose routing sidecar has a prompt
# computed elsewhere first.


SIDECAR = "ghcr.io/llm-d/llm-d-router-disagg-sidecar:v0.9.0"
SIDECAR_READ = (
    "flags were read in the sidecar's pkg/sidecar/proxy/options.go on 2026-11-25: --secure-proxy,"
    " which later versions also call --secure-serving, is taken by all of them; the tag is the"
    " picker's"
)
CONNECTORS = {"vllm": "nixlv2", "sglang": "sglang"}  # Of the sidecar, by the engine's family


def half(service: Service) -> dict[str, Any]:
    """The Deployment of one pool, of ``Service.halves``."""
    role, spec = service.pool.role, pod(service)
    (engine,) = spec["containers"]
    if service.family == "vllm":
        address = {
            "name": "VLLM_NIXL_SIDE_CHANNEL_HOST",
            "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}},
        }
        engine["env"] = [
            *engine["env"],
            noted(address, "Where the other pool's engines fetch KV caches."),
        ]
    if role == "decode":
        connector = f"--kv-connector={CONNECTORS[service.family]}"
        arguments = [
            f"--port={PORT}",
            f"--vllm-port={service.port}",
            connector,
            "--secure-proxy=false",
        ]
        sidecar = {
            "name": "routing-proxy",
            "image": noted(SIDECAR, SIDECAR_READ),
            "args": arguments,
            "ports": [{"name": "proxy", "containerPort": PORT}],
            "restartPolicy": "Always",
            "securityContext": {"allowPrivilegeEscalation": False, "runAsNonRoot": True},
        }
        spec = {**spec, "initContainers": [sidecar]}
    return deployment(service, spec, further={"llm-d.ai/engine-type": service.family})


CONFIG_READ = (
    "The plugins' names and weights were read in llm-d's guides and their copies on 2026-11-25."
)


def files(service: Service) -> dict[str, str]:
    """The text of each file by its name."""
    written = objects(service, {"llm-d.ai/engine-type": service.family})
    del written["service.yaml"]
    if len(service.halves) > 1:
        written["deployment.yaml"] = yaml_text(*map(half, service.halves), head=head(service))
    port = {"name": "picker", "port": PICKER_PORT, "targetPort": "picker", "appProtocol": "http2"}
    written |= {
        "inference-pool.yaml": yaml_text(pool(service)),
        "route.yaml": yaml_text(route(service)),
        "picker.yaml": yaml_text(
            picker(service),
            manifest(
                service,
                "Service",
                {"selector": {"app.kubernetes.io/name": f"{service.name}-picker"}, "ports": [port]},
                "-picker",
            ),
            *permissions(service),
        ),
        "picker-config.yaml": yaml_text(picker_config(service), head=CONFIG_READ),
    }
    return bundle(service, written, {"README.md": page(service)})


def page(service: Service) -> str:
    """The page in Markdown."""
    rows = [
        (
            (
                f"`{'leader-worker-set' if service.spans > 1 else 'deployment'}.yaml`,"
                " `model-cache.yaml`, `disruption-budget.yaml`"
            ),
            (
                f"{instances_words(service.choice.pools, 'pod')} of {service.pool.engine} and their"
                " cache"
            ),
        ),
        (
            "`inference-pool.yaml`, `route.yaml`",
            "the pods as a pool, and the way to it from a gateway",
        ),
        (
            "`picker.yaml`, `picker-config.yaml`",
            "llm-d's endpoint picker: which pod gets a request, by prefix, queue and KV cache",
        ),
    ]
    return cluster_page(
        service,
        runs_on="llm-d",
        needs=(
            "The cluster needs the Gateway API with its inference extension, a Gateway"
            " `inference-gateway` of a controller that knows it,"
            f" {service.prerequisites}kube-prometheus-stack{keda_too(service)}. A gated model needs"
            " a Secret `hf-token` with the key `token`. The picker serves TLS with a certificate"
            " that it signs itself, as gateways expect; Istio verifies certificates and needs a"
            f" DestinationRule for the host `{service.name}-picker` with `tls: {{mode: SIMPLE,"
            " insecureSkipVerify: true}`."
        ),
        commands=(
            "kubectl apply --kustomize .",
            (
                f"kubectl wait deployment --selector app.kubernetes.io/name={service.name} --for"
                f" condition=Available --timeout {service.startup_seconds + 300}s"
                if len(service.halves) > 1
                else waits(service)
            ),
            (
                "HOST=$(kubectl get gateway inference-gateway --output"
                " jsonpath='{.status.addresses[0].value}')"
            ),
        ),
        url=f'"http://$HOST{_prefix(service)}"',
        instances=service.pool.instances,
        rows=rows,
        scaled="pods",
    )
