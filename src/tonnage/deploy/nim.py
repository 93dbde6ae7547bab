"""The files of a deployment with NVIDIA NIM."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tonnage.deploy import kubernetes
from tonnage.deploy.checkpoint import FOLDER
from tonnage.deploy.kubernetes import model_cache, network_service, waits
from tonnage.deploy.plan_text import cluster_page, head, scaling_rows
from tonnage.deploy.service import CONTEXT, PORT, Service, without
from tonnage.deploy.workload import (
    adapter,
    bundle,
    container,
    deployment,
    disruptions,
    hpa,
    keda,
    manifest,
    placing,
    pod,
    probes,
    selector,
)
from tonnage.deploy.yaml_comments import noted, plain, yaml_text
from tonnage.errors import InputError, option
from tonnage.formats.prometheus import HISTORIES
from tonnage.spec.catalog.interfaces import find_interface
from tonnage.spec.precision import find_precision

CACHE = "/opt/nim/.cache"
METRICS = "/v1/metrics"
READY = "/v1/health/ready"
LIVE = "/v1/health/live"
SCRAPED: dict[str, Any] = {"portNumber": PORT, "path": METRICS}
SAID = {
    "vllm": ("--max-model-len", "--tensor-parallel-size", "--pipeline-parallel-size"),
    "sglang": ("--context-length", "--tp-size", "--pp-size"),
}
"""Flags that variables and the profile say, the context's first."""

FREE = {
    "vllm": "nvcr.io/nim/nvidia/vllm-model-free-nim:2.1.0",
    "sglang": "nvcr.io/nim/nvidia/sglang-model-free-nim:2.1.0",
}
"""Model-free images, by engine (docs.nvidia.com/nim, support matrix and release notes of 2.1.0,
read 2026-11-23)."""

# What a profile's name calls a number format
FORMATS = {"fp16": "bf16", "bf16": "bf16", "fp8": "fp8", "mxfp4": "mxfp4", "nvfp4": "nvfp4"}

PROFILED = {
    "a10g-24gb": "a10g",
    "a100-sxm-80gb": "a100",
    "b200-sxm-180gb": "b200",
    "h100-nvl-94gb": "h100_nvl",
    "h100-sxm-80gb": "h100",
    "h200-sxm-141gb": "h200",
    "l40s": "l40s",
}
"""What the profiles of NIM 1 call a GPU, by catalog id (lists of its list-model-profiles in public
repositories, read 2026-11-25)."""

# First version of NIM whose profiles of TensorRT-LLM have names that end with a hash, so that they
# cannot be composed
NAMED = (1, 12)

KNOWN = {
    "nvcr.io/nim/meta/llama-3.3-70b-instruct:1.13.1": (
        "tensorrt_llm-h100_nvl-fp8-tp2-pp1-throughput-2321:10de-5e20634213cb4c32e86f048dbc274eb8bff74720af81fe400d8924e766f3e723-4",
        "tensorrt_llm-h100-fp8-tp2-pp1-throughput-2330:10de-bedaf1e0ba87272295f4fcb590e781436120751026098f448fd8bc4d711ba5d7-4",
        "tensorrt_llm-a100-bf16-tp4-pp1-throughput-20b2:10de-8dfffd86cd28a6ea7086f8d3d33f0d60c66df738652cea44c722766b77508b5c-4",
    ),
    "nvcr.io/nim/nvidia/llama-3.3-nemotron-super-49b-v1.5:1.13.1": (
        "tensorrt_llm-h100_nvl-fp8-tp1-pp1-throughput-2321:10de-d347471b749e4e6b6e5956bb0f600b6646461c214cadadf6614baf305054a743-1",
        "tensorrt_llm-h100-fp8-tp1-pp1-throughput-2330:10de-a5381c1be0b8ee66ad41e7dc7b4e6d2cffaa7a4e37ca05f57898817560b0bd2b-1",
        "tensorrt_llm-b200-fp8-tp2-pp1-throughput-2901:10de-d2ff2bbf26fdabe28afaf754ca8e5615ed337e19d873da15627c209849f51072-2",
    ),
}
"""Profiles of TensorRT-LLM with such names, by image (NVIDIA-AI-Blueprints/rag,
docs/model-profiles.md and its predecessor, read 2026-11-25)."""

