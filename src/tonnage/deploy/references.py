"""Kubernetes objects against what declares them, and against each other: selectors, ports, volumes,
scale targets, the picker and its pool.

Fields are declared in ``objects.yaml``, and by Kubernetes' own schema where it is installed.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from tonnage.deploy.production_stack import command as chart_command
from tonnage.deploy.production_stack import deployment_name
from tonnage.spec.catalog.entries import shipped_yaml
from tonnage.spec.typed_values import read_entries, strict

LEADER_LABELS = {"leaderworkerset.sigs.k8s.io/worker-index": "0"}
"""Which LeaderWorkerSet puts on the first pod of a group, next to the name of its object."""

VALUES = "Values"  # What the values of vLLM's production stack are called here; they have no kind

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
    """One object of a file."""

    file: str  # its path inside the folder
    value: Mapping[str, Any]

    @property
    def kind(self) -> str:
        """Such as "Deployment"."""
        return str(self.value["kind"])

    @property
    def name(self) -> str:
        """The name of the object; empty for one without metadata, such as a configuration."""
        return str(at(self.value, "metadata", "name") or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pods:
    """The pods of one template."""

    file: str  # and owner: where the template is
    owner: str
    labels: Labels  # and spec: of a pod
    spec: Mapping[str, Any]
    replicas: int  # how many there are
    # whether a controller adds further ports and volumes, so that these cannot be looked up here
    open: bool = False
    # whether such a pod answers requests, which further pods of a group do not
    answers: bool = True

    @property
    def containers(self) -> list[Mapping[str, Any]]:
        """The pods that start first, and the others."""
        return [*(self.spec.get("initContainers") or ()), *(self.spec.get("containers") or ())]

    @property
    def ports(self) -> set[str | int]:
        """Names and numbers of the containers' ports."""
        ports = [port for container in self.containers for port in container.get("ports") or ()]
        return {port["containerPort"] for port in ports} | {
            port["name"] for port in ports if "name" in port
        }


def at(value: Any, *path: str) -> Any:
    """The value below these keys; None where something on the way is missing."""
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def pods_of(manifest: Written) -> Iterator[Pods]:
    """The pods that an object makes."""
    spec, owner = manifest.value.get("spec") or {}, f"{manifest.kind}/{manifest.name}"

    def made(template: Any, replicas: Any, **further: Any) -> Pods:
        labels = {**(at(template, "metadata", "labels") or {}), **further.pop("labels", {})}
        pod = at(template, "spec") or {}
        return Pods(
            file=manifest.file,
            owner=owner,
            labels=labels,
            spec=pod,
            replicas=1 if replicas is None else int(replicas),
            **further,
        )

    if manifest.kind == "Deployment":
        yield made(spec.get("template"), spec.get("replicas"))
    elif manifest.kind == "LeaderWorkerSet":
        group, named = (
            spec.get("leaderWorkerTemplate") or {},
            {"leaderworkerset.sigs.k8s.io/name": manifest.name},
        )
        leader = group.get("leaderTemplate") or group.get("workerTemplate")
        yield made(leader, spec.get("replicas"), labels={**named, **LEADER_LABELS})
        yield made(group.get("workerTemplate"), spec.get("replicas"), labels=named, answers=False)
    elif manifest.kind == "LLMInferenceService":
        yield made(
            {"spec": spec.get("template")},
            spec.get("replicas"),
            labels=spec.get("labels") or {},
            open=True,
        )
    elif manifest.kind == "InferenceService":
        predictor = spec.get("predictor") or {}
        yield made(
            {"spec": predictor},
            predictor.get("minReplicas"),
            labels=predictor.get("labels") or {},
            open="containers" not in predictor,
        )
    # replaces a Deployment of the same folder, whose instances are counted
    elif manifest.kind == "NIMService":
        named = {"app.kubernetes.io/name": manifest.name}
        inside = {
            "name": manifest.name,
            **{name: spec[name] for name in ("env", "resources") if name in spec},
        }
        claim = {
            "name": "model-store",
            "persistentVolumeClaim": {"claimName": at(spec, "storage", "pvc", "name")},
        }
        pod = {"containers": [inside], "volumes": [claim]}
        yield made(
            {"metadata": {"labels": named}, "spec": pod},
            spec.get("replicas"),
            open=True,
            answers=False,
        )
    elif manifest.kind == VALUES:
        engine = manifest.value["servingEngineSpec"]
        for model in engine.get("modelSpec") or ():
            command, *words = chart_command(engine, model)
            gpus = {model.get("requestGPUType", "nvidia.com/gpu"): model.get("requestGPU", 0)}
            inside = {
                "name": model["name"],
                "image": f"{model['repository']}:{model['tag']}",
                "command": [command],
                "args": words,
            }
            pod = {
                "containers": [{**inside, "resources": {"limits": gpus}, "env": model.get("env")}]
            }
            yield made(
                {"metadata": {"labels": engine.get("labels")}, "spec": pod},
                model.get("replicaCount"),
                open=True,
            )
    elif manifest.kind == "DynamoGraphDeployment":
        for part in spec.get("components") or ():
            yield made(part.get("podTemplate"), part.get("replicas"), open=True)


