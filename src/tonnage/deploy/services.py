"""A sized service of models that are not LLMs as files: Triton's model repository, and KServe's
InferenceService around it.

Fields of ``config.pbtxt`` are those of ``protobuf/model_config.proto`` of Triton (read 2026-11-22).
KServe's InferenceService with the runtime ``kserve-tritonserver`` and the names of the backends'
files are recalled.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tonnage.deploy.pbtxt import Said, Word, pbtxt
from tonnage.deploy.plan_text import paragraph
from tonnage.deploy.triton import SERVER, Config, ensemble_step
from tonnage.deploy.yaml_comments import noted, yaml_text
from tonnage.errors import InputError, option
from tonnage.spec.service import (
    DynamicBatching,
    QueuePolicy,
    ServedModel,
    Service,
    Stage,
    Stream,
    Tensor,
)

MODEL_FILES = {
    "onnxruntime": "model.onnx",
    "tensorrt": "model.plan",
    "pytorch": "model.pt",
    "tensorflow": "model.savedmodel",
    "openvino": "model.xml and model.bin",
    "python": "model.py",
    "fil": "xgboost.json, or the file of another library of trees",
}
"""What each backend of Triton reads in the folder of a version."""

TARGETS = ("triton", "kserve")


@dataclass(frozen=True, slots=True, kw_only=True)
class SizedFiles:
    """The sized service that the files are written from."""

    name: str  # of the deployment, for objects and containers
    service: Service  # one server with the chosen settings and its share of the traffic
    servers: int  # how many of them
    source: str  # the service file, for the commands
    answer: str  # the sizing in a sentence


def service_files(sized_files: SizedFiles, target: str) -> dict[str, str]:
    """The text of each file by its name. Raises InputError: another target, a model without a
    backend, unknown tensors in a pipeline.
    """
    if target not in TARGETS:
        raise InputError(
            f"{option('target')}: a service of models that are not LLMs is written for"
            f" {' or '.join(TARGETS)}, not for {target}"
        )
    lacking = [
        name
        for name, model in sized_files.service.models.items()
        if model.backend not in MODEL_FILES
    ]
    if lacking:
        raise InputError(
            f"service.models.{lacking[0]}.backend: is missing or unknown; write one of"
            f" {', '.join(MODEL_FILES)}"
        )
    written = {
        f"repository/{name}/config.pbtxt": pbtxt(model_config(model))
        for name, model in sized_files.service.models.items()
    }
    for name, model in sized_files.service.models.items():
        written[f"repository/{name}/1/README"] = f"Put {MODEL_FILES[model.backend]} here.\n"
    for stream in _ensembles(sized_files.service):
        written[f"repository/{stream.name}/config.pbtxt"] = pbtxt(
            ensemble(stream, sized_files.service.models)
        )
        written[f"repository/{stream.name}/1/README"] = (
            "A version's folder must be there, though an ensemble has no file.\n"
        )
    if target == "kserve":
        written["inference-service.yaml"] = yaml_text(
            inference_service(sized_files),
            head=f"{sized_files.answer}\nKServe's fields are recalled.",
        )
        written["models-volume.yaml"] = yaml_text(volume(sized_files))
    written["README.md"] = readme(sized_files, target)
    return written


def _ensembles(service: Service) -> list[Stream]:
    """Streams through several models that neither branch nor loop."""
    return [
        stream
        for stream in service.streams
        if stream.name not in service.models and not any(map(_chance, stream.stages))
    ]


def _chance(stage: Stage) -> bool:
    return stage.share < 1 or stage.again > 0 or bool(stage.instead_of)


def model_config(model: ServedModel) -> Config:
    """Write a model's ``config.pbtxt``: its largest batch, tensors, batching, and copies."""
    kind = {"count": model.instances, "kind": Word("KIND_GPU"), "gpus": list(model.gpus)}
    tensors = {
        name: [_tensor(tensor) for tensor in declared]
        for name, declared in (("input", model.inputs), ("output", model.outputs))
        if declared
    }
    open_tensors = (
        {}
        if tensors
        else {
            "_": Said(
                "Without input and output Triton reads the tensors from the model's file, where it"
                " can."
            )
        }
    )
    batching = {} if model.batching is None else {"dynamic_batching": _batching(model.batching)}
    named = {"name": model.name, "backend": model.backend, "max_batch_size": model.max_batch_size}
    return {**open_tensors, **named, **tensors, **batching, "instance_group": [kind]}


