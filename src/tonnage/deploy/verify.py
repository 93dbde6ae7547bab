"""A folder that ``deploy`` wrote, read again: each file by what reads it, and the files
together.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tonnage.deploy.dynamo import MODULES, as_engine
from tonnage.deploy.references import (
    VALUES,
    Pods,
    Written,
    at,
    pods_of,
    read_against,
    secrets,
    unresolved,
)
from tonnage.deploy.service import (
    PLAN,
    Service,
    is_simulated,
    service_of,
    simulated_options,
)
from tonnage.errors import InputError, TonnageError, option
from tonnage.plan.launch import FILE
from tonnage.plan.plan import Plan
from tonnage.spec.catalog.interfaces import Interface
from tonnage.spec.typed_values import bounded, parse_json

MOST_BYTES = 20_000_000  # Of one file; ``deploy`` writes less than a tenth of it

ROUTER = "router.yaml"  # What runs the router before several kinds of systems

METRIC = re.compile(r"\b(?:vllm|sglang):[a-z]+_\w+|\btrtllm_\w+_(?:seconds|total)\w*")
FLAGS = {"VLLM_ADDITIONAL_ARGS", "NIM_PASSTHROUGH_ARGS"}  # Variables that hold an engine's flags

ENGINE_NAMES = ("engine", "main")  # Containers that hold an engine
STARTED = [[module] for module in ("sglang.launch_server", *MODULES.values())]
"""The third word of a command "python3 -m …" that starts an engine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One object of the files that were read."""

    file: str  # and name: its place, and what it is
    name: str
    against: str  # the source, or the reason why it was not read against one


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """The result of reading a folder."""

    parts: tuple[Part, ...]  # what was read, and against what
    needs: tuple[str, ...]  # what the cluster must hold in addition: Secrets by name
    faults: tuple[str, ...]  # a line for each fault; empty where there is none


def read_folder(folder: Path) -> Folder:
    """Read the files that ``deploy`` wrote. Raises InputError: no folder, or none with a plan in
    it.
    """
    if not folder.is_dir():
        raise InputError(
            f"{option('folder')}: {folder} is no folder; name one that `tonnage deploy` wrote"
        )
    files = {}
    for path in sorted(child for child in folder.rglob("*") if child.is_file()):
        if path.stat().st_size <= MOST_BYTES:
            files[str(path.relative_to(folder))] = path.read_text(
                encoding="utf-8", errors="replace"
            )
    folders = {
        folder: file
        for file in files
        for folder, _, name in [file.rpartition("/")]
        if name == PLAN and "/" not in folder
    }
    if not folders:
        raise InputError(
            f"{option('folder')}: {folder} holds no {PLAN}; name a folder that `tonnage deploy`"
            " wrote"
        )
    if PLAN in files:
        return read_files(files, _service(files[PLAN], folder / PLAN))
    return _together(
        {
            name: (_inside(files, name), _service(files[file], folder / file))
            for name, file in folders.items()
        },
        files,
    )


def _service(text: str, path: Path) -> Service:
    """The deployment of a written plan."""
    try:
        plan = Plan.from_json(parse_json(text, PLAN))
        return service_of(plan, checkpoint="any/checkpoint", drafter=_drafter(plan))
    except (ValueError, TonnageError) as fault:
        raise InputError(
            f"{option('folder')}: {path} is no plan that can be deployed: {fault}"
        ) from fault


def _inside(files: Mapping[str, str], folder: str) -> dict[str, str]:
    return {
        file.removeprefix(f"{folder}/"): text
        for file, text in files.items()
        if file.startswith(f"{folder}/")
    }


def _together(
    cases: Mapping[str, tuple[Mapping[str, str], Service]], files: Mapping[str, str]
) -> Folder:
    """The folders of several use cases or kinds of systems, each by itself, their objects in one
    namespace, and the router above them.
    """
    read = {name: read_files(*case) for name, case in cases.items()}
    parts = [
        replace(part, file=f"{name}/{part.file}")
        for name, reading in read.items()
        for part in reading.parts
    ]
    faults = [f"{name}/{fault}" for name, reading in read.items() for fault in reading.faults]
    named: dict[tuple[str, str], str] = {}
    for name, (texts, _) in cases.items():
        for written in (
            named_object
            for file, documents in _parsed(texts)[0].items()
            for named_object in _objects(file, documents)
            if named_object.name
        ):
            first_case = named.setdefault((written.kind, written.name), name)
            if first_case != name:
                faults.append(
                    f"{name}/{written.file}: {written.kind} {written.name} is written in"
                    f" {first_case} too"
                )
    above = {file: text for file, text in files.items() if "/" not in file}
    if ROUTER not in above:
        faults += _on_machines({name: _parsed(texts)[0] for name, (texts, _) in cases.items()})
    listed = at(_first(_parsed(above)[0], "kustomization.yaml"), "resources") or ()
    composed = any(_compose(_parsed(texts)[0]) for texts, _ in cases.values())
    if "kustomization.yaml" in above or not (composed or ROUTER in above):
        faults += [
            f"kustomization.yaml: {name} is not applied" for name in cases if name not in listed
        ]
    if ROUTER in above:
        router = _read_router(above, cases, files)
        parts, faults = [*parts, *router.parts], [*faults, *router.faults]
    needs = dict.fromkeys(need for reading in read.values() for need in reading.needs)
    return Folder(parts=tuple(parts), needs=tuple(needs), faults=tuple(faults))


SERVERS = re.compile(
    r"^    server(?:-template \S+ (\d+)| \S+) (\S+):(\d+) weight (\d+)$", re.MULTILINE
)
"""A line of HAProxy for instances: how many a name stands for, host, port and weight."""


def _read_router(
    above: Mapping[str, str],
    cases: Mapping[str, tuple[Mapping[str, str], Service]],
    files: Mapping[str, str],
) -> Folder:
    """The router before several kinds of systems: it reaches every instance, heavier ones more."""
    values, faults = _parsed(above)
    inner, _ = _parsed({file: text for file, text in files.items() if file not in above})
    objects = [item for file, texts in values.items() for item in _objects(file, texts)]
    in_folders = [item for file, texts in inner.items() for item in _objects(file, texts)]
    parts = []
    for written in objects:
        against, clauses = read_against(written.value)
        name = f"{written.kind} {written.name}".strip()
        parts.append(Part(file=written.file, name=name, against=against))
        faults += [f"{written.file}: {name}: {clause}" for clause in clauses]
    everything = [*objects, *in_folders]
    pods = [group for written in everything for group in pods_of(written)]
    faults += [
        f"{file}: {clause}" for file, clause in unresolved(everything, pods) if file in above
    ]
    maps = [written.value.get("data") or {} for written in objects if written.kind == "ConfigMap"]
    configurations = [above.get("haproxy.cfg", ""), *(data.get("haproxy.cfg", "") for data in maps)]
    servers = SERVERS.findall("\n".join(configurations))
    reached = sum(int(count or 1) for count, _, _, _ in servers)
    fronts = any("-frontend." in host for _, host, _, _ in servers)
    instances = sum(service.pool.instances for _, service in cases.values())
    planned = len(cases) if fronts else instances
    if reached != planned:
        what = "front ends" if fronts else "instances"
        faults.append(
            f"{ROUTER}: HAProxy reaches {reached} {what} in place of the plan's {planned}"
        )
    faults += _split_faults("\n".join(configurations), cases)
    backends = at(_first(values, "gateway.yaml"), "backends") or ()
    if "gateway.yaml" in above and len(backends) != planned:
        faults.append(f"gateway.yaml: {len(backends)} backends in place of the plan's {planned}")
    names = {written.name for written in everything if written.kind == "Service"}
    for _, host, port, _ in servers:
        service, _, _ = host.partition(".")
        ours = any(f"{kind}/{host}.yaml" in files for kind in cases)
        if not (ours or service in names or service.endswith("-frontend")):
            faults.append(f"{ROUTER}: HAProxy names {host}:{port}, which is in no folder")
    parts += [
        Part(file=file, name="", against=_alone(file))
        for file in above
        if not file.endswith(".md") and file not in {part.file for part in parts}
    ]
    return Folder(parts=tuple(parts), needs=(), faults=tuple(faults))


SPLIT = "use_backend long if long"
"""HAProxy's line that sends long prompts to their own instances."""


