"""What is compared with measurements, and how far each metric is believed to scatter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

Terms = dict[str, Any]
"""The groups of ``terms.json``."""

METRICS = ("ttft_ms", "ttft_p95_ms", "itl_ms", "e2e_ms", "requests_s", "output_tok_s")
"""The metrics under load that are fitted; ``itl_ms`` is the TPOT."""

SIGMA = {"ttft_ms": 0.09, "ttft_p95_ms": 0.14, "itl_ms": 0.045, "e2e_ms": 0.045, "requests_s": 0.06, "output_tok_s": 0.06}
"""The believed scatter of the logarithm of each metric under load, which the rules of the simulation leave."""

STATIC_SIGMA = 0.05
"""The same for TTFT and token latency of static batches."""


def robust(residuals: Floats) -> Floats:
    """Residuals whose squares grow only linearly beyond one sigma (pseudo-Huber), so that odd rows do not rule the fit."""
    return np.asarray(np.sign(residuals) * np.sqrt(2.0 * (np.sqrt(1.0 + residuals**2) - 1.0)))


def column(rows: Sequence[dict[str, Any]], name: str) -> Floats:
    """A column of some rows as float64; NaN where it is empty."""
    return np.array([np.nan if row.get(name) is None else float(row[name]) for row in rows])
