"""What the router is worth: the same fleet at its peak behind the chosen router and behind others."""

from __future__ import annotations

from dataclasses import dataclass

from tonnage.results.latencies import Latencies
from tonnage.spec.typed_values import FORBID


@dataclass(frozen=True, slots=True, kw_only=True)
class BehindRouter:
    """The choice behind one router.

    Attributes:
        router: a name of ``simulator.router``.
        systems: the fewest, without spare ones, that hold the limits behind it at the asked confidence; None where no number does.
        ttft_ms, itl_ms, tpot_ms, e2e_ms: latencies of the systems of the plan at the peak, as predicted, in milliseconds.
    """

    __pydantic_config__ = FORBID

    router: str
    systems: int | None
    ttft_ms: Latencies
    itl_ms: Latencies
    tpot_ms: Latencies
    e2e_ms: Latencies