def _split_faults(text: str, cases: Mapping[str, object]) -> Iterator[str]:
    """The faults of a split by prompt length: routes that keep long or short prompts from their
    folder.
    """
    pools = {folder.partition("-")[0] for folder in cases}
    if pools != {"short", "long"}:
        if SPLIT in text:
            yield f"{ROUTER}: HAProxy splits prompts by length, and no folders are for either"
        return
    if SPLIT not in text or re.search(r"^    acl long req\.body_size gt \d+$", text, re.M) is None:
        yield f"{ROUTER}: HAProxy does not send long prompts to the folder for them"
    for name, pool in (("engines", "short"), ("long", "long")):
        _, _, section = text.partition(f"\nbackend {name}\n")
        for _, host, port, _ in SERVERS.findall(section.partition("\nbackend ")[0]):
            if not host.startswith(f"{pool}-"):
                yield f"{ROUTER}: HAProxy's backend {name} reaches {host}:{port}, of another folder"


def _drafter(plan: Plan) -> str | None:
    return (
        "any/drafter"
        if plan.choice is not None and "{drafter}" in " ".join(plan.choice.pools[0].launch)
        else None
    )


def read_files(files: Mapping[str, str], service: Service) -> Folder:
    """Read the files of a deployment, by their paths inside the folder."""
    values, faults = _parsed(files)
    objects = [
        document for file, documents in values.items() for document in _objects(file, documents)
    ]
    parts = []
    for written in objects:
        against, clauses = read_against(written.value)
        parts.append(
            Part(file=written.file, name=f"{written.kind} {written.name}".strip(), against=against)
        )
        faults += [f"{written.file}: {written.kind} {written.name}: {clause}" for clause in clauses]
    pods: list[Pods] = []
    try:
        pods += (group for document in objects for group in pods_of(document))
        parts += _engines(values, pods, service, faults)
        made_by = at(_first(values, "kustomization.yaml"), "configMapGenerator") or ()
        maps = [
            Written(
                file="kustomization.yaml",
                value={"kind": "ConfigMap", "metadata": {"name": generator["name"]}},
            )
            for generator in made_by
        ]
        faults += (f"{file}: {clause}" for file, clause in unresolved([*objects, *maps], pods))
        faults += _with_each_other(values, pods, service)
        needs = tuple(dict.fromkeys(secrets(pods)))
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as fault:
        needs = ()
        faults.append(
            "the files cannot be compared with each other, because a value is not of the kind that"
            f" its place needs: {fault}"
        )
    faults += _metrics(files, service.interface)
    read = {part.file for part in parts}
    unread = [file for file in files if file not in read and not file.endswith(".md")]
    parts += [
        Part(file=file, name="", against=_alone(file) if file in values else "not read")
        for file in unread
    ]
    return Folder(parts=tuple(parts), needs=needs, faults=tuple(dict.fromkeys(faults)))


