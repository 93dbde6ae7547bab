"""What a benchmark reports of a simulated run, by the names of the columns of a measured table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tonnage.results.metrics import reported_rates, summarize

if TYPE_CHECKING:
    from tonnage.results.requests import Requests

RATES = ("requests_s", "output_tok_s")
"""Metrics that the attention ranks of an instance have together; of the others each rank has its own."""


def reported_metrics(record: Requests) -> dict[str, float]:
    """Latencies in ms over the completed requests, and the rates per second up to the last completion.

    ``itl_ms`` is the mean TPOT, as GenAI-Perf reports it; percentiles of ITL are those of single gaps. Nothing is reported where no
    request completed, and no time per token where none had a second token.
    """
    summary = summarize(record)
    if not summary.counted:
        return {}
    found = dict(zip(RATES, reported_rates(record), strict=True))
    latencies = {"ttft": summary.ttft_ms, "e2e": summary.e2e_ms, "tpot": summary.tpot_ms, "itl": summary.itl_ms}
    for metric, statistics in latencies.items():
        values = {"": statistics.mean, "_p50": statistics.p50, "_p90": statistics.p90, "_p95": statistics.p95, "_p99": statistics.p99}
        found |= {f"{metric}{statistic}_ms": value for statistic, value in values.items() if value is not None}
    return found | ({"itl_ms": found["tpot_ms"]} if "tpot_ms" in found else {})
