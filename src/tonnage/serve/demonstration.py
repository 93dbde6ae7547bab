"""What a demonstration found: a simulated fleet measured over the wire, next to what the simulator
predicts of the same requests.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from tonnage.results.metrics import Summary

WITHIN = {"ttft_ms": 0.05, "tpot_ms": 0.02, "requests_per_second": 0.02}
"""How far measured and predicted means may be apart, as a share of the predicted one."""

# By so much a first token may be late in any case: two hops of HTTP, and reading the prompt, take
# time that no GPU does
TTFT_MS = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """One metric of a run, predicted and measured."""

    metric: str  # its name, as in ``summary.json``
    predicted: float  # and measured: means over the run
    measured: float

    @property
    def difference(self) -> float:
        """Measured over predicted, less 1."""
        return self.measured / self.predicted - 1

    @property
    def agrees(self) -> bool:
        """Whether they are as near as a client over HTTP can see."""
        near = abs(self.difference) <= WITHIN[self.metric]
        return near or (self.metric == "ttft_ms" and abs(self.measured - self.predicted) <= TTFT_MS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The effect of killing one instance under load."""

    instance: str  # the one that was killed
    after_s: float  # seconds into the load
    # seconds from the kill until it served again; None if it did not while the load lasted
    back_s: float | None
    # and completed, failed: requests of the load; ``failed`` counts the streams that had begun
    # there
    sent: int
    completed: int
    failed: int
    # requests that the gateway sent to another instance because the first had not begun to answer
    retried: int
    ttft_p95_ms: float | None  # over the completed requests; None where none completed


@dataclass(frozen=True, slots=True, kw_only=True)
class Demonstration:
    """A demonstration."""

    fleet: str  # and load: deployment and requests, in words
    load: str
    requests: int  # completed ones of the first load, which are compared
    beside: tuple[Beside, ...]
    client: str  # the client's own verdict on its measurement
    client_reasons: tuple[str, ...]  # why it cannot be believed, where that is so
    failure: Failure  # of the second load

    @property
    def verdict(self) -> str:
        """Whether all metrics agree: agree or differ."""
        return "agree" if all(beside.agrees for beside in self.beside) else "differ"

    def to_json(self) -> dict[str, Any]:
        """Predicted, measured and the verdict by name."""
        return {
            "verdict": self.verdict,
            "fleet": self.fleet,
            "load": self.load,
            "requests": self.requests,
            "predicted": {beside.metric: beside.predicted for beside in self.beside},
            "measured": {beside.metric: beside.measured for beside in self.beside},
            "difference": {beside.metric: beside.difference for beside in self.beside},
            "validity": {"verdict": self.client, "reasons": list(self.client_reasons)},
            "failure": asdict(self.failure),
        }


def beside(predicted: Summary, measured: Summary) -> tuple[Beside, ...]:
    """The metrics of ``WITHIN`` of two runs of the same requests."""
    return tuple(
        Beside(metric=name, predicted=_mean(predicted, name), measured=_mean(measured, name))
        for name in WITHIN
    )


def _mean(summary: Summary, name: str) -> float:
    value = getattr(summary, name)
    return float(value if isinstance(value, float) else value.mean)
