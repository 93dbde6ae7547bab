"""What other clients call by the same names: their definitions, computed from this run's own record.

Sources: GenAI-Perf 0.0.16, AIPerf 0.13, GuideLLM 0.8.1 and vLLM 0.33, as their code computes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tonnage.results.requests import COMPLETED, Requests

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

WORDS = {
    "gap_by_event_ms": "every gap between two events of different moments, pooled (vLLM's itl, AIPerf's inter chunk latency)",
    "tpot_by_event_ms": "(last token − first) / (tokens − tokens of the first event), one value per request",
    "tpot_with_ttft_ms": "(last token − sent) / tokens, one value per request (GuideLLM's time per output token, llmperf's ITL)",
    "inter_token_latency_ms": "(last token − first) / (tokens − 1), one value per request (GenAI-Perf, AIPerf): our TPOT",
    "request_latency_ms": "last token − sent, one value per request (GenAI-Perf, AIPerf, vLLM)",
}


def others(requests: Requests, offsets_ns: NDArray[np.int64], lengths: NDArray[np.int64]) -> dict[str, Any]:
    """Mean and percentiles of each, in milliseconds, with its definition.

    Args:
        requests: the record.
        offsets_ns, lengths: the moments of all tokens after ``sent_ns``, and how many belong to each request.
    """
    import numpy as np

    good = (requests.status == COMPLETED) & (lengths > 0)
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    first, last = starts[good], (starts + lengths - 1)[good]
    n = lengths[good]
    owner = np.repeat(np.arange(len(lengths)), lengths)
    with_first = np.bincount(owner[offsets_ns == np.repeat(_at(offsets_ns, starts, lengths), lengths)], minlength=len(lengths))[good]
    decode = (offsets_ns[last] - offsets_ns[first]).astype(np.float64)
    steps = np.diff(offsets_ns)
    inside = np.ones(max(len(offsets_ns) - 1, 0), dtype=bool)
    inside[starts[1:][(starts[1:] > 0) & (starts[1:] <= len(inside))] - 1] = False
    inside &= good[owner[:-1]] if len(owner) else inside
    several, later = n > 1, n > with_first
    values = {
        "gap_by_event_ms": steps[inside & (steps > 0)],
        "tpot_by_event_ms": decode[later] / (n - with_first)[later],
        "tpot_with_ttft_ms": offsets_ns[last] / n,
        "inter_token_latency_ms": decode[several] / (n - 1)[several],
        "request_latency_ms": offsets_ns[last],
    }
    return {name: {**_statistics(found), "definition": WORDS[name]} for name, found in values.items()}


def _at(offsets_ns: NDArray[np.int64], starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """The first moment of each request; 0 where it has none."""
    import numpy as np

    found = np.zeros(len(lengths), dtype=np.int64)
    found[lengths > 0] = offsets_ns[starts[lengths > 0]]
    return found


def _statistics(nanoseconds: NDArray[Any]) -> dict[str, float | None]:
    import numpy as np

    if not nanoseconds.size:
        return dict.fromkeys(("mean", "p50", "p90", "p95", "p99"))
    p50, p90, p95, p99 = (float(v) / 1e6 for v in np.percentile(nanoseconds, (50, 90, 95, 99)))
    return {"mean": float(nanoseconds.mean()) / 1e6, "p50": p50, "p90": p90, "p95": p95, "p99": p99}
