"""Whether Kubernetes objects find each other: selectors, ports, volumes, scale targets, the picker and its pool."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tonnage.deploy.production_stack import command as chart_command
from tonnage.deploy.production_stack import deployment_name

LEADER_LABELS = {"leaderworkerset.sigs.k8s.io/worker-index": "0"}
"""Which LeaderWorkerSet puts on the first pod of a group, next to the name of its object."""

VALUES = "Values"
"""What the values of vLLM's production stack are called here; they have no kind."""

SELECTED = {
    "Service": ("spec", "selector"),
    "PodDisruptionBudget": ("spec", "selector", "matchLabels"),
    "PodMonitor": ("spec", "selector", "matchLabels"),
    "InferencePool": ("spec", "selector", "matchLabels"),
}
"""Where an object names the labels of its pods."""

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """One object of a file.

    Attributes:
        file: its path inside the folder.
        value: the object.
    """

    file: str
    value: Mapping[str, Any]

    @property
    def kind(self) -> str:
        """Such as "Deployment"."""
        return str(self.value["kind"])

    @property
    def name(self) -> str:
        """Empty for an object without metadata, as a configuration is."""
        return str(at(self.value, "metadata", "name") or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pods:
    """The pods of one template.

    Attributes:
        file, owner: where the template is.
        labels, spec: of a pod.
        replicas: how many there are.
        open: whether a controller adds further ports and volumes, so that these cannot be looked up here.
        answers: whether such a pod answers requests, which further pods of a group do not.
    """

    file: str
    owner: str
    labels: Labels
    spec: Mapping[str, Any]
    replicas: int
    open: bool = False
    answers: bool = True

    @property
    def containers(self) -> list[Mapping[str, Any]]:
        """Those that start first, and the others."""
        return [*(self.spec.get("initContainers") or ()), *(self.spec.get("containers") or ())]

    @property
    def ports(self) -> set[str | int]:
        """Names and numbers of the containers' ports."""
        each = [port for one in self.containers for port in one.get("ports") or ()]
        return {port["containerPort"] for port in each} | {port["name"] for port in each if "name" in port}


def at(value: Any, *path: str) -> Any:
    """The value below these keys; None where something on the way is missing."""
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def pods_of(one: Written) -> Iterator[Pods]:
    """The pods that an object makes."""
    spec, owner = one.value.get("spec") or {}, f"{one.kind}/{one.name}"

    def made(template: Any, replicas: Any, **further: Any) -> Pods:
        labels = {**(at(template, "metadata", "labels") or {}), **further.pop("labels", {})}
        pod = at(template, "spec") or {}
        return Pods(file=one.file, owner=owner, labels=labels, spec=pod, replicas=1 if replicas is None else int(replicas), **further)

    if one.kind == "Deployment":
        yield made(spec.get("template"), spec.get("replicas"))
    elif one.kind == "LeaderWorkerSet":
        group, named = spec.get("leaderWorkerTemplate") or {}, {"leaderworkerset.sigs.k8s.io/name": one.name}
        leader = group.get("leaderTemplate") or group.get("workerTemplate")
        yield made(leader, spec.get("replicas"), labels={**named, **LEADER_LABELS})
        yield made(group.get("workerTemplate"), spec.get("replicas"), labels=named, answers=False)
    elif one.kind == "LLMInferenceService":
        yield made({"spec": spec.get("template")}, spec.get("replicas"), labels=spec.get("labels") or {}, open=True)
    elif one.kind == "InferenceService":
        predictor = spec.get("predictor") or {}
        yield made(
            {"spec": predictor}, predictor.get("minReplicas"), labels=predictor.get("labels") or {}, open="containers" not in predictor
        )
    elif one.kind == "NIMService":  # replaces a Deployment of the same folder, whose instances are counted
        named = {"app.kubernetes.io/name": one.name}
        inside = {"name": one.name, **{name: spec[name] for name in ("env", "resources") if name in spec}}
        claim = {"name": "model-store", "persistentVolumeClaim": {"claimName": at(spec, "storage", "pvc", "name")}}
        pod = {"containers": [inside], "volumes": [claim]}
        yield made({"metadata": {"labels": named}, "spec": pod}, spec.get("replicas"), open=True, answers=False)
    elif one.kind == VALUES:
        engine = one.value["servingEngineSpec"]
        for model in engine.get("modelSpec") or ():
            command, *words = chart_command(engine, model)
            gpus = {model.get("requestGPUType", "nvidia.com/gpu"): model.get("requestGPU", 0)}
            inside = {"name": model["name"], "image": f"{model['repository']}:{model['tag']}", "command": [command], "args": words}
            pod = {"containers": [{**inside, "resources": {"limits": gpus}, "env": model.get("env")}]}
            yield made({"metadata": {"labels": engine.get("labels")}, "spec": pod}, model.get("replicaCount"), open=True)
    elif one.kind == "DynamoGraphDeployment":
        for part in spec.get("components") or ():
            yield made(part.get("podTemplate"), part.get("replicas"), open=True)


def unresolved(objects: Sequence[Written], pods: Sequence[Pods]) -> Iterator[tuple[str, str]]:
    """The file and a clause for each reference that leads nowhere."""
    named = {(one.kind, one.name) for one in objects} | set(_made_by_controllers(objects))
    counted = [(one.kind, one.name) for one in objects if one.name]
    for one in objects:
        if counted.count((one.kind, one.name)) > 1:
            yield one.file, f"{one.kind} {one.name} is written twice"
        yield from ((one.file, f"{one.kind} {one.name}: {told}") for told in _of_object(one, objects, pods, named))
    for group in pods:
        yield from ((group.file, f"{group.owner}: {told}") for told in _of_pods(group, named))


def secrets(pods: Sequence[Pods]) -> Iterator[str]:
    """The Secrets that the pods need, which no folder holds."""
    for group in pods:
        for pulled in group.spec.get("imagePullSecrets") or ():
            yield f"{pulled['name']} (docker-registry)"
        for one in group.containers:
            for entry in one.get("env") or ():
                key = at(entry, "valueFrom", "secretKeyRef")
                if key:
                    yield f"{key['name']} (key {key['key']}{', optional' if key.get('optional') else ''})"


def _made_by_controllers(objects: Sequence[Written]) -> Iterator[tuple[str, str]]:
    """The objects that other projects' controllers make of these, by their names."""
    for one in objects:
        if one.kind == "InferenceService":
            yield "Deployment", f"{one.name}-predictor"
        if template := at(one.value, "spec", "channel", "resourceClaimTemplate", "name") if one.kind == "ComputeDomain" else None:
            yield "ResourceClaimTemplate", template
        for model in (at(one.value, "servingEngineSpec", "modelSpec") or ()) if one.kind == VALUES else ():
            yield "Deployment", deployment_name(str(at(one.value, "servingEngineSpec", "labels", "release")), str(model.get("name")))
        for part in (at(one.value, "spec", "components") or ()) if one.kind == "DynamoGraphDeployment" else ():
            if "scalingAdapter" in part:
                yield "DynamoGraphDeploymentScalingAdapter", f"{one.name}-{str(part['name']).lower()}"


def _of_object(one: Written, objects: Sequence[Written], pods: Sequence[Pods], named: set[tuple[str, str]]) -> Iterator[str]:
    spec = one.value.get("spec") or {}
    wanted = at(one.value, *SELECTED[one.kind]) if one.kind in SELECTED else None
    if one.kind in SELECTED:
        chosen = [group for group in pods if wanted and wanted.items() <= group.labels.items()]
        if not chosen:
            yield f"no pod of this folder has the labels {wanted}"
        yield from _ports(one.kind, spec, [group for group in chosen if group.answers])
    if one.kind == "Deployment":
        missing = (at(spec, "selector", "matchLabels") or {}).items() - (at(spec, "template", "metadata", "labels") or {}).items()
        yield from (f"its own pods lack the label {name}: {value}" for name, value in sorted(missing))
    target = spec.get("scaleTargetRef")
    if target and (target.get("kind", "Deployment"), target.get("name")) not in named:
        yield f"it scales {target.get('kind', 'Deployment')} {target.get('name')}, which is not in this folder"
    yield from _routes(one, objects, named)
    if one.kind == "RoleBinding":
        for each in (one.value.get("roleRef") or {}, *(one.value.get("subjects") or ())):
            if (each.get("kind"), each.get("name")) not in named:
                yield f"it binds {each.get('kind')} {each.get('name')}, which is not in this folder"
    if one.kind == "EndpointPickerConfig":
        plugins = {part.get("name", part.get("type")) for part in one.value.get("plugins") or ()}
        used = [part.get("pluginRef") for profile in one.value.get("schedulingProfiles") or () for part in profile.get("plugins") or ()]
        yield from (f"a profile uses the plugin {name}, which is not among the plugins" for name in used if name not in plugins)


def _ports(kind: str, spec: Mapping[str, Any], pods: Sequence[Pods]) -> Iterator[str]:
    """Ports that an object expects of its pods."""
    wanted: list[Any] = {
        "Service": [port.get("targetPort", port.get("port")) for port in spec.get("ports") or ()],
        "InferencePool": [port.get("number") for port in spec.get("targetPorts") or ()],
        "PodMonitor": [port.get("port", port.get("portNumber")) for port in spec.get("podMetricsEndpoints") or ()],
    }.get(kind, [])
    for group in pods:
        yield from (f"{group.owner} has no port {port}" for port in wanted if not group.open and port not in group.ports)


def _routes(one: Written, objects: Sequence[Written], named: set[tuple[str, str]]) -> Iterator[str]:
    """The picker of a pool and the backends of a route."""
    picker = at(one.value, "spec", "endpointPickerRef")
    if picker:
        found = [each for each in objects if (each.kind, each.name) == (picker.get("kind", "Service"), picker.get("name"))]
        ports = {port.get("port") for each in found for port in at(each.value, "spec", "ports") or ()}
        if at(picker, "port", "number") not in ports:
            yield f"its picker {picker.get('name')} has no port {at(picker, 'port', 'number')} in this folder"
    for rule in (at(one.value, "spec", "rules") or ()) if one.kind == "HTTPRoute" else ():
        for behind in rule.get("backendRefs") or ():
            if (behind.get("kind", "Service"), behind.get("name")) not in named:
                yield f"it leads to {behind.get('kind', 'Service')} {behind.get('name')}, which is not in this folder"


def _of_pods(group: Pods, named: set[tuple[str, str]]) -> Iterator[str]:
    """Volumes, accounts and ports inside of a pod."""
    account = group.spec.get("serviceAccountName")
    if account and ("ServiceAccount", account) not in named:
        yield f"its account {account} is not in this folder"
    volumes = {volume.get("name"): volume for volume in group.spec.get("volumes") or ()}
    for volume in volumes.values():
        for kind, key, name in (("ConfigMap", "configMap", "name"), ("PersistentVolumeClaim", "persistentVolumeClaim", "claimName")):
            wanted = at(volume, key, name)
            if wanted and (kind, wanted) not in named:
                yield f"its volume {volume['name']} is the {kind} {wanted}, which is not in this folder"
    for claim in group.spec.get("resourceClaims") or ():
        template = claim.get("resourceClaimTemplateName")
        if ("ResourceClaimTemplate", template) not in named:
            yield f"its claim {claim.get('name')} uses the ResourceClaimTemplate {template}, which is not in this folder"
    for one in group.containers:
        missing = [mount["name"] for mount in one.get("volumeMounts") or () if mount["name"] not in volumes]
        yield from (f"{one['name']} mounts the volume {name}, which the pod does not have" for name in missing if not group.open)
        own = {port for each in one.get("ports") or () for port in (each.get("name"), each["containerPort"])}
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            port = at(one, probe, "httpGet", "port")
            if port is not None and port not in own and not group.open:
                yield f"the {probe} of {one['name']} asks the port {port}, which the container does not have"