def unresolved(objects: Sequence[Written], pods: Sequence[Pods]) -> Iterator[tuple[str, str]]:
    """The file and a clause for each reference that leads nowhere."""
    named = {(document.kind, document.name) for document in objects} | set(
        _made_by_controllers(objects)
    )
    counted = [(document.kind, document.name) for document in objects if document.name]
    for written in objects:
        if counted.count((written.kind, written.name)) > 1:
            yield written.file, f"{written.kind} {written.name} is written twice"
        yield from (
            (written.file, f"{written.kind} {written.name}: {clause}")
            for clause in _of_object(written, objects, pods, named)
        )
    for group in pods:
        yield from ((group.file, f"{group.owner}: {pod}") for pod in _of_pods(group, named))


def secrets(pods: Sequence[Pods]) -> Iterator[str]:
    """The Secrets that the pods need, which no folder holds."""
    for group in pods:
        for pulled in group.spec.get("imagePullSecrets") or ():
            yield f"{pulled['name']} (docker-registry)"
        for container in group.containers:
            for entry in container.get("env") or ():
                key = at(entry, "valueFrom", "secretKeyRef")
                if key:
                    yield (
                        f"{key['name']} (key"
                        f" {key['key']}{', optional' if key.get('optional') else ''})"
                    )


def _made_by_controllers(objects: Sequence[Written]) -> Iterator[tuple[str, str]]:
    """The objects that other projects' controllers make of these, by their names."""
    for written in objects:
        if written.kind == "InferenceService":
            yield "Deployment", f"{written.name}-predictor"
        if template := (
            at(written.value, "spec", "channel", "resourceClaimTemplate", "name")
            if written.kind == "ComputeDomain"
            else None
        ):
            yield "ResourceClaimTemplate", template
        for model in (
            (at(written.value, "servingEngineSpec", "modelSpec") or ())
            if written.kind == VALUES
            else ()
        ):
            yield (
                "Deployment",
                deployment_name(
                    str(at(written.value, "servingEngineSpec", "labels", "release")),
                    str(model.get("name")),
                ),
            )
        for part in (
            (at(written.value, "spec", "components") or ())
            if written.kind == "DynamoGraphDeployment"
            else ()
        ):
            if "scalingAdapter" in part:
                yield (
                    "DynamoGraphDeploymentScalingAdapter",
                    f"{written.name}-{str(part['name']).lower()}",
                )


def _of_object(
    manifest: Written, objects: Sequence[Written], pods: Sequence[Pods], named: set[tuple[str, str]]
) -> Iterator[str]:
    spec = manifest.value.get("spec") or {}
    labels = at(manifest.value, *SELECTED[manifest.kind]) if manifest.kind in SELECTED else None
    if manifest.kind in SELECTED:
        chosen = [group for group in pods if labels and labels.items() <= group.labels.items()]
        if not chosen:
            yield f"no pod of this folder has the labels {labels}"
        yield from _ports(manifest.kind, spec, [group for group in chosen if group.answers])
    if manifest.kind == "Deployment":
        missing = (at(spec, "selector", "matchLabels") or {}).items() - (
            at(spec, "template", "metadata", "labels") or {}
        ).items()
        yield from (
            f"its own pods lack the label {name}: {value}" for name, value in sorted(missing)
        )
    target = spec.get("scaleTargetRef")
    if target and (target.get("kind", "Deployment"), target.get("name")) not in named:
        yield (
            f"it scales {target.get('kind', 'Deployment')} {target.get('name')}, which is not in"
            " this folder"
        )
    yield from _routes(manifest, objects, named)
    if manifest.kind == "RoleBinding":
        for subject in (
            manifest.value.get("roleRef") or {},
            *(manifest.value.get("subjects") or ()),
        ):
            if (subject.get("kind"), subject.get("name")) not in named:
                yield (
                    f"it binds {subject.get('kind')} {subject.get('name')}, which is not in this"
                    " folder"
                )
    if manifest.kind == "EndpointPickerConfig":
        plugins = {
            part.get("name", part.get("type")) for part in manifest.value.get("plugins") or ()
        }
        used = [
            part.get("pluginRef")
            for profile in manifest.value.get("schedulingProfiles") or ()
            for part in profile.get("plugins") or ()
        ]
        yield from (
            f"a profile uses the plugin {name}, which is not among the plugins"
            for name in used
            if name not in plugins
        )


