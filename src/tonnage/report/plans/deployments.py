"""Deployments as a reader meets them: what they are called, how they are split, how fast they are.

A candidate has one pool as a rule; where it has several, each is named with its role.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from tonnage.report.numbers import counted, number, plain
from tonnage.report.wording.limits import bound_text

if TYPE_CHECKING:
    from tonnage.plan.at_peak import AtPeak
    from tonnage.plan.candidate import Candidate
    from tonnage.plan.identity import Identity
    from tonnage.plan.plan import Plan
    from tonnage.plan.pool import Pool
    from tonnage.spec.deployment import EngineKnobs

METRICS = ("ttft", "itl", "tpot", "e2e")


def split(deployment: Identity, joint: str = ", ") -> str:
    """The degrees, such as "TP 4" or "TP 1, DP 8, EP 8"; those of 1 but the first are left out."""
    degrees = {"pp": deployment.pp, "dp": deployment.dp, "ep": deployment.ep}
    return joint.join([f"TP {deployment.tp}", *(f"{name.upper()} {degree}" for name, degree in degrees.items() if degree > 1)])


def name_of(deployment: Identity) -> str:
    """Such as "FP8, TP 2, vllm on h100-sxm-80gb"."""
    return f"{deployment.precision.upper()}, {split(deployment)}, {deployment.engine} on {deployment.gpu}"


def deployment(candidate: Candidate) -> str:
    """What is deployed; of several pools that differ each with its role."""
    if len({pool.identity for pool in candidate.pools}) == 1:
        return name_of(candidate.pools[0])
    return "; ".join(f"{pool.role}: {name_of(pool)}" for pool in candidate.pools)


def deployments(candidate: Candidate) -> str:
    """Such as "16 instances of FP8, TP 1, vllm-0.32 on h100-sxm-80gb", or "3 prefill and 5 decode instances of …"."""
    if len(candidate.pools) > 1:
        return f"{instances(candidate)} instances of {deployment(candidate)}"
    return f"{counted(candidate.instances, 'instance')} of {deployment(candidate)}"


def instances(candidate: Candidate) -> str:
    """How many, such as "16", or "3 prefill and 5 decode"."""
    if len(candidate.pools) > 1:
        return " and ".join(f"{pool.instances:,} {pool.role}" for pool in candidate.pools)
    return f"{candidate.instances:,}"


def other_way_text(plan: Plan) -> str:
    """What two pools would need where that is fewer GPUs, and what instances that do both need where the choice is in two pools."""
    found = plan.pools_instead or plan.together_instead
    if found is None:
        return ""
    if found.ratio:
        prefill, decode = found.ratio.split(":")
        serving = f"{prefill} prefill and {decode} decode instances"
    else:
        serving = f"{counted(found.instances, 'instance')} for both prefill and decode"
    gpus = f"{abs(found.saved):,} {'fewer' if found.saved > 0 else 'more'} GPUs" if found.saved else "as many GPUs"
    whole = f"{found.systems:,} × {found.system} ({number(found.systems_exact)} exactly)"
    return f"{gpus} with {serving}: {whole}, {name_of(found.deployment)}"


def of_pools(candidate: Candidate, read: Callable[[Pool], str]) -> str:
    """What the pools have, once where they have the same: "fp8", or "fp8 + fp16"."""
    return " + ".join(dict.fromkeys(read(pool) for pool in candidate.pools))


def systems(candidate: Candidate) -> str:
    """Such as "5 × dgx-h100"."""
    counts: Counter[str] = Counter()
    for pool in candidate.pools:  # pools on one kind of system stand in the same ones
        counts[pool.system] = max(counts[pool.system], pool.systems)
    return " + ".join(f"{count:,} × {system}" for system, count in counts.items())


def latency(candidate: Candidate | AtPeak, metrics: tuple[str, ...] = METRICS) -> tuple[str, ...]:
    """Mean and high percentiles of each latency that is known, such as "TTFT mean 104, p95 232, p99 305 ms"."""
    found = []
    for metric in metrics:
        values = getattr(candidate, f"{metric}_ms")
        known = [f"{name} {number(value)}" for name in ("mean", "p95", "p99") if (value := getattr(values, name)) is not None]
        found += [f"{metric.upper()} {', '.join(known)} ms"] if known else []
    return tuple(found)


def knobs(candidate: Candidate) -> str:
    """The engine's knobs in words; "" where they are not known."""
    return of_pools(candidate, lambda pool: _knobs(pool.knobs))


def _knobs(given: EngineKnobs | None) -> str:
    if given is None:
        return ""
    chunked = "chunked prefill" if given.chunked_prefill else "prefill in one piece"
    return f"max batch {plain(given.max_batch_size)}, {plain(given.max_num_tokens)} tokens a step, {chunked}"


def tip(candidate: Candidate) -> str:
    """The whole configuration of a candidate, one fact a line."""
    rate, per_8 = candidate.requests_per_second_per_instance, candidate.requests_per_second_per_8_gpus
    lines = [
        deployment(candidate),
        f"{systems(candidate)}, exactly {number(candidate.systems_exact)}; {counted(candidate.instances, 'instance')}",
        f"{number(rate)} requests/s an instance, {number(per_8)} per 8 GPUs",
        *(latency(candidate) if candidate.at_peak is None else [f"at the peak: {line}" for line in latency(candidate.at_peak)]),
        f"ends at: {bound_text(candidate.binds)}",
        knobs(candidate),
    ]
    return "\n".join(line for line in lines if line)
