"""A workload described: what recorded traffic says of lengths, arrivals and shared prefixes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tonnage.units import NS_PER_S
from tonnage.workload.burstiness import Burstiness, burstiness
from tonnage.workload.fitted_arrivals import FittedArrivals, fitted_arrivals
from tonnage.workload.fitted_lengths import FittedLengths, fitted_lengths
from tonnage.workload.limits import EngineLimits, KvGain, engine_limits
from tonnage.workload.sharing import Sharing, sharing
from tonnage.workload.spread import Spread, spread
from tonnage.workload.traffic import Traffic

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """What was found.

    Attributes:
        traffic: what was described.
        isl, osl: lengths in tokens.
        correlation: Spearman's rank correlation of prompt and output lengths; None where all prompts or all outputs are alike.
        burstiness: of the arrivals.
        fitted_isl, fitted_osl: the nearest distribution of each.
        fitted_arrivals: the nearest process.
        sharing: what prompts share; None where the file does not say.
        limits: lengths at the 99th percentile.
        gain: what these save on an instance; None where no model was named.
    """

    traffic: Traffic
    isl: Spread
    osl: Spread
    correlation: float | None
    burstiness: Burstiness
    fitted_isl: FittedLengths
    fitted_osl: FittedLengths
    fitted_arrivals: FittedArrivals
    sharing: Sharing | None
    limits: EngineLimits
    gain: KvGain | None = None

    def to_json(self) -> dict[str, Any]:
        """Lengths in tokens, times in seconds, shares from 0 to 1; what is not known is null."""
        recording = self.traffic.recording
        return {
            "source": recording.source,
            "requests": len(recording),
            "failed_requests": recording.failed,
            "span_s": recording.due_ns[-1] / NS_PER_S,
            "mean_rps": recording.mean_rps,
            "isl": {**self.isl.to_json(), "fitted": self.fitted_isl.to_json()},
            "osl": {**self.osl.to_json(), "fitted": self.fitted_osl.to_json()},
            "rank_correlation": self.correlation,
            "arrivals": {**self.burstiness.to_json(), "fitted": self.fitted_arrivals.to_json()},
            "sharing": None if self.sharing is None else self.sharing.to_json(),
            "cached_tokens": self.traffic.cached_tokens,
            "engine_limits": self.limits.to_json(),
            "kv_gain": None if self.gain is None else self.gain.to_json(),
        }


def describe(traffic: Traffic) -> Description:
    """Everything but what a model's memory says."""
    import numpy as np

    recording = traffic.recording
    isl, osl = np.array(recording.isl, dtype=np.int64), np.array(recording.osl, dtype=np.int64)
    arrivals = burstiness(np.array(recording.due_ns) / NS_PER_S)
    fitted_isl, fitted_osl = fitted_lengths(isl), fitted_lengths(osl)
    seen_isl, seen_osl = spread(isl), spread(osl)
    return Description(
        traffic=traffic,
        isl=seen_isl,
        osl=seen_osl,
        correlation=rank_correlation(isl, osl),
        burstiness=arrivals,
        fitted_isl=fitted_isl,
        fitted_osl=fitted_osl,
        fitted_arrivals=fitted_arrivals(arrivals),
        sharing=sharing(traffic),
        limits=engine_limits(seen_isl, seen_osl, list(zip(recording.isl, recording.osl, strict=True))),
    )


def rank_correlation(first: NDArray[np.int64], second: NDArray[np.int64]) -> float | None:
    """Spearman's: Pearson's correlation of the ranks, where equal values share their mean rank; None where one has no variance."""
    import numpy as np

    if first.min() == first.max() or second.min() == second.max():
        return None
    return float(np.corrcoef(_ranks(first), _ranks(second))[0, 1])


def _ranks(values: NDArray[np.int64]) -> NDArray[np.float64]:
    import numpy as np

    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    middle = counts.cumsum() - (counts - 1) / 2
    return np.asarray(middle[places], dtype=np.float64)