def _ports(kind: str, spec: Mapping[str, Any], pods: Sequence[Pods]) -> Iterator[str]:
    """Ports that an object expects of its pods."""
    ports: list[Any] = {
        "Service": [port.get("targetPort", port.get("port")) for port in spec.get("ports") or ()],
        "InferencePool": [port.get("number") for port in spec.get("targetPorts") or ()],
        "PodMonitor": [
            port.get("port", port.get("portNumber"))
            for port in spec.get("podMetricsEndpoints") or ()
        ],
    }.get(kind, [])
    for group in pods:
        yield from (
            f"{group.owner} has no port {port}"
            for port in ports
            if not group.open and port not in group.ports
        )


def _routes(
    manifest: Written, objects: Sequence[Written], named: set[tuple[str, str]]
) -> Iterator[str]:
    """The picker of a pool and the backends of a route."""
    picker = at(manifest.value, "spec", "endpointPickerRef")
    if picker:
        pickers = [
            written
            for written in objects
            if (written.kind, written.name) == (picker.get("kind", "Service"), picker.get("name"))
        ]
        ports = {
            port.get("port")
            for written in pickers
            for port in at(written.value, "spec", "ports") or ()
        }
        if at(picker, "port", "number") not in ports:
            yield (
                f"its picker {picker.get('name')} has no port {at(picker, 'port', 'number')} in"
                " this folder"
            )
    for rule in (at(manifest.value, "spec", "rules") or ()) if manifest.kind == "HTTPRoute" else ():
        for behind in rule.get("backendRefs") or ():
            if (behind.get("kind", "Service"), behind.get("name")) not in named:
                yield (
                    f"it leads to {behind.get('kind', 'Service')} {behind.get('name')}, which is"
                    " not in this folder"
                )


def _of_pods(group: Pods, named: set[tuple[str, str]]) -> Iterator[str]:
    """Volumes, accounts and ports inside of a pod."""
    account = group.spec.get("serviceAccountName")
    if account and ("ServiceAccount", account) not in named:
        yield f"its account {account} is not in this folder"
    volumes = {volume.get("name"): volume for volume in group.spec.get("volumes") or ()}
    for volume in volumes.values():
        for kind, key, name in (
            ("ConfigMap", "configMap", "name"),
            ("PersistentVolumeClaim", "persistentVolumeClaim", "claimName"),
        ):
            source_name = at(volume, key, name)
            if source_name and (kind, source_name) not in named:
                yield (
                    f"its volume {volume['name']} is the {kind} {source_name}, which is not in this"
                    " folder"
                )
    for claim in group.spec.get("resourceClaims") or ():
        template = claim.get("resourceClaimTemplateName")
        if ("ResourceClaimTemplate", template) not in named:
            yield (
                f"its claim {claim.get('name')} uses the ResourceClaimTemplate {template}, which is"
                " not in this folder"
            )
    for container in group.containers:
        missing = [
            mount["name"]
            for mount in container.get("volumeMounts") or ()
            if mount["name"] not in volumes
        ]
        yield from (
            f"{container['name']} mounts the volume {name}, which the pod does not have"
            for name in missing
            if not group.open
        )
        container_ports = {
            port
            for declared in container.get("ports") or ()
            for port in (declared.get("name"), declared["containerPort"])
        }
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            port = at(container, probe, "httpGet", "port")
            if port is not None and port not in container_ports and not group.open:
                yield (
                    f"the {probe} of {container['name']} asks the port {port}, which the container"
                    " does not have"
                )


Object = Mapping[str, Any]

HEAD = ("apiVersion", "kind", "metadata")  # Keys of every object
INSTALL = "pip install kubernetes-validate"  # 108 MB, and therefore no dependency

KINDS: dict[str, type | tuple[type, ...]] = {
    "str": str,
    "int": int,
    "bool": bool,
    "number": (int, float),
}


@strict
class Declared:
    """The fields of one kind of object."""

    kind: str  # and api: of the object
    api: str
    licence: str  # and source, date: of the types that declare the fields, and when they were read
    source: str
    date: str
    fields: dict[str, Any]  # kinds by name; ``objects.yaml`` explains them

    @property
    def name(self) -> str:
        """The kind of an entry."""
        return self.kind


@cache
def _declared() -> Mapping[tuple[str, str], Declared]:
    return {
        (entry.kind, entry.api): entry
        for entry in read_entries(Declared, shipped_yaml("objects.yaml"), "catalog/objects.yaml")
    }