def _engines(
    values: Mapping[str, Sequence[Any]], pods: Sequence[Pods], service: Service, faults: list[str]
) -> Iterator[Part]:
    """The engines' commands; what their version does not take is added to the faults."""
    table = (
        f"{service.interface.name} in the catalog ({service.interface.source.partition(' (')[0]},"
        f" {service.interface.date})"
    )
    planned = simulated_options(replace(service, simulated=True).argv)
    for file, name, words, config in _commands(values, pods):
        wrong = service.interface.fault(words, config)
        if words and words[0][:1] != "-" and not _is_engine(words):
            wrong = (
                ""
                if is_simulated(simulated_options(words), planned)
                else "its command is neither an engine's nor that of the plan's simulated engine"
            )
        faults += [f"{file}: {name}: {wrong}"] if wrong else []
        yield Part(file=file, name=name, against=f"flags of {table}")


def _parsed(files: Mapping[str, str]) -> tuple[dict[str, list[Any]], list[str]]:
    """The documents of each YAML and JSON file and the text of HAProxy's, and what cannot be
    read.
    """
    import yaml

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    values: dict[str, list[Any]] = {}
    faults = []
    for file, text in files.items():
        try:
            if file.endswith(".json"):
                values[file] = [parse_json(text, file)]
            elif file.endswith((".yaml", ".yml")):
                values[file] = [
                    bounded(document, file)
                    for document in yaml.load_all(text, Loader=loader)
                    if document is not None
                ]
            elif file.endswith(".cfg"):
                values[file] = [text]
        except (ValueError, RecursionError, InputError, yaml.YAMLError) as fault:
            faults.append(f"{file}: cannot be read: {' '.join(str(fault).split())}")
    return values, faults


