"""Whether an instance has room for a request, and where it has none, what would have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tonnage.errors import DoesNotFit, InputError, option
from tonnage.perf.memory import memory_plan
from tonnage.perf.pipeline import largest_stage
from tonnage.spec.catalog import find_engine, find_gpu
from tonnage.spec.catalog.checkpoints import as_run
from tonnage.spec.deployment import Deployment
from tonnage.spec.precision import find_precision

TPS, NARROWER, LARGER = (2, 4, 8), ("fp8", "awq", "nvfp4"), ("h200", "b200", "b300")
"""Alternatives to a deployment, in the order in which they are tried: tensor-parallel degrees,
formats from wide to narrow, GPUs from small to large."""


def holds(deployment: Deployment, isl: int = 1, osl: int = 0) -> bool:
    """Whether an instance's memory has room for one request of ``isl`` prompt and ``osl`` output
    tokens.
    """
    try:
        return memory_plan(largest_stage(deployment)).concurrent_requests(isl, osl) > 0
    except InputError:
        return False


def check_room(deployment: Deployment, isl: int, osl: int) -> None:
    """Refuse a deployment that has no room for one request.

    Raises DoesNotFit: weights and reserves leave none for a KV block, or it exceeds the KV cache;
    with the nearest deployments that have room. InputError: the model cannot be split so.
    """
    try:
        plan = memory_plan(largest_stage(deployment))
    except DoesNotFit as error:
        raise DoesNotFit(error.marked + instead(deployment, isl, osl)) from None
    if plan.concurrent_requests(isl, osl) < 1:
        what = (
            f"one request of {isl + osl:,} tokens does not fit the KV cache of {plan.room:,} tokens"
        )
        raise DoesNotFit(what + instead(deployment, isl, osl))


def instead(deployment: Deployment, isl: int, osl: int) -> str:
    """Room for the request, as the end of a message: a wider instance, narrower numbers, a larger
    GPU, a shorter request.
    """
    wider, narrower = list(_wider(deployment)), list(_narrower(deployment))
    splits = [deployment, *(wide for _, wide in wider)]
    if "-mig-" in deployment.gpu.name:
        wider.clear()  # slices share no link
    both = [
        (f"{tp} {precision}", replace(wide, precision=narrow.precision))
        for tp, wide in wider
        for precision, narrow in narrower
    ]
    ways = [
        next((way for way, candidate in tried if holds(candidate, isl, osl)), "")
        for tried in (wider, narrower)
    ]
    ways = (
        ways
        if any(ways)
        else [next((way for way, candidate in both if holds(candidate, isl, osl)), "")]
    )
    ways.append(
        next(
            (way for way, candidate in _larger(deployment, splits) if holds(candidate, isl, osl)),
            "",
        )
    )
    if holds(deployment) and (room := memory_plan(largest_stage(deployment)).room) > 1:
        ways.append(f"requests of at most {room:,} tokens")
    offered = [way for way in ways if way]
    return (
        f"; what fits: {', or '.join(offered)}"
        if offered
        else "; no instance of 8 GPUs of the catalog's has room for it"
    )


def _wider(deployment: Deployment) -> Iterator[tuple[str, Deployment]]:
    for tp in TPS:
        if tp > deployment.parallelism.tp:
            yield (
                f"{option('tp')} {tp}",
                replace(deployment, parallelism=replace(deployment.parallelism, tp=tp, ep=1)),
            )


def _narrower(deployment: Deployment) -> Iterator[tuple[str, Deployment]]:
    """The deployment with an FP8 KV cache, and with narrower weights, as far as GPU and engine have
    them.
    """
    precision, engine = deployment.precision, find_engine(deployment.engine)
    names = [f"{precision.weights}+kv-fp8"] if precision.kv_bits > 8 else []
    names += [name for name in NARROWER if find_precision(name).weight_bits < precision.weight_bits]
    for name in names:
        narrow = as_run(find_precision(name), deployment.model, engine, deployment.gpu)
        if not (deployment.gpu.lacks(narrow) or engine.lacks(narrow)):
            yield f"{option('precision')} {name}", replace(deployment, precision=narrow)


def _larger(deployment: Deployment, splits: list[Deployment]) -> Iterator[tuple[str, Deployment]]:
    for name in LARGER:
        gpu = find_gpu(name)
        precision = find_engine(deployment.engine).runs(
            find_precision(deployment.precision.name), gpu
        )
        if gpu.memory_bytes > deployment.gpu.memory_bytes and not gpu.lacks(precision):
            for split in splits:
                tp = split.parallelism.tp
                degree = f" {option('tp')} {tp}" if tp > deployment.parallelism.tp else ""
                yield (
                    f"{option('gpu')} {name}{degree}",
                    replace(split, gpu=gpu, precision=precision),
                )
