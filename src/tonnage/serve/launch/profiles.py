"""Every profile of a model on a machine, each with whether it runs there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tonnage.errors import DoesNotFit, InputError
from tonnage.perf.memory import memory_plan
from tonnage.serve.launch.needs import lacks, missing
from tonnage.serve.launch.profile import Kind, Profile
from tonnage.spec.catalog import find_engine, find_gpu
from tonnage.spec.deployment import Deployment, Parallelism
from tonnage.spec.engine import default_knobs
from tonnage.spec.precision import find_precision

if TYPE_CHECKING:
    from collections.abc import Callable

    from tonnage.perf.memory import MemoryPlan
    from tonnage.serve.machine.machine import Machine
    from tonnage.spec.engine import EngineSpec
    from tonnage.spec.hardware import Gpu
    from tonnage.spec.model import Model

DEGREES = (1, 2, 4, 8)

LEAST_CONTEXT = 2_048
"""Tokens of a request below which a profile is not called runnable with low memory: nobody would serve it."""


def profiles(
    model: Model,
    machine: Machine,
    *,
    engines: Sequence[str],
    precisions: Sequence[str],
    checkpoint: Callable[[EngineSpec, str], str],
    context: int | None = None,
) -> tuple[Profile, ...]:
    """Every combination of engine, number format and degree.

    Args:
        model: to run.
        machine: to run it on; all its GPUs are of one kind that the catalog has.
        engines: presets.
        precisions: number formats.
        checkpoint: what an engine loads in a number format; "" where nobody named one.
        context: tokens of a request that are wanted (default: the model's context).
    """
    wanted = min(context or model.max_context, model.max_context)
    found: list[Profile] = []
    for engine in map(find_engine, engines):
        for precision in precisions:
            each = list(_of_format(model, machine, engine, precision, wanted))
            first = next((one.tp for one in each if one.kind == "runnable"), max(one.tp for one in each))
            named = checkpoint(engine, precision)
            found += [replace(one, aim="latency" if one.tp > first else "throughput", checkpoint=named) for one in each]
    return tuple(found)


def _of_format(model: Model, machine: Machine, engine: EngineSpec, precision: str, wanted: int) -> Iterator[Profile]:
    """The profiles of an engine and a format, by degree."""
    least = min(one.memory_bytes for one in machine.devices)
    asked, gpu = find_precision(precision), replace(find_gpu(machine.gpu), memory_bytes=least)
    lacking = missing(engine, machine, machine.devices) or lacks(engine, gpu, asked)
    kind: Kind
    for tp in DEGREES:
        kind, context, needs, why = (
            ("incompatible", 0, 0, lacking) if lacking else _memory(deployed(model, gpu, engine, precision, tp), machine, wanted)
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
            bits=asked.weight_bits,
        )


def _memory(d: Deployment, machine: Machine, wanted: int) -> tuple[Kind, int, int, str]:
    """Kind, context that fits, bytes that each GPU needs, and why."""
    try:
        plan = memory_plan(d)
    except DoesNotFit as fault:
        needs = _needed_at_all(d, wanted)
        return "incompatible", 0, needs, f"needs {needs / 1e9:,.0f} GB on each GPU ({fault})"
    except InputError as fault:
        return "incompatible", 0, 0, fault.reason
    needs, fits, tp = _needed(plan, wanted), min(wanted, _longest(plan)), d.parallelism.tp
    why = _why_not(machine, tp)
    if not why and fits < min(LEAST_CONTEXT, wanted):
        why = f"the KV cache holds {fits:,} tokens, fewer than one request of {LEAST_CONTEXT:,}"
    if why:
        return "incompatible", fits, needs, why
    if fits < wanted:
        return "low memory", fits, needs, f"the KV cache holds {fits:,} of the {wanted:,} tokens of a whole context"
    return "runnable", fits, needs, ""


def _why_not(machine: Machine, tp: int) -> str:
    """Why there are not so many GPUs, as a clause; empty where there are."""
    if tp > len(machine.devices):
        return f"needs {tp} GPUs, and the machine has {len(machine.devices)}"
    if tp > len(machine.free):
        return f"needs {tp} GPUs, and others use {len(machine.devices) - len(machine.free)} of {len(machine.devices)}"
    return ""


def deployed(model: Model, gpu: Gpu, engine: EngineSpec, precision: str, tp: int) -> Deployment:
    """An instance with the engine's own knobs."""
    knobs = default_knobs(engine, gpu)
    return Deployment(
        model=model, gpu=gpu, precision=find_precision(precision), parallelism=Parallelism(tp=tp), engine=engine.name, knobs=knobs
    )


def _longest(plan: MemoryPlan) -> int:
    """Tokens of the longest request that the KV cache holds."""
    return max(0, plan.blocks - plan.windows.blocks) * plan.deployment.knobs.tokens_per_block


def _needed(plan: MemoryPlan, wanted: int) -> int:
    """Bytes that each GPU must have so that its engine's KV cache holds one request of the wanted context."""
    gpu, knobs = plan.deployment.gpu, plan.deployment.knobs
    short = plan.request_blocks(wanted) * knobs.tokens_per_block * plan.kv_bytes_per_token - plan.kv_budget_bytes
    return round(gpu.memory_bytes + short / knobs.kv_fraction)


ROOMY = 64
"""How many times the memory a GPU is given to find out what a deployment needs that does not fit: the rules of memory are linear in it."""


def _needed_at_all(d: Deployment, wanted: int) -> int:
    """The same for a deployment whose weights alone do not fit."""
    return _needed(memory_plan(replace(d, gpu=replace(d.gpu, memory_bytes=ROOMY * d.gpu.memory_bytes))), wanted)