def _objects(file: str, documents: Sequence[Any]) -> Iterator[Written]:
    """The Kubernetes objects of a file, and the configurations in its ConfigMaps that are written
    as such.
    """
    for value in documents:
        # a file of rules for Prometheus itself
        if isinstance(value, Mapping) and list(value) == ["groups"]:
            yield Written(
                file=file,
                value={
                    "apiVersion": "monitoring.coreos.com/v1",
                    "kind": "PrometheusRule",
                    "spec": value,
                },
            )
        elif isinstance(value, Mapping) and "servingEngineSpec" in value:
            yield Written(
                file=file,
                value={"apiVersion": "vllm-project/production-stack", "kind": VALUES, **value},
            )
        elif (
            isinstance(value, Mapping)
            and isinstance(value.get("kind"), str)
            and isinstance(value.get("apiVersion"), str)
        ):
            if value["kind"] != "Kustomization":
                yield Written(file=file, value=value)
            texts = value.get("data") if value["kind"] == "ConfigMap" else {}
            inner, _ = _parsed(
                {name: text for name, text in texts.items() if isinstance(text, str)}
                if isinstance(texts, Mapping)
                else {}
            )
            for inner_documents in inner.values():
                yield from _objects(file, inner_documents)


def _alone(file: str) -> str:
    """Read a file that has no schema."""
    return (
        "its servers alone; haproxy -c reads all of it"
        if file.endswith(".cfg")
        else "YAML or JSON alone"
    )


def _first(values: Mapping[str, Sequence[Any]], file: str) -> Any:
    return next(iter(values.get(file) or ()), None)


Command = tuple[str, str, list[str], Mapping[str, Any]]  # File, name, words and configuration file


def _commands(values: Mapping[str, Sequence[Any]], pods: Sequence[Pods]) -> Iterator[Command]:
    maps = [
        document
        for documents in values.values()
        for document in documents
        if at(document, "kind") == "ConfigMap"
    ]
    inner, _ = _parsed(
        {name: text for config_map in maps for name, text in (config_map.get("data") or {}).items()}
    )
    configs = {name: _first(source, name) or {} for source in (values, inner) for name in source}
    for group in pods:
        for container in group.containers:
            words = [
                str(word)
                for word in (*(container.get("command") or ()), *(container.get("args") or ()))
            ]
            config = (
                next(
                    (
                        configs[name]
                        for name in configs
                        for word in words
                        if word.endswith(f"/{name}")
                    ),
                    None,
                )
                or {}
            )
            if words and (container.get("name") in ENGINE_NAMES or _is_engine(words)):
                engine = as_engine(words) if words[2:3] and words[2] in MODULES.values() else words
                yield group.file, f"{group.owner} {container.get('name')}", engine, config
            for entry in container.get("env") or ():
                if entry.get("name") in FLAGS:
                    yield (
                        group.file,
                        f"{group.owner} {entry['name']}",
                        shlex.split(str(entry.get("value", ""))),
                        {},
                    )
    for file, services in _compose(values).items():
        for name, compose_service in services.items():
            words = [
                str(word)
                for word in (
                    *(compose_service.get("entrypoint") or ()),
                    *(compose_service.get("command") or ()),
                )
            ]
            if words and name.startswith("instance-"):
                yield file, name, words, configs.get(FILE, {})
    for application in at(_first(values, "serve.yaml"), "applications") or ():
        for llm_config in at(application, "args", "llm_configs") or ():
            yield (
                "serve.yaml",
                str(application.get("name", "")),
                list(_as_flags(llm_config.get("engine_kwargs") or {})),
                {},
            )
    for file in values:
        if file.endswith("/1/model.json"):
            yield file, "vLLM's arguments", list(_as_flags(_first(values, file) or {})), {}


