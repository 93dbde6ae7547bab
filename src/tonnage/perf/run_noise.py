"""The noise of a finite run: how far its means and percentiles are from those of an endless one."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tonnage.results.requests import Requests

BLOCKS = 10
"""Number of parts of a run, in order of arrival, whose scatter tells the noise of the whole."""


def run_noise(requests: Requests) -> dict[str, float]:
    """Standard error of a run's means and rates as a share of them, from ``BLOCKS`` blocks in order of arrival.

    Blocks of an open loop hardly depend on each other once each is several latencies long; where waves of a closed
    loop repeat, the error is that of where the run was cut.

    Returns:
        By column: "ttft_ms", "itl_ms", "e2e_ms", "requests_s"; empty where too few requests completed.
    """
    import numpy as np

    values = _by_arrival(requests)
    found = {f"{name}_ms": _standard_error(values[name]) for name in ("ttft", "itl", "e2e") if name in values}
    if found:
        found["requests_s"] = _standard_error(np.diff(np.sort(values["last"])))
    return found


def _by_arrival(requests: Requests) -> dict[str, NDArray[np.float64]]:
    """Latencies of the completed requests in order of arrival, and when they ended, in ns; empty where too few completed."""
    import numpy as np

    from tonnage.results.requests import COMPLETED

    done = np.flatnonzero(requests.status == COMPLETED)
    if done.size < 4 * BLOCKS:
        return {}
    ordered = done[np.argsort(requests.due_ns[done], kind="stable")]
    due, first, last = (column[ordered].astype(float) for column in (requests.due_ns, requests.first_token_ns, requests.last_token_ns))
    per_token = (last - first) / np.maximum(requests.osl[ordered] - 1, 1)
    return {"ttft": first - due, "itl": per_token, "e2e": last - due, "last": last}


def _standard_error(values: NDArray[np.float64]) -> float:
    import numpy as np

    of_each = np.array([block.mean() for block in np.array_split(values, BLOCKS)])
    whole = float(of_each.mean())
    return float(of_each.std(ddof=1) / math.sqrt(BLOCKS) / whole) if whole > 0 else 0.0
