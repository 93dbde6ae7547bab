"""The metrics of a run over its steady window alone: what is left once its beginning is left out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tonnage.results.requests import COMPLETED, Requests

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tonnage.bench.single_gaps import SingleGaps
    from tonnage.bench.steady import Steady

DEFINITION = "requests due in the window; rates count the requests that end in it and their output tokens, over its length"


def steady_metrics(requests: Requests, steady: Steady, gaps: SingleGaps | None) -> dict[str, Any] | None:
    """TTFT, TPOT, E2E and ITL in milliseconds, and the rates, over the steady window; None where there is none.

    Args:
        requests: the record.
        steady: where it is steady.
        gaps: single gaps; None where the moments of tokens were not kept, which leaves ITL out.
    """
    import numpy as np

    if not steady.found:
        return None
    start, end = round(steady.start_s * 1e9), round(steady.end_s * 1e9)
    completed = requests.status == COMPLETED
    inside = completed & (requests.due_ns >= start) & (requests.due_ns <= end)
    ended = completed & (requests.last_token_ns >= start) & (requests.last_token_ns <= end)
    seconds = (end - start) / 1e9
    if not inside.any() or seconds <= 0:
        return None
    due, first, last, osl = (getattr(requests, name)[inside] for name in ("due_ns", "first_token_ns", "last_token_ns", "osl"))
    several = osl > 1
    return {
        "start_s": steady.start_s,
        "end_s": steady.end_s,
        "requests": int(inside.sum()),
        "ttft_ms": _statistics((first - due) / 1e6),
        "tpot_ms": _statistics((last - first)[several] / np.maximum(osl - 1, 1)[several] / 1e6),
        "e2e_ms": _statistics((last - due) / 1e6),
        **({} if gaps is None else {"itl_ms": gaps.of(inside).statistics()}),
        "requests_per_second": float(ended.sum()) / seconds,
        "output_tokens_per_second": float(requests.osl[ended].sum()) / seconds,
        "definition": DEFINITION,
    }


def _statistics(values: NDArray[np.float64]) -> dict[str, float | None]:
    import numpy as np

    if not values.size:
        return dict.fromkeys(("mean", "p50", "p90", "p95", "p99"))
    p50, p90, p95, p99 = map(float, np.percentile(values, (50, 90, 95, 99)))
    return {"mean": float(values.mean()), "p50": p50, "p90": p90, "p95": p95, "p99": p99}
