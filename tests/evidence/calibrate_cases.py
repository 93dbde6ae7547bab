"""What the tests of calibrate share with others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tonnage.evidence.rows import LoadedRows
from tonnage.perf.terms_file import overlaid, shipped
from tonnage.spec.calibration import Calibration

TRUTH = {
    "compute": 0.93,
    "memory": 1.03,
    "kv_bandwidth": 0.95,
    "step_s": 1.3,
    "sequence_s": 1.4,
    "prefill_s": 1.4,
    "turnaround_s": 1.1,
}
METRICS = ("ttft_ms", "ttft_p95_ms", "itl_ms", "e2e_ms", "requests_s")
Row = dict[str, Any]


def with_factors(factors: dict[str, float]) -> dict[str, Any]:
    c = Calibration(
        preset="nim-2024", gpu="h100-sxm-80gb", multipliers=tuple(factors.items()), data=""
    )
    return overlaid(shipped(), c, "h100-sxm-80gb")


MACHINE = {
    "model": "llama-3-8b",
    "gpu": "h100-sxm-80gb",
    "precision": "fp16",
    "tp": 1,
    "engine": "nim-2024",
}


def measured(
    isl: int, osl: int, terms: dict[str, Any], clients: Sequence[int] = (1, 2, 4, 8, 16, 32, 64)
) -> list[Row]:
    """A curve as a benchmark of a machine with these terms would measure it."""
    what = {**MACHINE, "isl": isl, "osl": osl}
    rows = [
        {**what, "concurrency": n, "requests": 8 * n, **dict.fromkeys(METRICS, 1.0)}
        for n in clients
    ]
    loaded = LoadedRows(rows)
    loaded.simulate(terms)
    return [
        {**row, **{name: float(loaded.simulated(name)[i]) for name in METRICS}}
        for i, row in enumerate(rows)
    ]
