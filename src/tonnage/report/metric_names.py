"""What the columns of a measurement are called in a table."""

from __future__ import annotations

METRICS = {
    "ttft_ms": "TTFT",
    "ttft_p95_ms": "TTFT p95",
    "itl_ms": "TPOT",
    "itl_p95_ms": "ITL p95",
    "e2e_ms": "E2E",
    "e2e_p95_ms": "E2E p95",
    "requests_s": "requests/s",
    "output_tok_s": "tokens/s",
    "peak_gpu_memory_gb": "peak memory",
}
"""By the name that the column has in a file of measured points, where "itl" is the mean time per token of a request: TPOT."""
