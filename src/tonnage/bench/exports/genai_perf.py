"""GenAI-Perf's ``profile_export_genai_perf.json`` and ``.csv`` (0.0.16), metrics as it defines them.

Its ``profile_export.json`` holds every reply's text, which is not kept here, and is not written.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from tonnage.bench.exports.finished_run import FinishedRun, statistics
from tonnage.results.store import write_json

_CSV = ("avg", "min", "max", "p99", "p95", "p90", "p75", "p50", "p25", "p10", "p5", "p1")
_NAMES = {
    "time_to_first_token": "Time To First Token (ms)",
    "time_to_second_token": "Time To Second Token (ms)",
    "request_latency": "Request Latency (ms)",
    "inter_token_latency": "Inter Token Latency (ms)",
    "output_token_throughput_per_user": "Output Token Throughput Per User (tokens/sec/user)",
    "output_sequence_length": "Output Sequence Length (tokens)",
    "input_sequence_length": "Input Sequence Length (tokens)",
}


def metrics(run: FinishedRun, *, counted: bool = False) -> dict[str, Any]:
    """Every metric over the completed requests, latencies from the moment of sending."""
    import numpy as np

    second = np.array([run.tokens(row)[1] - run.tokens(row)[0] for row in run.rows if run.lengths[row] > 1]) / 1e6
    decode = run.decode_ms
    per_user = 1e3 / decode[decode > 0]
    return {
        "request_throughput": {"unit": "requests/sec", "avg": len(run.rows) / run.seconds},
        "request_latency": statistics(run.latency_ms, "ms", counted=counted),
        "request_count": {"unit": "count" if not counted else "requests", "avg": float(len(run.rows))},
        "time_to_first_token": statistics(run.ttft_ms, "ms", counted=counted),
        "time_to_second_token": statistics(second, "ms", counted=counted),
        "inter_token_latency": statistics(decode, "ms", counted=counted),
        "output_token_throughput": {"unit": "tokens/sec", "avg": float(run.osl.sum()) / run.seconds},
        "output_token_throughput_per_user": statistics(per_user, "tokens/sec/user", counted=counted),
        "output_sequence_length": statistics(run.osl, "tokens", counted=counted),
        "input_sequence_length": statistics(run.isl, "tokens", counted=counted),
    }


def write(run: FinishedRun, folder: Path) -> list[Path]:
    """Write both files; their paths."""
    found = metrics(run)
    load = run.run["load"]
    stimulus = {"concurrency": load["concurrency"]} if load["concurrency"] else {"request_rate": load["request_rate"]}
    config = {
        "model_names": [run.run["endpoint"]["model"]],
        "endpoint": {"type": run.run["endpoint"]["type"], "streaming": run.run["endpoint"]["streaming"]},
        "perf_analyzer": {"stimulus": stimulus},
    }
    paths = [folder / "profile_export_genai_perf.json", folder / "profile_export_genai_perf.csv"]
    write_json(paths[0], {**found, "input_config": config})
    with paths[1].open("w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file)
        lines.writerow(["Metric", *_CSV])
        for key, name in _NAMES.items():
            lines.writerow([name, *(f"{found[key][s]:.2f}" if s in found[key] else "" for s in _CSV)])
        lines.writerow([])
        lines.writerow(["Metric", "Value"])
        lines.writerow(["Output Token Throughput (tokens/sec)", f"{found['output_token_throughput']['avg']:.2f}"])
        lines.writerow(["Request Throughput (per sec)", f"{found['request_throughput']['avg']:.2f}"])
        lines.writerow(["Request Count (count)", f"{found['request_count']['avg']:.2f}"])
    return paths
