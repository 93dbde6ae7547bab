"""One measured point: a deployment under one load, and what came out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tonnage.spec.deployment import LimitMetric, Statistic

STEADY = 0.95
"""Requests/s × mean E2E over clients from which a closed loop counts as steady."""


def is_steady(row: Mapping[str, Any]) -> bool:
    """Whether a row of our columns is steady; one that cannot tell, such as an open loop's, counts as it."""
    clients, rate, e2e = row.get("concurrency"), row.get("requests_s"), row.get("e2e_ms")
    return clients is None or rate is None or e2e is None or bool(rate * e2e / 1e3 / clients >= STEADY)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPoint:
    """One measured point.

    Attributes:
        model, gpu, precision, engine: as the file writes them.
        tp, pp: parallel degrees; the instance that was measured has tp × pp GPUs.
        isl, osl: prompt and output lengths in tokens.
        concurrency: clients of the closed loop; None where the load was a rate.
        request_rate: requests per second sent; None where the load was a closed loop.
        latencies_ms: by metric ("ttft", "itl", "tpot", "e2e") and statistic ("mean", "p50", … "p99"), in
            milliseconds; what was not measured is absent.
        requests_s: completed requests per second; None where neither it nor the tokens were measured.
        output_tok_s: output tokens per second; None where it was not measured.
        source: where the point comes from: the file's own word for it, or file and line.
    """

    model: str
    gpu: str
    precision: str
    engine: str
    tp: int
    pp: int
    isl: int
    osl: int
    concurrency: int | None
    request_rate: float | None
    latencies_ms: Mapping[str, Mapping[str, float]]
    requests_s: float | None
    output_tok_s: float | None
    source: str

    @property
    def load(self) -> str:
        """The load in words, such as "closed loop of 10 clients"."""
        if self.concurrency is None:
            return f"open loop at {self.request_rate:g} requests/s"
        return f"closed loop of {self.concurrency} client{'s' if self.concurrency > 1 else ''}"

    @property
    def load_size(self) -> float:
        """What the points of one curve are in order of: clients, or requests per second."""
        return float(self.concurrency if self.concurrency is not None else self.request_rate or 0.0)

    def statistic_ms(self, metric: LimitMetric, statistic: Statistic) -> float | None:
        """One statistic in milliseconds, or None where it was not measured."""
        return self.latencies_ms.get(metric, {}).get(statistic)

    @property
    def steadiness(self) -> float | None:
        """Requests/s × mean E2E over the clients: 1 when the clients were always waiting for an answer (Little's law).

        Below ``STEADY`` the run was not steady; None where it cannot be told.
        """
        e2e = self.latencies_ms.get("e2e", {}).get("mean")
        if e2e is None or self.requests_s is None or self.concurrency is None:
            return None
        return self.requests_s * e2e / 1e3 / self.concurrency