def _tensor(tensor: Tensor) -> Config:
    kind = "STRING" if tensor.data_type == "BYTES" else tensor.data_type
    return {"name": tensor.name, "data_type": Word(f"TYPE_{kind}"), "dims": list(tensor.dims)}


def _batching(rules: DynamicBatching) -> Config:
    config: Config = {"max_queue_delay_microseconds": rules.max_queue_delay_microseconds}
    if rules.preferred_batch_size:
        config = {"preferred_batch_size": sorted(set(rules.preferred_batch_size)), **config}
    if rules.preserve_ordering:
        config["preserve_ordering"] = True
    if rules.priority_levels:
        config |= {
            "priority_levels": rules.priority_levels,
            "default_priority_level": rules.default_priority_level,
        }
    if rules.default_queue_policy != QueuePolicy():
        config["default_queue_policy"] = _policy(rules.default_queue_policy)
    if rules.priority_queue_policy:
        config["priority_queue_policy"] = [
            {"key": level, "value": _policy(policy)}
            for level, policy in rules.priority_queue_policy.items()
        ]
    return config


def _policy(policy: QueuePolicy) -> Config:
    return asdict(policy) | {"timeout_action": Word(policy.timeout_action)}


def ensemble(stream: Stream, models: Mapping[str, ServedModel]) -> Config:
    """A pipeline as Triton's ensemble: a step's inputs by name, else in order. Raises InputError:
    tensors that do not fit.
    """
    stages, followed = stream.stages, {before for stage in stream.stages for before in stage.after}
    ends = [place for place in range(len(stages)) if place not in followed]
    first: dict[str, Tensor] = {}
    last: dict[str, Tensor] = {}
    steps = []
    for place, stage in enumerate(stages):
        model = models[stage.model]
        if not model.inputs or not model.outputs:
            missing = "inputs" if not model.inputs else "outputs"
            raise InputError(
                f"service.models.{stage.model}.{missing}: missing; the pipeline {stream.name} needs"
                " them, such as x: FP32[128]"
            )
        sources = (
            _sources(stream, place, models)
            if stage.after
            else {tensor.name: tensor.name for tensor in model.inputs}
        )
        first |= {} if stage.after else {tensor.name: tensor for tensor in model.inputs}
        output_names = {
            output.name: output.name if place in ends else _between(place, stage, output.name)
            for output in model.outputs
        }
        last |= {output.name: output for output in model.outputs if place in ends}
        steps.append(ensemble_step(stage.model, sources, output_names))
    return {
        "name": stream.name,
        "platform": "ensemble",
        "max_batch_size": min(models[stage.model].max_batch_size for stage in stages),
        "input": [_tensor(tensor) for tensor in first.values()],
        "output": [_tensor(tensor) for tensor in last.values()],
        "ensemble_scheduling": {"step": steps},
    }


def _between(place: int, stage: Stage, tensor: str) -> str:
    """The name of a tensor between two steps."""
    return f"{place}_{stage.model}_{tensor}"


def _sources(stream: Stream, place: int, models: Mapping[str, ServedModel]) -> dict[str, str]:
    stage = stream.stages[place]
    offered = [
        (output.name, _between(before, stream.stages[before], output.name))
        for before in stage.after
        for output in models[stream.stages[before].model].outputs
    ]
    tensors, by_name = models[stage.model].inputs, dict(offered)
    if all(tensor.name in by_name for tensor in tensors):
        return {tensor.name: by_name[tensor.name] for tensor in tensors}
    if len(tensors) != len(offered):
        names = ", ".join(name for name, _ in offered)
        raise InputError(
            f"service.pipelines.{stream.name}: {stage.model} has {len(tensors)} inputs, and the"
            f" steps before it give {names}"
        )
    return {tensor.name: between for tensor, (_, between) in zip(tensors, offered, strict=True)}


def inference_service(sized_files: SizedFiles) -> dict[str, Any]:
    """KServe's service: as many Tritons as the sizing asks for."""
    gpus = {"nvidia.com/gpu": sized_files.service.gpus}
    model = {
        "modelFormat": {"name": "triton"},
        "runtime": "kserve-tritonserver",
        "protocolVersion": "v2",
        "storageUri": f"pvc://{sized_files.name}-models/repository",
        "resources": {"limits": gpus, "requests": gpus},
    }
    return {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {"name": sized_files.name},
        "spec": {
            "predictor": {
                "minReplicas": noted(sized_files.servers, sized_files.answer),
                "maxReplicas": sized_files.servers,
                "model": model,
            }
        },
    }


