"""Memory below the KV cache, such as host memory or a disk: how many blocks it keeps, and how long one of them takes to come back."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """One tier.

    The step in which a request enters waits for the transfers of what it finds there, or is as long as these where they overlap; what goes
    down costs no time, as it is written while the engine computes.

    Attributes:
        blocks: KV blocks that it keeps.
        block_ps: picoseconds in which one of them is moved up.
        latency_ps: picoseconds before the first one of a request comes.
        overlaps: whether the step computes meanwhile.
    """

    blocks: int
    block_ps: int
    latency_ps: int = 0
    overlaps: bool = False
