"""Memory below the KV cache, such as host memory or a disk: how many blocks it keeps, and how long
one of them takes to come back.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tonnage.errors import InputError, option
from tonnage.spec.catalog import find_engine, find_offloading, usual_offloading
from tonnage.spec.catalog.interfaces import starts_offloading
from tonnage.spec.deployment import Deployment, Parallelism
from tonnage.spec.kv_tiers import KV_SHARE, PLAIN, AskedTier, KvTiers, Offloading, SystemTier
from tonnage.units import PS_PER_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tonnage.perf.memory import MemoryPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """One tier.

    The step in which a request enters waits for the transfers of what it finds there, or is as long
    as these where they overlap; what goes down costs no time, as it is written while the engine
    computes.
    """

    blocks: int  # KV blocks that it keeps
    block_ps: int  # picoseconds in which one of them is moved up
    latency_ps: int = 0  # picoseconds before the first one of a request comes
    overlaps: bool = False  # whether the step computes meanwhile


def resolved_tiers(
    kv_tiers: KvTiers, deployment: Deployment, memories: Sequence[SystemTier], gpus_per_system: int
) -> tuple[Offloading, tuple[AskedTier, ...]]:
    """The offloader of a deployment, and its tiers for one instance, each with everything said.

    Args:
        kv_tiers: what the question asks for.
        deployment: one instance.
        memories: of a whole system; an instance has its share of them, or those of all its systems.
        gpus_per_system: GPUs of one.

    Raises:
        InputError: a memory was named of which the system says nothing.
    """
    if kv_tiers.off:
        return PLAIN, ()
    if kv_tiers.offloader:
        rules = find_offloading(kv_tiers.offloader)
    else:
        sized, engine = (
            kv_tiers.tiers and all(tier.whole for tier in kv_tiers.tiers),
            find_engine(deployment.engine),
        )
        rules = PLAIN if sized else usual_offloading(engine.family)
        if kv_tiers.usual and not starts_offloading(rules, engine):
            return PLAIN, ()
    share = deployment.parallelism.gpus / gpus_per_system
    by_kind: dict[str, SystemTier] = {memory.kind: memory for memory in memories}
    asked_tiers = []
    for tier in kv_tiers.tiers or tuple(AskedTier(name=kind) for kind in rules.tiers):
        memory = by_kind.get(tier.name)
        if tier.whole:
            asked_tiers.append(replace(tier, latency_s=tier.latency_s or 0.0))
        elif memory is None or (tier.size is None and memory.gb is None):
            if not kv_tiers.usual:
                lacking = "no size" if memory is not None else "nothing"
                raise InputError(
                    f"{option('kv_tiers')}: the catalog says {lacking} of the {tier.name} of"
                    f" {deployment.gpu.name}'s systems; write such as {tier.name}=4TB@50GB/s"
                )
        else:
            size = (
                round((memory.gb or 0.0) * 1e9 * KV_SHARE[tier.name] * share)
                if tier.size is None
                else tier.size
            )
            speed = round(memory.gb_s * 1e9 * share) if tier.speed is None else tier.speed
            latency = memory.latency_us * 1e-6 if tier.latency_s is None else tier.latency_s
            asked_tiers.append(AskedTier(name=tier.name, size=size, speed=speed, latency_s=latency))
    return rules, tuple(asked_tiers)


def tiers_of(
    kv_tiers: KvTiers,
    deployment: Deployment,
    memory: MemoryPlan,
    *,
    memories: Sequence[SystemTier],
    gpus_per_system: int,
    block_tokens: int,
) -> tuple[Tier, ...]:
    """The memory below the KV cache of each attention rank, in blocks of ``block_tokens`` tokens;
    other arguments as above.

    A tier of copies keeps what is above it too, so that only the rest of it counts: the least
    recently used block of both together is the one that is forgotten
    (``tests/simulator/test_tiers.py``).
    """
    from tonnage.perf.memory import kv_bytes_per_token

    rules, tiers = resolved_tiers(kv_tiers, deployment, memories, gpus_per_system)
    moved = block_bytes = memory.kv_bytes_per_token * block_tokens * deployment.parallelism.gpus
    if rules.once:
        whole = (
            kv_bytes_per_token(replace(deployment, parallelism=Parallelism(tp=1)))
            * deployment.parallelism.dp
        )
        block_bytes = min(moved, whole * block_tokens)
    sized_tiers, above = [], memory.tokens // block_tokens if rules.copies else 0
    for tier in tiers:
        blocks = int((tier.size or 0) // block_bytes)
        sized_tiers.append(
            Tier(
                blocks=max(blocks - above, 0),
                block_ps=-int(-moved * PS_PER_S // (tier.speed or 1)),
                latency_ps=round((tier.latency_s or 0.0) * PS_PER_S),
                overlaps=rules.overlaps,
            )
        )
        above = max(above, blocks) if rules.copies else 0
    return tuple(sized_tiers)