def volume(sized_files: SizedFiles) -> dict[str, Any]:
    """Write the volume of the model repository, which every server mounts."""
    note = "Several nodes read it: a storage class with ReadWriteMany. Set the size of your models."
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": f"{sized_files.name}-models"},
        "spec": {
            "accessModes": noted(["ReadWriteMany"], note),
            "resources": {"requests": {"storage": "10Gi"}},
        },
    }


def readme(sized_files: SizedFiles, target: str) -> str:
    """The page in Markdown: the models' files, the start, the measurement."""
    service = sized_files.service
    files = "\n".join(
        f"| `repository/{name}/1` | `{MODEL_FILES[model.backend]}` |"
        for name, model in service.models.items()
    )
    start = (
        f"docker run --detach --name {sized_files.name} --gpus {service.gpus} --publish 8000:8000"
        f" --publish 8002:8002 \\\n    --volume $PWD/repository:/models {SERVER} tritonserver"
        " --model-repository /models\ncurl --fail --retry 100 --retry-connrefused --retry-delay 5"
        " http://127.0.0.1:8000/v2/health/ready"
    )
    if target == "kserve":
        start = (
            "kubectl apply --filename models-volume.yaml --filename inference-service.yaml\n"
            f"kubectl wait inferenceservice/{sized_files.name} --for condition=Ready"
            " --timeout 600s\n"
            f"kubectl port-forward service/{sized_files.name}-predictor 8000:80 &"
        )
    bench = "tonnage bench --url 127.0.0.1:8000 --endpoint-type infer --binary-tensors"
    loads = [
        _load(bench, stream)
        for stream in service.streams
        if stream.name in service.models or stream in _ensembles(service)
    ]
    sizes = {
        name: ",".join(str(2**n) for n in range(model.max_batch_size.bit_length()))
        for name, model in service.models.items()
    }
    times = [
        f"{bench} --model {name} --items {sizes[name]} --concurrency 1 --request-count 200"
        f" --artifact-dir runs/{name}"
        for name in sizes
    ]
    scripts = [stream.name for stream in service.streams if any(map(_chance, stream.stages))]
    script = paragraph(
        f"{', '.join(scripts)} branches or loops, which no ensemble can. Write it as a Python model"
        " that calls the models of this repository (Triton's business logic scripting); they carry"
        " its traffic here."
    )
    engines = [name for name, model in service.models.items() if model.backend == "tensorrt"]
    builds = [
        f"trtexec --onnx={name}.onnx --fp16 --saveEngine=repository/{name}/1/model.plan"
        + _shapes(service.models[name])
        for name in engines
    ]
    compiled = (
        "\n\nCompile the engines on the GPU that serves them:\n\n```sh\n"
        + "\n".join(builds)
        + "\n```"
        if builds
        else ""
    )
    further = (
        ""
        if target == "kserve" or sized_files.servers == 1
        else f"\nStart {sized_files.servers} such servers behind a load balancer.\n"
    )
    return f"""# {" ".join(service.title.split()) or sized_files.name} with {"KServe" if target == "kserve" else "Triton"}

{paragraph(sized_files.answer)}

| folder | file to put there |
|---|---|
{files}{compiled}{chr(10) + chr(10) + script if scripts else ""}

```sh
{start}
```
{further}
Measure the times of batches, write them into the service file and size again; then measure one server under its share of the traffic:

```sh
{chr(10).join(times)}
tonnage calibrate {shlex.quote(sized_files.source)} {" ".join(f"runs/{name}" for name in sizes)} --output measured.yaml
tonnage size measured.yaml
{chr(10).join(loads)}
```
"""  # noqa: E501


def _load(bench: str, stream: Stream) -> str:
    load = (
        f"--concurrency {stream.concurrency}"
        if stream.concurrency
        else f"--request-rate {stream.rate:.6g}"
    )
    return f"{bench} --model {stream.name} --items {stream.items} {load} --benchmark-duration 60s"


def _shapes(model: ServedModel) -> str:
    """The profile of batch sizes for trtexec, from one item to the largest batch."""
    if not model.inputs:
        return ""

    def words(items: int) -> str:
        return ",".join(
            f"{tensor.name}:{'x'.join(map(str, (items, *tensor.dims)))}" for tensor in model.inputs
        )

    largest = model.max_batch_size
    return (
        f" --minShapes={words(1)} --optShapes={words(max(largest // 2, 1))}"
        f" --maxShapes={words(largest)}"
    )