def _is_engine(words: Sequence[str]) -> bool:
    return (
        list(words[:2]) == ["vllm", "serve"]
        or words[:1] == ["trtllm-serve"]
        or words[2:3] in STARTED
    )


def _as_flags(arguments: Mapping[str, Any]) -> Iterator[str]:
    """Keywords of vLLM's engine as the flags that they are."""
    for name, value in arguments.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            yield f"--{flag}" if value else f"--no-{flag}"
        else:
            yield f"--{flag}={json.dumps(value) if isinstance(value, dict) else value}"


def _metrics(files: Mapping[str, str], interface: Interface) -> Iterator[str]:
    metrics = set(interface.metrics.split())
    for file, text in files.items():
        for name in sorted(set(METRIC.findall(text))) if file != PLAN else ():
            if (
                name not in metrics
                and re.sub("_(bucket|sum|count)$", "", name) not in interface.buckets
            ):
                yield f"{file}: {interface.name} publishes no metric {name}"


def _with_each_other(
    values: Mapping[str, Sequence[Any]], pods: Sequence[Pods], service: Service
) -> Iterator[str]:
    yield from _images(values, pods, service)
    listed = at(_first(values, "kustomization.yaml"), "resources") or ()
    yield from (
        f"kustomization.yaml: {file} is not in this folder" for file in listed if file not in values
    )
    serving = [
        group
        for group in pods
        if group.answers and any(_gpus(container) for container in group.containers)
    ]
    if serving and sum(group.replicas for group in serving) != service.pool.instances:
        replicas = sum(group.replicas for group in serving)
        yield (
            f"{serving[0].file}: {replicas} instances in place of the plan's"
            f" {service.pool.instances}"
        )
    for group in serving:
        for engine_container in group.containers:
            words, ports = (
                [str(word) for word in engine_container.get("args") or ()],
                {port["containerPort"] for port in engine_container.get("ports") or ()},
            )
            listening = words[words.index("--port") + 1] if "--port" in words[:-1] else ""
            if ports and listening and int(listening) not in ports:
                yield (
                    f"{group.file}: {group.owner} {engine_container['name']} listens on"
                    f" {listening}, and its ports are {sorted(ports)}"
                )
    if composed := _compose(values):
        yield from _composed(values, composed, service)


def _images(
    values: Mapping[str, Sequence[Any]], pods: Sequence[Pods], service: Service
) -> Iterator[str]:
    """Tags of the engine's own image that are not that of the plan's version."""
    placed = [
        (group.file, container.get("image", "")) for group in pods for container in group.containers
    ]
    placed += [
        (file, compose_service.get("image", ""))
        for file, services in _compose(values).items()
        for compose_service in services.values()
    ]
    repository = service.image.rsplit(":", 1)[0]
    for file, image in placed:
        if str(image).rsplit(":", 1)[0] == repository and image != service.image:
            yield (
                f"{file}: the image is {image}, and that of {service.interface.name} is"
                f" {service.image}"
            )


def _gpus(container: Mapping[str, Any]) -> int:
    limits = at(container, "resources", "limits") or {}
    return sum(int(count) for name, count in limits.items() if name.endswith("/gpu"))


def _compose(values: Mapping[str, Sequence[Any]]) -> dict[str, Mapping[str, Any]]:
    """The services of each file of Compose."""
    return {
        file: document["services"]
        for file in values
        if isinstance(document := _first(values, file), dict) and "services" in document
    }


