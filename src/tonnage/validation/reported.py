"""What a benchmark reports of a simulated run, by the names of the columns of a measured table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tonnage.results.metrics import reported_rates, summarize

if TYPE_CHECKING:
    from tonnage.results.requests import Requests

RATES = ("requests_s", "output_tok_s")
"""Metrics that the attention ranks of an instance have together; of the others each rank has its own."""

PERCENTILES = (50, 90, 95, 99)


def reported_metrics(record: Requests) -> dict[str, float]:
    """Latencies in ms over the completed requests, and the rates per second up to the last completion.

    ``itl_ms`` is the mean TPOT, as GenAI-Perf reports it; percentiles of ITL are those of single gaps. Nothing is reported where no
    request completed, and no time per token where none had a second token.
    """
    summary = summarize(record)
    if not summary.counted:
        return {}
    found = dict(zip(RATES, reported_rates(record), strict=True))
    for metric in ("ttft", "e2e", "tpot", "itl"):
        statistics = getattr(summary, f"{metric}_ms")
        found[f"{metric}_ms"] = statistics.mean
        found |= {f"{metric}_p{p}_ms": getattr(statistics, f"p{p}") for p in PERCENTILES}
    found["itl_ms"] = found["tpot_ms"]
    several = found["tpot_ms"] == found["tpot_ms"]
    return found if several else {name: value for name, value in found.items() if not name.startswith(("tpot", "itl"))}