SOURCE = (
    "NIM for LLMs, its pages on profiles and on model-free NIM were read on 2026-11-23"
    " (ENGINE-FORMAT-tpN-pp1; NIM_MODEL_PROFILE takes the name; NIM_MODEL_PATH,"
    " NIM_SERVED_MODEL_NAME, NIM_PASSTHROUGH_ARGS); the other variables and the paths of cache,"
    " health and metrics are recalled"
)
SOURCE_1 = (
    "TensorRT-LLM runs in NIM 1, since an image of NIM 2 holds vLLM or SGLang (its support matrix,"
    " 2.1.5). Pages and lists read on 2026-11-25: the image for any model with its profile"
    " tensorrt_llm and NIM_MODEL_NAME (Utilities and release notes of 1.15),"
    " NIM_TENSOR_PARALLEL_SIZE, NIM_PIPELINE_PARALLEL_SIZE, metrics (Observability of 1.15); the"
    " other variables are recalled"
)


def prepared(service: Service) -> Service:
    """The deployment as NIM has it: TensorRT-LLM runs inside NIM 1 with its metrics, and a
    model-specific image contains the model. Raises InputError: an image without its tag.
    """
    if service.family == "tensorrt-llm" and (interface := find_interface("nim-2024")):
        pool = replace(service.pool, launch_file={})
        service = replace(
            service,
            family="nim",
            pool=pool,
            interface=interface,
            signals=HISTORIES["nim"].of(interface),
        )
    if service.simulated:
        return replace(service, emulated="nim")
    if not _named(service) and _registry(service.checkpoint):
        raise InputError(
            f"{option('checkpoint')}: {service.checkpoint} has a registry and no tag; write the"
            f" image with its tag, such as {service.checkpoint}:1.8.4, or owner/name of a"
            " checkpoint"
        )
    if not _named(service):
        return service
    return replace(
        service,
        loading=replace(
            service.loading, told="The image given with `--checkpoint` contains the model."
        ),
    )


def files(service: Service) -> dict[str, str]:
    """The text of each file by its name."""
    if service.simulated:
        return _rehearsal(service)
    written = {
        "deployment.yaml": yaml_text(
            instances(service), head=f"{head(service)}\n{SOURCE_1 if _first(service) else SOURCE}."
        ),
        "service.yaml": yaml_text(network_service(service)),
        "model-cache.yaml": yaml_text(model_cache(service)),
        "disruption-budget.yaml": yaml_text(disruptions(service, selector(service))),
        **(
            {}
            if service.target_in_flight is None
            else {"autoscaling.yaml": yaml_text(keda(service))}
        ),
    }
    further = {
        "README.md": page(service),
        "nim-service.yaml": yaml_text(nim_service(service), head=_operated(service)),
    }
    return bundle(service, written, further, endpoint=SCRAPED)


def _rehearsal(service: Service) -> dict[str, str]:
    """The files with a simulated engine, which answers under NIM's paths, in place of NIM."""
    engine = {**container(service), "name": "nim", **probes(service, "", READY, LIVE)}
    instances = deployment(service, {**pod(service), "containers": [engine]})
    applied = {
        **kubernetes.objects(service),
        "deployment.yaml": yaml_text(instances, head=head(service)),
    }
    return bundle(service, applied, kubernetes.unapplied(service), endpoint=SCRAPED)


def image(service: Service) -> str:
    """The model-specific image if the caller gave one (owner/name:tag, or with its registry), else
    the model-free image.
    """
    if not _named(service):
        return service.image if _first(service) else FREE[service.family]
    if _registry(service.checkpoint):
        return service.checkpoint
    return f"nvcr.io/nim/{service.checkpoint}"