def _composed(
    values: Mapping[str, Sequence[Any]], composed: Mapping[str, Mapping[str, Any]], service: Service
) -> Iterator[str]:
    """The services of Compose: their files, their GPUs, and the addresses by which the gateway and
    Prometheus find them.
    """
    published = {
        file: {
            str(port).rsplit(":", 2)[-2]
            for compose_service in by_name.values()
            for port in compose_service.get("ports") or ()
        }
        for file, by_name in composed.items()
    }
    for file, services in composed.items():
        yield from _of_machine(file, services, values, service)
    instances = sum(
        name.startswith("instance-") for services in composed.values() for name in services
    )
    if instances != service.pool.instances:
        yield (
            f"{', '.join(composed)}: {instances} instances in place of the plan's"
            f" {service.pool.instances}"
        )
    backends = {str(address) for address in at(_first(values, "gateway.yaml"), "backends") or ()}
    if len(backends) != service.pool.instances:
        yield (
            f"gateway.yaml: {len(backends)} backends in place of the plan's"
            f" {service.pool.instances} instances"
        )
    text = _first(values, "haproxy.cfg")
    servers = re.findall(r"^    server (\S+)", text, re.MULTILINE) if text else []
    if text and len(set(servers)) != service.pool.instances:
        yield (
            f"haproxy.cfg: {len(set(servers))} servers in place of the plan's"
            f" {service.pool.instances} instances"
        )
    names = {name for services in composed.values() for name in services}

    def unknown(address: str) -> str:
        """The files that do not publish the port of an address: that of its machine, or all where
        its name is the user's own.
        """
        host, _, port = address.rpartition(":")
        files = [f"{host}.yaml"] if f"{host}.yaml" in published else list(published)
        return "" if any(port in published[file] for file in files) else " or ".join(files)

    for backend in sorted(backends):
        if files := unknown(backend.removeprefix("http://")):
            yield f"gateway.yaml: {backend} is no published port of {files}"
    for job in at(_first(values, "prometheus.yaml"), "scrape_configs") or ():
        for target in (
            str(address)
            for static in job.get("static_configs") or ()
            for address in static.get("targets") or ()
        ):
            if target.partition(":")[0] not in {*names, "host.docker.internal"} and (
                files := unknown(target)
            ):
                yield (
                    f"prometheus.yaml: {target} is neither a service nor a published port of"
                    f" {files}"
                )


def _on_machines(folders: Mapping[str, Mapping[str, Sequence[Any]]]) -> Iterator[str]:
    """The GPUs and ports that two use cases have both, of one machine or of the routers'."""
    owners: dict[tuple[str, str, str], str] = {}
    for folder, values in folders.items():
        for file, services in _compose(values).items():
            for name, compose_service in services.items():
                claims = [("GPU", gpu) for gpu in _device_ids(name, compose_service)]
                ports = compose_service.get("ports") or ()
                claims += [("port", str(port).rsplit(":", 2)[-2]) for port in ports]
                for what, number in claims:
                    owner = owners.setdefault((file, what, number), folder)
                    if owner != folder:
                        yield f"{folder}/{file}: {what} {number} is one of {owner}/{file} too"


def _device_ids(name: str, compose_service: Mapping[str, Any]) -> list[str]:
    """The GPUs of an instance in Compose; none of what only reads them."""
    if not name.startswith("instance-"):
        return []
    devices = at(compose_service, "deploy", "resources", "reservations", "devices") or ()
    return [str(gpu) for device in devices for gpu in device.get("device_ids") or ()]


def _of_machine(
    file: str, services: Mapping[str, Any], values: Mapping[str, Sequence[Any]], service: Service
) -> Iterator[str]:
    """The mounts and GPUs of one machine's services."""
    volumes, owners = at(_first(values, file), "volumes") or {}, dict[str, str]()
    for name, compose_service in services.items():
        for mount in compose_service.get("volumes") or ():
            source = str(mount).split(":")[0]
            mounted = source.removeprefix("./")
            exists = (
                any(value == mounted or value.startswith(f"{mounted}/") for value in values)
                or mounted == "models"
            )
            if (source.startswith("./") and not exists) or (
                not source.startswith(("./", "/")) and source not in volumes
            ):
                yield f"{file}: {name} mounts {source}, which is not there"
        for gpu in _device_ids(name, compose_service):
            if gpu in owners:
                yield f"{file}: {name} and {owners[gpu]} have GPU {gpu} both"
            if int(gpu) >= service.machine_gpus:
                yield f"{file}: {name} has GPU {gpu} of a machine with {service.machine_gpus}"
            owners[gpu] = name
