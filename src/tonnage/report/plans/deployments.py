"""Deployments as a reader meets them: what they are called, how they are split, how requests reach
them, where their memory goes.

A candidate has one pool as a rule; where it has several, each is named with its role.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

from tonnage.errors import option
from tonnage.plan.candidate import Candidate, Identity, MemoryPart, Pool
from tonnage.plan.limit import Load
from tonnage.plan.plan import Plan
from tonnage.report.numbers import counted, number, plain, whole
from tonnage.report.plans.question import bound_text, latency
from tonnage.spec.deployment import EngineKnobs
from tonnage.units import format_gb

# What the memory of a GPU is used for
MEMORY = {
    "weights": "weights",
    "drafter": "drafter",
    "adapters": "LoRA adapters",
    "encoder": "image encoder",
    "activations": "activations",
    "reserve": "context, communication and graphs",
    "kv_cache": "KV cache",
    "unused": "unused",
}


def split(deployment: Identity, joint: str = ", ") -> str:
    """The degrees, such as "TP 4" or "TP 1, DP 8, EP 8"; those of 1 but the first are left out."""
    degrees = {"pp": deployment.pp, "dp": deployment.dp, "ep": deployment.ep}
    return joint.join(
        [
            f"TP {deployment.tp}",
            *(f"{name.upper()} {degree}" for name, degree in degrees.items() if degree > 1),
        ]
    )


def name_of(deployment: Identity) -> str:
    """Such as "FP8, TP 2, vllm on h100-sxm-80gb"."""
    return (
        f"{deployment.precision.upper()}, {split(deployment)}, {deployment.engine} on"
        f" {deployment.gpu}"
    )


def unlike(choice: Candidate, identity: Identity, *, gpu: bool = True) -> str:
    """What another deployment has unlike the choice: "TP 8", or "FP8, TP 1, vllm-0.32 on
    h200-sxm-141gb"; "" where it has nothing.
    """
    if len({pool.identity for pool in choice.pools}) != 1:
        return name_of(identity)
    chosen_pool = choice.pools[0]
    same = (
        chosen_pool.precision == identity.precision,
        chosen_pool.parallelism == identity.parallelism,
        chosen_pool.engine == identity.engine,
    )
    named = (identity.precision.upper(), split(identity), identity.engine)
    words = ", ".join(name for name, alike in zip(named, same, strict=True) if not alike)
    return (
        words
        if chosen_pool.gpu == identity.gpu or not gpu
        else f"{words} on {identity.gpu}".strip()
    )


def deployment(candidate: Candidate) -> str:
    """Name the deployment; where pools differ, each of them with its role."""
    if len({pool.identity for pool in candidate.pools}) == 1:
        return name_of(candidate.pools[0])
    return "; ".join(f"{pool.role}: {name_of(pool)}" for pool in candidate.pools)


def deployments(candidate: Candidate) -> str:
    """Such as "16 instances of FP8, TP 1, vllm-0.32 on h100-sxm-80gb", or "3 prefill and 5 decode
    instances of …".
    """
    if len(candidate.pools) > 1:
        return f"{instances(candidate)} instances of {deployment(candidate)}"
    return f"{counted(candidate.instances, 'instance')} of {deployment(candidate)}"


def instances(candidate: Candidate) -> str:
    """Write the number of instances, such as "16", or "3 prefill and 5 decode"."""
    if len(candidate.pools) > 1:
        return " and ".join(f"{pool.instances:,} {pool.role}" for pool in candidate.pools)
    return f"{candidate.instances:,}"


def other_way_text(plan: Plan) -> str:
    """What two pools would need where that is fewer GPUs, and what instances that do both need
    where the choice is in two pools.
    """
    other_serving = plan.pools_instead or plan.together_instead
    if other_serving is None:
        return ""
    if other_serving.ratio:
        prefill, decode = other_serving.ratio.split(":")
        serving = f"{prefill} prefill and {decode} decode instances"
    else:
        serving = f"{counted(other_serving.instances, 'instance')} for both prefill and decode"
    gpus = (
        f"{abs(other_serving.saved):,} {'fewer' if other_serving.saved > 0 else 'more'} GPUs"
        if other_serving.saved
        else "as many GPUs"
    )
    bought_then = (
        f"{other_serving.systems:,} × {other_serving.system}"
        f" ({exact_number(other_serving.systems_exact)} exactly)"
    )
    return f"{gpus} with {serving}: {bought_then}, {name_of(other_serving.deployment)}"


def narrow_cache_text(plan: Plan) -> str:
    """Systems that a KV cache in FP8 saves, and published losses of score; "" where it saves
    nothing, or was not tried.
    """
    narrow, best = plan.narrow_cache, plan.choice
    if narrow is None or best is None:
        return ""
    fewer = (
        f"{narrow.systems:,} × {narrow.system}" if narrow.gpus < best.gpus else "as many systems"
    )
    losses = ", ".join(
        f"{loss.least:g} to {loss.most:g}% of the score in {loss.benchmark}"
        for loss in narrow.losses
    )
    return (
        f"{option('precision')} {narrow.deployment.precision} keeps {narrow.times:.1f} times the"
        f" tokens: {fewer} ({exact_number(narrow.systems_exact)} exactly); published losses"
        f" {losses} ({narrow.source.partition(' (')[0]})"
    )


def of_pools(candidate: Candidate, read: Callable[[Pool], str]) -> str:
    """Write a property of the pools, once where all have the same: "fp8", or "fp8 + fp16"."""
    return " + ".join(dict.fromkeys(read(pool) for pool in candidate.pools))


def systems(candidate: Candidate) -> str:
    """Such as "5 × dgx-h100"."""
    counts: Counter[str] = Counter()
    for pool in candidate.pools:  # pools on one kind of system share them
        counts[pool.system] = max(counts[pool.system], pool.systems)
    return " + ".join(f"{count:,} × {system}" for system, count in counts.items())


def exactly_text(systems: float) -> str:
    """Systems before rounding up: "4.81 systems exactly", "just over 1 system"."""
    text = exact_number(systems)
    return (
        f"just over {counted(math.floor(systems), 'system')}"
        if text.startswith("just")
        else f"{text} systems exactly"
    )


def exact_number(systems: float) -> str:
    """Systems before rounding up, with digits enough to see which way: "4.81", "1.002", "just over
    1".
    """
    for digits in (3, 4):
        text = number(systems, digits)
        if math.ceil(float(text.replace(",", ""))) >= math.ceil(round(systems, 9)):
            return text
    return f"just over {math.floor(systems):,}"


def bought(candidate: Candidate, spare: int = 0) -> str:
    """Systems, GPUs, and systems before rounding up: "5 × dgx-h100 (40 GPUs; 4.81 systems exactly,
    1 spare)".
    """
    exactly = f"{exactly_text(candidate.systems_exact)}{f', {spare} spare' if spare else ''}"
    return f"{systems(candidate)} ({counted(candidate.gpus, 'GPU')}; {exactly})"


def knobs(candidate: Candidate) -> str:
    """The engine's knobs in words; "" where they are not known."""
    return of_pools(candidate, lambda pool: _knobs(pool.knobs))


