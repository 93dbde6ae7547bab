"""Every profile of a model on a machine, each with whether it runs there."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from tonnage.errors import DoesNotFit, InputError, option
from tonnage.perf.memory import MemoryPlan, memory_plan
from tonnage.serve.machine import Device, Machine
from tonnage.spec.catalog import find_engine, find_gpu
from tonnage.spec.catalog.checkpoints import as_run
from tonnage.spec.deployment import Deployment, Parallelism
from tonnage.spec.engine import EnginePreset, default_knobs
from tonnage.spec.hardware import Gpu
from tonnage.spec.model import Model
from tonnage.spec.precision import Precision, find_precision

# What an engine needs of a machine in addition to memory: the maker and the generation of its GPUs,
# and their driver.


@dataclass(frozen=True, slots=True, kw_only=True)
class Cuda:
    """The CUDA version and driver that an engine's published builds need."""

    version: str  # of CUDA that they are built with
    driver: str  # oldest driver that runs it


CUDA_12 = Cuda(version="12", driver="525.60.13")
CUDA_13 = Cuda(version="13", driver="580.65.06")
"""Oldest drivers of CUDA 12 and 13 with minor-version compatibility (NVIDIA, CUDA Toolkit release
notes, table 2; recalled, 2026-11-22)."""

NEEDS: tuple[tuple[str, str, Cuda], ...] = (
    ("vllm", "0.20", CUDA_13),
    ("vllm", "0", CUDA_12),
    ("sglang", "0.5.9", CUDA_13),
    ("sglang", "0", CUDA_12),
    ("tensorrt-llm", "1.1", CUDA_13),
    ("tensorrt-llm", "0", CUDA_12),
    ("nim", "0", CUDA_12),
)
"""Family of engines, first version, and what it needs. That vLLM's default builds are of CUDA 13
from 0.20 on was read in its installation page and release notes (2026-11-22); those of the others
are recalled. A build for an older CUDA may be installed in their place."""


def image_needs(image: str) -> Cuda:
    """What the engine inside an image of NIM needs, by the version of its tag: CUDA 12 in NIM 1,
    CUDA 13 in NIM 2 and without a number.

    NIM 1.3 is based on CUDA 12.6 (its support matrix); that NIM 2 has the CUDA of the vLLM of its
    months is an assumption (2026-11-28).
    """
    first = re.match(r"\D*(\d+)", image.rpartition(":")[2])
    return CUDA_12 if first is not None and int(first[1]) < 2 else CUDA_13


def check_image(image: str, machine: Machine) -> None:
    """Refuse an image of NIM whose CUDA this driver is too old for. Raises InputError."""
    need = image_needs(image)
    if machine.driver and numbers(machine.driver) < numbers(need.driver):
        raise InputError(
            f"{option('checkpoint')}: driver {machine.driver} is too old: {image} is built with"
            f" CUDA {need.version}, which needs {need.driver} or newer; update it, or name an image"
            " of NIM 1"
        )


def numbers(version: str) -> tuple[int, ...]:
    """Split a version into numbers, to be compared."""
    return tuple(int(part) for part in re.findall(r"\d+", version))


def missing(engine: EnginePreset, machine: Machine, devices: tuple[Device, ...]) -> str:
    """What these GPUs or their driver lack for an engine, as a clause; empty where they lack
    nothing.
    """
    vendors = {device.vendor for device in devices}
    for vendor in vendors - set(engine.vendors):
        return (
            f"{engine.name} runs on GPUs of {', '.join(engine.vendors)}, and these are of {vendor}"
        )
    if vendors != {"NVIDIA"}:
        return ""
    need = next(
        need
        for family, since, need in NEEDS
        if family == engine.family and numbers(engine.since) >= numbers(since)
    )
    if machine.driver and numbers(machine.driver) < numbers(need.driver):
        return (
            f"driver {machine.driver} is too old: {engine.name} is built with CUDA {need.version},"
            f" which needs {need.driver} or newer"
        )
    old = next(
        (
            device
            for device in devices
            if device.capability and numbers(device.capability) < numbers(engine.capability)
        ),
        None,
    )
    if old is not None:
        return (
            f"{old.name} has compute capability {old.capability}, and {engine.name} needs"
            f" {engine.capability}"
        )
    return ""


def lacks(engine: EnginePreset, gpu: Gpu, precision: Precision) -> str:
    """Why a GPU under an engine cannot run a number format, as a clause; empty where it can."""
    lacking = gpu.lacks(engine.runs(precision, gpu))
    return (
        f"{gpu.name} ({gpu.arch}) has {lacking} for {precision.name}"
        if lacking
        else engine.lacks(precision)
    )