def _registry(name: str) -> bool:
    """Whether the name of an image begins with a registry's host."""
    return "." in name.split("/", maxsplit=1)[0] and not name.startswith((".", "/"))


def _named(service: Service) -> bool:
    """Whether the checkpoint is an image of NIM."""
    return ":" in service.checkpoint


def _first(service: Service) -> bool:
    """Whether it runs TensorRT-LLM, which NIM 1 has."""
    return service.family == "nim"


def profile_1(service: Service) -> str:
    """The profile of TensorRT-LLM in NIM 1: the generic one, or by GPU, format and degrees. Raises
    InputError: none is known.
    """
    if not _named(service):
        return "tensorrt_llm"
    image_name, pool = image(service), service.pool
    version = tuple(
        int(part) for part in image_name.rsplit(":", 1)[1].split(".")[:2] if part.isdecimal()
    )
    stored = FORMATS.get(find_precision(pool.precision).weight_format, pool.precision)
    words = (PROFILED.get(pool.gpu, pool.gpu), stored, f"tp{pool.tp}", f"pp{pool.pp}")
    if (1,) < version < NAMED and pool.gpu in PROFILED:
        fewer = pool.tp > 1 and service.weight_bytes < 0.9 * service.gpu.memory_bytes * pool.tp / 2
        return "-".join(("tensorrt_llm", *words, "latency" if fewer else "throughput"))
    known_profiles = [
        (known_image, profile) for known_image, profiles in KNOWN.items() for profile in profiles
    ]
    alike = {
        (known_image, profile): (
            known_image == image_name,
            sum(word in profile.split("-")[:5] for word in words),
        )
        for known_image, profile in known_profiles
    }
    nearest, profile = max(alike, key=alike.__getitem__)
    if alike[nearest, profile] == (True, len(words)):
        return profile
    why = (
        "an image of NIM 2 holds vLLM or SGLang"
        if version >= (2,)
        else f"none is known of {image_name} for {'-'.join(words)}"
    )
    raise InputError(
        f"{option('checkpoint')}: no profile of TensorRT-LLM, because {why}; the nearest known is"
        f" {profile.rsplit(':', 1)[0]} of {nearest}, and without {option('checkpoint')}"
        f" {service.image} runs any model"
    )


def instances(service: Service) -> dict[str, Any]:
    """The Deployment of the Kubernetes target with NIM's container in it."""
    pulled = noted([{"name": "ngc-registry"}], "A Secret of kind docker-registry for nvcr.io.")
    return deployment(
        service, {**pod(service), "containers": [nim(service)], "imagePullSecrets": pulled}
    )


def environment(service: Service) -> list[Any]:
    """Environment variables: keys, model, profile, context, and the other settings of the plan that
    NIM has.
    """
    keys: dict[str, dict[str, Any]] = {"NGC_API_KEY": {"name": "ngc-api", "key": "NGC_API_KEY"}}
    if not _named(service):
        keys["HF_TOKEN"] = {"name": "hf-token", "key": "token", "optional": True}
    path = service.checkpoint if service.local else f"hf://{service.checkpoint}"
    name = "NIM_MODEL_NAME" if _first(service) else "NIM_MODEL_PATH"
    model = (
        []
        if _named(service)
        else [noted({"name": name, "value": path}, "The model that the model-free image serves.")]
    )
    return [
        *({"name": name, "valueFrom": {"secretKeyRef": key}} for name, key in keys.items()),
        *model,
        *(_told_1(service) if _first(service) else _told_2(service)),
        {"name": "NIM_CACHE_PATH", "value": CACHE},
    ]