def _knobs(engine_knobs: EngineKnobs | None) -> str:
    if engine_knobs is None:
        return ""
    chunked = "chunked prefill" if engine_knobs.chunked_prefill else "prefill in one piece"
    return (
        f"max batch {plain(engine_knobs.max_batch_size)}, {plain(engine_knobs.max_num_tokens)}"
        f" tokens a step, {chunked}"
    )


def tip(candidate: Candidate) -> str:
    """The whole configuration of a candidate, one fact a line."""
    rate, per_8 = (
        candidate.requests_per_second_per_instance,
        candidate.requests_per_second_per_8_gpus,
    )
    lines = [
        deployment(candidate),
        (
            f"{systems(candidate)}, exactly {number(candidate.systems_exact)};"
            f" {counted(candidate.instances, 'instance')}"
        ),
        f"{number(rate)} requests/s an instance, {number(per_8)} per 8 GPUs",
        *(
            latency(candidate)
            if candidate.at_peak is None
            else [f"at the peak: {line}" for line in latency(candidate.at_peak)]
        ),
        f"ends at: {bound_text(candidate.binds)}",
        knobs(candidate),
    ]
    return "\n".join(line for line in lines if line)


def deployment_text(deployment: Identity) -> str:
    """Such as "h100-sxm-80gb fp8 TP 4 tensorrt-llm"."""
    return f"{deployment.gpu} {deployment.precision} {deployment.parallelism} {deployment.engine}"


def load_text(load: Load) -> str:
    """Describe how requests reach an instance, such as "open loop, Poisson arrivals at 15.9
    requests/s".
    """
    if load.measured:
        return f"{measured_load_text(load)}, measured"
    if load.kind == "queued":
        return "all requests queued from the start"
    if load.kind == "trace":
        return f"its share of the trace, {number(load.requests_per_second)} requests/s on average"
    if load.kind == "closed":
        return f"closed loop of {whole(load.clients)} clients"
    process = "Poisson" if load.process == "poisson" else f"{load.process}"
    varied = "" if load.cv is None else f" (CV {plain(load.cv)})"
    return f"open loop, {process}{varied} arrivals at {number(load.requests_per_second)} requests/s"


def measured_load_text(load: Load) -> str:
    """The load of a measured point, such as "closed loop of 10 clients"."""
    if load.clients is None:
        return f"open loop at {plain(load.requests_per_second)} requests/s"
    return f"closed loop of {whole(load.clients)} client{'s' if load.clients > 1 else ''}"


def memory_text(parts: Sequence[MemoryPart], kv_tokens: int | None) -> str:
    """Divide the memory of one GPU in one line; "" where it is not known."""
    if not parts:
        return ""
    sizes = {part.part: part.bytes_per_gpu for part in parts}
    beside = "".join(
        f"{format_gb(sizes[part])} {MEMORY[part]} + "
        for part in ("drafter", "adapters", "encoder")
        if part in sizes
    )
    kv_words = "" if kv_tokens is None else f" ({kv_tokens:,} tokens)"
    return (
        f"{format_gb(sizes['weights'])} weights +"
        f" {beside}{format_gb(sizes['activations'] + sizes['reserve'])} activations and reserve +"
        f" {format_gb(sizes['kv_cache'])} KV cache per GPU{kv_words}"
    )