Kind = Literal["runnable", "low memory", "incompatible"]
Aim = Literal["throughput", "latency"]

KINDS: tuple[Kind, ...] = ("runnable", "low memory", "incompatible")


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One way to run a model on a machine: engine, number format, degree, and what it is made for;
    and whether the machine can.
    """

    family: str  # of the engine, such as "vllm"
    preset: str
    precision: str
    tp: int  # GPUs of an instance
    aim: Aim  # "throughput" for the fewest GPUs that hold the model, "latency" for more
    kind: Kind  # whether it runs here
    context: int  # tokens of a request that fit, at most the model's context; 0 where none do
    # memory that each GPU must have for the model's whole context; 0 where that is not known
    needs_bytes: int
    # why it does not run, or runs with a shorter context, as a clause; empty where it runs
    why: str
    checkpoint: str  # what it would load; "" where nobody has named one in this format
    bits: float  # of a weight, by which formats are ordered

    @property
    def name(self) -> str:
        """Such as "vllm-fp8-tp2-pp1-latency", after the pattern of NVIDIA's NIM."""
        return f"{self.family}-{self.precision}-tp{self.tp}-pp1-{self.aim}"

    def to_json(self) -> dict[str, Any]:
        """The values as JSON has them, by name."""
        return {
            "name": self.name,
            "kind": self.kind,
            "engine": self.preset,
            "precision": self.precision,
            "tp": self.tp,
            "aim": self.aim,
            "context": self.context,
            "needs_bytes_per_gpu": self.needs_bytes,
            "why": self.why,
            "checkpoint": self.checkpoint or None,
        }


DEGREES = (1, 2, 4, 8)

# Tokens of a request below which a profile is not called runnable with low memory: nobody would
# serve it
LEAST_CONTEXT = 2_048


def profiles(
    model: Model,
    machine: Machine,
    *,
    engines: Sequence[str],
    precisions: Sequence[str],
    checkpoint: Callable[[EnginePreset, str], str],
    context: int | None = None,
) -> tuple[Profile, ...]:
    """Every combination of engine, number format and degree; all GPUs of the machine are of one
    kind that the catalog has.

    ``checkpoint`` says what an engine loads in a number format, "" for nothing; ``context`` are
    tokens of a request (default: the model's).
    """
    longest = min(context or model.max_context, model.max_context)
    all_profiles: list[Profile] = []
    for engine in map(find_engine, engines):
        for precision in precisions:
            profiles = list(_of_format(model, machine, engine, precision, longest))
            first = next(
                (profile.tp for profile in profiles if profile.kind == "runnable"),
                max(profile.tp for profile in profiles),
            )
            named = checkpoint(engine, precision)
            all_profiles += [
                replace(
                    profile, aim="latency" if profile.tp > first else "throughput", checkpoint=named
                )
                for profile in profiles
            ]
    return tuple(all_profiles)


def _of_format(
    model: Model, machine: Machine, engine: EnginePreset, precision: str, wanted_context: int
) -> Iterator[Profile]:
    """The profiles of an engine and a format, by degree."""
    least = min(device.memory_bytes for device in machine.devices)
    number_format, gpu = (
        find_precision(precision),
        replace(find_gpu(machine.gpu), memory_bytes=least),
    )
    lacking = missing(engine, machine, machine.devices) or lacks(engine, gpu, number_format)
    kind: Kind
    for tp in DEGREES:
        kind, context, needs, why = (
            ("incompatible", 0, 0, lacking)
            if lacking
            else _memory(deployed(model, gpu, engine, precision, tp), machine, wanted_context)
        )
        yield Profile(
            family=engine.family,
            preset=engine.name,
            precision=precision,
            tp=tp,
            aim="throughput",
            kind=kind,
            context=context,
            needs_bytes=needs,
            why=why,
            checkpoint="",
            bits=number_format.weight_bits,
        )