def _told_1(service: Service) -> Iterator[Any]:
    """Profile, degrees, context and slots for TensorRT-LLM inside NIM 1, which passes no further
    flags on.
    """
    pool = service.pool
    lists = "list-model-profiles in the container shows whether it has this one."
    yield noted(
        {"name": "NIM_MODEL_PROFILE", "value": profile_1(service)},
        f"TensorRT-LLM for the plan's GPU, format and degrees; {lists}",
    )
    if not _named(service):
        yield {"name": "NIM_TENSOR_PARALLEL_SIZE", "value": str(pool.tp)}
        yield {"name": "NIM_PIPELINE_PARALLEL_SIZE", "value": str(pool.pp)}
    context = [
        value
        for word, value in zip(pool.launch, (*pool.launch[1:], ""), strict=True)
        if word == CONTEXT
    ]
    context += [word.rsplit("=", 1)[1] for word in pool.launch if "NIM_MAX_MODEL_LEN=" in word]
    yield from ({"name": "NIM_MAX_MODEL_LEN", "value": length} for length in context)
    yield {"name": "NIM_SERVED_MODEL_NAME", "value": service.served}
    if pool.knobs is not None:
        note = (
            f"NIM 1 takes no engine's flags: the plan's {pool.knobs.max_num_tokens:,} tokens a step"
            " and its other knobs cannot be told."
        )
        yield noted({"name": "NIM_MAX_BATCH_SIZE", "value": str(pool.knobs.max_batch_size)}, note)


def _told_2(service: Service) -> Iterator[Any]:
    """Profile, context and the engine's other flags, for NIM 2."""
    skipped, launch = SAID[service.family], service.pool.launch
    start = 3 if service.family == "vllm" else launch.index("--model-path") + 2
    stored = (
        "bf16"
        if service.loading.words
        else FORMATS.get(find_precision(service.pool.precision).weight_format)
    )
    watched = ["--enable-metrics"] if service.family == "sglang" else []
    further = shlex.join(
        [*without(launch[start:], *(skipped if stored else skipped[:1])), *watched]
    )
    note = (
        "The checkpoint's format and the plan's degrees; list-model-profiles in the container shows"
        " whether it has this one."
    )
    if stored:
        yield noted(
            {
                "name": "NIM_MODEL_PROFILE",
                "value": f"{service.family}-{stored}-tp{service.pool.tp}-pp{service.pool.pp}",
            },
            note,
        )
    yield {"name": "NIM_MAX_MODEL_LEN", "value": launch[launch.index(skipped[0]) + 1]}
    yield {"name": "NIM_SERVED_MODEL_NAME", "value": service.served}
    yield noted(
        {"name": "NIM_PASSTHROUGH_ARGS", "value": further},
        f"The plan's other knobs, for {service.family} behind NIM.",
    )


def nim(service: Service) -> dict[str, Any]:
    """NIM's container: the image, what is set by variables, its own probes."""
    engine_container, inside = (
        container(service),
        "TensorRT-LLM" if _first(service) else service.family,
    )
    note = (
        f"{service.startup_seconds} s to start: an allowance by the size of the weights; measure"
        " your own."
    )
    return {
        "name": "nim",
        "image": noted(
            image(service),
            f"Its {inside} is a version of its own, and the plan is for"
            f" {service.pool.engine_preset}.",
        ),
        "env": environment(service),
        "ports": [{"name": "http", "containerPort": PORT}],
        **probes(service, note, READY, LIVE),
        "lifecycle": engine_container["lifecycle"],
        "resources": engine_container["resources"],
        "securityContext": engine_container["securityContext"],
        "volumeMounts": [
            {"name": "model-cache", "mountPath": CACHE},
            *([{"name": "model-cache", "mountPath": FOLDER}] if service.local else []),
            {"name": "shared-memory", "mountPath": "/dev/shm"},
        ],
    }


STORE = "/model-store"  # Where the operator mounts the claim, and what it sets NIM_CACHE_PATH to


def _operated(service: Service) -> str:
    """The comment at the head of its file: which files it replaces, and what the pods lose."""
    comment = (
        "For NVIDIA's NIM operator. Name this file in kustomization.yaml in place of"
        " deployment.yaml, service.yaml and autoscaling.yaml. Its Service is"
        f" http://{service.name}:{PORT}. The operator sets no grace period: the requests of a pod"
        " that ends get 30 s."
    )
    return f"{comment}\n\n{adapter(service)}" if _moved(service) else comment


