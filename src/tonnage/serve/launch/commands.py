"""The commands of the instances, by engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tonnage.errors import InputError, option
from tonnage.plan.launch import Command, listening
from tonnage.serve.launch.pinned import container_gpus, pinned
from tonnage.serve.launch.start import Started
from tonnage.serve.machine.machine import Device

HOST = "127.0.0.1"
QUIET = {"vllm": {"VLLM_NO_USAGE_STATS": "1"}}
"""Variables by which an engine does not report what it serves."""

Ports = Callable[[int], list[int]]


def engine_started(
    started: Command,
    family: str,
    *,
    program: str,
    name: str,
    groups: Sequence[tuple[Device, ...]],
    environment: Mapping[str, str],
    ports: Ports,
) -> tuple[Started, ...]:
    """Instances of vLLM, SGLang or TensorRT-LLM.

    Args:
        started: the command of one of them, as ``plan.launch`` makes it.
        family: of the engine.
        program: the path of the program that starts it.
        name: that clients use for the model.
        groups: GPUs of each instance.
        environment: further variables.
        ports: gives so many free ones.
    """
    return tuple(
        Started(
            argv=(program, *started.argv[1:], *listening(family, host=HOST, port=port, name=name)),
            environment={**QUIET.get(family, {}), **pinned(group), **environment},
            devices=group,
            port=port,
            path="/health",
        )
        for group, port in zip(groups, ports(len(groups)), strict=True)
    )


def nim_started(
    started: Command, *, program: str, name: str, groups: Sequence[tuple[Device, ...]], environment: Mapping[str, str], ports: Ports
) -> tuple[Started, ...]:
    """Containers of NIM, each with its GPUs and its port; the container chooses its profile by itself.

    Args:
        started: the command of one of them, whose words ``--gpus`` and ``--publish`` are replaced.
        program: the path of docker.
        name: that clients use for the model.
        groups, environment, ports: as for ``engine_started``.
    """
    found = []
    for group, port in zip(groups, ports(len(groups)), strict=True):
        words = list(started.argv[1:])
        words[words.index("--gpus") + 1] = container_gpus(group)
        words[words.index("--publish") + 1] = f"{HOST}:{port}:8000"
        more = [word for one, value in {"NIM_SERVED_MODEL_NAME": name, **environment}.items() for word in ("--env", f"{one}={value}")]
        argv = (program, *words[:-1], *more, words[-1])
        found.append(Started(argv=argv, environment={}, devices=group, port=port, path="/v1/health/ready"))
    return tuple(found)


def triton_started(
    repository: Path, *, program: str, groups: Sequence[tuple[Device, ...]], environment: Mapping[str, str], ports: Ports
) -> tuple[Started, ...]:
    """Servers of Triton on a model repository.

    Args:
        repository: its folder.
        program: the path of tritonserver.
        groups, environment, ports: as for ``engine_started``.

    Raises:
        InputError: the folder holds no model.
    """
    if not any(repository.glob("*/config.pbtxt")):
        raise InputError(f"{option('model')}: {repository} is no model repository: it holds no folder with a config.pbtxt")
    found = []
    for group in groups:
        http, grpc, metrics = ports(3)
        flags = {
            "--model-repository": repository,
            "--http-address": HOST,
            "--http-port": http,
            "--grpc-address": HOST,
            "--grpc-port": grpc,
            "--metrics-address": HOST,
            "--metrics-port": metrics,
        }
        argv = [program, *(str(word) for pair in flags.items() for word in pair)]
        found.append(
            Started(argv=tuple(argv), environment={**pinned(group), **environment}, devices=group, port=http, path="/v2/health/ready")
        )
    return tuple(found)