def read_against(manifest: Object) -> tuple[str, list[str]]:
    """The source that an object was read against, or why there is none; and a clause for each
    fault, its place first.
    """
    declared = _declared().get((str(manifest["kind"]), str(manifest["apiVersion"])))
    if declared is not None:
        fields = {key: value for key, value in manifest.items() if key not in HEAD}
        return f"{declared.source} ({declared.licence}, {declared.date})", list(
            _faults(fields, declared.fields, "")
        )
    whole = _kubernetes(manifest)
    if whole is not None:
        return f"Kubernetes {_version()}", whole
    return (
        f"not read: {INSTALL}" if _version() == "" else "not read: no schema of it is known"
    ), []


def _faults(value: Any, kind: Any, at: str) -> Iterator[str]:
    if isinstance(kind, str):
        yield from _of_name(value, kind, at)
    elif isinstance(kind, list):
        if not isinstance(value, list):
            yield f"{at} must be a list"
            return
        for place, part in enumerate(value):
            yield from _faults(part, kind[0], f"{at}[{place}]")
    elif not isinstance(value, Mapping):
        yield f"{at} must be a mapping with {', '.join(name.removesuffix('!') for name in kind)}"
    else:
        yield from _of_mapping(value, kind, f"{at}." if at else "")


def _of_mapping(value: Object, kind: Mapping[str, Any], at: str) -> Iterator[str]:
    known_fields = {name.removesuffix("!"): part for name, part in kind.items() if name != "<"}
    unknown = {name: part for name, part in value.items() if name not in known_fields}
    if "<" in kind:
        yield from _of_name(unknown, kind["<"], at.removesuffix("."))
    else:
        for name in unknown:
            near = difflib.get_close_matches(str(name), known_fields, n=1)
            yield (
                f"{at}{name} is no field;"
                f" {f'did you mean {near[0]}' if near else 'there are ' + ', '.join(known_fields)}"
            )
    yield from (
        f"{at}{name[:-1]} is missing"
        for name in kind
        if name.endswith("!") and name[:-1] not in value
    )
    for name, part in value.items():
        if name in known_fields:
            yield from _faults(part, known_fields[name], f"{at}{name}")


def _of_name(value: Any, kind: str, at: str) -> Iterator[str]:
    if kind.startswith("one of "):
        allowed = kind.removeprefix("one of ").split()
        if value not in allowed:
            yield f"{at} must be one of {', '.join(allowed)}, not {value}"
    elif kind == "map":
        if not isinstance(value, Mapping) or not all(
            isinstance(part, str) for part in value.values()
        ):
            yield f"{at} must hold texts by name"
    elif kind in KINDS:
        if not isinstance(value, KINDS[kind]) or (isinstance(value, bool) and kind != "bool"):
            yield f"{at} must be of kind {kind}, not {value!r}"
    elif kind != "any":
        depth, wrapped = WRAPPED[kind](value)
        for kubernete in _kubernetes(wrapped, depth=depth) or ():
            yield f"{at}.{kubernete}"


# Types of Kubernetes itself, each inside the smallest object that holds one.


def _inside(api: str, kind: str, *path: str, **further: Any) -> Callable[[Any], tuple[int, Object]]:
    """Puts a value at the path; ``further`` are other keys at its place, which the object needs."""

    def wrapped(value: Any) -> tuple[int, Object]:
        for name in reversed(path):
            value = {name: value, **(further if name == path[-1] else {})}
        return len(path), {"apiVersion": api, "kind": kind, "metadata": {"name": "x"}, **value}

    return wrapped


WRAPPED = {
    "PodSpec": _inside("v1", "Pod", "spec"),
    "PodTemplateSpec": _inside("v1", "PodTemplate", "template"),
    "LabelSelector": _inside("policy/v1", "PodDisruptionBudget", "spec", "selector"),
    "HorizontalPodAutoscalerBehavior": _inside(
        "autoscaling/v2",
        "HorizontalPodAutoscaler",
        "spec",
        "behavior",
        scaleTargetRef={"kind": "Deployment", "name": "x"},
        maxReplicas=1,
    ),
}
"""By name: how deep it is inside, and the object."""


@cache
def _version() -> str:
    """The newest version of Kubernetes whose schema is installed; empty where none is."""
    try:
        import kubernetes_validate
    except ImportError:
        return ""
    return str(kubernetes_validate.latest_version())


def _kubernetes(manifest: Object, *, depth: int = 0) -> list[str] | None:
    """Faults of an object by Kubernetes' schema, ``depth`` levels left out of their places; None
    where it has none for this kind.
    """
    if not _version():
        return None
    import kubernetes_validate

    try:
        kubernetes_validate.validate(dict(manifest), _version(), strict=True)
    except kubernetes_validate.SchemaNotFoundError:
        return None
    except kubernetes_validate.ValidationError as fault:
        place = ".".join(map(str, list(fault.absolute_path)[depth:]))
        return [f"{place}: {fault.message}" if place else str(fault.message)]
    return []
