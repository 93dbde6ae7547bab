"""What requests see when the load is the one that was asked for."""

from __future__ import annotations

from dataclasses import dataclass

from tonnage.results.latencies import Latencies
from tonnage.spec.typed_values import FORBID


@dataclass(frozen=True, slots=True, kw_only=True)
class AtPeak:
    """A deployment under the asked peak, on its number of systems, by the prediction as it is; spare systems stand by.

    Attributes:
        requests_per_second_per_instance: the share of one instance.
        ttft_ms, itl_ms, tpot_ms, e2e_ms: latencies in milliseconds.
        utilisation: the peak over what these instances carry inside the limits.
        instances: how many were simulated together: the whole fleet of the choice, one instance under its share elsewhere.
    """

    __pydantic_config__ = FORBID

    requests_per_second_per_instance: float
    ttft_ms: Latencies
    itl_ms: Latencies
    tpot_ms: Latencies
    e2e_ms: Latencies
    utilisation: float
    instances: int
