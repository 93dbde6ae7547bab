"""What two pools need, as values to show and to save."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class SizedPools:
    """One deployment as two pools.

    Attributes:
        deployment: in words.
        ratio: instances, such as "2:3"; empty where none meet the limits.
        gpus: of both pools; 0 where none meet the limits.
        together_gpus: of instances that do both; None where that is not known or not possible.
        ttft_p95_ms, itl_p99_ms, tpot_ms, e2e_p95_ms: what requests see there.
        reason: why it cannot be; empty where it can.
    """

    deployment: str
    ratio: str = ""
    gpus: int = 0
    together_gpus: int | None = None
    ttft_p95_ms: float | None = None
    itl_p99_ms: float | None = None
    tpot_ms: float | None = None
    e2e_p95_ms: float | None = None
    reason: str = ""

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)
