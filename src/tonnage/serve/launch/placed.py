"""The GPUs of each instance on a machine, and what is refused before anything starts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tonnage.errors import InputError, option
from tonnage.perf.memory import memory_plan
from tonnage.serve.launch.needs import lacks, missing
from tonnage.serve.machine.groups import groups, joined
from tonnage.spec.catalog import find_engine, find_gpu
from tonnage.spec.precision import find_precision

if TYPE_CHECKING:
    from tonnage.plan.pool import Pool
    from tonnage.serve.machine.machine import Device, Machine
    from tonnage.spec.deployment import Deployment


def usable(machine: Machine, asked: Sequence[int] | None) -> tuple[Device, ...]:
    """The GPUs that may be used: those that were named, else those that nobody else uses.

    Raises:
        InputError: one was named that is not there or not free.
    """
    if asked is None:
        return machine.free
    found = []
    for number in asked:
        one = next((device for device in machine.devices if device.index == number), None)
        if one is None:
            raise InputError(f"{option('gpus')}: there is no GPU {number}; the machine has {machine.label}")
        if not one.free:
            used = f"{one.used_bytes / 2**30:,.0f} of {one.memory_bytes / 2**30:,.0f} GiB"
            raise InputError(f"{option('gpus')}: others use {used} of GPU {number} ({one.name}); name another or wait")
        found.append(one)
    return tuple(found)


def placed(devices: Sequence[Device], size: int, instances: int | None, wanted: int | None = None) -> tuple[tuple[Device, ...], ...]:
    """A group of GPUs for each instance.

    Args:
        devices: that may be used.
        size: GPUs of an instance.
        instances: how many were asked for; None for ``wanted``, or as many as fit if those are fewer.
        wanted: by the plan; None for as many as fit.

    Raises:
        InputError: not enough GPUs.
    """
    found = groups(devices, size)
    if not found:
        raise InputError(f"{option('gpus')}: an instance takes {size} GPUs, and {len(devices)} are free")
    if instances is None:
        return found[: min(len(found), wanted or len(found))]
    if instances > len(found):
        raise InputError(
            f"{option('instances')}: {instances} instances of {size} GPUs each need {instances * size}; {len(devices)} are free"
        )
    return found[:instances]


def check_planned(pool: Pool, machine: Machine, deployment: Deployment) -> None:
    """Refuse what a plan chose where this machine cannot run it: other GPUs, formats, drivers, memory.

    Raises:
        InputError: naming what is wrong.
        DoesNotFit: the memory of these GPUs does not hold the model.
    """
    where = option("plan")
    if not machine.devices:
        raise InputError(f"{where}: is for {pool.gpu}, and this machine has no GPU that a driver shows ({machine.label})")
    if machine.gpu != pool.gpu:
        here = machine.gpu or machine.label
        raise InputError(f"{where}: is for {pool.gpu}, and this machine has {here}; size again with {option('gpu')} for what is here")
    engine = find_engine(pool.engine_preset or pool.engine.partition(" + ")[0])
    lacking = missing(engine, machine, machine.devices) or lacks(engine, find_gpu(pool.gpu), find_precision(pool.precision))
    if lacking:
        raise InputError(f"{where}: {lacking}")
    if pool.parallelism.gpus > len(machine.devices):
        raise InputError(
            f"{where}: an instance takes {pool.parallelism.gpus} GPUs, and this machine has {len(machine.devices)}; "
            "write files for several machines with tonnage deploy"
        )
    if pool.pp == 1:
        memory_plan(deployment)


def across(chosen: Sequence[Sequence[Device]]) -> str:
    """A sentence where an instance spans GPUs that nothing joins directly; empty where none does."""
    apart = [group for group in chosen if len(group) > 1 and not joined(group)]
    if not apart:
        return ""
    numbers = ", ".join(str(one.index) for one in apart[0])
    return f"GPUs {numbers} of one instance are not all joined by NVLink; what they exchange goes over PCIe."