def _memory(d: Deployment, machine: Machine, context: int) -> tuple[Kind, int, int, str]:
    """Kind, context that fits, bytes that each GPU needs, and why."""
    try:
        plan = memory_plan(d)
    except DoesNotFit as fault:  # the weights alone: the rules of memory are linear in the GPU's
        needs = _needed(
            memory_plan(replace(d, gpu=replace(d.gpu, memory_bytes=ROOMY * d.gpu.memory_bytes))),
            context,
        )
        return "incompatible", 0, needs, f"needs {needs / 1e9:,.0f} GB on each GPU ({fault})"
    except InputError as fault:
        return "incompatible", 0, 0, fault.reason
    # of a request that the KV cache holds
    longest = max(0, plan.blocks - plan.windows.blocks) * d.knobs.tokens_per_block
    needs, fits, tp, why = _needed(plan, context), min(context, longest), d.parallelism.tp, ""
    if tp > len(machine.devices):
        why = f"needs {tp} GPUs, and the machine has {len(machine.devices)}"
    elif tp > len(machine.free):
        why = (
            f"needs {tp} GPUs, and others use {len(machine.devices) - len(machine.free)} of"
            f" {len(machine.devices)}"
        )
    elif fits < min(LEAST_CONTEXT, context):
        why = f"the KV cache holds {fits:,} tokens, fewer than one request of {LEAST_CONTEXT:,}"
    if why:
        return "incompatible", fits, needs, why
    if fits < context:
        return (
            "low memory",
            fits,
            needs,
            f"the KV cache holds {fits:,} of the {context:,} tokens of a whole context",
        )
    return "runnable", fits, needs, ""


def deployed(model: Model, gpu: Gpu, engine: EnginePreset, precision: str, tp: int) -> Deployment:
    """An instance with the engine's own knobs."""
    knobs = default_knobs(engine, gpu, ranks=1)
    return Deployment(
        model=model,
        gpu=gpu,
        precision=as_run(find_precision(precision), model, engine, gpu),
        parallelism=Parallelism(tp=tp),
        engine=engine.name,
        knobs=knobs,
    )


def _needed(plan: MemoryPlan, context: int) -> int:
    """Bytes that each GPU must have so that its engine's KV cache holds one request of the wanted
    context.
    """
    gpu, knobs = plan.deployment.gpu, plan.deployment.knobs
    short = (
        plan.request_blocks(context) * knobs.tokens_per_block * plan.kv_bytes_per_token
        - plan.kv_budget_bytes
    )
    return round(gpu.memory_bytes + short / knobs.kv_fraction)


ROOMY = 64
"""How many times the memory a GPU is given to find out what a deployment needs that does not fit:
the rules of memory are linear in it."""


ENGINES = ("tensorrt-llm", "vllm", "sglang")  # The engines, the one that is preferred first

RULE = (
    "those that do not run here are left out; then TensorRT-LLM before vLLM before SGLang, fewer"
    " bits before more, latency before throughput, more GPUs before fewer"
)
"""NVIDIA NIM for LLMs, "Automatic Profile Selection" (read 2026-11-22; that more GPUs come first
among equals is recalled, and the place of SGLang is ours)."""


def ordered(profiles: Sequence[Profile]) -> tuple[Profile, ...]:
    """Profiles by kind, and the one that is taken first within a kind."""
    return tuple(
        sorted(
            profiles,
            key=lambda profile: (
                KINDS.index(profile.kind),
                ENGINES.index(profile.family),
                profile.bits,
                profile.aim != "latency",
                -profile.tp,
            ),
        )
    )


def chosen(profiles: Sequence[Profile], name: str | None = None) -> Profile:
    """The profile of that name, or the first runnable one with a known checkpoint. Raises
    InputError: with what the nearest one needs.
    """
    where = option("profile")
    if name is not None:
        named = next((candidate for candidate in profiles if candidate.name == name), None)
        if named is None:
            raise InputError(
                f"{where}: there is no '{name}'; {option('list_profiles')} shows those that"
                " there are"
            )
        if named.kind != "runnable":
            advice = (
                f"; say {option('max_model_len')} {named.context} to shorten it"
                if named.kind == "low memory"
                else ""
            )
            raise InputError(f"{where}: {name} does not run here: {named.why}{advice}")
        return _with_checkpoint(named)
    first = ordered(profiles)
    profile = next(
        (candidate for candidate in first if candidate.kind == "runnable" and candidate.checkpoint),
        None,
    )
    if profile is not None:
        return profile
    if first[0].kind == "runnable":
        return _with_checkpoint(first[0])
    nearest = first[0]
    advice = (
        f"; {option('max_model_len')} {nearest.context} would fit"
        if nearest.kind == "low memory"
        else ""
    )
    raise InputError(
        f"{option('model')}: no profile runs on this machine; the nearest, {nearest.name}, does"
        f" not: {nearest.why}{advice}"
    )


def _with_checkpoint(profile: Profile) -> Profile:
    if not profile.checkpoint:
        raise InputError(
            f"{option('checkpoint')}: {profile.name} needs the model in {profile.precision}, and no"
            " checkpoint in that format is known; name one"
        )
    return profile