def _moved(service: Service) -> bool:
    """Whether the number of pods follows the load by a metric of each pod."""
    return service.target_in_flight is not None and bool(service.signals.running)


def nim_service(service: Service) -> dict[str, Any]:
    """The NIMService; its pods have the label by which the other files find those of the
    Deployment.
    """
    nim_container, (repository, tag) = nim(service), image(service).rsplit(":", 1)
    count: dict[str, Any] = {
        "replicas": noted(service.pool.instances, "The plan's instances, spare ones included.")
    }
    if _moved(service):
        count = {
            "scale": {
                "enabled": True,
                "hpa": {
                    name: part
                    for name, part in hpa(service)["spec"].items()
                    if name != "scaleTargetRef"
                },
            }
        }
    spec: dict[str, Any] = {
        "image": {"repository": repository, "tag": tag, "pullSecrets": ["ngc-registry"]},
        "authSecret": "ngc-api",
        "env": [
            _in_store(variable)
            for variable in nim_container["env"]
            if plain(variable)["name"] not in ("NGC_API_KEY", "NIM_CACHE_PATH")
        ],
        "storage": {
            "pvc": noted(
                {"name": f"{service.name}-model-cache"},
                f"Of model-cache.yaml; the operator mounts it at {STORE}.",
            ),
            "sharedMemorySizeLimit": f"{service.shared_memory_gib}Gi",
        },
        **placing(service),
        "resources": nim_container["resources"],
        "expose": {"service": {"type": "ClusterIP", "port": PORT}},
        **{
            name: {"probe": _at_api(nim_container[name])}
            for name in ("startupProbe", "readinessProbe", "livenessProbe")
        },
        **count,
    }
    return manifest(service, "NIMService", spec)


def _in_store(entry: Any) -> Any:
    """The variable, with a folder of a checkpoint where the operator mounts it."""
    variable = plain(entry)
    return (
        {**variable, "value": STORE + variable["value"].removeprefix(FOLDER)}
        if variable.get("value", "").startswith(f"{FOLDER}/")
        else entry
    )


def _at_api(probe: Any) -> dict[str, Any]:
    """The probe at the port as the operator names it."""
    plain_probe = plain(probe)
    return {**plain_probe, "httpGet": {**plain_probe["httpGet"], "port": "api"}}


def page(service: Service) -> str:
    """The page in Markdown."""
    rows = [
        (
            "`deployment.yaml`",
            f"{service.pool.instances} pods of NIM, its profile and variables, probes, resources",
        ),
        (
            "`service.yaml`, `model-cache.yaml`, `disruption-budget.yaml`",
            "address, cache, one pod at a time",
        ),
        *scaling_rows(service),
        (
            "`nim-service.yaml`",
            (
                "for NVIDIA's NIM operator, in place of `deployment.yaml`, `service.yaml` and"
                " `autoscaling.yaml`"
            ),
        ),
    ]
    peak = service.plan.demand.sizing_requests_per_second
    return cluster_page(
        service,
        runs_on="NVIDIA NIM",
        needs=(
            f"The image is `{image(service)}`, for which you need a licence of NVIDIA AI Enterprise"
            " and a key of NGC, as the Secrets `ngc-api` (key `NGC_API_KEY`) and `ngc-registry`"
            " (docker-registry). The cluster needs NVIDIA's GPU operator, a storage class with"
            " ReadWriteMany, kube-prometheus-stack, and KEDA for the autoscaling. A gated model"
            " needs a Secret `hf-token` with the key `token`."
        ),
        commands=(
            "kubectl apply --kustomize .",
            waits(service),
            f"kubectl port-forward deployment/{service.name} 8080:{PORT} &",
        ),
        url="http://127.0.0.1:8080",
        instances=1,
        rows=rows,
        further=(
            "The port-forward leads to one pod, which gets its share of the plan's peak. For all"
            f" of them run `tonnage bench` in a pod of the cluster against `http://{service.name}`"
            f" with `--request-rate {peak:.6g}`."
        ),
    )
