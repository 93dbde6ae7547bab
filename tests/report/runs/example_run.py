"""Runs whose latencies are known by construction: TTFT is 30 ms + 20 ms per 1,000 prompt tokens, a
gap 10 ms + 40 ms per 1,000 tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tonnage.results.metrics import summarize
from tonnage.results.store import Batch, RunWriter, gap_counts, summary_document, write_run

COUNT = 200
TTFT_MS, TTFT_SLOPE = 30.0, 20.0
GAP_MS, GAP_SLOPE = 10.0, 40.0
PROVENANCE = {
    "tonnage": "0.1.0",
    "command": "./tonnage bench --model m",
    "seed": 3,
    "date": "2026-11-22",
}
VALIDITY = {
    "verdict": "INVALID",
    "reasons": ["the event loop was late: mean 9 ms > 2 ms"],
    "notes": ["p99: too few samples"],
}
FACTS: dict[str, Any] = {
    "validity": VALIDITY,
    "intervals": {"confidence": 0.95, "ttft_ms": {"mean": [60.0, 80.0]}},
    "client": {"cpu_us_per_token": 8.25},
    "selftest": {"bias_ms": 0.31, "streams": 8},
    "endpoint": {"model": "m"},
}
SCENARIO: dict[str, Any] = {
    "gpu": None,
    "model": "m",
    "url": "http://server",
    "endpoint_type": "chat",
    "isl": "uniform:100-4000",
    "osl": "50",
    "arrivals": {"rate": 10.0, "process": "poisson"},
}


def batch(*, count: int = COUNT, failed: int = 0, osl: int = 50, slower: float = 1.0) -> Batch:
    """Requests of one tenth of a second apart; the last ``failed`` of them never answered."""
    isl = np.random.default_rng(5).integers(100, 4_001, count)
    due = np.arange(count) * 100_000_000
    sent = due + 2_000_000
    ttft = np.rint((TTFT_MS + TTFT_SLOPE * isl / 1e3) * slower * 1e6).astype(np.int64)
    gaps = np.rint((GAP_MS + GAP_SLOPE * np.arange(1, osl) / 1e3) * slower * 1e6).astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(gaps)])
    first, last = due + ttft, due + ttft + offsets[-1]
    status, outputs = np.zeros(count, np.int64), np.full(count, osl)
    if failed:
        first[-failed:], last[-failed:], status[-failed:], outputs[-failed:] = -1, -1, 3, 0
    zeros = np.zeros(count, np.int64)
    rows = np.stack([due, sent, first, last, isl, outputs, zeros, zeros, status, zeros], axis=1)
    moments = [ttft[i] - 2_000_000 + offsets for i in range(count) if outputs[i]]
    return Batch(
        rows=rows, offsets_ns=np.concatenate(moments) if moments else zeros[:0], lengths=outputs
    )


def gap_histogram(osl: int = 50, requests: int = COUNT, slower: float = 1.0) -> Any:
    """The gaps of so many outputs."""
    positions = np.tile(np.arange(1, osl), requests)
    return gap_counts(
        np.rint((GAP_MS + GAP_SLOPE * positions / 1e3) * slower * 1e6).astype(np.int64), positions
    )


def measured(
    folder: Path,
    *,
    tokens: bool = True,
    failed: int = 0,
    clients: int = 0,
    slower: float = 1.0,
    facts: dict[str, Any] | None = None,
) -> Path:
    """A measured run's folder."""
    writer = RunWriter(folder, tokens=tokens)
    writer.add(batch(failed=failed, slower=slower))
    writer.add_gaps(gap_histogram(requests=COUNT - failed, slower=slower))
    requests = writer.finish()
    summary = summary_document(summarize(requests), requests, ())
    scenario = {**SCENARIO, "arrivals": {"concurrency": clients}} if clients else SCENARIO
    writer.close(
        scenario=scenario,
        summary=summary,
        provenance=PROVENANCE,
        run=FACTS if facts is None else facts,
    )
    return folder


def simulated(folder: Path, *, gaps: bool = True) -> Path:
    """A simulated run's folder: no run.json, no single tokens."""
    requests = batch().requests(gap_histogram() if gaps else gap_histogram(requests=0))
    scenario = {
        "model": "llama-3-8b",
        "gpu": "h100-sxm-80gb",
        "precision": "fp8",
        "tp": 2,
        "engine": "vllm-0.21",
        "arrivals": {"concurrency": 8},
    }
    write_run(folder, scenario, requests, summarize(requests), PROVENANCE)
    return folder


def sweep(folder: Path) -> Path:
    """Three loads, whose names do not stand in the order of the loads."""
    for clients in (8, 16, 2):
        measured(folder / f"concurrency-{clients}", clients=clients, slower=1 + clients / 4)
    return folder


def with_server_metrics(folder: Path) -> Path:
    """The same folder with ten readings of a server of two ranks: requests, and KV cache."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = []
    for second in range(10):
        for rank in (0, 1):
            labels = f'{{engine="{rank}"}}'
            rows.append(
                (second * 1_000_000_000, f"vllm:num_requests_running{labels}", float(second))
            )
            rows.append(
                (second * 1_000_000_000, f"vllm:kv_cache_usage_perc{labels}", 0.1 * second * rank)
            )
    times, names, values = zip(*rows, strict=True)
    table = pa.table(
        {
            "time_ns": pa.array(times),
            "name": pa.array(names).dictionary_encode(),
            "value": pa.array(values),
        }
    )
    pq.write_table(table, folder / "server_metrics.parquet")
    return folder
